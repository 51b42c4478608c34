//! The state that all plugins of a runtime share: the engine, the permits for instances, the turns
//! of long-running guests, and the cache.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cofferdam_store::NamedMeters;
use tokio::sync::Semaphore;
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::account::Turns;
use crate::cache::Cache;
use crate::counters::Counters;
use crate::engine::{Sandbox, Ticker};
use crate::fairness::{Fairness, Holders, OwnerPermit, ToolQueuePlace, ToolQueues};
use crate::guest::live::LiveInstance;
#[cfg(debug_assertions)]
use crate::guest_memory::GuestMemories;
use crate::meter::Meter;
use crate::owner::Owner;
use crate::permits::{Claim, InstancePermits, InstanceSlot};
use crate::schedule::processors;
use crate::warm::Warm;

/// Sets an owner's share of the permits: the number of streams divided by this. While few permits
/// are left, an owner that holds more than its share gets no more.
const SHARES: usize = 8;
/// Plugins that are counted by name. Further ones are counted together.
const COUNTED_PLUGINS_MAX: usize = 128;

/// Shared by the runtime and its plugins. The epoch thread stops when the last one is dropped.
pub(crate) struct Host {
    pub(crate) engine: Engine,
    /// Or the reason why there is none, for the operator.
    pub(crate) cache: Result<Cache, String>,
    /// Native code in memory, by the digest of its component. A reload takes what it still needs from
    /// here, so that unchanged plugins are neither read again nor twice in memory.
    loaded: Mutex<BTreeMap<String, LoadedCode>>,
    pub(crate) turns: Arc<Turns>,
    /// Idle instances that wait for their owner's next call.
    pub(crate) warm: Arc<Warm<Box<LiveInstance>>>,
    slots: Arc<Semaphore>,
    claims: Arc<Semaphore>,
    /// Permits held by each owner, and the rule that limits them while few are left.
    holders: Arc<Holders<Owner>>,
    fairness: Fairness,
    /// Each owner's tool calls that run or wait for the processor, and how many of one owner may
    /// run at the same time.
    tool_queues: Arc<ToolQueues>,
    tools_at_once: usize,
    instances_max: u32,
    instances_wanted: u32,
    pooled: bool,
    code_bytes: Arc<AtomicUsize>,
    saturated: AtomicU64,
    /// By the name of the plugin.
    pub(crate) counters: NamedMeters<Counters>,
    plugins: AtomicU64,
    /// Present only where the fuel of guests is counted.
    pub(crate) meter: Option<Meter>,
    /// Present where tests search the memory of guests.
    #[cfg(debug_assertions)]
    pub(crate) memories: Option<GuestMemories>,
    ticker: Ticker,
}

/// How many instances are in use and free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gauges {
    /// Instances that serve a call now.
    pub instances: usize,
    /// Idle instances that wait for the next call of their owner. They are ended when another call
    /// needs the room.
    pub idle: usize,
    /// Number of instances that can exist at the same time.
    pub instances_max: usize,
    /// The number that the settings ask for. It is larger than `instances_max` where the address
    /// space is too small.
    pub instances_wanted: usize,
    /// Whether instances come from a pool.
    pub pooled: bool,
    /// How often no instance was free since the start.
    pub saturated: u64,
    /// Size of the compiled code in memory, with that of earlier versions of plugins that running
    /// requests still use.
    pub code_bytes: usize,
}

/// Compiled code in memory. Clones share it, and it is counted until the last one is dropped.
#[derive(Clone)]
pub(crate) struct LoadedCode {
    pub(crate) component: Component,
    counted: Arc<CountedBytes>,
}

struct CountedBytes {
    bytes: usize,
    all: Arc<AtomicUsize>,
}

impl LoadedCode {
    pub(crate) fn bytes(&self) -> usize {
        self.counted.bytes
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Host {
    pub(crate) fn new(
        sandbox: Sandbox,
        streams: usize,
        cache: Result<Cache, String>,
        warm: Arc<Warm<Box<LiveInstance>>>,
        ticker: Ticker,
    ) -> Self {
        Self {
            cache,
            loaded: Mutex::default(),
            turns: Arc::new(Turns::new(processors())),
            holders: Arc::default(),
            fairness: Fairness::new(sandbox.instances as usize, (streams / SHARES).max(1)),
            tool_queues: Arc::default(),
            tools_at_once: (processors() / 2).max(1),
            warm,
            slots: Arc::new(Semaphore::new(sandbox.instances as usize)),
            claims: Arc::new(Semaphore::new(sandbox.instances as usize)),
            instances_max: sandbox.instances,
            instances_wanted: sandbox.wanted,
            pooled: sandbox.pooled,
            engine: sandbox.engine,
            code_bytes: Arc::default(),
            saturated: AtomicU64::new(0),
            counters: NamedMeters::new(COUNTED_PLUGINS_MAX),
            plugins: AtomicU64::new(0),
            meter: sandbox.metered.then(Meter::default),
            #[cfg(debug_assertions)]
            memories: sandbox.memories,
            ticker,
        }
    }

    /// The native code of the component with this digest, if it is in memory.
    pub(crate) fn loaded(&self, digest: &str) -> Option<LoadedCode> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner).get(digest).cloned()
    }

    /// Keeps native code for the plugins of later reloads.
    pub(crate) fn keep_loaded(&self, digest: &str, code: &LoadedCode) {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner).insert(digest.to_owned(), code.clone());
    }

    /// Drops the code of components that are not installed any more. It stays in memory while an earlier
    /// plugin uses it.
    pub(crate) fn retain_loaded(&self, is_installed: impl Fn(&str) -> bool) {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner).retain(|digest, _| is_installed(digest));
    }

    /// Counts the code of a component that was just loaded.
    pub(crate) fn count_code(&self, component: Component) -> LoadedCode {
        let image = component.image_range();
        let bytes = image.end.addr().saturating_sub(image.start.addr());
        self.code_bytes.fetch_add(bytes, Ordering::Relaxed);
        LoadedCode { component, counted: Arc::new(CountedBytes { bytes, all: Arc::clone(&self.code_bytes) }) }
    }

    /// Takes a permit if one is free. Never waits: that is the caller's decision.
    pub(crate) fn take_claim(&self, owner: Option<&Owner>) -> Option<Claim> {
        let permit = Arc::clone(&self.claims).try_acquire_owned().ok()?;
        Some(Claim::new(permit, owner.map(|owner| OwnerPermit::new(&self.holders, owner))))
    }

    /// Same as [`Self::take_claim`], for a call that a running request can do without. While few
    /// permits are left, an owner that holds more than its share gets no more.
    pub(crate) fn take_fair_claim(&self, owner: Option<&Owner>) -> Option<Claim> {
        let taken = self.taken_permits();
        // What the owner holds is behind a lock, and matters only while few permits are left.
        let refuses = |owner: &Owner| {
            self.fairness.is_nearly_full(taken)
                && self.fairness.refuses(taken, self.holders.of::<str>(owner.borrow()))
        };
        if owner.is_some_and(refuses) { None } else { self.take_claim(owner) }
    }

    fn taken_permits(&self) -> usize {
        (self.instances_max as usize).saturating_sub(self.claims.available_permits())
    }

    /// The number of taken permits, in total and by the owner with this id.
    pub(crate) fn instance_permits(&self, owner: &str) -> InstancePermits {
        InstancePermits { taken: self.taken_permits(), held: self.holders.of(owner), fairness: self.fairness }
    }

    /// Queues a tool call behind those of the same owner.
    pub(crate) fn join_tool_queue(&self, owner: &Owner) -> ToolQueuePlace {
        self.tool_queues.join(owner, self.tools_at_once)
    }

    /// Takes a free slot, or ends an idle instance to get one. Call it only with a permit held.
    pub(crate) fn take_slot(&self) -> Option<InstanceSlot> {
        let permit = loop {
            match Arc::clone(&self.slots).try_acquire_owned() {
                Ok(permit) => break permit,
                Err(_) if self.warm.evict() => {}
                Err(_) => return None,
            }
        };
        Some(InstanceSlot::new(permit, self.ticker.begin_instance()))
    }

    /// A unique number for a plugin.
    pub(crate) fn next_number(&self) -> u64 {
        self.plugins.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn count_saturated(&self) {
        self.saturated.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn gauges(&self) -> Gauges {
        let idle = self.warm.len();
        Gauges {
            instances: self.ticker.instances().saturating_sub(idle),
            idle,
            instances_max: self.instances_max as usize,
            instances_wanted: self.instances_wanted as usize,
            pooled: self.pooled,
            saturated: self.saturated.load(Ordering::Relaxed),
            code_bytes: self.code_bytes.load(Ordering::Relaxed),
        }
    }
}
