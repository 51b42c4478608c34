//! The answers of the Messages API, borrowed from the received bytes. Each object is one flat
//! struct: with an internally tagged enum, serde would first copy every frame into a tree.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// Text that is borrowed unless it has escapes, also inside an `Option`.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct Text<'a>(#[serde(borrow)] pub Cow<'a, str>);

impl Text<'_> {
    /// The text for an event. This is the only allocation for a delta.
    pub fn into_string(self) -> String {
        self.0.into_owned()
    }
}

/// One event of the stream. `kind` decides which fields are present.
#[derive(Debug, Deserialize)]
pub struct StreamEvent<'a> {
    #[serde(rename = "type", default, borrow)]
    pub kind: Cow<'a, str>,
    #[serde(default)]
    pub index: u32,
    #[serde(default, borrow)]
    pub delta: Option<Delta<'a>>,
    #[serde(default, borrow)]
    pub content_block: Option<Block<'a>>,
    #[serde(default, borrow)]
    pub message: Option<Message<'a>>,
    #[serde(default, borrow)]
    pub usage: Option<Usage<'a>>,
    #[serde(default, borrow)]
    pub error: Option<ErrorBody<'a>>,
}

/// The change in a `content_block_delta` or `message_delta`.
#[derive(Debug, Deserialize)]
pub struct Delta<'a> {
    /// Absent in a `message_delta`.
    #[serde(rename = "type", default, borrow)]
    pub kind: Option<Text<'a>>,
    #[serde(default, borrow)]
    pub text: Option<Text<'a>>,
    #[serde(default, borrow)]
    pub thinking: Option<Text<'a>>,
    #[serde(default, borrow)]
    pub signature: Option<Text<'a>>,
    #[serde(default, borrow)]
    pub partial_json: Option<Text<'a>>,
    #[serde(default, borrow)]
    pub citation: Option<Citation<'a>>,
    #[serde(default, borrow)]
    pub stop_reason: Option<Text<'a>>,
    #[serde(default, borrow)]
    pub stop_details: Option<StopDetails<'a>>,
}

/// A message: the whole body of an answer, or the empty one that opens a stream.
#[derive(Debug, Deserialize)]
pub struct Message<'a> {
    /// `message`, or `error` when a proxy answers an error with status 200.
    #[serde(rename = "type", default, borrow)]
    pub kind: Option<Text<'a>>,
    /// Absent when the body is not a message.
    #[serde(default, borrow)]
    pub content: Option<Vec<Block<'a>>>,
    #[serde(default, borrow)]
    pub stop_reason: Option<Text<'a>>,
    #[serde(default, borrow)]
    pub stop_details: Option<StopDetails<'a>>,
    #[serde(default, borrow)]
    pub usage: Option<Usage<'a>>,
    #[serde(default, borrow)]
    pub error: Option<ErrorBody<'a>>,
}

/// A content block.
#[derive(Debug, Deserialize)]
pub struct Block<'a> {
    #[serde(rename = "type", borrow)]
    pub kind: Cow<'a, str>,
    #[serde(default, borrow)]
    pub text: Option<Text<'a>>,
    #[serde(default, borrow)]
    pub thinking: Option<Text<'a>>,
    #[serde(default, borrow)]
    pub signature: Option<Text<'a>>,
    #[serde(default, borrow)]
    pub data: Option<Text<'a>>,
    #[serde(default, borrow)]
    pub id: Option<Text<'a>>,
    #[serde(default, borrow)]
    pub name: Option<Text<'a>>,
    #[serde(default, borrow)]
    pub input: Option<&'a RawValue>,
    #[serde(default, borrow)]
    pub citations: Option<Vec<Citation<'a>>>,
    /// The result of a provider tool: a list, or an object when the tool failed.
    #[serde(default, borrow)]
    pub content: Option<&'a RawValue>,
    #[serde(default, borrow)]
    pub tool_use_id: Option<Text<'a>>,
}

/// The source of a piece of text. Only web sources have a `url`.
#[derive(Debug, Deserialize)]
pub struct Citation<'a> {
    #[serde(default, borrow)]
    pub url: Option<Text<'a>>,
    /// The origin of a search result that the client supplied.
    #[serde(default, borrow)]
    pub source: Option<Text<'a>>,
    #[serde(default, borrow)]
    pub title: Option<Text<'a>>,
    #[serde(default, borrow)]
    pub cited_text: Option<Text<'a>>,
}

/// Why the provider withheld the rest of the answer.
#[derive(Debug, Deserialize)]
pub struct StopDetails<'a> {
    #[serde(default, borrow)]
    pub explanation: Option<Text<'a>>,
}

/// Token counts. In a stream, each report has the totals so far, and only those that changed.
#[derive(Debug, Default, Deserialize)]
pub struct Usage<'a> {
    #[serde(default)]
    pub input_tokens: Option<u64>,
    #[serde(default)]
    pub cache_creation_input_tokens: Option<u64>,
    #[serde(default)]
    pub cache_read_input_tokens: Option<u64>,
    #[serde(default)]
    pub output_tokens: Option<u64>,
    #[serde(default)]
    pub output_tokens_details: Option<OutputDetails>,
    #[serde(default)]
    pub server_tool_use: Option<ServerToolUse>,
    /// `standard`, `priority` or `batch`.
    #[serde(default, borrow)]
    pub service_tier: Option<Text<'a>>,
    /// `fast` or `standard`.
    #[serde(default, borrow)]
    pub speed: Option<Text<'a>>,
}

/// How the output tokens divide up.
#[derive(Debug, Default, Deserialize)]
pub struct OutputDetails {
    #[serde(default)]
    pub thinking_tokens: Option<u64>,
    #[serde(default)]
    pub reasoning_tokens: Option<u64>,
}

/// The requests that provider tools made.
#[derive(Debug, Default, Deserialize)]
pub struct ServerToolUse {
    #[serde(default)]
    pub web_search_requests: Option<u32>,
    #[serde(default)]
    pub web_fetch_requests: Option<u32>,
}

/// The `error` of an error answer or event.
#[derive(Debug, Default, Deserialize)]
pub struct ErrorBody<'a> {
    #[serde(rename = "type", default, borrow)]
    pub kind: Option<Text<'a>>,
    #[serde(default, borrow)]
    pub message: Option<Text<'a>>,
}
