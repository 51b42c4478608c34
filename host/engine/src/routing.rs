//! From the models that a request names to the endpoints that are tried, in order: the host lists
//! the candidates, the router guest orders them.

pub(crate) mod model_choice;

use crate::catalog::{Catalog, Endpoint, Model, ModelKind, ROUTER_VENDORS, split_suffix};
use crate::credential::Credentials;
use crate::refusal::{Refusal, printable};
use crate::trace::RoutingTrace;
use cofferdam_runtime::wire::{Candidate, Purpose, RequestSummary};
use cofferdam_runtime::{CallContext, Plugin};
use std::sync::Arc;

/// Finds the models a request names.
///
/// # Errors
/// 404 naming an unknown model; 400 for a model of the other kind.
pub(crate) fn find_models(
    catalog: &Catalog,
    slugs: &[String],
    kind: ModelKind,
) -> Result<Vec<Arc<Model>>, Refusal> {
    let mut models: Vec<Arc<Model>> = Vec::with_capacity(slugs.len());
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
        if !models.iter().any(|known| known.id == model.id) {
            models.push(Arc::clone(model));
        }
    }
    Ok(models)
}

fn unknown_model(catalog: &Catalog, slug: &str) -> Refusal {
    let vendor = slug.split_once('/').map_or("", |(vendor, _)| vendor);
    if ROUTER_VENDORS.contains(&vendor) {
        let slug = printable(slug);
        return Refusal::not_found(format!("Model {slug} is not available on this host"));
    }
    Refusal::not_found(catalog.unknown(slug))
}

/// The inputs of one routing decision.
pub(crate) struct RouteInputs<'a> {
    pub(crate) router: &'a Arc<Plugin>,
    pub(crate) credentials: Credentials<'a>,
    pub(crate) context: &'a CallContext,
    pub(crate) summary: RequestSummary,
    /// Whether more than the first endpoint may be tried.
    pub(crate) allow_fallbacks: bool,
    /// The endpoint that answered this conversation last, by the id of its health.
    pub(crate) remembered: Option<u64>,
    /// Whether routers learn which endpoints to try last.
    pub(crate) eject: bool,
    /// Milliseconds of the monotonic clock, for the health of endpoints.
    pub(crate) now_ms: u64,
    pub(crate) seed: u64,
}

/// Every endpoint of `models` that `serves` accepts, with the index of its model.
pub(crate) fn candidates(
    models: &[Arc<Model>],
    serves: impl Fn(&Endpoint) -> bool,
) -> Vec<(u32, Arc<Endpoint>)> {
    let ranked = models.iter().zip(0u32..);
    ranked
        .flat_map(|(model, rank)| model.endpoints.iter().map(move |endpoint| (rank, Arc::clone(endpoint))))
        .filter(|(_, endpoint)| serves(endpoint))
        .collect()
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
    /// Whether the caller had a credential of its own for this endpoint when the request was
    /// routed.
    pub(crate) fn is_byok(&self, endpoint: &Endpoint) -> bool {
        let mut byok = self.byok.iter().filter_map(|place| self.endpoints.get(*place));
        byok.any(|own| std::ptr::eq(Arc::as_ptr(own), endpoint))
    }
}

impl RouteInputs<'_> {
    /// The candidates in the form that the router gets.
    async fn describe(&self, candidates: &[(u32, Arc<Endpoint>)]) -> Vec<Candidate> {
        let mut described = Vec::with_capacity(candidates.len());
        for (rank, endpoint) in candidates {
            let byok = self.credentials.has_byok(&endpoint.provider).await;
            let mut statistics = endpoint.health.statistics(self.now_ms, self.summary.streamed);
            statistics.ejected &= self.eject;
            let candidate = endpoint.candidate.clone();
            described.push(Candidate { model_rank: *rank, byok, statistics, ..candidate });
        }
        described
    }

    /// The index of the endpoint that answered this conversation last.
    fn sticky(&self, candidates: &[(u32, Arc<Endpoint>)]) -> Option<u32> {
        let remembered = self.remembered?;
        let places = candidates.iter().zip(0..);
        places.filter(|((_, endpoint), _)| endpoint.health.id() == remembered).map(|(_, place)| place).next()
    }

    /// Lets the router guest order the candidates, and records the order in the routing trace.
    pub(crate) async fn order(
        mut self,
        candidates: Vec<(u32, Arc<Endpoint>)>,
        trace: &mut RoutingTrace,
    ) -> Result<Order, Refusal> {
        trace.total = candidates.len();
        self.summary.sticky = self.sticky(&candidates);
        let described = self.describe(&candidates).await;
        let answer = self.router.route(self.context, &self.summary, &described, self.seed).await;
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
        // The guest returns indexes. Those out of range are ignored.
        let ordered = decision.order.iter().filter_map(|place| {
            let place = *place as usize;
            candidates.get(place).zip(described.get(place))
        });
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
        trace.available = order
            .iter()
            .map(|endpoint| (endpoint.candidate.model.clone(), endpoint.provider.name.clone()))
            .collect();
        if order.is_empty() {
            return Err(Refusal::not_found("No endpoints found that match the provider preferences"));
        }
        Ok(Order { endpoints: order, byok })
    }
}

/// The fields of the summary that are the same for responses and embeddings.
///
/// `requested` is the first model as the client wrote it.
pub(crate) fn summary(purpose: Purpose, requested: &str, models: &[Arc<Model>]) -> RequestSummary {
    let suffix = split_suffix(requested).1.map(str::to_owned);
    RequestSummary {
        purpose,
        models: models.iter().map(|model| model.id.clone()).collect(),
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
}
