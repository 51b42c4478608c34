//! Tries endpoints that were never measured. A sort by speed puts such endpoints last, where they would
//! never be measured. A small share of the requests therefore goes to one of them first.

use cofferdam_guest_kit::bindings::routing::Candidate;

use crate::preferences::SortBy;
use crate::random::Random;
use crate::sort;

/// The share of such requests, for any number of endpoints to measure.
const SHARE: f64 = 0.05;

/// Sometimes puts one of the unmeasured `indexes` first. Endpoints that failed recently are not used.
pub(crate) fn explore(by: SortBy, candidates: &[Candidate], indexes: &mut [usize], random: &mut Random) {
    let is_new = |index: &usize| {
        let candidate = candidates.get(*index);
        candidate.is_some_and(|candidate| !sort::is_measured(by, candidate) && !candidate.statistics.outage)
    };
    let count = indexes.iter().filter(|index| is_new(index)).count();
    // If all endpoints are unmeasured, the first one is measured anyway.
    if count == 0 || count == indexes.len() || random.share() >= SHARE {
        return;
    }
    let drawn = (random.share() * count as f64) as usize;
    let positions =
        indexes.iter().enumerate().filter(|(_, index)| is_new(index)).map(|(position, _)| position);
    if let Some(front) = positions.take(count).nth(drawn).and_then(|position| indexes.get_mut(..=position)) {
        front.rotate_right(1);
    }
}
