//! Tests of the order of classes: health, fit, speed, tier, session.

use super::{Candidate, RequestSummary, candidate, names, summary, with};

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
            (c.supports, c.context_length, c.max_output) = (vec!["tools".into()], 110, 100)
        }),
    ];
    let mut summary = summary("{}");
    summary.needs = vec!["tools".into()];
    summary.max_output_tokens = Some(100);
    let order = names(&summary, &candidates);
    assert!(order.starts_with("silent able "), "{order}");
}

#[test]
fn an_unable_model_comes_after_the_next_model() {
    let second = |provider, price| with(provider, price, |c| c.model_rank = 1);
    let mut request = summary("{}");
    (request.models, request.needs) = (vec!["m".into(), "n".into()], vec!["images".into()]);
    let blind = with("blind", 1.0, |c| c.supports = vec!["tools".into()]);
    let broken = with("broken", 1.0, |c| c.statistics.ejected = true);
    let short = with("short", 1.0, |c| c.context_length = 1);
    let candidates = [blind, broken, short, second("next", 5.0)];
    // A rough count is not a reason to switch to another model than the client's first choice.
    assert_eq!(names(&request, &candidates), "short next blind broken");
}

#[test]
fn exacto_prefers_endpoints_with_many_requests() {
    let seen = |provider, requests, failures| {
        let mut endpoint = candidate(provider, 1.0);
        (endpoint.statistics.requests, endpoint.statistics.failures) = (requests, failures);
        endpoint
    };
    let candidates =
        [seen("new", 0, 0), seen("unlucky", 1, 1), seen("proven", 1000, 2), seen("bad", 1000, 400)];
    assert_eq!(names(&summary(r#"{"sort":"exacto"}"#), &candidates), "proven new unlucky bad");
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
    assert_eq!(order("ultrafast"), "faster priority standard flex");
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
    assert_eq!(order(r#"{"sort":"price"}"#, 1), "warm cheap out");
}

#[test]
fn a_session_moves_when_it_must() {
    let sticky = |change: fn(&mut Candidate), preferences: &str, change_request: fn(&mut RequestSummary)| {
        let mut request = summary(preferences);
        request.sticky = Some(1);
        change_request(&mut request);
        names(&request, &[candidate("new", 0.0), with("warm", 50.0, change)])
    };
    let nothing: fn(&mut RequestSummary) = |_| {};
    let needs_tools: fn(&mut RequestSummary) = |r| r.needs = vec!["tools".into()];
    assert_eq!(sticky(|c| c.supports = vec!["images".into()], "{}", needs_tools), "new warm");
    assert_eq!(sticky(|c| c.context_length = 9, "{}", nothing), "new warm");
    assert_eq!(sticky(|c| c.statistics.ejected = true, "{}", nothing), "new warm");
    // A tier decides the price, so the request chooses it, not the session.
    assert_eq!(sticky(|c| c.tier = "priority".into(), "{}", nothing), "new warm");
    let slow: fn(&mut Candidate) = |c| c.statistics.latency_ms.p50 = 9000.0;
    assert_eq!(sticky(slow, r#"{"preferred_max_latency":1}"#, nothing), "warm new");
}

#[test]
fn endpoints_with_an_own_credential_come_first() {
    let candidates = [candidate("shared", 0.0), with("own", 50.0, |c| c.byok = true)];
    assert_eq!(names(&summary("{}"), &candidates), "own shared");
    assert_eq!(names(&summary(r#"{"sort":"price"}"#), &candidates), "shared own");
}
