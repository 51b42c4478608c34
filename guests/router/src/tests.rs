//! The rules as tables: endpoints are named by their provider, and an expected
//! order is the list of names.

use super::Router;
use super::bindings::cofferdam::plugin::types::{ErrorKind, Failure};
use super::bindings::exports::cofferdam::plugin::routing::{
    Candidate, Decision, Guest, Percentiles, Price, Purpose, RequestSummary, Statistics,
};

const ZERO: Percentiles = Percentiles { p50: 0.0, p75: 0.0, p90: 0.0, p99: 0.0 };

/// A healthy default endpoint of model `m` with half of `price` for each direction.
pub(crate) fn candidate(provider: &str, price: f64) -> Candidate {
    Candidate {
        model: "m".into(),
        model_rank: 0,
        provider: provider.into(),
        tier: "default".into(),
        price: Price {
            input: price / 2.0,
            output: price / 2.0,
            cached_input: 0.0,
            cache_write: 0.0,
            reasoning: 0.0,
            image: 0.0,
        },
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
        needs: Vec::new(),
        input_tokens: 10,
        max_output_tokens: None,
        streamed: false,
        sticky: None,
    }
}

fn route(summary: &RequestSummary, candidates: &[Candidate], seed: u64) -> Result<Decision, Failure> {
    Router::route(summary.clone(), candidates.to_vec(), seed)
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
    // A thousand times dearer is drawn last with this seed.
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
        (r#"{"ignore":["a"],"zdr":true}"#, "of 2 endpoints, provider.ignore 1, provider.zdr 1 excluded"),
        (r#"{"order":["x"],"allow_fallbacks":false}"#, "provider.order 2"),
        (r#"{"max_price":{"prompt":0.1}}"#, "provider.max_price 2"),
        (r#"{"quantizations":["fp8"]}"#, "provider.quantizations 2"),
    ];
    for (preferences, expected) in cases {
        let failure = route(&summary(preferences), &candidates, 1).unwrap_err();
        assert!(matches!(failure.kind, ErrorKind::NotFound), "{preferences}");
        assert!(failure.message.starts_with("No allowed providers"), "{}", failure.message);
        assert!(failure.message.contains(expected), "{}", failure.message);
    }
    assert!(route(&summary("{}"), &[], 1).is_err());
    let mut pinned = summary("{}");
    pinned.service_tier = "default".into();
    let failure = route(&pinned, &[with("a", 1.0, |c| c.tier = "flex".into())], 1).unwrap_err();
    assert!(failure.message.contains("service_tier 1"), "{}", failure.message);
}

#[test]
fn malformed_preferences_are_invalid_requests() {
    let failure = route(&summary(r#"{"sort":"best"}"#), &[candidate("a", 1.0)], 1).unwrap_err();
    assert!(matches!(failure.kind, ErrorKind::InvalidRequest));
    assert_eq!(failure.message, "provider.sort is malformed");
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
fn sorts_compare_one_figure_and_put_the_unmeasured_last() {
    let candidates = [
        with("slow", 1.0, |c| (c.statistics.latency_ms.p50, c.statistics.throughput.p50) = (900.0, 10.0)),
        with("fast", 5.0, |c| (c.statistics.latency_ms.p50, c.statistics.throughput.p50) = (100.0, 90.0)),
        candidate("new", 3.0),
        with("flaky", 2.0, |c| (c.statistics.requests, c.statistics.failures) = (10, 5)),
    ];
    let cases = [
        (r#"{"sort":"price"}"#, None, "slow flaky new fast"),
        (r#"{"sort":{"by":"throughput"}}"#, None, "fast slow flaky new"),
        (r#"{"sort":"latency"}"#, None, "fast slow flaky new"),
        (r#"{"sort":"exacto"}"#, None, "slow new fast flaky"),
        ("{}", Some("nitro"), "fast slow flaky new"),
        ("{}", Some("floor"), "slow flaky new fast"),
        (r#"{"sort":"price"}"#, Some("nitro"), "slow flaky new fast"),
    ];
    for (preferences, suffix, expected) in cases {
        let mut summary = summary(preferences);
        summary.suffix = suffix.map(str::to_owned);
        assert_eq!(names(&summary, &candidates), expected, "{preferences} {suffix:?}");
    }
}

#[test]
fn endpoints_in_trouble_come_later() {
    let candidates = [
        with("open", 0.0, |c| c.statistics.ejected = true),
        with("out", 0.0, |c| c.statistics.outage = true),
        candidate("well", 1000.0),
    ];
    assert_eq!(names(&summary("{}"), &candidates), "well out open");
    assert_eq!(names(&summary(r#"{"sort":"price"}"#), &candidates), "out well open");
    assert_eq!(names(&summary(r#"{"order":["open","out"]}"#), &candidates), "out well open");
    assert_eq!(names(&summary(r#"{"only":["open"]}"#), &candidates), "open");
}

#[test]
fn endpoints_that_cannot_carry_the_request_come_last() {
    let candidates = [
        with("short", 0.0, |c| c.context_length = 5),
        with("terse", 0.0, |c| c.max_output = 50),
        with("plain", 0.0, |c| c.supports = vec!["temperature".into()]),
        candidate("silent", 1.0),
        with("able", 9999.0, |c| {
            (c.supports, c.context_length, c.max_output) = (vec!["tools".into()], 10, 100)
        }),
    ];
    let mut summary = summary("{}");
    summary.needs = vec!["tools".into()];
    summary.max_output_tokens = Some(100);
    let order = names(&summary, &candidates);
    assert!(order.starts_with("silent able "), "{order}");
}

#[test]
fn preferred_speeds_move_misses_to_the_end() {
    let candidates = [
        with("slow", 0.0, |c| (c.statistics.latency_ms.p90, c.statistics.throughput.p50) = (4000.0, 10.0)),
        with("fast", 9.0, |c| (c.statistics.latency_ms.p90, c.statistics.throughput.p50) = (1000.0, 90.0)),
    ];
    for preferences in [
        r#"{"preferred_min_throughput":50}"#,
        r#"{"preferred_max_latency":{"p90":2}}"#,
        r#"{"preferred_min_throughput":{"p50":50},"sort":"price"}"#,
    ] {
        assert_eq!(names(&summary(preferences), &candidates), "fast slow", "{preferences}");
    }
    assert_eq!(names(&summary(r#"{"preferred_max_latency":3}"#), &candidates), "slow fast");
}

#[test]
fn models_are_tried_in_order_unless_sorted_together() {
    let second = |provider, price| with(provider, price, |c| (c.model, c.model_rank) = ("n".into(), 1));
    let candidates = [second("cheap", 1.0), candidate("dear", 9.0), candidate("mid", 3.0)];
    let cases = [
        (r#"{"sort":"price"}"#, None, "mid dear cheap"),
        (r#"{"sort":{"by":"price","partition":"model"}}"#, None, "mid dear cheap"),
        (r#"{"sort":{"by":"price","partition":"none"}}"#, None, "cheap mid dear"),
        (r#"{"sort":"price"}"#, Some("sort"), "cheap mid dear"),
        (r#"{"sort":"price"}"#, Some("fallback"), "mid dear cheap"),
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
    assert_eq!((decision.order.as_slice(), &*decision.strategy), (&[1][..], "free"));
}

#[test]
fn service_tiers_have_their_order() {
    let candidates = [
        candidate("standard", 2.0),
        with("flex", 1.0, |c| c.tier = "flex".into()),
        with("priority", 9.0, |c| (c.tier, c.statistics.throughput.p50) = ("priority".into(), 50.0)),
        with("faster", 99.0, |c| (c.tier, c.statistics.throughput.p50) = ("priority".into(), 70.0)),
    ];
    let order = |tier: &str| {
        let mut summary = summary("{}");
        summary.service_tier = tier.into();
        names(&summary, &candidates)
    };
    assert_eq!(order("default"), "standard");
    assert_eq!(order("flex"), "flex");
    assert!(order("auto").starts_with("standard "));
    assert!(order("priority").starts_with("faster priority "));
    assert!(order("ultrafast").ends_with("standard flex"));
}

#[test]
fn a_session_stays_where_it_was() {
    let candidates =
        [candidate("cheap", 0.0), candidate("warm", 50.0), with("out", 0.0, |c| c.statistics.outage = true)];
    let order = |preferences: &str, sticky| {
        let mut summary = summary(preferences);
        summary.sticky = Some(sticky);
        names(&summary, &candidates)
    };
    assert_eq!(order("{}", 1), "warm cheap out");
    assert_eq!(order(r#"{"allow_fallbacks":false}"#, 1), "warm");
    assert_eq!(order(r#"{"order":["cheap"]}"#, 1), "cheap out warm");
    assert_eq!(order(r#"{"ignore":["warm"]}"#, 1), "cheap out");
    assert_eq!(order("{}", 2), "cheap warm out");
    assert_eq!(order("{}", 99), "cheap warm out");
}

#[test]
fn a_credential_of_ones_own_comes_first() {
    let candidates = [candidate("shared", 0.0), with("own", 50.0, |c| c.byok = true)];
    assert_eq!(names(&summary("{}"), &candidates), "own shared");
    assert_eq!(names(&summary(r#"{"sort":"price"}"#), &candidates), "shared own");
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

/// How often each candidate is first in 20,000 draws with the seeds 0 to 19,999.
fn shares(candidates: &[Candidate]) -> Vec<f64> {
    let draws = 20_000;
    let mut counts = vec![0_u32; candidates.len()];
    for seed in 0..draws {
        counts[route(&summary("{}"), candidates, seed).unwrap().order[0] as usize] += 1;
    }
    counts.into_iter().map(|count| f64::from(count) / draws as f64).collect()
}

fn assert_shares(candidates: &[Candidate], expected: &[f64]) {
    let measured = shares(candidates);
    for (share, expected) in measured.iter().zip(expected) {
        // Four standard deviations of 20,000 draws are at most 0.0142.
        assert!((share - expected).abs() < 0.0142, "{measured:?} instead of {expected}");
    }
}

#[test]
fn shares_follow_the_inverse_square_of_price() {
    let priced = |prices: &[f64]| prices.iter().map(|price| candidate("p", *price)).collect::<Vec<_>>();
    assert_shares(&priced(&[1.0, 3.0]), &[0.9, 0.1]);
    assert_shares(&priced(&[1.0, 2.0, 4.0]), &[16.0 / 21.0, 4.0 / 21.0, 1.0 / 21.0]);
    assert_shares(&priced(&[0.3, 0.3, 0.3, 0.3]), &[0.25; 4]);
    assert_shares(&priced(&[0.0, 0.0, 1.0]), &[0.5, 0.5, 0.0]);
    assert_shares(&priced(&[1e-300, 1e300, f64::NAN]), &[1.0, 0.0, 0.0]);
    assert_shares(&priced(&[f64::INFINITY, f64::INFINITY]), &[0.5, 0.5]);
}

#[test]
fn the_second_place_is_drawn_by_price_too() {
    let candidates = [candidate("first", 0.0), candidate("a", 1.0), candidate("b", 3.0)];
    let second =
        (0..20_000).filter(|seed| route(&summary("{}"), &candidates, *seed).unwrap().order[1] == 1).count();
    assert!((17_716..18_284).contains(&second), "{second}");
}
