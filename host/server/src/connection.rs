//! Connections: a permit before accepting, HTTP/1.1 and HTTP/2 on one port, and
//! an end for those that do nothing. On shutdown every connection finishes what
//! runs on it and takes nothing new; what has not ended when the patience of the
//! operator has is cut off.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_runtime::Holders;
use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::answer::Body;
use crate::handle::HEADERS_BYTES_MAX;
use crate::metrics::Metrics;
use crate::rate::Source;
use crate::stall::{Answers, Stalling};

/// A head must arrive whole within this; it also ends idle HTTP/1 connections.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a connection is asked whether anything happens on it; one on which
/// nothing has happened for two rounds is closed.
const IDLE_ROUND: Duration = Duration::from_secs(30);
/// What a connection reads ahead at most. Heads beyond this are refused by the
/// protocol code, without an envelope.
const READ_BYTES_MAX: usize = 2 * HEADERS_BYTES_MAX;
/// How long a client may take nothing of an answer that waits for it.
const STALL_MAX: Duration = Duration::from_secs(60);
/// Headers in one head.
const HEADERS_MAX: usize = 128;
/// Requests at once on one HTTP/2 connection.
const STREAMS_PER_CONNECTION: u32 = 256;
/// For the last words of requests that are told to end at once.
const LAST_WORD: Duration = Duration::from_secs(2);
/// After a failed accept (no file descriptors, mostly) the next try waits.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How often a line of the log tells of connections that were refused, at most.
const REFUSED_LINE_EVERY: Duration = Duration::from_secs(60);

/// The other end of a connection.
#[derive(Clone)]
pub(crate) struct Peer {
    /// Its address.
    pub(crate) address: IpAddr,
    /// Its requests that are not answered yet.
    pub(crate) running: Arc<AtomicUsize>,
    /// Its answers that are on their way.
    pub(crate) answers: Arc<Answers>,
}

/// The right to be open. It is given back, and the connection no longer counted for its address, when dropped.
struct Permit {
    source: Source,
    addresses: Arc<Holders<Source>>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.addresses.remove(&self.source, 1);
    }
}

/// What all connections share.
#[derive(Clone)]
pub(crate) struct Connections {
    permits: Arc<Semaphore>,
    /// Open connections by address.
    addresses: Arc<Holders<Source>>,
    /// When it was last told that one was refused.
    refused: Arc<Mutex<Option<Instant>>>,
    metrics: Arc<Metrics>,
    tasks: TaskTracker,
    stop: CancellationToken,
    cut: CancellationToken,
}

impl Connections {
    /// At most `connections_max` at a time.
    #[must_use]
    pub(crate) fn new(connections_max: usize, metrics: Arc<Metrics>) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS))),
            addresses: Arc::default(),
            refused: Arc::default(),
            metrics,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            cut: CancellationToken::new(),
        }
    }

    /// Accepts connections until stopped and answers their requests with `handler`,
    /// which also gets to know the other end. `address_max` is how many may be open
    /// from an address, if there is a limit.
    pub(crate) async fn accept<H, F>(
        &self,
        listener: TcpListener,
        address_max: impl Fn(IpAddr) -> Option<usize>,
        handler: H,
    ) where
        H: Fn(Request<Incoming>, Peer) -> F + Clone + Send + 'static,
        F: Future<Output = Response<Body>> + Send + 'static,
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

    /// Takes nothing new and lets running requests end until `end`, then cuts them off.
    /// When there is a `hurry`, `tell` has them end with a last word, for which they
    /// have a moment. Returns how many connections were cut.
    pub(crate) async fn drain(
        &self,
        end: tokio::time::Instant,
        hurry: impl Future<Output = ()>,
        tell: impl FnOnce(),
    ) -> usize {
        self.stop.cancel();
        self.tasks.close();
        let is_hurried = tokio::select! {
            () = self.tasks.wait() => return 0,
            () = tokio::time::sleep_until(end) => false,
            () = hurry => true,
        };
        if is_hurried {
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

    /// Serves a connection, unless its address has too many.
    fn begin<H, F>(
        &self,
        stream: TcpStream,
        address: IpAddr,
        permit: OwnedSemaphorePermit,
        most: Option<usize>,
        handler: H,
    ) where
        H: Fn(Request<Incoming>, Peer) -> F + Clone + Send + 'static,
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        if let Some(permit) = self.of_address(permit, address, most) {
            let peer = Peer { address, running: Arc::default(), answers: Arc::default() };
            self.tasks.spawn(self.clone().serve(stream, peer, permit, handler));
        }
    }

    /// Counts a connection for its address, unless that has too many: then it is closed at once.
    fn of_address(
        &self,
        permit: OwnedSemaphorePermit,
        address: IpAddr,
        most: Option<usize>,
    ) -> Option<Permit> {
        let source = Source::from(address);
        let permit = Permit { source, addresses: Arc::clone(&self.addresses), _permit: permit };
        let before = self.addresses.add(source, 1);
        let Some(most) = most.filter(|most| before >= *most) else { return Some(permit) };
        self.metrics.connections_refused.fetch_add(1, Ordering::Relaxed);
        let mut told = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|told| told.elapsed() >= REFUSED_LINE_EVERY) {
            *told = Some(Instant::now());
            tracing::warn!(client = %address.to_canonical(), most, "connections of this address are refused: it has limits.connections_per_address open");
        }
        None
    }

    fn cutting(&self) -> Noticed {
        Box::pin(self.cut.clone().cancelled_owned().map(|()| Notice::Cut))
    }

    fn stopping(&self) -> Noticed {
        Box::pin(self.stop.clone().cancelled_owned().map(|()| Notice::Stop))
    }

    /// Room first: what is not accepted waits in the kernel and costs nothing here.
    async fn next(&self, listener: &TcpListener) -> io::Result<(TcpStream, IpAddr, OwnedSemaphorePermit)> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(io::Error::other)?;
        let (stream, address) = listener.accept().await?;
        stream.set_nodelay(true)?;
        Ok((stream, address.ip(), permit))
    }

    async fn serve<H, F>(self, stream: TcpStream, peer: Peer, permit: Permit, handler: H)
    where
        H: Fn(Request<Incoming>, Peer) -> F + Clone + Send + 'static,
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        self.metrics.connections.fetch_add(1, Ordering::Relaxed);
        let (running, answers) = (Arc::clone(&peer.running), Arc::clone(&peer.answers));
        let served = Arc::new(AtomicUsize::new(0));
        let service = {
            let served = Arc::clone(&served);
            service_fn(move |request| {
                served.fetch_add(1, Ordering::Relaxed);
                handler(request, peer.clone()).map(Ok::<_, Infallible>)
            })
        };
        let builder = builder(Tracked(self.tasks.clone()));
        let mut connection =
            pin!(builder.serve_connection(TokioIo::new(Stalling::new(stream, STALL_MAX)), service));
        let mut idle = Idle::default();
        idle.round(&running, &served);
        let mut notices = FuturesUnordered::from_iter([self.cutting(), self.stopping(), next_round()]);
        loop {
            tokio::select! {
                biased;
                // Errors here are the client's: a broken connection, a malformed head.
                ended = &mut connection => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a connection ended");
                    }
                    break;
                }
                Some(notice) = notices.next() => match notice {
                    Notice::Cut => break,
                    Notice::Stop => connection.as_mut().graceful_shutdown(),
                    Notice::Round => {
                        match idle.round(&running, &served) {
                            _ if answers.any_stalled(STALL_MAX) => break,
                            0 | 1 => {}
                            2 => connection.as_mut().graceful_shutdown(),
                            _ => break,
                        }
                        notices.push(next_round());
                    }
                }
            }
        }
        self.metrics.connections.fetch_sub(1, Ordering::Relaxed);
        drop(permit);
    }
}

/// What a connection is told while it serves. Each is looked at when it is there and not, as the connection
/// itself, whenever a byte has come.
enum Notice {
    /// It ends now.
    Cut,
    /// It takes nothing new.
    Stop,
    /// Time to look whether anything happens on it.
    Round,
}

type Noticed = Pin<Box<dyn Future<Output = Notice> + Send>>;

fn next_round() -> Noticed {
    Box::pin(tokio::time::sleep(IDLE_ROUND).map(|()| Notice::Round))
}

/// For how many rounds nothing has happened on a connection.
#[derive(Default)]
struct Idle {
    rounds: u32,
    served: usize,
}

impl Idle {
    fn round(&mut self, running: &AtomicUsize, served: &AtomicUsize) -> u32 {
        let served = served.load(Ordering::Relaxed);
        let quiet = running.load(Ordering::Relaxed) == 0 && served == self.served;
        self.served = served;
        self.rounds = if quiet { self.rounds + 1 } else { 0 };
        self.rounds
    }
}

fn builder(tasks: Tracked) -> Builder<Tracked> {
    let mut builder = Builder::new(tasks);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(READ_BYTES_MAX)
        .max_headers(HEADERS_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .max_header_list_size(u32::try_from(READ_BYTES_MAX).unwrap_or(u32::MAX))
        .keep_alive_interval(Some(Duration::from_secs(30)))
        .keep_alive_timeout(Duration::from_secs(20));
    builder
}

/// Runs the requests of HTTP/2 connections as tasks that the drain waits for.
#[derive(Clone)]
struct Tracked(TaskTracker);

impl<F> hyper::rt::Executor<F> for Tracked
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::{Connections, Idle};

    #[tokio::test]
    async fn an_address_has_so_many_connections_and_no_more() {
        let connections = Connections::new(8, Arc::default());
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

    #[test]
    fn connection_is_idle_only_while_nothing_runs_or_was_served() {
        let (running, served) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let mut idle = Idle::default();
        assert_eq!(idle.round(&running, &served), 1);
        served.store(1, Ordering::Relaxed);
        assert_eq!(idle.round(&running, &served), 0);
        running.store(1, Ordering::Relaxed);
        assert_eq!(idle.round(&running, &served), 0);
        running.store(0, Ordering::Relaxed);
        assert_eq!(idle.round(&running, &served), 1);
        assert_eq!(idle.round(&running, &served), 2);
    }
}
