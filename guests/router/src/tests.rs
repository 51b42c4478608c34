//! Tests of the conversion between the contract and the rules.

use cofferdam_guest_kit::bindings::routing::{
    Candidate, Decision, Guest, Percentiles, Price, Purpose, RequestSummary, Statistics,
};
use cofferdam_guest_kit::bindings::types::{ErrorKind, Failure};

use super::Router;

fn candidate(provider: &str, change: fn(&mut Candidate)) -> Candidate {
    let zero = Percentiles { p50: 0.0, p75: 0.0, p90: 0.0, p99: 0.0 };
    let price =
        Price { input: 1.0, output: 1.0, cached_input: 1.0, cache_write: 1.0, reasoning: 1.0, image: 0.0 };
    let mut candidate = Candidate {
        model: "m".into(),
        model_rank: 0,
        provider: provider.into(),
        tier: "default".into(),
        price,
        context_length: 0,
        max_output: 0,
        supports: Vec::new(),
        quantization: "unknown".into(),
        zdr: false,
        data_collection: false,
        byok: false,
        statistics: Statistics {
            latency_ms: zero,
            throughput: zero,
            requests: 0,
            failures: 0,
            outage: false,
            ejected: false,
        },
    };
    change(&mut candidate);
    candidate
}

fn summary(preferences: &str) -> RequestSummary {
    RequestSummary {
        purpose: Purpose::Responses,
        requested: "m".into(),
        models: vec!["m".into()],
        suffix: None,
        preferences: preferences.as_bytes().to_vec(),
        route: None,
        service_tier: "auto".into(),
        parameters: Vec::new(),
        needs: vec!["tools".into()],
        input_tokens: 50,
        max_output_tokens: Some(50),
        streamed: false,
        sticky: None,
    }
}

fn route(preferences: &str, candidates: &[Candidate]) -> Result<Decision, Failure> {
    Router::route(summary(preferences), candidates.to_vec(), 7)
}

#[test]
fn every_field_reaches_the_rules() {
    // The difference of `b` from `a`, and the expected order; 0 is `a`, 1 is `b`.
    type Row = (&'static str, fn(&mut Candidate), &'static [u32]);
    let rows: [Row; 18] = [
        (r#"{"sort":"price"}"#, |_| {}, &[0, 1]),
        (r#"{"sort":"price"}"#, |b| b.price.input = 0.1, &[1, 0]),
        (r#"{"sort":"price"}"#, |b| b.price.output = 0.1, &[1, 0]),
        (r#"{"max_price":{"image":1}}"#, |b| b.price.image = 2.0, &[0]),
        (r#"{"sort":"exacto"}"#, |b| b.statistics.requests = 100, &[1, 0]),
        (r#"{"sort":"exacto"}"#, |b| b.statistics.failures = 1, &[0, 1]),
        (r#"{"sort":"latency"}"#, |b| b.statistics.latency_ms.p50 = 10.0, &[1, 0]),
        (r#"{"sort":"throughput"}"#, |b| b.statistics.throughput.p50 = 10.0, &[1, 0]),
        (r#"{"preferred_max_latency":{"p75":1,"p90":1,"p99":1}}"#, slow, &[0, 1]),
        (r#"{"require_parameters":true}"#, |b| b.supports = vec!["tools".into()], &[1]),
        (r#"{"quantizations":["fp8"]}"#, |b| b.quantization = "fp8".into(), &[1]),
        (r#"{"zdr":true}"#, |b| b.zdr = true, &[1]),
        (r#"{"data_collection":"deny"}"#, |b| b.data_collection = true, &[0]),
        (r#"{"order":["b/flex"]}"#, |b| b.tier = "flex".into(), &[1, 0]),
        ("{}", |b| b.byok = true, &[1, 0]),
        ("{}", |b| b.statistics.outage = true, &[0, 1]),
        ("{}", |b| (b.context_length, b.max_output) = (99, 50), &[0, 1]),
        ("{}", |b| (b.context_length, b.max_output) = (100, 49), &[0, 1]),
    ];
    for (row, (preferences, change, expected)) in rows.into_iter().enumerate() {
        let answer = route(preferences, &[candidate("a", |_| {}), candidate("b", change)]);
        assert_eq!(answer.unwrap().order, expected, "row {row}: {preferences}");
    }
    let mut later = candidate("a", |a| a.model_rank = 1);
    assert_eq!(route("{}", &[later.clone(), candidate("b", |_| {})]).unwrap().order, [1, 0]);
    later.statistics.ejected = true;
    assert_eq!(route("{}", &[later]).unwrap().order, [0]);
}

#[test]
fn a_suffix_on_a_router_applies_to_every_chosen_model() {
    let fallback = |candidate: &mut Candidate| candidate.model_rank = 1;
    let routed = |requested: &str| {
        let mut summary = summary(r#"{"sort":"price"}"#);
        summary.requested = requested.into();
        (summary.models, summary.suffix) = (vec!["a/m".into(), "a/n".into()], Some("free".into()));
        Router::route(summary, vec![candidate("a", |_| {}), candidate("b", fallback)], 7)
    };
    assert_eq!(routed("a/m:free").unwrap().order, [1]);
    assert!(routed("service/auto:free").is_err());
}

fn slow(candidate: &mut Candidate) {
    let latency = &mut candidate.statistics.latency_ms;
    (latency.p75, latency.p90, latency.p99) = (500.0, 1000.0, 1000.1);
}

#[test]
fn refusals_are_failures_for_the_client() {
    let failure = route(r#"{"zdr":7}"#, &[candidate("a", |_| {})]).unwrap_err();
    assert!(matches!(failure.kind, ErrorKind::InvalidRequest));
    assert_eq!(failure.message, "provider.zdr must be true or false");
    let failure = route(r#"{"zdr":true}"#, &[candidate("a", |_| {})]).unwrap_err();
    assert!(matches!(failure.kind, ErrorKind::NotFound));
    assert!(failure.message.ends_with("of 1 endpoints, provider.zdr 1 excluded"), "{}", failure.message);
}

#[test]
fn a_decision_says_how_and_why() {
    let decision = route("{}", &[candidate("a", |_| {})]).unwrap();
    assert_eq!((decision.order, decision.strategy.as_str()), (vec![0], "direct"));
    assert_eq!(decision.reason, "all endpoints allowed, drawn by the inverse square of price");
}
