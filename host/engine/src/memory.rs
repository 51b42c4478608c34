//! What is kept from one request to the next. It outlives a reload of the configuration: the health
//! of endpoints that are still named stays, that of others is dropped, and secrets that were
//! suspended for a plugin stay suspended.

pub mod health;
pub mod meters;
pub(crate) mod reflection;
pub(crate) mod retry;
pub(crate) mod session;

use crate::lifecycle::departure::DetachedReads;
use crate::log_throttle::LogThrottle;
use crate::memory::health::{EndpointKey, Health};
use crate::memory::meters::Meters;
use crate::memory::reflection::Reflections;
use crate::memory::retry::RetryBudget;
use crate::memory::session::{Session, Sessions};
use crate::random::random_seed;
use crate::timeline::RequestRecorder;
use cofferdam_store::Clock;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::Semaphore;

/// How many requests may be waited for because of the last calls of their tools.
const CLOSING_CALLS_MAX: u32 = 4096;

/// The memory shared by all engines of a process, of which there is one after each reload.
pub struct Memory {
    pub(crate) clock: Clock,
    pub(crate) retries: RetryBudget,
    pub(crate) sessions: Sessions,
    /// Counts for metrics.
    pub meters: Meters,
    /// Counts of secrets that hosts sent back.
    pub(crate) reflections: Arc<Reflections>,
    /// Limits how often missing grants of plugins are logged.
    pub(crate) lacking: LogThrottle,
    /// Limits how often unreachable hosts of plugins are logged.
    pub(crate) unreached: Arc<LogThrottle>,
    /// Answers that are read on after their clients have left.
    pub(crate) detached_reads: Arc<DetachedReads>,
    /// A permit is held for each request that is over and whose tools make their last calls.
    pub(crate) closing_calls: Arc<Semaphore>,
    recorder: Arc<RequestRecorder>,
    endpoints: Mutex<Endpoints>,
}

/// Weak references. The catalogs hold the strong ones, so an entry ends with the last configuration
/// that names it.
#[derive(Default)]
struct Endpoints {
    known: BTreeMap<EndpointKey, Weak<Health>>,
    last_id: u64,
}

impl Default for Memory {
    /// A memory on the system clock.
    fn default() -> Self {
        Self::new(&Clock::system())
    }
}

impl Memory {
    /// An empty memory.
    pub fn new(clock: &Clock) -> Self {
        Self {
            clock: clock.clone(),
            retries: RetryBudget::new(clock),
            sessions: Sessions::default(),
            meters: Meters::default(),
            reflections: Arc::default(),
            lacking: LogThrottle::default(),
            unreached: Arc::default(),
            detached_reads: Arc::default(),
            closing_calls: Arc::new(Semaphore::new(CLOSING_CALLS_MAX as usize)),
            recorder: Arc::default(),
            endpoints: Mutex::default(),
        }
    }

    /// Ends the answers that are read on for clients that have left. Their usage rows are written
    /// when this returns.
    pub async fn end_reading_on(&self) {
        self.detached_reads.end().await;
    }

    /// Waits for the last calls of tools whose requests are over, each of which has a time limit.
    pub async fn end_closing_calls(&self) {
        // The semaphore is never closed.
        drop(self.closing_calls.acquire_many(CLOSING_CALLS_MAX).await);
    }

    /// The recorder of the last requests.
    pub fn recorder(&self) -> &Arc<RequestRecorder> {
        &self.recorder
    }

    /// The endpoint that answered a conversation last, by the id of its health.
    pub(crate) fn remembered(&self, session: Option<Session>) -> Option<u64> {
        self.sessions.endpoint(session?, self.clock.monotonic_ms())
    }

    /// The health of an endpoint, for a catalog to hold.
    pub fn endpoint(&self, key: EndpointKey) -> Arc<Health> {
        let mut endpoints = self.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(health) = endpoints.known.get(&key).and_then(Weak::upgrade) {
            return health;
        }
        endpoints.known.retain(|_, health| health.strong_count() > 0);
        endpoints.last_id += 1;
        let health = Health::new(endpoints.last_id, key.clone(), random_seed());
        let health = Arc::new(health.counted_in(self.meters.endpoint(&key.model, &key.provider)));
        endpoints.known.insert(key, Arc::downgrade(&health));
        health
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(provider: &str) -> EndpointKey {
        let word = |word: &str| word.to_owned();
        EndpointKey { model: word("m"), provider: word(provider), upstream: word("m"), tier: word("default") }
    }

    #[test]
    fn an_endpoint_keeps_its_health_as_long_as_a_configuration_names_it() {
        let memory = Memory::new(&Clock::manual());
        let (before, gone) = (memory.endpoint(key("a")), memory.endpoint(key("b")));
        let after = memory.endpoint(key("a"));
        assert!(Arc::ptr_eq(&before, &after));
        assert_ne!(before.id(), gone.id());
        let gone_id = gone.id();
        drop(gone);
        assert_ne!(memory.endpoint(key("b")).id(), gone_id, "it was forgotten");
        drop(memory.endpoint(key("c")));
        drop(memory.endpoint(key("d")));
        assert_eq!(memory.endpoints.lock().unwrap().known.len(), 2, "a, and d until the next look");
    }
}
