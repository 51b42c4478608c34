//! Answers that a guest reads piece by piece. Reflections are noted with the piece in which they
//! are found.

use super::HttpCapability;
use super::visit::{Reached, Visit};
use crate::timeline::Timeline;
use cofferdam_egress::{GuestBody, Target};
use cofferdam_runtime::Grant;
use cofferdam_runtime::services::{HttpBody, HttpExchange, Opening};
use cofferdam_runtime::wire::HttpError;
use std::sync::Arc;
use tokio::time::{Instant, timeout_at};

/// The body of an answer that is being read. Its time and length count against the limits of the
/// request.
struct StreamedBody {
    capability: Arc<HttpCapability>,
    plugin: String,
    grant: Grant,
    target: Target,
    body: GuestBody,
    /// When the time for the whole exchange is over.
    deadline: Instant,
    /// Whether a secret came back and the grant blocks such answers.
    is_blocked: bool,
}

/// An answer whose body is still to be read.
pub(super) fn exchange(
    capability: Arc<HttpCapability>,
    plugin: &str,
    grant: &Grant,
    reached: Reached,
    deadline: Instant,
) -> HttpExchange {
    let Reached { target, reply, .. } = reached;
    let (plugin, grant) = (plugin.to_owned(), grant.clone());
    let body =
        StreamedBody { capability, plugin, grant, target, body: reply.body, deadline, is_blocked: false };
    HttpExchange { status: reply.status.as_u16(), headers: reply.headers, body: Box::new(body) }
}

impl StreamedBody {
    async fn next(&mut self) -> Result<Vec<u8>, HttpError> {
        let piece = timeout_at(self.deadline, self.body.chunk()).await;
        let piece = piece.unwrap_or(Err(cofferdam_egress::Error::TimedOut));
        let reflected = self.body.reflected();
        let Self { capability, plugin, grant, target, .. } = self;
        let timeline = &Timeline::default();
        let visit = Visit { capability, plugin, grant, timeline };
        self.is_blocked |= visit.note_reflections(&reflected).is_err();
        if self.is_blocked {
            return Err(HttpError::Denied);
        }
        let piece = piece.map_err(|error| visit.refuse(target.host_name(), error.into()))?;
        Ok(piece.map(Vec::from).unwrap_or_default())
    }
}

impl HttpBody for StreamedBody {
    fn read(&mut self) -> Opening<'_, Result<Vec<u8>, HttpError>> {
        Box::pin(self.next())
    }
}
