//! Test servers, and configurations that let the client reach them.

pub(crate) mod dns;
pub(crate) mod guest;
pub(crate) mod tls;
pub(crate) mod vault;

use std::{
    future::Future,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use cofferdam_egress::{Credential, Egress, EgressConfig, ExchangeLimits, Origin, Outgoing, Placement};
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinSet,
};

/// Longer than any step takes. A test that waits this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Concurrent streams that the HTTP/2 server allows, as many servers do.
pub(crate) const STREAMS_MAX: u32 = 100;

/// A server that runs until it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    seen: mpsc::Receiver<Request<Bytes>>,
    _tasks: JoinSet<()>,
}

impl Server {
    /// Answers every request with the result of `answer`.
    pub(crate) async fn start(answer: fn(&Request<Bytes>) -> Response<Full<Bytes>>) -> Self {
        Self::with(answer, |stream| async move { Some(stream) }).await
    }

    /// Same as [`Self::start`], behind TLS.
    pub(crate) async fn start_tls(
        acceptor: tokio_rustls::TlsAcceptor,
        answer: fn(&Request<Bytes>) -> Response<Full<Bytes>>,
    ) -> Self {
        Self::with(answer, move |stream| {
            let acceptor = acceptor.clone();
            async move { acceptor.accept(stream).await.ok() }
        })
        .await
    }

    /// Plays `script` on every connection, after the head of the request has arrived.
    pub(crate) async fn script<F>(script: fn(TcpStream) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (_sender, seen) = mpsc::channel(1);
        Self::listen(seen, move |mut stream| async move {
            read_head(&mut stream).await;
            script(stream).await;
        })
        .await
    }

    async fn with<S, F, W>(answer: fn(&Request<Bytes>) -> Response<Full<Bytes>>, wrap: W) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        F: Future<Output = Option<S>> + Send + 'static,
        W: Fn(TcpStream) -> F + Clone + Send + Sync + 'static,
    {
        let (sender, seen) = mpsc::channel(2 * STREAMS_MAX as usize);
        Self::listen(seen, move |stream| {
            let (wrap, sender) = (wrap.clone(), sender.clone());
            async move {
                serve(wrap(stream).await, answer, sender).await;
            }
        })
        .await
    }

    async fn listen<F, H>(seen: mpsc::Receiver<Request<Bytes>>, handle: H) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
        H: Fn(TcpStream) -> F + Send + 'static,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut handlers = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                handlers.spawn(handle(stream));
            }
        });
        Self { address, connections, seen, _tasks: tasks }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Number of connections that were accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// The next request that arrived.
    pub(crate) async fn seen(&mut self) -> Request<Bytes> {
        tokio::time::timeout(PATIENCE, self.seen.recv()).await.unwrap().unwrap()
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: Option<S>,
    answer: fn(&Request<Bytes>) -> Response<Full<Bytes>>,
    seen: mpsc::Sender<Request<Bytes>>,
) {
    // A client that does not trust the certificate ends the handshake.
    let Some(stream) = stream else { return };
    let service = service_fn(move |request: Request<Incoming>| {
        let seen = seen.clone();
        async move {
            let (head, body) = request.into_parts();
            let request = Request::from_parts(head, body.collect().await?.to_bytes());
            let response = answer(&request);
            seen.send(request).await.unwrap();
            Ok::<_, hyper::Error>(response)
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http2().max_concurrent_streams(STREAMS_MAX);
    // Some tests close the connection early, so errors are ignored.
    let _outcome = builder.serve_connection(TokioIo::new(stream), service).await;
}

/// Reads until the head of a request is complete. Parts of the body may have been read too.
pub(crate) async fn read_head(stream: &mut TcpStream) {
    let mut head = Vec::new();
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        if stream.read_buf(&mut head).await.unwrap() == 0 {
            return;
        }
    }
}

pub(crate) fn ok(_request: &Request<Bytes>) -> Response<Full<Bytes>> {
    Response::new(Full::from("fine"))
}

/// A configuration that allows credentials over plain http to loopback.
pub(crate) fn config() -> EgressConfig {
    EgressConfig { allow_plaintext_loopback: true, connect_timeout: PATIENCE, ..EgressConfig::default() }
}

/// `config` with one fixed answer.
pub(crate) fn resolving(name: &str, addresses: &[&str]) -> EgressConfig {
    let answer = addresses.iter().map(|address| address.parse().unwrap()).collect();
    EgressConfig { resolve: [(name.to_owned(), answer)].into(), ..config() }
}

pub(crate) fn egress(config: &EgressConfig) -> Egress {
    Egress::new(config.clone()).unwrap()
}

/// An origin for requests without a credential.
pub(crate) fn origin(base_url: &str) -> Origin {
    Origin::parse(base_url, false, false, &config()).unwrap()
}

/// An origin for requests with a credential.
pub(crate) fn origin_with_credential(base_url: &str) -> Origin {
    Origin::parse(base_url, true, false, &config()).unwrap()
}

pub(crate) fn credential() -> Credential {
    let placement = Placement::header("authorization", "Bearer {}").unwrap();
    Credential::new(&placement, b"sk-very-secret").unwrap()
}

pub(crate) const LIMITS: ExchangeLimits =
    ExchangeLimits { head: PATIENCE, idle: PATIENCE, body_bytes_max: 1024 * 1024 };

/// A small request.
pub(crate) fn request(origin: &Origin) -> Outgoing<'_> {
    Outgoing {
        origin,
        path: "responses",
        headers: Vec::new(),
        body: Bytes::from_static(b"{}"),
        streamed: false,
        credential: None,
        limits: LIMITS,
    }
}
