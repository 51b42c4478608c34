//! Hard constraints: rules that remove endpoints.

use cofferdam_guest_kit::bindings::routing::{Candidate, RequestSummary};

use crate::endpoint::{is_free, must_be_free};
use crate::preferences::Preferences;

/// How many endpoints each constraint removed, in the order of the constraints.
pub(crate) type Removed = Vec<(&'static str, usize)>;

type Rule = fn(&RequestSummary, &Preferences, &Candidate) -> bool;

/// Every rule with its name in messages to the client. A rule returns true if the endpoint may stay.
const RULES: [(&str, Rule); 10] = [
    ("provider.only", |_, preferences, candidate| {
        preferences.only.as_ref().is_none_or(|only| only.contain(candidate))
    }),
    ("provider.ignore", |_, preferences, candidate| !preferences.ignore.contain(candidate)),
    // Without fallbacks only endpoints that the client listed may be tried.
    ("provider.order", |_, preferences, candidate| {
        preferences.allow_fallbacks || preferences.order.as_ref().is_none_or(|order| order.contain(candidate))
    }),
    ("provider.data_collection", |_, preferences, candidate| {
        !(preferences.deny_data_collection && candidate.data_collection)
    }),
    ("provider.zdr", |_, preferences, candidate| !preferences.zdr || candidate.zdr),
    ("provider.enforce_distillable_text", |_, preferences, _| !preferences.enforce_distillable_text),
    ("provider.quantizations", |_, preferences, candidate| {
        let stated = &candidate.quantization;
        let wanted = &preferences.quantizations;
        wanted.is_empty() || wanted.iter().any(|name| name.eq_ignore_ascii_case(stated))
    }),
    ("provider.max_price", within_max_price),
    ("provider.require_parameters", |request, preferences, candidate| {
        states_required(request, preferences, &candidate.supports)
    }),
    ("the suffix :free", |request, _, candidate| {
        !must_be_free(request, candidate.model_rank) || is_free(&candidate.price)
    }),
];

/// The indexes of the allowed endpoints, and which rules removed the others.
pub(crate) fn apply(
    request: &RequestSummary,
    preferences: &Preferences,
    candidates: &[Candidate],
) -> (Vec<usize>, Removed) {
    let mut removed = RULES.map(|(name, _)| (name, 0));
    let mut allowed = Vec::with_capacity(candidates.len());
    for (index, candidate) in candidates.iter().enumerate() {
        let breaks = |(_, rule): &(&str, Rule)| !rule(request, preferences, candidate);
        // An endpoint that breaks several rules counts for the first of them.
        match RULES.iter().position(breaks).and_then(|rule| removed.get_mut(rule)) {
            Some((_, count)) => *count += 1,
            None => allowed.push(index),
        }
    }
    (allowed, removed.into_iter().filter(|(_, count)| *count > 0).collect())
}

fn within_max_price(_: &RequestSummary, preferences: &Preferences, candidate: &Candidate) -> bool {
    let price = &candidate.price;
    preferences.max_price.allows(price.input, price.output, price.image)
}

/// Body fields whose effect depends on the endpoint. The host implements all other fields itself, or
/// every endpoint supports them.
const PARAMETERS: [&str; 17] = [
    "cache_control",
    "dimensions",
    "frequency_penalty",
    "image_config",
    "input_type",
    "parallel_tool_calls",
    "presence_penalty",
    "prompt_cache_key",
    "prompt_cache_options",
    "reasoning",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_k",
    "top_logprobs",
    "top_p",
];

/// Whether the `supports` of an endpoint, or of all endpoints of a model, state all parameters and needs
/// if the client requires that. An endpoint without stated abilities does not pass.
pub(crate) fn states_required(
    request: &RequestSummary,
    preferences: &Preferences,
    supports: &[String],
) -> bool {
    if !preferences.require_parameters {
        return true;
    }
    let asked = request.parameters.iter().filter(|name| PARAMETERS.contains(&name.as_str()));
    asked.chain(&request.needs).all(|name| {
        let states = |ability: &&str| supports.iter().any(|stated| stated == ability);
        promised_by(name).iter().any(states) || states(&name.as_str())
    })
}

/// Abilities that include the parameter, in addition to an ability of the same name.
fn promised_by(parameter: &str) -> &'static [&'static str] {
    match parameter {
        // The ability to call tools includes the choice among them.
        "tool_choice" | "parallel_tool_calls" => &["tools"],
        // The format of the text is covered by the ability `structured_output`.
        "text" => &["structured_output"],
        _ => &[],
    }
}
