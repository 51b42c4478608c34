//! What an engine remembers from one request to the next. It outlives the configuration: a reload takes over what
//! is known of the endpoints that it still names, forgets the others, and gives no plugin a suspended secret back.

pub mod health;
pub(crate) mod reflection;
pub(crate) mod retry;
pub(crate) mod session;

use crate::lifecycle::departure::Leavers;
use crate::log_throttle::Told;
use crate::memory::health::{EndpointKey, Health};
use crate::memory::reflection::Reflections;
use crate::memory::retry::Budget;
use crate::memory::session::Sessions;
use crate::random::random_seed;
use cofferdam_store::Clock;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The memory of all engines of a process, one after the other.
pub struct Memory {
    pub(crate) clock: Clock,
    pub(crate) retries: Budget,
    pub(crate) sessions: Sessions,
    /// Secrets that hosts sent back lately.
    pub(crate) reflections: Arc<Reflections>,
    /// Plugins of whose missing grants the log was told.
    pub(crate) lacking: Told,
    /// Hosts of plugins of which the log was told that they cannot be reached.
    pub(crate) unreached: Arc<Told>,
    /// Answers that are read on although their clients have left.
    pub(crate) leavers: Arc<Leavers>,
    endpoints: Mutex<Endpoints>,
}

/// Held by the catalogs that name them, so that whatever no configuration in use names is gone.
#[derive(Default)]
struct Endpoints {
    known: BTreeMap<EndpointKey, Weak<Health>>,
    last_id: u64,
}

impl Default for Memory {
    /// A memory on the machine's clock.
    fn default() -> Self {
        Self::new(&Clock::system())
    }
}

impl Memory {
    /// Nothing is remembered yet.
    pub fn new(clock: &Clock) -> Self {
        Self {
            clock: clock.clone(),
            retries: Budget::new(clock),
            sessions: Sessions::default(),
            reflections: Arc::default(),
            lacking: Told::default(),
            unreached: Arc::default(),
            leavers: Arc::default(),
            endpoints: Mutex::default(),
        }
    }

    /// Ends what is read on for clients that have left: their usage rows are written when this is done.
    pub async fn end_reading_on(&self) {
        self.leavers.end().await;
    }

    /// What is known of an endpoint, for a catalog to hold.
    pub fn endpoint(&self, key: EndpointKey) -> Arc<Health> {
        let mut endpoints = self.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(health) = endpoints.known.get(&key).and_then(Weak::upgrade) {
            return health;
        }
        endpoints.known.retain(|_, health| health.strong_count() > 0);
        endpoints.last_id += 1;
        let health = Arc::new(Health::new(endpoints.last_id, key.clone(), random_seed()));
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
