//! Why a body was refused: where, and what was expected there.
//!
//! Messages are predicates, so that path and message read as one sentence. They never quote a value;
//! only an unknown discriminator or key is named, cut short and with control characters escaped.

use std::fmt;

/// How many characters of a client's own word are repeated in a message.
const QUOTED_CHARS_MAX: usize = 64;

/// The canonical error type of a refused body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvalidKind {
    /// Malformed, missing, mistyped, out of range or not supported.
    InvalidRequest,
    /// Larger than any offset the parser keeps (4 GiB); the server's own limit is far below.
    PayloadTooLarge,
    /// It names something that does not exist, 404.
    NotFound,
}

impl InvalidKind {
    /// The canonical name: `invalid_request` or `payload_too_large`.
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
    /// Where, as in `input[3].content[0].image_url`; empty for the body as a whole.
    pub path: String,
    /// What is wrong there, without the path and without content.
    pub message: String,
}

impl InvalidRequest {
    /// A refusal at a path.
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

/// A word of the client made safe to repeat: at most 64 characters, control characters escaped.
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
