//! The answers of the Messages API, borrowed from the received bytes. Each object is one flat
//! struct: with an internally tagged enum, serde would first copy every frame into a tree.

use std::borrow::Cow;

use cofferdam_guest_kit::{Count, MaybeText, if_readable};
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
#[serde(bound(deserialize = "'de: 'a"))]
pub struct StreamEvent<'a> {
    #[serde(rename = "type", default, borrow)]
    pub kind: Cow<'a, str>,
    #[serde(default)]
    pub index: u32,
    pub delta: Option<Delta<'a>>,
    pub content_block: Option<Block<'a>>,
    pub message: Option<Message<'a>>,
    #[serde(default, deserialize_with = "if_readable")]
    pub usage: Option<Usage<'a>>,
    #[serde(default, deserialize_with = "if_readable")]
    pub error: Option<ErrorBody<'a>>,
}

/// The change in a `content_block_delta` or `message_delta`.
#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub struct Delta<'a> {
    /// Absent in a `message_delta`.
    #[serde(rename = "type")]
    pub kind: Option<Text<'a>>,
    pub text: Option<Text<'a>>,
    pub thinking: Option<Text<'a>>,
    pub signature: Option<Text<'a>>,
    pub partial_json: Option<Text<'a>>,
    pub citation: Option<Citation<'a>>,
    pub stop_reason: Option<Text<'a>>,
    pub stop_details: Option<StopDetails<'a>>,
}

/// A message: the whole body of an answer, or the empty one that opens a stream.
#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub struct Message<'a> {
    /// `message`, or `error` when a proxy answers an error with status 200.
    #[serde(rename = "type")]
    pub kind: Option<Text<'a>>,
    /// Absent when the body is not a message.
    pub content: Option<Vec<Block<'a>>>,
    pub stop_reason: Option<Text<'a>>,
    pub stop_details: Option<StopDetails<'a>>,
    #[serde(default, deserialize_with = "if_readable")]
    pub usage: Option<Usage<'a>>,
    #[serde(default, deserialize_with = "if_readable")]
    pub error: Option<ErrorBody<'a>>,
}

/// A content block.
#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub struct Block<'a> {
    #[serde(rename = "type", borrow)]
    pub kind: Cow<'a, str>,
    pub text: Option<Text<'a>>,
    pub thinking: Option<Text<'a>>,
    pub signature: Option<Text<'a>>,
    pub data: Option<Text<'a>>,
    pub id: Option<Text<'a>>,
    pub name: Option<Text<'a>>,
    pub input: Option<&'a RawValue>,
    pub citations: Option<Vec<Citation<'a>>>,
    /// The result of a provider tool: a list, or an object when the tool failed.
    pub content: Option<&'a RawValue>,
    pub tool_use_id: Option<Text<'a>>,
}

/// The source of a piece of text. Only web sources have a `url`.
#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub struct Citation<'a> {
    pub url: Option<Text<'a>>,
    /// The origin of a search result that the client supplied.
    pub source: Option<Text<'a>>,
    pub title: Option<Text<'a>>,
    pub cited_text: Option<Text<'a>>,
}

/// Why the provider withheld the rest of the answer.
#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub struct StopDetails<'a> {
    pub explanation: Option<Text<'a>>,
}

/// Token counts. In a stream, each report has the totals so far, and only those that changed.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Usage<'a> {
    pub input_tokens: Count,
    pub cache_creation_input_tokens: Count,
    pub cache_read_input_tokens: Count,
    pub output_tokens: Count,
    #[serde(deserialize_with = "if_readable")]
    pub output_tokens_details: Option<OutputDetails>,
    #[serde(deserialize_with = "if_readable")]
    pub server_tool_use: Option<ServerToolUse>,
    /// `standard`, `priority` or `batch`.
    pub service_tier: MaybeText<'a>,
    /// `fast` or `standard`.
    pub speed: MaybeText<'a>,
}

/// How the output tokens divide up.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct OutputDetails {
    pub thinking_tokens: Count,
    pub reasoning_tokens: Count,
}

/// The requests that provider tools made.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ServerToolUse {
    pub web_search_requests: Count,
    pub web_fetch_requests: Count,
}

/// The `error` of an error answer or event.
#[derive(Debug, Default, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub struct ErrorBody<'a> {
    #[serde(rename = "type")]
    pub kind: Option<Text<'a>>,
    pub message: Option<Text<'a>>,
}
