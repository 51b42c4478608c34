//! Sorting by one figure, when the client asks for it.

use std::cmp::Ordering;

use crate::endpoint::{Candidate, Price};
use crate::preferences::SortBy;

/// Compares two endpoints, the better one first; equal ones by price.
pub(crate) fn compare(by: SortBy, left: &Candidate, right: &Candidate) -> Ordering {
    let by_price = || total(&left.price).total_cmp(&total(&right.price));
    let key = |candidate: &Candidate| match by {
        SortBy::Price => total(&candidate.price),
        // What was never measured comes last.
        SortBy::Latency => positive_or(candidate.statistics.latency_ms.p50, f64::MAX),
        SortBy::Throughput => -positive_or(candidate.statistics.throughput.p50, 0.0),
        SortBy::Exacto => failure_share(candidate),
    };
    key(left).total_cmp(&key(right)).then_with(by_price)
}

/// Whether the figure that is sorted by is known of an endpoint.
pub(crate) fn is_measured(by: SortBy, candidate: &Candidate) -> bool {
    match by {
        SortBy::Price | SortBy::Exacto => true,
        SortBy::Latency => candidate.statistics.latency_ms.p50 > 0.0,
        SortBy::Throughput => candidate.statistics.throughput.p50 > 0.0,
    }
}

/// The figure by which prices are compared: input and output alike. A price
/// that is no number is dearer than any.
#[must_use]
pub fn total(price: &Price) -> f64 {
    let sum = price.input + price.output;
    if sum.is_nan() { f64::MAX } else { sum.clamp(0.0, f64::MAX) }
}

fn positive_or(measured: f64, otherwise: f64) -> f64 {
    if measured > 0.0 { measured } else { otherwise }
}

/// The share of failures as if ten more requests had been seen, one of them
/// failed: an endpoint with few requests is neither the best for having had no
/// time to fail nor the worst for a single failure.
fn failure_share(candidate: &Candidate) -> f64 {
    let statistics = &candidate.statistics;
    (f64::from(statistics.failures) + 1.0) / (f64::from(statistics.requests) + 10.0)
}
