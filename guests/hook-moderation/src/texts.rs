//! The strings of a request that a model would read, each with its position.

use std::borrow::Cow;

use cofferdam_guest_kit::is_text_member;
use serde::Deserialize;
use serde_json::{Map, Value, from_slice, from_str};

/// Members of an `mcp` tool that are sent to its server. Models do not read them, and they hold
/// credentials.
const TO_SERVER: [&str; 3] = ["authorization", "headers", "server_url"];

/// A position in the request: an index into the tree of positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position(usize);

/// One string that a model would read.
#[derive(Debug)]
pub(crate) struct Text {
    pub(crate) position: Position,
    /// The position of the tool or other object that the endpoint checks as one text.
    whole: Option<Position>,
    pub(crate) text: String,
}

/// All strings, in their order in the request.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    /// The parent of each position and the step from it, so that no name is stored twice.
    positions: Vec<(Option<Position>, Step)>,
    texts: Vec<Text>,
}

#[derive(Debug)]
enum Step {
    Member(String),
    Element(usize),
}

/// The part of a request that holds strings for a model.
#[derive(Deserialize)]
struct Request {
    instructions: Option<String>,
    #[serde(default)]
    input: Vec<Value>,
    #[serde(default)]
    tools: Vec<Value>,
    #[serde(default)]
    text: Value,
    #[serde(default)]
    tool_choice: Value,
    #[serde(default)]
    image_config: Value,
    #[serde(default)]
    provider: Provider,
}

#[derive(Default, Deserialize)]
struct Provider {
    #[serde(default)]
    options: Map<String, Value>,
}

/// The strings of a request: instructions, input, tools, the form of the answer, the choice of tools,
/// settings of images, and the options of providers. `None` for bytes that are not a request.
pub(crate) fn read(request: &[u8]) -> Option<Texts> {
    let Request { instructions, input, tools, text, tool_choice, image_config, provider } =
        from_slice(request).ok()?;
    let mut texts = Texts::default();
    if let Some(text) = instructions {
        let position = texts.member(None, "instructions");
        texts.note(position, None, text);
    }
    let position = texts.member(None, "input");
    for (index, item) in input.into_iter().enumerate() {
        texts.input_item(position, Step::Element(index), item);
    }
    let position = texts.member(None, "tools");
    texts.tools(position, tools, None);
    for (name, value) in [("text", text), ("tool_choice", tool_choice), ("image_config", image_config)] {
        let position = texts.member(None, name);
        texts.all(position, position, value);
    }
    let position = texts.member(None, "provider");
    let position = texts.member(Some(position), "options");
    for (name, options) in provider.options {
        let position = texts.member(Some(position), &name);
        texts.all(position, position, options);
    }
    Some(texts)
}

impl Texts {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Text> {
        self.texts.iter()
    }

    /// The JSON pointer (RFC 6901) of a position.
    pub(crate) fn pointer(&self, position: Position) -> String {
        let mut steps = Vec::new();
        let mut next = Some(position);
        while let Some((parent, step)) = next.and_then(|Position(number)| self.positions.get(number)) {
            steps.push(step);
            next = *parent;
        }
        let steps = steps.into_iter().rev().map(|step| match step {
            Step::Member(name) => format!("/{}", name.replace('~', "~0").replace('/', "~1")),
            Step::Element(index) => format!("/{index}"),
        });
        steps.collect()
    }

    /// The texts for the endpoint. The strings of one tool are joined into one text, because the number
    /// of texts is limited and a schema has many strings.
    pub(crate) fn joined(&self) -> Vec<(Position, Cow<'_, str>)> {
        let mut joined: Vec<(Position, Cow<'_, str>)> = Vec::new();
        for Text { position, whole, text } in &self.texts {
            match (joined.last_mut(), whole) {
                (Some((before, words)), Some(whole)) if before == whole => {
                    let words = words.to_mut();
                    words.push('\n');
                    words.push_str(text);
                }
                _ => joined.push((whole.unwrap_or(*position), Cow::Borrowed(text))),
            }
        }
        joined
    }

    /// Collects an item of `input`.
    fn input_item(&mut self, parent: Position, step: Step, item: Value) {
        let kind = item.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        match item {
            Value::Object(members) if is_call(&kind) => {
                let position = self.position(Some(parent), step);
                self.call(position, &kind, members);
            }
            item => self.item(parent, step, item),
        }
    }

    /// Collects a call that models may get as JSON: its strings, and the names of members at any depth.
    fn call(&mut self, position: Position, kind: &str, members: Map<String, Value>) {
        for name in members.keys() {
            self.note(position, Some(position), name.clone());
        }
        for (name, value) in members {
            match value {
                // That of an image generation is a picture.
                Value::String(text) if name == "result" && kind != "image_generation_call" => {
                    let position = self.position(Some(position), Step::Member(name));
                    self.note(position, None, text);
                }
                Value::Array(_) | Value::Object(_) => {
                    let position = self.position(Some(position), Step::Member(name));
                    self.all(position, position, value);
                }
                value => self.item_member(position, name, value),
            }
        }
    }

    /// Collects an item or a value inside one: strings in text members, and tools. The host
    /// limits the depth of the recursion.
    fn item(&mut self, parent: Position, step: Step, value: Value) {
        match value {
            Value::String(text) => {
                let position = self.position(Some(parent), step);
                self.note(position, None, text);
            }
            Value::Array(values) => {
                let position = self.position(Some(parent), step);
                for (index, value) in values.into_iter().enumerate() {
                    self.item(position, Step::Element(index), value);
                }
            }
            Value::Object(members) => {
                let position = self.position(Some(parent), step);
                for (name, value) in members {
                    self.item_member(position, name, value);
                }
            }
            _ => {}
        }
    }

    fn item_member(&mut self, parent: Position, name: String, value: Value) {
        match value {
            Value::String(text) if name == "arguments" || name == "output" => {
                self.json_text(parent, name, text);
            }
            Value::String(_) if !is_text_member(&name) => {}
            Value::Array(tools) if name == "tools" => {
                let position = self.position(Some(parent), Step::Member(name));
                self.tools(position, tools, None);
            }
            value => self.item(parent, Step::Member(name), value),
        }
    }

    /// Arguments are JSON in a string, and outputs may be. They are checked decoded as well, because the
    /// host or a provider may pass the decoded form on and escapes could hide a word.
    fn json_text(&mut self, parent: Position, name: String, text: String) {
        let position = self.position(Some(parent), Step::Member(name));
        let value = if text.contains('\\') { from_str::<Value>(&text).ok() } else { None };
        self.note(position, Some(position), text);
        if let Some(value) = value {
            self.decoded(position, value);
        }
    }

    /// Collects the strings and names of a JSON document that is itself in a string.
    fn decoded(&mut self, position: Position, value: Value) {
        match value {
            Value::String(text) => self.note(position, Some(position), text),
            Value::Array(values) => values.into_iter().for_each(|value| self.decoded(position, value)),
            Value::Object(members) => {
                for (name, value) in members {
                    self.note(position, Some(position), name);
                    self.decoded(position, value);
                }
            }
            _ => {}
        }
    }

    /// Collects tools. Each is one text for the endpoint, or a part of `whole` that contains it.
    fn tools(&mut self, parent: Position, tools: Vec<Value>, whole: Option<Position>) {
        for (index, tool) in tools.into_iter().enumerate() {
            let position = self.position(Some(parent), Step::Element(index));
            let whole = whole.unwrap_or(position);
            let Value::Object(mut members) = tool else {
                self.all(position, whole, tool);
                continue;
            };
            if members.get("type").is_some_and(|kind| kind == "mcp") {
                members.retain(|name, _| !TO_SERVER.contains(&name.as_str()));
            }
            let nested = members.remove("tools");
            self.all(position, whole, Value::Object(members));
            let at = self.member(Some(position), "tools");
            match nested {
                Some(Value::Array(nested)) => self.tools(at, nested, Some(whole)),
                Some(nested) => self.all(at, whole, nested),
                None => {}
            }
        }
    }

    /// Collects every string in a value, and the names of members.
    fn all(&mut self, position: Position, whole: Position, value: Value) {
        match value {
            Value::String(text) => self.note(position, Some(whole), text),
            Value::Array(values) => {
                for (index, value) in values.into_iter().enumerate().filter(|(_, value)| holds_text(value)) {
                    let position = self.position(Some(position), Step::Element(index));
                    self.all(position, whole, value);
                }
            }
            Value::Object(members) => {
                for (name, value) in members {
                    self.all_of_member(position, whole, name, value);
                }
            }
            _ => {}
        }
    }

    fn all_of_member(&mut self, position: Position, whole: Position, name: String, value: Value) {
        self.note(position, Some(whole), name.clone());
        if holds_text(&value) {
            let position = self.position(Some(position), Step::Member(name));
            self.all(position, whole, value);
        }
    }

    fn note(&mut self, position: Position, whole: Option<Position>, text: String) {
        if !text.trim().is_empty() {
            self.texts.push(Text { position, whole, text });
        }
    }

    fn member(&mut self, parent: Option<Position>, name: &str) -> Position {
        self.position(parent, Step::Member(name.to_owned()))
    }

    fn position(&mut self, parent: Option<Position>, step: Step) -> Position {
        self.positions.push((parent, step));
        Position(self.positions.len() - 1)
    }
}

/// Whether items of this type are calls, or results of calls, that models may get as JSON.
fn is_call(kind: &str) -> bool {
    const OTHERS: [&str; 6] = [
        "function_call",
        "function_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
        "computer_call_output",
        "tool_search_output",
    ];
    (kind.ends_with("_call") || kind.ends_with("_output")) && !OTHERS.contains(&kind)
}

fn holds_text(value: &Value) -> bool {
    value.is_string() || value.is_array() || value.is_object()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Each string with its pointer.
    fn found(request: &Value) -> Vec<(String, String)> {
        let texts = read(request.to_string().as_bytes()).unwrap();
        texts.iter().map(|text| (text.text.clone(), texts.pointer(text.position))).collect()
    }

    #[test]
    fn every_string_of_the_input_that_a_model_reads_is_found_with_its_place() {
        let request = json!({
            "model": "a/b",
            "instructions": "one",
            "metadata": { "note": "not read" },
            "input": [
                { "type": "message", "role": "user", "content": [
                    { "type": "input_text", "text": "two" },
                    { "type": "input_text", "text": " \n" },
                    { "type": "input_image", "image_url": "data:image/png;base64,AAAA" },
                    { "type": "input_file", "filename": "three", "file_data": "AAAA" },
                ]},
                { "type": "function_call", "call_id": "c", "name": "four", "arguments": "five" },
                { "type": "function_call_output", "call_id": "c", "output": "six" },
                { "type": "shell_call_output", "output": [{ "stdout": "seven", "a/b~c": "eight" }] },
            ],
        });
        let found = found(&request);
        let mut words: Vec<&str> = found.iter().map(|(text, _)| text.as_str()).collect();
        words.sort_unstable();
        let names = ["a/b~c", "output", "stdout", "type"];
        let mut read = ["eight", "five", "four", "one", "seven", "six", "three", "two"].to_vec();
        read.extend(names);
        read.sort_unstable();
        assert_eq!(words, read);
        for (text, pointer) in &found {
            let value = request.pointer(pointer).unwrap_or_else(|| panic!("{pointer}"));
            assert!(
                value == text || names.contains(&text.as_str()) && value.get(text).is_some(),
                "{pointer}"
            );
        }
        assert_eq!(found[1].1, "/input/0/content/0/text");
    }

    #[test]
    fn every_string_and_name_of_tools_formats_choices_and_options_is_found() {
        let tool = |word: &str| {
            json!({ "type": "function", "name": format!("name {word}"), "parameters": {
                "title": format!("title {word}"),
                "properties": { format!("property {word}"): {
                    "const": format!("const {word}"), "default": [format!("default {word}")],
                    "enum": [{ format!("member {word}"): 1 }], "examples": { "id": format!("id {word}") },
                }},
            }})
        };
        let request = json!({
            "input": [{ "type": "tool_search_output", "tools": [tool("found")] }],
            "tools": [tool("own"), { "type": "namespace", "name": "n", "tools": [tool("nested")] }],
            "text": { "format": { "type": "json_schema", "name": "form", "schema": tool("format") } },
            "tool_choice": { "type": "function", "name": "choice" },
            "image_config": { "font_inputs": [{ "text": "painted" }] },
            "provider": { "options": { "one": { "stop": ["halt"], "bias": { "word": 1 } } } },
        });
        let found = found(&request);
        let words: Vec<&str> = found.iter().map(|(text, _)| text.as_str()).collect();
        for position in ["found", "own", "nested", "format"] {
            for kind in ["name", "title", "property", "const", "default", "member", "id"] {
                assert!(words.contains(&format!("{kind} {position}").as_str()), "{kind} {position}");
            }
        }
        for word in ["form", "choice", "painted", "halt", "word"] {
            assert!(words.contains(&word), "{word}");
        }
        for (text, pointer) in &found {
            let value = request.pointer(pointer).unwrap_or_else(|| panic!("{pointer}"));
            assert!(value == text || value.get(text).is_some(), "{pointer}");
        }
        let texts = read(request.to_string().as_bytes()).unwrap();
        let wholes: Vec<String> =
            texts.joined().iter().map(|(position, _)| texts.pointer(*position)).collect();
        assert_eq!(
            wholes,
            [
                "/input/0/tools/0",
                "/tools/0",
                "/tools/1",
                "/text",
                "/tool_choice",
                "/image_config",
                "/provider/options/one"
            ]
        );
        assert!(texts.joined()[2].1.contains("\nconst nested"), "{:?}", texts.joined());
    }

    #[test]
    fn server_members_of_an_mcp_tool_are_not_checked() {
        let members = json!({ "type": "mcp", "server_label": "l", "server_url": "secret", "authorization": "secret",
            "headers": { "x": "secret" } });
        let found = found(&json!({ "tools": [members, { "type": "namespace", "tools": [members] },
            { "type": "function", "parameters": { "type": "mcp", "headers": "read" } }] }));
        assert!(found.iter().all(|(text, _)| text != "secret"), "{found:?}");
        assert!(found.iter().any(|(text, _)| text == "l") && found.iter().any(|(text, _)| text == "read"));
    }

    #[test]
    fn arguments_are_read_as_they_are_and_without_their_escapes() {
        let arguments = r#"{"a\u0062":["b\u006fmb"]}"#;
        let found = found(&json!({ "input": [{ "type": "function_call", "arguments": arguments }] }));
        let at = |text: &str| (text.to_owned(), "/input/0/arguments".to_owned());
        assert_eq!(found, [at(arguments), at("ab"), at("bomb")]);
    }

    #[test]
    fn an_output_that_is_json_is_read_without_its_escapes_too() {
        for kind in ["function_call_output", "mcp_call"] {
            let output = r#"{"a":["b\u006fmb"]}"#;
            let found = found(&json!({ "input": [{ "type": kind, "output": output }] }));
            let at = |text: &str| (text.to_owned(), "/input/0/output".to_owned());
            for text in [output, "a", "bomb"] {
                assert!(found.contains(&at(text)), "{kind} {text}: {found:?}");
            }
        }
        let plain = json!({ "input": [{ "type": "function_call_output", "output": "not JSON: \\u006f" }] });
        assert_eq!(found(&plain).len(), 1);
    }

    #[test]
    fn calls_are_read_with_the_names_and_types_of_their_members() {
        let error = json!({ "type": "one", "two": { "id": "three", "role": ["four"] } });
        let request = json!({ "input": [
            { "type": "mcp_call", "server_label": "l", "name": "n", "arguments": "{}", "error": error, "five": 5 },
            { "type": "code_interpreter_call", "outputs": [{ "status": "six", "seven": 7 }] },
            { "type": "shell_call", "action": { "file_url": "eight" } },
            { "type": "program_output", "result": "nine" },
        ]});
        let found = found(&request);
        for text in ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"] {
            assert!(found.iter().any(|(word, _)| word == text), "{text}: {found:?}");
        }
        for (text, pointer) in &found {
            let value = request.pointer(pointer).unwrap_or_else(|| panic!("{pointer}"));
            assert!(value == text || value.get(text).is_some(), "{pointer}");
        }
        // Media and what the host has checked is not read.
        let media = json!({ "input": [
            { "type": "image_generation_call", "id": "i", "status": "completed", "result": "AAAA" },
            { "type": "computer_call_output", "call_id": "c", "output": { "type": "computer_screenshot",
                "image_url": "AAAA" } },
        ]});
        let texts = read(media.to_string().as_bytes()).unwrap();
        assert!(texts.iter().all(|text| !["AAAA", "i", "completed", "c"].contains(&text.text.as_str())));
        // The names of one call are one text for the endpoint.
        assert_eq!(texts.joined().len(), 1);
    }

    #[test]
    fn the_name_of_a_member_is_stored_once_however_many_its_children_are() {
        let name = "n".repeat(100_000);
        let request =
            json!({ "input": [{ &name: vec!["x"; 10_000] }], "tools": [{ &name: vec!["x"; 10_000] }] });
        let texts = read(request.to_string().as_bytes()).unwrap();
        let steps = texts.positions.iter().map(|(_, step)| match step {
            Step::Member(name) => name.len(),
            Step::Element(_) => 0,
        });
        assert!(steps.sum::<usize>() < 250_000);
        assert_eq!(texts.pointer(texts.texts[9].position), format!("/input/0/{name}/9"));
    }

    #[test]
    fn invalid_requests_differ_from_empty_ones() {
        assert!(read(b"{}").is_some_and(|texts| texts.iter().next().is_none()));
        assert!(read(b"{\"input\":7}").is_none());
        assert!(read(b"\xff").is_none());
    }
}
