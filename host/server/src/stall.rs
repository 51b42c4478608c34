//! Limits how long a client may leave its response unread: meanwhile the response holds a sandbox
//! and a provider's stream. The body is not polled then, so the limit is enforced at the socket: a
//! write that blocks for too long ends the connection. Over HTTP/2 the socket can make progress
//! while one response is blocked by flow control, so chunks that wait in the connection are watched
//! as well. Such a response is ended alone: the others may be those of a proxy's other clients.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{AbortHandle, Abortable};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// A socket whose writes fail when they block for longer than `patience`.
pub(crate) struct Stalling<S> {
    socket: S,
    patience: Duration,
    /// Runs while a write is blocked.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl<S> Stalling<S> {
    pub(crate) fn new(socket: S, patience: Duration) -> Self {
        Self { socket, patience, alarm: None }
    }

    fn watch<T>(&mut self, context: &mut Context<'_>, write: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if write.is_ready() {
            self.alarm = None;
            return write;
        }
        let patience = self.patience;
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + patience)));
        ready!(alarm.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stalling<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stalling<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.watch(context, write)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.socket).poll_write_vectored(context, bytes);
        self.watch(context, write)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flush = Pin::new(&mut self.socket).poll_flush(context);
        self.watch(context, flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shutdown = Pin::new(&mut self.socket).poll_shutdown(context);
        self.watch(context, shutdown)
    }
}

tokio::task_local! {
    /// The answer to the HTTP/2 request that this task runs.
    static ANSWER: Arc<AnswerGuard>;
}

/// The requests of one HTTP/2 connection that are not answered completely.
pub(crate) struct OpenAnswers {
    began: Instant,
    open: Mutex<Vec<Arc<OpenAnswer>>>,
}

struct OpenAnswer {
    /// When the last chunk was handed to the connection, in milliseconds since [`OpenAnswers::began`]; 0
    /// when no chunk waits.
    handed_ms: AtomicU64,
    /// Ends the task of the request.
    end: AbortHandle,
}

/// One entry of [`OpenAnswers`]. Dropping it removes the entry.
pub(crate) struct AnswerGuard {
    answers: Arc<OpenAnswers>,
    answer: Arc<OpenAnswer>,
}

impl Default for OpenAnswers {
    fn default() -> Self {
        Self { began: Instant::now(), open: Mutex::default() }
    }
}

impl OpenAnswers {
    /// A task that runs the request until it is answered or ended by [`Self::end_stalled`]. The request is
    /// dropped then, which resets its HTTP/2 stream.
    pub(crate) fn run<F>(self: &Arc<Self>, request: F) -> impl Future<Output = ()> + use<F>
    where
        F: Future<Output = ()>,
    {
        let (end, ended) = AbortHandle::new_pair();
        let answer = Arc::new(OpenAnswer { handed_ms: AtomicU64::new(0), end });
        self.open().push(Arc::clone(&answer));
        let guard = Arc::new(AnswerGuard { answers: Arc::clone(self), answer });
        Abortable::new(ANSWER.scope(guard, request), ended).map(drop)
    }

    /// Ends the requests whose client has left a chunk of the response unread for `patience`.
    pub(crate) fn end_stalled(&self, patience: Duration) {
        // Without the lock, which a request that ends takes.
        for answer in self.stalled(patience) {
            answer.end.abort();
        }
    }

    fn stalled(&self, patience: Duration) -> Vec<Arc<OpenAnswer>> {
        let Some(last_ms) = self.now_ms().checked_sub(milliseconds(patience)) else { return Vec::new() };
        let is_stalled =
            |answer: &&Arc<OpenAnswer>| (1..=last_ms).contains(&answer.handed_ms.load(Ordering::Relaxed));
        self.open().iter().filter(is_stalled).cloned().collect()
    }

    /// Milliseconds since `began`, plus one: 0 means that no chunk waits.
    fn now_ms(&self) -> u64 {
        milliseconds(self.began.elapsed()).saturating_add(1)
    }

    fn open(&self) -> MutexGuard<'_, Vec<Arc<OpenAnswer>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AnswerGuard {
    /// The answer to the HTTP/2 request that this task runs; `None` over HTTP/1.
    pub(crate) fn current() -> Option<Arc<Self>> {
        ANSWER.try_get().ok()
    }

    /// Records that a chunk was handed to the connection.
    pub(crate) fn chunk_handed(&self) {
        self.answer.handed_ms.store(self.answers.now_ms(), Ordering::Relaxed);
    }

    /// Records that the connection took the chunk and asks for the next.
    pub(crate) fn chunk_taken(&self) {
        self.answer.handed_ms.store(0, Ordering::Relaxed);
    }
}

impl Drop for AnswerGuard {
    fn drop(&mut self) {
        self.answers.open().retain(|answer| !Arc::ptr_eq(answer, &self.answer));
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::io::ErrorKind;
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::{AnswerGuard, OpenAnswers, Stalling};

    #[tokio::test(start_paused = true)]
    async fn stopped_reader_ends_the_write_with_a_timeout() {
        let (near, _far) = duplex(4);
        let mut socket = Stalling::new(near, Duration::from_secs(60));
        let error = socket.write_all(b"more than fits").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }

    async fn read_slowly(mut far: DuplexStream) -> [u8; 5] {
        let mut text = [0; 5];
        for byte in text.chunks_mut(1) {
            tokio::time::advance(Duration::from_secs(40)).await;
            far.read_exact(byte).await.unwrap();
        }
        text
    }

    #[tokio::test(start_paused = true)]
    async fn slow_reader_does_not_time_out() {
        let (near, far) = duplex(1);
        let mut socket = Stalling::new(near, Duration::from_secs(60));
        let reader = read_slowly(far);
        let (written, text) = tokio::join!(socket.write_all(b"hello"), reader);
        written.unwrap();
        assert_eq!(&text, b"hello");
    }

    #[tokio::test(start_paused = true)]
    async fn unread_chunk_counts_as_stalled_until_it_is_read_or_the_response_ends() {
        let answers = Arc::new(OpenAnswers::default());
        let patience = Duration::from_secs(60);
        let any_stalled = || !answers.stalled(patience).is_empty();
        let first = answers.run(async {
            let one = AnswerGuard::current().unwrap();
            tokio::time::advance(2 * patience).await;
            assert!(!any_stalled(), "nothing was handed over");
            one.chunk_handed();
            tokio::time::advance(patience / 2).await;
            one.chunk_taken();
            one.chunk_handed();
            tokio::time::advance(patience / 2).await;
            assert!(!any_stalled());
            tokio::time::advance(patience / 2).await;
            assert!(any_stalled());
            one.chunk_taken();
            assert!(!any_stalled());
            one.chunk_handed();
            tokio::time::advance(patience).await;
            assert!(any_stalled());
        });
        first.await;
        assert!(!any_stalled());
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_stalled_request_is_ended() {
        let answers = Arc::new(OpenAnswers::default());
        let patience = Duration::from_secs(60);
        let one = answers.run(async {
            AnswerGuard::current().unwrap().chunk_handed();
            pending().await
        });
        let other = answers.run(async {
            tokio::time::advance(patience).await;
            answers.end_stalled(patience);
        });
        tokio::join!(one, other);
        assert!(answers.open().is_empty());
    }
}
