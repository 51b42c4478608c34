//! The engine: the parts that every request uses.

use crate::answer::RespondOptions;
use crate::caller::Caller;
use crate::catalog::Catalog;
use crate::catalog::model_routers::ModelRouters;
use crate::export::Broadcaster;
use crate::lifecycle::deadline::Timeouts;
use crate::lifecycle::shutdown::Shutdown;
use crate::memory::meters::Meters;
use crate::memory::{self, Memory};
use crate::plugin_defaults::PluginDefaults;
use crate::request::Prompts;
use crate::timeline::{RequestBeginning, RequestGuard};
use cofferdam_egress::Egress;
use cofferdam_runtime::{Plugin, PluginKind, Plugins};
use cofferdam_store::{Clock, Store, UsageKind};
use std::sync::Arc;
use tokio::sync::OnceCell;

/// Everything a running engine consists of. A reload of the configuration makes a new engine;
/// running requests keep the parts they began with.
pub struct EngineParts {
    /// The loaded guests.
    pub plugins: Plugins,
    /// Sends requests to providers and other hosts.
    pub egress: Egress,
    /// Holds secrets, credit and usage rows.
    pub store: Store,
    /// The models and endpoints that are served.
    pub catalog: Catalog,
    /// Templates that requests name by `prompt`.
    pub prompts: Prompts,
    /// The most items in the input of a request.
    pub items_max: usize,
    /// Sends records of finished requests.
    pub broadcast: Broadcaster,
    /// Plugin entries that requests have without naming them.
    pub defaults: PluginDefaults,
    /// Time limits of requests.
    pub timeouts: Timeouts,
    /// Signals that the host ends, which ends requests before their deadline.
    pub ending: Shutdown,
    /// The region in routing metadata.
    pub region: Option<String>,
    /// Whether routers are asked to try an endpoint last when it fails, is limited or does far
    /// worse than its peers.
    pub eject: bool,
    /// Whether the endpoints are tried again when all have failed with errors that pass.
    pub retry: bool,
    /// The clock for timestamps. Measurements use the clock of `memory`.
    pub clock: Clock,
    /// The health of endpoints, sessions and the retry budget. Shared with the engines before and
    /// after a reload.
    pub memory: Arc<Memory>,
}

/// Answers requests. One engine belongs to one loaded configuration.
pub struct Engine {
    pub(crate) parts: EngineParts,
    pub(crate) router: Arc<Plugin>,
    /// Ids that entries in a request's `plugins` may have, in addition to the known ones.
    pub(crate) entry_ids: Vec<String>,
    /// The guests that choose models. Filled when a request first names one.
    pub(crate) model_routers: OnceCell<ModelRouters>,
}

/// The error when there is no usable router plugin.
#[derive(Debug, thiserror::Error)]
#[error("no plugin named `router` of kind router is loaded")]
pub struct NoRouter;

impl Engine {
    /// Builds an engine.
    ///
    /// # Errors
    /// [`NoRouter`].
    pub fn new(parts: EngineParts) -> Result<Self, NoRouter> {
        let router = parts
            .plugins
            .get("router")
            .filter(|plugin| plugin.kind() == PluginKind::Router)
            .ok_or(NoRouter)?;
        let router = Arc::clone(router);
        let ids = parts.plugins.iter().filter_map(|plugin| plugin.manifest().entry_id());
        let entry_ids = ids.map(str::to_owned).collect();
        Ok(Self { parts, router, entry_ids, model_routers: OnceCell::new() })
    }

    /// Begins to record a request that the client knows by `id`.
    pub(crate) fn record(
        &self,
        id: &str,
        caller: &Caller,
        endpoint: UsageKind,
        request_bytes: usize,
        options: &mut RespondOptions,
    ) -> RequestGuard {
        let EngineParts { memory, broadcast, clock, .. } = &self.parts;
        let (log_id, follower) = (options.log_id, options.follow.take());
        let beginning = || RequestBeginning {
            request_id: id,
            log_id,
            started_ms: clock.now_ms(),
            workspace: caller.workspace.id,
            key: &caller.key,
            intern: caller.intern,
            endpoint,
            request_bytes: request_bytes as u64,
        };
        memory.recorder().begin(beginning, follower, broadcast.wants_steps())
    }

    /// The models and endpoints that are served.
    pub fn catalog(&self) -> &Catalog {
        &self.parts.catalog
    }

    /// The loaded guests.
    pub fn plugins(&self) -> &Plugins {
        &self.parts.plugins
    }

    /// Compares the endpoints of each model and marks outliers. To be called every few seconds.
    pub fn compare_endpoints(&self) {
        let now_ms = self.parts.memory.clock.monotonic_ms();
        for model in self.parts.catalog.models() {
            memory::health::compare(model.endpoints.iter().map(|endpoint| &endpoint.health), now_ms);
        }
    }

    /// What is counted for metrics.
    pub fn meters(&self) -> &Meters {
        &self.parts.memory.meters
    }

    /// How often the retry budget refused to try the endpoints of a request again.
    pub fn retries_refused(&self) -> u64 {
        self.parts.memory.retries.refused()
    }

    /// The guests that must be ready before requests are accepted: the router and the adapters of
    /// configured providers.
    pub fn required_plugins(&self) -> Vec<Arc<Plugin>> {
        let mut required = vec![Arc::clone(&self.router)];
        for endpoint in self.parts.catalog.models().iter().flat_map(|model| &model.endpoints) {
            let adapter = &endpoint.provider.adapter;
            if !required.iter().any(|known| Arc::ptr_eq(known, adapter)) {
                required.push(Arc::clone(adapter));
            }
        }
        required
    }
}
