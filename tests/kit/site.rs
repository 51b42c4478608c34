//! A third-party HTTPS server under the test's control, with its own certificate authority. It
//! sends scripted replies; without one it echoes the request.

use super::deadline::within;
use super::upstream::{Body, Reply, respond};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::sync::mpsc::channel;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// In a scripted reply: stands for the id of the JSON-RPC request.
pub const ID: &str = "@id";

/// A certificate authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "the authority of a test");
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// The certificate for `egress.roots`.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for these names, valid now.
    pub fn issue(&self, names: &[&str]) -> Issued {
        self.issue_with(names, |_| {})
    }

    /// A certificate for these names with other changes.
    pub fn issue_with(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Issued {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Issued { certificate: certificate.pem(), key: key.serialize_pem(), root: self.pem() }
    }

    /// A TLS acceptor with a certificate for these names.
    pub fn acceptor(&self, names: &[&str]) -> TlsAcceptor {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &self.0).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}

/// A change of a certificate for [`Authority::issue_with`]: it ends at midnight (UTC) after so many days.
pub fn ends_in(days: i64) -> impl FnOnce(&mut CertificateParams) {
    let (year, month, day) = date_in(days);
    move |params| params.not_after = rcgen::date_time_ymd(year, month, day)
}

/// The same, and it begins then.
pub fn begins_in(days: i64) -> impl FnOnce(&mut CertificateParams) {
    let (year, month, day) = date_in(days);
    move |params| params.not_before = rcgen::date_time_ymd(year, month, day)
}

fn date_in(days: i64) -> (i32, u8, u8) {
    let at = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(24 * days);
    let date = at.to_zoned(jiff::tz::TimeZone::UTC).date();
    (date.year().into(), date.month().unsigned_abs(), date.day().unsigned_abs())
}

/// A certificate, its key and the root to trust, as PEM.
#[derive(Clone)]
pub struct Issued {
    pub certificate: String,
    pub key: String,
    pub root: String,
}

/// A request that the server received.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The name in the TLS handshake.
    pub sni: Option<String>,
    pub method: String,
    /// Path and query.
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Seen {
    /// The value of a header, which must not be repeated.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next()?.to_str().unwrap();
        assert!(values.next().is_none(), "{name} came twice");
        Some(value)
    }
}

#[derive(Default)]
struct State {
    seen: Mutex<Vec<Seen>>,
    /// Replies for the next request to a path, or to any path.
    replies: Mutex<VecDeque<(Option<String>, Reply)>>,
    /// Requests that end a session. They are recorded separately, because they arrive at times that
    /// tests do not control.
    ended: Mutex<Vec<Seen>>,
    came: Notify,
    connections: AtomicUsize,
}

impl State {
    fn scripted(&self, path: &str) -> Option<Reply> {
        let mut replies = self.replies.lock().unwrap();
        let place = replies.iter().position(|(at, _)| at.as_deref().is_none_or(|at| at == path))?;
        replies.remove(place).map(|(_, reply)| reply)
    }
}

pub struct Site {
    /// On 127.0.0.1.
    pub port: u16,
    state: Arc<State>,
    server: JoinHandle<()>,
}

impl Site {
    pub async fn start(authority: &Authority, names: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State::default());
        let server = tokio::spawn(serve(listener, authority.acceptor(names), Arc::clone(&state)));
        Self { port, state, server }
    }

    /// Adds a reply for the next request.
    pub fn reply(&self, reply: Reply) {
        self.state.replies.lock().unwrap().push_back((None, reply));
    }

    /// Adds a reply for the next request to this path.
    pub fn reply_at(&self, path: &str, reply: Reply) {
        self.state.replies.lock().unwrap().push_back((Some(path.to_owned()), reply));
    }

    /// Waits until this many requests have arrived.
    pub async fn until(&self, count: usize) {
        within(&format!("{count} requests"), self.until_seen(count)).await;
    }

    async fn until_seen(&self, count: usize) {
        loop {
            let more = self.state.came.notified();
            if self.state.seen.lock().unwrap().len() >= count {
                return;
            }
            more.await;
        }
    }

    /// Waits for a request that ends a session and returns it.
    pub async fn ended(&self) -> Seen {
        within("a request that ends a session", self.until_ended()).await
    }

    async fn until_ended(&self) -> Seen {
        loop {
            let more = self.state.came.notified();
            if let Some(seen) = self.state.ended.lock().unwrap().pop() {
                return seen;
            }
            more.await;
        }
    }

    /// All requests so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.state.seen.lock().unwrap().clone()
    }

    /// The last request.
    pub fn last(&self) -> Seen {
        self.seen().pop().expect("nothing came")
    }

    /// Accepted connections, with or without requests.
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, state: Arc<State>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        state.connections.fetch_add(1, Ordering::SeqCst);
        connections.spawn(converse(socket, acceptor.clone(), Arc::clone(&state)));
    }
}

async fn converse(socket: TcpStream, acceptor: TlsAcceptor, state: Arc<State>) {
    socket.set_nodelay(true).unwrap();
    // A client that does not trust the certificate closes the connection.
    let Ok(stream) = acceptor.accept(socket).await else { return };
    let sni = stream.get_ref().1.server_name().map(str::to_owned);
    let service = service_fn(move |request| answer(request, sni.clone(), Arc::clone(&state)));
    let builder = hyper::server::conn::http1::Builder::new();
    builder.serve_connection(TokioIo::new(stream), service).await.ok();
}

async fn answer(
    request: Request<Incoming>,
    sni: Option<String>,
    state: Arc<State>,
) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let seen = Seen {
        sni,
        method: head.method.to_string(),
        path: head.uri.to_string(),
        headers: head.headers,
        body: body.collect().await.map(|body| body.to_bytes()).unwrap_or_default(),
    };
    let reply = if seen.method == "DELETE" && seen.headers.contains_key("mcp-session-id") {
        state.ended.lock().unwrap().push(seen);
        Reply::Whole { status: 405, headers: Vec::new(), body: String::new() }
    } else {
        let scripted = state.scripted(&seen.path);
        let reply = scripted.map_or_else(|| echo(&seen), |reply| answering(reply, &seen.body));
        state.seen.lock().unwrap().push(seen);
        reply
    };
    state.came.notify_waiters();
    Ok(respond(reply, channel(1).0).await)
}

/// A reply in which [`ID`] is replaced by the id of the JSON-RPC request.
fn answering(reply: Reply, request: &[u8]) -> Reply {
    let id = serde_json::from_slice::<Value>(request).ok().and_then(|message| message.get("id").cloned());
    let Some(id) = id else { return reply };
    let fill = move |text: String| text.replace(&json!(ID).to_string(), &id.to_string());
    match reply {
        Reply::Whole { status, headers, body } => Reply::Whole { status, headers, body: fill(body) },
        Reply::Stream { content_type, pieces } => {
            Reply::Stream { content_type, pieces: pieces.into_iter().map(fill).collect() }
        }
        Reply::Fed { content_type, mut pieces } => {
            let (filled, reply) = Reply::fed_as(content_type);
            tokio::spawn(async move {
                // Until the host closes the connection.
                while let Some(piece) = pieces.recv().await
                    && filled.send(fill(piece)).await.is_ok()
                {}
            });
            reply
        }
        other => other,
    }
}

/// Echoes the whole request, in the body and in a header.
fn echo(seen: &Seen) -> Reply {
    let all: Vec<(String, String)> = seen
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    let authorization = seen.headers.get("authorization").and_then(|value| value.to_str().ok());
    Reply::Whole {
        status: 200,
        headers: vec![
            ("content-type", "application/json".to_owned()),
            ("x-echo", authorization.unwrap_or_default().to_owned()),
        ],
        body: json!({
            "method": seen.method,
            "path": seen.path,
            "headers": all,
            "body": String::from_utf8_lossy(&seen.body),
        })
        .to_string(),
    }
}
