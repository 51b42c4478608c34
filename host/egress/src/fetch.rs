//! The rules for requests that a guest makes itself, to a URL that it wrote.
//!
//! A caller that releases secrets takes these steps in order: [`Egress::check`] checks everything
//! about the request that needs no secret; [`Egress::connect`] resolves the name, checks the
//! addresses and connects; the caller releases the secrets; [`Egress::fetch`] puts them into their
//! places and sends the request once. So no secret is released for a request that is not sent. The
//! answer is searched for the secrets. One exchange is one request: redirects are not followed
//! (egress rule R10).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use cofferdam_store::{FingerprintPrefix, HostName, Release, SecretName};
use http::{HeaderMap, Method, Request, StatusCode};
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use crate::{
    CheckedRequest, Egress, Error, ExchangeLimits, GuestRequest, PlacedSecret, Placement, Reason, Reply,
    ReplyBody, ScrubSet, header_rules::VALUE_BYTES_MAX, headers, placing,
};

/// Upper limit of [`GuestLimits::total`](crate::GuestLimits::total). It also keeps the computation of the deadline from
/// overflowing.
const TOTAL_MAX: Duration = Duration::from_secs(60 * 60);
/// Length limit of all headers of an answer together, in bytes.
const HEADERS_BYTES_MAX: usize = 64 * 1024;
/// Number of interim answers (RFC 9110, section 15.2) that may come before an answer.
const INTERIM_MAX: usize = 32;

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
    /// How long it took to resolve the name, connect and make the TLS handshake. `None` where a
    /// connection was there.
    pub connecting: Option<Duration>,
}

/// The body of an answer, read in chunks.
#[derive(Debug)]
pub struct GuestBody {
    body: ReplyBody,
    deadline: Instant,
    sent: SentSecrets,
    /// The values that [`GuestBody::reflected`] has returned: a bit for each.
    reported: u64,
}

/// The secrets that go with one request, and a search for their values.
#[derive(Clone, Debug)]
pub struct SentSecrets {
    /// The secrets, in the order in which they were released.
    pub secrets: Arc<[SentSecret]>,
    /// Their values, in the same order.
    pub values: ScrubSet,
}

/// A secret that goes with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentSecret {
    /// The name of the secret.
    pub name: SecretName,
    /// The host that it was sent to.
    pub host: HostName,
    /// Identifies the value without revealing it.
    pub fingerprint: Option<FingerprintPrefix>,
}

impl Egress {
    /// Checks everything that does not need a secret's value: method, scheme, port, literal
    /// address, headers, placeholders, and whether the places for the named secrets exist and are
    /// free.
    ///
    /// # Errors
    ///
    /// The rule that the request breaks.
    pub fn check(&self, request: GuestRequest, secrets: Vec<PlacedSecret>) -> Result<CheckedRequest, Reason> {
        self.check_way(&request, !secrets.is_empty())?;
        request.checked(secrets)
    }

    /// Connects to the host without sending anything: its name resolves to open addresses only, and
    /// a server answers there with a trusted certificate. [`Egress::fetch`] would connect too.
    /// Calling this first prevents the release of a secret for a request that cannot be sent. The
    /// connection is kept for that request. Returns how long making it took; `None` where one was
    /// there.
    ///
    /// # Errors
    ///
    /// Those of [`Egress::fetch`] for a request that was not sent.
    pub async fn connect(&self, checked: &CheckedRequest) -> Result<Option<Duration>, Error> {
        let GuestRequest { target, limits, .. } = &checked.request;
        let connecting = self.guests(&checked.request).connect(target.key(), target.uri().clone());
        let total = limits.total.min(TOTAL_MAX);
        tokio::time::timeout(total, connecting).await.unwrap_or(Err(Error::TimedOut))
    }

    /// Sends a request once, with its released secrets in the order of
    /// [`CheckedRequest::secrets`], and waits for the head of the answer. The server may have seen
    /// the secrets also where this fails.
    ///
    /// # Errors
    ///
    /// See [`Error`]. It says nothing about the server beyond its variant.
    pub async fn fetch(&self, checked: &CheckedRequest, sent: SentSecrets) -> Result<GuestReply, Error> {
        let CheckedRequest { request, bare, .. } = checked;
        let total = request.limits.total.min(TOTAL_MAX);
        let deadline = Instant::now() + total;
        let mut outward = bare.clone();
        placing::fill(&mut outward, &checked.with_values(&sent)?)?;
        // Many servers leave the body of a GET or HEAD request unread.
        let desynchronizes =
            matches!(*outward.method(), Method::GET | Method::HEAD) && !outward.body().is_empty();
        let with_secret = !sent.secrets.is_empty();
        let limits =
            ExchangeLimits { head: total, idle: total, body_bytes_max: request.limits.body_bytes_max };
        let is_sent = AtomicBool::new(false);
        let (target, values) = (&request.target, Some(&sent.values));
        let client = self.guests(request);
        let flood = bound_interim(&mut outward);
        let exchange = client.exchange(target.key(), target.host_header(), outward, values, limits, &is_sent);
        let Reply { status, headers, mut body, connecting } = tokio::select! {
            biased;
            reply = exchange => reply?,
            () = flood.notified() => return Err(Error::Broken),
        };
        // The request asked neither for another protocol nor for a part of the answer. In a part, a
        // secret that is cut by the edge would not be found (egress rule R19).
        if status == StatusCode::SWITCHING_PROTOCOLS || (with_secret && status == StatusCode::PARTIAL_CONTENT)
        {
            return Err(Error::Broken);
        }
        if desynchronizes {
            // An unread body could be taken for the next request on this connection (request
            // smuggling).
            body.close_afterwards();
        }
        let headers = readable(&headers, with_secret);
        if let Err(error) = headers {
            // None of the answer is returned. Reflected secrets are still reported.
            body.stop(Err(error));
        } else if *bare.method() == Method::HEAD
            || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
        {
            // Such an answer has no body, whatever length its head announces.
            body.stop(Ok(()));
        }
        let body = GuestBody { body, deadline, sent, reported: 0 };
        Ok(GuestReply { status, headers: headers.unwrap_or_default(), body, connecting })
    }
}

impl CheckedRequest {
    /// The places of the secrets with their values.
    fn with_values<'a>(&'a self, sent: &'a SentSecrets) -> Result<Vec<(&'a Placement, &'a [u8])>, Reason> {
        if sent.secrets.len() != self.secrets.len() {
            return Err(Reason::SecretHost);
        }
        let released = sent.secrets.iter().zip(sent.values.values());
        let placed = self.secrets.iter().zip(released).map(|(placed, (sent, value))| {
            let PlacedSecret { secret, placement } = placed;
            // The release was for one host: a secret never goes to another one (egress rules R4 and
            // R7).
            if sent.name != *secret || Some(&sent.host) != self.request.target.host_name() {
                return Err(Reason::SecretHost);
            }
            if !(1..=VALUE_BYTES_MAX).contains(&value.len()) {
                return Err(Reason::SecretLength);
            }
            Ok((placement, value))
        });
        placed.collect()
    }
}

impl SentSecrets {
    /// The secrets of these releases, which go with one request.
    #[must_use]
    pub fn new(releases: Vec<Release>) -> Self {
        let sent = |release: &Release| SentSecret {
            name: release.name().clone(),
            host: release.host().clone(),
            fingerprint: release.fingerprint(),
        };
        let secrets: Arc<[SentSecret]> = releases.iter().map(sent).collect();
        let values = releases.into_iter().map(|release| Bytes::from_owner(Exposed(release)));
        let values = ScrubSet::new(secrets.iter().map(|sent| sent.name.as_str()).zip(values));
        Self { secrets, values }
    }

    /// Replaces the values in a text. Returns the new text and the secrets that occurred, or `None`
    /// if none did.
    #[must_use]
    pub fn scrub(&self, text: &[u8]) -> Option<(Vec<u8>, Vec<SentSecret>)> {
        self.values.scrub(text).map(|(clean, bits)| (clean, self.with_bits(bits).cloned().collect()))
    }

    fn with_bits(&self, bits: u64) -> impl Iterator<Item = &SentSecret> {
        self.secrets.iter().enumerate().filter(move |(bit, _)| bits >> bit & 1 == 1).map(|(_, sent)| sent)
    }
}

/// A secret as bytes that are wiped when their last user drops them.
struct Exposed(Release);

impl AsRef<[u8]> for Exposed {
    fn as_ref(&self) -> &[u8] {
        self.0.expose()
    }
}

/// Notifies when the server has sent more interim answers to this request than it may.
fn bound_interim<B>(request: &mut Request<B>) -> Arc<Notify> {
    let flood = Arc::new(Notify::new());
    let (told, seen) = (Arc::clone(&flood), AtomicUsize::new(0));
    hyper::ext::on_informational(request, move |_| {
        if seen.fetch_add(1, Ordering::Relaxed) >= INTERIM_MAX {
            told.notify_one();
        }
    });
    flood
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

    /// Reads the whole body. `cover` is told the length in bytes with each further chunk, before the
    /// chunk is kept, and may refuse it.
    ///
    /// # Errors
    ///
    /// Those of [`GuestBody::chunk`], and that of `cover`.
    pub async fn collect<E: From<Error>>(
        &mut self,
        mut cover: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<Bytes, E> {
        let Some(first) = self.chunk().await? else { return Ok(Bytes::new()) };
        cover(first.len())?;
        let mut whole = BytesMut::from(first);
        while let Some(piece) = self.chunk().await? {
            cover(whole.len() + piece.len())?;
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }

    /// The secrets whose values occurred, in the head or in the part of the body that was read, since
    /// the last call.
    #[must_use]
    pub fn reflected(&mut self) -> Vec<SentSecret> {
        let found = self.body.reflected();
        let new = found & !std::mem::replace(&mut self.reported, found);
        self.sent.with_bits(new).cloned().collect()
    }
}
