//! What the console shows of the running host besides the documents of commands.

use cofferdam_engine::memory::health::{BreakerPhase, EndpointKey, EndpointReading};
use serde_json::{Value, json};

use crate::app::App;

/// The endpoints of the configuration with their health, in the order of their names.
pub(super) fn endpoints(app: &App) -> Value {
    let (live, now_ms) = (app.live(), app.clock.monotonic_ms());
    let health = live.engine.catalog().endpoints().map(|endpoint| &endpoint.health);
    let mut known: Vec<(&EndpointKey, EndpointReading)> =
        health.map(|health| (health.key(), health.reading(now_ms))).collect();
    known.sort_by_key(|(key, _)| *key);
    // The same endpoint may be configured twice with different prices.
    known.dedup_by_key(|(key, _)| *key);
    known.into_iter().map(|(key, reading)| endpoint(key, &reading)).collect()
}

fn endpoint(key: &EndpointKey, reading: &EndpointReading) -> Value {
    let EndpointKey { model, provider, upstream, tier } = key;
    let breaker = match reading.phase {
        BreakerPhase::Closed => "closed",
        BreakerPhase::HalfOpen => "half-open",
        BreakerPhase::Open => "open",
    };
    let measured = |value: f64| (value > 0.0).then_some(value);
    json!({
        "model": model,
        "provider": provider,
        "upstream": upstream,
        "tier": tier,
        "breaker": breaker,
        "open_for_s": seconds(reading.open_for_ms),
        "limited_for_s": seconds(reading.limited_for_ms),
        "ejected": reading.is_ejected,
        "requests": reading.requests,
        "failures": reading.failures,
        "openings": reading.openings,
        "outliers": reading.outliers,
        "retries": reading.retries,
        "failed_ago_s": reading.failed_ago_ms.map(seconds),
        "first_content_ms": measured(reading.first_content_ms),
        "whole_ms": measured(reading.whole_ms),
        "tokens_per_second": measured(reading.tokens_per_second),
    })
}

/// A time in whole seconds, rounded up.
fn seconds(ms: u64) -> u64 {
    ms.div_ceil(1000)
}

/// Requests of the last hour by minute.
pub(super) fn traffic(app: &App) -> Value {
    json!({"minutes": app.traffic.minutes(app.clock.now_ms())})
}
