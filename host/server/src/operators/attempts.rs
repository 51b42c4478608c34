//! Counts refused credentials of operators.

use std::collections::VecDeque;

use super::Refused;

/// The window in which refusals are counted, in milliseconds.
const WINDOW_MS: u64 = 60_000;
/// Refusals in one window after which further ones are told to wait.
const REFUSED_MAX: usize = 5;

/// The times of the last refusals, oldest first; at most [`REFUSED_MAX`].
#[derive(Default)]
pub(super) struct Attempts(VecDeque<u64>);

impl Attempts {
    /// Counts a refusal and says how it is answered. A right credential is never refused, so
    /// guessing by others cannot lock the operator out.
    pub(super) fn refuse(&mut self, now_ms: u64) -> Refused {
        while self.0.front().is_some_and(|at_ms| now_ms.saturating_sub(*at_ms) >= WINDOW_MS) {
            self.0.pop_front();
        }
        if self.0.len() < REFUSED_MAX {
            self.0.push_back(now_ms);
            return Refused::Wrong;
        }
        let oldest_ms = self.0.front().copied().unwrap_or(now_ms);
        let wait_ms = WINDOW_MS.saturating_sub(now_ms.saturating_sub(oldest_ms));
        Refused::TooMany { wait_s: wait_ms.div_ceil(1000).max(1) }
    }
}
