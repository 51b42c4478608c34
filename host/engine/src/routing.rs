//! From the models that a request names to the endpoints that are tried, in order: the host lists
//! the candidates, the router guest orders them.

pub(crate) mod model_choice;

use crate::catalog::{Catalog, Endpoint, Model, ModelKind, ROUTER_VENDORS, split_suffix};
use crate::engine::EngineParts;
use crate::refusal::{Refusal, printable};
use crate::request::AllowedEndpoints;
use crate::scope::RequestScope;
use crate::timeline::{FactName, StepType, call_outcome};
use crate::trace::RoutingTrace;
use cofferdam_runtime::wire::{Candidate, Purpose, RequestSummary};
use std::sync::Arc;

/// Finds the models a request names.
///
/// # Errors
/// 404 naming an unknown model; 400 for a model of the other kind.
pub(crate) fn find_models(
    catalog: &Catalog,
    slugs: &[String],
    kind: ModelKind,
) -> Result<Vec<NamedModel>, Refusal> {
    let mut models: Vec<NamedModel> = Vec::with_capacity(slugs.len());
    for slug in slugs {
        let Some(model) = catalog.find(slug) else {
            return Err(unknown_model(catalog, slug));
        };
        if model.kind != kind {
            let (is, endpoint) = match model.kind {
                ModelKind::Responses => ("a response", "/responses"),
                ModelKind::Embeddings => ("an embedding", "/embeddings"),
            };
            return Err(Refusal::invalid(format!(
                "model: {} is {is} model, use {endpoint}",
                printable(slug)
            )));
        }
        let is_free = model.id != *slug && slug.ends_with(FREE);
        // A model after itself with `:free` stands for its other endpoints.
        let is_known = |known: &NamedModel| known.model.id == model.id && (is_free || !known.is_free);
        if !models.iter().any(is_known) {
            models.push(NamedModel { model: Arc::clone(model), is_free });
        }
    }
    Ok(models)
}

/// The suffix of a slug that asks for endpoints that cost nothing.
const FREE: &str = ":free";

/// A model that a request names.
pub(crate) struct NamedModel {
    model: Arc<Model>,
    /// Whether the slug ends with [`FREE`].
    is_free: bool,
}

impl NamedModel {
    /// The endpoints of the model.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.model.endpoints.iter().map(|endpoint| &**endpoint)
    }

    /// The ids of models, for the summary.
    pub(crate) fn ids(models: &[Self]) -> Vec<String> {
        models.iter().map(|named| named.model.id.clone()).collect()
    }
}

fn unknown_model(catalog: &Catalog, slug: &str) -> Refusal {
    let vendor = slug.split_once('/').map_or("", |(vendor, _)| vendor);
    if ROUTER_VENDORS.contains(&vendor) {
        let slug = printable(slug);
        return Refusal::not_found(format!("Model {slug} is not available on this host"));
    }
    Refusal::not_found(catalog.unknown(slug))
}

/// What the router is asked about a request.
pub(crate) struct RoutingPlan {
    /// The endpoints that could serve the request, each with the index of its model.
    pub(crate) candidates: Vec<(u32, Arc<Endpoint>)>,
    pub(crate) summary: RequestSummary,
    /// Whether more than the first endpoint may be tried.
    pub(crate) allow_fallbacks: bool,
    /// Which endpoints may get the content, whatever the router says.
    pub(crate) allowed: AllowedEndpoints,
}

/// Every endpoint of `models` that `serves` accepts, with the index of its model. The suffix of the
/// first model binds its endpoints in the router, which says so where none is left. Here `:free` binds
/// those of further models.
pub(crate) fn candidates(
    models: &[NamedModel],
    serves: impl Fn(&Endpoint) -> bool,
) -> Vec<(u32, Arc<Endpoint>)> {
    let mut candidates = Vec::new();
    for (rank, named) in (0u32..).zip(models) {
        let before = models.get(..rank as usize).unwrap_or_default();
        let was_free = before.iter().any(|before| before.model.id == named.model.id);
        let fits = |endpoint: &Endpoint| match is_free(endpoint) {
            true => !was_free,
            false => rank == 0 || !named.is_free,
        };
        let endpoints = named.model.endpoints.iter().filter(|endpoint| fits(endpoint) && serves(endpoint));
        candidates.extend(endpoints.map(|endpoint| (rank, Arc::clone(endpoint))));
    }
    candidates
}

/// Whether neither input nor output costs anything.
pub(crate) fn is_free(endpoint: &Endpoint) -> bool {
    let price = endpoint.candidate.price;
    price.input <= 0.0 && price.output <= 0.0
}

/// The endpoints that are tried.
#[derive(Default)]
pub(crate) struct Order {
    /// In the router's order.
    pub(crate) endpoints: Vec<Arc<Endpoint>>,
    /// Indexes of those for which the caller has a credential of its own.
    pub(crate) byok: Vec<usize>,
}

impl Order {
    /// Whether the caller had a credential of its own for the endpoint at this index when the
    /// request was routed.
    pub(crate) fn is_byok(&self, place: usize) -> bool {
        self.byok.contains(&place)
    }
}

impl RoutingPlan {
    /// The candidates in the form that the router gets.
    async fn describe(&self, scope: &RequestScope) -> Vec<Candidate> {
        let EngineParts { eject, memory, .. } = scope.parts();
        let (credentials, now_ms) = (scope.credentials(), memory.clock.monotonic_ms());
        let mut described = Vec::with_capacity(self.candidates.len());
        for (rank, endpoint) in &self.candidates {
            let byok = credentials.has_byok(&endpoint.provider).await;
            let mut statistics = endpoint.health.statistics(now_ms, self.summary.streamed);
            // Routers learn which endpoints to try last only where the operator wants it.
            statistics.ejected &= eject;
            let candidate = endpoint.candidate.clone();
            described.push(Candidate { model_rank: *rank, byok, statistics, ..candidate });
        }
        described
    }

    /// The index of the endpoint with this id of its health.
    fn place_of(&self, health: u64) -> Option<u32> {
        let places = self.candidates.iter().zip(0..);
        places.filter(|((_, endpoint), _)| endpoint.health.id() == health).map(|(_, place)| place).next()
    }

    /// Lets the router guest order the candidates, and records the order in the routing trace.
    /// `remembered` is the endpoint that answered this conversation last, by the id of its health; `seed` is
    /// what the router draws with.
    pub(crate) async fn order(
        mut self,
        scope: &RequestScope,
        remembered: Option<u64>,
        seed: u64,
        trace: &mut RoutingTrace,
    ) -> Result<Order, Refusal> {
        trace.total = self.candidates.len();
        // Until the router says its own.
        strategy(&self.summary).clone_into(&mut trace.strategy);
        self.summary.sticky = remembered.and_then(|endpoint| self.place_of(endpoint));
        let described = self.describe(scope).await;
        let router = &scope.engine.router;
        let name = [router.name(), "route"];
        let step = scope.timeline.begin(StepType::Route, &name, &[FactName::Plugin.name(router.name())]);
        let answer = router.route(&scope.context, &self.summary, &described, seed).await;
        let count = FactName::Count.number(described.len() as u64);
        scope.timeline.end(step, call_outcome(&answer), &[count]);
        let decision = match answer {
            Ok(Ok(decision)) => decision,
            Ok(Err(failure)) => return Err(Refusal::from_failure(&failure)),
            Err(error) if error.is_saturated() => return Err(Refusal::saturated()),
            Err(error) => {
                tracing::error!(plugin = %error.plugin, %error, "the router failed");
                return Err(Refusal::internal());
            }
        };
        let most = if self.allow_fallbacks { usize::MAX } else { 1 };
        // The runtime has checked that the indexes are in range, unique and not empty.
        let ordered = decision.order.iter().filter_map(|place| {
            let place = *place as usize;
            self.candidates.get(place).zip(described.get(place))
        });
        let ordered = ordered.filter(|(_, candidate)| self.allowed.have(candidate));
        let mut order = Vec::with_capacity(decision.order.len());
        let mut byok = Vec::new();
        for ((_, endpoint), candidate) in ordered.take(most) {
            if candidate.byok {
                byok.push(order.len());
            }
            order.push(Arc::clone(endpoint));
        }
        tracing::debug!(strategy = %decision.strategy, reason = %decision.reason, "routed");
        trace.strategy = decision.strategy;
        trace.available.clone_from(&order);
        if order.is_empty() {
            return Err(Refusal::not_found("No endpoints found that match the provider preferences"));
        }
        Ok(Order { endpoints: order, byok })
    }
}

/// The strategy of a request that no router has ordered yet.
fn strategy(summary: &RequestSummary) -> &'static str {
    match summary.suffix.as_deref() {
        Some("free") => "free",
        _ if summary.models.len() > 1 => "fallback",
        _ => "direct",
    }
}

/// The fields of the summary that are the same for responses and embeddings.
///
/// `requested` is the first model as the client wrote it, and `models` are the ids of all. The id of a model may end like
/// a suffix.
pub(crate) fn summary(purpose: Purpose, requested: &str, models: Vec<String>) -> RequestSummary {
    let is_id = models.iter().any(|id| id == requested);
    let suffix = split_suffix(requested).1.filter(|_| !is_id).map(str::to_owned);
    RequestSummary {
        purpose,
        models,
        suffix,
        requested: requested.to_owned(),
        preferences: b"{}".to_vec(),
        route: None,
        service_tier: "auto".to_owned(),
        parameters: Vec::new(),
        needs: Vec::new(),
        input_tokens: 0,
        max_output_tokens: None,
        streamed: false,
        sticky: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_models_are_named_without_control_characters() {
        let refusal = find_models(&Catalog::default(), &["x\u{1b}[0m".to_owned()], ModelKind::Responses);
        let refusal = refusal.err().unwrap();
        assert_eq!((refusal.status, refusal.message.as_str()), (404, "Model x\\u{1b}[0m does not exist"));
    }

    #[test]
    fn an_id_that_ends_like_a_suffix_has_none() {
        let suffix = |requested: &str, id: &str| {
            summary(Purpose::Responses, requested, vec![id.to_owned(), "other/m".to_owned()]).suffix
        };
        assert_eq!(suffix("acme/m:free", "acme/m:free"), None);
        assert_eq!(suffix("acme/m:free", "acme/m").as_deref(), Some("free"));
    }
}
