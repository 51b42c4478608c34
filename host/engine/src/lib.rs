//! What a response is: the request as checked, the endpoints that could serve
//! it, the attempts, the assembled answer, and what it cost. The engine knows
//! no HTTP server and no provider's format; guests translate, egress sends.
//!
//! Modules stand in the order a request meets them.

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
pub use refusal::{Refusal, stream_code};
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
    parts: EngineParts,
    router: Arc<Plugin>,
    /// Ids of entries in a request's `plugins` beyond the twelve known ones.
    entry_ids: Vec<String>,
    /// The guests that choose models, once a request has named one.
    model_routers: OnceCell<ModelRouters>,
}

/// There is no usable router plugin.
#[derive(Debug, thiserror::Error)]
#[error("no plugin named `router` of kind router is loaded")]
pub struct NoRouter;

/// How a client wants its answer, from the request's headers.
#[derive(Clone, Debug, Default)]
pub struct RespondOptions {
    /// The field for routing metadata, when the client opted in:
    /// `service_metadata` or `openrouter_metadata`.
    pub metadata_field: Option<&'static str>,
    /// The value of `x-session-id`; the body's `session_id` wins.
    pub session_header: Option<String>,
}

/// The longest session identifier, in characters (interface section 8).
const SESSION_CHARS_MAX: usize = 256;

impl RespondOptions {
    /// Refuses a session header that counts and is too long. The body's value wins over it.
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

/// An answer.
pub struct Answer {
    /// The id of the response or embedding.
    pub id: String,
    /// What to send.
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
            health::compare(model.endpoints.iter().map(|endpoint| &endpoint.health), now_ms);
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

    fn context(&self, id: &str, caller: &Caller) -> CallContext {
        CallContext {
            request_id: Arc::from(id),
            workspace: caller.workspace.to_string(),
            owner: Some(Owner::new(caller.key.as_str())),
            now_ms: self.parts.clock.now_ms(),
        }
    }
}

/// 32 hexadecimal digits that nobody can guess, for ids.
fn random_hex() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

/// A seed for the router, different for each request.
fn random_seed() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0
}
