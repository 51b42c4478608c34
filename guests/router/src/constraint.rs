//! Rules that remove endpoints for good.

use crate::bindings::exports::cofferdam::plugin::routing::{Candidate, RequestSummary};
use crate::preferences::Preferences;
use crate::slug;

/// How many endpoints each constraint removed, in the order of the constraints.
pub(crate) type Removed = Vec<(&'static str, usize)>;

type Rule = fn(&RequestSummary, &Preferences, &Candidate) -> bool;

/// Every rule with the name the client knows it by; true means it may stay.
const RULES: [(&str, Rule); 9] = [
    ("provider.only", |_, preferences, candidate| {
        preferences.only.as_ref().is_none_or(|only| slug::any_matches(only, candidate))
    }),
    ("provider.ignore", |_, preferences, candidate| !slug::any_matches(&preferences.ignore, candidate)),
    // Without fallbacks nothing that the client did not list may be reached.
    ("provider.order", |_, preferences, candidate| {
        preferences.allow_fallbacks
            || preferences.order.as_ref().is_none_or(|order| slug::any_matches(order, candidate))
    }),
    ("provider.data_collection", |_, preferences, candidate| {
        !(preferences.deny_data_collection && candidate.data_collection)
    }),
    ("provider.zdr", |_, preferences, candidate| !preferences.zdr || candidate.zdr),
    ("provider.quantizations", |_, preferences, candidate| {
        let stated = &candidate.quantization;
        let wanted = &preferences.quantizations;
        wanted.is_empty() || wanted.iter().any(|name| name.eq_ignore_ascii_case(stated))
    }),
    ("provider.max_price", within_max_price),
    ("provider.require_parameters", |summary, preferences, candidate| {
        !preferences.require_parameters || has_all_parameters(summary, candidate)
    }),
    ("the suffix :free", |summary, _, candidate| {
        let price = &candidate.price;
        summary.suffix.as_deref() != Some("free") || (price.input <= 0.0 && price.output <= 0.0)
    }),
];

/// The indexes that may be tried, and what removed the others.
pub(crate) fn apply(
    summary: &RequestSummary,
    preferences: &Preferences,
    candidates: &[Candidate],
) -> (Vec<usize>, Removed) {
    let mut removed = Removed::new();
    let mut allowed: Vec<(usize, &Candidate)> = candidates.iter().enumerate().collect();
    for (name, rule) in RULES {
        let before = allowed.len();
        allowed.retain(|(_, candidate)| rule(summary, preferences, candidate));
        if allowed.len() < before {
            removed.push((name, before - allowed.len()));
        }
    }
    (allowed.into_iter().map(|(index, _)| index).collect(), removed)
}

fn within_max_price(_: &RequestSummary, preferences: &Preferences, candidate: &Candidate) -> bool {
    let within = |limit: Option<f64>, price: f64| limit.is_none_or(|limit| price <= limit);
    let limits = &preferences.max_price;
    let price = &candidate.price;
    within(limits.prompt, price.input)
        && within(limits.completion, price.output)
        && within(limits.image, price.image)
}

/// Body fields whose effect depends on the endpoint. What is not here, the host
/// carries out itself or every endpoint knows.
const PARAMETERS: [&str; 12] = [
    "frequency_penalty",
    "image_config",
    "parallel_tool_calls",
    "presence_penalty",
    "prompt_cache_key",
    "reasoning",
    "temperature",
    "tool_choice",
    "tools",
    "top_k",
    "top_logprobs",
    "top_p",
];

/// An endpoint that states nothing promises nothing.
fn has_all_parameters(summary: &RequestSummary, candidate: &Candidate) -> bool {
    let asked = summary.parameters.iter().filter(|name| PARAMETERS.contains(&name.as_str()));
    asked.chain(&summary.needs).all(|name| {
        let name = match name.as_str() {
            // Choosing among tools and calling them is one ability.
            "tool_choice" | "parallel_tool_calls" => "tools",
            name => name,
        };
        candidate.supports.iter().any(|ability| ability == name)
    })
}
