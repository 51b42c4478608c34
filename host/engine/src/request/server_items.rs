//! Items of server tools in a client's history. The model originally made function calls and
//! received results, so each item is read as a call, and as its result after the calls that are
//! adjacent to it. If the client had to answer the call, the client's own output item is the result.

use super::host_item::HostItem;
use super::json::{JsonKind, JsonValue, separate, write_member_resolved};
use cofferdam_protocol::{ToolPrefix, is_text_member, split_prefix};
use std::collections::BTreeSet;

/// Members that belong to the call or identify the item; all others are the result.
const NOT_RESULT: [&str; 4] = ["type", "id", "call_id", "arguments"];
/// A call of a server tool in an earlier response.
#[derive(Debug)]
pub(crate) struct ToolCallRecord {
    /// The name of the tool without prefix.
    pub(crate) tool: String,
    pub(crate) call_id: String,
    /// What the model wrote; `{}` where the client's item does not have it.
    pub(crate) arguments: String,
}

/// A call of a server tool, or its result.
#[derive(Debug)]
pub(super) enum CallPart {
    Call(ToolCallRecord),
    Result { call_id: String, output: String },
}

impl CallPart {
    /// Appends a comma where needed, and the item of a function. A call gets the tool's name with
    /// prefix, because the functions of the request's tools are not known yet.
    fn write(&self, out: &mut Vec<u8>) {
        separate(out);
        match self {
            Self::Call(ToolCallRecord { tool, call_id, arguments }) => {
                let name = format!("{}{tool}", ToolPrefix::Service.as_str());
                HostItem::FunctionCall { call_id, name: &name, arguments }.write(out);
            }
            Self::Result { call_id, output } => HostItem::FunctionCallOutput { call_id, output }.write(out),
        }
    }

    /// Appends all of `parts` and removes them.
    pub(super) fn write_all(parts: &mut Vec<Self>, out: &mut Vec<u8>) {
        parts.drain(..).for_each(|part| part.write(out));
    }
}

/// Finds the calls of server tools among the items of one input, and their results.
#[derive(Debug)]
pub(super) struct ServerItemReader<'d> {
    input: JsonValue<'d>,
    /// Item types without prefix that are calls of server tools as well.
    kinds: &'d [String],
    /// Results that follow the last of the adjacent calls.
    results: Vec<CallPart>,
    /// Ids of the calls that the client answers. Computed at the first item of a server tool.
    answered: Option<BTreeSet<String>>,
}

impl<'d> ServerItemReader<'d> {
    /// Reads items of `input`; items of `kinds` count as calls of server tools as well.
    pub(super) fn new(input: JsonValue<'d>, kinds: &'d [String]) -> Self {
        Self { input, kinds, results: Vec::new(), answered: None }
    }

    /// Appends what stands at the place of `item`: before an item that is no call the pending
    /// results, and the parts of an item that is a call of a server tool or the client's answer to
    /// one. Returns whether the item is such a call or answer. `place` is its index in the input.
    pub(super) fn take(&mut self, item: JsonValue<'_>, place: usize, parts: &mut Vec<CallPart>) -> bool {
        let Some(tag) = item.get("type") else {
            self.end(parts);
            return false;
        };
        let word = tag.text();
        let Some(tool) = tool_of(&word, self.kinds) else {
            if !tag.is("function_call") && !tag.is("custom_tool_call") {
                self.end(parts);
            }
            return self.take_answer(item, &word, parts);
        };
        let given = item.get("call_id").map(|id| id.text());
        let is_answered = given.is_some_and(|id| self.answered().contains(id.as_ref()));
        let call_id = call_id(item, place);
        if !is_answered {
            let output = result_of(item, split_prefix(&word).map(|(_, name)| name));
            self.results.push(CallPart::Result { call_id: call_id.clone(), output });
        }
        let (tool, arguments) = (tool.to_owned(), arguments_of(item));
        parts.push(CallPart::Call(ToolCallRecord { tool, call_id, arguments }));
        true
    }

    /// Takes the client's answer to a call of a server tool, if the item is one in another form
    /// than a function's result.
    fn take_answer(&self, item: JsonValue<'_>, word: &str, parts: &mut Vec<CallPart>) -> bool {
        let Some(answered) = self.answered.as_ref().filter(|_| is_answer(word)) else { return false };
        let id = item.get("call_id").map(|id| id.text()).filter(|id| answered.contains(id.as_ref()));
        let answer =
            id.map(|id| CallPart::Result { call_id: id.into_owned(), output: result_of(item, None) });
        let is_one = answer.is_some();
        parts.extend(answer);
        is_one
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

    /// Appends the pending results.
    pub(super) fn end(&mut self, parts: &mut Vec<CallPart>) {
        parts.append(&mut self.results);
    }
}

/// The server tool to which calls of this item type belong.
fn tool_of<'w>(word: &'w str, kinds: &[String]) -> Option<&'w str> {
    let plain = || kinds.iter().any(|kind| kind == word).then(|| word.strip_suffix("_call").unwrap_or(word));
    split_prefix(word).map(|(_, name)| name).or_else(plain)
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

fn arguments_of(item: JsonValue<'_>) -> String {
    if let Some(arguments) = item.get("arguments").filter(|arguments| arguments.kind() == JsonKind::String) {
        return arguments.text().into_owned();
    }
    // For tools that the client answers, the item has an object with the operation instead of
    // arguments.
    let operation = item.get("operation").filter(|operation| operation.kind() == JsonKind::Object);
    operation.map_or_else(
        || "{}".to_owned(),
        |operation| {
            let mut arguments = Vec::new();
            operation.write_resolved(&mut arguments);
            text_of(arguments)
        },
    )
}

/// The members that are the result, as JSON. `server_tool` is the tool of an item with a prefix: such an
/// item is rendered before moderation, a client's own item after it.
fn result_of(item: JsonValue<'_>, server_tool: Option<&str>) -> String {
    let mut result = vec![b'{'];
    let told = |key: JsonValue<'_>, value: JsonValue<'_>| {
        let bookkeeping = NOT_RESULT.iter().any(|name| key.is(name));
        let plain = key.is("status") && value.is("completed")
            || key.is("content") && value.kind() == JsonKind::Array && value.items().next().is_none();
        let unread = match server_tool {
            Some(tool) => is_picture(tool, key, value),
            // Moderation does not read these strings, so a model does not get them either. The host has checked a status.
            None => value.kind() == JsonKind::String && !key.is("status") && !is_text_member(&key.text()),
        };
        !bookkeeping && !plain && !value.is_null() && !unread
    };
    for (key, value) in item.members().filter(|(key, value)| told(*key, *value)) {
        write_member_resolved(key, value, &mut result);
    }
    result.push(b'}');
    text_of(result)
}

/// Members of a parsed document as text. They are valid UTF-8.
fn text_of(json: Vec<u8>) -> String {
    String::from_utf8(json).unwrap_or_default()
}

/// Whether a member has a picture. As text it would be megabytes of base64 that models cannot read.
fn is_picture(tool: &str, key: JsonValue<'_>, value: JsonValue<'_>) -> bool {
    tool == "image_generation"
        && (key.is("result")
            || key.is("image_b64")
            || (key.is("image_url") && value.text().starts_with("data:")))
}

#[cfg(test)]
mod tests {
    use super::super::json::JsonDocument;
    use super::*;

    /// Arguments and outputs of the calls in an input.
    fn read(input: &str, kinds: &[&str]) -> Vec<String> {
        let document = JsonDocument::parse(input.as_bytes()).unwrap();
        let kinds: Vec<String> = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        let mut reader = ServerItemReader::new(document.root(), &kinds);
        let mut parts = Vec::new();
        for (place, item) in document.root().items().enumerate() {
            assert!(reader.take(item, place, &mut parts), "{}", item.raw());
        }
        reader.end(&mut parts);
        let text = |part| match part {
            CallPart::Call(call) => call.arguments,
            CallPart::Result { output, .. } => output,
        };
        parts.into_iter().map(text).collect()
    }

    /// Moderation reads the rendered item. It must not differ from what a model gets later.
    #[test]
    fn rendered_items_have_no_escapes_but_those_that_json_requires() {
        let input = r#"[{"type": "service:apply_patch", "operation": {"\u0070ath": "b\u006fmb"},
            "b\u006fmb": ["\u0062\/\"\n", 1, null, true, {"a": {}}, []]}]"#;
        let rendered =
            r#"{"path":"bomb"}|{"operation":{"path":"bomb"},"bomb":["b/\"\n",1,null,true,{"a":{}},[]]}"#;
        assert_eq!(read(input, &[]).join("|"), rendered);
    }

    #[test]
    fn a_clients_item_is_rendered_without_the_strings_that_moderation_does_not_read() {
        let members =
            r#""status":"failed","role":"x","signature":"x","data":"x","file_id":"x","image_url":"x""#;
        let input = format!(
            r#"[{{"type":"code_interpreter_call","id":"c","code":"1",{members},"outputs":[{{"data":"read"}}]}},
                {{"type":"service:apply_patch","call_id":"p"}},
                {{"type":"apply_patch_call_output","call_id":"p",{members},"output":"done"}}]"#
        );
        let rendered = read(&input, &["code_interpreter_call"]);
        let outputs = [
            r#"{"code":"1","status":"failed","outputs":[{"data":"read"}]}"#,
            r#"{"status":"failed","output":"done"}"#,
        ];
        for output in outputs {
            assert!(rendered.iter().any(|text| text == output), "{rendered:?}");
        }
        // Items of server tools become text before moderation, which then reads all of it.
        let files = r#"[{"type":"service:files","file_id":"f","result":"r"}]"#;
        assert_eq!(read(files, &[])[1], r#"{"file_id":"f","result":"r"}"#);
    }
}
