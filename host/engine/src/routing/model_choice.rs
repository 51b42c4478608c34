//! Model routers: a request may name one, such as `service/auto`, instead of a model. Then a guest
//! chooses models of the catalog for it, from counts and abilities and never from content.

use crate::Engine;
use crate::catalog::model_routers::{CatalogPrices, ModelRouters, ROUTER_ENTRY_IDS};
use crate::catalog::router_slug;
use crate::catalog::{Catalog, Endpoint, Model, ModelKind};
use crate::refusal::Refusal;
use crate::request::{ResponsesRequest, TextFacts};
use crate::routing::{FREE, is_free};
use cofferdam_runtime::wire::{self, Choice, ErrorKind, RequestSummary};
use cofferdam_runtime::{CallContext, CallError, ChoiceQuestion, Plugin};
use serde_json::{Value, json};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The choice of a model router.
pub(crate) struct ChosenModels {
    router: String,
    choice: Choice,
}

impl ChosenModels {
    /// The `strategy` of the routing metadata.
    pub(crate) fn strategy(&self) -> &str {
        &self.choice.strategy
    }

    /// Whether this model was chosen.
    pub(crate) fn has(&self, model: &str) -> bool {
        self.choice.models.iter().any(|chosen| chosen == model)
    }

    /// The stage for the `pipeline` of the routing metadata.
    pub(crate) fn stage(&self) -> Value {
        json!({ "type": "model_router", "name": self.router, "summary": self.choice.reason })
    }
}

impl Engine {
    /// Whether a request names a model router instead of a model.
    pub(crate) fn names_model_router(&self, request: &ResponsesRequest) -> bool {
        request.models.iter().any(|slug| self.is_model_router(slug))
    }

    fn is_model_router(&self, slug: &str) -> bool {
        self.catalog().get(slug).is_none() && router_slug(slug).is_some()
    }

    /// The settings entry for the first of this host's own model routers that a request names.
    pub(crate) fn router_entry<'r>(&self, request: &'r ResponsesRequest) -> Option<&'r [u8]> {
        let mut named = request.models.iter().filter(|slug| self.is_model_router(slug));
        named.find_map(|slug| router_slug(slug)).map(|slug| settings_of(request, id_of(slug)))
    }

    /// The index in `offered` of the model that an endpoint serves. `endpoint` is the id of its
    /// health.
    fn place_of(&self, endpoint: u64, offered: &[wire::Model]) -> Option<u32> {
        let known = self.catalog().endpoints().find(|known| known.health.id() == endpoint)?;
        let place = offered.iter().position(|model| model.id == known.candidate.model)?;
        u32::try_from(place).ok()
    }

    /// Replaces the names of model routers by the models that they choose. Returns the last choice,
    /// if there was one.
    ///
    /// `summary` makes the summary of the request for the router named by a slug; `serves` says
    /// whether an endpoint could answer the request; `remembered` is the endpoint that answered the
    /// conversation last. A name that no model router has is left in the list.
    ///
    /// # Errors
    /// The refusal of the guest, 404 where neither it nor another name of the request leaves a model; 500 when the guest
    /// fails, 503 when there is no capacity for it.
    pub(crate) async fn choose_models(
        &self,
        request: &mut ResponsesRequest,
        context: &CallContext,
        summary: impl Fn(&str, &ResponsesRequest) -> RequestSummary,
        serves: impl Fn(&Endpoint, &ResponsesRequest) -> bool,
        remembered: Option<u64>,
        seed: u64,
    ) -> Result<Option<ChosenModels>, Refusal> {
        let routers = self.model_routers.get_or_try_init(|| ModelRouters::find(self, context)).await?;
        let mut models: Vec<String> = Vec::with_capacity(request.models.len());
        let (mut last, mut not_found) = (None, None);
        for slug in &request.models {
            let bare = router_slug(slug).filter(|_| self.is_model_router(slug));
            let Some((bare, router)) = bare.and_then(|bare| Some((bare, routers.by_slug.get(bare)?))) else {
                models.push(slug.clone());
                continue;
            };
            // `:free` offers models where they cost nothing, and no model whose id with `:free` is that of another.
            let suffix = if slug.ends_with(FREE) { FREE } else { "" };
            let is_other = |model: &str| self.catalog().get(&format!("{model}{suffix}")).is_some();
            let fits = |endpoint: &Endpoint| {
                suffix.is_empty() || (is_free(endpoint) && !is_other(&endpoint.candidate.model))
            };
            let offered = routers.offered(|endpoint| fits(endpoint) && serves(endpoint, request));
            let sticky = remembered.and_then(|endpoint| self.place_of(endpoint, &offered));
            let question = ChoiceQuestion {
                slug: bare,
                summary: &RequestSummary { sticky, ..summary(slug, request) },
                facts: &facts(&request.facts),
                models: &offered,
                settings: settings_of(request, entry_of(router, bare)),
                seed,
            };
            let choice = match router.choose_model(context, question).await {
                Ok(Ok(choice)) => choice,
                // Another model that the client names may answer.
                Ok(Err(failure)) if failure.kind == ErrorKind::NotFound => {
                    not_found = Some(failure);
                    continue;
                }
                Ok(Err(failure)) => return Err(Refusal::from_failure(&failure)),
                Err(error) => return Err(failed(&error)),
            };
            tracing::debug!(router = router.name(), reason = %choice.reason, "chose models");
            // The chosen models have the slug's `:free`, which the host itself applies to further models.
            models.extend(choice.models.iter().map(|model| format!("{model}{suffix}")));
            last = Some(ChosenModels { router: router.name().to_owned(), choice });
        }
        if let Some(failure) = not_found.filter(|_| models.is_empty()) {
            return Err(Refusal::from_failure(&failure));
        }
        // Several routers may choose the same model, which is tried at its first place.
        let mut known = BTreeSet::new();
        models.retain(|model| known.insert(model.clone()));
        request.models = models;
        Ok(last)
    }
}

impl ModelRouters {
    /// Asks each guest that chooses models for the names it answers to. Compiles the guests first.
    async fn find(engine: &Engine, context: &CallContext) -> Result<Self, Refusal> {
        let mut by_slug: BTreeMap<String, Arc<Plugin>> = BTreeMap::new();
        let chooses = |plugin: &&Arc<Plugin>| plugin.exports_model_choice() && plugin.is_usable();
        let mut routers: Vec<&Arc<Plugin>> = engine.plugins().iter().filter(chooses).collect();
        // A name of a built-in plugin cannot be taken by another one. The others follow in the
        // order of their names.
        routers.sort_by_key(|plugin| !plugin.is_built_in());
        for plugin in routers {
            let slugs = match plugin.model_slugs(context).await {
                Ok(slugs) => slugs,
                Err(error) if error.is_saturated() => return Err(Refusal::saturated()),
                // A broken guest does not keep the others from being used.
                Err(error) => {
                    tracing::error!(plugin = %error.plugin, %error, "a model router does not say its names");
                    continue;
                }
            };
            for slug in slugs {
                match by_slug.entry(slug) {
                    Entry::Vacant(free) => drop(free.insert(Arc::clone(plugin))),
                    Entry::Occupied(taken) => tracing::error!(
                        plugin = plugin.name(),
                        slug = taken.key(),
                        by = taken.get().name(),
                        "a model router answers to a name that another has"
                    ),
                }
            }
        }
        let prices = CatalogPrices::of(engine.catalog());
        let models = models_for_responses(engine.catalog());
        let described = |model: &Arc<Model>| {
            let candidates = model.endpoints.iter().map(|endpoint| &endpoint.candidate).collect::<Vec<_>>();
            (Arc::clone(model), prices.describe(&model.id, &candidates))
        };
        let models = models.map(described).collect();
        Ok(Self { by_slug, models, prices })
    }

    /// The models that have an endpoint for the request, each as it is at those endpoints.
    fn offered(&self, serves: impl Fn(&Endpoint) -> bool) -> Vec<wire::Model> {
        let offered = self.models.iter().filter_map(|(model, described)| {
            let serving = model.endpoints.iter().filter(|endpoint| serves(endpoint));
            let serving: Vec<_> = serving.map(|endpoint| &endpoint.candidate).collect();
            match serving.len() {
                0 => None,
                all if all == model.endpoints.len() => Some(described.clone()),
                _ => Some(self.prices.describe(&model.id, &serving)),
            }
        });
        offered.collect()
    }
}

fn failed(error: &CallError) -> Refusal {
    if error.is_saturated() {
        return Refusal::saturated();
    }
    tracing::error!(plugin = %error.plugin, %error, "a model router failed");
    Refusal::internal()
}

fn models_for_responses(catalog: &Catalog) -> impl Iterator<Item = &Arc<Model>> {
    catalog.models().iter().filter(|model| model.kind == ModelKind::Responses)
}

impl CatalogPrices {
    fn of(catalog: &Catalog) -> Self {
        let cheapest = |model: &Arc<Model>| {
            total(cheapest(model.endpoints.iter().map(|endpoint| endpoint.candidate.price)))
        };
        let mut sorted: Vec<f64> = models_for_responses(catalog).map(cheapest).collect();
        sorted.sort_by(f64::total_cmp);
        Self(sorted)
    }

    /// Describes a model by the best values of these endpoints. A value that is unknown for one of them
    /// is unknown for the model.
    fn describe(&self, id: &str, candidates: &[&wire::Candidate]) -> wire::Model {
        let most = |limit: fn(&wire::Candidate) -> u32| {
            let limits = || candidates.iter().map(|candidate| limit(candidate));
            if limits().any(|limit| limit == 0) { 0 } else { limits().max().unwrap_or(0) }
        };
        let says_nothing = candidates.iter().any(|candidate| candidate.supports.is_empty());
        let supports: BTreeSet<&String> =
            candidates.iter().flat_map(|candidate| &candidate.supports).collect();
        let price = cheapest(candidates.iter().map(|candidate| candidate.price));
        wire::Model {
            id: id.to_owned(),
            price,
            context_length: most(|candidate| candidate.context_length),
            max_output: most(|candidate| candidate.max_output),
            supports: if says_nothing { Vec::new() } else { supports.into_iter().cloned().collect() },
            price_rank: self.rank(total(price)),
        }
    }

    /// The share of the models of the catalog that cost less.
    fn rank(&self, price: f64) -> f64 {
        let Self(sorted) = self;
        let dearest = sorted.len().saturating_sub(1).max(1) as f64;
        (sorted.partition_point(|other| *other < price) as f64 / dearest).min(1.0)
    }
}

fn cheapest(prices: impl Iterator<Item = wire::Price>) -> wire::Price {
    let free = wire::Price {
        input: 0.0,
        output: 0.0,
        cached_input: 0.0,
        cache_write: 0.0,
        reasoning: 0.0,
        image: 0.0,
    };
    prices.min_by(|one, other| total(*one).total_cmp(&total(*other))).unwrap_or(free)
}

fn total(price: wire::Price) -> f64 {
    price.input + price.output
}

/// The id of the entry with a router's settings, when the router is named by this slug.
fn entry_of<'r>(router: &'r Plugin, slug: &str) -> Option<&'r str> {
    router.manifest().router.as_ref().map(|table| table.id.as_str()).or_else(|| id_of(slug))
}

/// The entry id for a router whose manifest names none: the longest known id whose stem the slug
/// begins with, such as `pareto-router` for `pareto-code`.
fn id_of(slug: &str) -> Option<&'static str> {
    let known = ROUTER_ENTRY_IDS.into_iter().filter(|id| slug.starts_with(id.trim_end_matches("-router")));
    known.max_by_key(|id| id.len())
}

/// The request's entry with this id, or `{}`.
fn settings_of<'a>(request: &'a ResponsesRequest, id: Option<&str>) -> &'a [u8] {
    let entry = id.and_then(|id| request.plugins.iter().find(|entry| entry.enabled && entry.id == id));
    entry.map_or(b"{}", |entry| &entry.json)
}

fn facts(facts: &TextFacts) -> wire::TextFacts {
    wire::TextFacts {
        last_user_chars: facts.last_user_chars,
        all_chars: facts.all_chars,
        turns: facts.turns,
        code_blocks: facts.code_blocks,
        math_share: facts.math_share,
        questions: facts.questions,
        last_model: facts.last_model.clone(),
    }
}
