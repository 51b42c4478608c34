//! Counts per plugin for metrics. They never contain content.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use cofferdam_store::{HistogramReading, HistogramScale, StripedHistogram};

use crate::error::CallErrorKind;
use crate::wire::HttpError;

/// The functions that the host calls, the most frequent first. The last stands for all that is none of
/// them: the start of an instance.
const FUNCTIONS: [&str; 16] = [
    "decoder.feed",
    "generation.prepare",
    "decoder.new",
    "decoder.finish",
    "decoder.drop",
    "route",
    "invoke",
    "functions",
    "on-request",
    "on-response",
    "dialect.map-error",
    "embedding.prepare",
    "embedding.decode",
    "slugs",
    "choose",
    "start",
];

/// Processor time of one call, in nanoseconds.
static CALL_SECONDS: HistogramScale =
    HistogramScale::new(&[100_000, 1_000_000, 10_000_000, 100_000_000], 1_000_000_000);
/// Time of a tool's call with all waits, in microseconds.
static TOOL_SECONDS: HistogramScale =
    HistogramScale::new(&[1_000, 10_000, 100_000, 500_000, 2_000_000, 10_000_000, 60_000_000], 1_000_000);

/// What a hook decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookAction {
    /// It let the text pass.
    Pass,
    /// It replaced the text.
    Replace,
    /// It rejected the request or the answer.
    Reject,
    /// It gave no decision.
    Failed,
}

impl HookAction {
    const ALL: [&str; 4] = ["pass", "replace", "reject", "failed"];
}

/// The results of a plugin's own HTTP requests.
const HTTP_RESULTS: [&str; 10] = [
    "answered",
    "denied",
    "invalid",
    "secret_unavailable",
    "unreachable",
    "untrusted",
    "timeout",
    "too_large",
    "broken",
    "exhausted",
];

/// Running totals of the plugins of one name since the start of the process.
#[derive(Debug)]
pub struct Counters {
    calls: [OnceLock<Box<StripedHistogram>>; FUNCTIONS.len()],
    memory_peak: AtomicU64,
    log_lines: AtomicU64,
    log_lines_dropped: AtomicU64,
    errors: Mutex<BTreeMap<&'static str, u64>>,
    tools: OnceLock<Box<StripedHistogram>>,
    tool_failures: AtomicU64,
    hook_actions: [AtomicU64; HookAction::ALL.len()],
    http: [AtomicU64; HTTP_RESULTS.len()],
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            calls: [const { OnceLock::new() }; FUNCTIONS.len()],
            memory_peak: AtomicU64::new(0),
            log_lines: AtomicU64::new(0),
            log_lines_dropped: AtomicU64::new(0),
            errors: Mutex::default(),
            tools: OnceLock::new(),
            tool_failures: AtomicU64::new(0),
            hook_actions: Default::default(),
            http: Default::default(),
        }
    }
}

/// A copy of [`Counters`] at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CounterValues {
    /// Number of calls, instantiations included.
    pub calls: u64,
    /// Time that its code ran, in nanoseconds, without waiting.
    pub busy_ns: u64,
    /// The same by function, for those that were called.
    pub functions: Vec<(&'static str, HistogramReading)>,
    /// The most memory of an instance at the end of a call, in bytes.
    pub memory_peak: u64,
    /// Lines that it wrote into the log.
    pub log_lines: u64,
    /// Lines that were dropped because a call's quota was spent.
    pub log_lines_dropped: u64,
    /// Number of failed calls by kind, with the labels of [`CallErrorKind::as_str`].
    pub errors: BTreeMap<&'static str, u64>,
    /// How long calls as a tool took, waits included. `None` before the first.
    pub tools: Option<HistogramReading>,
    /// Those of them that failed.
    pub tool_failures: u64,
    /// Decisions of a hook, by action.
    pub hook_actions: Vec<(&'static str, u64)>,
    /// HTTP requests of the plugin itself, by result.
    pub http: Vec<(&'static str, u64)>,
}

impl Counters {
    /// The current totals.
    #[must_use]
    pub fn values(&self) -> CounterValues {
        let known = FUNCTIONS.iter().zip(&self.calls);
        let functions: Vec<_> =
            known.filter_map(|(name, calls)| Some((*name, calls.get()?.reading()))).collect();
        CounterValues {
            calls: functions.iter().map(|(_, calls)| calls.count()).sum(),
            busy_ns: functions.iter().map(|(_, calls)| calls.sum).sum(),
            functions,
            memory_peak: self.memory_peak.load(Ordering::Relaxed),
            log_lines: self.log_lines.load(Ordering::Relaxed),
            log_lines_dropped: self.log_lines_dropped.load(Ordering::Relaxed),
            errors: self.errors.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            tools: self.tools.get().map(|tools| tools.reading()),
            tool_failures: self.tool_failures.load(Ordering::Relaxed),
            hook_actions: counted(&HookAction::ALL, &self.hook_actions),
            http: counted(&HTTP_RESULTS, &self.http),
        }
    }

    /// Counts a call of an exported function that has ended in any way.
    pub(crate) fn called(&self, function: &str, busy_ns: u64, memory_bytes: usize) {
        let index = FUNCTIONS.iter().position(|known| *known == function).unwrap_or(FUNCTIONS.len() - 1);
        if let Some(calls) = self.calls.get(index) {
            calls.get_or_init(|| Box::new(StripedHistogram::new(&CALL_SECONDS))).observe(busy_ns);
        }
        // A call that sets no new peak writes nothing.
        if memory_bytes as u64 > self.memory_peak.load(Ordering::Relaxed) {
            self.memory_peak.fetch_max(memory_bytes as u64, Ordering::Relaxed);
        }
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

    /// Counts an HTTP request of the plugin. An answer that is read in pieces counts with its head.
    pub(crate) fn requested<T>(&self, answer: &Result<T, HttpError>) {
        let index = match answer {
            Ok(_) => 0,
            Err(HttpError::Denied) => 1,
            Err(HttpError::Invalid) => 2,
            Err(HttpError::SecretUnavailable) => 3,
            Err(HttpError::Unreachable) => 4,
            Err(HttpError::Untrusted) => 5,
            Err(HttpError::Timeout) => 6,
            Err(HttpError::TooLarge) => 7,
            Err(HttpError::Broken) => 8,
            Err(HttpError::Exhausted) => 9,
        };
        if let Some(counter) = self.http.get(index) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a call of the plugin as a tool, by a model or a hook.
    pub fn tool_called(&self, elapsed: Duration, has_failed: bool) {
        let tools = self.tools.get_or_init(|| Box::new(StripedHistogram::new(&TOOL_SECONDS)));
        tools.observe(u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX));
        if has_failed {
            self.tool_failures.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a decision of the plugin as a hook.
    pub fn hook_decided(&self, action: HookAction) {
        if let Some(counter) = self.hook_actions.get(action as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn counted(names: &[&'static str], counters: &[AtomicU64]) -> Vec<(&'static str, u64)> {
    names.iter().zip(counters).map(|(name, counter)| (*name, counter.load(Ordering::Relaxed))).collect()
}
