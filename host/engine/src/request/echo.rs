//! The members of a response object that repeat the request. They are written once and used in all
//! events of the response.
//!
//! For members that the client did not set, the effective value is written, because strict clients
//! require them.

use super::fields::BodyFields;
use super::json::{JsonKind, JsonValue, separate, write_key, write_member, write_name};
use super::tools::CheckedTool;
use cofferdam_protocol::ToolKind;

/// Members that are echoed as sent, each with its JSON text when unset. In alphabetical order.
/// Members that need code are not in this list.
const PLAIN: [(&str, &str); 18] = [
    ("frequency_penalty", "0.0"),
    ("instructions", "null"),
    ("max_output_tokens", "null"),
    ("metadata", "null"),
    ("parallel_tool_calls", "true"),
    ("presence_penalty", "0.0"),
    ("previous_response_id", "null"),
    ("prompt", "null"),
    ("prompt_cache_key", "null"),
    ("prompt_cache_options", "null"),
    ("safety_identifier", "null"),
    ("store", "false"),
    ("temperature", "1.0"),
    ("tool_choice", "\"auto\""),
    ("top_logprobs", "0"),
    ("top_p", "1.0"),
    ("truncation", "\"disabled\""),
    ("user", "null"),
];

/// Writes the members as a JSON fragment without braces and without a comma at either end.
pub(super) fn write(fields: &BodyFields<'_>, tools: &[CheckedTool<'_>]) -> String {
    let echoed: usize =
        PLAIN.iter().filter_map(|(name, _)| fields.get(name)).map(|value| value.raw().len()).sum();
    let tools_size = fields.get("tools").map_or(0, |tools| tools.raw().len());
    // The defaults alone take 521 bytes.
    let mut out = Vec::with_capacity(768 + echoed + tools_size);
    out.extend_from_slice(b"\"background\":false");
    for (name, unset) in PLAIN {
        write_name(name, &mut out);
        match fields.get(name) {
            Some(value) => value.write(&mut out),
            None => out.extend_from_slice(unset.as_bytes()),
        }
    }
    write_name("max_tool_calls", &mut out);
    match fields.get("max_tool_calls").filter(|_| fields.get("stop_server_tools_when").is_none()) {
        Some(value) => value.write(&mut out),
        None => out.extend_from_slice(b"null"),
    }
    write_name("reasoning", &mut out);
    write_filled(fields.get("reasoning"), &[("effort", "null"), ("summary", "null")], &mut out);
    write_name("text", &mut out);
    write_text(fields.get("text"), &mut out);
    write_name("tools", &mut out);
    write_tools(tools, &mut out);
    // Everything written is a copy of UTF-8 text or a literal.
    String::from_utf8(out).unwrap_or_default()
}

/// Writes an object. Members of `filled` that are unset get their default.
fn write_filled(object: Option<JsonValue<'_>>, filled: &[(&str, &str)], out: &mut Vec<u8>) {
    write_members(object, filled, &[], out);
}

/// Like [`write_filled`], without the members of `hidden`.
fn write_members(object: Option<JsonValue<'_>>, filled: &[(&str, &str)], hidden: &[&str], out: &mut Vec<u8>) {
    out.push(b'{');
    let given = object.into_iter().flat_map(JsonValue::members);
    let shown = |key: JsonValue<'_>, value: JsonValue<'_>| {
        !value.is_null() && !hidden.iter().any(|name| key.is(name))
    };
    for (key, value) in given.filter(|(key, value)| shown(*key, *value)) {
        write_member(key, value, out);
    }
    let unset = |name: &str| object.is_none_or(|object| object.get(name).is_none());
    for (name, filling) in filled.iter().filter(|(name, _)| unset(name)) {
        write_name(name, out);
        out.extend_from_slice(filling.as_bytes());
    }
    out.push(b'}');
}

fn write_text(text: Option<JsonValue<'_>>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"format\":");
    match text.and_then(|text| text.get("format")) {
        Some(format) if format.get("type").is_some_and(|tag| tag.is("json_schema")) => {
            write_filled(Some(format), &[("description", "null"), ("strict", "false")], out);
        }
        Some(format) => format.write(out),
        None => out.extend_from_slice(br#"{"type":"text"}"#),
    }
    out.extend_from_slice(b",\"verbosity\":");
    match text.and_then(|text| text.get("verbosity")) {
        Some(verbosity) => verbosity.write(out),
        None => out.extend_from_slice(b"\"medium\""),
    }
    out.push(b'}');
}

fn write_tools(tools: &[CheckedTool<'_>], out: &mut Vec<u8>) {
    out.push(b'[');
    for tool in tools {
        separate(out);
        match tool.kind() {
            ToolKind::Function => write_function(tool.value(), out),
            // Credentials of a client for its own servers must not appear in answers, which clients
            // may log.
            ToolKind::Mcp | ToolKind::Server(_) => {
                write_without(tool.value(), &["authorization", "headers"], out)
            }
            _ => tool.value().write(out),
        }
    }
    out.push(b']');
}

/// Writes a value without the members of these names, at any depth.
fn write_without(value: JsonValue<'_>, names: &[&str], out: &mut Vec<u8>) {
    match value.kind() {
        JsonKind::Object => {
            out.push(b'{');
            for (key, member) in value.members().filter(|(key, _)| !names.iter().any(|name| key.is(name))) {
                write_key(key, out);
                write_without(member, names, out);
            }
            out.push(b'}');
        }
        JsonKind::Array => {
            out.push(b'[');
            for item in value.items() {
                separate(out);
                write_without(item, names, out);
            }
            out.push(b']');
        }
        _ => value.write(out),
    }
}

/// Writes a function. Strict clients require these three members even where they are null.
fn write_function(function: JsonValue<'_>, out: &mut Vec<u8>) {
    const FILLED: [&str; 3] = ["description", "parameters", "strict"];
    let complete = FILLED
        .iter()
        .all(|name| function.members().any(|(key, value)| key.is(name) && value.kind() != JsonKind::Null));
    if complete {
        return function.write(out);
    }
    write_filled(Some(function), &FILLED.map(|name| (name, "null")), out);
}
