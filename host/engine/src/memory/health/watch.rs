//! Measures one attempt, from its beginning to its end, for the health of its endpoint.

use super::Health;
use super::breaker::BreakerPermit;
use crate::failure::AttemptFailure;
use crate::failure::blame::Blame;
use crate::memory::meters::AttemptOutcome;
use cofferdam_runtime::wire::Usage;
use cofferdam_store::Clock;
use std::sync::Arc;
use std::time::Duration;

/// With fewer tokens, or a shorter time in milliseconds, an answer does not count for the speed.
const TOKENS_MIN: u64 = 16;
const TIME_MIN_MS: u64 = 50;

/// Measures one attempt for the health of its endpoint. If it is dropped without a result, because the client
/// left or the request was at fault, nothing is recorded, and another attempt can be the probe of a half-open
/// breaker.
pub(crate) struct AttemptWatch {
    health: Arc<Health>,
    clock: Clock,
    streamed: bool,
    began_ms: u64,
    content_ms: Option<u64>,
    /// How the attempt counts in the metrics, once it has a result.
    outcome: Option<AttemptOutcome>,
    /// The breaker's admission of this attempt, until it has a result.
    permit: Option<BreakerPermit>,
}

impl AttemptWatch {
    /// Begins an attempt. `None` where the breaker does not admit it; as a last resort it can be
    /// made with [`Self::begin_anyway`].
    pub(crate) fn begin(health: &Arc<Health>, clock: &Clock, streamed: bool) -> Option<Self> {
        let began_ms = clock.monotonic_ms();
        let permit = health.admit(began_ms)?;
        Some(Self::new(health, clock, streamed, began_ms, Some(permit)))
    }

    /// Begins an attempt as a last resort, without asking the breaker.
    pub(crate) fn begin_anyway(health: &Arc<Health>, clock: &Clock, streamed: bool) -> Self {
        Self::new(health, clock, streamed, clock.monotonic_ms(), None)
    }

    fn new(
        health: &Arc<Health>,
        clock: &Clock,
        streamed: bool,
        began_ms: u64,
        permit: Option<BreakerPermit>,
    ) -> Self {
        let (health, clock) = (Arc::clone(health), clock.clone());
        Self { health, clock, streamed, began_ms, content_ms: None, outcome: None, permit }
    }

    /// Records the first content of a stream, or the whole of another answer.
    pub(crate) fn answered(&mut self) {
        self.permit = None;
        self.outcome = Some(AttemptOutcome::Answered);
        let now_ms = self.clock.monotonic_ms();
        self.content_ms = Some(now_ms);
        self.health.answered(self.began_ms, now_ms, self.streamed);
        let (meter, time_ms) = (&self.health.meters().provider, now_ms.saturating_sub(self.began_ms));
        if self.streamed {
            meter.had_content_after(time_ms);
        } else {
            meter.ended_after(time_ms);
        }
    }

    /// Sets how the metrics count an attempt whose answer has no content. It counts as failed if another endpoint is
    /// asked next. The health of the endpoint is not affected.
    pub(crate) fn counts_as(&mut self, outcome: AttemptOutcome) {
        self.outcome = Some(outcome);
    }

    /// Records that the attempt failed before its first content.
    pub(crate) fn failed(mut self, failed: &AttemptFailure) {
        self.outcome = Some(AttemptOutcome::Failed);
        let now_ms = self.clock.monotonic_ms();
        self.health.meters().provider.ended_after(now_ms.saturating_sub(self.began_ms));
        match failed.blame() {
            Blame::Endpoint => self.health.failed(self.began_ms, now_ms, false),
            Blame::Limit => self.health.limited(now_ms, failed.failure.retry_after_ms),
            Blame::Other => return,
        }
        self.permit = None;
    }

    /// Records that an answer that had begun broke off, for the endpoint's own reasons.
    pub(crate) fn broke(&mut self) {
        self.outcome = Some(AttemptOutcome::Failed);
        let now_ms = self.clock.monotonic_ms();
        self.stream_ended(now_ms);
        self.health.failed(self.began_ms, now_ms, self.content_ms.is_some());
    }

    /// Records that the answer is complete. The speed of a stream is measured from its first
    /// content on. `held` is the time spent waiting for the client, which does not count.
    pub(crate) fn finished(&self, usage: &Usage, held: Duration) {
        let output_tokens = usage.output_tokens;
        let now_ms = self.clock.monotonic_ms();
        self.stream_ended(now_ms);
        if usage.reasoning_tokens > 0 {
            self.health.reasoned(now_ms);
        }
        let since_ms = if self.streamed { self.content_ms.unwrap_or(self.began_ms) } else { self.began_ms };
        let held_ms = u64::try_from(held.as_millis()).unwrap_or(u64::MAX);
        let time_ms = now_ms.saturating_sub(since_ms).saturating_sub(held_ms);
        let whole_ms = now_ms.saturating_sub(self.began_ms).saturating_sub(held_ms);
        if output_tokens >= TOKENS_MIN && whole_ms >= TIME_MIN_MS {
            self.health.took(output_tokens as f64 * 1000.0 / whole_ms as f64);
        }
        if output_tokens >= TOKENS_MIN && time_ms >= TIME_MIN_MS {
            self.health.produced(now_ms, self.streamed, output_tokens as f64 * 1000.0 / time_ms as f64);
        }
    }

    /// Records the duration of a stream. An answer that is not a stream has ended with its content.
    fn stream_ended(&self, now_ms: u64) {
        if self.streamed {
            self.health.meters().provider.ended_after(now_ms.saturating_sub(self.began_ms));
        }
    }
}

impl Drop for AttemptWatch {
    fn drop(&mut self) {
        if let Some(outcome) = self.outcome {
            self.health.meters().provider.count(outcome);
        }
        if let Some(permit @ BreakerPermit::Probe { .. }) = self.permit.take() {
            self.health.give_back(permit);
        }
    }
}
