//! Tests of the rules as tables: endpoints are named after their provider, and an expected order is a
//! list of names.

mod classes;
mod properties;
mod shares;

use cofferdam_guest_kit::bindings::routing::{
    Candidate, Decision, Percentiles, Price, Purpose, RequestSummary, Statistics,
};
use cofferdam_guest_kit::bindings::types::{ErrorKind, Failure};

use crate::route;

const ZERO: Percentiles = Percentiles { p50: 0.0, p75: 0.0, p90: 0.0, p99: 0.0 };

/// A price of input and output tokens.
pub(crate) fn price(input: f64, output: f64) -> Price {
    Price { input, output, cached_input: 0.0, cache_write: 0.0, reasoning: 0.0, image: 0.0 }
}

/// A healthy default endpoint of the first model, with half of `price` for input and for output.
pub(crate) fn candidate(provider: &str, price: f64) -> Candidate {
    Candidate {
        model: "m".into(),
        model_rank: 0,
        provider: provider.into(),
        tier: "default".into(),
        price: self::price(price / 2.0, price / 2.0),
        context_length: 0,
        max_output: 0,
        supports: Vec::new(),
        quantization: "unknown".into(),
        zdr: false,
        data_collection: false,
        byok: false,
        statistics: Statistics {
            latency_ms: ZERO,
            throughput: ZERO,
            requests: 0,
            failures: 0,
            outage: false,
            ejected: false,
        },
    }
}

fn with(provider: &str, price: f64, change: fn(&mut Candidate)) -> Candidate {
    let mut candidate = candidate(provider, price);
    change(&mut candidate);
    candidate
}

pub(crate) fn summary(preferences: &str) -> RequestSummary {
    RequestSummary {
        purpose: Purpose::Responses,
        requested: "m".into(),
        models: vec!["m".into()],
        suffix: None,
        preferences: preferences.as_bytes().to_vec(),
        route: None,
        service_tier: "auto".into(),
        parameters: Vec::new(),
        needs: Vec::new(),
        input_tokens: 10,
        max_output_tokens: None,
        streamed: false,
        sticky: None,
    }
}

fn refusal(request: &RequestSummary, candidates: &[Candidate]) -> String {
    match route(request, candidates, 1) {
        Err(failure) if failure.kind == ErrorKind::NotFound => failure.message,
        other => panic!("{other:?}"),
    }
}

fn names(summary: &RequestSummary, candidates: &[Candidate]) -> String {
    names_of(route(summary, candidates, 7), candidates)
}

fn names_of(decision: Result<Decision, Failure>, candidates: &[Candidate]) -> String {
    let order = decision.expect("an order").order;
    let names: Vec<&str> = order.iter().map(|index| candidates[*index as usize].provider.as_str()).collect();
    names.join(" ")
}

#[test]
fn order_only_ignore_and_fallbacks_are_honoured() {
    // An endpoint that is a thousand times dearer is drawn last with this seed.
    let candidates = [candidate("a", 1.0), candidate("b", 1000.0), candidate("c", 1_000_000.0)];
    let cases = [
        ("{}", "a b c"),
        (r#"{"order":["c","b"]}"#, "c b a"),
        (r#"{"order":["C"]}"#, "c a b"),
        (r#"{"order":[]}"#, "a b c"),
        (r#"{"order":["x","b"]}"#, "b a c"),
        (r#"{"only":["b","c"]}"#, "b c"),
        (r#"{"ignore":["a"]}"#, "b c"),
        (r#"{"only":["a","b"],"ignore":["a"]}"#, "b"),
        (r#"{"allow_fallbacks":false}"#, "a"),
        (r#"{"order":["b","c"],"allow_fallbacks":false}"#, "b"),
        (r#"{"sort":"price"}"#, "a b c"),
        (r#"{"order":["b"],"sort":"price"}"#, "b a c"),
    ];
    for (preferences, expected) in cases {
        assert_eq!(names(&summary(preferences), &candidates), expected, "{preferences}");
    }
}

#[test]
fn tier_slugs_choose_single_endpoints() {
    let candidates =
        [candidate("openai", 1.0), with("openai", 2.0, |c| c.tier = "priority".into()), candidate("b", 9.0)];
    let order = |preferences: &str| route(&summary(preferences), &candidates, 1).unwrap().order;
    assert_eq!(order(r#"{"order":["openai/priority","b"]}"#), [1, 2, 0]);
    assert_eq!(order(r#"{"only":["openai/priority"]}"#), [1]);
    assert_eq!(order(r#"{"only":["openai"]}"#), [0, 1]);
    assert_eq!(order(r#"{"ignore":["openai/default"],"sort":"price"}"#), [2, 1]);
}

#[test]
fn nothing_allowed_is_not_found_and_says_why() {
    let candidates = [candidate("a", 1.0), candidate("b", 2.0)];
    let cases = [
        (r#"{"only":["x"]}"#, "of 2 endpoints, provider.only 2 excluded"),
        (
            r#"{"enforce_distillable_text":true}"#,
            "of 2 endpoints, provider.enforce_distillable_text 2 excluded",
        ),
        (r#"{"ignore":["a"],"zdr":true}"#, "of 2 endpoints, provider.ignore 1, provider.zdr 1 excluded"),
        (r#"{"order":["x"],"allow_fallbacks":false}"#, "provider.order 2"),
        (r#"{"max_price":{"prompt":0.1}}"#, "provider.max_price 2"),
        (r#"{"quantizations":["fp8"]}"#, "provider.quantizations 2"),
    ];
    for (preferences, expected) in cases {
        let message = refusal(&summary(preferences), &candidates);
        assert!(message.starts_with("No allowed providers"), "{message}");
        assert!(message.contains(expected), "{message}");
    }
    assert!(route(&summary("{}"), &[], 1).is_err());
    let mut pinned = summary("{}");
    pinned.service_tier = "default".into();
    let message = refusal(&pinned, &[with("a", 1.0, |c| c.tier = "flex".into())]);
    assert!(message.contains("service_tier 1"), "{message}");
    let mut free = summary("{}");
    free.suffix = Some("free".into());
    assert!(refusal(&free, &candidates).contains("the suffix :free 2 excluded"));
}

#[test]
fn malformed_preferences_are_invalid_requests() {
    let Err(malformed) = route(&summary(r#"{"zdr":7}"#), &[candidate("a", 1.0)], 1) else {
        panic!("not refused");
    };
    assert_eq!(malformed.message, "provider.zdr must be true or false");
}

#[test]
fn hard_constraints_remove() {
    let candidates = [
        with("zdr", 1.0, |c| c.zdr = true),
        with("collects", 1.0, |c| c.data_collection = true),
        with("fp8", 1.0, |c| c.quantization = "fp8".into()),
        with("tools", 1.0, |c| c.supports = vec!["tools".into(), "temperature".into()]),
        with("dear", 100.0, |c| c.price.image = 3.0),
    ];
    let cases = [
        (r#"{"zdr":true}"#, "zdr"),
        (r#"{"quantizations":["FP8","int4"]}"#, "fp8"),
        (r#"{"require_parameters":true}"#, "tools"),
        (r#"{"max_price":{"completion":"10"},"ignore":["zdr","collects","fp8"]}"#, "tools"),
        (r#"{"max_price":{"image":1},"only":["dear","fp8"]}"#, "fp8"),
        (r#"{"data_collection":"deny","only":["collects","zdr"]}"#, "zdr"),
        (r#"{"data_collection":"allow","only":["collects"]}"#, "collects"),
    ];
    for (preferences, expected) in cases {
        let mut summary = summary(preferences);
        summary.parameters =
            ["tools", "tool_choice", "temperature", "input", "metadata"].map(str::to_owned).into();
        assert_eq!(names(&summary, &candidates), expected, "{preferences}");
    }
}

#[test]
fn required_parameters_must_be_stated_by_the_endpoint() {
    let stating = |provider: &str, supports: &[&str]| {
        let mut endpoint = candidate(provider, 1.0);
        endpoint.supports = supports.iter().map(|&name| name.to_owned()).collect();
        endpoint
    };
    let candidates = [
        stating("silent", &[]),
        stating("json", &["structured_output", "tools"]),
        stating("vectors", &["dimensions", "input_type"]),
        stating("cache", &["cache_control", "text", "tool_choice"]),
    ];
    let cases: [(&[&str], &str); 6] = [
        (&["max_output_tokens", "truncation"], "all"),
        (&["text"], "json cache"),
        (&["tool_choice"], "json cache"),
        (&["parallel_tool_calls"], "json"),
        (&["dimensions", "input_type"], "vectors"),
        (&["cache_control"], "cache"),
    ];
    for (parameters, expected) in cases {
        let mut request = summary(r#"{"require_parameters":true,"sort":"price"}"#);
        request.parameters = parameters.iter().map(|&name| name.to_owned()).collect();
        let expected = if expected == "all" { "silent json vectors cache" } else { expected };
        assert_eq!(names(&request, &candidates), expected, "{parameters:?}");
    }
}

#[test]
fn models_are_tried_in_order_unless_sorted_together() {
    let second = |provider, price| with(provider, price, |c| c.model_rank = 1);
    let candidates = [second("cheap", 1.0), candidate("dear", 9.0), candidate("mid", 3.0)];
    let cases = [
        (r#"{"sort":"price"}"#, None, "mid dear cheap"),
        (r#"{"sort":{"by":"price","partition":"model"}}"#, None, "mid dear cheap"),
        (r#"{"sort":{"by":"price","partition":"none"}}"#, None, "cheap mid dear"),
        (r#"{"sort":"price"}"#, Some("sort"), "cheap mid dear"),
        (r#"{"sort":"price"}"#, Some("fallback"), "mid dear cheap"),
        (r#"{"sort":{"by":"price","partition":"model"}}"#, Some("sort"), "mid dear cheap"),
        (r#"{"order":["cheap"]}"#, None, "mid dear cheap"),
    ];
    for (preferences, route, expected) in cases {
        let mut summary = summary(preferences);
        summary.models = vec!["m".into(), "n".into()];
        summary.route = route.map(str::to_owned);
        assert_eq!(names(&summary, &candidates), expected, "{preferences} {route:?}");
    }
}

#[test]
fn the_free_suffix_keeps_free_endpoints() {
    let mut summary = summary("{}");
    summary.suffix = Some("free".into());
    let candidates = [candidate("paid", 1.0), candidate("free", 0.0)];
    let decision = route(&summary, &candidates, 1).unwrap();
    assert_eq!((decision.order.as_slice(), decision.strategy.as_str()), (&[1][..], "free"));
    // A fallback has a name and a suffix of its own.
    summary.models = vec!["m".into(), "n".into()];
    let candidates = [candidate("paid", 1.0), with("fallback", 1.0, |c| c.model_rank = 1)];
    assert_eq!(names(&summary, &candidates), "fallback");
    // If a router chose both models, the suffix applies to both.
    summary.requested = "service/auto".into();
    assert!(refusal(&summary, &candidates).contains("the suffix :free 2 excluded"));
}

#[test]
fn the_same_seed_gives_the_same_order() {
    let candidates: Vec<Candidate> = (0..20).map(|i| candidate("p", f64::from(i))).collect();
    let order = |seed| route(&summary("{}"), &candidates, seed).unwrap().order;
    assert_eq!(order(3), order(3));
    assert!((0..20).any(|seed| order(seed) != order(seed + 1)));
    let mut sorted = order(5);
    sorted.sort_unstable();
    assert_eq!(sorted, (0..20).collect::<Vec<u32>>());
}
