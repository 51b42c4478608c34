//! Chooses models for a request that names a router instead of a model.
//!
//! Restrictions and the request's needs remove models. The rest is grouped by doubts, and the router's
//! own rule orders each group. A conversation may then keep its model. Everything works on counts and
//! comparisons and no model is asked, so a choice takes microseconds.

mod auto;
mod band;
mod difficulty;
mod fit;
mod jev;
mod pareto;
mod patterns;
mod router;
mod scores;
mod settings;
mod switchyard;

#[cfg(test)]
mod tests;

use cofferdam_guest_kit::bindings::model_choice::{Model, TextFacts};
use cofferdam_guest_kit::bindings::routing::RequestSummary;
use cofferdam_guest_kit::bindings::types::{ErrorKind, Failure};

use crate::preferences::Preferences;
use crate::sort::total;

pub use router::Router;

use fit::{Doubt, Fitting};
use scores::Scores;
use settings::{Rule, Settings};

/// The largest number of models in a choice: the chosen model and its fallbacks.
const MODELS_MAX: usize = 5;

/// Everything that a choice depends on.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The router that the client named.
    pub router: Router,
    /// The request without its content. `sticky` is an index into `models`: the model that served
    /// this session last. Its own `models` are those that the client names in addition to the router.
    pub request: &'a RequestSummary,
    pub facts: &'a TextFacts,
    pub models: &'a [Model],
    /// The request's plugin entry for this router, JSON.
    pub settings: &'a [u8],
    /// The operator's configuration of the guest, JSON.
    pub operator: &'a [u8],
    /// The only source of randomness.
    pub seed: u64,
}

/// The models to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Indexes into the models, best first, at least one and at most five.
    pub models: Vec<usize>,
    /// The value for `service_metadata.strategy`.
    pub strategy: &'static str,
    /// One sentence with the reason.
    pub reason: String,
}

/// Models in the order of a rule, and the reason for the first one.
#[derive(Default)]
struct Ordered {
    models: Vec<usize>,
    why: String,
}

/// The request's needs and the restrictions leave no model.
fn nothing_left() -> Failure {
    Failure::new(ErrorKind::NotFound, "No models match your request and model restrictions")
}

/// The position of a model by price, limited to the valid range.
fn rank(model: &Model) -> f64 {
    if model.price_rank.is_nan() { 1.0 } else { model.price_rank.clamp(0.0, 1.0) }
}

/// Chooses models. The same question always has the same answer.
///
/// # Errors
/// When settings are invalid, or no model is left.
pub fn choose(question: Question<'_>) -> Result<Choice, Failure> {
    let Question { router, request, models, .. } = question;
    let settings = Settings::parse(router, question.settings)?;
    let preferences = Preferences::parse(&request.preferences)?;
    let fitting = Fitting::new(request, &preferences, models);
    let allowed = match settings.rule {
        // Switchyard chooses among the named models; for the other routers they are fallbacks.
        Rule::Switchyard(_) if !request.models.is_empty() => beside(&question),
        _ => settings.allowed(models),
    };
    let mut left: Vec<(Doubt, usize)> =
        allowed.into_iter().filter_map(|index| Some((fitting.doubt(index)?, index))).collect();
    if left.is_empty() {
        return Err(nothing_left());
    }
    // Stable, so that the order of the models that the client names is kept.
    left.sort_by_key(|(doubt, _)| *doubt);
    let scores = match settings.rule {
        Rule::Pareto(_) => Scores::read(question.operator)?.of(models),
        _ => Vec::new(),
    };
    let mut ordered = Ordered::default();
    // A rule gets only models with the same doubts, so that a position by price is one among models that
    // are equally likely to answer.
    for group in left.chunk_by(|(one, _), (other, _)| one == other) {
        let group: Vec<usize> = group.iter().map(|(_, index)| *index).collect();
        let next = match &settings.rule {
            Rule::Auto { budget, .. } => auto::order(&question, &group, *budget),
            Rule::Jev => jev::order(&question, &group),
            Rule::Pareto(pareto) => pareto::order(&question, &group, pareto, &scores),
            Rule::Switchyard(algorithm) => switchyard::order(&question, &group, *algorithm),
        };
        if ordered.models.is_empty() {
            ordered.why = next.why;
        }
        ordered.models.extend(next.models);
    }
    if ordered.models.is_empty() {
        return Err(nothing_left());
    }
    if let Some(position) = stays(&question, &fitting, &settings.rule, &ordered.models) {
        if let Some(front) = ordered.models.get_mut(..=position) {
            front.rotate_right(1);
        }
        "the conversation stays with its model".clone_into(&mut ordered.why);
    }
    let id = ordered.models.first().and_then(|index| models.get(*index)).map_or("", |model| &model.id);
    let reason = format!("{} chose {id} out of {} models: {}", router.plugin(), left.len(), ordered.why);
    ordered.models.truncate(if preferences.allow_fallbacks { MODELS_MAX } else { 1 });
    Ok(Choice { models: ordered.models, strategy: router.strategy(), reason })
}

/// The position in `models` of the conversation's model, if the conversation keeps it: because the
/// client asked for it, or because the session remembers it.
fn stays(question: &Question<'_>, fitting: &Fitting<'_>, rule: &Rule, models: &[usize]) -> Option<usize> {
    if matches!(rule, Rule::Switchyard(_)) {
        // Switchyard decides for every request anew.
        return None;
    }
    // A model that the preferences seem to exclude is kept only where they seem to exclude all.
    let is_excluded = |index: usize| fitting.doubt(index).is_some_and(|doubt| doubt.excluded);
    let all_excluded = models.first().is_some_and(|first| is_excluded(*first));
    let place_of = |wanted: usize| {
        let place = models.iter().position(|index| *index == wanted);
        place.filter(|_| all_excluded || !is_excluded(wanted))
    };
    let pinned = match rule {
        Rule::Auto { pin_model: true, .. } => last_model(question).and_then(place_of),
        _ => None,
    };
    let remembered = || question.request.sticky.and_then(|index| usize::try_from(index).ok());
    pinned.or_else(|| remembered().and_then(place_of))
}

/// The models that the client names in addition to the router, in the client's order.
fn beside(question: &Question<'_>) -> Vec<usize> {
    let position = |id: &String| question.models.iter().position(|model| model.id == *id);
    question.request.models.iter().filter_map(position).collect()
}

/// The index of the model that the last assistant message names.
fn last_model(question: &Question<'_>) -> Option<usize> {
    let last = question.facts.last_model.as_deref()?;
    question.models.iter().position(|model| model.id == last)
}

/// `indexes` ordered from the cheapest model to the dearest.
fn by_price(models: &[Model], indexes: &[usize]) -> Vec<usize> {
    let mut priced: Vec<(f64, usize)> = indexes
        .iter()
        .map(|&index| (models.get(index).map_or(f64::MAX, |model| total(&model.price)), index))
        .collect();
    priced.sort_unstable_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
    priced.into_iter().map(|(_, index)| index).collect()
}
