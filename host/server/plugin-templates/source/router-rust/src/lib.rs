//! The router `{{name}}`: tries the cheapest endpoint first.

wit_bindgen::generate!({ path: "wit", world: "plugin", generate_all });

use cofferdam::plugin::types::{ErrorKind, Failure};
use exports::cofferdam::plugin::routing::{Candidate, Decision, Guest, RequestSummary};

struct Router;
export!(Router);

impl Guest for Router {
    /// Orders the candidates. The same input gives the same order.
    fn route(_summary: RequestSummary, candidates: Vec<Candidate>, _seed: u64) -> Result<Decision, Failure> {
        if candidates.is_empty() {
            return Err(Failure {
                kind: ErrorKind::NotFound,
                message: "no endpoint can serve this request".to_owned(),
                code: None,
                retry_after_ms: None,
            });
        }
        let mut order: Vec<(u32, &Candidate)> = (0..).zip(&candidates).collect();
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

/// The price of as many input as output tokens.
fn cost(candidate: &Candidate) -> f64 {
    candidate.price.input + candidate.price.output
}
