//! The `parameters` of server tools, by name without prefix.

use super::body::REASONING;
use super::parts::CACHE_CONTROL;
use super::tools::{CONTEXT_SIZE, SEARCH_ENGINE, USER_LOCATION};
use crate::request::invalid::InvalidRequest;
use crate::request::json::JsonValue;
use crate::request::rule::{
    COUNT, Field, NAME, NAMES, OBJECTS, OPEN_OBJECT, Shape, TEXT, ValueRule, optional,
};

const MODEL: Field = optional("model", NAME);
const TEMPERATURE: Field = optional("temperature", ValueRule::Number { min: 0.0, max: 2.0 });
const THINKING: Field = optional("reasoning", REASONING);
const COMPLETION: Field = optional("max_completion_tokens", COUNT);
const ENVIRONMENT: Field = optional("environment", OPEN_OBJECT);

/// Shapes by tool. A tool that is not in this table is an installed one, which checks its own
/// parameters.
pub(in crate::request) static SERVER_TOOLS: &[(&str, Shape)] = &[
    ("datetime", Shape::of(&[optional("timezone", NAME)])),
    ("web_search", WEB_SEARCH),
    ("web_fetch", WEB_FETCH),
    ("tool_search", Shape::of(&[optional("max_results", ValueRule::Integer { min: 1, max: 50 })])),
    (
        "experimental__search_models",
        Shape::of(&[optional("max_results", ValueRule::Integer { min: 1, max: 20 })]),
    ),
    ("image_generation", Shape::of(&[MODEL])),
    ("files", Shape::of(&[])),
    ("advisor", ADVISOR),
    ("subagent", SUBAGENT),
    ("fusion", FUSION),
    ("apply_patch", Shape::of(&[optional("engine", ValueRule::OneOf(&["auto", "native", "openrouter"]))])),
    ("shell", Shape::of(&[optional("engine", ValueRule::OneOf(&["auto", "openrouter"])), ENVIRONMENT])),
    ("bash", Shape::of(&[optional("engine", TEXT), ENVIRONMENT])),
];

const WEB_SEARCH: Shape = Shape {
    fields: &[
        optional("engine", SEARCH_ENGINE),
        optional("mode", TEXT),
        optional("max_results", ValueRule::Integer { min: 1, max: 25 }),
        optional("max_total_results", COUNT),
        optional("max_uses", COUNT),
        optional("max_characters", ValueRule::Integer { min: 1, max: 100_000 }),
        optional("search_context_size", CONTEXT_SIZE),
        optional("allowed_domains", NAMES),
        optional("excluded_domains", NAMES),
        optional("user_location", USER_LOCATION),
        optional("x_search", OPEN_OBJECT),
    ],
    also: Some(one_domain_list),
};

const WEB_FETCH: Shape = Shape::of(&[
    optional("engine", ValueRule::OneOf(&["auto", "native", "openrouter", "exa", "parallel", "firecrawl"])),
    optional("max_uses", COUNT),
    optional("max_content_tokens", COUNT),
    optional("allowed_domains", NAMES),
    optional("blocked_domains", NAMES),
]);

const ADVISOR: Shape = Shape::of(&[
    MODEL,
    TEMPERATURE,
    THINKING,
    COMPLETION,
    optional("name", NAME),
    optional("instructions", TEXT),
    optional("forward_transcript", ValueRule::Bool),
    optional("stream", ValueRule::Bool),
]);

const SUBAGENT: Shape = Shape::of(&[
    MODEL,
    TEMPERATURE,
    THINKING,
    COMPLETION,
    optional("name", NAME),
    optional("instructions", TEXT),
    optional("tools", OBJECTS),
    optional("max_tool_calls", ValueRule::Integer { min: 1, max: 25 }),
    optional("inherit_functions", ValueRule::Bool),
]);

const FUSION: Shape = Shape::of(&[
    MODEL,
    TEMPERATURE,
    THINKING,
    COMPLETION,
    optional("analysis_models", ValueRule::List { of: &NAME, min: 1, max: 8 }),
    optional("tools", OBJECTS),
    optional("max_tool_calls", ValueRule::Integer { min: 1, max: 16 }),
    optional("cache_control", CACHE_CONTROL),
]);

/// Refuses both lists together: a search is either limited to domains or excludes some.
fn one_domain_list(parameters: JsonValue<'_>) -> Result<(), InvalidRequest> {
    let named = |name| parameters.get(name).is_some_and(|list| list.items().next().is_some());
    if named("allowed_domains") && named("excluded_domains") {
        return Err(parameters.invalid("takes allowed_domains or excluded_domains, not both"));
    }
    Ok(())
}
