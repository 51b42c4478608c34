//! A client that stops taking its answer holds a sandbox and a provider's
//! stream. The body is not even polled then, so the limit sits at the socket:
//! a write that cannot go on for too long ends the connection.

use std::io;
use std::pin::Pin;
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

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::Stalling;

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
}
