//! The health of one endpoint over time, and of several side by side.

use super::*;
use crate::cost::no_usage;
use crate::failure::{AttemptFailure, Cause};
use cofferdam_runtime::wire::{ErrorKind, Usage};
use cofferdam_store::Clock;
use proptest::prelude::*;
use std::time::Duration;

fn health(id: u64) -> Arc<Health> {
    let word = |word: &str| word.to_owned();
    let key = EndpointKey {
        model: word("test/model"),
        provider: format!("p{id}"),
        upstream: word("m"),
        tier: word("default"),
    };
    Arc::new(Health::new(id, key, id))
}

fn clock() -> Clock {
    Clock::manual()
}

fn answer(health: &Arc<Health>, clock: &Clock, latency: Duration) -> AttemptWatch {
    let mut watch = AttemptWatch::begin_anyway(health, clock, true);
    clock.advance(latency);
    watch.answered();
    watch
}

fn fail(health: &Arc<Health>, clock: &Clock, cause: Cause) {
    let watch = AttemptWatch::begin_anyway(health, clock, true);
    watch.failed(&AttemptFailure::plain(cause, ErrorKind::ProviderUnavailable, ""));
}

fn statistics_of(health: &Health, clock: &Clock) -> Statistics {
    health.statistics(clock.monotonic_ms(), true)
}

#[test]
fn speed_is_measured_separately_for_streams_and_whole_answers() {
    let (health, clock) = (health(1), clock());
    let watch = answer(&health, &clock, Duration::from_millis(400));
    clock.advance(Duration::from_secs(5));
    // Three of the five seconds were spent waiting for the client.
    watch.finished(&output(100), Duration::from_secs(3));
    let statistics = statistics_of(&health, &clock);
    assert!((statistics.latency_ms.p50 / 400.0 - 1.0).abs() < 0.1, "{statistics:?}");
    assert!((statistics.throughput.p50 / 50.0 - 1.0).abs() < 0.1, "{statistics:?}");
    let whole = health.statistics(clock.monotonic_ms(), false);
    assert_eq!((whole.latency_ms.p50, whole.throughput.p50, whole.requests), (0.0, 0.0, 1));
}

#[test]
fn short_answers_do_not_count_for_speed() {
    let (health, clock) = (health(1), clock());
    let watch = answer(&health, &clock, Duration::from_millis(400));
    watch.finished(&output(1_000), Duration::ZERO);
    clock.advance(Duration::from_secs(1));
    watch.finished(&output(3), Duration::ZERO);
    assert_eq!(statistics_of(&health, &clock).throughput.p50, 0.0);
}

fn output(output_tokens: u64) -> Usage {
    Usage { output_tokens, ..no_usage() }
}

#[test]
fn overall_speed_is_measured_from_the_attempt_without_waits_for_the_client() {
    let (health, clock) = (health(1), clock());
    let watch = answer(&health, &clock, Duration::from_secs(4));
    clock.advance(Duration::from_secs(3));
    watch.finished(&output(600), Duration::from_secs(1));
    assert!((health.tokens_per_second() - 100.0).abs() < 1e-6, "{}", health.tokens_per_second());
    let watch = answer(&health, &clock, Duration::from_secs(2));
    watch.finished(&output(600), Duration::ZERO);
    assert!((health.tokens_per_second() - 200.0).abs() < 1e-6, "{}", health.tokens_per_second());
}

#[test]
fn an_endpoint_counts_as_reasoning_for_an_hour_after_an_answer_with_reasoning() {
    let (health, clock) = (health(1), clock());
    let reasons = || health.has_reasoned(clock.monotonic_ms());
    let watch = answer(&health, &clock, Duration::from_secs(1));
    watch.finished(&output(20), Duration::ZERO);
    assert!(!reasons());
    watch.finished(&Usage { reasoning_tokens: 1, ..output(20) }, Duration::ZERO);
    assert!(reasons());
    clock.advance(Duration::from_secs(3_599));
    assert!(reasons());
    clock.advance(Duration::from_secs(1));
    assert!(!reasons());
}

#[test]
fn only_the_endpoints_own_failures_count() {
    let (health, clock) = (health(1), clock());
    let others = [
        Cause::Request,
        Cause::Dialect,
        Cause::CallersCredential,
        Cause::Limited,
        Cause::Saturated,
        Cause::Plugin,
        Cause::Empty,
        Cause::Late { total: true, begun: false },
    ];
    for cause in others {
        fail(&health, &clock, cause);
    }
    assert_eq!((statistics_of(&health, &clock).failures, statistics_of(&health, &clock).outage), (0, false));
    let own = [
        Cause::Endpoint,
        Cause::Unreachable,
        Cause::NoCredential,
        Cause::Late { total: false, begun: false },
        Cause::Late { total: false, begun: true },
    ];
    for cause in own {
        fail(&health, &clock, cause);
    }
    let statistics = statistics_of(&health, &clock);
    assert_eq!((statistics.requests, statistics.failures, statistics.outage), (5, 5, true));
    assert!(statistics.ejected, "that was five in a row");
}

#[test]
fn an_outage_is_over_after_half_a_minute_and_forgotten_after_five() {
    let (health, clock) = (health(1), clock());
    fail(&health, &clock, Cause::Endpoint);
    clock.advance(Duration::from_millis(29_999));
    assert!(statistics_of(&health, &clock).outage);
    clock.advance(Duration::from_millis(1));
    let statistics = statistics_of(&health, &clock);
    assert_eq!((statistics.outage, statistics.failures), (false, 1));
    clock.advance(Duration::from_secs(300));
    assert_eq!(statistics_of(&health, &clock).failures, 0);
}

#[test]
fn an_answer_that_breaks_counts_as_one_failed_request() {
    let (health, clock) = (health(1), clock());
    answer(&health, &clock, Duration::from_millis(10)).broke();
    let statistics = statistics_of(&health, &clock);
    assert_eq!((statistics.requests, statistics.failures, statistics.outage), (1, 1, true));
}

#[test]
fn answers_that_keep_breaking_open_the_breaker_although_they_begin() {
    let (health, clock) = (health(1), clock());
    for _ in 0..OFTEN_REQUESTS {
        answer(&health, &clock, Duration::from_millis(1)).broke();
    }
    assert_eq!(health.reading(clock.monotonic_ms()).phase, BreakerPhase::Open);
}

#[test]
fn a_half_open_endpoint_admits_one_request_a_second() {
    let (health, clock) = (health(1), clock());
    (0..5).for_each(|_| fail(&health, &clock, Cause::Endpoint));
    clock.advance(Duration::from_secs(10));
    assert!(
        (0..10).all(|_| !statistics_of(&health, &clock).ejected),
        "reading the statistics takes no permit"
    );
    let begin = || AttemptWatch::begin(&health, &clock, true);
    let mut probe = begin().unwrap();
    assert!(begin().is_none() && statistics_of(&health, &clock).ejected);
    let reading = health.reading(clock.monotonic_ms());
    assert_eq!((reading.phase, reading.is_ejected, reading.openings), (BreakerPhase::HalfOpen, true, 1));
    probe.answered();
    assert_eq!(health.reading(clock.monotonic_ms()).phase, BreakerPhase::Closed);
    assert!(begin().is_some() && begin().is_some() && health.is_well());
}

#[test]
fn a_probe_without_a_result_can_be_repeated() {
    let (health, clock) = (health(1), clock());
    (0..5).for_each(|_| fail(&health, &clock, Cause::Endpoint));
    clock.advance(Duration::from_secs(10));
    drop(AttemptWatch::begin(&health, &clock, true).unwrap());
    assert!(!statistics_of(&health, &clock).ejected, "its client had left");
    let failure = |cause| AttemptFailure::plain(cause, ErrorKind::InvalidRequest, "");
    AttemptWatch::begin(&health, &clock, true).unwrap().failed(&failure(Cause::Request));
    assert!(!statistics_of(&health, &clock).ejected, "the request was at fault");
    AttemptWatch::begin(&health, &clock, true).unwrap().failed(&failure(Cause::Endpoint));
    assert!(statistics_of(&health, &clock).ejected && AttemptWatch::begin(&health, &clock, true).is_none());
}

#[test]
fn a_rate_limit_ejects_for_its_time_and_is_not_a_failure() {
    let (health, clock) = (health(1), clock());
    let mut failed = AttemptFailure::plain(Cause::Limited, ErrorKind::RateLimitExceeded, "");
    failed.failure.retry_after_ms = Some(20_000);
    AttemptWatch::begin_anyway(&health, &clock, true).failed(&failed);
    clock.advance(Duration::from_millis(19_999));
    assert!(statistics_of(&health, &clock).ejected);
    clock.advance(Duration::from_millis(1));
    let statistics = statistics_of(&health, &clock);
    assert_eq!((statistics.ejected, statistics.failures, statistics.outage), (false, 0, false));
    failed.failure.retry_after_ms = Some(u64::MAX);
    AttemptWatch::begin_anyway(&health, &clock, true).failed(&failed);
    clock.advance(Duration::from_secs(60));
    assert!(!statistics_of(&health, &clock).ejected, "a wait that the provider asked for is bounded");
}

#[test]
fn a_rate_limit_of_the_callers_own_key_does_not_eject() {
    let (health, clock) = (health(1), clock());
    let mut failed = AttemptFailure::plain(Cause::Limited, ErrorKind::RateLimitExceeded, "");
    failed.is_byok = true;
    AttemptWatch::begin_anyway(&health, &clock, true).failed(&failed);
    assert!(!statistics_of(&health, &clock).ejected);
}

#[test]
fn an_outlier_is_ejected_longer_each_time_and_measured_again() {
    let (endpoints, clock) = ([health(1), health(2), health(3)], clock());
    for seconds in [30, 60] {
        for (endpoint, latency_ms) in endpoints.iter().zip([20, 20, 4_000]) {
            (0..COMPARED_MIN).for_each(|_| drop(answer(endpoint, &clock, Duration::from_millis(latency_ms))));
        }
        compare(endpoints.iter(), clock.monotonic_ms());
        let ejected = endpoints.iter().map(|health| statistics_of(health, &clock).ejected);
        assert_eq!(ejected.collect::<Vec<_>>(), [false, false, true]);
        clock.advance(Duration::from_millis(seconds * 1_000 - 1));
        assert!(statistics_of(&endpoints[2], &clock).ejected);
        clock.advance(Duration::from_millis(1));
        assert!(!statistics_of(&endpoints[2], &clock).ejected);
        compare(endpoints.iter(), clock.monotonic_ms());
        assert!(!statistics_of(&endpoints[2], &clock).ejected, "it has to be slow again first");
    }
    assert_eq!(endpoints[2].reading(clock.monotonic_ms()).outliers, 2);
}

#[test]
fn an_endpoint_configured_twice_is_not_compared_with_itself() {
    let (one, clock) = (health(1), clock());
    (0..30).for_each(|_| drop(answer(&one, &clock, Duration::from_millis(5_000))));
    compare([&one, &one].into_iter(), clock.monotonic_ms());
    assert!(!statistics_of(&one, &clock).ejected);
}

proptest! {
    /// After any sequence of attempts, the comparison leaves at least half of a model's endpoints
    /// in use, and all of them are in use again in the end.
    #[test]
    fn more_than_half_of_a_models_endpoints_are_never_ejected_as_outliers(
        deeds in proptest::collection::vec((0usize..6, any::<bool>(), 0u64..10_000), 0..400),
    ) {
        let (endpoints, clock) = ((1..=6).map(health).collect::<Vec<_>>(), clock());
        for (number, (place, failed, latency_ms)) in deeds.into_iter().enumerate() {
            if failed {
                fail(&endpoints[place], &clock, Cause::Endpoint);
            } else {
                answer(&endpoints[place], &clock, Duration::from_millis(latency_ms));
            }
            if number % 10 == 9 {
                let ejected = || {
                    let now_ms = clock.monotonic_ms();
                    endpoints.iter().filter(|health| health.reading(now_ms).is_ejected).count()
                };
                let before = ejected();
                compare(endpoints.iter(), clock.monotonic_ms());
                prop_assert!(ejected() == before || ejected() <= 3);
            }
        }
        clock.advance(Duration::from_secs(600));
        for endpoint in &endpoints {
            prop_assert!(!statistics_of(endpoint, &clock).ejected);
        }
    }
}
