//! Counts per plugin for metrics. They never contain content.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::CallErrorKind;

/// Running totals of one plugin since it was loaded.
#[derive(Debug, Default)]
pub struct Counters {
    calls: AtomicU64,
    busy_ns: AtomicU64,
    log_lines: AtomicU64,
    log_lines_dropped: AtomicU64,
    errors: Mutex<BTreeMap<&'static str, u64>>,
}

/// A copy of [`Counters`] at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CounterValues {
    /// Number of calls, instantiations included.
    pub calls: u64,
    /// Time that its code ran, in nanoseconds, without waiting.
    pub busy_ns: u64,
    /// Lines that it wrote into the log.
    pub log_lines: u64,
    /// Lines that were dropped because a call's quota was spent.
    pub log_lines_dropped: u64,
    /// Number of failed calls by kind, with the labels of [`CallErrorKind::as_str`].
    pub errors: BTreeMap<&'static str, u64>,
}

impl Counters {
    /// The current totals.
    #[must_use]
    pub fn values(&self) -> CounterValues {
        CounterValues {
            calls: self.calls.load(Ordering::Relaxed),
            busy_ns: self.busy_ns.load(Ordering::Relaxed),
            log_lines: self.log_lines.load(Ordering::Relaxed),
            log_lines_dropped: self.log_lines_dropped.load(Ordering::Relaxed),
            errors: self.errors.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    pub(crate) fn called(&self, busy_ns: u64) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.busy_ns.fetch_add(busy_ns, Ordering::Relaxed);
    }

    pub(crate) fn failed(&self, kind: &CallErrorKind) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        *errors.entry(kind.as_str()).or_default() += 1;
    }

    pub(crate) fn logged(&self) {
        self.log_lines.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn dropped_line(&self) {
        self.log_lines_dropped.fetch_add(1, Ordering::Relaxed);
    }
}
