//! The models that this host serves, and the endpoints of each. Built from the checked
//! configuration and replaced as a whole on reload.

mod hosted;
mod listing;
pub(crate) mod model_routers;
pub(crate) mod options;

pub use hosted::HostedTools;
pub(crate) use hosted::{CallPrices, Lack};

use crate::authentication::Authentication;
use crate::catalog::options::AllowedOptions;
use crate::cost::Prices;
use crate::memory::health::Health;
use crate::memory::meters::ProviderMeter;
use crate::refusal::printable;
use crate::request::{Hosted, RequestTool, ResponsesRequest};
use cofferdam_egress::Origin;
use cofferdam_protocol::ToolClass;
use cofferdam_runtime::{Plugin, wire};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Vendor parts of slugs that name the service's own model routers. The first is the service's own
/// name.
pub(crate) const ROUTER_VENDORS: [&str; 2] = ["service", "openrouter"];

/// The name of a model router in a slug of one of these vendors, without suffix.
pub(crate) fn router_slug(slug: &str) -> Option<&str> {
    let (vendor, name) = slug.split_once('/')?;
    ROUTER_VENDORS.contains(&vendor).then(|| split_suffix(name).0)
}

/// Suffixes of a model slug that select a way of routing.
const SUFFIXES: [&str; 5] = ["nitro", "floor", "free", "online", "exacto"];

/// The endpoint of the API that a model serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelKind {
    /// `POST /v1/responses`.
    Responses,
    /// `POST /v1/embeddings`.
    Embeddings,
}

impl ModelKind {
    /// The word for the kind in the configuration and in the model list.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Responses => "responses",
            Self::Embeddings => "embeddings",
        }
    }
}

/// A service that runs models: the guest that speaks its dialect, and the origin of its API.
pub struct Provider {
    /// The name in the configuration.
    pub name: String,
    /// The guest that translates requests and answers.
    pub adapter: Arc<Plugin>,
    /// Where requests are sent; none for a guest that answers by itself.
    pub origin: Option<Origin>,
    /// How the host authenticates itself there; none if the provider needs no credential.
    pub authentication: Option<Authentication>,
    /// The fields of `provider.options` that clients may set.
    pub options: AllowedOptions,
    /// What is counted for it. Shared with the catalogs before and after a reload.
    pub meter: Arc<ProviderMeter>,
}

/// A model at a provider.
pub struct Endpoint {
    /// The provider that runs the model.
    pub provider: Arc<Provider>,
    /// The prices of tokens and of generated pictures.
    pub prices: Prices,
    /// The provider's own tools and stored objects that clients may use with the operator's
    /// credential.
    pub hosted: HostedTools,
    /// The description for router guests, without the index of the model in the request.
    pub candidate: wire::Candidate,
    /// The description for provider guests, without the request's options.
    pub target: wire::Target,
    /// The time limit for the first event, or for the head of an answer that is not streamed. Set
    /// only where the operator configures one.
    pub first_event: Option<Duration>,
    /// The model is configured to reason: by an ability, or by a price for reasoning.
    pub reasons: bool,
    /// The endpoint's health. It is shared with the catalogs before and after a reload.
    pub health: Arc<Health>,
}

/// A model and the endpoints that serve it.
pub struct Model {
    /// The model id, as in `vendor/name`.
    pub id: String,
    /// The endpoint of the API that the model serves.
    pub kind: ModelKind,
    /// The tokens of input and output together, if configured.
    pub context_length: Option<u32>,
    /// At least one.
    pub endpoints: Vec<Arc<Endpoint>>,
}

/// The endpoints that are tried.
#[derive(Default)]
pub struct Catalog {
    models: Vec<Arc<Model>>,
    by_id: BTreeMap<String, usize>,
    /// Ids that clients may expect but that are not served, each with the reason.
    absent: BTreeMap<String, String>,
    created: u64,
}

impl Catalog {
    /// A catalog in the given order; a later model with the same id is dropped. `created` is the
    /// Unix time in seconds for the model list.
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

    /// Adds ids that clients may expect but that are not served, each with the reason.
    #[must_use]
    pub fn with_absent(self, absent: BTreeMap<String, String>) -> Self {
        Self { absent, ..self }
    }

    /// The error message for an id that is not in the catalog.
    #[must_use]
    pub fn unknown(&self, id: &str) -> String {
        let message = format!("Model {} does not exist", printable(id));
        match self.absent.get(id) {
            Some(reason) => format!("{message}: {reason}"),
            None => message,
        }
    }

    /// The model with exactly this id.
    pub fn get(&self, id: &str) -> Option<&Arc<Model>> {
        self.by_id.get(id).and_then(|place| self.models.get(*place))
    }

    /// The model of a client's slug, with or without a suffix.
    pub(crate) fn find(&self, slug: &str) -> Option<&Arc<Model>> {
        // The whole slug is tried first, because a configured model id may end like a suffix.
        self.get(slug).or_else(|| self.get(split_suffix(slug).0))
    }

    /// All models in the order of the configuration.
    pub fn models(&self) -> &[Arc<Model>] {
        &self.models
    }

    /// All endpoints of all models.
    pub fn endpoints(&self) -> impl Iterator<Item = &Arc<Endpoint>> {
        self.models.iter().flat_map(|model| &model.endpoints)
    }
}

impl Endpoint {
    /// Whether an answer is read on for its usage when the client disconnects: the endpoint has prices,
    /// and is known to reason or gets input of unknown size.
    pub(crate) fn is_read_on(&self, now_ms: u64, has_unknown_input: bool) -> bool {
        self.prices.is_any() && (has_unknown_input || self.reasons || self.health.has_reasoned(now_ms))
    }

    /// Whether tools of this type, which a client runs, can be offered to a model here: the dialect
    /// always has them, or the operator declares them.
    pub(crate) fn offers(&self, tool_type: &str) -> bool {
        let provider = self.provider.adapter.manifest().provider.as_ref();
        provider.is_some_and(|provider| provider.tools.iter().any(|known| known == tool_type))
            || self.states_tool(tool_type)
    }

    /// Whether the operator declares `TYPE_tools`, such as `custom_tools`, for a server that
    /// supports more than its dialect requires.
    fn states_tool(&self, tool_type: &str) -> bool {
        self.candidate.supports.iter().any(|stated| stated.strip_suffix("_tools") == Some(tool_type))
    }

    /// The first tool or item of a request that the endpoint does not accept. With `is_byok` it is
    /// asked with the caller's own credential.
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

    /// Whether a tool of a request is left out for this endpoint, because the provider's own web
    /// search does not exist here or the client may not use it.
    pub(crate) fn leaves_out(&self, tool: &RequestTool, is_byok: bool) -> bool {
        tool.may_be_left_out() && self.lacks_tool(tool, is_byok) == Some(Lack::Tool)
    }

    /// What the endpoint does not accept of a tool. A server tool needs an endpoint that supports
    /// functions.
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

/// A part of a request that an endpoint does not accept.
pub(crate) enum Miss<'r> {
    /// A tool.
    Tool(&'r RequestTool, Lack<'r>),
    /// A part of the input.
    Item(&'r Hosted, Lack<'r>),
}

/// Splits a model slug into the slug without suffix, and the suffix.
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
    fn only_known_suffixes_are_removed() {
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
