//! Price bands: the price range of a choice, as positions among all models ordered by price.

use cofferdam_guest_kit::Fields;
use cofferdam_guest_kit::bindings::types::Failure;

/// A range of positions by price, from `low` up to but not including `high`. The last band includes
/// the dearest model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Band {
    pub(super) low: f64,
    pub(super) high: f64,
}

const TIERS: [(&str, Band); 5] = [
    ("low", Band { low: 0.0, high: 0.2 }),
    ("medium", Band { low: 0.2, high: 0.4 }),
    ("high", Band { low: 0.4, high: 0.6 }),
    ("xhigh", Band { low: 0.6, high: 0.8 }),
    ("max", Band { low: 0.8, high: 1.0 }),
];

/// The band without any cost setting: low prices, with some room for difficult requests.
const UNSET: Band = Band { low: 0.0, high: 0.3 };

impl Band {
    /// Reads `cost_tier`, otherwise the deprecated `cost_quality_tradeoff`, where 0 is the best model
    /// and 10 the cheapest.
    pub(super) fn read(fields: &Fields) -> Result<Self, Failure> {
        let tier = fields.word("cost_tier", &TIERS)?;
        let tradeoff = fields.number("cost_quality_tradeoff", 0.0..=10.0)?;
        Ok(match (tier, tradeoff) {
            (Some(band), _) => band,
            (None, Some(tradeoff)) => {
                let low = (1.0 - tradeoff / 10.0) * 0.8;
                Self { low, high: low + 0.2 }
            }
            (None, None) => UNSET,
        })
    }

    /// The distance of a position from the band; `None` inside.
    pub(super) fn outside(self, rank: f64) -> Option<f64> {
        if rank < self.low {
            return Some(self.low - rank);
        }
        let inside = rank < self.high || self.high >= 1.0;
        (!inside).then_some(rank - self.high)
    }

    /// The position in the band for a difficulty from 0 to 1.
    pub(super) fn at(self, difficulty: f64) -> f64 {
        self.low + (self.high - self.low) * difficulty
    }
}

#[cfg(test)]
mod tests {
    use super::{Band, Fields};

    #[test]
    fn bands_do_not_overlap_and_leave_nothing_out() {
        let bands = ["low", "medium", "high", "xhigh", "max"].map(|tier| {
            Band::read(&Fields::parse(format!(r#"{{"cost_tier":"{tier}"}}"#).as_bytes(), "p").unwrap())
                .unwrap()
        });
        for step in 0..=100 {
            let rank = f64::from(step) / 100.0;
            let inside: Vec<bool> = bands.iter().map(|band| band.outside(rank).is_none()).collect();
            assert_eq!(inside.iter().filter(|inside| **inside).count(), 1, "{rank}");
            assert!(inside[(step / 20).min(4) as usize], "{rank}");
        }
    }

    #[test]
    fn the_deprecated_dial_slides_a_band() {
        let read = |json: &str| Band::read(&Fields::parse(json.as_bytes(), "p").unwrap());
        let band = |low, high| Band { low, high };
        assert_eq!(read(r#"{"cost_quality_tradeoff":10}"#), Ok(band(0.0, 0.2)));
        assert_eq!(read(r#"{"cost_quality_tradeoff":5}"#), Ok(band(0.4, 0.6000000000000001)));
        assert_eq!(read(r#"{"cost_quality_tradeoff":0}"#), Ok(band(0.8, 1.0)));
        assert_eq!(read(r#"{"cost_quality_tradeoff":0,"cost_tier":"low"}"#), Ok(band(0.0, 0.2)));
        assert_eq!(read("{}"), Ok(band(0.0, 0.3)));
        let messages = [r#"{"cost_tier":"cheap"}"#, r#"{"cost_quality_tradeoff":11}"#]
            .map(|json| read(json).unwrap_err());
        assert_eq!(messages[0].message, "p.cost_tier must be one of low, medium, high, xhigh, max");
        assert_eq!(messages[1].message, "p.cost_quality_tradeoff must be a number from 0 to 10");
    }
}
