//! One connection to a server, HTTP/1.1 or HTTP/2.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// A request that is sent many times.
#[derive(Clone)]
pub(crate) struct LoadRequest {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) key: String,
    pub(crate) body: Bytes,
    /// The status that the answer has to have; 0: any.
    pub(crate) status: u16,
    /// What the body of the answer has to contain; empty: its content is not looked at.
    pub(crate) expected: &'static [u8],
}

/// The answer to one request.
pub(crate) struct LoadReply {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
    /// From the request to the first piece of the body, and to its end.
    pub(crate) first: Duration,
    pub(crate) whole: Duration,
}

impl LoadRequest {
    pub(crate) fn new(method: Method, path: &str, key: &str, body: impl Into<Bytes>) -> Self {
        Self {
            method,
            path: path.to_owned(),
            key: key.to_owned(),
            body: body.into(),
            status: 200,
            expected: b"",
        }
    }

    pub(crate) fn post(path: &str, key: &str, body: impl Into<Bytes>) -> Self {
        Self::new(Method::POST, path, key, body)
    }

    pub(crate) fn get(path: &str, key: &str) -> Self {
        Self::new(Method::GET, path, key, Bytes::new())
    }
}

enum RequestSender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

pub(crate) struct Connection {
    sender: RequestSender,
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let (sender, connection) = http1::handshake(TokioIo::new(dial(address).await?)).await?;
        let task = tokio::spawn(async move { drop(connection.await) });
        Ok(Self { sender: RequestSender::Http1(sender), address, task })
    }

    /// HTTP/2 without TLS.
    pub(crate) async fn open_http2(address: SocketAddr) -> anyhow::Result<Self> {
        let socket = TokioIo::new(dial(address).await?);
        let (sender, connection) = http2::handshake(TokioExecutor::new(), socket).await?;
        let task = tokio::spawn(async move { drop(connection.await) });
        Ok(Self { sender: RequestSender::Http2(sender), address, task })
    }

    /// Sends a request and waits for the head of the answer.
    pub(crate) async fn send(&mut self, request: &LoadRequest) -> anyhow::Result<Response<Incoming>> {
        let sent = Request::builder()
            .method(&request.method)
            .uri(match self.sender {
                RequestSender::Http1(_) => request.path.clone(),
                RequestSender::Http2(_) => format!("http://{}{}", self.address, request.path),
            })
            .header("authorization", format!("Bearer {}", request.key))
            .header("content-type", "application/json");
        Ok(match &mut self.sender {
            RequestSender::Http1(sender) => {
                let sent =
                    sent.header("host", self.address.to_string()).body(Full::new(request.body.clone()))?;
                sender.ready().await?;
                sender.send_request(sent).await?
            }
            RequestSender::Http2(sender) => {
                let sent = sent.body(Full::new(request.body.clone()))?;
                sender.ready().await?;
                sender.send_request(sent).await?
            }
        })
    }

    /// Sends a request and reads the whole answer.
    pub(crate) async fn ask(&mut self, request: &LoadRequest) -> anyhow::Result<LoadReply> {
        within(self.exchange(request), &request.path).await
    }

    async fn exchange(&mut self, request: &LoadRequest) -> anyhow::Result<LoadReply> {
        let started = Instant::now();
        let (head, mut body) = self.send(request).await?.into_parts();
        let (mut first, mut pieces) = (None, Vec::new());
        while let Some(frame) = body.frame().await {
            first.get_or_insert_with(|| started.elapsed());
            pieces.extend(frame?.into_data().ok());
        }
        let whole = started.elapsed();
        let body = match pieces.as_slice() {
            [only] => only.clone(),
            pieces => pieces.concat().into(),
        };
        Ok(LoadReply { status: head.status.as_u16(), body, first: first.unwrap_or(whole), whole })
    }

    /// Like [`Connection::ask`]; an answer that is not the expected one is an error.
    pub(crate) async fn ask_well(&mut self, request: &LoadRequest) -> anyhow::Result<LoadReply> {
        let reply = self.ask(request).await?;
        if !reply.is_as_expected(request) {
            bail!("{}", reply.summary(request));
        }
        Ok(reply)
    }
}

impl LoadReply {
    /// What was asked and how the answer begins.
    pub(crate) fn summary(&self, request: &LoadRequest) -> String {
        let start = String::from_utf8_lossy(self.body.get(..300).unwrap_or(&self.body));
        format!("{} {} was answered {}: {start}", request.method, request.path, self.status)
    }

    pub(crate) fn is_as_expected(&self, request: &LoadRequest) -> bool {
        (request.status == 0 || self.status == request.status)
            && (request.expected.is_empty() || memchr::memmem::find(&self.body, request.expected).is_some())
    }
}

/// Limits the wait for a server.
pub(crate) async fn within<T>(
    work: impl Future<Output = anyhow::Result<T>>,
    what: &str,
) -> anyhow::Result<T> {
    let ended = tokio::time::timeout(PATIENCE, work).await;
    ended.with_context(|| format!("{what} was not answered within {} s", PATIENCE.as_secs()))?
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn dial(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let socket = TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
    socket.set_nodelay(true)?;
    Ok(socket)
}
