//! The engine makes responses: it parses the request, selects the endpoints that can serve it,
//! makes the attempts, assembles the answer and charges it. The engine contains no HTTP server and
//! no provider's format: guests translate formats, and the egress crate sends requests.
//!
//! The modules are listed in the order in which a request meets them.

pub mod request;

mod refusal;

mod aside;
mod defaults;
mod hooks;
mod truncation;

pub mod catalog;
mod model_choice;
mod routing;

mod allowance;
mod ending;
mod pace;
pub mod rate;

pub mod health;
mod memory;
mod session;
mod told;

mod door;

mod attempt;
mod blame;
mod candidates;
mod credential;
mod echo;
mod fallback;
mod framing;
mod options;
mod reading;
mod retry;

pub mod assembler;
pub mod cost;
mod credit;

pub mod broadcast;
mod leaving;
mod ledger;
mod metadata;

mod ask;
mod tools;

mod embed;
mod respond;
mod stream;

pub use allowance::{Allowance, Meter, Place, Running, TokenLimits};
pub use credential::{Authentication, BoundSecret, OwnKey};
pub use defaults::{PluginDefault, PluginDefaults};
pub use ending::{End, Ending};
pub use hooks::{is_own_entry, is_request_plugin};
pub use ledger::Caller;
pub use memory::Memory;
pub use options::AllowedOptions;
pub use pace::Timeouts;
pub use refusal::Refusal;
pub use stream::EventStream;
pub use tools::tell_calls_plainly;

use broadcast::Broadcaster;
use bytes::Bytes;
use catalog::Catalog;
use cofferdam_egress::Egress;
use cofferdam_runtime::{CallContext, Kind, Owner, Plugin, Plugins};
use cofferdam_store::{Clock, Store};
use model_choice::ModelRouters;
use request::Prompts;
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
    pub ending: Ending,
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
    parts: EngineParts,
    router: Arc<Plugin>,
    /// Ids that entries in a request's `plugins` may have, in addition to the twelve known ones.
    entry_ids: Vec<String>,
    /// The guests that choose models. Filled when a request first names one.
    model_routers: OnceCell<ModelRouters>,
}

/// The error when there is no usable router plugin.
#[derive(Debug, thiserror::Error)]
#[error("no plugin named `router` of kind router is loaded")]
pub struct NoRouter;

/// How a client wants its answer, from the request's headers.
#[derive(Clone, Debug, Default)]
pub struct RespondOptions {
    /// The name of the routing metadata in the answer, if the client asked for it:
    /// `service_metadata` or `openrouter_metadata`.
    pub metadata_field: Option<&'static str>,
    /// The value of `x-session-id`. The `session_id` of the body takes precedence.
    pub session_header: Option<String>,
}

/// The longest session id, in characters.
const SESSION_CHARS_MAX: usize = 256;

impl RespondOptions {
    /// Refuses a session header that is too long, unless the body has a `session_id`, which takes
    /// precedence.
    fn check_session(&self, in_body: Option<&str>) -> Result<(), Refusal> {
        let header = self.session_header.as_deref().filter(|_| in_body.is_none());
        match header {
            Some(session) if session.chars().count() > SESSION_CHARS_MAX => {
                Err(Refusal::invalid("x-session-id must have at most 256 characters"))
            }
            _ => Ok(()),
        }
    }
}

/// A successful answer.
pub struct Answer {
    /// The id of the response or of the embeddings.
    pub id: String,
    /// The body to send.
    pub body: AnswerBody,
}

/// The two forms of an answer.
pub enum AnswerBody {
    /// One JSON body.
    Whole(Bytes),
    /// Server-sent events.
    Stream(EventStream),
}

impl Engine {
    /// Builds an engine.
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
            health::compare(model.endpoints.iter().map(|endpoint| &endpoint.health), now_ms);
        }
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

    fn context(&self, id: &str, caller: &Caller) -> CallContext {
        CallContext {
            request_id: Arc::from(id),
            workspace: caller.workspace.to_string(),
            owner: Some(Owner::new(caller.key.as_str())),
            now_ms: self.parts.clock.now_ms(),
        }
    }
}

/// 32 unpredictable hexadecimal digits, for ids.
fn random_hex() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

/// A seed for the router, different for each request.
fn random_seed() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0
}
