//! The injected clock: the only place in this crate that reads the system time.
//!
//! Expiry, creation times and timeouts all use a [`Clock`], so that tests move time by hand instead
//! of waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// Start of a manual clock: 2023-11-14T22:13:20Z, an arbitrary plausible date.
const MANUAL_START_MS: u64 = 1_700_000_000_000;

/// A cheap, cloneable source of time. Clones of a manual clock move together.
#[derive(Clone, Debug)]
pub struct Clock(ClockSource);

#[derive(Clone, Debug)]
enum ClockSource {
    System { started: Instant },
    Manual { now_ms: Arc<AtomicU64> },
}

impl Clock {
    /// The machine's clock.
    pub fn system() -> Clock {
        Clock(ClockSource::System { started: Instant::now() })
    }

    /// A clock that stands still until [`Clock::advance`] moves it. For tests.
    pub fn manual() -> Clock {
        Clock(ClockSource::Manual { now_ms: Arc::new(AtomicU64::new(MANUAL_START_MS)) })
    }

    /// Milliseconds since the Unix epoch. Can jump when the machine's clock is set.
    pub fn now_ms(&self) -> u64 {
        match &self.0 {
            ClockSource::System { .. } => {
                let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
                u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
            }
            ClockSource::Manual { now_ms } => now_ms.load(Ordering::Relaxed),
        }
    }

    /// Milliseconds since an arbitrary start, never decreasing: for measuring durations.
    pub fn monotonic_ms(&self) -> u64 {
        match &self.0 {
            ClockSource::System { started } => {
                u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX)
            }
            ClockSource::Manual { now_ms } => now_ms.load(Ordering::Relaxed),
        }
    }

    /// Milliseconds since an arbitrary start, never decreasing, which also pass while the machine sleeps. On a
    /// manual clock this stands still: other machines do not follow its moves.
    pub fn boot_ms(&self) -> u64 {
        match &self.0 {
            ClockSource::System { .. } => {
                let now = clock_gettime(ClockId::Boottime);
                let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
                seconds * 1000 + u64::try_from(now.tv_nsec).unwrap_or_default() / 1_000_000
            }
            ClockSource::Manual { .. } => MANUAL_START_MS,
        }
    }

    /// Moves a manual clock forward. Does nothing on the system clock.
    pub fn advance(&self, by: Duration) {
        if let ClockSource::Manual { now_ms } = &self.0 {
            now_ms.fetch_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_since_the_start_of_the_machine_goes_on() {
        let clock = Clock::system();
        let before = clock.boot_ms();
        assert!(before > 0);
        while clock.boot_ms() == before {
            std::thread::yield_now();
        }
        assert!(clock.boot_ms() > before);
    }

    #[test]
    fn clones_of_a_manual_clock_move_together() {
        let clock = Clock::manual();
        let other = clock.clone();
        let before = other.now_ms();
        clock.advance(Duration::from_secs(3));
        assert_eq!(other.now_ms(), before + 3_000);
        assert_eq!(other.monotonic_ms(), clock.monotonic_ms());
    }
}
