//! Rules that put classes of endpoints before others: soft, nothing is lost.

use crate::bindings::exports::cofferdam::plugin::routing::{Candidate, Percentiles, RequestSummary};
use crate::preferences::{Preferences, Thresholds};

/// The place of an endpoint before anything is sorted or drawn; smaller is
/// earlier. The order of the fields is the order of importance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    /// Its breaker is open.
    ejected: bool,
    /// It is known to lack what the request needs.
    unfit: bool,
    /// It misses a preferred speed.
    slow: bool,
    /// Its place in the client's `order`; all alike behind the listed ones.
    listed: usize,
    /// Its place by service tier.
    tier: u8,
    /// It failed within the last 30 seconds.
    outage: bool,
    /// The workspace has no credential of its own for it.
    shared: bool,
}

impl Rank {
    /// `listed` is the place in the client's `order`, if there is one; `tier`
    /// that of the service tier. Outages and own credentials count only where
    /// the router balances: a client that orders or sorts knows what it wants.
    pub(crate) fn new(
        summary: &RequestSummary,
        preferences: &Preferences,
        candidate: &Candidate,
        (listed, tier): (usize, u8),
        balanced: bool,
    ) -> Self {
        Self {
            ejected: candidate.statistics.ejected,
            unfit: !fits(summary, candidate),
            slow: !is_fast_enough(preferences, candidate),
            listed,
            tier,
            outage: balanced && candidate.statistics.outage,
            shared: balanced && !candidate.byok,
        }
    }
}

/// Unknown lengths and unstated abilities are given the benefit of the doubt.
fn fits(summary: &RequestSummary, candidate: &Candidate) -> bool {
    let long_enough = |limit: u32, wanted: u32| limit == 0 || wanted <= limit;
    let able = |need: &String| candidate.supports.is_empty() || candidate.supports.contains(need);
    long_enough(candidate.context_length, summary.input_tokens)
        && long_enough(candidate.max_output, summary.max_output_tokens.unwrap_or(0))
        && summary.needs.iter().all(able)
}

fn is_fast_enough(preferences: &Preferences, candidate: &Candidate) -> bool {
    let statistics = &candidate.statistics;
    holds(&preferences.min_throughput, &statistics.throughput, |limit, measured| measured >= limit)
        && holds(&preferences.max_latency, &statistics.latency_ms, |limit_s, measured_ms| {
            // Clients state seconds, the host measures milliseconds.
            measured_ms <= limit_s * 1000.0
        })
}

/// Whether every stated limit holds; what was never measured misses nothing.
fn holds(limits: &Thresholds, measured: &Percentiles, within: fn(f64, f64) -> bool) -> bool {
    [
        (limits.p50, measured.p50),
        (limits.p75, measured.p75),
        (limits.p90, measured.p90),
        (limits.p99, measured.p99),
    ]
    .into_iter()
    .all(|(limit, measured)| limit.is_none_or(|limit| measured <= 0.0 || within(limit, measured)))
}
