//! [`LocalStream`]: a TCP connection that wakes the thread that uses it.
//!
//! Each thread has a scheduler and a poll of its own. A socket that stays registered with the
//! thread that dialled it would wake that thread first for each answer, and that thread would wake
//! the one that waits: two switches of context instead of one.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
};

use hyper_util::client::legacy::connect::{Connected, Connection};
use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    runtime::{self, Handle},
};

/// A TCP connection that is registered with the scheduler that polled it last.
///
/// Moving costs three system calls, and happens when a kept connection is taken by another thread.
#[derive(Debug)]
pub(crate) struct LocalStream {
    /// `None` after a failed move: the connection is closed.
    stream: Option<TcpStream>,
    /// `None` if unknown, for a stream that was made outside of a scheduler.
    registered: Option<runtime::Id>,
    /// Whether it moved since it was read. A scheduler learns only with its next poll what has arrived
    /// on a stream that it took over.
    has_moved: bool,
}

impl LocalStream {
    /// Wraps a stream that was made by the current scheduler.
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream: Some(stream), registered: current_scheduler(), has_moved: false }
    }

    /// The stream, registered with the current scheduler.
    fn here(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        let here = current_scheduler();
        if here != self.registered && here.is_some() {
            let socket = self.stream.take().ok_or(io::ErrorKind::NotConnected)?.into_std()?;
            self.stream = Some(TcpStream::from_std(socket)?);
            self.registered = here;
            self.has_moved = true;
        }
        Ok(Pin::new(self.stream.as_mut().ok_or(io::ErrorKind::NotConnected)?))
    }
}

/// The scheduler whose thread this is. `None` outside of all.
pub(crate) fn current_scheduler() -> Option<runtime::Id> {
    Handle::try_current().ok().map(|scheduler| scheduler.id())
}

impl AsyncRead for LocalStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        read: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.here()?;
        let Self { stream: Some(stream), has_moved, .. } = this else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        // A kept connection that the server has closed must be seen as closed before it gets a request.
        if std::mem::take(has_moved) {
            match recv(&*stream, read.initialize_unfilled(), RecvFlags::DONTWAIT) {
                Ok((_, count)) => {
                    read.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        Pin::new(stream).poll_read(context, read)
    }
}

impl AsyncWrite for LocalStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().here()?.poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().here()?.poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().here()?.poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().here()?.poll_shutdown(context)
    }
}

impl Connection for LocalStream {
    fn connected(&self) -> Connected {
        self.stream.as_ref().map_or_else(Connected::new, Connection::connected)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write as _,
        net::{TcpListener, TcpStream},
        sync::mpsc,
        thread,
    };

    use tokio::{io::AsyncReadExt as _, runtime::Builder};

    use super::{LocalStream, current_scheduler};

    #[test]
    fn a_stream_is_read_on_another_thread_after_its_first_scheduler_has_ended() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (moved, taken) = mpsc::sync_channel(1);
        let dialled = thread::spawn(move || {
            let scheduler = Builder::new_current_thread().enable_all().build().unwrap();
            scheduler.block_on(async {
                let socket = TcpStream::connect(address).unwrap();
                socket.set_nonblocking(true).unwrap();
                let mut stream = LocalStream::new(tokio::net::TcpStream::from_std(socket).unwrap());
                let mut word = [0; 5];
                stream.read_exact(&mut word).await.unwrap();
                assert_eq!((&word, stream.registered), (b"first", current_scheduler()));
                moved.send(stream).unwrap();
            });
        });
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(b"first").unwrap();
        let mut stream = taken.recv().unwrap();
        dialled.join().unwrap();
        let scheduler = Builder::new_current_thread().enable_all().build().unwrap();
        scheduler.block_on(async {
            let mut word = [0; 6];
            // Nothing has arrived yet, so the read must be woken by this thread's poll.
            let reading = tokio::spawn(async move {
                stream.read_exact(&mut word).await.unwrap();
                (word, stream.registered == current_scheduler())
            });
            tokio::task::yield_now().await;
            peer.write_all(b"second").unwrap();
            assert_eq!(reading.await.unwrap(), (*b"second", true));
        });
    }
}
