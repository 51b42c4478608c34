//! Sorts by one figure, when the client asks for it.

use std::cmp::Ordering;

use cofferdam_guest_kit::bindings::routing::{Candidate, Price};

use crate::preferences::SortBy;

/// Compares two endpoints; the better one is less. Equal endpoints are compared by price.
pub(crate) fn compare(by: SortBy, left: &Candidate, right: &Candidate) -> Ordering {
    let by_price = || total(&left.price).total_cmp(&total(&right.price));
    let key = |candidate: &Candidate| match by {
        SortBy::Price => total(&candidate.price),
        // Endpoints that were never measured come last.
        SortBy::Latency => positive_or(candidate.statistics.latency_ms.p50, f64::MAX),
        SortBy::Throughput => -positive_or(candidate.statistics.throughput.p50, 0.0),
        SortBy::Exacto => failure_share(candidate),
    };
    key(left).total_cmp(&key(right)).then_with(by_price)
}

/// Whether the figure of the sort has been measured for an endpoint.
pub(crate) fn is_measured(by: SortBy, candidate: &Candidate) -> bool {
    match by {
        SortBy::Price | SortBy::Exacto => true,
        SortBy::Latency => candidate.statistics.latency_ms.p50 > 0.0,
        SortBy::Throughput => candidate.statistics.throughput.p50 > 0.0,
    }
}

/// The figure by which prices are compared: input plus output. A price that is not a number counts as
/// the highest.
#[must_use]
pub fn total(price: &Price) -> f64 {
    let sum = price.input + price.output;
    if sum.is_nan() { f64::MAX } else { sum.clamp(0.0, f64::MAX) }
}

fn positive_or(measured: f64, otherwise: f64) -> f64 {
    if measured > 0.0 { measured } else { otherwise }
}

/// The share of failures, computed as if ten more requests with one failure had been seen. An endpoint
/// with few requests is then neither the best because it had no time to fail, nor the worst because of
/// a single failure.
fn failure_share(candidate: &Candidate) -> f64 {
    let statistics = &candidate.statistics;
    (f64::from(statistics.failures) + 1.0) / (f64::from(statistics.requests) + 10.0)
}
