//! Answers that a guest reads piece by piece. Reflections are noted with the piece in which they
//! are found.

use super::{HttpCapability, Reached, Sent, Visit};
use cofferdam_egress::{GuestBody, GuestRequest};
use cofferdam_runtime::Grant;
use cofferdam_runtime::services::{HttpBody, HttpExchange, Opening};
use cofferdam_runtime::wire::HttpError;
use cofferdam_store::SecretName;
use std::sync::Arc;
use tokio::time::{Instant, timeout_at};

/// The body of an answer that is being read. Its time and length count against the limits of the
/// request.
struct StreamedBody {
    door: Arc<HttpCapability>,
    plugin: String,
    grant: Grant,
    request: GuestRequest,
    body: GuestBody,
    /// When the time for the whole exchange is over.
    deadline: Instant,
    /// The secrets that were sent and have not come back so far.
    sent: Vec<Sent>,
    /// Whether a secret came back and the grant blocks such answers.
    is_blocked: bool,
}

/// An answer whose body is still to be read.
pub(super) fn exchange(
    door: Arc<HttpCapability>,
    plugin: &str,
    grant: &Grant,
    reached: Reached,
    deadline: Instant,
) -> HttpExchange {
    let Reached { request, reply, sent } = reached;
    let (plugin, grant) = (plugin.to_owned(), grant.clone());
    let body =
        StreamedBody { door, plugin, grant, request, body: reply.body, deadline, sent, is_blocked: false };
    HttpExchange { status: reply.status.as_u16(), headers: reply.headers, body: Box::new(body) }
}

impl StreamedBody {
    async fn next(&mut self) -> Result<Vec<u8>, HttpError> {
        let piece = timeout_at(self.deadline, self.body.chunk()).await;
        let piece = piece.unwrap_or(Err(cofferdam_egress::Error::TimedOut));
        let Self { door, plugin, grant, request, .. } = self;
        let visit = Visit { door, plugin, grant };
        let reflected = self.body.reflected();
        let (back, out): (Vec<Sent>, _) =
            std::mem::take(&mut self.sent).into_iter().partition(|sent| reflected.contains(&sent.secret));
        self.sent = out;
        let fresh: Vec<SecretName> = back.iter().map(|sent| sent.secret.clone()).collect();
        self.is_blocked |= visit.note_reflections(request, &fresh, &back).is_err();
        if self.is_blocked {
            return Err(HttpError::Denied);
        }
        let piece = piece.map_err(|error| visit.refuse(request.target.host_name(), error.into()))?;
        Ok(piece.map(Vec::from).unwrap_or_default())
    }
}

impl HttpBody for StreamedBody {
    fn read(&mut self) -> Opening<'_, Result<Vec<u8>, HttpError>> {
        Box::pin(self.next())
    }
}
