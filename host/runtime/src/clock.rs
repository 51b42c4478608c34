//! The clock of a guest: the time of its request, rounded down.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use wasmtime_wasi::{HostMonotonicClock, HostWallClock};

use crate::inputs::GuestInputs;

/// Clocks are rounded down to this many milliseconds: a precise clock would help timing attacks.
pub(crate) const CLOCK_GRAIN_MS: u64 = 10;

/// The clock of a guest: the request's time plus the time since then. Clones show the same time.
#[derive(Clone)]
pub(crate) struct GuestClock {
    set: Arc<Mutex<Set>>,
    /// Start of the monotonic clock. It continues when the instance serves another request, because
    /// a monotonic clock must never go back.
    made: Instant,
    /// Where the readings come from, if not from the machine.
    inputs: Option<Arc<dyn GuestInputs>>,
}

/// The time that a clock was set to, and when it was set.
#[derive(Clone, Copy)]
struct Set {
    now_ms: u64,
    at: Instant,
}

impl GuestClock {
    pub(crate) fn new(now_ms: u64, inputs: Option<Arc<dyn GuestInputs>>) -> Self {
        let at = Instant::now();
        Self { set: Arc::new(Mutex::new(Set { now_ms, at })), made: at, inputs }
    }

    /// Sets the clock to another request's time.
    pub(crate) fn set(&self, now_ms: u64) {
        *self.lock() = Set { now_ms, at: Instant::now() };
    }

    /// Unix time in milliseconds, rounded down to [`CLOCK_GRAIN_MS`].
    pub(crate) fn now_ms(&self) -> u64 {
        if let Some(inputs) = &self.inputs {
            return coarse(inputs.wall_ms());
        }
        let set = *self.lock();
        coarse(set.now_ms.saturating_add(milliseconds(set.at.elapsed())))
    }

    fn lock(&self) -> MutexGuard<'_, Set> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HostWallClock for GuestClock {
    fn resolution(&self) -> Duration {
        Duration::from_millis(CLOCK_GRAIN_MS)
    }

    fn now(&self) -> Duration {
        Duration::from_millis(self.now_ms())
    }
}

impl HostMonotonicClock for GuestClock {
    fn resolution(&self) -> u64 {
        CLOCK_GRAIN_MS * 1_000_000
    }

    fn now(&self) -> u64 {
        match &self.inputs {
            Some(inputs) => inputs.monotonic_ns(),
            None => coarse(milliseconds(self.made.elapsed())) * 1_000_000,
        }
    }
}

pub(crate) fn coarse(ms: u64) -> u64 {
    ms - ms % CLOCK_GRAIN_MS
}

pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
