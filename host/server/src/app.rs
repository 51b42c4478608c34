//! The running host: what stays for the life of the process, and what a reload
//! replaces whole. Requests under way keep the parts they began with.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use arc_swap::{ArcSwap, Guard};
use cofferdam_runtime::Runtime;
use cofferdam_store::{Clock, Store};
use tokio::sync::{Notify, Semaphore};

use crate::body::Budget;
use crate::facts::{self, Facts, Serving};
use crate::grants::Desk;
use crate::metrics::Metrics;
use crate::rate;
use crate::refusals::Refusals;
use crate::wiring::{Ground, Live};

/// Pages of the vault that are read at once. Reading takes microseconds, unless the disk hangs.
const VAULT_READS_MAX: usize = 64;

/// What every part of a serving process shares.
pub(crate) struct App {
    /// Keys, workspaces, usage.
    pub store: Store,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Request bodies in memory.
    pub bodies: Budget,
    /// How often clients come.
    pub rates: rate::Limits,
    /// Tokens that were refused.
    pub(crate) refusals: Refusals,
    /// For reading pages of the vault, each on a thread of its own: one that hangs keeps its place.
    pub(crate) vault_reads: Arc<Semaphore>,
    /// The sandbox.
    pub(crate) runtime: Runtime,
    /// Where grants are changed.
    pub(crate) desk: Desk,
    /// The time.
    pub(crate) clock: Clock,
    live: ArcSwap<Live>,
    at: Addresses,
    started: Instant,
    draining: AtomicBool,
    compiled: AtomicBool,
    /// There are plugins that wait to be compiled.
    uncompiled: Notify,
}

/// Where the host listens, with real port numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Addresses {
    /// For clients.
    pub(crate) listen: SocketAddr,
    /// For health checks and metrics.
    pub(crate) admin: SocketAddr,
}

/// Whether a request would be answered, part by part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Readiness {
    /// The router and the configured providers are compiled.
    pub plugins_compiled: bool,
    /// The store takes writes.
    pub store_writable: bool,
    /// The process is about to end.
    pub draining: bool,
}

impl Readiness {
    /// All parts together.
    #[must_use]
    pub(crate) fn is_ready(self) -> bool {
        self.plugins_compiled && self.store_writable && !self.draining
    }
}

impl App {
    /// A host that serves at these addresses, not ready yet.
    #[must_use]
    pub(crate) fn new(ground: &Ground, live: Live, metrics: Arc<Metrics>, at: Addresses, desk: Desk) -> Self {
        Self {
            store: ground.store.clone(),
            runtime: ground.runtime.clone(),
            desk,
            clock: ground.clock.clone(),
            metrics,
            bodies: Budget::new(&ground.clock),
            rates: rate::Limits::new(&ground.clock),
            refusals: Refusals::new(&ground.clock),
            vault_reads: Arc::new(Semaphore::new(VAULT_READS_MAX)),
            live: ArcSwap::from_pointee(live),
            at,
            started: Instant::now(),
            draining: AtomicBool::new(false),
            compiled: AtomicBool::new(false),
            uncompiled: Notify::new(),
        }
    }

    /// The configuration and what was made of it.
    pub(crate) fn live(&self) -> Guard<Arc<Live>> {
        self.live.load()
    }

    /// Puts a new configuration in the place of the old one.
    pub(crate) fn replace(&self, live: Live) {
        self.live.store(Arc::new(live));
        self.uncompiled.notify_one();
    }

    /// From now on requests find compiled plugins.
    pub(crate) fn note_compiled(&self) {
        self.compiled.store(true, Ordering::Release);
        self.uncompiled.notify_one();
    }

    /// Waits until the host is ready for the first time, or has a new configuration since this was last waited for.
    /// For one task only.
    pub(crate) async fn until_ready_or_replaced(&self) {
        self.uncompiled.notified().await;
    }

    /// From now on the process is about to end.
    pub(crate) fn note_draining(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Whether a request would be answered.
    pub(crate) fn readiness(&self) -> Readiness {
        Readiness {
            plugins_compiled: self.compiled.load(Ordering::Acquire),
            store_writable: self.store.is_writable() && !self.store.is_stalled(),
            draining: self.draining.load(Ordering::Acquire),
        }
    }

    /// What operators are told of this process.
    pub(crate) fn facts(&self) -> Facts {
        let live = self.live();
        let serving = Serving {
            pid: std::process::id(),
            listen: self.at.listen.to_string(),
            admin: self.at.admin.to_string(),
            ready: self.readiness().is_ready(),
            uptime_s: self.started.elapsed().as_secs(),
            requests_running: self.metrics.requests_running.load(Ordering::Relaxed),
        };
        Facts { serving: Some(serving), ..facts::of(live.engine.catalog(), &live.plugins) }
    }
}
