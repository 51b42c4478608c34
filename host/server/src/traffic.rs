//! Requests of the last hour by minute, for the overview of operators. The counters of the metrics
//! are read once a second, so a request pays nothing for it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::timestamp::timestamp;

const MINUTE_MS: u64 = 60_000;
/// Minutes that are kept, the running one included.
const MINUTES: usize = 60;

#[derive(Default)]
pub(crate) struct Traffic(Mutex<State>);

#[derive(Default)]
struct State {
    minutes: VecDeque<Minute>,
    /// The counters at the last reading.
    requests: u64,
    failures: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Minute {
    /// Unix time, in minutes.
    at: u64,
    requests: u64,
    failures: u64,
}

/// One minute in the document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct TrafficMinute {
    /// When it began.
    pub(crate) at: String,
    /// Requests that were answered in it.
    pub(crate) requests: u64,
    /// Those of them whose status was 5xx.
    pub(crate) failures: u64,
}

impl Traffic {
    /// Notes the counters as they are now; what was added belongs to this minute.
    pub(crate) fn note(&self, now_ms: u64, requests: u64, failures: u64) {
        let at = now_ms / MINUTE_MS;
        let mut state = self.lock();
        let more = requests.saturating_sub(state.requests);
        let failed = failures.saturating_sub(state.failures);
        (state.requests, state.failures) = (requests, failures);
        let mut minute = Minute { at, requests: more, failures: failed };
        // Minutes after this one were counted before the clock was set back. They would stay unseen until the clock
        // reaches them.
        while let Some(counted) = state.minutes.pop_back_if(|counted| counted.at >= at) {
            minute.requests += counted.requests;
            minute.failures += counted.failures;
        }
        if state.minutes.len() >= MINUTES {
            state.minutes.pop_front();
        }
        state.minutes.push_back(minute);
    }

    /// The minutes of the last hour, oldest first, also those without a request.
    pub(crate) fn minutes(&self, now_ms: u64) -> Vec<TrafficMinute> {
        let last = now_ms / MINUTE_MS;
        let first = last.saturating_sub(MINUTES as u64 - 1);
        let state = self.lock();
        let counted = |at: u64| state.minutes.iter().find(|minute| minute.at == at).copied();
        (first..=last)
            .map(|at| {
                let Minute { requests, failures, .. } =
                    counted(at).unwrap_or(Minute { at, requests: 0, failures: 0 });
                TrafficMinute { at: timestamp(at * MINUTE_MS), requests, failures }
            })
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The counts stay valid when another thread has panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{MINUTE_MS, Traffic};

    #[test]
    fn requests_count_in_the_minute_in_which_they_were_seen() {
        let traffic = Traffic::default();
        let begin = 1_000 * MINUTE_MS;
        traffic.note(begin, 5, 1);
        traffic.note(begin + 59_000, 7, 1);
        traffic.note(begin + 2 * MINUTE_MS, 10, 2);
        let minutes = traffic.minutes(begin + 2 * MINUTE_MS);
        assert_eq!(minutes.len(), 60);
        let counts: Vec<(u64, u64)> =
            minutes[57..].iter().map(|minute| (minute.requests, minute.failures)).collect();
        assert_eq!(counts, [(7, 1), (0, 0), (3, 1)]);
        assert!(minutes[..57].iter().all(|minute| minute.requests == 0));
    }

    #[test]
    fn minutes_of_more_than_an_hour_ago_are_forgotten() {
        let traffic = Traffic::default();
        for minute in 0..200 {
            traffic.note(minute * MINUTE_MS, minute + 1, 0);
        }
        assert_eq!(traffic.lock().minutes.len(), 60);
        assert!(traffic.minutes(500 * MINUTE_MS).iter().all(|minute| minute.requests == 0));
    }

    #[test]
    fn requests_are_seen_at_once_after_the_clock_was_set_back() {
        let traffic = Traffic::default();
        traffic.note(100 * MINUTE_MS, 5, 0);
        traffic.note(161 * MINUTE_MS, 7, 1);
        traffic.note(101 * MINUTE_MS, 10, 1);
        traffic.note(101 * MINUTE_MS, 11, 1);
        let minutes = traffic.minutes(101 * MINUTE_MS);
        let counts: Vec<u64> = minutes[58..].iter().map(|minute| minute.requests).collect();
        assert_eq!(counts, [5, 6]);
        assert_eq!(minutes[59].failures, 1);
    }
}
