//! What a client asks of its answer beyond the body, and the answer that the server sends.

use crate::lifecycle::stream::EventStream;
use crate::refusal::Refusal;
use bytes::Bytes;

/// How a client wants its answer, from the request's headers.
#[derive(Clone, Debug, Default)]
pub struct RespondOptions {
    /// The field for routing metadata, when the client opted in:
    /// `service_metadata` or `openrouter_metadata`.
    pub metadata_field: Option<&'static str>,
    /// The value of `x-session-id`; the body's `session_id` wins.
    pub session_header: Option<String>,
}

/// The longest session identifier, in characters (interface section 8).
const SESSION_CHARS_MAX: usize = 256;

impl RespondOptions {
    /// Refuses a session header that counts and is too long. The body's value wins over it.
    pub(crate) fn check_session(&self, in_body: Option<&str>) -> Result<(), Refusal> {
        let header = self.session_header.as_deref().filter(|_| in_body.is_none());
        match header {
            Some(session) if session.chars().count() > SESSION_CHARS_MAX => {
                Err(Refusal::invalid("x-session-id must have at most 256 characters"))
            }
            _ => Ok(()),
        }
    }
}

/// An answer.
pub struct Answer {
    /// The id of the response or embedding.
    pub id: String,
    /// What to send.
    pub body: AnswerBody,
}

/// The two forms of an answer.
pub enum AnswerBody {
    /// One JSON body.
    Whole(Bytes),
    /// Server-sent events.
    Stream(EventStream),
}
