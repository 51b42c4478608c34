//! The API that the tour's tool calls: an HTTPS server on loopback with a certificate authority of
//! its own. It records what it receives and sends the credential back, so that the tour shows what
//! the host does with a server that repeats a secret.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde::Serialize;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// Connections that are served at the same time; the tour needs one.
const CONNECTIONS_MAX: usize = 8;
/// Requests that are recorded.
const REQUESTS_MAX: usize = 8;
/// How long a connection may last.
const CONNECTION_TIME: Duration = Duration::from_secs(20);

/// A request as the server received it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ReceivedRequest {
    pub(super) method: String,
    pub(super) path: String,
    /// The header `authorization`.
    pub(super) authorization: Option<String>,
}

type Recorded = Arc<Mutex<Vec<ReceivedRequest>>>;

/// A server that listens and does not serve yet.
pub(super) struct EchoServer {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    recorded: Recorded,
    /// The certificate that the host has to trust, as PEM.
    pub(super) root: String,
    pub(super) address: SocketAddr,
}

/// Why the server does not start.
#[derive(Debug, thiserror::Error)]
pub(super) enum EchoError {
    #[error("no certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    #[error("no TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error("no free port on 127.0.0.1: {0}")]
    Listen(#[from] std::io::Error),
}

impl EchoServer {
    /// Listens on a free port of 127.0.0.1, with a new certificate for this name.
    pub(super) async fn bind(name: &str) -> Result<Self, EchoError> {
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(vec![name.to_owned()])?.signed_by(&key, &authority)?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Ok(Self { listener, acceptor, recorded: Recorded::default(), root: authority.pem(), address })
    }

    /// What was received so far.
    pub(super) fn received(&self) -> Vec<ReceivedRequest> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Serves until dropped.
    pub(super) async fn serve(&self) -> Infallible {
        let mut connections = JoinSet::new();
        loop {
            if connections.len() >= CONNECTIONS_MAX {
                connections.join_next().await;
            }
            // A connection that cannot be accepted shows in the answer to the tour's request.
            if let Ok((socket, _)) = self.listener.accept().await {
                let serving = converse(socket, self.acceptor.clone(), Arc::clone(&self.recorded));
                connections.spawn(tokio::time::timeout(CONNECTION_TIME, serving));
            }
        }
    }
}

/// Serves one connection. Its errors show in the answer to the tour's request.
async fn converse(socket: TcpStream, acceptor: TlsAcceptor, recorded: Recorded) {
    let Ok(stream) = acceptor.accept(socket).await else { return };
    let service = service_fn(move |request| std::future::ready(answer(&request, &recorded)));
    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
}

fn answer(request: &Request<Incoming>, recorded: &Recorded) -> Result<Response<Full<Bytes>>, Infallible> {
    let authorization = request.headers().get(header::AUTHORIZATION);
    let received = ReceivedRequest {
        method: request.method().to_string(),
        path: request.uri().path().to_owned(),
        authorization: authorization.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()),
    };
    let body = json!({"you_sent": {"authorization": received.authorization}}).to_string();
    let mut recorded = recorded.lock().unwrap_or_else(PoisonError::into_inner);
    if recorded.len() < REQUESTS_MAX {
        recorded.push(received);
    }
    let mut response = Response::new(Full::new(Bytes::from(body)));
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    Ok(response)
}
