//! Renders items of server tools in a client's history. The model originally made function calls
//! and received results, so each item becomes a function call, followed by its result after the
//! calls that are adjacent to it. If the client had to answer the call, the client's own output
//! item is the result.
//!
//! The function gets the tool's name with prefix, which providers do not accept as the name of a
//! function. When the tools of the request are known, the engine replaces it by the name under
//! which the tool is offered, or renders the call as text.

use super::host_item::HostItem;
use super::json::{JsonKind, JsonValue, separate, write_key};
use super::tools::{ToolPrefix, split_prefix};
use std::collections::BTreeSet;

/// Members that belong to the call or identify the item; all others are the result.
const NOT_RESULT: [&str; 4] = ["type", "id", "call_id", "arguments"];

/// Renders the history of one request.
#[derive(Debug)]
pub(super) struct HistoryReplay<'d> {
    input: JsonValue<'d>,
    /// Item types without prefix that are calls of server tools as well.
    kinds: &'d [&'d str],
    /// Results that are written after the last of the adjacent calls.
    results: Vec<u8>,
    /// Ids of the calls that the client answers. Computed at the first item of a server tool.
    answered: Option<BTreeSet<String>>,
}

impl<'d> HistoryReplay<'d> {
    /// Renders items of `input`; items of `kinds` count as calls of server tools as well.
    pub(super) fn new(input: JsonValue<'d>, kinds: &'d [&'d str]) -> Self {
        Self { input, kinds, results: Vec::new(), answered: None }
    }

    /// Writes `item` if it is a call of a server tool or the client's answer to one, and returns
    /// whether it is. Before any other item, the pending results are written. `place` is the index
    /// of the item in the input.
    pub(super) fn take(&mut self, item: JsonValue<'_>, place: usize, out: &mut Vec<u8>) -> bool {
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

    /// Writes the client's answer to a call of a server tool, if the item is one in another form
    /// than a function's result.
    fn take_answer(&mut self, item: JsonValue<'_>, word: &str, out: &mut Vec<u8>) -> bool {
        let Some(answered) = self.answered.as_ref().filter(|_| is_answer(word)) else { return false };
        let Some(id) = item.get("call_id").map(|id| id.text()).filter(|id| answered.contains(id.as_ref()))
        else {
            return false;
        };
        let mut result = Vec::new();
        write_result(item, "", &id, &mut result);
        // The result begins with a comma. At least its call has been written before it.
        out.append(&mut result);
        true
    }

    /// The ids of the calls of server tools that the client answers with an item of its own.
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

    /// Writes the pending results.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        if !self.results.is_empty() {
            out.append(&mut self.results);
        }
    }
}

/// The server tool to which calls of this item type belong.
fn tool_of<'w>(word: &'w str, kinds: &[&str]) -> Option<&'w str> {
    let plain = || kinds.contains(&word).then(|| word.strip_suffix("_call").unwrap_or(word));
    split_prefix(word).map(|(_, name)| name).or_else(plain)
}

/// The server tool behind the function name of a call; none if the call is not one of a server
/// tool.
pub(crate) fn server_tool_of_call(function: &str) -> Option<&str> {
    split_prefix(function).map(|(_, name)| name)
}

/// Whether `input` has items of these types.
pub(super) fn has_kinds(input: JsonValue<'_>, kinds: &[&str]) -> bool {
    input.items().any(|item| item.get("type").is_some_and(|tag| kinds.iter().any(|kind| tag.is(kind))))
}

/// Whether items of this type are results of calls other than those of functions and custom tools.
fn is_answer(word: &str) -> bool {
    word.ends_with("_call_output") && word != "function_call_output" && word != "custom_tool_call_output"
}

/// The id that links call and result: the item's own, or one made from its index.
fn call_id(item: JsonValue<'_>, place: usize) -> String {
    let given = |name| item.get(name).map(|value| value.text()).filter(|text| !text.is_empty());
    given("call_id").or_else(|| given("id")).map_or_else(|| format!("call_{place}"), |id| id.into_owned())
}

fn write_call(item: JsonValue<'_>, name: &str, call_id: &str, out: &mut Vec<u8>) {
    let arguments = item.get("arguments").filter(|arguments| arguments.kind() == JsonKind::String);
    // For tools that the client answers, the item has an object with the operation instead of
    // arguments.
    let operation = item.get("operation").filter(|operation| operation.kind() == JsonKind::Object);
    let operation = operation.map(|operation| String::from_utf8_lossy(&operation.compact()).into_owned());
    let arguments = arguments
        .map_or_else(|| operation.unwrap_or_else(|| "{}".to_owned()).into(), |arguments| arguments.text());
    let name = format!("{}{name}", ToolPrefix::Service.as_str());
    HostItem::FunctionCall { call_id, name: &name, arguments: &arguments }.write(out);
}

fn write_result(item: JsonValue<'_>, name: &str, call_id: &str, out: &mut Vec<u8>) {
    let mut result = vec![b'{'];
    let told = |key: JsonValue<'_>, value: JsonValue<'_>| {
        let bookkeeping = NOT_RESULT.iter().any(|name| key.is(name));
        let plain = key.is("status") && value.is("completed")
            || key.is("content") && value.kind() == JsonKind::Array && value.items().next().is_none();
        !bookkeeping && !plain && !value.is_null() && !is_picture(name, key, value)
    };
    for (key, value) in item.members().filter(|(key, value)| told(*key, *value)) {
        write_key(key, &mut result);
        value.write(&mut result);
    }
    result.push(b'}');
    out.push(b',');
    // Members of a parsed document are valid UTF-8.
    HostItem::FunctionCallOutput { call_id, output: &String::from_utf8_lossy(&result) }.write(out);
}

/// Whether a member has a picture. As text it would be megabytes of base64 that models cannot read.
fn is_picture(tool: &str, key: JsonValue<'_>, value: JsonValue<'_>) -> bool {
    tool == "image_generation"
        && (key.is("result")
            || key.is("image_b64")
            || (key.is("image_url") && value.text().starts_with("data:")))
}
