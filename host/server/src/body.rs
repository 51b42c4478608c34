//! Reads request bodies. Their length, the time they take and the memory of all bodies together are
//! bounded. A body is read only after the caller is authorized to send it, so `Expect:
//! 100-continue` works as intended.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use cofferdam_runtime::{Fairness, Holders, memory};
use cofferdam_store::{Clock, KeyId};
use futures_util::future::poll_immediate;
use http::header::EXPECT;
use http::request::Parts;
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use tokio::time::{Instant, timeout_at};
use zeroize::Zeroizing;

use crate::fault::Fault;
use crate::limits::admission::Limited;

/// The maximum length of the body of a response or embedding request, in bytes.
pub(crate) const BODY_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The maximum length of all bodies in memory together, in bytes.
const ALL_BODIES_BYTES_MAX: usize = 1024 * 1024 * 1024;

/// The part of the process's memory that all bodies may take: an eighth. A long prompt takes about
/// six times its length with its parsed form, the provider's request and the guest.
const PART_OF_MEMORY: usize = 8;
/// The part of all bodies that one key may hold while little is left: an eighth.
const PART_OF_KEY: usize = 8;
/// The length of a body up to which it is read when the process runs out of memory, in bytes.
const SHORT_BODY_BYTES: usize = 64 * 1024;

/// Counts the bytes of all bodies in memory. The body of a request counts until nothing made of it is
/// needed any more.
pub(crate) struct BodyMemory {
    clock: Clock,
    bytes_max: usize,
    fairness: Fairness,
    taken: AtomicUsize,
    by_holder: Holders<Holder>,
}

/// The part of the budget that one request holds; given back when dropped.
pub(crate) struct Share {
    budget: Arc<BodyMemory>,
    holder: Holder,
    bytes: usize,
}

/// Who holds a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    Key(KeyId),
    Operators,
}

impl BodyMemory {
    /// The budget of a process that may take `memory` bytes: an eighth of them, but at least one
    /// body of the maximum length, and at most 1 GiB.
    #[must_use]
    pub(crate) fn new(clock: &Clock, memory: usize) -> Self {
        let bytes_max = (memory / PART_OF_MEMORY).clamp(BODY_BYTES_MAX, ALL_BODIES_BYTES_MAX);
        Self {
            clock: clock.clone(),
            bytes_max,
            fairness: Fairness::new(bytes_max, bytes_max / PART_OF_KEY),
            taken: AtomicUsize::new(0),
            by_holder: Holders::default(),
        }
    }

    /// An empty share for a request of this key; it grows while the body is read.
    pub(crate) fn share(self: &Arc<Self>, key: KeyId) -> Share {
        Share { budget: Arc::clone(self), holder: Holder::Key(key), bytes: 0 }
    }

    /// An empty share for a request of an operator.
    pub(crate) fn operators_share(self: &Arc<Self>) -> Share {
        Share { budget: Arc::clone(self), holder: Holder::Operators, bytes: 0 }
    }

    /// The bytes that count now.
    pub(crate) fn bytes(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

impl Share {
    fn grow(&mut self, bytes: usize) -> Result<(), Fault> {
        let taken = self.budget.taken.fetch_add(bytes, Ordering::Relaxed);
        let held = self.budget.by_holder.add(self.holder, bytes);
        self.bytes += bytes;
        let fairness = self.budget.fairness;
        if fairness.refuses(taken, held) {
            return Err(Fault::Limited(Limited::by_bodies(fairness, self.budget.clock.now_ms())));
        }
        let is_refused = self.bytes > SHORT_BODY_BYTES && memory::is_short();
        if is_refused || taken + bytes > self.budget.bytes_max { Err(Fault::Busy) } else { Ok(()) }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.taken.fetch_sub(self.bytes, Ordering::Relaxed);
        self.budget.by_holder.remove(&self.holder, self.bytes);
    }
}

/// Limits for reading one body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyLimits {
    /// The maximum length, in bytes.
    pub bytes_max: usize,
    /// The maximum time between two chunks.
    pub idle: Duration,
    /// The maximum time for the whole body.
    pub total: Duration,
}

/// Reads a whole body.
///
/// # Errors
///
/// The body is too long, too slow or broken, or the memory for bodies is used up.
pub(crate) async fn read<B>(body: B, limits: BodyLimits, share: &mut Share) -> Result<Bytes, Fault>
where
    B: http_body::Body<Data = Bytes>,
{
    let declared = declared(&body, limits)?;
    let end = Instant::now() + limits.total;
    let mut body = pin!(body);
    let mut first: Option<Bytes> = None;
    let mut rest = BytesMut::new();
    while let Some(chunk) = next(body.as_mut(), limits, end).await? {
        share.grow(chunk.len())?;
        let length = first.as_ref().map_or(0, Bytes::len) + rest.len() + chunk.len();
        if length > limits.bytes_max {
            return Err(Fault::BodyTooLarge);
        }
        match &first {
            // Most bodies arrive in one piece and are never copied.
            None => first = Some(chunk),
            Some(head) => {
                if rest.is_empty() {
                    rest.reserve(declared.max(length));
                    rest.extend_from_slice(head);
                    first = Some(Bytes::new());
                }
                rest.extend_from_slice(&chunk);
            }
        }
    }
    Ok(if rest.is_empty() { first.unwrap_or_default() } else { rest.freeze() })
}

/// Reads a body that contains a secret into a buffer that is wiped when dropped and never
/// reallocated.
///
/// # Errors
///
/// Those of [`read`].
pub(crate) async fn read_secret<B>(
    body: B,
    limits: BodyLimits,
    share: &mut Share,
) -> Result<Zeroizing<Vec<u8>>, Fault>
where
    B: http_body::Body<Data = Bytes>,
{
    let declared = declared(&body, limits)?;
    let is_exact = body.size_hint().exact().is_some();
    // A vector that grows leaves a copy of its content in freed memory. Without an exact length the
    // buffer has the maximum size from the start.
    let capacity = if is_exact { declared } else { limits.bytes_max };
    share.grow(capacity)?;
    let mut whole = Zeroizing::new(Vec::with_capacity(capacity));
    let end = Instant::now() + limits.total;
    let mut body = pin!(body);
    while let Some(chunk) = next(body.as_mut(), limits, end).await? {
        if chunk.len() > capacity - whole.len() {
            return Err(Fault::BodyTooLarge);
        }
        whole.extend_from_slice(&chunk);
    }
    Ok(whole)
}

/// Whether the body has no bytes. Waits for the first chunk if the length is not declared.
///
/// # Errors
///
/// The body stops arriving or is broken.
pub(crate) async fn is_empty<B>(body: B, limits: BodyLimits) -> Result<bool, Fault>
where
    B: http_body::Body<Data = Bytes>,
{
    if body.size_hint().lower() > 0 {
        return Ok(false);
    }
    let end = Instant::now() + limits.total;
    let mut body = pin!(body);
    while let Some(chunk) = next(body.as_mut(), limits, end).await? {
        if !chunk.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The minimum length of the body as declared, checked against the limit.
fn declared<B: http_body::Body>(body: &B, limits: BodyLimits) -> Result<usize, Fault> {
    let declared = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if declared > limits.bytes_max { Err(Fault::BodyTooLarge) } else { Ok(declared) }
}

/// The next chunk of data, within both time limits.
async fn next<B>(mut body: Pin<&mut B>, limits: BodyLimits, end: Instant) -> Result<Option<Bytes>, Fault>
where
    B: http_body::Body<Data = Bytes>,
{
    loop {
        let mut frame = body.frame();
        let frame = match poll_immediate(&mut frame).await {
            // What has arrived needs no clock.
            Some(frame) => frame,
            None => {
                let until = end.min(Instant::now() + limits.idle);
                timeout_at(until, frame).await.map_err(|_| Fault::BodyTimedOut)?
            }
        };
        let Some(frame) = frame else { return Ok(None) };
        // The connection or the framing broke. A client that still reads gets this error.
        let frame = frame.map_err(|_| Fault::Malformed("The request body is broken"))?;
        // Otherwise the frame holds trailers, which are ignored.
        if let Ok(chunk) = frame.into_data() {
            return Ok(Some(chunk));
        }
    }
}

/// Reads and drops the rest of the body of a refused request. A client of HTTP/1 loses the response if
/// the connection closes while it is still sending, and so do common clients of HTTP/2 if their stream
/// ends then. Returns true when the end was reached and the connection can serve another request.
pub(crate) async fn discard_refused(head: &Parts, body: &mut Incoming, limits: BodyLimits) -> bool {
    // With `Expect: 100-continue` the client has not sent its body yet.
    let waits = head.headers.contains_key(EXPECT);
    body.is_end_stream() || (!waits && discard(body, limits).await)
}

async fn discard<B>(body: B, limits: BodyLimits) -> bool
where
    B: http_body::Body<Data = Bytes>,
{
    let end = Instant::now() + limits.total;
    let mut body = pin!(body);
    let mut length = 0;
    while length <= limits.bytes_max {
        let until = end.min(Instant::now() + limits.idle);
        match timeout_at(until, body.frame()).await {
            Ok(None) => return true,
            Ok(Some(Ok(frame))) => length += frame.data_ref().map_or(0, Bytes::len),
            Ok(Some(Err(_))) | Err(_) => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests;
