//! The scripted provider: a process of its own, so that its processor time and memory are not those of a server
//! under test. The first segment of a path names the script: `/whole/v1/responses`.

use std::convert::Infallible;
use std::io::Write as _;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, Interval};
use tokio_rustls::TlsAcceptor;

use crate::script::{DELTAS, Texts, delta};
use crate::site::API;

#[derive(clap::Args)]
pub(crate) struct UpstreamOptions {
    /// Where the certificate of the TLS listener is written
    #[arg(long)]
    roots: PathBuf,
}

/// Serves until standard input ends, so that the provider does not outlive the process that started it.
pub(crate) async fn run(options: &UpstreamOptions) -> anyhow::Result<()> {
    let made = rcgen::generate_simple_self_signed([API.to_owned()])?;
    std::fs::write(&options.roots, made.cert.pem())
        .with_context(|| format!("cannot write {}", options.roots.display()))?;
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let tls = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())?;
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let plain = listen()?;
    let secure = listen()?;
    let texts = Arc::new(Texts::new(secure.local_addr()?.port()));
    let addresses = json!({"plain": plain.local_addr()?.port(), "tls": secure.local_addr()?.port()});
    writeln!(std::io::stdout(), "{addresses}")?;
    let mut end = [0; 1];
    let mut input = tokio::io::stdin();
    tokio::select! {
        ended = accept(plain, None, &texts) => ended,
        ended = accept(secure, Some(acceptor), &texts) => ended,
        _ = input.read(&mut end) => Ok(()),
    }
}

/// A listener with room for a burst of thousands of connections.
fn listen() -> anyhow::Result<TcpListener> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.bind(([127, 0, 0, 1], 0).into())?;
    Ok(socket.listen(8_192)?)
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, texts: &Arc<Texts>) -> anyhow::Result<()> {
    loop {
        let (socket, _) = listener.accept().await?;
        socket.set_nodelay(true)?;
        tokio::spawn(connection(socket, tls.clone(), Arc::clone(texts)));
    }
}

/// Errors are not reported: a connection that the server under test breaks off is part of the load.
async fn connection(socket: TcpStream, tls: Option<TlsAcceptor>, texts: Arc<Texts>) {
    match tls {
        None => serve(socket, texts).await,
        Some(tls) => {
            if let Ok(socket) = tls.accept(socket).await {
                serve(socket, texts).await;
            }
        }
    }
}

async fn serve(socket: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, texts: Arc<Texts>) {
    let service = service_fn(move |request| answer(request, Arc::clone(&texts)));
    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    builder.serve_connection(TokioIo::new(socket), service).await.ok();
}

async fn answer(request: Request<Incoming>, texts: Arc<Texts>) -> Result<Response<ScriptedBody>, Infallible> {
    let (head, body) = request.into_parts();
    let script = head.uri.path().split('/').nth(1).unwrap_or_default();
    // Only tool calls look at the body; the others do not keep it in memory.
    let is_second_turn = if script.ends_with("tool") || script.ends_with("tool-stream") {
        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        memchr::memmem::find(&body, b"function_call_output").is_some()
    } else {
        drain(body).await;
        false
    };
    let whole = |text: &Bytes| reply(200, "application/json", ScriptedBody::whole(text.clone()));
    let stream = |body| reply(200, "text/event-stream", body);
    Ok(match script {
        "stream" => stream(ScriptedBody::stream(&texts, DELTAS)),
        "embedding" => whole(&texts.embedding),
        "embedding-base64" => whole(&texts.embedding_base64),
        "datetime-tool" if !is_second_turn => whole(&texts.datetime[0]),
        "function-tool" if !is_second_turn => whole(&texts.function[0]),
        "http-tool" if !is_second_turn => whole(&texts.http[0]),
        "datetime-tool-stream" if !is_second_turn => stream(ScriptedBody::whole(texts.datetime[1].clone())),
        "function-tool-stream" if !is_second_turn => stream(ScriptedBody::whole(texts.function[1].clone())),
        script if script.ends_with("tool-stream") => stream(ScriptedBody::stream(&texts, DELTAS)),
        "unavailable" => reply(503, "application/json", ScriptedBody::whole(texts.failure.clone())),
        "limited" => reply(429, "application/json", ScriptedBody::whole(texts.failure.clone())),
        "refused" => reply(400, "application/json", ScriptedBody::whole(texts.failure.clone())),
        "cut" => stream(ScriptedBody { breaks: true, ..ScriptedBody::stream(&texts, DELTAS / 2) }),
        script => match paced(script) {
            Some((count, every)) => stream(ScriptedBody::paced(&texts, count, every)),
            None => whole(&texts.whole),
        },
    })
}

/// `paced-COUNT-MILLISECONDS`: so many deltas, one at a time, each with the time at which it is sent.
fn paced(script: &str) -> Option<(usize, Duration)> {
    let (count, every) = script.strip_prefix("paced-")?.split_once('-')?;
    Some((count.parse().ok()?, Duration::from_millis(every.parse().ok()?)))
}

async fn drain(mut body: Incoming) {
    while let Some(Ok(_)) = body.frame().await {}
}

fn reply(status: u16, kind: &'static str, body: ScriptedBody) -> Response<ScriptedBody> {
    let mut response = Response::new(body);
    *response.status_mut() = hyper::StatusCode::from_u16(status).unwrap_or_default();
    response.headers_mut().insert("content-type", hyper::header::HeaderValue::from_static(kind));
    response
}

/// A text before, deltas, and a text after them.
struct ScriptedBody {
    before: Option<Bytes>,
    delta: Bytes,
    left: usize,
    after: Option<Bytes>,
    /// The time between two deltas. Without it all are sent at once.
    every: Option<Interval>,
    /// The body breaks off in place of its end.
    breaks: bool,
}

impl ScriptedBody {
    fn whole(text: Bytes) -> Self {
        Self { before: Some(text), delta: Bytes::new(), left: 0, after: None, every: None, breaks: false }
    }

    fn stream(texts: &Texts, count: usize) -> Self {
        let [before, delta, after] = texts.stream.clone();
        Self { before: Some(before), delta, left: count, after: Some(after), every: None, breaks: false }
    }
}

impl ScriptedBody {
    /// The first delta goes out at once with what is before it: the timer counts in whole milliseconds.
    fn paced(texts: &Texts, count: usize, every: Duration) -> Self {
        let stream = Self::stream(texts, count.saturating_sub(1));
        let first = delta(&microseconds().to_string());
        let before = [texts.stream[0].as_ref(), first.as_ref()].concat();
        let every = tokio::time::interval_at(Instant::now() + every, every);
        Self { before: Some(before.into()), every: Some(every), ..stream }
    }
}

impl Body for ScriptedBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        if let Some(before) = self.before.take() {
            return Poll::Ready(Some(Ok(Frame::data(before))));
        }
        if self.left > 0 {
            let piece = match &mut self.every {
                None => self.delta.clone(),
                Some(every) => {
                    ready!(every.poll_tick(context));
                    delta(&microseconds().to_string())
                }
            };
            self.left -= 1;
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        if self.breaks {
            return Poll::Ready(Some(Err(std::io::Error::other("the script breaks off here"))));
        }
        Poll::Ready(self.after.take().map(|after| Ok(Frame::data(after))))
    }

    fn is_end_stream(&self) -> bool {
        self.before.is_none() && self.left == 0 && self.after.is_none() && !self.breaks
    }

    /// Known for a whole answer, so that it has a `content-length`.
    fn size_hint(&self) -> hyper::body::SizeHint {
        match (&self.before, self.left, &self.after, self.breaks) {
            (Some(text), 0, None, false) => hyper::body::SizeHint::with_exact(text.len() as u64),
            _ => hyper::body::SizeHint::default(),
        }
    }
}

/// The time of the system's clock, which all processes of a run share.
pub(crate) fn microseconds() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}
