//! Content parts of messages and of tool outputs.

use crate::request::invalid::InvalidRequest;
use crate::request::json::JsonValue;
use crate::request::rule::{
    NAME, OBJECTS, OPEN_LIST, Shape, TEXT, TaggedRule, ValueRule, optional, required,
};

/// `{type: "ephemeral", ttl?}`, in the body and in parts.
pub(in crate::request) const CACHE_CONTROL: ValueRule = ValueRule::Object(&Shape::of(&[
    required("type", ValueRule::OneOf(&["ephemeral"])),
    optional("ttl", ValueRule::OneOf(&["5m", "1h"])),
]));

/// How long a provider keeps cached content: `ttl` of `prompt_cache_options` and of breakpoints.
pub(in crate::request) const CACHE_TTL: ValueRule = ValueRule::OneOf(&["30m", "12h"]);

const BREAKPOINT: ValueRule = ValueRule::Object(&Shape::of(&[
    required("mode", ValueRule::OneOf(&["explicit"])),
    optional("ttl", CACHE_TTL),
]));

const INPUT_TEXT: Shape = Shape::of(&[
    required("text", TEXT),
    optional("prompt_cache_breakpoint", BREAKPOINT),
    optional("cache_control", CACHE_CONTROL),
]);

const INPUT_IMAGE: Shape = Shape {
    fields: &[
        optional("detail", ValueRule::OneOf(&["auto", "low", "high", "original"])),
        optional("image_url", NAME),
        optional("file_id", NAME),
        optional("prompt_cache_breakpoint", BREAKPOINT),
        optional("cache_control", CACHE_CONTROL),
    ],
    also: Some(image_has_source),
};

const INPUT_FILE: Shape = Shape {
    fields: &[
        optional("filename", TEXT),
        optional("file_data", NAME),
        optional("file_url", NAME),
        optional("file_id", NAME),
        optional("prompt_cache_breakpoint", BREAKPOINT),
        optional("cache_control", CACHE_CONTROL),
    ],
    also: Some(file_has_source),
};

const AUDIO: Shape =
    Shape::of(&[required("data", NAME), required("format", ValueRule::OneOf(&["mp3", "wav"]))]);

const INPUT_AUDIO: Shape = Shape::of(&[
    required("input_audio", ValueRule::Object(&AUDIO)),
    optional("cache_control", CACHE_CONTROL),
]);

const INPUT_VIDEO: Shape =
    Shape::of(&[required("video_url", NAME), optional("cache_control", CACHE_CONTROL)]);

const OUTPUT_TEXT: Shape = Shape::of(&[
    required("text", TEXT),
    optional("annotations", OBJECTS),
    optional("logprobs", OPEN_LIST),
    optional("cache_control", CACHE_CONTROL),
]);

const REFUSAL: Shape = Shape::of(&[required("refusal", TEXT)]);

/// Parts in messages of users and systems, and in the results of tools.
pub(in crate::request) const INPUT_PARTS: TaggedRule = TaggedRule {
    tag: "type",
    noun: "content part type",
    variants: &[
        ("input_text", INPUT_TEXT),
        ("input_image", INPUT_IMAGE),
        ("input_file", INPUT_FILE),
        ("input_audio", INPUT_AUDIO),
        ("input_video", INPUT_VIDEO),
    ],
};

/// Parts in messages of the assistant. Most are its own output, but some clients replay it as input
/// parts.
pub(in crate::request) static ASSISTANT_PARTS: TaggedRule = TaggedRule {
    tag: "type",
    noun: "content part type",
    variants: &[
        ("output_text", OUTPUT_TEXT),
        ("refusal", REFUSAL),
        ("input_text", INPUT_TEXT),
        ("input_image", INPUT_IMAGE),
        ("input_file", INPUT_FILE),
        ("input_audio", INPUT_AUDIO),
        ("input_video", INPUT_VIDEO),
    ],
};

/// Values of prompt template variables, besides plain strings.
pub(in crate::request) const PROMPT_PARTS: TaggedRule = TaggedRule {
    tag: "type",
    noun: "prompt variable type",
    variants: &[("input_text", INPUT_TEXT), ("input_image", INPUT_IMAGE), ("input_file", INPUT_FILE)],
};

/// `output` of a call's result: a text, or parts.
pub(in crate::request) const CALL_OUTPUT: ValueRule = ValueRule::Either(&[
    TEXT,
    ValueRule::List { of: &ValueRule::Tagged(&INPUT_PARTS), min: 0, max: usize::MAX },
]);

fn image_has_source(part: JsonValue<'_>) -> Result<(), InvalidRequest> {
    if part.get("image_url").or_else(|| part.get("file_id")).is_none() {
        return Err(part.invalid("needs image_url or file_id"));
    }
    Ok(())
}

fn file_has_source(part: JsonValue<'_>) -> Result<(), InvalidRequest> {
    if !["file_data", "file_url", "file_id"].iter().any(|name| part.get(name).is_some()) {
        return Err(part.invalid("needs file_data, file_url or file_id"));
    }
    Ok(())
}
