//! Puts the allowed endpoints in order, model by model.

use crate::balance::{self, Random};
use crate::bindings::exports::cofferdam::plugin::routing::{Candidate, RequestSummary};
use crate::preferences::{Preferences, SortBy};
use crate::rank::Rank;
use crate::tier::Offered;
use crate::{slug, sort, tier};

/// The order in which `allowed` indexes are tried.
pub(crate) fn decide(
    summary: &RequestSummary,
    preferences: &Preferences,
    candidates: &[Candidate],
    allowed: &[usize],
    seed: u64,
) -> Vec<usize> {
    let mut random = Random::new(seed);
    let ranked = rank_all(summary, preferences, candidates, allowed);
    let mut order = Vec::with_capacity(ranked.len());
    for partition in ranked.chunk_by(|left, right| left.partition == right.partition) {
        let start = order.len();
        for class in partition.chunk_by(|left, right| left.rank == right.rank) {
            let mut indexes: Vec<usize> = class.iter().map(|ranked| ranked.index).collect();
            let speed = class.first().is_some_and(|first| first.speed);
            order_class(summary, preferences, candidates, speed, &mut indexes, &mut random);
            order.append(&mut indexes);
        }
        if let Some(partition) = order.get_mut(start..) {
            stick(summary, preferences, candidates, partition);
        }
    }
    order
}

/// Half a sentence for the operator's log.
pub(crate) fn describe(summary: &RequestSummary, preferences: &Preferences) -> &'static str {
    if preferences.order.is_some() {
        return "in the order the client gave";
    }
    match sort_by(summary, preferences) {
        Some(SortBy::Price) => "cheapest first",
        Some(SortBy::Throughput) => "fastest first",
        Some(SortBy::Latency) => "lowest latency first",
        Some(SortBy::Exacto) => "fewest failures first",
        None => "drawn by the inverse square of price",
    }
}

struct Ranked {
    /// The model's rank, or 0 when models are sorted together.
    partition: u32,
    rank: Rank,
    index: usize,
    /// It is an endpoint of a tier that was asked for because of speed.
    speed: bool,
}

/// Drops what the service tier forbids and sorts by partition and rank.
fn rank_all(
    summary: &RequestSummary,
    preferences: &Preferences,
    candidates: &[Candidate],
    allowed: &[usize],
) -> Vec<Ranked> {
    let across_models = preferences.across_models || summary.route.as_deref() == Some("sort");
    let balanced = preferences.order.is_none() && sort_by(summary, preferences).is_none();
    let allowed = || allowed.iter().filter_map(|index| Some((*index, candidates.get(*index)?)));
    let rank = |(index, candidate): (usize, &Candidate)| {
        let same_model = allowed().map(|(_, other)| other).filter(|other| other.model == candidate.model);
        let tier = tier::rank(&summary.service_tier, &candidate.tier, Offered::of(same_model))?;
        let rank =
            Rank::new(summary, preferences, candidate, (listed(preferences, candidate), tier), balanced);
        let partition = if across_models { 0 } else { candidate.model_rank };
        let speed = balanced && tier::wants_speed(&summary.service_tier, tier);
        Some(Ranked { partition, rank, index, speed })
    };
    let mut ranked: Vec<Ranked> = allowed().filter_map(rank).collect();
    ranked.sort_unstable_by_key(|ranked| (ranked.partition, ranked.rank, ranked.index));
    ranked
}

/// The place in the client's `order`; the end of it for those not listed.
fn listed(preferences: &Preferences, candidate: &Candidate) -> usize {
    let Some(order) = &preferences.order else { return 0 };
    order.iter().position(|slug| slug::matches(slug, candidate)).unwrap_or(order.len())
}

/// The sort asked for, in `provider.sort` or as a suffix of the model.
fn sort_by(summary: &RequestSummary, preferences: &Preferences) -> Option<SortBy> {
    preferences.sort.or(match summary.suffix.as_deref() {
        Some("nitro") => Some(SortBy::Throughput),
        Some("floor") => Some(SortBy::Price),
        Some("exacto") => Some(SortBy::Exacto),
        _ => None,
    })
}

fn order_class(
    summary: &RequestSummary,
    preferences: &Preferences,
    candidates: &[Candidate],
    speed: bool,
    indexes: &mut [usize],
    random: &mut Random,
) {
    let by = match sort_by(summary, preferences) {
        Some(by) => by,
        None if speed => SortBy::Throughput,
        // Whoever gives an order has switched balancing off.
        None if preferences.order.is_some() => SortBy::Price,
        None => return balance::draw(candidates, indexes, random),
    };
    indexes.sort_unstable_by(|left, right| match (candidates.get(*left), candidates.get(*right)) {
        (Some(one), Some(other)) => sort::compare(by, one, other).then(left.cmp(right)),
        _ => left.cmp(right),
    });
}

/// Moves the endpoint that served this session last to the front of its
/// partition, where the provider's prompt cache is warm.
fn stick(
    summary: &RequestSummary,
    preferences: &Preferences,
    candidates: &[Candidate],
    partition: &mut [usize],
) {
    if preferences.order.is_some() {
        return;
    }
    let Some(sticky) = summary.sticky.and_then(|index| usize::try_from(index).ok()) else { return };
    let healthy = candidates
        .get(sticky)
        .is_some_and(|candidate| !candidate.statistics.ejected && !candidate.statistics.outage);
    let place = partition.iter().position(|index| *index == sticky);
    if let (true, Some(front)) = (healthy, place.and_then(|place| partition.get_mut(..=place))) {
        front.rotate_right(1);
    }
}
