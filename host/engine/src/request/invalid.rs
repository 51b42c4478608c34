//! Why a request body was refused: the JSON path, and what was expected there.
//!
//! Messages are predicates, so that path and message read as one sentence. They never quote a
//! value, because values are user content. Only an unknown discriminator or key is quoted,
//! truncated and with control characters escaped.

use std::fmt;

/// How many characters of a discriminator or key are quoted in a message.
const QUOTED_CHARS_MAX: usize = 64;

/// The canonical error type of a refused body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvalidKind {
    /// Malformed, missing, mistyped, out of range or not supported.
    InvalidRequest,
    /// Larger than the 32-bit offsets of the parser allow (4 GiB). The server's own limit is far
    /// lower.
    PayloadTooLarge,
    /// The body names something that does not exist; answered with status 404.
    NotFound,
}

impl InvalidKind {
    /// The canonical name, such as `invalid_request`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request",
            Self::PayloadTooLarge => "payload_too_large",
            Self::NotFound => "not_found",
        }
    }
}

impl fmt::Display for InvalidKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A refused body. Displays as one sentence that starts with the JSON path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidRequest {
    /// The canonical error type.
    pub kind: InvalidKind,
    /// The JSON path, as in `input[3].content[0].image_url`; empty for the body as a whole.
    pub path: String,
    /// What is wrong there, without the path and without any value from the body.
    pub message: String,
}

impl InvalidRequest {
    /// A refusal of kind `invalid_request`.
    #[must_use]
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind: InvalidKind::InvalidRequest, path: path.into(), message: message.into() }
    }
}

impl fmt::Display for InvalidRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            write!(f, "The request body {}", self.message)
        } else {
            write!(f, "{} {}", self.path, self.message)
        }
    }
}

impl std::error::Error for InvalidRequest {}

/// A string of the client, safe to quote: at most 64 characters, control characters escaped.
pub(super) fn quoted(word: &str) -> String {
    let mut out = String::with_capacity(word.len().min(QUOTED_CHARS_MAX) + 2);
    for (count, c) in word.chars().enumerate() {
        if count == QUOTED_CHARS_MAX {
            out.push('…');
            break;
        }
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}
