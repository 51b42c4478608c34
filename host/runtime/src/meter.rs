//! Fuel and memory of calls, for checks of a plugin by its author. A serving host measures neither.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use wasmtime::Store;

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
}

/// The calls since the last look.
#[derive(Default)]
pub(crate) struct Meter(Mutex<Vec<MeteredCall>>);

impl Meter {
    /// Gives a call its fuel.
    pub(crate) fn fill(store: &mut Store<GuestState>) {
        if let Err(error) = store.set_fuel(FUEL) {
            tracing::debug!(%error, "the engine counts no fuel");
        }
    }

    /// Records a call that has ended, in whatever way.
    pub(crate) fn note(&self, function: &'static str, store: &Store<GuestState>, busy_ns: u64) {
        let fuel = FUEL.saturating_sub(store.get_fuel().unwrap_or(FUEL));
        let memory_bytes = store.data().limiter.bytes();
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if calls.len() < CALLS_MAX {
            calls.push(MeteredCall { function, fuel, memory_bytes, busy: Duration::from_nanos(busy_ns) });
        }
    }

    pub(crate) fn take(&self) -> Vec<MeteredCall> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
