//! Soft rules: they put classes of endpoints before others and remove none.

use cofferdam_guest_kit::bindings::routing::{Candidate, Percentiles, RequestSummary};

use crate::endpoint::tokens;
use crate::preferences::{Preferences, Thresholds};

/// The rank of an endpoint before anything is sorted or drawn; smaller is earlier. The order of the
/// fields is the order of importance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    /// It is only a last resort. It comes after the healthy endpoints of every model.
    ejected: bool,
    /// It states its abilities, and one that the request needs is missing. It also comes after the
    /// endpoints of other models.
    unable: bool,
    /// The rank of the model, or 0 when models are sorted together.
    partition: u32,
    /// By a rough count, the request is longer than the endpoint accepts.
    too_long: bool,
    /// It does not reach a preferred speed.
    slow: bool,
    /// The position in the client's `order`; all unlisted endpoints share the position after its end.
    listed: usize,
    /// The position by service tier.
    pub(crate) tier: u8,
    /// It is not the endpoint that served this session last.
    elsewhere: bool,
    /// It failed within the last 30 seconds.
    outage: bool,
    /// The workspace has no credential of its own for this endpoint.
    shared: bool,
}

/// What an endpoint's rank depends on, other than the endpoint.
pub(crate) struct Ranking<'a> {
    pub(crate) request: &'a RequestSummary,
    pub(crate) preferences: &'a Preferences,
    /// Whether models are sorted together.
    pub(crate) across_models: bool,
    /// Whether the router balances load. When the client gives an order or a sort, outages and own
    /// credentials are not considered.
    pub(crate) balanced: bool,
}

impl Ranking<'_> {
    /// The rank of an endpoint. `listed` is the position in the client's `order`, `tier` the position
    /// by service tier, `remembered` whether the endpoint served this session last.
    pub(crate) fn of(&self, candidate: &Candidate, listed: usize, tier: u8, remembered: bool) -> Rank {
        let Self { request, preferences, .. } = self;
        let statistics = &candidate.statistics;
        // The endpoint of the session has a warm prompt cache, which is worth more than its average
        // speed. This does not apply if it is failing or the client gives an order.
        let stays = remembered && !statistics.outage && preferences.order.is_none();
        Rank {
            ejected: statistics.ejected,
            unable: !is_able(request, candidate),
            partition: if self.across_models { 0 } else { candidate.model_rank },
            too_long: !is_long_enough(request, candidate),
            slow: !stays && !is_fast_enough(preferences, candidate),
            listed,
            tier,
            elsewhere: !stays,
            outage: self.balanced && statistics.outage,
            shared: self.balanced && !candidate.byok,
        }
    }
}

/// Whether the endpoint has all needed abilities. Unstated abilities count as sufficient.
fn is_able(request: &RequestSummary, candidate: &Candidate) -> bool {
    candidate.supports.is_empty() || request.needs.iter().all(|need| candidate.supports.contains(need))
}

/// Whether the request fits. Unknown lengths count as sufficient.
fn is_long_enough(request: &RequestSummary, candidate: &Candidate) -> bool {
    let fits = |limit: u32, wanted: u32| limit == 0 || wanted <= limit;
    fits(candidate.context_length, tokens(request))
        && fits(candidate.max_output, request.max_output_tokens.unwrap_or(0))
}

fn is_fast_enough(preferences: &Preferences, candidate: &Candidate) -> bool {
    let statistics = &candidate.statistics;
    holds(&preferences.min_throughput, &statistics.throughput, |limit, measured| measured >= limit)
        && holds(&preferences.max_latency, &statistics.latency_ms, |limit_s, measured_ms| {
            // Clients state seconds, the host measures milliseconds.
            measured_ms <= limit_s * 1000.0
        })
}

/// Whether every stated limit is met. A value that was never measured meets every limit.
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
