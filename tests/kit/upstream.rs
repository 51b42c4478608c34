//! A provider under the test's control: an HTTP server on loopback that sends scripted replies and
//! records requests.

use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;

/// How long a request may take to arrive.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);
/// The time between two comments of [`Reply::Comments`].
const COMMENT_EVERY: std::time::Duration = std::time::Duration::from_millis(20);

/// A request that the provider received.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: String,
    pub path: String,
    pub headers: hyper::HeaderMap,
    /// The body, if it is JSON.
    pub body: Value,
    /// The body as received.
    pub bytes: Bytes,
}

/// The reply to one request.
pub enum Reply {
    /// A status, headers and a whole body.
    Whole { status: u16, headers: Vec<(&'static str, String)>, body: String },
    /// The bytes of an event stream, cut inside events and characters.
    Split { pieces: Vec<Vec<u8>> },
    /// An endless stream of comments without an event.
    Comments,
    /// Chunks of a body, then its end. An empty type means no header.
    Stream { content_type: &'static str, pieces: Vec<String> },
    /// Chunks of a body, then the connection breaks.
    Cut { content_type: &'static str, pieces: Vec<String> },
    /// Chunks that the test sends itself, until it drops the sender.
    Fed { content_type: &'static str, pieces: Receiver<String> },
    /// No response until the test ends.
    Hang,
}

impl Reply {
    pub fn json(status: u16, body: Value) -> Self {
        let headers = vec![("content-type", "application/json".to_owned())];
        Self::Whole { status, headers, body: body.to_string() }
    }

    /// Server-sent events, one chunk each. Strings are sent as they are, other values as JSON.
    pub fn sse(events: &[Value]) -> Self {
        Self::Stream { content_type: "text/event-stream", pieces: events.iter().map(sse_event).collect() }
    }

    /// An event stream that breaks off.
    pub fn cut(events: &[Value]) -> Self {
        Self::Cut { content_type: "text/event-stream", pieces: events.iter().map(sse_event).collect() }
    }

    /// An event stream that the test feeds.
    pub fn fed() -> (Sender<String>, Self) {
        Self::fed_as("text/event-stream")
    }

    /// A body of another type that the test feeds.
    pub fn fed_as(content_type: &'static str) -> (Sender<String>, Self) {
        let (sender, pieces) = channel(64);
        (sender, Self::Fed { content_type, pieces })
    }
}

pub fn sse_event(event: &Value) -> String {
    match event {
        Value::String(text) => format!("data: {text}\n\n"),
        event => format!("data: {event}\n\n"),
    }
}

type Always = Box<dyn Fn(&Asked) -> Reply + Send>;

/// Replies to the next requests, and a reply to all further ones.
#[derive(Default)]
struct Plan {
    next: VecDeque<Reply>,
    always: Option<Always>,
}

type Replies = Arc<Mutex<Plan>>;

pub struct Upstream {
    /// `http://127.0.0.1:PORT/v1`
    pub base: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    news: Arc<Notify>,
    replies: Replies,
    /// Receives a message for each stream whose client left before its end.
    pub dropped: Receiver<()>,
    server: JoinHandle<()>,
}

impl Upstream {
    /// Starts on a free port. Requests without a scripted reply get status 500.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}/v1", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let replies: Replies = Arc::default();
        let (gone, dropped) = channel(64);
        let news = Arc::new(Notify::new());
        let notes = Notes { asked: Arc::clone(&asked), news: Arc::clone(&news) };
        let server = tokio::spawn(serve(listener, notes, Arc::clone(&replies), gone));
        Self { base, asked, news, replies, dropped, server }
    }

    /// Adds a reply for the next request.
    pub fn reply(&self, reply: Reply) {
        self.replies.lock().unwrap().next.push_back(reply);
    }

    /// Sets the reply for every request without a scripted one.
    pub fn always(&self, reply: impl Fn(&Asked) -> Reply + Send + 'static) {
        self.replies.lock().unwrap().always = Some(Box::new(reply));
    }

    /// Drops replies that were not used.
    pub fn clear(&self) {
        self.replies.lock().unwrap().next.clear();
    }

    /// The only request so far.
    pub fn asked_once(&self) -> Asked {
        let asked = self.asked();
        assert_eq!(asked.len(), 1, "{asked:?}");
        asked.into_iter().next().unwrap()
    }

    /// Waits until this many requests have arrived; returns all.
    pub async fn until_asked(&self, count: usize) -> Vec<Asked> {
        while self.asked().len() < count {
            let news = tokio::time::timeout(PATIENCE, self.news.notified()).await;
            news.unwrap_or_else(|_| panic!("asked {} times instead of {count}", self.asked().len()));
        }
        self.asked()
    }

    /// All requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Where received requests are recorded.
#[derive(Clone)]
struct Notes {
    asked: Arc<Mutex<Vec<Asked>>>,
    news: Arc<Notify>,
}

async fn serve(listener: TcpListener, notes: Notes, replies: Replies, gone: Sender<()>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        // Otherwise small chunks would wait for the acknowledgement of earlier ones.
        socket.set_nodelay(true).unwrap();
        let (notes, replies, gone) = (notes.clone(), Arc::clone(&replies), gone.clone());
        connections.spawn(async move {
            let service =
                service_fn(move |request| answer(request, notes.clone(), Arc::clone(&replies), gone.clone()));
            let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            // Clients that leave are part of the tests.
            builder.serve_connection(TokioIo::new(socket), service).await.ok();
        });
    }
}

pub(super) type Body = http_body_util::combinators::UnsyncBoxBody<Bytes, std::io::Error>;

async fn answer(
    request: Request<Incoming>,
    notes: Notes,
    replies: Replies,
    gone: Sender<()>,
) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let request = Asked {
        method: head.method.to_string(),
        path: head.uri.path().to_owned(),
        headers: head.headers,
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
        bytes: body,
    };
    notes.asked.lock().unwrap().push(request.clone());
    notes.news.notify_one();
    let reply = {
        let mut plan = replies.lock().unwrap();
        plan.next.pop_front().or_else(|| plan.always.as_ref().map(|always| always(&request)))
    };
    let reply = reply.unwrap_or_else(|| Reply::json(500, serde_json::json!({"error": "no reply left"})));
    Ok(respond(reply, gone).await)
}

/// The HTTP response for a reply.
pub(super) async fn respond(reply: Reply, gone: Sender<()>) -> Response<Body> {
    match reply {
        Reply::Whole { status, headers, body } => {
            let mut response = Response::builder().status(status);
            for (name, value) in headers {
                response = response.header(name, value);
            }
            response.body(stream(vec![body], false)).unwrap()
        }
        Reply::Split { pieces } => Response::builder()
            .header("content-type", "text/event-stream")
            .body(stream(pieces, false))
            .unwrap(),
        Reply::Comments => {
            let beats = tokio::time::interval(COMMENT_EVERY);
            let comments = futures_util::stream::unfold(beats, |mut beats| async move {
                beats.tick().await;
                Some((Ok(Frame::data(Bytes::from_static(b": wait\n\n"))), beats))
            });
            let body = StreamBody::new(comments).boxed_unsync();
            Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
        }
        Reply::Stream { content_type, pieces } => {
            let mut response = Response::builder();
            if !content_type.is_empty() {
                response = response.header("content-type", content_type);
            }
            response.body(stream(pieces, false)).unwrap()
        }
        Reply::Cut { content_type, pieces } => {
            Response::builder().header("content-type", content_type).body(stream(pieces, true)).unwrap()
        }
        Reply::Fed { content_type, pieces } => {
            let body = Fed { pieces, gone: Some(gone) };
            Response::builder().header("content-type", content_type).body(body.boxed_unsync()).unwrap()
        }
        Reply::Hang => std::future::pending().await,
    }
}

/// A body sent chunk by chunk, each flushed separately; it breaks off at the end if `cut`.
fn stream<P>(pieces: Vec<P>, cut: bool) -> Body
where
    Bytes: From<P>,
    P: Send + 'static,
{
    let last = cut.then(|| Err(std::io::Error::other("cut")));
    let frames = pieces.into_iter().map(|piece| Ok(Frame::data(Bytes::from(piece)))).chain(last);
    let frames = futures_util::stream::unfold(frames, |mut frames| async move {
        // Lets the connection write the previous chunk first.
        tokio::task::yield_now().await;
        frames.next().map(|frame| (frame, frames))
    });
    StreamBody::new(frames).boxed_unsync()
}

/// A body fed by the test. Sends a message when it is dropped before its end.
struct Fed {
    pieces: Receiver<String>,
    gone: Option<Sender<()>>,
}

impl hyper::body::Body for Fed {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        self.pieces.poll_recv(context).map(|piece| match piece {
            Some(piece) => Some(Ok(Frame::data(Bytes::from(piece)))),
            None => {
                self.gone = None;
                None
            }
        })
    }
}

impl Drop for Fed {
    fn drop(&mut self) {
        if let Some(gone) = self.gone.take() {
            gone.try_send(()).ok();
        }
    }
}

/// A port that is bound but does not accept connections; it stays reserved while this value lives.
pub struct Closed {
    /// `http://127.0.0.1:PORT/v1`
    pub base: String,
    _socket: tokio::net::TcpSocket,
}

impl Closed {
    pub fn new() -> Self {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        Self { base: format!("http://{}/v1", socket.local_addr().unwrap()), _socket: socket }
    }
}
