//! The members of an embeddings body, and the parts of a multimodal input.

use super::body::{MODEL, SESSION_ID, TRACE};
use super::provider::PROVIDER;
use crate::request::rule::{COUNT, NAME, Shape, TEXT, TaggedRule, ValueRule, optional, required};

/// The body. `input` is checked by code.
pub(in crate::request) static BODY: Shape = Shape::of(&[
    required("input", ValueRule::Any),
    required("model", MODEL),
    optional("dimensions", COUNT),
    optional("encoding_format", ValueRule::OneOf(&["float", "base64"])),
    optional("input_type", TEXT),
    optional("provider", PROVIDER),
    optional("session_id", SESSION_ID),
    optional("trace", TRACE),
    optional("user", TEXT),
]);

/// The parts of an input that is an object with `content`.
pub(in crate::request) const PARTS: TaggedRule = TaggedRule {
    tag: "type",
    noun: "embedding part type",
    variants: &[
        ("text", Shape::of(&[required("text", TEXT)])),
        (
            "image_url",
            Shape::of(&[required("image_url", ValueRule::Object(&Shape::of(&[required("url", NAME)])))]),
        ),
        ("input_audio", Shape::of(&[required("input_audio", MEDIA)])),
        ("input_video", Shape::of(&[required("input_video", MEDIA)])),
        ("input_file", Shape::of(&[required("input_file", MEDIA)])),
    ],
};

const MEDIA: ValueRule = ValueRule::Object(&Shape::of(&[required("data", NAME), optional("format", TEXT)]));
