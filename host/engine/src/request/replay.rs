//! Items of server tools in a client's history. The model made functions calls and read results, so that is
//! what it is shown again: each item as a call and, behind the calls that stand next to it, its result.

use super::json::{Kind, Value, separate, write_key};
use super::tools::split_prefix;

/// The longest name of a function that every provider takes.
const FUNCTION_NAME_CHARS_MAX: usize = 64;
/// What the call and the item's own bookkeeping are made of; all else is the result.
const NOT_RESULT: [&str; 4] = ["type", "id", "call_id", "arguments"];

/// Results of calls that wait for the last call of their turn.
#[derive(Debug, Default)]
pub(super) struct Replay {
    results: Vec<u8>,
}

impl Replay {
    /// Makes room for `item` and writes it if it is a server tool's; says whether it was. `place` is its
    /// place in the input.
    pub(super) fn take(&mut self, item: Value<'_>, place: usize, out: &mut Vec<u8>) -> bool {
        let Some(tag) = item.get("type") else {
            self.end(out);
            return false;
        };
        let word = tag.text();
        let Some((_, name)) = split_prefix(&word) else {
            if !tag.is("function_call") && !tag.is("custom_tool_call") {
                self.end(out);
            }
            return false;
        };
        let call_id = call_id(item, place);
        separate(out);
        write_call(item, name, &call_id, out);
        write_result(item, name, &call_id, &mut self.results);
        true
    }

    /// Writes the results that wait.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        if !self.results.is_empty() {
            out.append(&mut self.results);
        }
    }
}

/// Text that ties call and result together: what the item has, or its place.
fn call_id(item: Value<'_>, place: usize) -> String {
    let given = |name| item.get(name).map(|value| value.text()).filter(|text| !text.is_empty());
    given("call_id").or_else(|| given("id")).map_or_else(|| format!("call_{place}"), |id| id.into_owned())
}

fn write_call(item: Value<'_>, name: &str, call_id: &str, out: &mut Vec<u8>) {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
    let function: String = name.chars().take(FUNCTION_NAME_CHARS_MAX).map(plain).collect();
    let arguments = item.get("arguments").filter(|arguments| arguments.kind() == Kind::String);
    let arguments = arguments.map_or_else(|| "{}".into(), |arguments| arguments.text());
    out.extend_from_slice(br#"{"type":"function_call","call_id":"#);
    write_text(call_id, out);
    out.extend_from_slice(br#","name":"#);
    write_text(&function, out);
    out.extend_from_slice(br#","arguments":"#);
    write_text(&arguments, out);
    out.push(b'}');
}

fn write_result(item: Value<'_>, name: &str, call_id: &str, out: &mut Vec<u8>) {
    let mut result = vec![b'{'];
    let told = |key: Value<'_>, value: Value<'_>| {
        let bookkeeping = NOT_RESULT.iter().any(|name| key.is(name));
        let plain = key.is("status") && value.is("completed")
            || key.is("content") && value.kind() == Kind::Array && value.items().next().is_none();
        !bookkeeping && !plain && !value.is_null() && !is_picture(name, key, value)
    };
    for (key, value) in item.members().filter(|(key, value)| told(*key, *value)) {
        write_key(key, &mut result);
        value.write(&mut result);
    }
    result.push(b'}');
    out.extend_from_slice(br#",{"type":"function_call_output","call_id":"#);
    write_text(call_id, out);
    out.extend_from_slice(br#","output":"#);
    // Members of a checked document are UTF-8.
    write_text(&String::from_utf8_lossy(&result), out);
    out.push(b'}');
}

/// A picture as text is megabytes that no model can read.
fn is_picture(tool: &str, key: Value<'_>, value: Value<'_>) -> bool {
    tool == "image_generation"
        && (key.is("result")
            || key.is("image_b64")
            || (key.is("image_url") && value.text().starts_with("data:")))
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    // A string always serializes.
    out.extend_from_slice(serde_json::Value::from(text).to_string().as_bytes());
}
