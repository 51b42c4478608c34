//! The members of a responses body.
//!
//! `input`, `tools`, `plugins` and `max_tool_calls` have `Rule::Any` here: their checks need more
//! than the value itself and are written as code.

use super::parts::{CACHE_CONTROL, CACHE_TTL, PROMPT_PARTS};
use super::provider::PROVIDER;
use crate::request::invalid::InvalidRequest;
use crate::request::json::{JsonKind, JsonValue};
use crate::request::rule::{
    AMOUNT, COUNT, NAME, OPEN_LIST, OPEN_OBJECT, Shape, TEXT, TaggedRule, ValueRule, optional, required,
};
use serde_json::{Value, json};

pub(super) const MODEL: ValueRule = ValueRule::Text { min: 1, max: 256 };
/// `max_tool_calls`, which counts only without `stop_server_tools_when`.
pub(in crate::request) const STEPS: ValueRule = ValueRule::Integer { min: 1, max: 30 };
pub(super) const SESSION_ID: ValueRule = ValueRule::Text { min: 0, max: 256 };
const KEY: ValueRule = ValueRule::Text { min: 0, max: 1024 };
const PENALTY: ValueRule = ValueRule::Number { min: -2.0, max: 2.0 };
const TIERS: &[&str] = &["auto", "default", "fast", "flex", "priority", "scale", "ultrafast"];

/// `reasoning`, in the body and in the parameters of tools that call a model.
pub(in crate::request) const REASONING: ValueRule = ValueRule::Object(&Shape::of(&[
    optional("effort", ValueRule::OneOf(&["none", "minimal", "low", "medium", "high", "xhigh", "max"])),
    optional("summary", ValueRule::OneOf(&["auto", "concise", "detailed"])),
    optional("enabled", ValueRule::Bool),
    optional("max_tokens", ValueRule::Integer { min: 0, max: u32::MAX as i64 }),
    optional("context", ValueRule::OneOf(&["auto", "all_turns", "current_turn"])),
    optional("mode", ValueRule::OneOf(&["standard", "pro"])),
]));

/// `trace`: known members are text, all others are accepted. It is kept in memory until request
/// export, so its length is bounded.
pub(in crate::request) const TRACE: ValueRule = ValueRule::Object(&Shape {
    fields: &[
        optional("trace_id", TEXT),
        optional("trace_name", TEXT),
        optional("span_name", TEXT),
        optional("generation_name", TEXT),
        optional("parent_span_id", TEXT),
    ],
    also: Some(trace_is_short),
});

/// The longest `trace`, in bytes of JSON.
const TRACE_BYTES_MAX: usize = 16 << 10;

const FORMATS: TaggedRule = TaggedRule {
    tag: "type",
    noun: "text format",
    variants: &[
        ("text", Shape::of(&[])),
        ("json_object", Shape::of(&[])),
        (
            "json_schema",
            Shape::of(&[
                required("name", ValueRule::Text { min: 1, max: 64 }),
                required("schema", OPEN_OBJECT),
                optional("description", TEXT),
                optional("strict", ValueRule::Bool),
            ]),
        ),
    ],
};

const TEXT_OUTPUT: ValueRule = ValueRule::Object(&Shape::of(&[
    optional("format", ValueRule::Tagged(&FORMATS)),
    optional("verbosity", ValueRule::OneOf(&["low", "medium", "high", "xhigh", "max"])),
]));

const INCLUDE: ValueRule = ValueRule::List {
    of: &ValueRule::OneOf(&[
        "file_search_call.results",
        "message.input_image.image_url",
        "computer_call_output.output.image_url",
        "reasoning.encrypted_content",
        "code_interpreter_call.outputs",
        "message.output_text.logprobs",
        "web_search_call.results",
        "web_search_call.action.sources",
    ]),
    min: 0,
    max: 64,
};

const PROMPT: ValueRule = ValueRule::Object(&Shape::of(&[
    required("id", NAME),
    optional("version", TEXT),
    optional("variables", ValueRule::Map(&ValueRule::Either(&[TEXT, ValueRule::Tagged(&PROMPT_PARTS)]))),
]));

const STOP_CONDITIONS: TaggedRule = TaggedRule {
    tag: "type",
    noun: "stop condition",
    variants: &[
        ("step_count_is", Shape::of(&[required("step_count", COUNT)])),
        ("has_tool_call", Shape::of(&[required("tool_name", ValueRule::Text { min: 1, max: 256 })])),
        (
            "max_tokens_used",
            Shape::of(&[required("max_tokens", ValueRule::Integer { min: 1, max: i64::MAX })]),
        ),
        ("max_cost", Shape::of(&[required("max_cost_in_dollars", AMOUNT)])),
        ("finish_reason_is", Shape::of(&[required("reason", ValueRule::Text { min: 1, max: 256 })])),
    ],
};

pub(in crate::request) static BODY: Shape = Shape::of(&[
    optional("input", ValueRule::Any),
    optional("model", MODEL),
    optional("models", ValueRule::List { of: &MODEL, min: 0, max: 32 }),
    optional("stream", ValueRule::Bool),
    optional("instructions", TEXT),
    optional("max_output_tokens", COUNT),
    optional("temperature", ValueRule::Number { min: 0.0, max: 2.0 }),
    optional("top_p", ValueRule::Number { min: 0.0, max: 1.0 }),
    optional("top_k", ValueRule::Integer { min: 0, max: u32::MAX as i64 }),
    optional("frequency_penalty", PENALTY),
    optional("presence_penalty", PENALTY),
    optional("top_logprobs", ValueRule::Integer { min: 0, max: 20 }),
    optional("parallel_tool_calls", ValueRule::Bool),
    optional("tools", ValueRule::Any),
    optional("tool_choice", ValueRule::Any),
    optional("max_tool_calls", ValueRule::Any),
    optional(
        "stop_server_tools_when",
        ValueRule::List { of: &ValueRule::Tagged(&STOP_CONDITIONS), min: 1, max: 64 },
    ),
    optional("text", TEXT_OUTPUT),
    optional("reasoning", REASONING),
    optional("include", INCLUDE),
    optional("service_tier", ValueRule::OneOf(TIERS)),
    optional("prompt", PROMPT),
    optional("prompt_cache_key", KEY),
    optional(
        "prompt_cache_options",
        ValueRule::Object(&Shape::of(&[
            optional("mode", ValueRule::OneOf(&["explicit", "implicit"])),
            optional("ttl", CACHE_TTL),
        ])),
    ),
    optional("cache_control", CACHE_CONTROL),
    optional("safety_identifier", KEY),
    optional("user", ValueRule::Text { min: 0, max: 256 }),
    optional("session_id", SESSION_ID),
    optional("metadata", ValueRule::Custom(check_metadata, metadata_schema)),
    optional("truncation", ValueRule::OneOf(&["auto", "disabled"])),
    optional("modalities", ValueRule::List { of: &ValueRule::OneOf(&["text", "image"]), min: 0, max: 16 }),
    optional("image_config", ValueRule::Map(&ValueRule::Either(&[TEXT, AMOUNT_OR_LESS, OPEN_LIST]))),
    optional("provider", PROVIDER),
    optional("route", ValueRule::OneOf(&["fallback", "sort"])),
    optional("plugins", ValueRule::Any),
    optional("trace", TRACE),
    optional("debug", ValueRule::Object(&Shape::of(&[optional("echo_upstream_body", ValueRule::Bool)]))),
    optional("store", ValueRule::Custom(check_store, || json!({"const": false}))),
    optional("background", ValueRule::Custom(check_background, || json!({"const": false}))),
    optional("previous_response_id", ValueRule::Custom(refuse_previous, || json!({"type": "null"}))),
    optional("conversation", ValueRule::Custom(refuse_conversation, || json!({"type": "null"}))),
]);

fn trace_is_short(trace: JsonValue<'_>) -> Result<(), InvalidRequest> {
    if trace.raw().len() > TRACE_BYTES_MAX {
        return Err(trace.invalid(format!("must take at most {TRACE_BYTES_MAX} bytes")));
    }
    Ok(())
}

/// A number in `image_config`, which may be negative.
const AMOUNT_OR_LESS: ValueRule = ValueRule::Number { min: f64::MIN, max: f64::MAX };

fn check_store(value: JsonValue<'_>) -> Result<(), InvalidRequest> {
    match value.kind() {
        JsonKind::False => Ok(()),
        JsonKind::True => Err(value.invalid("must be false: this service stores no responses")),
        _ => Err(value.mistyped("a boolean")),
    }
}

fn check_background(value: JsonValue<'_>) -> Result<(), InvalidRequest> {
    match value.kind() {
        JsonKind::False => Ok(()),
        JsonKind::True => Err(value.invalid(
            "must be false: a background response would have to be stored, and this service stores none",
        )),
        _ => Err(value.mistyped("a boolean")),
    }
}

fn refuse_previous(value: JsonValue<'_>) -> Result<(), InvalidRequest> {
    Err(value.invalid("must be null: this service stores no responses, send the whole conversation in input"))
}

fn refuse_conversation(value: JsonValue<'_>) -> Result<(), InvalidRequest> {
    Err(value
        .invalid("must be null: this service stores no conversations, send the whole conversation in input"))
}

/// At most 16 pairs. Keys have at most 64 characters and no brackets, values have at most 512
/// characters.
fn check_metadata(map: JsonValue<'_>) -> Result<(), InvalidRequest> {
    if map.kind() != JsonKind::Object {
        return Err(map.mistyped("an object"));
    }
    if map.members().nth(16).is_some() {
        return Err(map.invalid("must hold at most 16 pairs"));
    }
    for (key, value) in map.members() {
        if key.chars() > 64 {
            return Err(value.invalid("has a key of more than 64 characters"));
        }
        if key.text().contains(['[', ']']) {
            return Err(value.invalid("has a key with brackets"));
        }
        ValueRule::Text { min: 0, max: 512 }.check(value)?;
    }
    Ok(())
}

fn metadata_schema() -> Value {
    json!({
        "type": "object",
        "maxProperties": 16,
        "propertyNames": {"maxLength": 64, "pattern": "^[^\\[\\]]*$"},
        "additionalProperties": {"type": "string", "maxLength": 512},
    })
}
