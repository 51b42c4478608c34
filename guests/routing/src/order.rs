//! Puts the allowed endpoints in order, class by class.

use cofferdam_guest_kit::bindings::routing::{Candidate, RequestSummary};

use crate::balance;
use crate::explore::explore;
use crate::preferences::{Partition, Preferences, SortBy};
use crate::random::Random;
use crate::rank::{Rank, Ranking};
use crate::tier::Offered;
use crate::{sort, tier};

/// The order in which the `allowed` indexes are tried.
pub(crate) fn decide(
    request: &RequestSummary,
    preferences: &Preferences,
    candidates: &[Candidate],
    allowed: &[usize],
    seed: u64,
) -> Vec<usize> {
    let mut random = Random::new(seed);
    let asked_sort = sort_by(request, preferences);
    let ranked = rank_all(request, preferences, candidates, allowed);
    let mut order = Vec::with_capacity(ranked.len());
    for class in ranked.chunk_by(|(left, _), (right, _)| left == right) {
        let start = order.len();
        order.extend(class.iter().map(|(_, index)| *index));
        let Some(indexes) = order.get_mut(start..) else { continue };
        let tier = class.first().map_or(u8::MAX, |(rank, _)| rank.tier);
        let sort = match asked_sort {
            Some(by) => Some(by),
            // A client that gives an order switches balancing off.
            None if preferences.order.is_some() => Some(SortBy::Price),
            None if tier::wants_speed(&request.service_tier, tier) => Some(SortBy::Throughput),
            None => None,
        };
        match sort {
            Some(by) => {
                sort_class(by, candidates, indexes);
                // A client that allows only one endpoint gets the best known one.
                if preferences.allow_fallbacks {
                    explore(by, candidates, indexes, &mut random);
                }
            }
            None => balance::draw(candidates, indexes, &mut random),
        }
    }
    order
}

/// A part of a sentence for the operator's log.
pub(crate) fn describe(request: &RequestSummary, preferences: &Preferences) -> &'static str {
    if preferences.order.is_some() {
        return "in the order the client gave";
    }
    match sort_by(request, preferences) {
        Some(SortBy::Price) => "cheapest first",
        Some(SortBy::Throughput) => "fastest first",
        Some(SortBy::Latency) => "lowest latency first",
        Some(SortBy::Exacto) => "fewest failures first",
        None => "drawn by the inverse square of price",
    }
}

/// Removes the endpoints that the service tier forbids, and sorts the others by rank.
fn rank_all(
    request: &RequestSummary,
    preferences: &Preferences,
    candidates: &[Candidate],
    allowed: &[usize],
) -> Vec<(Rank, usize)> {
    // `partition` is the newer of the two fields and wins.
    let across_models = match preferences.partition {
        Some(partition) => partition == Partition::None,
        None => request.route.as_deref() == Some("sort"),
    };
    let balanced = preferences.order.is_none() && sort_by(request, preferences).is_none();
    let ranking = Ranking { request, preferences, across_models, balanced };
    let sticky = request.sticky.and_then(|index| usize::try_from(index).ok());
    let allowed = || allowed.iter().filter_map(|index| Some((*index, candidates.get(*index)?)));
    let offered = Offered::of(allowed().map(|(_, candidate)| candidate));
    let rank = |(index, candidate): (usize, &Candidate)| {
        let tier = tier::rank(&request.service_tier, candidate, &offered)?;
        Some((ranking.of(candidate, listed(preferences, candidate), tier, sticky == Some(index)), index))
    };
    let mut ranked: Vec<(Rank, usize)> = allowed().filter_map(rank).collect();
    ranked.sort_unstable();
    ranked
}

/// The position in the client's `order`; for endpoints that are not listed, the position after its end.
fn listed(preferences: &Preferences, candidate: &Candidate) -> usize {
    let Some(order) = &preferences.order else { return 0 };
    order.position(candidate).unwrap_or(order.count())
}

/// The requested sort, from `provider.sort` or from the suffix of the model.
fn sort_by(request: &RequestSummary, preferences: &Preferences) -> Option<SortBy> {
    preferences.sort.or(match request.suffix.as_deref() {
        Some("nitro") => Some(SortBy::Throughput),
        Some("floor") => Some(SortBy::Price),
        Some("exacto") => Some(SortBy::Exacto),
        _ => None,
    })
}

fn sort_class(by: SortBy, candidates: &[Candidate], indexes: &mut [usize]) {
    indexes.sort_unstable_by(|left, right| match (candidates.get(*left), candidates.get(*right)) {
        (Some(one), Some(other)) => sort::compare(by, one, other).then(left.cmp(right)),
        _ => left.cmp(right),
    });
}
