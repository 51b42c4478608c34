//! One attempt as its endpoint's health sees it, from its begin to its end.

use super::Health;
use crate::attempt::AttemptFailure;
use crate::blame::Blame;
use cofferdam_store::Clock;
use std::sync::Arc;

/// Fewer tokens, or a shorter time in milliseconds, say nothing about speed.
const TOKENS_MIN: u64 = 16;
const TIME_MIN_MS: u64 = 50;

/// An attempt under way. Dropped without a word it says nothing: the client left.
pub(crate) struct Watch {
    health: Arc<Health>,
    clock: Clock,
    streamed: bool,
    began_ms: u64,
    content_ms: Option<u64>,
}

impl Watch {
    /// An attempt begins.
    pub(crate) fn begin(health: &Arc<Health>, clock: &Clock, streamed: bool) -> Self {
        let began_ms = clock.monotonic_ms();
        Self { health: Arc::clone(health), clock: clock.clone(), streamed, began_ms, content_ms: None }
    }

    /// The first content of a stream is there, or the whole of another answer.
    pub(crate) fn answered(&mut self) {
        let now_ms = self.clock.monotonic_ms();
        self.content_ms = Some(now_ms);
        self.health.answered(self.began_ms, now_ms, self.streamed);
    }

    /// The attempt failed before that.
    pub(crate) fn failed(&self, failed: &AttemptFailure) {
        let now_ms = self.clock.monotonic_ms();
        match failed.blame() {
            Blame::Endpoint => self.health.failed(self.began_ms, now_ms, false),
            Blame::Limit => self.health.limited(now_ms, failed.failure.retry_after_ms),
            Blame::Other => {}
        }
    }

    /// The answer that had begun broke, for the endpoint's own reasons.
    pub(crate) fn broke(&self) {
        self.health.failed(self.began_ms, self.clock.monotonic_ms(), self.content_ms.is_some());
    }

    /// The answer is complete, with so many tokens of output. A stream's speed is that after its first content.
    pub(crate) fn finished(&self, output_tokens: u64) {
        let now_ms = self.clock.monotonic_ms();
        let since_ms = if self.streamed { self.content_ms.unwrap_or(self.began_ms) } else { self.began_ms };
        let time_ms = now_ms.saturating_sub(since_ms);
        if output_tokens >= TOKENS_MIN && time_ms >= TIME_MIN_MS {
            self.health.produced(now_ms, self.streamed, output_tokens as f64 * 1000.0 / time_ms as f64);
        }
    }
}
