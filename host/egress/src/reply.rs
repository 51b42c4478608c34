//! Answers, bounded in bytes and in time.
//!
//! Nothing is read ahead over HTTP/1, and no more than the window of a stream over HTTP/2: a chunk
//! is read when the caller asks for it. So a slow client slows the server down (backpressure) and
//! uses little memory here. Dropping a body closes its connection.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode};
use http_body::Body;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::{
    Error, ExchangeLimits, ScrubSet, Scrubber,
    pool::ConnectionPool,
    wire::{BrokenBody, Exchange, UpstreamConnection},
};

/// The head of an answer, and its body to read.
#[derive(Debug)]
pub struct Reply {
    /// The status as the server sent it. Redirects are not followed.
    pub status: StatusCode,
    /// The headers as the server sent them, with the credential's value replaced.
    pub headers: HeaderMap,
    /// The body, not yet read. The credential's value is replaced while it is read.
    pub body: ReplyBody,
    /// How long it took to resolve the name, connect and make the TLS handshake. `None` where a
    /// connection was there.
    pub connecting: Option<Duration>,
}

/// The body of an answer, read in chunks.
pub struct ReplyBody {
    /// `None` once the body has ended or failed: the connection is returned to the pool or closed
    /// at once.
    upstream: Option<Exchange>,
    /// The pool and the key to which the connection returns after the body. `None` if it is to be
    /// closed.
    home: Option<(Arc<ConnectionPool>, Arc<str>)>,
    ended: Result<(), Error>,
    bytes_left: u64,
    idle: Duration,
    /// Created at the first wait and reset only when it fires: most chunks of a stream arrive in
    /// time and never touch the timer.
    alarm: Option<Pin<Box<Sleep>>>,
    /// Replaces the values that were sent with the request.
    scrubber: Option<Box<Scrubber>>,
    /// The values that the head of the answer contained: a bit for each.
    reflected_in_head: u64,
}

impl ReplyBody {
    pub(crate) fn new(
        upstream: Exchange,
        home: (Arc<ConnectionPool>, Arc<str>),
        limits: &ExchangeLimits,
    ) -> Self {
        Self {
            upstream: Some(upstream),
            home: Some(home),
            ended: Ok(()),
            bytes_left: limits.body_bytes_max,
            idle: limits.idle,
            alarm: None,
            scrubber: None,
            reflected_in_head: 0,
        }
    }

    /// Replaces these values in the body. Call it before the first read. `in_head` has a bit for
    /// each value that the head contained.
    pub(crate) fn search(&mut self, set: &ScrubSet, in_head: u64) {
        self.reflected_in_head = in_head;
        if !set.is_empty() {
            self.scrubber = Some(Box::new(set.scrubber()));
        }
    }

    /// Closes an HTTP/1 connection after the body instead of reusing it.
    pub(crate) fn close_afterwards(&mut self) {
        self.home = None;
    }

    /// Which values of [`Self::search`] occurred in the head and in the chunks that were read: a bit
    /// for each.
    pub(crate) fn reflected(&self) -> u64 {
        self.reflected_in_head | self.scrubber.as_ref().map_or(0, |scrubber| scrubber.reflected())
    }

    /// The next chunk, never empty; `None` at the end, also on later calls. Cancel safe: dropping
    /// the future loses nothing.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`] if the server sends nothing for the idle time, [`Error::TooLarge`] if
    /// the body is longer than the limit or announces so, [`Error::Broken`] if the connection ends
    /// before the body does. Later calls return the same error.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let Some(upstream) = &mut self.upstream else {
                return self.ended.map(|()| None);
            };
            // Refuse a body that announces too large a length before reading any of it.
            if upstream.body.size_hint().lower() > self.bytes_left {
                return self.end(Err(Error::TooLarge));
            }
            let next = match next(upstream, self.idle, &mut self.alarm).await {
                Err(error) => return self.end(Err(error)),
                Ok(None) => return self.finish(),
                Ok(Some(piece)) if piece.is_empty() => continue,
                Ok(Some(piece)) => piece,
            };
            match u64::try_from(next.len()).ok().and_then(|length| self.bytes_left.checked_sub(length)) {
                Some(left) => self.bytes_left = left,
                None => return self.end(Err(Error::TooLarge)),
            }
            let Some(scrubber) = &mut self.scrubber else { return Ok(Some(next)) };
            let clean = scrubber.push(next);
            // A label may be longer than the value that it replaces, so a server could make the
            // text grow.
            if scrubber.growth() > self.bytes_left {
                return self.end(Err(Error::TooLarge));
            }
            if !clean.is_empty() {
                return Ok(Some(clean));
            }
        }
    }

    /// The body is complete: return what the scrubber held back, since it was not the start of a
    /// value.
    fn finish(&mut self) -> Result<Option<Bytes>, Error> {
        let rest = self.scrubber.as_mut().map(|scrubber| scrubber.finish()).unwrap_or_default();
        self.end(Ok(())).map(|_| Some(rest).filter(|rest| !rest.is_empty()))
    }

    /// Reads the whole body, at most `bytes_max` bytes. A body that arrives in one chunk is not
    /// copied.
    ///
    /// # Errors
    ///
    /// Those of [`ReplyBody::chunk`].
    pub async fn collect(mut self, bytes_max: usize) -> Result<Bytes, Error> {
        self.bytes_left = self.bytes_left.min(u64::try_from(bytes_max).unwrap_or(u64::MAX));
        let announced = self.upstream.as_ref().map(|upstream| upstream.body.size_hint().lower());
        let Some(first) = self.chunk().await? else {
            return Ok(Bytes::new());
        };
        let Some(second) = self.chunk().await? else {
            return Ok(first);
        };
        let known = announced.and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
        let mut whole = BytesMut::with_capacity(known.max(first.len() + second.len()));
        whole.extend_from_slice(&first);
        whole.extend_from_slice(&second);
        while let Some(piece) = self.chunk().await? {
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }

    /// Ends the body here: the answer has none, or its time is over.
    pub(crate) fn stop(&mut self, how: Result<(), Error>) {
        // The next call to `chunk` returns `how`.
        drop(self.end(how));
    }

    fn end(&mut self, how: Result<(), Error>) -> Result<Option<Bytes>, Error> {
        let upstream = self.upstream.take();
        if let (
            Ok(()),
            Some(Exchange { connection: UpstreamConnection::Own(wire), .. }),
            Some((pool, origin)),
        ) = (how, upstream, &self.home)
        {
            pool.keep(origin, wire);
        }
        self.alarm = None;
        self.ended = how;
        how.map(|()| None)
    }
}

impl fmt::Debug for ReplyBody {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ReplyBody").field("ended", &self.upstream.is_none()).finish_non_exhaustive()
    }
}

/// Waits for one chunk, at most the idle time. The time counts only while this function waits: a
/// slow client between two calls is not the server's fault.
async fn next(
    upstream: &mut Exchange,
    idle: Duration,
    alarm: &mut Option<Pin<Box<Sleep>>>,
) -> Result<Option<Bytes>, Error> {
    let mut deadline = None;
    poll_fn(|context| {
        if let Poll::Ready(piece) = upstream.poll_piece(context) {
            return Poll::Ready(piece.transpose().map_err(|BrokenBody| Error::Broken));
        }
        let deadline = *deadline.get_or_insert_with(|| Instant::now() + idle);
        let alarm = alarm.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        // The timer may still be set for an earlier chunk, or have fired for it. Then it is set to
        // the deadline of this one.
        while alarm.as_mut().poll(context).is_ready() {
            if Instant::now() >= deadline {
                return Poll::Ready(Err(Error::TimedOut));
            }
            alarm.as_mut().reset(deadline);
        }
        Poll::Pending
    })
    .await
}
