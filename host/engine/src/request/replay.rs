//! Items of server tools in a client's history. The model made functions calls and read results, so that is
//! what it is shown again: each item as a call and, behind the calls that stand next to it, its result. Where the
//! call was the client's to answer, the result is what the client says.
//!
//! The function is called like the tool, prefix included, which no function can be called: under which name the
//! tool offers it in this request, or that it does not, is put right once its tools are known.

use super::json::{Kind, Value, separate, write_key};
use super::tools::{ToolPrefix, split_prefix};
use std::collections::BTreeSet;

/// What the call and the item's own bookkeeping are made of; all else is the result.
const NOT_RESULT: [&str; 4] = ["type", "id", "call_id", "arguments"];

/// One history on its way to a model.
#[derive(Debug)]
pub(super) struct Replay<'d> {
    input: Value<'d>,
    /// Types of items, beside those with a prefix, that stand for calls of server tools.
    kinds: &'d [&'d str],
    /// Results of calls that wait for the last call of their turn.
    results: Vec<u8>,
    /// The calls that the client answers, looked up with the first server tool's item.
    answered: Option<BTreeSet<String>>,
}

impl<'d> Replay<'d> {
    /// Of the items of `input`, where items of `kinds` are a server tool's too.
    pub(super) fn new(input: Value<'d>, kinds: &'d [&'d str]) -> Self {
        Self { input, kinds, results: Vec::new(), answered: None }
    }

    /// Makes room for `item` and writes it if it is a server tool's, or the answer to one; says whether it
    /// was. `place` is its place in the input.
    pub(super) fn take(&mut self, item: Value<'_>, place: usize, out: &mut Vec<u8>) -> bool {
        let Some(tag) = item.get("type") else {
            self.end(out);
            return false;
        };
        let word = tag.text();
        let Some(name) = tool_of(&word, self.kinds) else {
            if !tag.is("function_call") && !tag.is("custom_tool_call") {
                self.end(out);
            }
            return self.take_answer(item, &word, out);
        };
        let given = item.get("call_id").map(|id| id.text());
        let is_answered = given.is_some_and(|id| self.answered().contains(id.as_ref()));
        let call_id = call_id(item, place);
        separate(out);
        write_call(item, name, &call_id, out);
        if !is_answered {
            write_result(item, name, &call_id, &mut self.results);
        }
        true
    }

    /// Writes what the client says of a server tool's call in the form of another kind of tool.
    fn take_answer(&mut self, item: Value<'_>, word: &str, out: &mut Vec<u8>) -> bool {
        let Some(answered) = self.answered.as_ref().filter(|_| is_answer(word)) else { return false };
        let Some(id) = item.get("call_id").map(|id| id.text()).filter(|id| answered.contains(id.as_ref()))
        else {
            return false;
        };
        let mut result = Vec::new();
        write_result(item, "", &id, &mut result);
        // It begins with a comma, which separates it from what stands before it: its call at least.
        out.append(&mut result);
        true
    }

    /// The calls of server tools that are answered in forms of their own.
    fn answered(&mut self) -> &BTreeSet<String> {
        let (input, kinds) = (self.input, self.kinds);
        self.answered.get_or_insert_with(|| {
            let ids = |is_meant: &dyn Fn(&str) -> bool| -> BTreeSet<String> {
                let items =
                    input.items().filter(|item| item.get("type").is_some_and(|tag| is_meant(&tag.text())));
                items.filter_map(|item| Some(item.get("call_id")?.text().into_owned())).collect()
            };
            let calls = ids(&|word| tool_of(word, kinds).is_some());
            ids(&|word| is_answer(word) || word == "function_call_output")
                .intersection(&calls)
                .cloned()
                .collect()
        })
    }

    /// Writes the results that wait.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        if !self.results.is_empty() {
            out.append(&mut self.results);
        }
    }
}

/// The server tool whose calls items of this type are.
fn tool_of<'w>(word: &'w str, kinds: &[&str]) -> Option<&'w str> {
    let plain = || kinds.contains(&word).then(|| word.strip_suffix("_call").unwrap_or(word));
    split_prefix(word).map(|(_, name)| name).or_else(plain)
}

/// The server tool behind the function that a call names, if a call of one is what it stands for.
pub(crate) fn server_tool_of_call(function: &str) -> Option<&str> {
    split_prefix(function).map(|(_, name)| name)
}

/// Whether `input` has items of these types.
pub(super) fn has_kinds(input: Value<'_>, kinds: &[&str]) -> bool {
    input.items().any(|item| item.get("type").is_some_and(|tag| kinds.iter().any(|kind| tag.is(kind))))
}

/// Whether items of this type say what came of a call of another kind than a function's.
fn is_answer(word: &str) -> bool {
    word.ends_with("_call_output") && word != "function_call_output" && word != "custom_tool_call_output"
}

/// Text that ties call and result together: what the item has, or its place.
fn call_id(item: Value<'_>, place: usize) -> String {
    let given = |name| item.get(name).map(|value| value.text()).filter(|text| !text.is_empty());
    given("call_id").or_else(|| given("id")).map_or_else(|| format!("call_{place}"), |id| id.into_owned())
}

fn write_call(item: Value<'_>, name: &str, call_id: &str, out: &mut Vec<u8>) {
    let arguments = item.get("arguments").filter(|arguments| arguments.kind() == Kind::String);
    // What a client was to do is an object of its own.
    let operation = item.get("operation").filter(|operation| operation.kind() == Kind::Object);
    let operation = operation.map(|operation| String::from_utf8_lossy(&operation.compact()).into_owned());
    let arguments = arguments
        .map_or_else(|| operation.unwrap_or_else(|| "{}".to_owned()).into(), |arguments| arguments.text());
    out.extend_from_slice(br#"{"type":"function_call","call_id":"#);
    write_text(call_id, out);
    out.extend_from_slice(br#","name":"#);
    write_text(&format!("{}{name}", ToolPrefix::Service.as_str()), out);
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
