//! Counters of the server in atomics, and their output in Prometheus text format. Label values come
//! from closed sets: clients cannot create new time series.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::route::Label;

/// Statuses that are counted separately. All others are counted as the last one, 0.
const STATUSES: [u16; 26] = [
    200, 204, 400, 401, 402, 403, 404, 405, 408, 409, 412, 413, 414, 422, 426, 429, 431, 500, 502, 503, 504,
    524, 529, 201, 499, 0,
];

/// Upper bounds of the histogram buckets, in seconds.
const BOUNDS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 120.0];

/// A histogram of durations.
#[derive(Default)]
pub(crate) struct DurationHistogram {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    sum_us: AtomicU64,
}

impl DurationHistogram {
    pub(crate) fn observe(&self, elapsed: Duration) {
        let seconds = elapsed.as_secs_f64();
        let index = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        if let Some(bucket) = self.buckets.get(index) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_us.fetch_add(u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn write(&self, text: &mut Text, name: &str, labels: &str) {
        let mut total = 0;
        let comma = if labels.is_empty() { "" } else { "," };
        for (index, bucket) in self.buckets.iter().enumerate() {
            total += bucket.load(Ordering::Relaxed);
            let bound = BOUNDS.get(index).map_or_else(|| "+Inf".to_owned(), ToString::to_string);
            text.sample(&format!("{name}_bucket"), &format!("{labels}{comma}le=\"{bound}\""), total);
        }
        let sum = self.sum_us.load(Ordering::Relaxed);
        text.sample(&format!("{name}_sum"), labels, format!("{}.{:06}", sum / 1_000_000, sum % 1_000_000));
        text.sample(&format!("{name}_count"), labels, total);
    }
}

#[derive(Default)]
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
    pub first_bytes: DurationHistogram,
    /// Reloads that replaced the configuration.
    pub reloads: AtomicU64,
    /// Reloads that were refused.
    pub reloads_refused: AtomicU64,
    requests: [[AtomicU64; STATUSES.len()]; Label::ALL.len()],
    durations: [DurationHistogram; Label::ALL.len()],
}

impl Metrics {
    pub(crate) fn count_request(&self, route: Label, status: u16, elapsed: Duration) {
        let column = STATUSES.iter().position(|known| *known == status).unwrap_or(STATUSES.len() - 1);
        let row = self.requests.get(route as usize);
        if let Some(counter) = row.and_then(|row| row.get(column)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(histogram) = self.durations.get(route as usize) {
            histogram.observe(elapsed);
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

    pub(crate) fn write(&self, text: &mut Text) {
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
            histogram.write(
                text,
                "cofferdam_request_duration_seconds",
                &format!("route=\"{}\"", route.as_str()),
            );
        }
        text.family(
            "cofferdam_stream_first_byte_seconds",
            "histogram",
            "From the head of a request to the first byte of its stream",
        );
        self.first_bytes.write(text, "cofferdam_stream_first_byte_seconds", "");
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
        metrics.write(&mut text);
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
