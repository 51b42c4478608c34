//! Opens new connections: resolve, check, connect, TLS handshake and choice of the HTTP version.

use std::{
    error::Error as StdError,
    future::{Future, poll_fn},
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::Uri;
use hyper::client::conn::http2;
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::connect::{Connection, HttpConnector},
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use tower_service::Service;

use crate::{
    Error, Reason,
    error::{AddressRefused, Unreached, reduce},
    local_stream::LocalStream,
    resolver::CheckedNames,
    rule::PoolRule,
    wire::{ByteStream, SHARED_MAX, SharedSender, UpstreamConnection, Wire},
};

/// Interval of TCP keep-alive probes, so that a dead path is noticed.
const PROBE: Duration = Duration::from_secs(15);
/// Unanswered keep-alive probes after which the connection is closed.
const PROBES: u32 = 3;
/// Time within which the peer's system must acknowledge sent data (`TCP_USER_TIMEOUT`).
const ACKNOWLEDGED: Duration = Duration::from_secs(30);
/// HTTP/2 pings: interval, and time to wait for the answer.
const PING: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(10));
/// How many bytes of an answer an HTTP/2 server may send before they are read.
const STREAM_WINDOW: u32 = 256 * 1024;

/// Opens connections under one rule.
pub(crate) struct Dialler {
    connector: HttpsConnector<CheckedConnector>,
    rule: PoolRule,
    timeout: Duration,
}

impl Dialler {
    pub(crate) fn new(names: CheckedNames, tls: Arc<rustls::ClientConfig>, timeout: Duration) -> Self {
        let rule = names.rule().clone();
        let mut http = HttpConnector::new_with_resolver(names);
        http.enforce_http(false);
        http.set_nodelay(true);
        // The connector divides this among the addresses of a name, so a dead address leaves time
        // for the next one.
        http.set_connect_timeout(Some(timeout));
        http.set_keepalive(Some(PROBE));
        http.set_keepalive_interval(Some(PROBE));
        http.set_keepalive_retries(Some(PROBES));
        #[cfg(target_os = "linux")]
        http.set_tcp_user_timeout(Some(ACKNOWLEDGED));
        let http = CheckedConnector { http, rule: rule.clone() };
        Self { connector: HttpsConnector::from((http, tls)), rule, timeout }
    }

    /// # Errors
    ///
    /// The rule that closes the address.
    pub(crate) fn check(&self, address: IpAddr) -> Result<(), Reason> {
        self.rule.check(address)
    }

    /// Connects to the origin of `uri`, without a proxy and without a second look-up of the name.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if a rule closes an address, [`Error::Unreachable`] if no connection is
    /// made in time, [`Error::Untrusted`] if the server's certificate is not accepted.
    pub(crate) async fn dial(&self, uri: Uri) -> Result<UpstreamConnection, Error> {
        let opening = async {
            let stream = self.connect(uri).await?;
            if stream.connected().is_negotiated_h2() {
                return share(stream).await;
            }
            Wire::open(stream).await.map(UpstreamConnection::Own).ok_or(Error::Unreachable(Unreached::Closed))
        };
        let outcome = tokio::time::timeout(self.timeout, opening).await;
        outcome.unwrap_or(Err(Error::Unreachable(Unreached::TimedOut)))
    }

    async fn connect(&self, uri: Uri) -> Result<ByteStream, Error> {
        let mut connector = self.connector.clone();
        let ready = poll_fn(|context| connector.poll_ready(context)).await;
        ready.map_err(|error| reduce(error.as_ref()))?;
        connector.call(uri).await.map_err(|error| reduce(error.as_ref()))
    }
}

/// Connects, then checks the address of the connected peer before the first byte is sent
/// (egress rule R11).
#[derive(Clone)]
struct CheckedConnector {
    http: HttpConnector<CheckedNames>,
    rule: PoolRule,
}

type BoxError = Box<dyn StdError + Send + Sync>;

impl Service<Uri> for CheckedConnector {
    type Response = TokioIo<LocalStream>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.http.poll_ready(context).map_err(BoxError::from)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.http.call(uri);
        let rule = self.rule.clone();
        Box::pin(async move {
            let stream = connecting.await?.into_inner();
            rule.check_connected(stream.local_addr()?, stream.peer_addr()?).map_err(AddressRefused)?;
            Ok(TokioIo::new(LocalStream::new(stream)))
        })
    }
}

/// Starts HTTP/2 on a new stream, in a task that ends with its last user.
async fn share(stream: ByteStream) -> Result<UpstreamConnection, Error> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new()).keep_alive_interval(Some(PING.0)).keep_alive_timeout(PING.1);
    // An answer is read only when its client asks for more. The window of the connection has room for
    // as much as all its streams may leave unread, so slow clients hold up no other stream.
    builder.initial_stream_window_size(STREAM_WINDOW);
    builder.initial_connection_window_size(u32::from(SHARED_MAX) * STREAM_WINDOW);
    let connection = builder.handshake(stream).await;
    let (sender, connection) = connection.map_err(|_| Error::Unreachable(Unreached::Closed))?;
    // The connection's error is dropped here: every exchange on it gets an error of its own.
    tokio::spawn(async move { drop(connection.await) });
    Ok(UpstreamConnection::Shared(SharedSender::new(sender)))
}
