//! Fuel and memory of calls, for checks of a plugin by its author. A serving host measures neither.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use wasmtime::Store;

use crate::account::InstanceAccount;
use crate::guest::GuestState;

/// Fuel that a call begins with. Its time ends it long before its fuel does.
const FUEL: u64 = u64::MAX / 2;
/// Number of calls that are kept.
const CALLS_MAX: usize = 4_096;

/// What one call used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeteredCall {
    /// The function that was called.
    pub function: &'static str,
    /// Instructions, roughly.
    pub fuel: u64,
    /// All memories and tables of the instance at the end of the call, in bytes.
    pub memory_bytes: usize,
    /// Processor time.
    pub busy: Duration,
    /// The processor time that the call may take. It is longer for a long input.
    pub busy_max: Duration,
}

/// The calls since the last look, and the fuel that each call begins with.
pub(crate) struct Meter {
    calls: Mutex<Vec<MeteredCall>>,
    fuel: AtomicU64,
}

impl Default for Meter {
    fn default() -> Self {
        Self { calls: Mutex::default(), fuel: AtomicU64::new(FUEL) }
    }
}

impl Meter {
    /// Ends later calls when they have used this much fuel.
    pub(crate) fn limit(&self, fuel: u64) {
        self.fuel.store(fuel.min(FUEL), Ordering::Relaxed);
    }

    /// Gives a call its fuel.
    pub(crate) fn fill(&self, store: &mut Store<GuestState>) {
        if let Err(error) = store.set_fuel(self.fuel.load(Ordering::Relaxed)) {
            tracing::debug!(%error, "the engine counts no fuel");
        }
    }

    /// Records a call that has ended, in whatever way.
    pub(crate) fn note(&self, function: &'static str, store: &Store<GuestState>, account: &InstanceAccount) {
        let given = self.fuel.load(Ordering::Relaxed);
        let fuel = given.saturating_sub(store.get_fuel().unwrap_or(given));
        let memory_bytes = store.data().limiter.bytes();
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        if calls.len() < CALLS_MAX {
            calls.push(MeteredCall {
                function,
                fuel,
                memory_bytes,
                busy: Duration::from_nanos(account.spent_ns()),
                busy_max: Duration::from_nanos(account.limit_ns()),
            });
        }
    }

    pub(crate) fn take(&self) -> Vec<MeteredCall> {
        std::mem::take(&mut *self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
