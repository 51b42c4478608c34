//! Rules that put classes of endpoints before others: soft, nothing is lost.

use crate::endpoint::{Candidate, Percentiles, Request};
use crate::preferences::{Preferences, Thresholds};

/// The place of an endpoint before anything is sorted or drawn; smaller is
/// earlier. The order of the fields is the order of importance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    /// Its breaker is open: behind the healthy endpoints of every model.
    ejected: bool,
    /// It states its abilities and one that the request needs is not among
    /// them: behind the other models' endpoints, too.
    unable: bool,
    /// The model's rank, or 0 when models are sorted together.
    partition: u32,
    /// By a rough count, the request is longer than what it takes.
    too_long: bool,
    /// It misses a preferred speed.
    slow: bool,
    /// Its place in the client's `order`; all alike behind the listed ones.
    listed: usize,
    /// Its place by service tier.
    pub(crate) tier: u8,
    /// It is not the endpoint that served this session last.
    elsewhere: bool,
    /// It failed within the last 30 seconds.
    outage: bool,
    /// The workspace has no credential of its own for it.
    shared: bool,
}

/// What an endpoint's rank depends on besides itself.
pub(crate) struct Ranking<'a> {
    pub(crate) request: &'a Request,
    pub(crate) preferences: &'a Preferences,
    /// Whether models are sorted together.
    pub(crate) across_models: bool,
    /// Whether the router balances. A client that orders or sorts knows what it
    /// wants: outages and own credentials do not count then.
    pub(crate) balanced: bool,
}

impl Ranking<'_> {
    /// `listed` is the place in the client's `order`, `tier` that of the service
    /// tier, `remembered` whether the endpoint served this session last.
    pub(crate) fn of(&self, candidate: &Candidate, listed: usize, tier: u8, remembered: bool) -> Rank {
        let Self { request, preferences, .. } = self;
        let statistics = &candidate.statistics;
        // Its prompt cache is warm there, which outweighs what it does on
        // average; not so if it fails or the client has an order of its own.
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

/// Unstated abilities are given the benefit of the doubt.
fn is_able(request: &Request, candidate: &Candidate) -> bool {
    candidate.supports.is_empty() || request.needs.iter().all(|need| candidate.supports.contains(need))
}

/// Unknown lengths are given the benefit of the doubt.
fn is_long_enough(request: &Request, candidate: &Candidate) -> bool {
    let fits = |limit: u32, wanted: u32| limit == 0 || wanted <= limit;
    fits(candidate.context_length, request.tokens())
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
