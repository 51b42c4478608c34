//! 100,000 requests over 20 endpoints of one model that differ in price, speed
//! and health, ordered by the router's rules; statistics, breaker and session
//! memory are modelled the simple way. Prints each endpoint's share of
//! attempts and answers, the latency that failed attempts added, and what
//! clients saw fail, beside the same traffic without the rules.
//!
//!     cargo run --release --example simulation

#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::collections::VecDeque;

use cofferdam_routing::{Candidate, Percentiles, Price, Random, Request, Statistics, route};

const REQUESTS: u32 = 100_000;
/// Requests arrive evenly, this many milliseconds apart.
const GAP_MS: f64 = 10.0;
const OUTAGE_MS: f64 = 30_000.0;
const WINDOW_MS: f64 = 300_000.0;
/// Attempts of one request, as a host would bound them.
const ATTEMPTS_MAX: usize = 4;
/// Failures in a row that open the breaker, and for how long.
const BREAKER_FAILURES: u32 = 5;
const BREAKER_MS: f64 = 30_000.0;

/// One endpoint as it really is.
struct Endpoint {
    candidate: Candidate,
    /// Milliseconds to first content, and of an attempt that fails.
    latency_ms: f64,
    failure_ms: f64,
    /// Share of attempts that fail while it is up.
    failing: f64,
    /// From and to when, in milliseconds, every attempt fails.
    down: (f64, f64),
    seen: Seen,
}

/// What the host knows of it.
#[derive(Default)]
struct Seen {
    /// When each attempt of the window ended, and whether it failed.
    window: VecDeque<(f64, bool)>,
    failures: u32,
    latency_ms: f64,
    failed_at: Option<f64>,
    in_a_row: u32,
    open_until: f64,
    attempts: u32,
    answers: u32,
}

impl Seen {
    fn note(&mut self, now: f64, latency_ms: f64, failed: bool) {
        self.attempts += 1;
        self.window.push_back((now, failed));
        if failed {
            self.failures += 1;
            self.failed_at = Some(now);
            self.in_a_row += 1;
            if self.in_a_row >= BREAKER_FAILURES {
                self.open_until = now + BREAKER_MS;
            }
        } else {
            self.answers += 1;
            self.in_a_row = 0;
            self.latency_ms = latency_ms;
        }
    }

    fn statistics(&mut self, now: f64) -> Statistics {
        while let Some((_, failed)) = self.window.pop_front_if(|(at, _)| now - *at > WINDOW_MS) {
            self.failures -= u32::from(failed);
        }
        let p50 = self.latency_ms;
        let latency_ms = Percentiles { p50, p75: p50, p90: p50, p99: p50 };
        Statistics {
            latency_ms,
            throughput: Percentiles { p50: 0.0, p75: 0.0, p90: 0.0, p99: 0.0 },
            requests: self.window.len() as u32,
            failures: self.failures,
            outage: self.failed_at.is_some_and(|at| now - at < OUTAGE_MS),
            ejected: now < self.open_until,
        }
    }
}

/// Twenty endpoints: dollars per million tokens, latency, failing share, downtime in seconds.
fn endpoints() -> Vec<Endpoint> {
    let end = f64::from(REQUESTS) * GAP_MS / 1000.0;
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
            seen: Seen::default(),
        })
        .collect()
}

fn candidate(place: usize, price: f64) -> Candidate {
    Candidate {
        model_rank: 0,
        provider: format!("provider-{place:02}"),
        tier: "default".to_owned(),
        price: Price { input: price * 0.25, output: price * 0.75, image: 0.0 },
        context_length: 0,
        max_output: 0,
        supports: Vec::new(),
        quantization: "unknown".to_owned(),
        zdr: false,
        data_collection: false,
        byok: false,
        statistics: Seen::default().statistics(0.0),
    }
}

fn request() -> Request {
    Request {
        models: 1,
        suffix: None,
        chosen: false,
        preferences: b"{}".to_vec(),
        route: None,
        service_tier: "auto".to_owned(),
        parameters: Vec::new(),
        needs: Vec::new(),
        input_tokens: 500,
        max_output_tokens: None,
        sticky: None,
    }
}

/// What clients got.
#[derive(Default)]
struct Outcome {
    failed: u32,
    attempts: u32,
    added_ms: f64,
    latency_ms: f64,
    price: f64,
}

/// Runs the traffic; `order` says in which order endpoints are tried.
fn run(order: impl Fn(&[Candidate], u64) -> Vec<u32>) -> (Vec<Endpoint>, Outcome) {
    let mut endpoints = endpoints();
    let mut outcome = Outcome::default();
    let mut luck = Random::new(42);
    for number in 0..REQUESTS {
        let now = f64::from(number) * GAP_MS;
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
            let failed = (from..to).contains(&now) || luck.share() < endpoint.failing;
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
        let request = Request { preferences: preferences.as_bytes().to_vec(), ..request() };
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
    // What it would be without the rules: the cheapest always first, or any.
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
