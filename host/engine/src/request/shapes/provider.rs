//! The `provider` object: routing preferences, the same for responses and embeddings.

use crate::request::bounds::check_option_counts;
use crate::request::invalid::InvalidRequest;
use crate::request::json::{JsonKind, JsonValue};
use crate::request::rule::{AMOUNT, Shape, ValueRule, optional};
use serde_json::json;
use std::collections::BTreeSet;

const SLUGS: ValueRule = ValueRule::List { of: &ValueRule::Text { min: 1, max: 256 }, min: 0, max: 256 };
const PRICE: ValueRule =
    ValueRule::Custom(check_price, || json!({"type": ["number", "string"], "minimum": 0}));
const SORT: ValueRule = ValueRule::OneOf(&["price", "throughput", "latency", "exacto"]);

/// A number, which applies to the median, or numbers by percentile.
const PERCENTILES: ValueRule = ValueRule::Either(&[
    AMOUNT,
    ValueRule::Object(&Shape::of(&[
        optional("p50", AMOUNT),
        optional("p75", AMOUNT),
        optional("p90", AMOUNT),
        optional("p99", AMOUNT),
    ])),
]);

pub(in crate::request) const PROVIDER: ValueRule = ValueRule::Object(&Shape::of(&[
    optional("order", SLUGS),
    optional("only", SLUGS),
    optional("ignore", SLUGS),
    optional("allow_fallbacks", ValueRule::Bool),
    optional("require_parameters", ValueRule::Bool),
    optional("data_collection", ValueRule::OneOf(&["allow", "deny"])),
    optional("zdr", ValueRule::Bool),
    optional("enforce_distillable_text", ValueRule::Bool),
    optional(
        "quantizations",
        ValueRule::List {
            of: &ValueRule::OneOf(&[
                "int4", "int8", "fp4", "mxfp4", "nvfp4", "fp6", "fp8", "mxfp8", "fp16", "bf16", "fp32",
                "unknown",
            ]),
            min: 0,
            max: 64,
        },
    ),
    optional(
        "sort",
        ValueRule::Either(&[
            SORT,
            ValueRule::Object(&Shape::of(&[
                optional("by", SORT),
                optional("partition", ValueRule::OneOf(&["model", "none"])),
            ])),
        ]),
    ),
    optional(
        "max_price",
        ValueRule::Object(&Shape::of(&[
            optional("prompt", PRICE),
            optional("completion", PRICE),
            optional("image", PRICE),
            optional("audio", PRICE),
            optional("request", PRICE),
        ])),
    ),
    optional("preferred_min_throughput", PERCENTILES),
    optional("preferred_max_latency", PERCENTILES),
    optional(
        "options",
        ValueRule::Custom(
            check_options,
            || json!({"type": "object", "additionalProperties": {"type": "object"}}),
        ),
    ),
]));

/// Checks `options`: objects by provider. Some providers compare names with case and others
/// without, so two names that differ by case alone are refused.
fn check_options(options: JsonValue<'_>) -> Result<(), InvalidRequest> {
    check_option_counts(options)?;
    check_spellings(options)?;
    options.members().try_for_each(|(_, fields)| check_spellings(fields))
}

fn check_spellings(object: JsonValue<'_>) -> Result<(), InvalidRequest> {
    let mut known = BTreeSet::new();
    match object.members().find(|(name, _)| !known.insert(name.text().to_lowercase())) {
        Some((name, _)) => Err(name.invalid("is a second spelling of a name that is there already")),
        None => Ok(()),
    }
}

/// Dollars, as a number or as a string with a number.
fn check_price(value: JsonValue<'_>) -> Result<(), InvalidRequest> {
    let dollars = match value.kind() {
        JsonKind::Number => value.number(),
        JsonKind::String => value.text().parse::<f64>().ok(),
        _ => return Err(value.mistyped("a number or a numeric string")),
    };
    match dollars {
        Some(dollars) if dollars.is_finite() && dollars >= 0.0 => Ok(()),
        _ => Err(value.invalid("must be an amount of dollars, at least 0")),
    }
}
