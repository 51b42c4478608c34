//! Simulates 100,000 requests over 20 endpoints of one model that differ in price, speed and health,
//! ordered by the router's rules. Percentiles, counts, circuit breaker and outlier detection are those
//! of the host. Prints each endpoint's share of attempts and answers, the latency that failed attempts
//! added, and the failures that clients saw, next to the same traffic without the rules.
//!
//!     cargo run --release --example simulation

#![expect(clippy::print_stdout, reason = "its output is what it is for")]

#[path = "../../../host/engine/src/memory/health/breaker.rs"]
#[allow(dead_code, unreachable_pub, reason = "the host uses more of it")]
mod breaker;
#[path = "../../../host/engine/src/memory/health/histogram.rs"]
mod histogram;
#[path = "../../../host/engine/src/memory/health/outliers.rs"]
mod outliers;
#[path = "../../../host/engine/src/memory/health/tally.rs"]
mod tally;

use breaker::Breaker;
use histogram::RollingHistogram;
use outliers::{EndpointSample, outliers};
use tally::{FailureCounts, SlotTally};

use cofferdam_guest_kit::bindings::routing::{
    Candidate, Percentiles, Price, Purpose, RequestSummary, Statistics,
};
use cofferdam_routing::{Random, route};

const REQUESTS: u32 = 100_000;
/// Requests arrive at equal intervals of this many milliseconds.
const GAP_MS: u32 = 10;
/// The constants that the host uses for the health of endpoints.
const OUTAGE_MS: u64 = 30_000;
const OUTLIER_MS: u64 = 30_000;
const COMPARED_MIN: u32 = 20;
const OFTEN_SHARE: f64 = 0.5;
/// The number of requests between two comparisons of the endpoints.
const COMPARE_EVERY: u32 = 100;
/// The largest number of attempts for one request.
const ATTEMPTS_MAX: usize = 4;
/// The real properties of one endpoint.
struct Endpoint {
    candidate: Candidate,
    /// Milliseconds to first content, and milliseconds until an attempt fails.
    latency_ms: f64,
    failure_ms: f64,
    /// The share of attempts that fail while the endpoint is up.
    failing: f64,
    /// The start and the end of a downtime in milliseconds, during which every attempt fails.
    down: (f64, f64),
    seen: Seen,
}

/// What the host has measured at an endpoint.
struct Seen {
    five_minutes: SlotTally<10>,
    minute: SlotTally<6>,
    latency_ms: RollingHistogram,
    breaker: Breaker,
    failed_at: Option<u64>,
    outlier_until: u64,
    attempts: u32,
    answers: u32,
}

impl Seen {
    fn new(seed: u64) -> Self {
        Self {
            five_minutes: SlotTally::new(30_000),
            minute: SlotTally::new(10_000),
            latency_ms: RollingHistogram::new(1.0),
            breaker: Breaker::new(seed),
            failed_at: None,
            outlier_until: 0,
            attempts: 0,
            answers: 0,
        }
    }

    fn note(&mut self, now: u64, latency_ms: f64, failed: bool) {
        let counts = FailureCounts { requests: 1, failures: u32::from(failed) };
        self.five_minutes.add(now, counts);
        self.minute.add(now, counts);
        self.attempts += 1;
        if failed {
            self.failed_at = Some(now);
            let share = self.minute.sum(now).failed_share(COMPARED_MIN);
            if self.breaker.failed(now, now, share.is_some_and(|share| share >= OFTEN_SHARE)) {
                self.minute.clear();
            }
        } else {
            self.answers += 1;
            self.latency_ms.add(now, latency_ms);
            if self.breaker.succeeded(now, now) {
                self.minute.clear();
            }
        }
    }

    fn statistics(&mut self, now: u64) -> Statistics {
        let [p50, p75, p90, p99] = self.latency_ms.percentiles(now);
        let counts = self.five_minutes.sum(now);
        let admitted = self.breaker.admits(now);
        Statistics {
            latency_ms: Percentiles { p50, p75, p90, p99 },
            throughput: Percentiles { p50: 0.0, p75: 0.0, p90: 0.0, p99: 0.0 },
            requests: counts.requests,
            failures: counts.failures,
            outage: self.failed_at.is_some_and(|at| now < at + OUTAGE_MS),
            ejected: !admitted || now < self.outlier_until,
        }
    }

    fn peer(&mut self, now: u64) -> EndpointSample {
        let [median_ms, ..] = self.latency_ms.percentiles(now);
        let counts = self.minute.sum(now);
        EndpointSample {
            tier: String::new(),
            failed_share: counts.failed_share(COMPARED_MIN),
            latency_ms: [(counts.requests >= COMPARED_MIN).then_some(median_ms), None],
            is_ejected: self.breaker.phase(now) != breaker::BreakerPhase::Closed || now < self.outlier_until,
        }
    }
}

/// Ejects endpoints that perform far worse than the others.
fn compare(endpoints: &mut [Endpoint], now: u64) {
    let peers: Vec<EndpointSample> = endpoints.iter_mut().map(|endpoint| endpoint.seen.peer(now)).collect();
    for place in outliers(&peers) {
        if let Some(endpoint) = endpoints.get_mut(place) {
            endpoint.seen.outlier_until = now + OUTLIER_MS;
            endpoint.seen.minute.clear();
        }
    }
}

/// Twenty endpoints: dollars per million tokens, latency, share of failures, downtime in seconds.
fn endpoints() -> Vec<Endpoint> {
    let end = f64::from(REQUESTS * GAP_MS) / 1000.0;
    let rows: [(f64, f64, f64, (f64, f64)); 20] = [
        (0.50, 300.0, 0.00, (0.0, 0.0)),
        (0.50, 320.0, 0.01, (0.0, 0.0)),
        (0.55, 280.0, 0.00, (200.0, 260.0)),
        (0.60, 350.0, 0.02, (0.0, 0.0)),
        (0.60, 900.0, 0.00, (0.0, 0.0)),
        (0.65, 310.0, 0.00, (0.0, 0.0)),
        (0.70, 300.0, 0.10, (0.0, 0.0)),
        (0.70, 400.0, 0.00, (500.0, 700.0)),
        (0.80, 250.0, 0.00, (0.0, 0.0)),
        (0.80, 2500.0, 0.00, (0.0, 0.0)),
        (0.90, 300.0, 0.00, (0.0, 0.0)),
        (1.00, 300.0, 0.50, (0.0, 0.0)),
        (1.00, 200.0, 0.00, (0.0, 0.0)),
        (1.20, 300.0, 0.00, (0.0, 0.0)),
        (1.50, 150.0, 0.00, (0.0, 0.0)),
        (2.00, 300.0, 0.00, (0.0, 0.0)),
        (2.50, 120.0, 0.00, (0.0, 0.0)),
        (4.00, 300.0, 0.00, (0.0, 0.0)),
        (8.00, 100.0, 0.00, (0.0, 0.0)),
        (0.45, 300.0, 0.00, (100.0, end)),
    ];
    rows.into_iter()
        .enumerate()
        .map(|(place, (price, latency_ms, failing, (from, to)))| Endpoint {
            candidate: candidate(place, price),
            latency_ms,
            failure_ms: 100.0,
            failing,
            down: (from * 1000.0, to * 1000.0),
            seen: Seen::new(place as u64),
        })
        .collect()
}

fn candidate(place: usize, price: f64) -> Candidate {
    Candidate {
        model: "m".to_owned(),
        model_rank: 0,
        provider: format!("provider-{place:02}"),
        tier: "default".to_owned(),
        price: Price {
            input: price * 0.25,
            output: price * 0.75,
            cached_input: 0.0,
            cache_write: 0.0,
            reasoning: 0.0,
            image: 0.0,
        },
        context_length: 0,
        max_output: 0,
        supports: Vec::new(),
        quantization: "unknown".to_owned(),
        zdr: false,
        data_collection: false,
        byok: false,
        statistics: Seen::new(0).statistics(0),
    }
}

fn request() -> RequestSummary {
    RequestSummary {
        purpose: Purpose::Responses,
        requested: "m".to_owned(),
        models: vec!["m".to_owned()],
        suffix: None,
        preferences: b"{}".to_vec(),
        route: None,
        service_tier: "auto".to_owned(),
        parameters: Vec::new(),
        needs: Vec::new(),
        input_tokens: 500,
        max_output_tokens: None,
        streamed: false,
        sticky: None,
    }
}

/// The results from the clients' point of view.
#[derive(Default)]
struct Outcome {
    failed: u32,
    attempts: u32,
    added_ms: f64,
    latency_ms: f64,
    price: f64,
}

/// Runs the traffic. `order` returns the order in which endpoints are tried.
fn run(order: impl Fn(&[Candidate], u64) -> Vec<u32>) -> (Vec<Endpoint>, Outcome) {
    let mut endpoints = endpoints();
    let mut outcome = Outcome::default();
    let mut luck = Random::new(42);
    for number in 0..REQUESTS {
        let now = u64::from(number * GAP_MS);
        if number % COMPARE_EVERY == 0 {
            compare(&mut endpoints, now);
        }
        let candidates: Vec<Candidate> = endpoints
            .iter_mut()
            .map(|endpoint| Candidate {
                statistics: endpoint.seen.statistics(now),
                ..endpoint.candidate.clone()
            })
            .collect();
        let mut waited = 0.0;
        let mut answered = false;
        for index in order(&candidates, u64::from(number)).into_iter().take(ATTEMPTS_MAX) {
            let Some(endpoint) = endpoints.get_mut(index as usize) else { continue };
            outcome.attempts += 1;
            let (from, to) = endpoint.down;
            let failed = (from..to).contains(&(now as f64)) || luck.share() < endpoint.failing;
            endpoint.seen.note(now, endpoint.latency_ms, failed);
            if failed {
                waited += endpoint.failure_ms;
                continue;
            }
            outcome.latency_ms += waited + endpoint.latency_ms;
            outcome.price += endpoint.candidate.price.input + endpoint.candidate.price.output;
            answered = true;
            break;
        }
        outcome.added_ms += waited;
        outcome.failed += u32::from(!answered);
    }
    (endpoints, outcome)
}

fn report(name: &str, outcome: &Outcome) {
    let answered = f64::from(REQUESTS - outcome.failed);
    println!(
        "{name:<28} {:>7} {:>9.3} {:>10.2} {:>11.1} {:>9.3}",
        outcome.failed,
        f64::from(outcome.attempts) / f64::from(REQUESTS),
        outcome.added_ms / f64::from(REQUESTS),
        outcome.latency_ms / answered,
        outcome.price / answered,
    );
}

fn main() {
    let by_rules = |preferences: &'static str| {
        let request = RequestSummary { preferences: preferences.as_bytes().to_vec(), ..request() };
        run(move |candidates, seed| {
            route(&request, candidates, seed).map_or_else(|_| Vec::new(), |decision| decision.order)
        })
    };
    let (endpoints, default) = by_rules("{}");
    println!("endpoint      price  latency  failing   attempts   share  failures");
    for endpoint in &endpoints {
        let Endpoint { candidate, seen, .. } = endpoint;
        println!(
            "{} {:>6.2} {:>6.0}ms {:>7.0}%  {:>9} {:>6.2}% {:>9}",
            candidate.provider,
            candidate.price.input + candidate.price.output,
            endpoint.latency_ms,
            endpoint.failing * 100.0,
            seen.attempts,
            f64::from(seen.answers) / f64::from(REQUESTS) * 100.0,
            seen.attempts - seen.answers,
        );
    }
    println!();
    println!(
        "{:<28} {:>7} {:>9} {:>10} {:>11} {:>9}",
        "strategy", "failed", "attempts", "added ms", "latency ms", "price"
    );
    report("default", &default);
    for preferences in [
        r#"{"sort":"price"}"#,
        r#"{"sort":"latency"}"#,
        r#"{"sort":"exacto"}"#,
        r#"{"preferred_max_latency":0.5}"#,
    ] {
        report(preferences, &by_rules(preferences).1);
    }
    // The results without the rules: always the cheapest first, or a random order.
    let cheapest = run(|candidates, _| {
        let mut order: Vec<u32> = (0..candidates.len() as u32).collect();
        order.sort_by(|one, other| {
            let price =
                |index: u32| candidates.get(index as usize).map_or(0.0, |c| c.price.input + c.price.output);
            price(*one).total_cmp(&price(*other))
        });
        order
    });
    report("no rules: cheapest first", &cheapest.1);
    let any = run(|candidates, seed| {
        let mut random = Random::new(seed);
        let mut order: Vec<(f64, u32)> =
            (0..candidates.len() as u32).map(|index| (random.share(), index)).collect();
        order.sort_by(|one, other| one.0.total_cmp(&other.0));
        order.into_iter().map(|(_, index)| index).collect()
    });
    report("no rules: any", &any.1);
}
