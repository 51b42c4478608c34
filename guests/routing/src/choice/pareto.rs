//! The Pareto router: the cheapest model among those with a sufficient coding score.

use cofferdam_guest_kit::Fields;
use cofferdam_guest_kit::bindings::types::Failure;

use super::{Model, Ordered, Question};
use crate::sort::total;

/// The settings of the router.
#[derive(Debug, PartialEq)]
pub(super) struct Pareto {
    class: Class,
    /// Dollars per million tokens, computed as `source` says.
    max_price: Option<f64>,
    source: PriceSource,
}

/// The thirds of the range of scores. A minimum score selects the class it lies in; a model need not
/// reach the score itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Low,
    Medium,
    High,
}

/// Which price is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PriceSource {
    /// The price of input.
    Prompt,
    /// Three parts of input and one part of output, a common mix.
    WeightedAverage,
}

impl Class {
    fn of(score: f64) -> Self {
        if score < 1.0 / 3.0 {
            Self::Low
        } else if score < 2.0 / 3.0 {
            Self::Medium
        } else {
            Self::High
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }

    /// The distance of another class from the wanted one. Stronger classes come before weaker ones.
    fn distance(self, other: Self) -> u8 {
        let (wanted, other) = (self as u8, other as u8);
        if other >= wanted { other - wanted } else { 3 + wanted - other }
    }
}

impl Pareto {
    pub(super) fn read(fields: &Fields) -> Result<Self, Failure> {
        let class = fields.number("min_coding_score", 0.0..=1.0)?.map_or(Class::High, Class::of);
        let max_price = fields.dollars("max_price")?;
        let sources = [("prompt", PriceSource::Prompt), ("weighted_avg", PriceSource::WeightedAverage)];
        let source = fields.word("price_source", &sources)?.unwrap_or(PriceSource::WeightedAverage);
        Ok(Self { class, max_price, source })
    }

    fn price(&self, model: &Model) -> f64 {
        let price = match self.source {
            PriceSource::Prompt => model.price.input,
            PriceSource::WeightedAverage => 0.75 * model.price.input + 0.25 * model.price.output,
        };
        if price.is_nan() { f64::MAX } else { price }
    }
}

pub(super) fn order(
    question: &Question<'_>,
    group: &[usize],
    pareto: &Pareto,
    scores: &[Option<f64>],
) -> Ordered {
    let mut ranked = Vec::with_capacity(group.len());
    for &index in group {
        let Some(model) = question.models.get(index) else { continue };
        let price = pareto.price(model);
        if pareto.max_price.is_some_and(|limit| price > limit) {
            continue;
        }
        // Models without a score come after all others.
        let score = scores.get(index).copied().flatten();
        let distance = score.map_or(u8::MAX, |score| pareto.class.distance(Class::of(score)));
        ranked.push((distance, [price, total(&model.price)], index));
    }
    ranked.sort_unstable_by(|(one, [price, sum], index), (other, [other_price, other_sum], other_index)| {
        one.cmp(other)
            .then_with(|| price.total_cmp(other_price))
            .then_with(|| sum.total_cmp(other_sum))
            .then(index.cmp(other_index))
    });
    let why = format!("the cheapest of the {} class of coding scores, or nearest to it", pareto.class.name());
    Ordered { models: ranked.into_iter().map(|(_, _, index)| index).collect(), why }
}
