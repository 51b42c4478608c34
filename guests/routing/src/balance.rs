//! Draws an order by price. Each next endpoint is drawn with a weight of one over its price squared, so
//! that the load, including the load of a failed endpoint, is spread over all endpoints and mostly over
//! the cheap ones.

use cofferdam_guest_kit::bindings::routing::Candidate;

use crate::random::Random;
use crate::sort::total;

/// A price more than this many times the cheapest has no weight. The square of this value is finite.
const RATIO_MAX: f64 = 1e150;

/// An endpoint's position in the draw. Free endpoints come before all others, because no weight can
/// compare a price of zero with other prices.
struct Draw {
    paid: bool,
    wait: f64,
    price: f64,
    index: usize,
}

/// Puts `indexes` into a drawn order.
///
/// Every endpoint gets a random, exponentially distributed waiting time; the greater its weight, the
/// shorter the time. The order of the times has the same distribution as weighted drawing without
/// replacement, and needs only one pass and a sort.
pub(crate) fn draw(candidates: &[Candidate], indexes: &mut [usize], random: &mut Random) {
    if indexes.len() < 2 {
        return;
    }
    let price = |index: usize| candidates.get(index).map_or(f64::MAX, |candidate| total(&candidate.price));
    let prices = indexes.iter().map(|index| price(*index));
    let cheapest_paid = prices.filter(|price| *price > 0.0).fold(f64::MAX, f64::min);
    let mut draws: Vec<Draw> = indexes
        .iter()
        .map(|&index| {
            let price = price(index);
            // Relative to the cheapest price, so that nothing overflows.
            let ratio = if price > 0.0 { (price / cheapest_paid).min(RATIO_MAX) } else { 1.0 };
            // `1 - share` is never 0, so its logarithm is finite.
            let wait = -(1.0 - random.share()).ln() * ratio * ratio;
            Draw { paid: price > 0.0, wait, price, index }
        })
        .collect();
    draws.sort_unstable_by(|one, other| {
        let by_wait = one.paid.cmp(&other.paid).then_with(|| one.wait.total_cmp(&other.wait));
        by_wait.then_with(|| one.price.total_cmp(&other.price)).then(one.index.cmp(&other.index))
    });
    for (index, draw) in indexes.iter_mut().zip(draws) {
        *index = draw.index;
    }
}
