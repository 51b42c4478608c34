//! What the host knows of how an endpoint does: how fast it is, how often it fails, and whether to keep away from
//! it for a while. Routers are told, and decide.
//!
//! Everything is measured on requests as they run, costs each of them a short lock and no memory, and is of a
//! fixed size. What belongs to an endpoint outlives the configuration that names it.

mod breaker;
mod histogram;
mod outliers;
mod tally;
mod watch;

pub use breaker::Phase;
pub(crate) use watch::Watch;

use breaker::{Breaker, Turn};
use cofferdam_runtime::wire::{Percentiles, Statistics};
use histogram::Histogram;
use outliers::Peer;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tally::{Counts, Tally};

/// How long after a failure an endpoint counts as having an outage, in milliseconds (names.md 7).
const OUTAGE_MS: u64 = 30_000;
/// So many requests of the last minute, and this share of them failed, open the breaker.
const OFTEN_REQUESTS: u32 = 20;
const OFTEN_SHARE: f64 = 0.5;
/// So many requests or answers have to be known of an endpoint before it is compared with others.
const COMPARED_MIN: u32 = 20;
/// How long an outlier is set aside, in milliseconds: this, times how often it was one lately, up to the other.
const OUTLIER_MS: u64 = 30_000;
const OUTLIER_MAX_MS: u64 = 300_000;
/// The longest time that a provider's limit sets an endpoint aside, and the time where it names none.
const LIMITED_MAX_MS: u64 = 60_000;
const LIMITED_MS: u64 = 1_000;
/// The smallest values that are told apart.
const LATENCY_MIN_MS: f64 = 1.0;
const THROUGHPUT_MIN: f64 = 0.1;
/// A mean follows the last so many values.
const MEAN_OF: u32 = 30;
/// How long an endpoint is known to reason after an answer with reasoning, in milliseconds.
const REASONING_MS: u64 = 3_600_000;

const REQUEST: Counts = Counts { requests: 1, failures: 0 };
const FAILED_REQUEST: Counts = Counts { requests: 1, failures: 1 };
const BROKEN_ANSWER: Counts = Counts { requests: 0, failures: 1 };

/// Which endpoint something was measured of, whatever the configuration says of it otherwise.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndpointKey {
    /// The catalog's id of the model.
    pub model: String,
    /// The provider's name.
    pub provider: String,
    /// What the provider calls the model.
    pub upstream: String,
    /// The service tier.
    pub tier: String,
}

/// What is known of one endpoint.
pub struct Health {
    id: u64,
    key: EndpointKey,
    retries: AtomicU64,
    /// Whether its breaker is closed, for attempts to know without the lock.
    is_well: AtomicBool,
    /// Until when it is known to reason.
    reasons_until_ms: AtomicU64,
    state: Mutex<State>,
}

/// What operators are shown of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// What its breaker lets through.
    pub phase: Phase,
    /// Routers are told to use it as a last resort only.
    pub is_ejected: bool,
    /// Attempts of the last five minutes.
    pub requests: u32,
    /// How many of them failed for the endpoint's own reasons.
    pub failures: u32,
    /// How often its breaker opened.
    pub openings: u64,
    /// How often it was set aside because others do far better.
    pub outliers: u64,
    /// Attempts made there after every endpoint of a request had failed.
    pub retries: u64,
}

/// What changes, behind one lock.
struct State {
    five_minutes: Tally<10>,
    /// What opens the breaker and what is compared with others; begins anew when either has had its effect.
    minute: Tally<6>,
    streamed: Speed,
    whole: Speed,
    /// Tokens a second from the attempt to the end of the answer, of streams and others, and of how many answers.
    overall: (f64, u32),
    breaker: Breaker,
    failed_at_ms: Option<u64>,
    limited_until_ms: u64,
    outlier_until_ms: u64,
    /// How often it was an outlier without having been none for long.
    outlier_times: u64,
    openings: u64,
    outliers: u64,
}

/// How fast answers of one kind come. A stream's first content and a whole answer are no measure of each other.
struct Speed {
    latency_ms: Histogram,
    throughput: Histogram,
    mean_ms: Mean,
}

impl Speed {
    fn new() -> Self {
        Self {
            latency_ms: Histogram::new(LATENCY_MIN_MS),
            throughput: Histogram::new(THROUGHPUT_MIN),
            mean_ms: Mean::default(),
        }
    }
}

/// The geometric mean of the last values, roughly: one odd value weighs little.
#[derive(Default)]
struct Mean {
    log: f64,
    count: u32,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.count = self.count.saturating_add(1);
        self.log += (value.max(1.0).ln() - self.log) / f64::from(self.count.min(MEAN_OF));
    }

    fn value(&self) -> Option<f64> {
        (self.count >= COMPARED_MIN).then(|| self.log.exp())
    }
}

impl State {
    fn speed(&mut self, streamed: bool) -> &mut Speed {
        if streamed { &mut self.streamed } else { &mut self.whole }
    }

    /// What was measured before no longer counts against it.
    fn begin_anew(&mut self) {
        self.minute.clear();
        self.streamed.mean_ms = Mean::default();
        self.whole.mean_ms = Mean::default();
    }

    fn is_set_aside(&self, now_ms: u64) -> bool {
        now_ms < self.limited_until_ms || now_ms < self.outlier_until_ms
    }

    fn is_ejected(&self, now_ms: u64) -> bool {
        self.is_set_aside(now_ms) || self.breaker.phase(now_ms) != Phase::Closed
    }
}

impl Health {
    /// Nothing is known yet. `id` is different for each, `seed` is where jitter comes from.
    pub(crate) fn new(id: u64, key: EndpointKey, seed: u64) -> Self {
        let state = State {
            five_minutes: Tally::new(30_000),
            minute: Tally::new(10_000),
            streamed: Speed::new(),
            whole: Speed::new(),
            overall: (0.0, 0),
            breaker: Breaker::new(seed),
            failed_at_ms: None,
            limited_until_ms: 0,
            outlier_until_ms: 0,
            outlier_times: 0,
            openings: 0,
            outliers: 0,
        };
        Self {
            id,
            key,
            retries: AtomicU64::new(0),
            is_well: AtomicBool::new(true),
            reasons_until_ms: AtomicU64::new(0),
            state: Mutex::new(state),
        }
    }

    /// A number that no other endpoint of this process has.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Which endpoint this is of.
    pub fn key(&self) -> &EndpointKey {
        &self.key
    }

    /// Whether its breaker is closed.
    pub(crate) fn is_well(&self) -> bool {
        self.is_well.load(Ordering::Relaxed)
    }

    /// An attempt begins: half-open, this takes the turn of the next second. None where another attempt has it, or
    /// where nothing is let through.
    fn take_turn(&self, now_ms: u64) -> Option<Turn> {
        if self.is_well() { Some(Turn::Free) } else { self.lock().breaker.take_turn(now_ms) }
    }

    /// The attempt that took the turn said nothing of the endpoint.
    fn give_back(&self, turn: Turn) {
        self.lock().breaker.give_back(turn);
    }

    /// What a router is told for a request that is streamed or not. Half-open, the endpoint is no last resort as
    /// long as no attempt has taken the turn of the second.
    pub(crate) fn statistics(&self, now_ms: u64, streamed: bool) -> Statistics {
        let mut state = self.lock();
        let counts = state.five_minutes.sum(now_ms);
        let outage = state.failed_at_ms.is_some_and(|at_ms| now_ms < at_ms.saturating_add(OUTAGE_MS));
        let ejected = !state.breaker.admits(now_ms) || state.is_set_aside(now_ms);
        let speed = state.speed(streamed);
        Statistics {
            latency_ms: percentiles(speed.latency_ms.percentiles(now_ms)),
            throughput: percentiles(speed.throughput.percentiles(now_ms)),
            requests: counts.requests,
            failures: counts.failures,
            outage,
            ejected,
        }
    }

    /// What operators are shown.
    pub fn reading(&self, now_ms: u64) -> Reading {
        let mut state = self.lock();
        let counts = state.five_minutes.sum(now_ms);
        Reading {
            phase: state.breaker.phase(now_ms),
            is_ejected: state.is_ejected(now_ms),
            requests: counts.requests,
            failures: counts.failures,
            openings: state.openings,
            outliers: state.outliers,
            retries: self.retries.load(Ordering::Relaxed),
        }
    }

    /// An attempt that began at `began_ms` has its first content, or its whole answer.
    fn answered(&self, began_ms: u64, now_ms: u64, streamed: bool) {
        let mut state = self.lock();
        state.five_minutes.add(now_ms, REQUEST);
        state.minute.add(now_ms, REQUEST);
        let latency_ms = now_ms.saturating_sub(began_ms) as f64;
        let speed = state.speed(streamed);
        speed.latency_ms.add(now_ms, latency_ms);
        speed.mean_ms.add(latency_ms);
        if state.breaker.succeeded(began_ms, now_ms) {
            self.is_well.store(true, Ordering::Relaxed);
            state.begin_anew();
            drop(state);
            self.log("an endpoint is back");
        }
    }

    /// An answer made so many tokens a second.
    fn produced(&self, now_ms: u64, streamed: bool, tokens_per_second: f64) {
        self.lock().speed(streamed).throughput.add(now_ms, tokens_per_second);
    }

    /// An answer made so many tokens a second, from the attempt to its end.
    fn took(&self, tokens_per_second: f64) {
        let (mean, count) = &mut self.lock().overall;
        *count = count.saturating_add(1).min(MEAN_OF);
        *mean += (tokens_per_second - *mean) / f64::from(*count);
    }

    /// Tokens a second from an attempt to the end of its answer, as far as was measured; else zero.
    pub(crate) fn tokens_per_second(&self) -> f64 {
        self.lock().overall.0
    }

    /// An answer had reasoning.
    fn reasoned(&self, now_ms: u64) {
        self.reasons_until_ms.store(now_ms.saturating_add(REASONING_MS), Ordering::Relaxed);
    }

    /// Whether an answer of the last hour had reasoning.
    pub(crate) fn has_reasoned(&self, now_ms: u64) -> bool {
        now_ms < self.reasons_until_ms.load(Ordering::Relaxed)
    }

    /// An attempt that began at `began_ms` failed for the endpoint's own reasons; `had_begun` says that
    /// [`Self::answered`] has counted it.
    fn failed(&self, began_ms: u64, now_ms: u64, had_begun: bool) {
        let mut state = self.lock();
        let counts = if had_begun { BROKEN_ANSWER } else { FAILED_REQUEST };
        state.five_minutes.add(now_ms, counts);
        state.minute.add(now_ms, counts);
        state.failed_at_ms = Some(now_ms);
        let share = state.minute.sum(now_ms).failed_share(OFTEN_REQUESTS);
        let is_often = share.is_some_and(|share| share >= OFTEN_SHARE);
        if state.breaker.failed(began_ms, now_ms, is_often) {
            self.is_well.store(false, Ordering::Relaxed);
            state.openings += 1;
            state.begin_anew();
            drop(state);
            self.log("an endpoint fails, others are tried first");
        }
    }

    /// The provider limits this host, and says for how long, in milliseconds. No fault of the endpoint, but
    /// others are tried first meanwhile.
    fn limited(&self, now_ms: u64, wait_ms: Option<u64>) {
        let until_ms = now_ms.saturating_add(wait_ms.unwrap_or(LIMITED_MS).min(LIMITED_MAX_MS));
        let mut state = self.lock();
        state.limited_until_ms = state.limited_until_ms.max(until_ms);
    }

    /// An attempt is made although one here has failed for the same request.
    pub(crate) fn retried(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    fn peer(&self, now_ms: u64) -> Peer {
        let mut state = self.lock();
        Peer {
            tier: self.key.tier.clone(),
            failed_share: state.minute.sum(now_ms).failed_share(COMPARED_MIN),
            latency_ms: [state.streamed.mean_ms.value(), state.whole.mean_ms.value()],
            is_ejected: state.is_ejected(now_ms),
        }
    }

    fn set_aside(&self, now_ms: u64) {
        let mut state = self.lock();
        let is_soon = now_ms < state.outlier_until_ms.saturating_add(OUTLIER_MAX_MS);
        state.outlier_times = if is_soon { state.outlier_times + 1 } else { 1 };
        let time_ms = OUTLIER_MS.saturating_mul(state.outlier_times).min(OUTLIER_MAX_MS);
        state.outlier_until_ms = now_ms.saturating_add(time_ms);
        state.outliers += 1;
        state.begin_anew();
        drop(state);
        self.log("an endpoint does far worse than the others of its model, which are tried first");
    }

    fn log(&self, message: &str) {
        let EndpointKey { model, provider, tier, .. } = &self.key;
        tracing::warn!(model, provider, tier, "{message}");
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Compares the endpoints of one model, and sets aside those that do far worse than the others.
pub(crate) fn compare<'h>(endpoints: impl Iterator<Item = &'h Arc<Health>>, now_ms: u64) {
    let mut endpoints: Vec<&Arc<Health>> = endpoints.collect();
    endpoints.sort_by_key(|health| health.id);
    // The same endpoint may stand in the configuration twice, with other prices.
    endpoints.dedup_by_key(|health| health.id);
    let peers: Vec<Peer> = endpoints.iter().map(|health| health.peer(now_ms)).collect();
    for place in outliers::outliers(&peers) {
        if let Some(health) = endpoints.get(place) {
            health.set_aside(now_ms);
        }
    }
}

/// What a router is told of an endpoint that nothing is known of.
pub fn unmeasured() -> Statistics {
    let none = percentiles([0.0; 4]);
    Statistics { latency_ms: none, throughput: none, requests: 0, failures: 0, outage: false, ejected: false }
}

fn percentiles([p50, p75, p90, p99]: [f64; 4]) -> Percentiles {
    Percentiles { p50, p75, p90, p99 }
}

#[cfg(test)]
mod tests;
