//! A closed loop of requests: each connection sends the next request when the answer before it has ended.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;
use tokio::task::JoinSet;

use crate::client::{Connection, LoadRequest};
use crate::process::Processes;

/// What a burst of requests brought.
#[derive(Default)]
pub(crate) struct Burst {
    pub(crate) elapsed: Duration,
    pub(crate) failed: usize,
    /// How one of the failed requests was answered.
    pub(crate) failure: Option<String>,
    /// Of the requests that succeeded: time to the first piece of the body and to its end, ascending.
    pub(crate) firsts: Vec<Duration>,
    pub(crate) wholes: Vec<Duration>,
}

impl Burst {
    pub(crate) fn succeeded(&self) -> usize {
        self.wholes.len()
    }

    /// Is an error if a request failed, or if there was none.
    pub(crate) fn checked(self) -> anyhow::Result<Self> {
        if self.failed > 0 || self.wholes.is_empty() {
            let all = self.failed + self.wholes.len();
            bail!("{} of {all} requests failed: {}", self.failed, self.failure.unwrap_or_default());
        }
        Ok(self)
    }

    fn add(&mut self, other: Self) {
        self.failed += other.failed;
        self.failure = self.failure.take().or(other.failure);
        self.firsts.extend(other.firsts);
        self.wholes.extend(other.wholes);
    }
}

/// Connections that are open and have been used once, so that a measurement does not contain their beginning.
pub(crate) struct OpenConnections(Vec<Connection>);

impl OpenConnections {
    pub(crate) async fn open(
        address: SocketAddr,
        count: usize,
        request: &LoadRequest,
    ) -> anyhow::Result<Self> {
        let mut connections = Vec::with_capacity(count);
        for _ in 0..count {
            let mut connection = Connection::open(address).await?;
            connection.ask_well(request).await?;
            connections.push(connection);
        }
        Ok(Self(connections))
    }

    /// All of these.
    pub(crate) fn joined(all: Vec<Self>) -> Self {
        Self(all.into_iter().flat_map(|connections| connections.0).collect())
    }

    /// The same with HTTP/2.
    pub(crate) async fn open_http2(
        address: SocketAddr,
        count: usize,
        request: &LoadRequest,
    ) -> anyhow::Result<Self> {
        let mut connections = Vec::with_capacity(count);
        for _ in 0..count {
            let mut connection = Connection::open_http2(address).await?;
            connection.ask_well(request).await?;
            connections.push(connection);
        }
        Ok(Self(connections))
    }

    /// Sends the request on all connections for so long.
    pub(crate) async fn load(self, request: &LoadRequest, during: Duration) -> anyhow::Result<Burst> {
        self.load_with(std::slice::from_ref(request), during).await
    }

    /// Each connection sends these requests one after the other, again and again.
    pub(crate) async fn load_with(self, requests: &[LoadRequest], during: Duration) -> anyhow::Result<Burst> {
        let until = Instant::now() + during;
        self.load_while(requests, move || Instant::now() < until).await
    }

    /// Sends the request so often, on all connections together. A failed request is an error.
    pub(crate) async fn load_count(self, request: &LoadRequest, count: usize) -> anyhow::Result<Burst> {
        let begun = Arc::new(AtomicUsize::new(0));
        let is_one_left = move || begun.fetch_add(1, Ordering::Relaxed) < count;
        self.load_while(std::slice::from_ref(request), is_one_left).await?.checked()
    }

    async fn load_while(
        self,
        requests: &[LoadRequest],
        goes_on: impl Fn() -> bool + Clone + Send + 'static,
    ) -> anyhow::Result<Burst> {
        let requests: Arc<[LoadRequest]> = requests.into();
        let begun = Instant::now();
        let mut tasks = JoinSet::new();
        for connection in self.0 {
            tasks.spawn(repeat(connection, Arc::clone(&requests), goes_on.clone()));
        }
        let mut burst = Burst::default();
        while let Some(ended) = tasks.join_next().await {
            burst.add(ended?);
        }
        burst.elapsed = begun.elapsed();
        burst.firsts.sort_unstable();
        burst.wholes.sort_unstable();
        Ok(burst)
    }
}

async fn repeat(
    mut connection: Connection,
    requests: Arc<[LoadRequest]>,
    goes_on: impl Fn() -> bool,
) -> Burst {
    let mut burst = Burst::default();
    for request in requests.iter().cycle() {
        if !goes_on() {
            break;
        }
        match connection.ask(request).await {
            Ok(reply) if reply.is_as_expected(request) => {
                burst.firsts.push(reply.first);
                burst.wholes.push(reply.whole);
            }
            Ok(reply) => {
                burst.failed += 1;
                burst.failure = Some(reply.summary(request));
            }
            // The connection is of no use any more.
            Err(error) => {
                burst.failed += 1;
                burst.failure = Some(format!("{error:#}"));
                break;
            }
        }
    }
    burst
}

/// A burst, and what it took of the server.
pub(crate) struct Sample {
    pub(crate) burst: Burst,
    cpu_nanoseconds: u64,
    /// KiB at the most during the burst, beyond what was resident before.
    pub(crate) memory_growth: u64,
    pub(crate) body_bytes: usize,
}

impl Sample {
    /// Loads a server; a failed request is an error.
    pub(crate) async fn take(
        address: SocketAddr,
        processes: &Processes,
        request: &LoadRequest,
        connections: usize,
        during: Duration,
    ) -> anyhow::Result<Self> {
        let connections = OpenConnections::open(address, connections, request).await?;
        processes.forget_peak()?;
        let (memory, times) = (processes.resident()?, processes.times()?);
        let burst = connections.load(request, during).await?.checked()?;
        let cpu_nanoseconds = processes.spent_since(&times)?;
        let memory_growth = processes.peak()?.saturating_sub(memory);
        Ok(Self { burst, cpu_nanoseconds, memory_growth, body_bytes: request.body.len() })
    }

    /// Nanoseconds of processor time for a request.
    pub(crate) fn cpu(&self) -> f64 {
        self.cpu_nanoseconds as f64 / self.burst.succeeded() as f64
    }
}

/// The value below which this share of sorted values lies.
pub(crate) fn percentile(sorted: &[Duration], share: f64) -> Duration {
    let place = (sorted.len() as f64 * share) as usize;
    sorted.get(place.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}
