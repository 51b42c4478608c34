//! Counters of the server in atomics, and their output in Prometheus text format. Label values come
//! from closed sets: clients cannot create new time series.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cofferdam_engine::AnswerCounts;
use cofferdam_runtime::wire::{ERROR_KINDS, ErrorKind};
use cofferdam_store::{HistogramReading, SECONDS, StripedHistogram};

use crate::route::Label;

/// Statuses that are counted separately. All others are counted as the last one, 0.
const STATUSES: [u16; 26] = [
    200, 204, 400, 401, 402, 403, 404, 405, 408, 409, 412, 413, 414, 422, 426, 429, 431, 500, 502, 503, 504,
    524, 529, 201, 499, 0,
];

pub(crate) struct Metrics {
    /// Requests whose response is not finished.
    pub requests_running: AtomicU64,
    /// Open client connections.
    pub connections: AtomicU64,
    /// Connections closed at once because their address had too many.
    pub connections_refused: AtomicU64,
    /// Streams that are being sent.
    pub(crate) streams_running: AtomicU64,
    /// Streams whose client disconnected before the end.
    pub streams_abandoned: AtomicU64,
    /// From the end of a request's head to the first byte of its stream.
    pub first_bytes: StripedHistogram,
    /// Reloads that replaced the configuration.
    pub reloads: AtomicU64,
    /// Reloads that were refused.
    pub reloads_refused: AtomicU64,
    requests: [[AtomicU64; STATUSES.len()]; Label::ALL.len()],
    durations: [StripedHistogram; Label::ALL.len()],
    refusals: [AtomicU64; ERROR_KINDS.len()],
    vault: [[AtomicU64; VAULT_RESULTS.len()]; VAULT_OPERATIONS.len()],
}

/// What requests to the vault do.
pub(crate) const VAULT_OPERATIONS: [&str; 5] = ["list", "effective", "put", "delete", "copy"];
const VAULT_RESULTS: [&str; 3] = ["done", "refused", "failed"];

impl Default for Metrics {
    fn default() -> Self {
        Self {
            requests_running: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            connections_refused: AtomicU64::new(0),
            streams_running: AtomicU64::new(0),
            streams_abandoned: AtomicU64::new(0),
            first_bytes: StripedHistogram::new(&SECONDS),
            reloads: AtomicU64::new(0),
            reloads_refused: AtomicU64::new(0),
            requests: Default::default(),
            durations: Label::ALL.map(|_| StripedHistogram::new(&SECONDS)),
            refusals: Default::default(),
            vault: Default::default(),
        }
    }
}

impl Metrics {
    pub(crate) fn count_request(&self, route: Label, status: u16, elapsed: Duration) {
        let column = STATUSES.iter().position(|known| *known == status).unwrap_or(STATUSES.len() - 1);
        let row = self.requests.get(route as usize);
        if let Some(counter) = row.and_then(|row| row.get(column)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(histogram) = self.durations.get(route as usize) {
            histogram.observe(micros(elapsed));
        }
    }

    /// Counts an error document by its error type.
    pub(crate) fn count_refusal(&self, kind: ErrorKind) {
        let column = ERROR_KINDS.iter().position(|(known, _)| *known == kind);
        if let Some(counter) = column.and_then(|column| self.refusals.get(column)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts an operation of the vault. `refusal` is the status of its error.
    pub(crate) fn count_vault(&self, operation: &str, refusal: Option<u16>) {
        let column = refusal.map_or(0, |status| if status < 500 { 1 } else { 2 });
        let row = VAULT_OPERATIONS.iter().position(|known| *known == operation);
        let row = row.and_then(|row| self.vault.get(row));
        if let Some(counter) = row.and_then(|row| row.get(column)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// All answered requests, and those of them that the host or a provider failed (5xx).
    pub(crate) fn answered(&self) -> (u64, u64) {
        let (mut requests, mut failures) = (0, 0);
        for (status, counter) in self.requests.iter().flat_map(|row| STATUSES.iter().zip(row)) {
            let count = counter.load(Ordering::Relaxed);
            requests += count;
            failures += if *status >= 500 { count } else { 0 };
        }
        (requests, failures)
    }

    pub(crate) fn write(&self, answers: &AnswerCounts, text: &mut Text) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        text.family("cofferdam_requests_total", "counter", "Answered requests");
        for (route, row) in Label::ALL.iter().zip(&self.requests) {
            for (status, counter) in STATUSES.iter().zip(row).filter(|(_, counter)| read(counter) > 0) {
                let labels = format!("route=\"{}\",status=\"{status}\"", route.as_str());
                text.sample("cofferdam_requests_total", &labels, read(counter));
            }
        }
        text.family(
            "cofferdam_request_duration_seconds",
            "histogram",
            "From the head of a request to the end of its answer",
        );
        for (route, histogram) in Label::ALL.iter().zip(&self.durations) {
            let labels = format!("route=\"{}\"", route.as_str());
            text.histogram("cofferdam_request_duration_seconds", &labels, &histogram.reading());
        }
        text.family(
            "cofferdam_stream_first_byte_seconds",
            "histogram",
            "From the head of a request to the first byte of its stream",
        );
        text.histogram("cofferdam_stream_first_byte_seconds", "", &self.first_bytes.reading());
        self.write_refusals(answers, text);
        for (name, kind, help, counter) in [
            (
                "cofferdam_requests_running",
                "gauge",
                "Requests whose answer is not done",
                &self.requests_running,
            ),
            ("cofferdam_connections", "gauge", "Open client connections", &self.connections),
            (
                "cofferdam_connections_refused_total",
                "counter",
                "Connections refused because their address had too many",
                &self.connections_refused,
            ),
            ("cofferdam_streams_running", "gauge", "Streams that are being sent", &self.streams_running),
            (
                "cofferdam_streams_abandoned_total",
                "counter",
                "Streams whose client went away",
                &self.streams_abandoned,
            ),
            ("cofferdam_reloads_total", "counter", "Configurations taken over while running", &self.reloads),
            (
                "cofferdam_reloads_refused_total",
                "counter",
                "Configurations refused while running",
                &self.reloads_refused,
            ),
        ] {
            text.single(name, kind, help, read(counter));
        }
    }
}

impl Metrics {
    fn write_refusals(&self, answers: &AnswerCounts, text: &mut Text) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        text.family("cofferdam_refusals_total", "counter", "Error documents sent to clients, by error type");
        for ((_, reason), counter) in ERROR_KINDS.iter().zip(&self.refusals) {
            text.sample("cofferdam_refusals_total", &format!("reason=\"{reason}\""), read(counter));
        }
        let help = "Requests for which an endpoint was asked, by how they ended; refused is a failure below status 500";
        text.family("cofferdam_answers_total", "counter", help);
        for (outcome, count) in answers.all() {
            text.sample("cofferdam_answers_total", &format!("outcome=\"{outcome}\""), count);
        }
        let help = "Operations of the vault whose caller had access to it";
        text.family("cofferdam_vault_operations_total", "counter", help);
        for (operation, row) in VAULT_OPERATIONS.iter().zip(&self.vault) {
            for (result, counter) in VAULT_RESULTS.iter().zip(row) {
                let labels = format!("operation=\"{operation}\",result=\"{result}\"");
                text.sample("cofferdam_vault_operations_total", &labels, read(counter));
            }
        }
    }
}

pub(crate) fn micros(elapsed: Duration) -> u64 {
    u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
}

/// Builds Prometheus text.
#[derive(Default)]
pub(crate) struct Text(String);

impl Text {
    /// Starts a metric family with its `HELP` and `TYPE` lines.
    pub(crate) fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    /// Adds a metric family with one sample that has no labels.
    pub(crate) fn single(&mut self, name: &str, kind: &str, help: &str, value: impl std::fmt::Display) {
        self.family(name, kind, help);
        self.sample(name, "", value);
    }

    /// Adds a sample; `labels` is the text between the braces.
    pub(crate) fn sample(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        if labels.is_empty() {
            self.line(format_args!("{name} {value}\n"));
        } else {
            self.line(format_args!("{name}{{{labels}}} {value}\n"));
        }
    }

    /// Adds the samples of a histogram.
    pub(crate) fn histogram(&mut self, name: &str, labels: &str, reading: &HistogramReading) {
        let mut total = 0;
        let comma = if labels.is_empty() { "" } else { "," };
        for (index, count) in reading.buckets.iter().enumerate() {
            total += count;
            let bound = reading.bounds.get(index).map(|bound| *bound as f64 / reading.per_unit as f64);
            let bound = bound.map_or_else(|| "+Inf".to_owned(), |bound| bound.to_string());
            self.sample(&format!("{name}_bucket"), &format!("{labels}{comma}le=\"{bound}\""), total);
        }
        self.sample(&format!("{name}_sum"), labels, decimal(reading.sum, reading.per_unit));
        self.sample(&format!("{name}_count"), labels, total);
    }

    #[must_use]
    pub(crate) fn finish(self) -> String {
        self.0
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        if self.0.write_fmt(line).is_err() {
            debug_assert!(false, "writing to a string cannot fail");
        }
    }
}

/// A sum of parts, of which `per_unit`, a power of ten, are one unit.
#[must_use]
pub(crate) fn decimal(sum: u64, per_unit: u64) -> String {
    match per_unit.checked_ilog10() {
        Some(digits @ 1..) => {
            format!("{}.{:0width$}", sum / per_unit, sum % per_unit, width = digits as usize)
        }
        _ => sum.to_string(),
    }
}

/// Escapes a label value: backslash, quote and line break.
#[must_use]
pub(crate) fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Metrics, Text, escape};
    use crate::route::Label;

    #[test]
    fn requests_appear_by_route_and_status() {
        let metrics = Metrics::default();
        metrics.count_request(Label::Responses, 200, Duration::from_millis(3));
        metrics.count_request(Label::Responses, 418, Duration::from_millis(3));
        let mut text = Text::default();
        metrics.write(&cofferdam_engine::AnswerCounts::default(), &mut text);
        let text = text.finish();
        assert!(text.contains("cofferdam_requests_total{route=\"responses\",status=\"200\"} 1\n"));
        assert!(text.contains("cofferdam_requests_total{route=\"responses\",status=\"0\"} 1\n"));
        assert!(
            text.contains("cofferdam_request_duration_seconds_bucket{route=\"responses\",le=\"0.0025\"} 0\n")
        );
        assert!(
            text.contains("cofferdam_request_duration_seconds_bucket{route=\"responses\",le=\"+Inf\"} 2\n")
        );
        assert!(text.contains("cofferdam_request_duration_seconds_sum{route=\"responses\"} 0.006000\n"));
    }

    #[test]
    fn label_values_are_escaped() {
        assert_eq!(escape("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
