//! The state of a running host: what lives as long as the process, and the [`LiveConfig`] that a
//! reload replaces as a whole. Running requests keep the [`LiveConfig`] they started with.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Guard};
use cofferdam_engine::export::FormerBroadcaster;
use cofferdam_engine::timeline::RequestRecorder;
use cofferdam_runtime::Runtime;
use cofferdam_store::{Clock, Store};
use futures_util::future::join_all;
use tokio::sync::Notify;

use crate::body::BodyMemory;
use crate::facts::{self, Facts, PluginWork, Serving};
use crate::grants::GrantEditor;
use crate::installed;
use crate::limits::rate;
use crate::limits::refusals::Refusals;
use crate::memory_limit::MemoryLimit;
use crate::metrics::Metrics;
use crate::operators::Operators;
use crate::refused::RefusedRequests;
use crate::telemetry::{KeptLines, PluginLine, PluginLines};
use crate::tls::{CertificatePair, Tls};
use crate::traffic::Traffic;
use crate::wiring::{LiveConfig, SharedServices};

pub(crate) struct App {
    pub store: Store,
    pub metrics: Arc<Metrics>,
    /// Limits the memory that request bodies take together.
    pub bodies: Arc<BodyMemory>,
    pub memory_limit: MemoryLimit,
    pub rates: rate::RateLimiters,
    /// Refused tokens that are not in the audit log yet.
    pub(crate) refusals: Refusals,
    pub(crate) runtime: Runtime,
    /// Who may use the admin API.
    pub(crate) operators: Operators,
    /// The only way to change grants while the host serves.
    pub(crate) grants: GrantEditor,
    pub(crate) clock: Clock,
    /// What happened in the last requests.
    pub(crate) recorder: Arc<RequestRecorder>,
    /// The last requests that were refused before they reached the engine.
    pub(crate) refused: RefusedRequests,
    /// Requests of the last hour by minute.
    pub(crate) traffic: Traffic,
    /// The last log lines about each plugin that is loaded.
    lines: PluginLines,
    live: ArcSwap<LiveConfig>,
    /// Of configurations that were replaced, while they have records to send.
    former_broadcasts: Mutex<Vec<FormerBroadcaster>>,
    at: Addresses,
    /// With it both listeners speak TLS.
    tls: Option<Arc<Tls>>,
    started: Instant,
    draining: AtomicBool,
    compiled: AtomicBool,
    /// Wakes the task that compiles plugins.
    uncompiled: Notify,
}

/// The bound addresses, with real port numbers even where the configuration says port 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Addresses {
    pub(crate) listen: SocketAddr,
    pub(crate) admin: SocketAddr,
    /// Whether both listeners speak TLS.
    pub(crate) is_tls: bool,
}

impl Addresses {
    /// How URLs of both listeners begin.
    pub(crate) fn scheme(self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }

    /// Whether the admin listener serves the console. Elsewhere its bearers would be sent in the clear.
    pub(crate) fn has_console(self) -> bool {
        self.is_tls || self.admin.ip().is_loopback()
    }

    /// What the admin listener serves, and where.
    pub(crate) fn admin_text(self) -> String {
        let served = if self.has_console() { "console, health and metrics" } else { "health and metrics" };
        format!("{served} on {}://{}", self.scheme(), self.admin)
    }

    /// The address to use from this machine: loopback instead of an unspecified address.
    pub(crate) fn reachable(address: SocketAddr) -> SocketAddr {
        let loopback = match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        if address.ip().is_unspecified() { SocketAddr::new(loopback, address.port()) } else { address }
    }
}

/// Whether the host can serve requests: the parts that `/readyz` reports.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Readiness {
    /// The router and the plugins of all configured providers are compiled.
    pub plugins_compiled: bool,
    /// The store accepts writes, does not hang and has contact with its database, if it has one.
    pub store_writable: bool,
    /// The host is stopping.
    pub draining: bool,
}

impl Readiness {
    #[must_use]
    pub(crate) fn is_ready(self) -> bool {
        self.plugins_compiled && self.store_writable && !self.draining
    }
}

impl App {
    #[must_use]
    pub(crate) fn new(
        services: &SharedServices,
        live: LiveConfig,
        metrics: Arc<Metrics>,
        at: Addresses,
        tls: Option<Arc<Tls>>,
        grants: GrantEditor,
        operators: Operators,
    ) -> Self {
        let memory_limit = MemoryLimit::find();
        Self {
            store: services.store.clone(),
            runtime: services.runtime.clone(),
            grants,
            operators,
            clock: services.clock.clone(),
            lines: services.lines.clone(),
            metrics,
            bodies: Arc::new(BodyMemory::new(&services.clock, memory_limit.bytes())),
            memory_limit,
            rates: rate::RateLimiters::new(&services.clock, services.store.shared_limits().as_ref()),
            refusals: Refusals::new(&services.clock),
            recorder: Arc::clone(services.memory.recorder()),
            refused: RefusedRequests::default(),
            traffic: Traffic::default(),
            live: ArcSwap::from_pointee(live),
            former_broadcasts: Mutex::default(),
            at,
            tls,
            started: Instant::now(),
            draining: AtomicBool::new(false),
            compiled: AtomicBool::new(false),
            uncompiled: Notify::new(),
        }
    }

    /// The current configuration and everything built from it.
    pub(crate) fn live(&self) -> Guard<Arc<LiveConfig>> {
        self.live.load()
    }

    /// Like [`Self::live`], for longer than a moment.
    pub(crate) fn live_config(&self) -> Arc<LiveConfig> {
        self.live.load_full()
    }

    pub(crate) fn addresses(&self) -> Addresses {
        self.at
    }

    /// Takes the certificate of a reload. A host that started without TLS goes on without it.
    pub(crate) fn replace_certificate(&self, pair: Option<CertificatePair>) {
        if let (Some(tls), Some(pair)) = (&self.tls, pair) {
            tls.replace(pair);
        }
    }

    pub(crate) fn tls(&self) -> Option<&Arc<Tls>> {
        self.tls.as_ref()
    }

    /// Replaces the current configuration by a new one.
    pub(crate) fn replace(&self, live: LiveConfig) {
        self.lines.retain(live.engine.plugins().iter().map(|plugin| plugin.name()));
        let before = self.live.swap(Arc::new(live));
        let mut former = self.former_broadcasts.lock().unwrap_or_else(PoisonError::into_inner);
        former.retain(|broadcast| !broadcast.is_over());
        former.push(before.broadcast.former());
        drop(former);
        self.uncompiled.notify_one();
    }

    /// Waits until the records of finished requests are sent or given up, also those of requests that began under an
    /// earlier configuration, at most for `patience`.
    pub(crate) async fn flush_broadcasts(&self, patience: Duration) {
        let former =
            std::mem::take(&mut *self.former_broadcasts.lock().unwrap_or_else(PoisonError::into_inner));
        let current = self.live().broadcast.clone();
        let former = join_all(former.into_iter().map(|broadcast| broadcast.flush(patience)));
        tokio::join!(current.flush(patience), former);
    }

    /// Records that all required plugins are compiled.
    pub(crate) fn note_compiled(&self) {
        self.compiled.store(true, Ordering::Release);
        self.uncompiled.notify_one();
    }

    /// Waits until the host is ready for the first time or its configuration was replaced since the
    /// last call. Only one task may call it, because a notification wakes one waiter.
    pub(crate) async fn until_ready_or_replaced(&self) {
        self.uncompiled.notified().await;
    }

    /// Records that the host is stopping, so that it is no longer ready.
    pub(crate) fn note_draining(&self) {
        self.draining.store(true, Ordering::Release);
    }

    pub(crate) fn readiness(&self) -> Readiness {
        Readiness {
            plugins_compiled: self.compiled.load(Ordering::Acquire),
            store_writable: self.store.is_writable()
                && !self.store.is_stalled()
                && self.store.serves_models(),
            draining: self.draining.load(Ordering::Acquire),
        }
    }

    /// The last log lines about a plugin, at most `most`; `None` if no plugin of this name is loaded.
    pub(crate) fn plugin_lines(&self, plugin: &str, most: usize) -> Option<KeptLines> {
        self.live().engine.plugins().get(plugin)?;
        let mut kept = self.lines.last(plugin, most);
        let known = |line: &PluginLine| line.generation.is_none().then_some(line.request_id).flatten();
        if kept.lines.iter().any(|line| known(line).is_some()) {
            let ids = self.recorder.ids_by_log_id();
            for (id, line) in kept.lines.iter_mut().filter_map(|line| Some((known(line)?, line))) {
                line.generation = ids.get(&id).cloned();
            }
        }
        Some(kept)
    }

    /// The status that the `status` command and other operator requests show.
    pub(crate) fn facts(&self) -> Facts {
        let live = self.live();
        let serving = Serving {
            pid: std::process::id(),
            listen: self.at.listen.to_string(),
            admin: self.at.admin.to_string(),
            tls: self.at.is_tls,
            ready: self.readiness().is_ready(),
            uptime_s: self.started.elapsed().as_secs(),
            requests_running: self.metrics.requests_running.load(Ordering::Relaxed),
            reloads: self.metrics.reloads.load(Ordering::Relaxed),
            reloads_refused: self.metrics.reloads_refused.load(Ordering::Relaxed),
        };
        let mut facts =
            Facts { serving: Some(serving), ..facts::of(live.engine.catalog(), live.engine.plugins()) };
        for (shown, plugin) in facts.plugins.iter_mut().zip(live.engine.plugins().iter()) {
            shown.work = Some(PluginWork::of(plugin));
        }
        installed::add_from_lock(&mut facts, &self.grants.options().data);
        facts
    }
}
