//! The request as provider guests receive it: known members only, never null, input in normal form.
//!
//! `model` and `stream` come first and the tools last, so that a later turn of a tool loop can be
//! written by copying the middle.

use super::fields::Fields;
use super::input;
use super::json::{self, Value, separate, write_name};
use super::settings::ServiceTier;
use super::tools::Offered;
use bytes::Bytes;
use std::ops::Range;

/// Members that are copied as they are.
const COPIED: [&str; 18] = [
    "instructions",
    "max_output_tokens",
    "temperature",
    "top_p",
    "top_k",
    "frequency_penalty",
    "presence_penalty",
    "top_logprobs",
    "parallel_tool_calls",
    "include",
    "prompt_cache_key",
    "prompt_cache_options",
    "cache_control",
    "safety_identifier",
    "user",
    "metadata",
    "truncation",
    "modalities",
];

/// The written document and where its parts stand.
#[derive(Debug)]
pub(super) struct GuestJson {
    pub(super) json: Bytes,
    /// One range per tool.
    pub(super) tools: Vec<Range<usize>>,
}

/// Writes the document. `size` is the length of the body, a good guess of its own.
pub(super) fn write(fields: &Fields<'_>, tools: &[Offered<'_>], size: usize) -> GuestJson {
    let mut out = Vec::with_capacity(size + 192);
    out.extend_from_slice(br#"{"model":"#);
    let model = fields.get("model").or_else(|| fields.get("models").and_then(|models| models.items().next()));
    if let Some(model) = model {
        model.write(&mut out);
    }
    let stream = fields.get("stream").is_some_and(Value::is_true);
    out.extend_from_slice(if stream { br#","stream":true"# } else { br#","stream":false"# });
    for name in COPIED {
        write_member(name, fields.get(name), &mut out);
    }
    write_member("image_config", fields.get("image_config"), &mut out);
    if let Some(tier) = fields.get("service_tier") {
        write_name("service_tier", &mut out);
        out.push(b'"');
        out.extend_from_slice(ServiceTier::of(tier).as_str().as_bytes());
        out.push(b'"');
    }
    write_without_nulls("text", fields.get("text"), &mut out);
    write_without_nulls("reasoning", fields.get("reasoning"), &mut out);
    if let Some(value) = fields.get("input") {
        write_name("input", &mut out);
        input::write(value, &mut out);
    }
    let ranges = write_tools(fields.get("tools"), tools, &mut out);
    write_member("tool_choice", fields.get("tool_choice"), &mut out);
    out.push(b'}');
    GuestJson { json: Bytes::from(out), tools: ranges }
}

pub(super) fn write_member(name: &str, value: Option<Value<'_>>, out: &mut Vec<u8>) {
    if let Some(value) = value {
        write_name(name, out);
        value.write(out);
    }
}

/// An object whose absent members some clients send as null; nothing at all when none is left.
fn write_without_nulls(name: &str, object: Option<Value<'_>>, out: &mut Vec<u8>) {
    let Some(object) = object else { return };
    let mut given = object.members().filter(|(_, value)| !value.is_null()).peekable();
    if given.peek().is_none() {
        return;
    }
    write_name(name, out);
    out.push(b'{');
    given.for_each(|(key, value)| json::write_member(key, value, out));
    out.push(b'}');
}

fn write_tools(given: Option<Value<'_>>, tools: &[Offered<'_>], out: &mut Vec<u8>) -> Vec<Range<usize>> {
    if given.is_none() {
        return Vec::new();
    }
    write_name("tools", out);
    out.push(b'[');
    let mut ranges = Vec::with_capacity(tools.len());
    for tool in tools {
        separate(out);
        let start = out.len();
        tool.value().write(out);
        ranges.push(start..out.len());
    }
    out.push(b']');
    ranges
}
