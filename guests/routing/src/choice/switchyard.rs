//! The switchyard router: between an efficient and a capable model of a few.
//! Where its namesake asks a judge model how hard the task is, the local
//! estimate answers; nothing but counts is known of earlier tool results.

use super::difficulty::difficulty;
use super::fit::Fitting;
use super::{Ordered, Question, by_price, last_model};
use crate::random::Random;
use crate::settings::{Fields, Malformed};

/// `algorithm`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    /// By difficulty: `capability`, the default, `stage` and `auto`.
    Difficulty,
    /// By difficulty, but a conversation keeps its model.
    Composite,
    /// Any of them.
    Random,
    /// The order they came in.
    Passthrough,
}

/// From here on the capable model is worth its price.
const HARD: f64 = 0.4;

impl Algorithm {
    pub(super) fn read(fields: &Fields) -> Result<Self, Malformed> {
        let words = ["capability", "stage", "auto", "random", "composite", "passthrough"];
        Ok(match fields.word("algorithm", &words)? {
            Some("random") => Self::Random,
            Some("composite") => Self::Composite,
            Some("passthrough") => Self::Passthrough,
            _ => Self::Difficulty,
        })
    }
}

pub(super) fn order(
    question: &Question<'_>,
    fitting: &Fitting<'_>,
    left: &[usize],
    algorithm: Algorithm,
) -> Ordered {
    let (first, why) = match algorithm {
        Algorithm::Passthrough => (None, "the order they came in".to_owned()),
        Algorithm::Random => {
            let place = Random::new(question.seed).share() * left.len() as f64;
            (left.get(place as usize).copied(), "drawn by lot".to_owned())
        }
        Algorithm::Composite | Algorithm::Difficulty => by_difficulty(question, left, algorithm),
    };
    let mut models =
        if algorithm == Algorithm::Passthrough { left.to_vec() } else { by_price(question.models, left) };
    // The chosen one first; doubts weigh more than the choice.
    models.sort_by_key(|index| {
        let doubt = question.models.get(*index).map(|model| fitting.doubt(model));
        (doubt, Some(*index) != first && first.is_some())
    });
    Ordered { models, why }
}

fn by_difficulty(question: &Question<'_>, left: &[usize], algorithm: Algorithm) -> (Option<usize>, String) {
    let last = last_model(question).filter(|index| left.contains(index));
    if let (Algorithm::Composite, Some(last)) = (algorithm, last) {
        return (Some(last), "the conversation keeps its model".to_owned());
    }
    let difficulty = difficulty(question.request, question.facts);
    let priced = by_price(question.models, left);
    let top = priced.len().saturating_sub(1);
    // The ends of a short list; of a whole catalog, neither the cheapest nor the
    // dearest there is.
    let (place, which) = match difficulty >= HARD {
        true => ((top * 4).div_ceil(5), "capable"),
        false => (top / 5, "efficient"),
    };
    (priced.get(place).copied(), format!("difficulty {difficulty:.2} is for the {which} one"))
}
