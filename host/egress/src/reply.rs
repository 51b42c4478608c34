//! What came back, bounded in bytes and in time.
//!
//! Nothing is read ahead: a piece is taken from the connection when the caller asks for it, so a slow
//! client slows the server down and costs no memory here. Dropping a body closes its upstream.

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
    Error, Limits, ScrubSet, Scrubber,
    pool::Pool,
    wire::{Cut, Exchange, Line},
};

/// The head of an answer and the way to its body.
#[derive(Debug)]
pub struct Reply {
    /// The status as the server sent it; redirects are answers like any other.
    pub status: StatusCode,
    /// The headers as the server sent them, without the credential.
    pub headers: HeaderMap,
    /// The body, not yet read. The credential is taken out of it.
    pub body: ReplyBody,
}

/// The body of an answer, piece by piece.
pub struct ReplyBody {
    /// `None` once the body has ended, well or not: the connection is given back or closed at once.
    upstream: Option<Exchange>,
    /// Where the connection goes when the body has ended well, and under which name. `None`: it is closed.
    home: Option<(Arc<Pool>, Arc<str>)>,
    ended: Result<(), Error>,
    bytes_left: u64,
    idle: Duration,
    /// Set when the server is first waited for, and set anew only when it fires: most pieces of a stream
    /// come in time and never touch the timer.
    alarm: Option<Pin<Box<Sleep>>>,
    /// Takes out the values that went along with the request.
    scrubber: Option<Box<Scrubber>>,
}

impl ReplyBody {
    pub(crate) fn new(upstream: Exchange, home: (Arc<Pool>, Arc<str>), limits: &Limits) -> Self {
        Self {
            upstream: Some(upstream),
            home: Some(home),
            ended: Ok(()),
            bytes_left: limits.body_bytes_max,
            idle: limits.idle,
            alarm: None,
            scrubber: None,
        }
    }

    /// Takes these values out of the body, which nobody has begun to read.
    pub(crate) fn search(&mut self, set: &ScrubSet) {
        if !set.is_empty() {
            self.scrubber = Some(Box::new(set.scrubber()));
        }
    }

    /// Closes a connection of its own when the body has ended: no other request goes over it.
    pub(crate) fn close_afterwards(&mut self) {
        self.home = None;
    }

    /// Which of them were in what has been read: a bit for each.
    pub(crate) fn reflected(&self) -> u64 {
        self.scrubber.as_ref().map_or(0, |scrubber| scrubber.reflected())
    }

    /// The next piece, never empty; `None` at the end, again and again. Cancel safe: a dropped call loses nothing.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`] when the server sends nothing for the idle time, [`Error::TooLarge`] when the
    /// body is longer than the limit or announces to be, [`Error::Broken`] when the connection ends before
    /// the body does. Later calls repeat the error.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let Some(upstream) = &mut self.upstream else {
                return self.ended.map(|()| None);
            };
            // What is announced to be too long is not worth its first byte.
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
            // What stands in the place of a value may be longer than it.
            if scrubber.growth() > self.bytes_left {
                return self.end(Err(Error::TooLarge));
            }
            if !clean.is_empty() {
                return Ok(Some(clean));
            }
        }
    }

    /// The body has ended well; a beginning of a value that was held back was none.
    fn finish(&mut self) -> Result<Option<Bytes>, Error> {
        let rest = self.scrubber.as_mut().map(|scrubber| scrubber.finish()).unwrap_or_default();
        self.end(Ok(())).map(|_| Some(rest).filter(|rest| !rest.is_empty()))
    }

    /// The whole body, at most `bytes_max` of it. A body that comes in one piece is not copied.
    ///
    /// # Errors
    ///
    /// As [`ReplyBody::chunk`].
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

    /// Reads no further: there is no body, or no time for it.
    pub(crate) fn stop(&mut self, how: Result<(), Error>) {
        // How it has ended, the next call says.
        drop(self.end(how));
    }

    fn end(&mut self, how: Result<(), Error>) -> Result<Option<Bytes>, Error> {
        let upstream = self.upstream.take();
        if let (Ok(()), Some(Exchange { line: Line::Own(wire), .. }), Some((pool, origin))) =
            (how, upstream, &self.home)
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

/// Waits for one piece, at most the idle time. The time counts only while we wait: a client that takes
/// its time between two calls is not the server's fault.
async fn next(
    upstream: &mut Exchange,
    idle: Duration,
    alarm: &mut Option<Pin<Box<Sleep>>>,
) -> Result<Option<Bytes>, Error> {
    let mut deadline = None;
    poll_fn(|context| {
        if let Poll::Ready(piece) = upstream.poll_piece(context) {
            return Poll::Ready(piece.transpose().map_err(|Cut| Error::Broken));
        }
        let deadline = *deadline.get_or_insert_with(|| Instant::now() + idle);
        let alarm = alarm.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        // An alarm of an earlier piece rings too soon, which is no harm, or has rung already.
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
