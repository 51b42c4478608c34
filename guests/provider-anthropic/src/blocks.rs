//! Content blocks of the Messages API, borrowed from the request.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::cache::CacheControl;

/// Text of the request, borrowed where possible.
pub type Text<'a> = Cow<'a, str>;

/// One block of a turn or of a tool result.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block<'a> {
    Text {
        text: Text<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    Image {
        source: Source<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    Document {
        source: Source<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<Text<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    Thinking {
        thinking: Text<'a>,
        signature: Text<'a>,
    },
    RedactedThinking {
        data: Text<'a>,
    },
    ToolUse {
        id: String,
        name: Text<'a>,
        input: Box<RawValue>,
    },
    ToolResult {
        tool_use_id: String,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        content: Vec<Block<'a>>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

/// The content of an image or a document.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Source<'a> {
    Base64 { media_type: Text<'a>, data: Text<'a> },
    Url { url: Text<'a> },
    Text { media_type: &'static str, data: Text<'a> },
}

impl<'a> Block<'a> {
    /// A text block without a cache mark.
    pub fn text(text: impl Into<Text<'a>>) -> Self {
        Block::Text { text: text.into(), cache_control: None }
    }

    /// Whether this block is reasoning.
    pub fn is_thinking(&self) -> bool {
        matches!(self, Block::Thinking { .. } | Block::RedactedThinking { .. })
    }

    /// The field for the cache mark, for the kinds of blocks that have one.
    pub fn cache_control_mut(&mut self) -> Option<&mut Option<CacheControl>> {
        match self {
            Block::Text { cache_control, .. }
            | Block::Image { cache_control, .. }
            | Block::Document { cache_control, .. } => Some(cache_control),
            _ => None,
        }
    }
}

/// The author of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    User,
    Assistant,
}

/// One turn of the conversation.
#[derive(Debug, Serialize)]
pub struct Turn<'a> {
    pub role: Side,
    pub content: Vec<Block<'a>>,
}
