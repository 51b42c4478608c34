//! What this host serves: models, and for each the endpoints that have it.
//! Built once from the checked configuration and replaced whole on reload.

mod hosted;
mod listing;
pub(crate) mod model_routers;
pub(crate) mod options;

pub use hosted::HostedTools;
pub(crate) use hosted::{CallPrices, Lack};

use crate::authentication::Authentication;
use crate::catalog::options::AllowedOptions;
use crate::cost::Prices;
use crate::log_throttle::Told;
use crate::memory::health::Health;
use crate::refusal::printable;
use crate::request::{Hosted, RequestTool, ResponsesRequest, ToolClass};
use cofferdam_egress::Origin;
use cofferdam_runtime::{Plugin, wire};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Vendors under which the service's own model routers are known, the first being its own name.
pub(crate) const ROUTER_VENDORS: [&str; 2] = ["service", "openrouter"];

/// The name of a model router in a slug of one of the service's own vendors, suffix taken off.
pub(crate) fn router_slug(slug: &str) -> Option<&str> {
    let (vendor, name) = slug.split_once('/')?;
    ROUTER_VENDORS.contains(&vendor).then(|| split_suffix(name).0)
}

/// Suffixes of a model slug that ask for a way of routing.
const SUFFIXES: [&str; 5] = ["nitro", "floor", "free", "online", "exacto"];

/// What a model is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelKind {
    /// `POST /v1/responses`.
    Responses,
    /// `POST /v1/embeddings`.
    Embeddings,
}

impl ModelKind {
    /// The word the configuration and the model list use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Responses => "responses",
            Self::Embeddings => "embeddings",
        }
    }
}

/// Someone who runs models: a guest that speaks the dialect and the origin it is sent to.
pub struct Provider {
    /// Its name in the configuration.
    pub name: String,
    /// The guest.
    pub adapter: Arc<Plugin>,
    /// Where requests go; none for a guest that answers by itself.
    pub origin: Option<Origin>,
    /// What authenticates us there.
    pub authentication: Option<Authentication>,
    /// Which fields of its own clients may set.
    pub options: AllowedOptions,
    /// Attempts so far, by how they ended.
    pub attempts: AttemptCounters,
}

/// Counts for the operator's metrics.
#[derive(Debug, Default)]
pub struct AttemptCounters {
    /// Attempts that gave a first event.
    pub answered: AtomicU64,
    /// Attempts that failed before.
    pub failed: AtomicU64,
    /// When the log was told that the provider cannot be reached.
    pub(crate) unreached: Told,
}

impl AttemptCounters {
    pub(crate) fn count(&self, answered: bool) {
        let counter = if answered { &self.answered } else { &self.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// One way to have a model answered.
pub struct Endpoint {
    /// Who runs it.
    pub provider: Arc<Provider>,
    /// What it costs.
    pub prices: Prices,
    /// Which of the provider's own tools clients may use on the operator's credential.
    pub hosted: HostedTools,
    /// What the router guest is told of it, but for the place of its model in the request.
    pub candidate: wire::Candidate,
    /// What the provider guest is told of it, but for the request's options.
    pub target: wire::Target,
    /// How long its first event may take, or the head of an answer in one body, where the operator says.
    pub first_event: Option<Duration>,
    /// The operator says that it reasons: among its abilities, or by a price for reasoning.
    pub reasons: bool,
    /// How it does. Outlives this catalog.
    pub health: Arc<Health>,
}

/// One model.
pub struct Model {
    /// `vendor/name`.
    pub id: String,
    /// What it is for.
    pub kind: ModelKind,
    /// Tokens of input and output together, if known.
    pub context_length: Option<u32>,
    /// At least one.
    pub endpoints: Vec<Arc<Endpoint>>,
}

/// All models.
#[derive(Default)]
pub struct Catalog {
    models: Vec<Arc<Model>>,
    by_id: BTreeMap<String, usize>,
    /// Ids that could be expected here and are not, each with the reason.
    absent: BTreeMap<String, String>,
    created: u64,
}

impl Catalog {
    /// A catalog in the order given; a later model of the same id is dropped.
    /// `created` is the Unix time in seconds that the model list reports.
    pub fn new(models: Vec<Model>, created: u64) -> Self {
        let mut catalog = Self { created, ..Self::default() };
        for model in models {
            if !catalog.by_id.contains_key(&model.id) {
                catalog.by_id.insert(model.id.clone(), catalog.models.len());
                catalog.models.push(Arc::new(model));
            }
        }
        catalog
    }

    /// The catalog with reasons why models are not in it that could be expected there.
    #[must_use]
    pub fn with_absent(self, absent: BTreeMap<String, String>) -> Self {
        Self { absent, ..self }
    }

    /// What a client is told of an id that is not here.
    #[must_use]
    pub fn unknown(&self, id: &str) -> String {
        let message = format!("Model {} does not exist", printable(id));
        match self.absent.get(id) {
            Some(reason) => format!("{message}: {reason}"),
            None => message,
        }
    }

    /// The model with this id.
    pub fn get(&self, id: &str) -> Option<&Arc<Model>> {
        self.by_id.get(id).and_then(|place| self.models.get(*place))
    }

    /// The model that a client's slug names, with or without a suffix.
    pub(crate) fn find(&self, slug: &str) -> Option<&Arc<Model>> {
        // The whole slug first: an operator's model id may end like a suffix.
        self.get(slug).or_else(|| self.get(split_suffix(slug).0))
    }

    /// All models in the order of the configuration.
    pub fn models(&self) -> &[Arc<Model>] {
        &self.models
    }

    /// Every endpoint of every model.
    pub fn endpoints(&self) -> impl Iterator<Item = &Arc<Endpoint>> {
        self.models.iter().flat_map(|model| &model.endpoints)
    }
}

impl Endpoint {
    /// Whether an answer is read on for its usage when the client leaves: the endpoint is priced, and known to reason.
    pub(crate) fn is_read_on(&self, now_ms: u64) -> bool {
        self.prices.is_any() && (self.reasons || self.health.has_reasoned(now_ms))
    }

    /// Whether tools of this type, which a client runs, can be offered to a model here: its dialect always has
    /// them, or the operator states so.
    pub(crate) fn offers(&self, tool_type: &str) -> bool {
        let provider = self.provider.adapter.manifest().provider.as_ref();
        provider.is_some_and(|provider| provider.tools.iter().any(|known| known == tool_type))
            || self.states_tool(tool_type)
    }

    /// Whether the operator states `TYPE_tools`, as in `custom_tools`, of a server that has more than its dialect
    /// asks for.
    fn states_tool(&self, tool_type: &str) -> bool {
        self.candidate.supports.iter().any(|stated| stated.strip_suffix("_tools") == Some(tool_type))
    }

    /// The first thing of a request that it does not take. `is_byok` says whether it would be asked on the caller's
    /// own credential.
    pub(crate) fn misses<'r>(&self, request: &'r ResponsesRequest, is_byok: bool) -> Option<Miss<'r>> {
        let tool = request.all_tools().find_map(|tool| {
            let lack = self.lacks_tool(tool, is_byok)?;
            let is_told = tool.is_told_as_functions() && self.offers("function");
            let is_spared =
                self.leaves_out(tool, is_byok) && !request.tool_choice.needs_search(&request.tools);
            (!is_told && !is_spared).then_some(Miss::Tool(tool, lack))
        });
        let item = || {
            let mut items = request.hosted_items.iter();
            items.find_map(|hosted| Some(Miss::Item(hosted, self.lacks(hosted, is_byok)?)))
        };
        tool.or_else(item)
    }

    /// Whether a tool of a request is left out here, because the provider's own search of the web is not there, or
    /// not the client's to use.
    pub(crate) fn leaves_out(&self, tool: &RequestTool, is_byok: bool) -> bool {
        tool.may_be_left_out() && self.lacks_tool(tool, is_byok) == Some(Lack::Tool)
    }

    /// What it does not take of a tool of this kind; a server tool is offered as functions.
    pub(crate) fn lacks_tool<'r>(&self, tool: &'r RequestTool, is_byok: bool) -> Option<Lack<'r>> {
        if let Some(hosted) = &tool.hosted {
            return self.lacks(hosted, is_byok);
        }
        let is_offered = self.offers(match tool.kind.class() {
            ToolClass::Server => "function",
            ToolClass::Client | ToolClass::Hosted => &tool.type_name,
        });
        (!is_offered).then_some(Lack::Tool)
    }
}

/// Something of a request that an endpoint does not take.
pub(crate) enum Miss<'r> {
    /// Of a tool.
    Tool(&'r RequestTool, Lack<'r>),
    /// Of something inside the input.
    Item(&'r Hosted, Lack<'r>),
}

/// A model slug without its suffix, and the suffix.
pub(crate) fn split_suffix(slug: &str) -> (&str, Option<&str>) {
    match slug.rsplit_once(':') {
        Some((model, suffix)) if SUFFIXES.contains(&suffix) => (model, Some(suffix)),
        _ => (slug, None),
    }
}

#[cfg(test)]
mod tests {
    use super::split_suffix;

    #[test]
    fn only_known_suffixes_are_taken_off() {
        for (slug, expected) in [
            ("a/b", ("a/b", None)),
            ("a/b:nitro", ("a/b", Some("nitro"))),
            ("a/b:8b", ("a/b:8b", None)),
            ("llama3.2:3b:floor", ("llama3.2:3b", Some("floor"))),
        ] {
            assert_eq!(split_suffix(slug), expected);
        }
    }
}
