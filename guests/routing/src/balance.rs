//! Drawing an order by price: each next endpoint is drawn with a weight of one
//! over its price squared, so that load, and the load of a failed endpoint too,
//! spreads over all and mostly over the cheap.

use crate::endpoint::Candidate;
use crate::random::Random;
use crate::sort::total;

/// A price this many times the cheapest weighs nothing; its square is still a number.
const RATIO_MAX: f64 = 1e150;

/// An endpoint's place in the draw. Free ones stand before all others, among
/// which no weight could compare with theirs.
struct Draw {
    paid: bool,
    wait: f64,
    price: f64,
    index: usize,
}

/// Puts `indexes` into a drawn order.
///
/// Every endpoint waits for an exponentially distributed time, the shorter the
/// greater its weight. Who waits least is first, which comes to the same
/// distribution as drawing one after the other, in one pass and a sort.
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
            // In terms of the cheapest price, so that nothing overflows.
            let ratio = if price > 0.0 { (price / cheapest_paid).min(RATIO_MAX) } else { 1.0 };
            // 1 - share is never 0, whose logarithm is no number.
            let wait = -(1.0 - random.share()).ln() * ratio * ratio;
            Draw { paid: price > 0.0, wait, price, index }
        })
        .collect();
    draws.sort_unstable_by(|one, other| {
        let by_wait = one.paid.cmp(&other.paid).then_with(|| one.wait.total_cmp(&other.wait));
        by_wait.then_with(|| one.price.total_cmp(&other.price)).then(one.index.cmp(&other.index))
    });
    for (place, draw) in indexes.iter_mut().zip(draws) {
        *place = draw.index;
    }
}
