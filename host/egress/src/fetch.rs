//! Requests that a guest makes by itself, to a URL that it writes.
//!
//! The order is that of the rules: everything about the request is looked at before a secret is, its name is
//! resolved, its addresses are looked at and a connection is made (so that nobody releases one for a request that
//! is not sent), then secrets are put into their places, then the request is sent, once. What comes back is searched for what
//! was put in. One exchange is one request: redirects are answers like any other (R10).

use std::{
    fmt,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use cofferdam_store::{Release, SecretName};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::Full;
use tokio::time::{Instant, timeout_at};

use crate::{
    Egress, Error, Injection, Limits, Reason, ReplyBody, ScrubSet, Slot, Target, headers,
    place::{self, Filled},
};

/// However long a guest may wait, a clock can count it.
const TOTAL_MAX: Duration = Duration::from_secs(60 * 60);
/// The longest headers of an answer, all together, in bytes.
const HEADERS_BYTES_MAX: usize = 64 * 1024;

/// A request of a guest.
#[derive(Clone)]
pub struct GuestRequest {
    /// `GET`, `HEAD`, `POST`, `PUT`, `PATCH` or `DELETE`.
    pub method: String,
    /// Where to.
    pub target: Target,
    /// The guest's headers, at most 100, with placeholders if the grant allows them.
    pub headers: Vec<(String, String)>,
    /// The guest's body.
    pub body: Bytes,
    /// How much and how long.
    pub limits: GuestLimits,
    /// May it go to public addresses only, whatever `allow_private` opens? So for hosts that nobody named.
    pub public_only: bool,
}

/// Bounds of one exchange of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestLimits {
    /// The longest body to accept, in bytes.
    pub body_bytes_max: u64,
    /// The longest time for everything, from resolving the name to the last byte of the body; at most an hour.
    pub total: Duration,
}

/// What came back; released values are removed from all of it.
#[derive(Debug)]
pub struct GuestReply {
    /// The status; redirects are answers like any other.
    pub status: StatusCode,
    /// The headers without those of the connection, of sessions and of the body's encoding; names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, not yet read.
    pub body: GuestBody,
    /// The values that went along.
    pub values: ScrubSet,
}

/// The body of an answer, piece by piece.
#[derive(Debug)]
pub struct GuestBody {
    body: ReplyBody,
    deadline: Instant,
    /// What went along, and a bit for each that came back with the head.
    secrets: Vec<SecretName>,
    reflected: u64,
}

impl Egress {
    /// Looks at everything that does not need a secret's value: method, scheme, port, address, headers,
    /// placeholders, and whether the places for the named secrets are there and free. [`Egress::fetch`] does so
    /// too; asked first, it keeps a secret from being released for a request that will be refused.
    ///
    /// # Errors
    ///
    /// The rule that the request breaks.
    pub fn check(&self, request: &GuestRequest, slots: &[(&Slot, &SecretName)]) -> Result<(), Reason> {
        self.check_way(request, !slots.is_empty())?;
        place::check(request, slots).map(drop)
    }

    /// Makes sure that the host can be reached, without sending anything: its name leads to open addresses only,
    /// and somebody answers there who proves to be it. [`Egress::fetch`] does so too; asked first, it keeps a secret
    /// from being released for a request that cannot be sent. The connection waits for that request.
    ///
    /// # Errors
    ///
    /// As [`Egress::fetch`], of a request that was not sent.
    pub async fn connect(&self, request: &GuestRequest) -> Result<(), Error> {
        self.check_way(request, true)?;
        let target = &request.target;
        let connecting = self.guests(request).connect(target.key(), target.uri().clone());
        let total = request.limits.total.min(TOTAL_MAX);
        tokio::time::timeout(total, connecting).await.unwrap_or(Err(Error::TimedOut))
    }

    /// Sends a request once and waits for the head of the answer.
    ///
    /// # Errors
    ///
    /// See [`Error`]. Nothing in it tells more about the other side than its variant.
    pub async fn fetch(
        &self,
        request: GuestRequest,
        injections: Vec<Injection>,
    ) -> Result<GuestReply, Error> {
        let total = request.limits.total.min(TOTAL_MAX);
        let deadline = Instant::now() + total;
        self.check_way(&request, !injections.is_empty())?;
        let Filled { method, uri, headers, body } = place::fill(&request, &injections)?;
        let desynchronizes = matches!(method, Method::GET | Method::HEAD) && !body.is_empty();
        let mut outward = Request::new(Full::new(body));
        *outward.method_mut() = method;
        *outward.headers_mut() = headers;

        let target = &request.target;
        let client = self.guests(&request);
        let is_sent = AtomicBool::new(false);
        let exchange = client.exchange(target.key(), target.host_header(), uri, outward, &is_sent);
        let outcome = timeout_at(deadline, exchange).await;
        let (mut head, exchange) = outcome.map_err(|_elapsed| Error::TimedOut)??;
        // Nobody asked to switch to another protocol, and of an encoded body nobody could say what is in it.
        if head.status == StatusCode::SWITCHING_PROTOCOLS || headers::is_encoded(&head.headers) {
            return Err(Error::Broken);
        }
        // A piece that was not asked for: a secret that is cut in two would not be found in it (R19).
        if head.status == StatusCode::PARTIAL_CONTENT && !injections.is_empty() {
            return Err(Error::Broken);
        }
        let limits = Limits { head: total, idle: total, body_bytes_max: request.limits.body_bytes_max };
        let with_secret = !injections.is_empty();
        let (set, secrets) = searched(injections);
        let reflected = set.scrub_headers(&mut head.headers);
        let headers = readable(&head.headers, with_secret);
        let mut body = ReplyBody::new(exchange, (client.pool(), Arc::clone(target.key())), &limits);
        body.search(&set);
        if desynchronizes {
            // Many servers leave the body of such a request unread, and would take it for the next request.
            body.close_afterwards();
        }
        if let Err(error) = headers {
            // Nothing of the answer is given on; what came back with its head is still told.
            body.stop(Err(error));
        } else if request.method == "HEAD"
            || matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
        {
            // The length that the head may tell is that of a body which is not sent.
            body.stop(Ok(()));
        }
        let body = GuestBody { body, deadline, secrets, reflected };
        Ok(GuestReply { status: head.status, headers: headers.unwrap_or_default(), body, values: set })
    }
}

/// The values to take out of an answer, which now own the secrets, and their names in the same order.
fn searched(injections: Vec<Injection>) -> (ScrubSet, Vec<SecretName>) {
    let secrets: Vec<SecretName> =
        injections.iter().map(|injection| injection.secret.name().clone()).collect();
    let values = injections.into_iter().map(|injection| Bytes::from_owner(Exposed(injection.secret)));
    (ScrubSet::new(secrets.iter().map(SecretName::as_str).zip(values)), secrets)
}

/// A secret as bytes that are wiped with their last user.
struct Exposed(Release);

impl AsRef<[u8]> for Exposed {
    fn as_ref(&self) -> &[u8] {
        self.0.expose()
    }
}

/// The headers that a guest may read, as text.
///
/// # Errors
///
/// They are longer than [`HEADERS_BYTES_MAX`] all together.
fn readable(headers: &HeaderMap, with_secret: bool) -> Result<Vec<(String, String)>, Error> {
    let mut shown = Vec::new();
    let mut length = 0;
    for (name, value) in headers.iter().filter(|(name, _)| headers::may_be_read(name, with_secret)) {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        length += name.as_str().len() + value.len();
        if length > HEADERS_BYTES_MAX {
            return Err(Error::TooLarge);
        }
        shown.push((name.as_str().to_owned(), value));
    }
    Ok(shown)
}

impl GuestBody {
    /// The next piece, never empty; `None` at the end, again and again. Cancel safe: a dropped call loses nothing.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`] when the request's time is over, [`Error::TooLarge`] when the body is longer than
    /// accepted or announces to be, [`Error::Broken`] when the connection ends before the body does. Later calls
    /// repeat the error.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        let outcome = timeout_at(self.deadline, self.body.chunk()).await;
        outcome.unwrap_or_else(|_elapsed| {
            self.body.stop(Err(Error::TimedOut));
            Err(Error::TimedOut)
        })
    }

    /// The whole body.
    ///
    /// # Errors
    ///
    /// As [`GuestBody::chunk`].
    pub async fn collect(&mut self) -> Result<Bytes, Error> {
        let Some(first) = self.chunk().await? else { return Ok(Bytes::new()) };
        let mut whole = BytesMut::from(first);
        while let Some(piece) = self.chunk().await? {
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }

    /// The secrets whose values came back so far, in the head or in the body that was read, and were removed. By
    /// name, each once.
    #[must_use]
    pub fn reflected(&self) -> Vec<SecretName> {
        let bits = self.reflected | self.body.reflected();
        let secrets = self.secrets.iter().enumerate();
        let mut names: Vec<SecretName> =
            secrets.filter(|(bit, _)| bits >> bit & 1 == 1).map(|(_, name)| name.clone()).collect();
        // One secret may have gone to several places.
        names.sort_unstable();
        names.dedup();
        names
    }
}

impl fmt::Debug for GuestRequest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What a guest sends is content.
        formatter.debug_struct("GuestRequest").field("method", &self.method).finish_non_exhaustive()
    }
}
