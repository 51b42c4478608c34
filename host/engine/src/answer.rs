//! What a client asks of its answer beyond the body, and the answer that the server sends.

use crate::export::TraceParent;
use crate::lifecycle::stream::EventStream;
use crate::refusal::Refusal;
use crate::timeline::StepSender;
use bytes::Bytes;
use std::any::Any;
use uuid::Uuid;

/// How a client wants its answer, from the request's headers.
#[derive(Debug, Default)]
pub struct RespondOptions {
    /// The name of the routing metadata in the answer, if the client asked for it:
    /// `service_metadata` or `openrouter_metadata`.
    pub metadata_field: Option<&'static str>,
    /// The value of `x-session-id`. The `session_id` of the body takes precedence.
    pub session_header: Option<String>,
    /// The trace of the client, from its header `traceparent`.
    pub trace_parent: Option<TraceParent>,
    /// The id of the request in the log of the host.
    pub log_id: Option<Uuid>,
    /// Gets the steps of the request as they happen, where they are followed.
    pub follow: Option<StepSender>,
    /// The share of the server's memory for bodies that the request holds. It is dropped as soon as
    /// neither the body nor a document made of it is in memory.
    pub body_share: Option<Box<dyn Any + Send + Sync>>,
}

/// The longest session id, in characters.
const SESSION_CHARS_MAX: usize = 256;

impl RespondOptions {
    /// Refuses a session header that is too long, unless the body has a `session_id`, which takes
    /// precedence.
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

/// A successful answer.
pub struct Answer {
    /// The id of the response or of the embeddings.
    pub id: String,
    /// The body to send.
    pub body: AnswerBody,
}

/// The two forms of an answer.
pub enum AnswerBody {
    /// One JSON body.
    Whole(Bytes),
    /// Server-sent events.
    Stream(EventStream),
}
