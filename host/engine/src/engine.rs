//! The engine: the parts that every request uses.

use crate::caller::Caller;
use crate::catalog::Catalog;
use crate::catalog::model_routers::ModelRouters;
use crate::export::Broadcaster;
use crate::lifecycle::deadline::Timeouts;
use crate::lifecycle::shutdown::Ending;
use crate::memory::{self, Memory};
use crate::plugin_defaults::PluginDefaults;
use crate::request::Prompts;
use cofferdam_egress::Egress;
use cofferdam_runtime::{CallContext, Kind, Owner, Plugin, Plugins};
use cofferdam_store::{Clock, Store};
use std::sync::Arc;
use tokio::sync::OnceCell;

/// Everything a running engine is made of. Replaced whole when the
/// configuration is reloaded; requests under way keep the parts they began with.
pub struct EngineParts {
    /// The loaded guests.
    pub plugins: Plugins,
    /// The way out.
    pub egress: Egress,
    /// Where usage is written.
    pub store: Store,
    /// What is served.
    pub catalog: Catalog,
    /// Templates that requests name by `prompt`.
    pub prompts: Prompts,
    /// The most items of a request's input.
    pub items_max: usize,
    /// Who is told of finished requests.
    pub broadcast: Broadcaster,
    /// Plugin entries that requests have without asking.
    pub defaults: PluginDefaults,
    /// Limits of time.
    pub timeouts: Timeouts,
    /// Tells when requests are to end although their time is not up.
    pub ending: Ending,
    /// Reported in routing metadata.
    pub region: Option<String>,
    /// Whether routers are told to try endpoints last that fail, are limited or do far worse than their peers.
    pub eject: bool,
    /// Whether a request that every endpoint failed with something that passes is tried again.
    pub retry: bool,
    /// The time.
    pub clock: Clock,
    /// What is known of endpoints, sessions and retries; shared with the engines before and after.
    pub memory: Arc<Memory>,
}

/// The engine: answers requests.
pub struct Engine {
    pub(crate) parts: EngineParts,
    pub(crate) router: Arc<Plugin>,
    /// Ids of entries in a request's `plugins` beyond the twelve known ones.
    pub(crate) entry_ids: Vec<String>,
    /// The guests that choose models, once a request has named one.
    pub(crate) model_routers: OnceCell<ModelRouters>,
}

/// There is no usable router plugin.
#[derive(Debug, thiserror::Error)]
#[error("no plugin named `router` of kind router is loaded")]
pub struct NoRouter;

impl Engine {
    /// Puts the parts together.
    ///
    /// # Errors
    /// [`NoRouter`].
    pub fn new(parts: EngineParts) -> Result<Self, NoRouter> {
        let router =
            parts.plugins.get("router").filter(|plugin| plugin.kind() == Kind::Router).ok_or(NoRouter)?;
        let router = Arc::clone(router);
        let ids = parts.plugins.iter().filter_map(|plugin| plugin.manifest().entry_id());
        let entry_ids = ids.map(str::to_owned).collect();
        Ok(Self { parts, router, entry_ids, model_routers: OnceCell::new() })
    }

    /// What is served.
    pub fn catalog(&self) -> &Catalog {
        &self.parts.catalog
    }

    /// The loaded guests.
    pub fn plugins(&self) -> &Plugins {
        &self.parts.plugins
    }

    /// Compares the endpoints of each model and sets outliers aside. To be called every few seconds.
    pub fn compare_endpoints(&self) {
        let now_ms = self.parts.memory.clock.monotonic_ms();
        for model in self.parts.catalog.models() {
            memory::health::compare(model.endpoints.iter().map(|endpoint| &endpoint.health), now_ms);
        }
    }

    /// How often a request was not tried again because too many others had been.
    pub fn retries_refused(&self) -> u64 {
        self.parts.memory.retries.refused()
    }

    /// The guests that must be ready before requests are taken: the router and
    /// the adapters of configured providers.
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

    pub(crate) fn context(&self, id: &str, caller: &Caller) -> CallContext {
        CallContext {
            request_id: Arc::from(id),
            workspace: caller.workspace.to_string(),
            owner: Some(Owner::new(caller.key.as_str())),
            now_ms: self.parts.clock.now_ms(),
        }
    }
}
