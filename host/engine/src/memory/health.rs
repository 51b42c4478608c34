//! The health of endpoints: how fast an endpoint is, how often it fails, and whether to avoid it
//! for a while. Routers get these figures and decide.
//!
//! Everything is measured on the requests themselves. Each costs a short lock and no allocation,
//! and all state has a fixed size. The health of an endpoint survives a reload of the configuration
//! that still names the endpoint.

mod breaker;
mod histogram;
mod outliers;
mod tally;
mod watch;

pub use breaker::BreakerPhase;
pub(crate) use watch::AttemptWatch;

use super::meters::EndpointMeters;
use breaker::{Breaker, BreakerPermit};
use cofferdam_runtime::wire::{Percentiles, Statistics};
use histogram::RollingHistogram;
use outliers::EndpointSample;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tally::{FailureCounts, SlotTally};

/// How long after a failure routers see an outage of the endpoint, in milliseconds.
const OUTAGE_MS: u64 = 30_000;
/// The breaker opens when at least this many requests of the last minute are known and at least
/// this share of them failed.
const OFTEN_REQUESTS: u32 = 20;
const OFTEN_SHARE: f64 = 0.5;
/// An endpoint is compared with others when this many of its requests or answers are known.
const COMPARED_MIN: u32 = 20;
/// How long an outlier is avoided, in milliseconds, times the number of recent times.
const OUTLIER_MS: u64 = 30_000;
/// The longest time for which an outlier is avoided, in milliseconds.
const OUTLIER_MAX_MS: u64 = 300_000;
/// The longest time for which an endpoint is avoided after a rate limit, in milliseconds.
const LIMITED_MAX_MS: u64 = 60_000;
/// How long an endpoint is avoided after a rate limit whose answer names no time, in milliseconds.
const LIMITED_MS: u64 = 1_000;
/// A smaller latency is counted like this one, in milliseconds.
const LATENCY_MIN_MS: f64 = 1.0;
/// A smaller throughput is counted like this one.
const THROUGHPUT_MIN: f64 = 0.1;
/// The mean weighs about this many of the last values.
const MEAN_OF: u32 = 30;
/// How long after an answer with reasoning an endpoint counts as one that reasons, in milliseconds.
const REASONING_MS: u64 = 3_600_000;

const REQUEST: FailureCounts = FailureCounts { requests: 1, failures: 0 };
const FAILED_REQUEST: FailureCounts = FailureCounts { requests: 1, failures: 1 };
const BROKEN_ANSWER: FailureCounts = FailureCounts { requests: 0, failures: 1 };

/// Identifies the endpoint that was measured. A reload that changes other settings keeps the
/// measurements.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndpointKey {
    /// The catalog's id of the model.
    pub model: String,
    /// The name of the provider in the configuration.
    pub provider: String,
    /// The provider's own name for the model.
    pub upstream: String,
    /// The service tier.
    pub tier: String,
}

/// The measurements of one endpoint.
pub struct Health {
    id: u64,
    key: EndpointKey,
    model: Arc<str>,
    meters: EndpointMeters,
    retries: AtomicU64,
    /// Whether the breaker is closed. Attempts read it without the lock.
    is_well: AtomicBool,
    /// Until when the endpoint counts as one that reasons.
    reasons_until_ms: AtomicU64,
    state: Mutex<EndpointState>,
}

/// The figures of one endpoint for metrics and operators.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EndpointReading {
    /// The state of the breaker.
    pub phase: BreakerPhase,
    /// Whether routers see it as a last resort.
    pub is_ejected: bool,
    /// Attempts of the last five minutes.
    pub requests: u32,
    /// Those of them that failed for the endpoint's own reasons.
    pub failures: u32,
    /// How often the breaker opened.
    pub openings: u64,
    /// How often the endpoint was avoided as an outlier.
    pub outliers: u64,
    /// Attempts made after every endpoint of a request had failed.
    pub retries: u64,
    /// Until the breaker lets a probe pass, milliseconds; 0 unless it is open.
    pub open_for_ms: u64,
    /// Until the rate limit that the provider named is over, milliseconds; 0 if there is none.
    pub limited_for_ms: u64,
    /// Since the last failure, milliseconds.
    pub failed_ago_ms: Option<u64>,
    /// The median time to the first content of a stream in the last five minutes, milliseconds; 0
    /// without a measurement.
    pub first_content_ms: f64,
    /// The median time of a whole answer in the last five minutes, milliseconds; 0 without a
    /// measurement.
    pub whole_ms: f64,
    /// The mean of tokens a second from an attempt to the end of its answer; 0 without a
    /// measurement.
    pub tokens_per_second: f64,
}

/// All state behind the lock.
struct EndpointState {
    five_minutes: SlotTally<10>,
    /// For the breaker and the comparison with others. Cleared when one of them takes effect.
    minute: SlotTally<6>,
    streamed: Speed,
    whole: Speed,
    /// The mean of tokens a second from the attempt to the end of the answer, over streams and
    /// other answers, and the number of answers it is made of.
    overall: (f64, u32),
    breaker: Breaker,
    failed_at_ms: Option<u64>,
    limited_until_ms: u64,
    outlier_until_ms: u64,
    /// How often it was an outlier, in close succession.
    outlier_times: u64,
    openings: u64,
    outliers: u64,
}

/// The speed of streams or of whole answers. They are kept apart, because the time to the first
/// content of a stream cannot be compared with the time of a whole answer.
struct Speed {
    latency_ms: RollingHistogram,
    throughput: RollingHistogram,
    mean_ms: Mean,
}

impl Speed {
    fn new() -> Self {
        Self {
            latency_ms: RollingHistogram::new(LATENCY_MIN_MS),
            throughput: RollingHistogram::new(THROUGHPUT_MIN),
            mean_ms: Mean::default(),
        }
    }

    fn median_ms(&mut self, now_ms: u64) -> f64 {
        let [median, ..] = self.latency_ms.percentiles(now_ms);
        median
    }
}

/// An approximate geometric mean of the last values. A single extreme value changes it little.
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

impl EndpointState {
    fn speed(&mut self, streamed: bool) -> &mut Speed {
        if streamed { &mut self.streamed } else { &mut self.whole }
    }

    /// Clears what the endpoint is judged by, after the breaker or the comparison took effect.
    fn begin_anew(&mut self) {
        self.minute.clear();
        self.streamed.mean_ms = Mean::default();
        self.whole.mean_ms = Mean::default();
    }

    fn is_set_aside(&self, now_ms: u64) -> bool {
        now_ms < self.limited_until_ms || now_ms < self.outlier_until_ms
    }

    fn is_ejected(&self, now_ms: u64) -> bool {
        self.is_set_aside(now_ms) || self.breaker.phase(now_ms) != BreakerPhase::Closed
    }
}

impl Health {
    /// Health without measurements. `id` is unique in the process; jitter is derived from `seed`.
    pub(crate) fn new(id: u64, key: EndpointKey, seed: u64) -> Self {
        let state = EndpointState {
            five_minutes: SlotTally::new(30_000),
            minute: SlotTally::new(10_000),
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
            model: Arc::from(key.model.as_str()),
            key,
            meters: EndpointMeters::default(),
            retries: AtomicU64::new(0),
            is_well: AtomicBool::new(true),
            reasons_until_ms: AtomicU64::new(0),
            state: Mutex::new(state),
        }
    }

    /// The same, counted in `meters`.
    pub(super) fn counted_in(self, meters: EndpointMeters) -> Self {
        Self { meters, ..self }
    }

    /// The meters of its model and of its provider.
    pub(crate) fn meters(&self) -> &EndpointMeters {
        &self.meters
    }

    /// A number that is unique in this process.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The catalog's id of the model.
    pub(crate) fn model(&self) -> &Arc<str> {
        &self.model
    }

    /// The endpoint that this belongs to.
    pub fn key(&self) -> &EndpointKey {
        &self.key
    }

    /// Whether the breaker is closed.
    pub(crate) fn is_well(&self) -> bool {
        self.is_well.load(Ordering::Relaxed)
    }

    /// Called when an attempt begins. If the breaker is half-open, this takes the probe of this
    /// second. `None` where another attempt has taken it, or where the breaker is open.
    fn admit(&self, now_ms: u64) -> Option<BreakerPermit> {
        if self.is_well() { Some(BreakerPermit::Free) } else { self.lock().breaker.admit(now_ms) }
    }

    /// Returns the probe of an attempt that ended without a result for the endpoint.
    fn give_back(&self, permit: BreakerPermit) {
        self.lock().breaker.give_back(permit);
    }

    /// The figures for a router, for streams or for other requests. A half-open endpoint is not
    /// reported as ejected until an attempt has taken the probe of the second.
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

    /// The figures for metrics and operators.
    pub fn reading(&self, now_ms: u64) -> EndpointReading {
        let mut state = self.lock();
        let counts = state.five_minutes.sum(now_ms);
        EndpointReading {
            phase: state.breaker.phase(now_ms),
            is_ejected: state.is_ejected(now_ms),
            requests: counts.requests,
            failures: counts.failures,
            openings: state.openings,
            outliers: state.outliers,
            retries: self.retries.load(Ordering::Relaxed),
            open_for_ms: state.breaker.open_for_ms(now_ms),
            limited_for_ms: state.limited_until_ms.saturating_sub(now_ms),
            failed_ago_ms: state.failed_at_ms.map(|at_ms| now_ms.saturating_sub(at_ms)),
            first_content_ms: state.streamed.median_ms(now_ms),
            whole_ms: state.whole.median_ms(now_ms),
            tokens_per_second: state.overall.0,
        }
    }

    /// Records that an attempt that began at `began_ms` has its first content, or its whole answer.
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

    /// Records the output speed of an answer.
    fn produced(&self, now_ms: u64, streamed: bool, tokens_per_second: f64) {
        self.lock().speed(streamed).throughput.add(now_ms, tokens_per_second);
    }

    /// Records the speed of an answer from the attempt to its end.
    fn took(&self, tokens_per_second: f64) {
        let (mean, count) = &mut self.lock().overall;
        *count = count.saturating_add(1).min(MEAN_OF);
        *mean += (tokens_per_second - *mean) / f64::from(*count);
    }

    /// The mean of tokens a second from an attempt to the end of its answer; zero if none was
    /// measured.
    pub(crate) fn tokens_per_second(&self) -> f64 {
        self.lock().overall.0
    }

    /// Records that an answer contained reasoning.
    fn reasoned(&self, now_ms: u64) {
        self.reasons_until_ms.store(now_ms.saturating_add(REASONING_MS), Ordering::Relaxed);
    }

    /// Whether an answer of the last hour contained reasoning.
    pub(crate) fn has_reasoned(&self, now_ms: u64) -> bool {
        now_ms < self.reasons_until_ms.load(Ordering::Relaxed)
    }

    /// Records that an attempt that began at `began_ms` failed for the endpoint's own reasons.
    /// `had_begun`: [`Self::answered`] has counted its request already.
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

    /// Records that the provider limits the rate of this host, for `wait_ms` milliseconds if it
    /// says so. This is not a failure, but the endpoint is avoided for that time.
    fn limited(&self, now_ms: u64, wait_ms: Option<u64>) {
        let until_ms = now_ms.saturating_add(wait_ms.unwrap_or(LIMITED_MS).min(LIMITED_MAX_MS));
        let mut state = self.lock();
        state.limited_until_ms = state.limited_until_ms.max(until_ms);
    }

    /// Counts an attempt that is made although an earlier one here failed for the same request.
    pub(crate) fn retried(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    fn peer(&self, now_ms: u64) -> EndpointSample {
        let mut state = self.lock();
        EndpointSample {
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

    fn lock(&self) -> MutexGuard<'_, EndpointState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Compares the endpoints of one model, and marks those that do far worse than the others as
/// outliers.
pub(crate) fn compare<'h>(endpoints: impl Iterator<Item = &'h Arc<Health>>, now_ms: u64) {
    let mut endpoints: Vec<&Arc<Health>> = endpoints.collect();
    endpoints.sort_by_key(|health| health.id);
    // The configuration may contain the same endpoint twice, with different prices.
    endpoints.dedup_by_key(|health| health.id);
    let peers: Vec<EndpointSample> = endpoints.iter().map(|health| health.peer(now_ms)).collect();
    for index in outliers::outliers(&peers) {
        if let Some(health) = endpoints.get(index) {
            health.set_aside(now_ms);
        }
    }
}

/// The figures for a router of an endpoint without measurements.
pub fn unmeasured() -> Statistics {
    let none = percentiles([0.0; 4]);
    Statistics { latency_ms: none, throughput: none, requests: 0, failures: 0, outage: false, ejected: false }
}

fn percentiles([p50, p75, p90, p99]: [f64; 4]) -> Percentiles {
    Percentiles { p50, p75, p90, p99 }
}

#[cfg(test)]
mod tests;
