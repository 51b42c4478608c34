//! HTTP connections, and one exchange of a request and its answer.
//!
//! An HTTP/1 connection has no task of its own: the task that waits for the answer polls the
//! connection. So a request and its answer stay on one thread and wake one task only, and dropping
//! an exchange closes the connection. An HTTP/2 connection is shared by many exchanges and runs as
//! a task.

use std::{
    error::Error as StdError,
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker, ready},
};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use http::{Request, Response};
use http_body::Body;
use http_body_util::Full;
use hyper::{
    body::Incoming,
    client::conn::{TrySendError, http1, http2},
};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::rt::TokioIo;

use crate::local_stream::LocalStream;

/// The byte stream below HTTP, with or without TLS.
pub(crate) type ByteStream = MaybeHttpsStream<TokioIo<LocalStream>>;
/// A request as it is sent.
pub(crate) type Outward = Request<Full<Bytes>>;

/// A connection that is ready for a request or is in use by one.
pub(crate) enum UpstreamConnection {
    /// HTTP/1: one request at a time.
    Own(Box<Wire>),
    /// HTTP/2: many requests at a time.
    Shared(SharedSender),
}

/// Number of concurrent requests on a shared connection. Servers are advised to allow at least 100
/// streams (RFC 9113, 6.5.2) and many allow exactly 100. A request beyond that would wait until
/// another one ends; it gets a connection of its own instead.
pub(crate) const SHARED_MAX: u16 = 100;
/// How often one poll drives a connection that made progress before it yields to other tasks.
const TURNS_MAX: usize = 8;

/// No answer arrived.
pub(crate) enum Unanswered {
    /// It is certain that no byte of the request was sent.
    Unsent(Outward),
    /// The server says that it has not processed the request (RFC 9113, section 8.7).
    Refused(Outward),
    /// The server may have processed the request.
    Lost,
}

impl From<TrySendError<Outward>> for Unanswered {
    fn from(mut error: TrySendError<Outward>) -> Self {
        error.take_message().map_or(Self::Lost, Self::Unsent)
    }
}

/// An HTTP/1 connection. Its owner drives it by polling.
pub(crate) struct Wire {
    sender: http1::SendRequest<Full<Bytes>>,
    connection: http1::Connection<ByteStream, Full<Bytes>>,
    /// The connection has ended and must not be polled again.
    over: bool,
    relay: Arc<Relay>,
    waker: Waker,
}

impl Wire {
    /// Starts HTTP/1 on a new stream. `None` if the stream is already broken.
    pub(crate) async fn open(stream: ByteStream) -> Option<Box<Self>> {
        let (sender, connection) = http1::handshake(stream).await.ok()?;
        let relay = Arc::new(Relay::default());
        let waker = Waker::from(Arc::clone(&relay));
        let mut wire = Box::new(Self { sender, connection, over: false, relay, waker });
        wire.is_ready().then_some(wire)
    }

    /// Returns whether a request can be sent, as far as can be seen from here. False while a part
    /// of an earlier request's body is unsent: a server that has already answered may never read
    /// it.
    pub(crate) fn is_ready(&mut self) -> bool {
        // No task waits on this connection. The next poll sees whatever happens in between.
        self.relay.task.take();
        self.relay.begin();
        let waker = self.waker.clone();
        self.drive(&mut Context::from_waker(&waker));
        !self.over && self.sender.is_ready()
    }

    /// Sends a request and waits for the head of its answer.
    pub(crate) async fn send(&mut self, request: Outward) -> Result<Response<Incoming>, Unanswered> {
        let mut answer = pin!(self.sender.try_send_request(request));
        let outcome = std::future::poll_fn(|context| self.poll(context, |inner| answer.as_mut().poll(inner)));
        // `None` means that the connection ended and the pending request got no error of its own.
        Ok(outcome.await.ok_or(Unanswered::Lost)??)
    }

    /// Polls `wanted`, something that this connection produces, and drives the connection
    /// meanwhile. `None` if the connection has ended and `wanted` will never be ready.
    fn poll<T>(
        &mut self,
        context: &mut Context<'_>,
        mut wanted: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<Option<T>> {
        self.relay.task.register(context.waker());
        let waker = self.waker.clone();
        let mut inner = Context::from_waker(&waker);
        for _ in 0..TURNS_MAX {
            self.relay.begin();
            if let Poll::Ready(found) = wanted(&mut inner) {
                return Poll::Ready(Some(found));
            }
            // Poll once more after driving: the connection may have produced what is wanted.
            let was_over = self.over;
            self.drive(&mut inner);
            if let Poll::Ready(found) = wanted(&mut inner) {
                return Poll::Ready(Some(found));
            }
            if was_over {
                return Poll::Ready(None);
            }
            if !self.over && self.relay.rest() {
                return Poll::Pending;
            }
        }
        // The connection still makes progress after `TURNS_MAX` rounds: yield, and request another
        // poll.
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn drive(&mut self, context: &mut Context<'_>) {
        // The connection's error is dropped here: the answer or its body reports the failure.
        self.over = self.over || Pin::new(&mut self.connection).poll(context).is_ready();
    }
}

/// The sending side of an HTTP/2 connection. Each request holds a clone until its answer ends, so
/// the number of clones is the number of requests plus the pool's own clone.
#[derive(Clone)]
pub(crate) struct SharedSender {
    sender: http2::SendRequest<Full<Bytes>>,
    /// Whether the server has refused a request with GOAWAY: it takes no further ones on this
    /// connection. Each request holds a clone, so the references count the requests.
    has_gone_away: Arc<AtomicBool>,
}

impl SharedSender {
    pub(crate) fn new(sender: http2::SendRequest<Full<Bytes>>) -> Self {
        Self { sender, has_gone_away: Arc::default() }
    }

    /// Returns whether the connection takes no more requests.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed() || self.has_gone_away.load(Ordering::Relaxed)
    }

    /// Returns whether one more request could have to wait for another one to end. The count is
    /// right only when called on the pool's own clone.
    pub(crate) fn is_full(&self) -> bool {
        self.requests() >= usize::from(SHARED_MAX)
    }

    /// Number of requests that run, when called on the pool's own clone.
    pub(crate) fn requests(&self) -> usize {
        Arc::strong_count(&self.has_gone_away) - 1
    }

    /// Sends a request and waits for the head of its answer.
    pub(crate) async fn send(&mut self, request: Outward) -> Result<Response<Incoming>, Unanswered> {
        if self.sender.ready().await.is_err() {
            return Err(Unanswered::Unsent(request));
        }
        // Shares the body and the values of the headers.
        let copy = request.clone();
        let error = match self.sender.try_send_request(request).await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        match refusal(error.error()) {
            None => Err(error.into()),
            Some(refusal) => {
                if refusal.is_go_away() {
                    self.has_gone_away.store(true, Ordering::Relaxed);
                }
                Err(Unanswered::Refused(copy))
            }
        }
    }
}

/// The server's statement that it has not processed a request, if the error has one: the stream was
/// refused, or GOAWAY excludes it. With GOAWAY for an error, streams that were processed fail in the
/// same way, so only one without an error counts.
fn refusal(error: &hyper::Error) -> Option<&h2::Error> {
    let mut causes = std::iter::successors(error.source(), |&cause| cause.source());
    let cause = causes.find_map(|cause| cause.downcast_ref::<h2::Error>())?;
    let is_refusal = match cause.reason() {
        Some(h2::Reason::REFUSED_STREAM) => cause.is_reset(),
        Some(h2::Reason::NO_ERROR) => cause.is_go_away(),
        _ => false,
    };
    (is_refusal && cause.is_remote()).then_some(cause)
}

/// A waker between a connection and the task that polls it. The connection and its answer wake each
/// other all the time while they are polled together. Those wake-ups must not cause another poll of
/// the task.
#[derive(Default)]
struct Relay {
    task: AtomicWaker,
    /// A wake-up arrived since the poll began.
    called: AtomicBool,
    /// The task is not polling, so wake-ups are passed on to it.
    resting: AtomicBool,
}

impl Relay {
    fn begin(&self) {
        self.resting.store(false, Ordering::SeqCst);
        self.called.store(false, Ordering::SeqCst);
    }

    /// Ends a poll. True if no wake-up arrived since [`Self::begin`]; from now on a wake-up wakes
    /// the task.
    fn rest(&self) -> bool {
        self.resting.store(true, Ordering::SeqCst);
        !self.called.swap(false, Ordering::SeqCst)
    }
}

impl Wake for Relay {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.called.store(true, Ordering::SeqCst);
        if self.resting.load(Ordering::SeqCst) {
            self.task.wake();
        }
    }
}

/// The body of an answer, and the connection that it arrives on.
pub(crate) struct Exchange {
    pub(crate) body: Incoming,
    pub(crate) connection: UpstreamConnection,
}

/// The connection broke before the body was complete.
pub(crate) struct BrokenBody;

impl Exchange {
    /// The next chunk, which may be empty; `None` at the end.
    pub(crate) fn poll_piece(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BrokenBody>>> {
        let Self { body, connection } = self;
        let mut body = Pin::new(body);
        let frame = match connection {
            UpstreamConnection::Shared(_) => ready!(body.poll_frame(context)),
            UpstreamConnection::Own(wire) => {
                match ready!(wire.poll(context, |inner| body.as_mut().poll_frame(inner))) {
                    Some(frame) => frame,
                    None => return Poll::Ready(Some(Err(BrokenBody))),
                }
            }
        };
        Poll::Ready(frame.map(|frame| match frame {
            // Trailers are dropped: no caller uses them, and so they need no search for secrets.
            Ok(frame) => Ok(frame.into_data().unwrap_or_default()),
            Err(_) => Err(BrokenBody),
        }))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpSocket, TcpStream},
    };

    use super::*;

    /// Requested size of the socket buffers. The system rounds it up to a few times as much.
    const BUFFER_BYTES: u32 = 4096;
    const BODY_BYTES: usize = 300 * 1024;

    /// Both ends of a connection with small socket buffers.
    async fn narrow() -> (Box<Wire>, TcpStream) {
        let server = TcpSocket::new_v4().unwrap();
        server.set_recv_buffer_size(BUFFER_BYTES).unwrap();
        server.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let server = server.listen(1).unwrap();
        let client = TcpSocket::new_v4().unwrap();
        client.set_send_buffer_size(BUFFER_BYTES).unwrap();
        let client = client.connect(server.local_addr().unwrap()).await.unwrap();
        let (far, _) = server.accept().await.unwrap();
        (Wire::open(MaybeHttpsStream::Http(TokioIo::new(LocalStream::new(client)))).await.unwrap(), far)
    }

    /// One exchange with a request of `bytes` bytes. The server answers after it has read `read`
    /// bytes.
    async fn exchange(wire: &mut Wire, far: &mut TcpStream, bytes: usize, read: usize) {
        let request = Request::post("/").header("host", "a").body(Full::from(vec![b' '; bytes])).unwrap();
        let answer = async {
            far.read_exact(&mut vec![0; read]).await.unwrap();
            far.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfine").await.unwrap();
        };
        let (answered, ()) = tokio::join!(wire.send(request), answer);
        let Ok(answered) = answered else { panic!("nothing came back") };
        let mut body = pin!(answered.into_body().collect());
        let body = std::future::poll_fn(|context| wire.poll(context, |inner| body.as_mut().poll(inner)));
        assert_eq!(body.await.unwrap().unwrap().to_bytes(), "fine");
    }

    #[tokio::test]
    async fn connection_with_an_unsent_body_takes_no_other_request() {
        // The connection has buffered the short body completely and the long ones in part.
        for bytes in [32, 256, 4096].map(|kib| kib * 1024) {
            let (mut wire, mut far) = narrow().await;
            exchange(&mut wire, &mut far, bytes, 1).await;
            assert!(!wire.is_ready(), "{bytes} bytes");
        }
    }

    #[tokio::test]
    async fn connection_whose_body_was_read_takes_another_request() {
        let (mut wire, mut far) = narrow().await;
        let head = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 307200\r\n\r\n".len();
        for _ in 0..2 {
            exchange(&mut wire, &mut far, BODY_BYTES, head + BODY_BYTES).await;
            assert!(wire.is_ready());
        }
    }
}
