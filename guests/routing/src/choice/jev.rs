//! The router `jev` among models that the client lists: the difficulty selects a position in the whole
//! range of their prices.

use super::difficulty::difficulty;
use super::{Ordered, Question, by_price};

pub(super) fn order(question: &Question<'_>, group: &[usize]) -> Ordered {
    let difficulty = difficulty(question.request, question.facts);
    let priced = by_price(question.models, group);
    let target = difficulty * (priced.len().saturating_sub(1)) as f64;
    let mut placed: Vec<(usize, usize)> = priced.into_iter().enumerate().collect();
    let off = |position: usize| (position as f64 - target).abs();
    placed.sort_by(|(one, _), (other, _)| off(*one).total_cmp(&off(*other)));
    let why = format!("difficulty {difficulty:.2} between the cheapest and the dearest");
    Ordered { models: placed.into_iter().map(|(_, index)| index).collect(), why }
}
