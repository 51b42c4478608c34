//! Metrics of endpoints: one sample for each endpoint of the configuration.

use cofferdam_engine::memory::health::{BreakerPhase, EndpointKey, EndpointReading};
use cofferdam_store::OTHER;

use crate::app::App;
use crate::metrics::{Text, escape};

/// Endpoints that have samples of their own.
const SHOWN_MAX: usize = 512;

pub(super) fn write(app: &App, text: &mut Text) {
    let (live, now_ms) = (app.live(), app.clock.monotonic_ms());
    let health = live.engine.catalog().endpoints().map(|endpoint| &endpoint.health);
    let mut known: Vec<(&EndpointKey, EndpointReading)> =
        health.map(|health| (health.key(), health.reading(now_ms))).collect();
    known.sort_by_key(|(key, _)| *key);
    // The same endpoint may be configured twice with different prices.
    known.dedup_by_key(|(key, _)| *key);
    let known: Vec<(String, EndpointReading)> = folded(known);
    let mut family = |name: &str, kind: &str, help: &str, value: &dyn Fn(&EndpointReading) -> u64| {
        text.family(name, kind, help);
        for (labels, reading) in &known {
            text.sample(name, labels, value(reading));
        }
    };
    family("cofferdam_endpoint_breaker", "gauge", "0 closed, 1 half-open, 2 open", &|it| state(it.phase));
    let ejected = "1 when the endpoint is a last resort: failing, limited or far worse than its peers";
    family("cofferdam_endpoint_ejected", "gauge", ejected, &|it| u64::from(it.is_ejected));
    let requests = "Attempts of the last five minutes";
    family("cofferdam_endpoint_requests", "gauge", requests, &|it| u64::from(it.requests));
    let failures = "Attempts of the last five minutes that failed for the endpoint's own reasons";
    family("cofferdam_endpoint_failures", "gauge", failures, &|it| u64::from(it.failures));
    let openings = "How often the breaker opened";
    family("cofferdam_endpoint_breaker_openings_total", "counter", openings, &|it| it.openings);
    let outliers = "How often the endpoint was set aside for doing far worse than its peers";
    family("cofferdam_endpoint_outliers_total", "counter", outliers, &|it| it.outliers);
    let retries = "Attempts made after every endpoint of a request had failed";
    family("cofferdam_endpoint_retries_total", "counter", retries, &|it| it.retries);
    let refused = "Requests that were not tried again because too many others had been";
    text.single("cofferdam_retries_refused_total", "counter", refused, live.engine.retries_refused());
}

/// The readings with their labels. Those of endpoints beyond [`SHOWN_MAX`] are one reading: the sum
/// of their counts, and the worst of their states.
fn folded(mut known: Vec<(&EndpointKey, EndpointReading)>) -> Vec<(String, EndpointReading)> {
    let rest = known.split_off(known.len().min(SHOWN_MAX));
    let mut shown: Vec<_> = known.into_iter().map(|(key, reading)| (labels(key), reading)).collect();
    let rest = rest.into_iter().map(|(_, reading)| reading).reduce(|sum, more| EndpointReading {
        phase: if state(more.phase) > state(sum.phase) { more.phase } else { sum.phase },
        is_ejected: sum.is_ejected || more.is_ejected,
        requests: sum.requests.saturating_add(more.requests),
        failures: sum.failures.saturating_add(more.failures),
        openings: sum.openings.saturating_add(more.openings),
        outliers: sum.outliers.saturating_add(more.outliers),
        retries: sum.retries.saturating_add(more.retries),
        ..sum
    });
    let other = [OTHER; 4].map(str::to_owned);
    let [model, provider, upstream, tier] = other;
    let other = labels(&EndpointKey { model, provider, upstream, tier });
    shown.extend(rest.map(|reading| (other, reading)));
    shown
}

fn state(phase: BreakerPhase) -> u64 {
    match phase {
        BreakerPhase::Closed => 0,
        BreakerPhase::HalfOpen => 1,
        BreakerPhase::Open => 2,
    }
}

fn labels(key: &EndpointKey) -> String {
    let EndpointKey { model, provider, upstream, tier } = key;
    let [model, provider, upstream, tier] = [model, provider, upstream, tier].map(|value| escape(value));
    format!("model=\"{model}\",provider=\"{provider}\",upstream=\"{upstream}\",tier=\"{tier}\"")
}
