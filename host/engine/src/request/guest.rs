//! The request as provider guests receive it: known members only, never null, input in normal form.
//!
//! `input` and the tools come last, so that a turn of a tool loop is written by copying everything before them.

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

/// The other members that are written, some of them in a form of their own.
const WRITTEN: [&str; 10] = [
    "model",
    "stream",
    "image_config",
    "max_tool_calls",
    "service_tier",
    "text",
    "reasoning",
    "input",
    "tools",
    "tool_choice",
];

/// Whether provider guests and hooks get this member of a request for a response.
#[must_use]
pub fn is_shown_to_guests(member: &str) -> bool {
    COPIED.contains(&member) || WRITTEN.contains(&member)
}

/// The written document and its parts.
#[derive(Debug)]
pub(super) struct GuestJson {
    pub(super) json: Bytes,
    /// The range of each tool.
    pub(super) tools: Vec<Range<usize>>,
    /// The range of the first system or developer message, then that of the first other message.
    pub(super) opening: [Option<Range<usize>>; 2],
    pub(super) parts: GuestParts,
}

/// The document in the parts that a turn copies or replaces. Two brackets stand between and after them: one closes
/// `input`, one the document.
#[derive(Debug, Clone, Default)]
pub(super) struct GuestParts {
    /// From the beginning to the bracket that opens `input`.
    head: Bytes,
    /// The elements of `input`, comma-separated.
    pub(super) input: Bytes,
    /// `,"tools":[...]`; empty where the request has no tools.
    tools: Bytes,
    /// `,"tool_choice":...`; empty where the request has none.
    tool_choice: Bytes,
}

/// The differences between the client's request and one turn of it.
#[derive(Debug, Clone, Default)]
pub struct GuestTurn<'a> {
    /// The items that replace those of `input`, in normal form and comma-separated.
    pub input: Option<&'a [u8]>,
    /// Items to append to `input`, each a JSON object in normal form.
    pub items: &'a [Bytes],
    /// The JSON array that replaces `tools`; an empty slice leaves tools out.
    pub tools: Option<&'a [u8]>,
    /// The JSON value that replaces `tool_choice`; an empty slice leaves it out.
    pub tool_choice: Option<&'a [u8]>,
}

impl GuestParts {
    /// Writes the document with the changes of a turn.
    pub(super) fn write(&self, turn: &GuestTurn<'_>) -> Bytes {
        let input = turn.input.unwrap_or(&self.input);
        let added: usize = turn.items.iter().map(|item| item.len() + 1).sum();
        let tools =
            turn.tools.unwrap_or(&self.tools).len() + turn.tool_choice.unwrap_or(&self.tool_choice).len();
        let mut out = Vec::with_capacity(self.head.len() + input.len() + added + tools + 64);
        out.extend_from_slice(&self.head);
        out.extend_from_slice(input);
        for item in turn.items {
            separate(&mut out);
            out.extend_from_slice(item);
        }
        out.push(b']');
        write_changed("tools", turn.tools, &self.tools, &mut out);
        write_changed("tool_choice", turn.tool_choice, &self.tool_choice, &mut out);
        out.push(b'}');
        Bytes::from(out)
    }

    /// The range of `input` in the document, with its brackets.
    pub(super) fn input_array(&self) -> Range<usize> {
        let start = self.head.len().saturating_sub(1);
        start..start.saturating_add(self.input.len()).saturating_add(2)
    }

    /// Replaces the elements of `input`, and returns the document.
    pub(super) fn replace_input(&mut self, items: &[u8]) -> Bytes {
        let json = self.write(&GuestTurn { input: Some(items), ..GuestTurn::default() });
        self.input = json.slice(self.head.len()..self.head.len().saturating_add(items.len()));
        json
    }
}

/// Appends the member with its new value, or as it was.
fn write_changed(name: &str, changed: Option<&[u8]>, member: &[u8], out: &mut Vec<u8>) {
    match changed {
        Some([]) => {}
        Some(value) => {
            write_name(name, out);
            out.extend_from_slice(value);
        }
        None => out.extend_from_slice(member),
    }
}

/// Writes the document. `size` is the length of the body, which is close to the length of the
/// document.
pub(super) fn write(fields: &BodyFields<'_>, tools: &[CheckedTool<'_>], size: usize) -> GuestJson {
    let mut out = Vec::with_capacity(size + 192);
    out.extend_from_slice(br#"{"model":"#);
    let model = fields.get("model").or_else(|| fields.get("models").and_then(|models| models.items().next()));
    if let Some(model) = model {
        model.write(&mut out);
    }
    let stream = fields.get("stream").is_some_and(JsonValue::is_true);
    out.extend_from_slice(if stream { br#","stream":true"# } else { br#","stream":false"# });
    for name in COPIED {
        write_member(name, fields.get(name), &mut out);
    }
    write_member("image_config", fields.get("image_config"), &mut out);
    // Conditions replace the limit.
    if fields.get("stop_server_tools_when").is_none() {
        write_member("max_tool_calls", fields.get("max_tool_calls"), &mut out);
    }
    if let Some(tier) = fields.get("service_tier") {
        write_name("service_tier", &mut out);
        out.push(b'"');
        out.extend_from_slice(ServiceTier::of(tier).as_str().as_bytes());
        out.push(b'"');
    }
    write_without_nulls("text", fields.get("text"), &mut out);
    write_without_nulls("reasoning", fields.get("reasoning"), &mut out);
    write_name("input", &mut out);
    let head = 0..out.len().saturating_add(1);
    let opening = match fields.get("input") {
        Some(value) => input::write(value, &mut out),
        None => {
            out.extend_from_slice(b"[]");
            [None, None]
        }
    };
    let input = head.end..out.len().saturating_sub(1);
    let start = out.len();
    let tool_ranges = write_tools(fields.get("tools"), tools, &mut out);
    let tools = start..out.len();
    write_member("tool_choice", fields.get("tool_choice"), &mut out);
    let tool_choice = tools.end..out.len();
    out.push(b'}');
    let json = Bytes::from(out);
    let parts = GuestParts {
        head: json.slice(head),
        input: json.slice(input),
        tools: json.slice(tools),
        tool_choice: json.slice(tool_choice),
    };
    GuestJson { json, tools: tool_ranges, opening, parts }
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
