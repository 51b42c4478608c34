//! Reading a request body: bounded in length, in time, and in what all bodies
//! that are being read take together. Nothing is read before it is known that
//! the caller may send it, so `Expect: 100-continue` works as meant.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use cofferdam_runtime::{Fairness, Holders};
use cofferdam_store::{Clock, KeyId};
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};
use zeroize::Zeroizing;

use crate::admission::Limited;
use crate::reply::Fault;

/// The longest body of a response or embedding request, in bytes.
pub(crate) const BODY_BYTES_MAX: usize = 32 * 1024 * 1024;

/// What all bodies that are being read or worked on may take together, in bytes.
const ALL_BODIES_BYTES_MAX: usize = 1024 * 1024 * 1024;

/// How much of that one key may hold while little is left.
const FAIRNESS: Fairness = Fairness::new(ALL_BODIES_BYTES_MAX, ALL_BODIES_BYTES_MAX / 8);

/// Bytes of bodies in memory.
pub(crate) struct Budget {
    clock: Clock,
    taken: AtomicUsize,
    by_key: Holders<KeyId>,
}

/// A part of the budget, given back when dropped.
pub(crate) struct Share<'b> {
    budget: &'b Budget,
    key: KeyId,
    bytes: usize,
}

impl Budget {
    /// Nothing is taken.
    #[must_use]
    pub(crate) fn new(clock: &Clock) -> Self {
        Self { clock: clock.clone(), taken: AtomicUsize::new(0), by_key: Holders::default() }
    }

    /// A share of nothing for a request of this key, to grow.
    pub(crate) fn share(&self, key: KeyId) -> Share<'_> {
        Share { budget: self, key, bytes: 0 }
    }
}

impl Share<'_> {
    fn grow(&mut self, bytes: usize) -> Result<(), Fault> {
        let taken = self.budget.taken.fetch_add(bytes, Ordering::Relaxed);
        let held = self.budget.by_key.add(self.key, bytes);
        self.bytes += bytes;
        if FAIRNESS.refuses(taken, held) {
            return Err(Fault::Limited(Limited::by_bodies(FAIRNESS, self.budget.clock.now_ms())));
        }
        if taken + bytes > ALL_BODIES_BYTES_MAX { Err(Fault::Busy) } else { Ok(()) }
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.budget.taken.fetch_sub(self.bytes, Ordering::Relaxed);
        self.budget.by_key.remove(&self.key, self.bytes);
    }
}

/// Waits for a whole body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// The longest body in bytes.
    pub bytes_max: usize,
    /// Between two reads.
    pub idle: Duration,
    /// For all of it.
    pub total: Duration,
}

/// Reads a body to its end.
///
/// # Errors
///
/// It is too long, too slow, broken, or there is no room for it.
pub(crate) async fn read<B>(body: B, limits: Limits, share: &mut Share<'_>) -> Result<Bytes, Fault>
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

/// Reads a body with a secret in it to its end, into memory that is wiped when it
/// is dropped and never moved before.
///
/// # Errors
///
/// Those of [`read`].
pub(crate) async fn read_secret<B>(
    body: B,
    limits: Limits,
    share: &mut Share<'_>,
) -> Result<Zeroizing<Vec<u8>>, Fault>
where
    B: http_body::Body<Data = Bytes>,
{
    let declared = declared(&body, limits)?;
    let is_exact = body.size_hint().exact().is_some();
    // A vector that grows leaves its content behind.
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

/// True when there is no body, or one without a byte in it.
///
/// # Errors
///
/// It stops arriving, or is broken.
pub(crate) async fn is_empty<B>(body: B, limits: Limits) -> Result<bool, Fault>
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

/// The length that a body has at least, unless that is too much.
fn declared<B: http_body::Body>(body: &B, limits: Limits) -> Result<usize, Fault> {
    let declared = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if declared > limits.bytes_max { Err(Fault::BodyTooLarge) } else { Ok(declared) }
}

/// The next piece of a body.
async fn next<B>(mut body: Pin<&mut B>, limits: Limits, end: Instant) -> Result<Option<Bytes>, Fault>
where
    B: http_body::Body<Data = Bytes>,
{
    loop {
        let until = end.min(Instant::now() + limits.idle);
        let frame = timeout_at(until, body.frame()).await.map_err(|_| Fault::BodyTimedOut)?;
        let Some(frame) = frame else { return Ok(None) };
        // The connection broke or its framing did; whoever still reads gets a plain answer.
        let frame = frame.map_err(|_| Fault::Malformed("The request body is broken"))?;
        // What is left are trailers, which mean nothing here.
        if let Ok(chunk) = frame.into_data() {
            return Ok(Some(chunk));
        }
    }
}

/// Reads what is left of a body nobody wants, so that the client, who may still be
/// sending, gets to read why. True when the end was reached and the connection can
/// serve another request.
pub(crate) async fn discard<B>(body: B, limits: Limits) -> bool
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
