//! The known plugins, selected by `id`.

use super::tools::USER_LOCATION;
use crate::request::invalid::InvalidRequest;
use crate::request::json::JsonValue;
use crate::request::rule::{
    AMOUNT, COUNT, Field, NAME, NAMES, OBJECTS, OPEN_OBJECT, Shape, TEXT, TaggedRule, ValueRule, optional,
};

/// The most characters of all model patterns in one router entry together.
const PATTERN_CHARS_MAX: usize = 65_536;

/// A member of every plugin entry.
pub(in crate::request) const ENABLED: Field = optional("enabled", ValueRule::Bool);

const ALLOWED: Field = optional("allowed_models", NAMES);
const EXCLUDED: Field = optional("excluded_models", NAMES);
const COST_TIER: Field = optional("cost_tier", ValueRule::OneOf(&["low", "medium", "high", "xhigh", "max"]));
const TRADEOFF: Field = optional("cost_quality_tradeoff", ValueRule::Number { min: 0.0, max: 10.0 });

pub(in crate::request) static PLUGINS: TaggedRule = TaggedRule {
    tag: "id",
    noun: "plugin",
    variants: &[
        ("auto-router", AUTO_ROUTER),
        ("auto-beta-router", AUTO_BETA_ROUTER),
        ("jev-router", JEV_ROUTER),
        ("switchyard-router", SWITCHYARD_ROUTER),
        ("pareto-router", PARETO_ROUTER),
        ("fusion", FUSION),
        ("moderation", Shape::of(&[ENABLED])),
        ("web", WEB),
        ("web-fetch", WEB_FETCH),
        ("file-parser", FILE_PARSER),
        ("response-healing", Shape::of(&[ENABLED])),
        ("context-compression", Shape::of(&[ENABLED, optional("engine", ValueRule::OneOf(&["middle-out"]))])),
    ],
};

/// An entry of an installed hook or model router, which checks its own settings.
pub(in crate::request) static EXTRA_PLUGIN: Shape = Shape::of(&[ENABLED]);

const AUTO_ROUTER: Shape = Shape {
    fields: &[ENABLED, ALLOWED, EXCLUDED, COST_TIER, TRADEOFF, optional("pin_model", ValueRule::Bool)],
    also: Some(patterns_fit),
};

const AUTO_BETA_ROUTER: Shape =
    Shape { fields: &[ENABLED, ALLOWED, EXCLUDED, COST_TIER, TRADEOFF], also: Some(patterns_fit) };

const JEV_ROUTER: Shape =
    Shape { fields: &[ENABLED, optional("models", NAMES), ALLOWED, EXCLUDED], also: Some(patterns_fit) };

const SWITCHYARD_ROUTER: Shape = Shape::of(&[
    ENABLED,
    optional(
        "algorithm",
        ValueRule::OneOf(&["capability", "stage", "auto", "random", "composite", "passthrough"]),
    ),
]);

const PARETO_ROUTER: Shape = Shape::of(&[
    ENABLED,
    optional("min_coding_score", ValueRule::Number { min: 0.0, max: 1.0 }),
    optional("max_price", AMOUNT),
    optional("price_source", ValueRule::OneOf(&["prompt", "weighted_avg"])),
]);

const FUSION: Shape = Shape::of(&[
    ENABLED,
    optional("preset", ValueRule::OneOf(&["general-high", "general-budget", "general-fast"])),
    optional("analysis_models", ValueRule::List { of: &NAME, min: 1, max: 8 }),
    optional("model", NAME),
    optional("tools", ValueRule::List { of: &OPEN_OBJECT, min: 0, max: 8 }),
    optional("max_tool_calls", ValueRule::Integer { min: 1, max: 16 }),
]);

const WEB: Shape = Shape::of(&[
    ENABLED,
    optional("engine", ValueRule::OneOf(&["native", "exa", "firecrawl", "parallel", "perplexity"])),
    optional("mode", TEXT),
    optional("max_results", COUNT),
    optional("max_uses", COUNT),
    optional("search_prompt", TEXT),
    optional("include_domains", NAMES),
    optional("exclude_domains", NAMES),
    optional("user_location", USER_LOCATION),
    optional("x_search", OPEN_OBJECT),
]);

const WEB_FETCH: Shape = Shape::of(&[
    ENABLED,
    optional("allowed_domains", NAMES),
    optional("blocked_domains", NAMES),
    optional("max_content_tokens", COUNT),
    optional("max_uses", COUNT),
]);

const FILE_PARSER: Shape = Shape::of(&[
    ENABLED,
    optional(
        "pdf",
        ValueRule::Object(&Shape::of(&[optional(
            "engine",
            ValueRule::OneOf(&["mistral-ocr", "native", "cloudflare-ai", "pdf-text"]),
        )])),
    ),
    optional("files", OBJECTS),
]);

fn patterns_fit(plugin: JsonValue<'_>) -> Result<(), InvalidRequest> {
    let lists = ["models", "allowed_models", "excluded_models"];
    let patterns = lists.iter().filter_map(|name| plugin.get(name)).flat_map(JsonValue::items);
    if patterns.map(JsonValue::chars).sum::<usize>() > PATTERN_CHARS_MAX {
        return Err(
            plugin.invalid(format!("has patterns of more than {PATTERN_CHARS_MAX} characters in total"))
        );
    }
    Ok(())
}
