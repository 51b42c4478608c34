//! Requests that a guest makes itself, to a URL that it wrote.
//!
//! A caller that releases secrets takes these steps in order: [`Egress::check`] checks everything
//! about the request that needs no secret; [`Egress::connect`] resolves the name, checks the
//! addresses and connects; the caller releases the secrets; [`Egress::fetch`] puts them into their
//! places and sends the request once. So no secret is released for a request that is not sent. The
//! answer is searched for the secrets. One exchange is one request: redirects are not followed
//! (egress rule R10).

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use cofferdam_store::{Release, SecretName};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::Full;
use tokio::time::{Instant, timeout_at};

use crate::{
    Egress, Error, ExchangeLimits, GuestRequest, Injection, Reason, ReplyBody, ScrubSet, SecretPlacement,
    headers,
    placing::{self, Filled},
};

/// Upper limit of [`GuestLimits::total`](crate::GuestLimits::total). It also keeps the computation of the deadline from
/// overflowing.
const TOTAL_MAX: Duration = Duration::from_secs(60 * 60);
/// Length limit of all headers of an answer together, in bytes.
const HEADERS_BYTES_MAX: usize = 64 * 1024;

/// An answer, with released values replaced everywhere.
#[derive(Debug)]
pub struct GuestReply {
    /// The status as the server sent it. Redirects are not followed.
    pub status: StatusCode,
    /// The headers without those of the connection, of sessions and of the body's coding. Names are
    /// in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, not yet read.
    pub body: GuestBody,
    /// The values that were sent with the request.
    pub values: ScrubSet,
}

/// The body of an answer, read in chunks.
#[derive(Debug)]
pub struct GuestBody {
    body: ReplyBody,
    deadline: Instant,
    /// The names of the secrets that were sent, and a bit for each that the head of the answer
    /// contained.
    secrets: Vec<SecretName>,
    reflected: u64,
}

impl Egress {
    /// Checks everything that does not need a secret's value: method, scheme, port, literal
    /// address, headers, placeholders, and whether the places for the named secrets exist and are
    /// free. [`Egress::fetch`] checks the same. Calling this first prevents the release of a secret
    /// for a request that would be refused.
    ///
    /// # Errors
    ///
    /// The rule that the request breaks.
    pub fn check(
        &self,
        request: &GuestRequest,
        slots: &[(&SecretPlacement, &SecretName)],
    ) -> Result<(), Reason> {
        self.check_way(request, !slots.is_empty())?;
        placing::check(request, slots).map(drop)
    }

    /// Connects to the host without sending anything: its name resolves to open addresses only, and
    /// a server answers there with a trusted certificate. [`Egress::fetch`] does the same. Calling
    /// this first prevents the release of a secret for a request that cannot be sent. The
    /// connection is kept for that request.
    ///
    /// # Errors
    ///
    /// Those of [`Egress::fetch`] for a request that was not sent.
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
    /// See [`Error`]. It says nothing about the server beyond its variant.
    pub async fn fetch(
        &self,
        request: GuestRequest,
        injections: Vec<Injection>,
    ) -> Result<GuestReply, Error> {
        let total = request.limits.total.min(TOTAL_MAX);
        let deadline = Instant::now() + total;
        self.check_way(&request, !injections.is_empty())?;
        let Filled { method, uri, headers, body } = placing::fill(&request, &injections)?;
        // Many servers leave the body of a GET or HEAD request unread.
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
        // The request asked neither for another protocol nor for a content coding. An encoded body
        // could not be searched for secrets.
        if head.status == StatusCode::SWITCHING_PROTOCOLS || headers::is_encoded(&head.headers) {
            return Err(Error::Broken);
        }
        // A partial answer that was not asked for: a secret that is cut by the range's edge would
        // not be found (egress rule R19).
        if head.status == StatusCode::PARTIAL_CONTENT && !injections.is_empty() {
            return Err(Error::Broken);
        }
        let limits =
            ExchangeLimits { head: total, idle: total, body_bytes_max: request.limits.body_bytes_max };
        let with_secret = !injections.is_empty();
        let (set, secrets) = searched(injections);
        let reflected = set.scrub_headers(&mut head.headers);
        let headers = readable(&head.headers, with_secret);
        let mut body = ReplyBody::new(exchange, (client.pool(), Arc::clone(target.key())), &limits);
        body.search(&set);
        if desynchronizes {
            // An unread body could be taken for the next request on this connection (request
            // smuggling).
            body.close_afterwards();
        }
        if let Err(error) = headers {
            // None of the answer is returned. Reflected secrets are still reported.
            body.stop(Err(error));
        } else if request.method == "HEAD"
            || matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
        {
            // Such an answer has no body, whatever length its head announces.
            body.stop(Ok(()));
        }
        let body = GuestBody { body, deadline, secrets, reflected };
        Ok(GuestReply { status: head.status, headers: headers.unwrap_or_default(), body, values: set })
    }
}

/// The values to remove from the answer, which now own the secrets, and their names in the same
/// order.
fn searched(injections: Vec<Injection>) -> (ScrubSet, Vec<SecretName>) {
    let secrets: Vec<SecretName> =
        injections.iter().map(|injection| injection.secret.name().clone()).collect();
    let values = injections.into_iter().map(|injection| Bytes::from_owner(Exposed(injection.secret)));
    (ScrubSet::new(secrets.iter().map(SecretName::as_str).zip(values)), secrets)
}

/// A secret as bytes that are wiped when their last user drops them.
struct Exposed(Release);

impl AsRef<[u8]> for Exposed {
    fn as_ref(&self) -> &[u8] {
        self.0.expose()
    }
}

/// The headers that a guest may read, as text. Bytes that are not UTF-8 are replaced.
///
/// # Errors
///
/// [`Error::TooLarge`] if they are longer than [`HEADERS_BYTES_MAX`] together.
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
    /// The next chunk, never empty; `None` at the end, also on later calls. Cancel safe: dropping
    /// the future loses nothing.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`] if the request's time is over, [`Error::TooLarge`] if the body is longer
    /// than the limit or announces so, [`Error::Broken`] if the connection ends before the body
    /// does. Later calls return the same error.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        let outcome = timeout_at(self.deadline, self.body.chunk()).await;
        outcome.unwrap_or_else(|_elapsed| {
            self.body.stop(Err(Error::TimedOut));
            Err(Error::TimedOut)
        })
    }

    /// Reads the whole body.
    ///
    /// # Errors
    ///
    /// Those of [`GuestBody::chunk`].
    pub async fn collect(&mut self) -> Result<Bytes, Error> {
        let Some(first) = self.chunk().await? else { return Ok(Bytes::new()) };
        let mut whole = BytesMut::from(first);
        while let Some(piece) = self.chunk().await? {
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }

    /// The secrets whose values occurred so far, in the head or in the part of the body that was
    /// read, and were replaced. Sorted by name, without duplicates.
    #[must_use]
    pub fn reflected(&self) -> Vec<SecretName> {
        let bits = self.reflected | self.body.reflected();
        let secrets = self.secrets.iter().enumerate();
        let mut names: Vec<SecretName> =
            secrets.filter(|(bit, _)| bits >> bit & 1 == 1).map(|(_, name)| name.clone()).collect();
        // One secret may have been sent in several places.
        names.sort_unstable();
        names.dedup();
        names
    }
}
