//! Drawing an order by price: each next endpoint is drawn with a weight of one
//! over its price squared, so that load, and the load of a failed endpoint too,
//! spreads over all and mostly over the cheap.

use crate::bindings::exports::cofferdam::plugin::routing::Candidate;
use crate::sort::total;

/// SplitMix64: small, and good enough to spread load.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number from 0 up to but not including 1.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        (mixed >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Puts `indexes` into a drawn order.
pub(crate) fn draw(candidates: &[Candidate], indexes: &mut [usize], random: &mut Random) {
    let mut rest = indexes;
    while rest.len() > 1 {
        let place = draw_one(candidates, rest, random);
        rest.swap(0, place);
        let Some((_, tail)) = rest.split_first_mut() else { return };
        rest = tail;
    }
}

/// The place of one endpoint drawn from `indexes`.
fn draw_one(candidates: &[Candidate], indexes: &[usize], random: &mut Random) -> usize {
    let price = |index: &usize| candidates.get(*index).map_or(f64::MAX, |candidate| total(&candidate.price));
    let cheapest = indexes.iter().map(price).fold(f64::MAX, f64::min);
    // In terms of the cheapest price, so that nothing overflows. Beside free
    // endpoints all others have no weight, and free ones are equal.
    let weight = |index: &usize| {
        let price = price(index);
        if price <= cheapest { 1.0 } else { (cheapest / price).powi(2) }
    };
    let sum: f64 = indexes.iter().map(weight).sum();
    let mut left = random.next() * sum;
    for (place, index) in indexes.iter().enumerate() {
        left -= weight(index);
        if left < 0.0 {
            return place;
        }
    }
    // Rounding can leave a trace of the sum: then the cheapest.
    indexes.iter().position(|index| price(index) <= cheapest).unwrap_or(0)
}
