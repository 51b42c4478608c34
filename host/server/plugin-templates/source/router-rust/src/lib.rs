//! The router `{{name}}`: tries the cheapest endpoint first, of those that the client lets it try.

wit_bindgen::generate!({ path: "wit", world: "plugin", generate_all });

use cofferdam::plugin::types::{ErrorKind, Failure};
use exports::cofferdam::plugin::routing::{Candidate, Decision, Guest, RequestSummary};
use serde_json::Value;

struct Router;
export!(Router);

impl Guest for Router {
    /// Orders the candidates. The same input gives the same order.
    fn route(summary: RequestSummary, candidates: Vec<Candidate>, _seed: u64) -> Result<Decision, Failure> {
        let preferences: Value = serde_json::from_slice(&summary.preferences).unwrap_or_default();
        let mut order: Vec<(u32, &Candidate)> =
            (0..).zip(&candidates).filter(|(_, candidate)| is_allowed(&preferences, candidate)).collect();
        if order.is_empty() {
            return Err(Failure {
                kind: ErrorKind::NotFound,
                message: "no endpoint can serve this request".to_owned(),
                code: None,
                retry_after_ms: None,
            });
        }
        order.sort_by(|(_, one), (_, other)| {
            let rank = one.model_rank.cmp(&other.model_rank);
            let ejected = one.statistics.ejected.cmp(&other.statistics.ejected);
            rank.then(ejected).then(cost(one).total_cmp(&cost(other)))
        });
        Ok(Decision {
            order: order.into_iter().map(|(index, _)| index).collect(),
            strategy: "cheapest".to_owned(),
            reason: "ordered by price".to_owned(),
        })
    }
}

/// Whether the client's `provider.quantizations` let this endpoint be tried. Applying this, `max_price` and the like is the
/// router's duty; the host applies `only`, `ignore`, `zdr` and `data_collection`.
fn is_allowed(preferences: &Value, candidate: &Candidate) -> bool {
    let wanted = preferences["quantizations"].as_array().filter(|wanted| !wanted.is_empty());
    wanted.is_none_or(|wanted| wanted.iter().any(|name| name == candidate.quantization.as_str()))
}

/// The price of as many input as output tokens.
fn cost(candidate: &Candidate) -> f64 {
    candidate.price.input + candidate.price.output
}
