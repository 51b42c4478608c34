//! A client that stops taking its answer holds a sandbox and a provider's
//! stream. The body is not even polled then, so the limit sits at the socket:
//! a write that cannot go on for too long ends the connection. Over HTTP/2 the
//! socket goes on while the client gives one answer no room, so there the chunks
//! that wait for room are watched too.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// A socket whose writes may stall for a limited time.
pub(crate) struct Stalling<S> {
    socket: S,
    patience: Duration,
    /// Set while a write cannot go on.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl<S> Stalling<S> {
    /// Ends writes that do not go on for `patience`.
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

/// The answers that are on their way over one connection.
pub(crate) struct Answers {
    began: Instant,
    /// For each when its last chunk was handed over, in milliseconds; 0 while none waits.
    handed_ms: Mutex<Vec<Arc<AtomicU64>>>,
}

/// The last chunk of one answer.
pub(crate) struct Handed {
    answers: Arc<Answers>,
    at_ms: Arc<AtomicU64>,
}

impl Default for Answers {
    fn default() -> Self {
        Self { began: Instant::now(), handed_ms: Mutex::default() }
    }
}

impl Answers {
    /// One more answer.
    pub(crate) fn begin(self: &Arc<Self>) -> Handed {
        let at_ms = Arc::<AtomicU64>::default();
        self.handed_ms().push(Arc::clone(&at_ms));
        Handed { answers: Arc::clone(self), at_ms }
    }

    /// Is there one of which the client has taken nothing for `patience`?
    pub(crate) fn any_stalled(&self, patience: Duration) -> bool {
        let Some(last_ms) = self.now_ms().checked_sub(milliseconds(patience)) else { return false };
        self.handed_ms().iter().any(|at_ms| (1..=last_ms).contains(&at_ms.load(Ordering::Relaxed)))
    }

    /// Never 0.
    fn now_ms(&self) -> u64 {
        milliseconds(self.began.elapsed()).saturating_add(1)
    }

    fn handed_ms(&self) -> MutexGuard<'_, Vec<Arc<AtomicU64>>> {
        self.handed_ms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handed {
    /// A chunk waits for room from now on.
    pub(crate) fn hand(&self) {
        self.at_ms.store(self.answers.now_ms(), Ordering::Relaxed);
    }

    /// It had room: the connection asks for the next.
    pub(crate) fn taken(&self) {
        self.at_ms.store(0, Ordering::Relaxed);
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        self.answers.handed_ms().retain(|at_ms| !Arc::ptr_eq(at_ms, &self.at_ms));
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::{Answers, Stalling};

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_stops_ends_the_write() {
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
    async fn a_slow_reader_is_waited_for() {
        let (near, far) = duplex(1);
        let mut socket = Stalling::new(near, Duration::from_secs(60));
        let reader = read_slowly(far);
        let (written, text) = tokio::join!(socket.write_all(b"hello"), reader);
        written.unwrap();
        assert_eq!(&text, b"hello");
    }

    #[tokio::test(start_paused = true)]
    async fn a_chunk_that_is_not_taken_stalls_its_answer_until_it_is_or_the_answer_ends() {
        let answers = Arc::new(Answers::default());
        let patience = Duration::from_secs(60);
        let (one, other) = (answers.begin(), answers.begin());
        tokio::time::advance(2 * patience).await;
        assert!(!answers.any_stalled(patience), "nothing was handed over");
        one.hand();
        other.hand();
        tokio::time::advance(patience / 2).await;
        other.taken();
        assert!(!answers.any_stalled(patience));
        tokio::time::advance(patience / 2).await;
        assert!(answers.any_stalled(patience));
        one.taken();
        assert!(!answers.any_stalled(patience));
        one.hand();
        tokio::time::advance(patience).await;
        drop(one);
        assert!(!answers.any_stalled(patience));
    }
}
