//! Accepts connections and serves HTTP/1.1 and HTTP/2 on one port, plain or with TLS. A permit is taken before a
//! connection is accepted, and idle connections are closed. On shutdown every connection finishes
//! its running requests and takes no new ones. What still runs when the drain time ends, at a second
//! signal or at the loss of the store is ended, and its connections are cut soon after.

mod conversation;

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_runtime::Holders;
use http::{Request, Response};
use hyper::body::Incoming;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::limits::rate::ClientNetwork;
use crate::metrics::Metrics;
use crate::peer::Peer;
use crate::reply::answer::ResponseBody;
use crate::stall::Stalling;
use crate::tls::Tls;
use crate::workers::Workers;

/// How long a TLS handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may leave a waiting response unread. Then its connection ends, over HTTP/2 only
/// the stream.
const STALL_MAX: Duration = Duration::from_secs(60);
/// Concurrent requests of clients on one HTTP/2 connection.
pub(crate) const CLIENT_STREAMS_MAX: u32 = 256;
/// How long requests that are ended early may take to send their last event.
pub(crate) const LAST_WORD: Duration = Duration::from_secs(2);
/// The pause after a failed accept, which mostly means that no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The shortest time between two log lines about refused connections.
const REFUSED_LINE_EVERY: Duration = Duration::from_secs(60);

/// The permit of an open connection. Dropping it frees the permit and the connection's entry for
/// its address.
struct Permit {
    source: ClientNetwork,
    addresses: Arc<Holders<ClientNetwork>>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.addresses.remove(&self.source, 1);
    }
}

/// State shared by all connections of one listener.
#[derive(Clone)]
pub(crate) struct Connections {
    permits: Arc<Semaphore>,
    addresses: Arc<Holders<ClientNetwork>>,
    /// When a refused connection was last logged.
    refused: Arc<Mutex<Option<Instant>>>,
    metrics: Arc<Metrics>,
    workers: Workers,
    tls: Option<Arc<Tls>>,
    /// Concurrent requests on one HTTP/2 connection.
    streams_max: u32,
    tasks: TaskTracker,
    stop: CancellationToken,
    cut: CancellationToken,
}

impl Connections {
    #[must_use]
    pub(crate) fn new(
        connections_max: usize,
        streams_max: u32,
        metrics: Arc<Metrics>,
        workers: Workers,
        tls: Option<Arc<Tls>>,
    ) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS))),
            addresses: Arc::default(),
            refused: Arc::default(),
            metrics,
            workers,
            tls,
            streams_max,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            cut: CancellationToken::new(),
        }
    }

    /// Accepts connections until stopped and answers their requests with `handler`. `address_max`
    /// is the limit of open connections for an address, if there is one.
    pub(crate) async fn accept<H, F>(
        &self,
        listener: TcpListener,
        address_max: impl Fn(IpAddr) -> Option<usize>,
        handler: H,
    ) where
        H: Fn(Request<Incoming>, Peer) -> F + Clone + Send + 'static,
        F: Future<Output = Response<ResponseBody>> + Send + 'static,
    {
        loop {
            let next = tokio::select! {
                () = self.stop.cancelled() => return,
                next = self.next(&listener) => next,
            };
            match next {
                Ok((stream, address, permit)) => {
                    self.begin(stream, address, permit, address_max(address), handler.clone());
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Stops accepting, and waits until `end` or `hurry` for running requests. Then `tell`, if given, is
    /// called to end the rest, which get [`LAST_WORD`] to send their last event. At last their connections
    /// are cut. Returns how many connections were cut.
    pub(crate) async fn drain(
        &self,
        end: tokio::time::Instant,
        hurry: impl Future<Output = ()>,
        tell: Option<&dyn Fn()>,
    ) -> usize {
        self.stop.cancel();
        self.tasks.close();
        tokio::select! {
            () = self.tasks.wait() => return 0,
            () = tokio::time::sleep_until(end) => {}
            () = hurry => {}
        }
        if let Some(tell) = tell {
            tell();
            if tokio::time::timeout(LAST_WORD, self.tasks.wait()).await.is_ok() {
                return 0;
            }
        }
        let open = usize::try_from(self.metrics.connections.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
        self.cut.cancel();
        self.tasks.wait().await;
        open
    }

    /// Serves a connection, unless its address already has too many.
    fn begin<H, F>(
        &self,
        stream: std::net::TcpStream,
        address: IpAddr,
        permit: OwnedSemaphorePermit,
        most: Option<usize>,
        handler: H,
    ) where
        H: Fn(Request<Incoming>, Peer) -> F + Clone + Send + 'static,
        F: Future<Output = Response<ResponseBody>> + Send + 'static,
    {
        if let Some(permit) = self.of_address(permit, address, most) {
            let peer = Peer { address, running: Arc::default() };
            self.workers.spawn(&self.tasks, self.clone().serve(stream, peer, permit, handler));
        }
    }

    /// Counts a connection for its address. Returns `None` when the address has too many; the
    /// connection is then closed at once.
    fn of_address(
        &self,
        permit: OwnedSemaphorePermit,
        address: IpAddr,
        most: Option<usize>,
    ) -> Option<Permit> {
        let source = ClientNetwork::from(address);
        let permit = Permit { source, addresses: Arc::clone(&self.addresses), _permit: permit };
        let before = self.addresses.add(source, 1);
        let Some(most) = most.filter(|most| before >= *most) else { return Some(permit) };
        self.metrics.connections_refused.fetch_add(1, Ordering::Relaxed);
        let mut told = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|told| told.elapsed() >= REFUSED_LINE_EVERY) {
            *told = Some(Instant::now());
            tracing::warn!(client = %address.to_canonical(), most, "connections of this address are refused: it has as many open as one address may have");
        }
        None
    }

    /// Waits for a permit first: connections that are not accepted yet wait in the kernel and cost
    /// nothing here.
    async fn next(
        &self,
        listener: &TcpListener,
    ) -> io::Result<(std::net::TcpStream, IpAddr, OwnedSemaphorePermit)> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(io::Error::other)?;
        let (stream, address) = listener.accept().await?;
        stream.set_nodelay(true)?;
        Ok((stream.into_std()?, address.ip(), permit))
    }

    async fn serve<H, F>(self, stream: std::net::TcpStream, peer: Peer, permit: Permit, handler: H)
    where
        H: Fn(Request<Incoming>, Peer) -> F + Clone + Send + 'static,
        F: Future<Output = Response<ResponseBody>> + Send + 'static,
    {
        // Registered with the scheduler of this thread.
        let stream = match TcpStream::from_std(stream) {
            Ok(stream) => stream,
            Err(error) => return tracing::warn!(%error, "a connection could not be served"),
        };
        let _open = OpenConnection::count(&self.metrics);
        if let Some(tls) = &self.tls {
            self.shake_hands_and_converse(tls, stream, peer, handler).await;
        } else {
            self.converse(Stalling::new(stream, STALL_MAX), peer, handler).await;
        }
        drop(permit);
    }

    /// Serves a connection whose client has to begin with a TLS handshake. No request is under way during the
    /// handshake, so a stop ends it.
    async fn shake_hands_and_converse<H, F>(&self, tls: &Tls, stream: TcpStream, peer: Peer, handler: H)
    where
        H: Fn(Request<Incoming>, Peer) -> F + Clone + Send + 'static,
        F: Future<Output = Response<ResponseBody>> + Send + 'static,
    {
        let handshake = Box::pin(tls.accept(stream, STALL_MAX));
        let shaken = tokio::select! {
            () = self.stop.cancelled() => return,
            shaken = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake) => shaken,
        };
        match shaken {
            // On the heap, so that connections without TLS do not take its room.
            Ok(Ok(stream)) => self.converse(Box::new(stream), peer, handler).await,
            Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
            Err(_) => tracing::debug!("a TLS handshake took too long"),
        }
    }
}

/// A connection that is counted as open until this is dropped.
struct OpenConnection(Arc<Metrics>);

impl OpenConnection {
    fn count(metrics: &Arc<Metrics>) -> Self {
        metrics.connections.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(metrics))
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_of_one_address_are_limited() {
        let connections = Connections::new(8, 8, Arc::default(), Workers::current(), None);
        let open = async |address: &str, most| {
            let permit = Arc::clone(&connections.permits).acquire_owned().await.unwrap();
            connections.of_address(permit, address.parse().unwrap(), most)
        };
        let first = open("192.0.2.1", Some(2)).await.unwrap();
        let second = open("192.0.2.1", Some(2)).await.unwrap();
        assert!(open("192.0.2.1", Some(2)).await.is_none());
        assert_eq!(connections.metrics.connections_refused.load(Ordering::Relaxed), 1);
        assert!(open("192.0.2.2", Some(2)).await.is_some() && open("192.0.2.1", None).await.is_some());
        drop(first);
        assert!(open("192.0.2.1", Some(2)).await.is_some());
        drop(second);
        assert_eq!(connections.permits.available_permits(), 8);
    }
}
