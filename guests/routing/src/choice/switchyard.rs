//! The switchyard router: chooses between an efficient and a capable model of a few. The original asks
//! a judge model how difficult the task is; here the local estimate is used. Of earlier tool results
//! only counts are known.

use cofferdam_guest_kit::Fields;
use cofferdam_guest_kit::bindings::types::Failure;

use super::difficulty::difficulty;
use super::{Ordered, Question, by_price, last_model};
use crate::random::Random;

/// The setting `algorithm`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    /// By difficulty: `capability`, the default, `stage` and `auto`.
    Difficulty,
    /// By difficulty, but a conversation keeps its model.
    Composite,
    /// A random model.
    Random,
    /// The order in which the models were named.
    Passthrough,
}

/// From this difficulty on the capable model is chosen.
const HARD: f64 = 0.4;

impl Algorithm {
    pub(super) fn read(fields: &Fields) -> Result<Self, Failure> {
        let words = [
            ("capability", Self::Difficulty),
            ("stage", Self::Difficulty),
            ("auto", Self::Difficulty),
            ("random", Self::Random),
            ("composite", Self::Composite),
            ("passthrough", Self::Passthrough),
        ];
        Ok(fields.word("algorithm", &words)?.unwrap_or(Self::Difficulty))
    }
}

pub(super) fn order(question: &Question<'_>, group: &[usize], algorithm: Algorithm) -> Ordered {
    let (first, why) = match algorithm {
        Algorithm::Passthrough => (None, "the order they came in".to_owned()),
        Algorithm::Random => {
            let index = Random::new(question.seed).share() * group.len() as f64;
            (group.get(index as usize).copied(), "drawn by lot".to_owned())
        }
        Algorithm::Composite | Algorithm::Difficulty => by_difficulty(question, group, algorithm),
    };
    let mut models =
        if algorithm == Algorithm::Passthrough { group.to_vec() } else { by_price(question.models, group) };
    models.sort_by_key(|index| first.is_some() && Some(*index) != first);
    Ordered { models, why }
}

fn by_difficulty(question: &Question<'_>, group: &[usize], algorithm: Algorithm) -> (Option<usize>, String) {
    let last = last_model(question).filter(|index| group.contains(index));
    if let (Algorithm::Composite, Some(last)) = (algorithm, last) {
        return (Some(last), "the conversation keeps its model".to_owned());
    }
    let difficulty = difficulty(question.request, question.facts);
    let priced = by_price(question.models, group);
    let top = priced.len().saturating_sub(1);
    // With a short list these are its ends. With a whole catalog they are neither the cheapest nor the
    // dearest model.
    let (index, which) = match difficulty >= HARD {
        true => ((top * 4).div_ceil(5), "capable"),
        false => (top / 5, "efficient"),
    };
    (priced.get(index).copied(), format!("difficulty {difficulty:.2} is for the {which} one"))
}
