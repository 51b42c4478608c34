//! The router `router-reliable`: tries the cheapest endpoint that rarely fails first.
//!
//! It shows what a router gets: prices, and what the host has measured at each endpoint.

use cofferdam_guest_kit::bindings::config;
use cofferdam_guest_kit::bindings::routing::{Candidate, Decision, Guest, RequestSummary};
use cofferdam_guest_kit::bindings::types::{ErrorKind, Failure};
use serde_json::Value;

/// The share of failed requests beyond which an endpoint comes last, unless the operator sets
/// `failures_max` in `[plugins.NAME.config]`.
const FAILURES_MAX: f64 = 0.1;
/// With fewer requests than this, the share of failures says nothing.
const REQUESTS_MIN: u32 = 10;

struct Reliable;
cofferdam_guest_kit::export!(router: Reliable, "wit", "plugin");

impl Guest for Reliable {
    /// Orders the candidates. The same input gives the same order.
    fn route(summary: RequestSummary, candidates: Vec<Candidate>, _seed: u64) -> Result<Decision, Failure> {
        let preferences: Value = serde_json::from_slice(&summary.preferences).unwrap_or_default();
        let mut order: Vec<(u32, &Candidate)> =
            (0..).zip(&candidates).filter(|(_, candidate)| is_allowed(&preferences, candidate)).collect();
        if order.is_empty() {
            return Err(Failure::new(ErrorKind::NotFound, "no endpoint can serve this request"));
        }
        let settings: Value = serde_json::from_slice(&config::settings()).unwrap_or_default();
        let failures_max = settings["failures_max"].as_f64().unwrap_or(FAILURES_MAX);
        // The client's first model comes first, whatever it costs.
        order.sort_by(|(_, one), (_, other)| {
            let rank = one.model_rank.cmp(&other.model_rank);
            let failing = fails_often(one, failures_max).cmp(&fails_often(other, failures_max));
            rank.then(failing).then(price(one).total_cmp(&price(other)))
        });
        let passed_over = order.iter().filter(|(_, candidate)| fails_often(candidate, failures_max)).count();
        Ok(Decision {
            order: order.into_iter().map(|(index, _)| index).collect(),
            strategy: "reliable".to_owned(),
            reason: format!("ordered by price; {passed_over} endpoints that fail often come last"),
        })
    }
}

/// Whether the client's `provider.quantizations` let this endpoint be tried. Applying this, `max_price` and the like is the
/// router's duty; the host applies `only`, `ignore`, `zdr` and `data_collection`.
fn is_allowed(preferences: &Value, candidate: &Candidate) -> bool {
    let wanted = preferences["quantizations"].as_array().filter(|wanted| !wanted.is_empty());
    wanted.is_none_or(|wanted| wanted.iter().any(|name| name == candidate.quantization.as_str()))
}

fn fails_often(candidate: &Candidate, failures_max: f64) -> bool {
    let measured = &candidate.statistics;
    let failures = f64::from(measured.failures) > failures_max * f64::from(measured.requests);
    measured.ejected || measured.outage || (measured.requests >= REQUESTS_MIN && failures)
}

/// The price of as many input as output tokens.
fn price(candidate: &Candidate) -> f64 {
    candidate.price.input + candidate.price.output
}
