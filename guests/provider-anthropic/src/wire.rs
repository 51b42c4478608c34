//! What the Messages API sends, borrowed from the bytes it came in. One flat
//! struct per object: an internally tagged enum would make serde copy every
//! frame into a tree first.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// Text that stays borrowed unless it holds escapes, also inside an `Option`.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct Text<'a>(#[serde(borrow)] pub Cow<'a, str>);

impl Text<'_> {
    /// The text for an event: the one allocation of a delta.
    pub fn into_string(self) -> String {
        self.0.into_owned()
    }
}

/// One event of the stream; which fields are there depends on `kind`.
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
    /// Absent where this is no message at all.
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
    /// What a provider-side tool returned; an object instead of a list when it failed.
    #[serde(default, borrow)]
    pub content: Option<&'a RawValue>,
    #[serde(default, borrow)]
    pub tool_use_id: Option<Text<'a>>,
}

/// Where a piece of text comes from. Only sources on the web have a `url`.
#[derive(Debug, Deserialize)]
pub struct Citation<'a> {
    #[serde(default, borrow)]
    pub url: Option<Text<'a>>,
    /// A search result the client supplied names its origin here.
    #[serde(default, borrow)]
    pub source: Option<Text<'a>>,
    #[serde(default, borrow)]
    pub title: Option<Text<'a>>,
    #[serde(default, borrow)]
    pub cited_text: Option<Text<'a>>,
}

/// Why the provider withheld the rest.
#[derive(Debug, Deserialize)]
pub struct StopDetails<'a> {
    #[serde(default, borrow)]
    pub explanation: Option<Text<'a>>,
}

/// Counts. In a stream each report holds totals so far, and only those that changed.
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

/// What the output tokens went into.
#[derive(Debug, Default, Deserialize)]
pub struct OutputDetails {
    #[serde(default)]
    pub thinking_tokens: Option<u64>,
    #[serde(default)]
    pub reasoning_tokens: Option<u64>,
}

/// Requests the provider's own tools made.
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
