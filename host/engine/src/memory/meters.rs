//! What is counted for the operator's metrics. It outlives a reload of the configuration.

use crate::cost::Used;
use crate::log_throttle::LogThrottle;
use cofferdam_store::{Dollars, HistogramReading, HistogramScale, NamedMeters, SECONDS, StripedHistogram};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Providers that are counted by name. Further ones are counted together.
const PROVIDERS_MAX: usize = 64;
/// Models that are counted by name. Further ones are counted together.
const MODELS_MAX: usize = 256;

/// Destinations of the request export, of which a configuration has at most 16, and during a reload
/// those of two configurations.
const DESTINATIONS_MAX: usize = 32;

static TURNS: HistogramScale = HistogramScale::new(&[1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128], 1);

/// All meters of an engine and of those before and after it.
#[derive(Debug)]
pub struct Meters {
    providers: NamedMeters<ProviderMeter>,
    models: NamedMeters<ModelMeter>,
    destinations: NamedMeters<ExportTally>,
    turns: StripedHistogram,
    pub(crate) releases: Arc<ReleaseCounts>,
}

impl Default for Meters {
    fn default() -> Self {
        Self {
            providers: NamedMeters::new(PROVIDERS_MAX),
            models: NamedMeters::new(MODELS_MAX),
            destinations: NamedMeters::new(DESTINATIONS_MAX),
            turns: StripedHistogram::new(&TURNS),
            releases: Arc::default(),
        }
    }
}

impl Meters {
    /// The meter of a provider of the configuration.
    pub fn provider(&self, name: &str) -> Arc<ProviderMeter> {
        self.providers.of(name)
    }

    /// The meters of an endpoint.
    pub(super) fn endpoint(&self, model: &str, provider: &str) -> EndpointMeters {
        EndpointMeters { model: self.models.of(model), provider: self.providers.of(provider) }
    }

    /// The counts of a destination of the request export.
    pub(crate) fn destination(&self, name: &str) -> Arc<ExportTally> {
        self.destinations.of(name)
    }

    /// All destinations of the request export.
    pub fn destinations(&self) -> Vec<(String, Arc<ExportTally>)> {
        self.destinations.all()
    }

    /// All providers.
    pub fn providers(&self) -> Vec<(String, Arc<ProviderMeter>)> {
        self.providers.all()
    }

    /// All models.
    pub fn models(&self) -> Vec<(String, Arc<ModelMeter>)> {
        self.models.all()
    }

    /// Counts a response that ended after so many turns.
    pub(crate) fn ended_after(&self, turns: u32) {
        self.turns.observe(turns.into());
    }

    /// The turns of responses.
    pub fn turns(&self) -> HistogramReading {
        self.turns.reading()
    }

    /// Releases of secrets.
    pub fn releases(&self) -> &ReleaseCounts {
        &self.releases
    }
}

/// What is counted for an endpoint. Endpoints of one model, or of one provider, share its meter.
#[derive(Debug, Default)]
pub(crate) struct EndpointMeters {
    pub(crate) model: Arc<ModelMeter>,
    pub(crate) provider: Arc<ProviderMeter>,
}

/// Counts of one destination. Each record ends in exactly one of them.
#[derive(Debug, Default)]
pub struct ExportTally {
    /// Accepted by the destination.
    pub sent: AtomicU64,
    /// Refused by the destination, or given up after the last try.
    pub failed: AtomicU64,
    /// Never tried, because the queue was full.
    pub dropped: AtomicU64,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AttemptOutcome {
    /// With an answer, which the client may have left before its end.
    Answered,
    /// Without an answer, or with one that broke off for the endpoint's own reasons.
    Failed,
}

/// What is counted for one provider.
#[derive(Debug)]
pub struct ProviderMeter {
    answered: AtomicU64,
    failed: AtomicU64,
    first_content: StripedHistogram,
    attempts: StripedHistogram,
    /// Limits how often the log says that the provider cannot be reached.
    pub(crate) unreached: LogThrottle,
    /// Limits how often the log says that the usage it reports cannot be right.
    pub(crate) corrected: LogThrottle,
}

impl Default for ProviderMeter {
    fn default() -> Self {
        Self {
            answered: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            first_content: StripedHistogram::new(&SECONDS),
            attempts: StripedHistogram::new(&SECONDS),
            unreached: LogThrottle::default(),
            corrected: LogThrottle::default(),
        }
    }
}

impl ProviderMeter {
    /// Counts an attempt that has ended.
    pub(super) fn count(&self, outcome: AttemptOutcome) {
        let counter = match outcome {
            AttemptOutcome::Answered => &self.answered,
            AttemptOutcome::Failed => &self.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn had_content_after(&self, time_ms: u64) {
        self.first_content.observe(time_ms.saturating_mul(1_000));
    }

    pub(super) fn ended_after(&self, time_ms: u64) {
        self.attempts.observe(time_ms.saturating_mul(1_000));
    }

    /// Attempts by how they ended.
    pub fn attempts(&self) -> [(&'static str, u64); 2] {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [("answered", read(&self.answered)), ("failed", read(&self.failed))]
    }

    /// From the beginning of an attempt to the first content of its stream.
    pub fn first_content(&self) -> HistogramReading {
        self.first_content.reading()
    }

    /// From the beginning of an attempt to its end.
    pub fn attempt_times(&self) -> HistogramReading {
        self.attempts.reading()
    }
}

/// What is counted for one model.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ModelMeter {
    input: AtomicU64,
    cached_input: AtomicU64,
    output: AtomicU64,
    reasoning: AtomicU64,
    credit_pico: AtomicU64,
    byok_pico: AtomicU64,
}

impl ModelMeter {
    /// Counts what `now` has more than `before`.
    pub(crate) fn used(&self, before: &Used, now: &Used) {
        let (old, new) = (&before.usage, &now.usage);
        let cached = (old.cached_tokens, new.cached_tokens);
        let reasoning = (old.reasoning_tokens, new.reasoning_tokens);
        let (old_paid, new_paid) = (before.cost.paid, now.cost.paid);
        for (counter, (before, now)) in [
            (
                &self.input,
                (old.input_tokens.saturating_sub(cached.0), new.input_tokens.saturating_sub(cached.1)),
            ),
            (&self.cached_input, cached),
            (
                &self.output,
                (
                    old.output_tokens.saturating_sub(reasoning.0),
                    new.output_tokens.saturating_sub(reasoning.1),
                ),
            ),
            (&self.reasoning, reasoning),
            (&self.credit_pico, (old_paid.here.0, new_paid.here.0)),
            (&self.byok_pico, (old_paid.elsewhere.0, new_paid.elsewhere.0)),
        ] {
            let more = now.saturating_sub(before);
            if more > 0 {
                counter.fetch_add(more, Ordering::Relaxed);
            }
        }
    }

    /// Tokens by direction. None is in two of them.
    pub fn tokens(&self) -> [(&'static str, u64); 4] {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [
            ("input", read(&self.input)),
            ("cached_input", read(&self.cached_input)),
            ("output", read(&self.output)),
            ("reasoning", read(&self.reasoning)),
        ]
    }

    /// Cost by what paid it.
    pub fn cost(&self) -> [(&'static str, Dollars); 2] {
        let read = |counter: &AtomicU64| Dollars::from_pico(counter.load(Ordering::Relaxed));
        [("credit", read(&self.credit_pico)), ("byok", read(&self.byok_pico))]
    }
}

/// What a secret is released for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReleasedFor {
    /// A request to a provider.
    Provider,
    /// A request of a plugin, which is a tool or a hook.
    Tool,
    /// A record of a finished request, for a destination of `[[broadcast]]`.
    Broadcast,
}

/// How a release ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReleaseResult {
    Released,
    Refused,
    /// The value was released before, and the host sent it back.
    Reflected,
}

/// Names of the cases of [`ReleasedFor`] and [`ReleaseResult`] in metrics.
const PURPOSES: [&str; 3] = ["provider", "tool", "broadcast"];
const RESULTS: [&str; 3] = ["released", "refused", "reflected"];

/// Releases of secrets out of the vault, by purpose and result.
#[derive(Debug, Default)]
pub struct ReleaseCounts([[AtomicU64; RESULTS.len()]; PURPOSES.len()]);

impl ReleaseCounts {
    pub(crate) fn count(&self, purpose: ReleasedFor, result: ReleaseResult) {
        let row = self.0.get(purpose as usize);
        if let Some(counter) = row.and_then(|row| row.get(result as usize)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts an answer of the vault.
    pub(crate) fn decided<T, E>(&self, purpose: ReleasedFor, answer: &Result<T, E>) {
        let result = if answer.is_ok() { ReleaseResult::Released } else { ReleaseResult::Refused };
        self.count(purpose, result);
    }

    /// Purpose, result and number, for each pair that can occur.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        let rows = PURPOSES.iter().zip(&self.0);
        rows.flat_map(|(purpose, row)| {
            let cells = RESULTS.iter().zip(row);
            cells.map(|(result, counter)| (*purpose, *result, counter.load(Ordering::Relaxed)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::{Amount, Cost, Outlay};
    use cofferdam_runtime::wire::Usage;

    fn used(input: u64, cached: u64, output: u64, reasoning: u64, here: u64, elsewhere: u64) -> Used {
        let usage = Usage {
            input_tokens: input,
            cached_tokens: cached,
            output_tokens: output,
            reasoning_tokens: reasoning,
            ..crate::cost::no_usage()
        };
        let paid = Outlay { here: Amount(here), elsewhere: Amount(elsewhere) };
        Used { usage, cost: Cost { paid, ..Cost::default() } }
    }

    #[test]
    fn only_what_is_new_is_counted_and_no_token_twice() {
        let meter = ModelMeter::default();
        let (first, second) =
            (used(10, 4, 5, 2, 1_000_000_000_000, 0), used(30, 10, 9, 2, 1_500_000_000_000, 7));
        meter.used(&Used::default(), &first);
        meter.used(&first, &second);
        meter.used(&second, &second);
        assert_eq!(meter.tokens(), [("input", 20), ("cached_input", 10), ("output", 7), ("reasoning", 2)]);
        assert_eq!(
            meter.cost().map(|(paid, cost)| format!("{paid} {cost}")),
            ["credit 1.5", "byok 0.000000000007"]
        );
    }
}
