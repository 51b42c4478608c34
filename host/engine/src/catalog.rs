//! What this host serves: models, and for each the endpoints that have it.
//! Built once from the checked configuration and replaced whole on reload.

mod listing;

use crate::cost::Prices;
use crate::credential::Authentication;
use crate::health::Health;
use cofferdam_egress::Origin;
use cofferdam_runtime::{Plugin, wire};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

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

    /// Whether tools of this type can be offered to a model here: its dialect always has them, or the operator
    /// states `TYPE_tools`, as in `custom_tools`, of a server that has more than its dialect asks for.
    pub(crate) fn offers(&self, tool_type: &str) -> bool {
        let provider = self.provider.adapter.manifest().provider.as_ref();
        provider.is_some_and(|provider| provider.tools.iter().any(|known| known == tool_type))
            || self.candidate.supports.iter().any(|stated| stated.strip_suffix("_tools") == Some(tool_type))
    }
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
