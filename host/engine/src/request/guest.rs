//! The request as provider guests receive it: known members only, never null, input in normal form.
//!
//! `model` and `stream` come first and the tools last, so that a later turn of a tool loop is
//! written by copying the bytes between them.

use super::fields::BodyFields;
use super::input;
use super::json::{self, JsonValue, separate, write_name};
use super::settings::ServiceTier;
use super::tools::CheckedTool;
use bytes::Bytes;
use std::ops::Range;

/// Members that are copied unchanged.
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

/// The written document and the byte ranges of its parts.
#[derive(Debug)]
pub(super) struct GuestJson {
    pub(super) json: Bytes,
    /// The range of each tool.
    pub(super) tools: Vec<Range<usize>>,
    /// The range of the first system or developer message, then that of the first other message.
    pub(super) opening: [Option<Range<usize>>; 2],
    pub(super) spans: Spans,
}

/// Byte ranges of the parts that a later turn replaces or extends.
#[derive(Debug, Clone, Default)]
pub(super) struct Spans {
    model: Range<usize>,
    /// The offset of the bracket that opens `input`.
    input_start: usize,
    /// The offset of the bracket that closes `input`.
    input_end: usize,
    /// `,"tools":[...]`; empty where the request has no tools.
    tools: Range<usize>,
    /// `,"tool_choice":...`; empty where the request has none.
    tool_choice: Range<usize>,
}

impl Spans {
    /// Adjusts the ranges after the items of `input` were replaced by `length` bytes.
    pub(super) fn replace_input(&mut self, length: usize) {
        let (old, new) = (self.input_end, self.input_start.saturating_add(1).saturating_add(length));
        let moved = |place: usize| place.saturating_sub(old).saturating_add(new);
        self.input_end = new;
        self.tools = moved(self.tools.start)..moved(self.tools.end);
        self.tool_choice = moved(self.tool_choice.start)..moved(self.tool_choice.end);
    }
}

/// The differences between the client's request and one turn of it.
#[derive(Debug, Clone, Default)]
pub struct GuestTurn<'a> {
    /// The catalog id of the model for this turn, instead of the first candidate.
    pub model: Option<&'a str>,
    /// The items that replace those of `input`, in normal form and comma-separated.
    pub input: Option<&'a [u8]>,
    /// Items to append to `input`, each a JSON object in normal form.
    pub items: &'a [Bytes],
    /// The JSON array that replaces `tools`; an empty slice leaves tools out.
    pub tools: Option<&'a [u8]>,
    /// The JSON value that replaces `tool_choice`; an empty slice leaves it out.
    pub tool_choice: Option<&'a [u8]>,
}

/// The elements of `input`, comma-separated, without the brackets.
pub(super) fn input_items(json: &Bytes, spans: &Spans) -> Bytes {
    let range = spans.input_start.saturating_add(1)..spans.input_end;
    if json.get(range.clone()).is_some() { json.slice(range) } else { Bytes::new() }
}

/// Writes the document again with the changes of a turn. Everything else is copied.
pub(super) fn write_turn(json: &[u8], spans: &Spans, turn: &GuestTurn<'_>) -> Bytes {
    let added: usize = turn.items.iter().map(|item| item.len() + 1).sum();
    let replaced = turn.tools.map_or(0, <[u8]>::len) + turn.tool_choice.map_or(0, <[u8]>::len);
    let mut out = Vec::with_capacity(json.len() + added + replaced + 64);
    let copy =
        |range: Range<usize>, out: &mut Vec<u8>| out.extend_from_slice(json.get(range).unwrap_or_default());
    copy(0..spans.model.start, &mut out);
    match turn.model {
        // Serialization of a string cannot fail.
        Some(model) => out.extend_from_slice(serde_json::Value::from(model).to_string().as_bytes()),
        None => copy(spans.model.clone(), &mut out),
    }
    match turn.input {
        Some(input) => {
            copy(spans.model.end..spans.input_start.saturating_add(1), &mut out);
            out.extend_from_slice(input);
        }
        None => copy(spans.model.end..spans.input_end, &mut out),
    }
    for item in turn.items {
        separate(&mut out);
        out.extend_from_slice(item);
    }
    copy(spans.input_end..spans.tools.start, &mut out);
    replace("tools", turn.tools, spans.tools.clone(), json, &mut out);
    replace("tool_choice", turn.tool_choice, spans.tool_choice.clone(), json, &mut out);
    copy(spans.tool_choice.end..json.len(), &mut out);
    Bytes::from(out)
}

fn replace(name: &str, with: Option<&[u8]>, range: Range<usize>, json: &[u8], out: &mut Vec<u8>) {
    match with {
        Some([]) => {}
        Some(value) => {
            write_name(name, out);
            out.extend_from_slice(value);
        }
        None => out.extend_from_slice(json.get(range).unwrap_or_default()),
    }
}

/// Writes the document. `size` is the length of the body, which is close to the length of the
/// document.
pub(super) fn write(fields: &BodyFields<'_>, tools: &[CheckedTool<'_>], size: usize) -> GuestJson {
    let mut out = Vec::with_capacity(size + 192);
    out.extend_from_slice(br#"{"model":"#);
    let model = fields.get("model").or_else(|| fields.get("models").and_then(|models| models.items().next()));
    let start = out.len();
    if let Some(model) = model {
        model.write(&mut out);
    }
    let model = start..out.len();
    let stream = fields.get("stream").is_some_and(JsonValue::is_true);
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
    // The ranges of the following parts are kept, because `write_turn` replaces them.
    let mut opening = [None, None];
    let mut input_start = out.len();
    if let Some(value) = fields.get("input") {
        write_name("input", &mut out);
        input_start = out.len();
        opening = input::write(value, &mut out);
    }
    let input_end = out.len().saturating_sub(1);
    let start = out.len();
    let tool_ranges = write_tools(fields.get("tools"), tools, &mut out);
    let tools = start..out.len();
    write_member("tool_choice", fields.get("tool_choice"), &mut out);
    let tool_choice = tools.end..out.len();
    out.push(b'}');
    let spans = Spans { model, input_start, input_end, tools, tool_choice };
    GuestJson { json: Bytes::from(out), tools: tool_ranges, opening, spans }
}

/// Appends a member if the client set it.
pub(super) fn write_member(name: &str, value: Option<JsonValue<'_>>, out: &mut Vec<u8>) {
    if let Some(value) = value {
        write_name(name, out);
        value.write(out);
    }
}

/// Appends an object without its null members, because some clients send absent members as null.
/// Appends nothing if no member is left.
fn write_without_nulls(name: &str, object: Option<JsonValue<'_>>, out: &mut Vec<u8>) {
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

fn write_tools(
    given: Option<JsonValue<'_>>,
    tools: &[CheckedTool<'_>],
    out: &mut Vec<u8>,
) -> Vec<Range<usize>> {
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
