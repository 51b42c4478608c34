//! What all plugins of one runtime share: the engine, the room for instances,
//! the turns of long-running guests, the cache.

use std::borrow::Borrow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmtime::Engine;

use crate::account::Turns;
use crate::cache::Cache;
use crate::context::Owner;
use crate::engine::{Sandbox, Ticker};
use crate::fairness::{Fairness, Held, Holders, InLine, Lines};
use crate::instance::Live;
use crate::warm::Warm;

/// One owner may have one of so many parts of all streams while few places are left.
const SHARES: usize = 8;

/// Shared by the runtime and its plugins; the last one stops the ticker.
pub(crate) struct Host {
    pub(crate) engine: Engine,
    pub(crate) cache: Option<Cache>,
    pub(crate) turns: Arc<Turns>,
    /// Instances between two calls.
    pub(crate) warm: Arc<Warm<Box<Live>>>,
    slots: Arc<Semaphore>,
    claims: Arc<Semaphore>,
    /// Claims by owner, and how many one owner may have while few are left.
    holders: Arc<Holders<Owner>>,
    fairness: Fairness,
    /// Tool calls that run or wait for the processor, by owner, and how many of one owner run.
    lines: Arc<Lines>,
    tools_at_once: usize,
    instances_max: u32,
    pooled: bool,
    live: Arc<AtomicUsize>,
    saturated: AtomicU64,
    plugins: AtomicU64,
    _ticker: Ticker,
}

/// How full the runtime is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gauges {
    /// Instances that serve somebody now.
    pub instances: usize,
    /// Instances that wait for the next call of whom they served. They make room
    /// for anybody else.
    pub idle: usize,
    /// Instances that may live at once.
    pub instances_max: usize,
    /// Whether instances come from the pool.
    pub pooled: bool,
    /// How often no instance was free, since the start.
    pub saturated: u64,
}

/// Room for one instance, idle or in use.
pub(crate) struct Slot {
    _permit: OwnedSemaphorePermit,
    live: Arc<AtomicUsize>,
}

/// The places of a runtime, which are rights to use an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places {
    /// Those that are taken.
    pub taken: usize,
    /// Those that one owner has.
    pub held: usize,
    /// Who gets no more of them.
    pub fairness: Fairness,
}

/// The right to use an instance. There are as many as instances, so whoever holds one and gave its instance
/// back for a while finds one again: at worst an idle one makes way.
pub(crate) struct Claim {
    _permit: OwnedSemaphorePermit,
    _held: Option<Held>,
}

impl Host {
    pub(crate) fn new(
        sandbox: Sandbox,
        streams: usize,
        cache: Option<Cache>,
        warm: Arc<Warm<Box<Live>>>,
        ticker: Ticker,
    ) -> Self {
        let workers = std::thread::available_parallelism().map_or(2, std::num::NonZeroUsize::get);
        Self {
            cache,
            turns: Arc::new(Turns::new(workers)),
            holders: Arc::default(),
            fairness: Fairness::new(sandbox.instances as usize, (streams / SHARES).max(1)),
            lines: Arc::default(),
            tools_at_once: (workers / 2).max(1),
            warm,
            slots: Arc::new(Semaphore::new(sandbox.instances as usize)),
            claims: Arc::new(Semaphore::new(sandbox.instances as usize)),
            instances_max: sandbox.instances,
            pooled: sandbox.pooled,
            engine: sandbox.engine,
            live: Arc::new(AtomicUsize::new(0)),
            saturated: AtomicU64::new(0),
            plugins: AtomicU64::new(0),
            _ticker: ticker,
        }
    }

    /// Takes a claim if one is free; waiting is the caller's decision, not ours.
    pub(crate) fn take_claim(&self, owner: Option<&Owner>) -> Option<Claim> {
        let permit = Arc::clone(&self.claims).try_acquire_owned().ok()?;
        Some(Claim { _permit: permit, _held: owner.map(|owner| Held::new(&self.holders, owner)) })
    }

    /// The same for a call that a running request can do without: while few claims are left, an owner gets
    /// no more than its share of them.
    pub(crate) fn take_fair_claim(&self, owner: Option<&Owner>) -> Option<Claim> {
        let refuses = |owner: &Owner| {
            let Places { taken, held, fairness } = self.places(owner.borrow());
            fairness.refuses(taken, held)
        };
        if owner.is_some_and(refuses) { None } else { self.take_claim(owner) }
    }

    /// The places as the owner with this id finds them.
    pub(crate) fn places(&self, owner: &str) -> Places {
        let taken = (self.instances_max as usize).saturating_sub(self.claims.available_permits());
        Places { taken, held: self.holders.of(owner), fairness: self.fairness }
    }

    /// A tool call among those of its owner.
    pub(crate) fn line_up(&self, owner: &Owner) -> InLine {
        self.lines.join(owner, self.tools_at_once)
    }

    /// Takes a slot if one is free, or an idle instance's. Only for the holder of a claim.
    pub(crate) fn take_slot(&self) -> Option<Slot> {
        let permit = loop {
            match Arc::clone(&self.slots).try_acquire_owned() {
                Ok(permit) => break permit,
                Err(_) if self.warm.evict() => {}
                Err(_) => return None,
            }
        };
        self.live.fetch_add(1, Ordering::Relaxed);
        Some(Slot { _permit: permit, live: Arc::clone(&self.live) })
    }

    /// A number for a plugin, never given twice.
    pub(crate) fn next_number(&self) -> u64 {
        self.plugins.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn count_saturated(&self) {
        self.saturated.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn gauges(&self) -> Gauges {
        let idle = self.warm.len();
        Gauges {
            instances: self.live.load(Ordering::Relaxed).saturating_sub(idle),
            idle,
            instances_max: self.instances_max as usize,
            pooled: self.pooled,
            saturated: self.saturated.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
    }
}
