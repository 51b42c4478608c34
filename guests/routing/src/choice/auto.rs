//! The auto router: a price band, and within it the position that fits the estimated difficulty of the
//! request.

use super::band::Band;
use super::difficulty::difficulty;
use super::{Ordered, Question, rank};

/// A model's position in the order; smaller is better.
struct Ranked {
    /// The distance from the band; `None` inside, which is always better.
    outside: Option<f64>,
    /// The distance from the position that the difficulty selects.
    off: f64,
    index: usize,
}

pub(super) fn order(question: &Question<'_>, group: &[usize], band: Band) -> Ordered {
    let difficulty = difficulty(question.request, question.facts);
    let target = band.at(difficulty);
    let mut ranked: Vec<Ranked> = group
        .iter()
        .filter_map(|&index| {
            let rank = rank(question.models.get(index)?);
            Some(Ranked { outside: band.outside(rank), off: (rank - target).abs(), index })
        })
        .collect();
    ranked.sort_unstable_by(|one, other| {
        // The band is not a hard limit: if no model is inside, the nearest one is used.
        let outside = |ranked: &Ranked| ranked.outside.map_or(-1.0, |distance| distance);
        outside(one)
            .total_cmp(&outside(other))
            .then_with(|| one.off.total_cmp(&other.off))
            .then(one.index.cmp(&other.index))
    });
    let within = ranked.first().is_some_and(|ranked| ranked.outside.is_none());
    let why = format!(
        "difficulty {difficulty:.2} {} the price band from {:.0} to {:.0} %",
        if within { "in" } else { "nearest to" },
        band.low * 100.0,
        band.high * 100.0
    );
    Ordered { models: ranked.into_iter().map(|ranked| ranked.index).collect(), why }
}
