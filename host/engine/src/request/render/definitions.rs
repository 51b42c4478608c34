//! Renders the tools of a request: those of `tools`, and those that items of the input bring.

use super::super::json::{JsonDocument, JsonValue, separate, write_key, write_member};
use super::super::tools::is_search;
use super::client_function::definition;
use super::names::{ClientTool, FunctionNames};
use super::{Dialect, is_type, write_text_member};
use cofferdam_protocol::{ToolKind, write_value};

const SEARCH_DESCRIPTION: &str = "Searches for further tools; those that it finds can be called afterwards.";
const SEARCH_PARAMETERS: &str =
    r#"{"type":"object","properties":{"query":{"type":"string"}},"required":["query"]}"#;

const CUSTOM_PARAMETERS: &str = r#"{"type":"object","properties":{"input":{"type":"string","description":"The whole input of the tool, as plain text."}},"required":["input"],"additionalProperties":false}"#;

/// What precedes the grammar of a custom tool in its description, without the name of the syntax.
const GRAMMAR: [&str; 2] = ["The input has to follow this ", " grammar:\n"];
/// More bytes than the names of a function's members take.
const FRAME_BYTES: usize = 128;

/// At most how many bytes longer the functions are than the tool that they represent.
pub(super) fn added_bytes(tool: JsonValue<'_>) -> usize {
    let tag = tool.get("type").map(|tag| tag.text()).unwrap_or_default();
    let Some(kind) = ToolKind::of_type(&tag) else { return 0 };
    match kind {
        ToolKind::ToolSearch => FRAME_BYTES + SEARCH_DESCRIPTION.len() + SEARCH_PARAMETERS.len(),
        ToolKind::Custom => FRAME_BYTES + CUSTOM_PARAMETERS.len() + GRAMMAR[0].len() + GRAMMAR[1].len(),
        ToolKind::Namespace => {
            // Each function is named after its namespace too.
            let prefix = name_of(tool).len() + FRAME_BYTES;
            let functions = tool.get("tools").into_iter().flat_map(JsonValue::items);
            functions.map(|function| prefix + added_bytes(function)).fold(0, usize::saturating_add)
        }
        kind => definition(kind).map_or(0, str::len),
    }
}

/// Renders the array `tools` for a dialect. Assigns a name to each function that represents another
/// kind of tool.
pub(super) fn write(root: JsonValue<'_>, dialect: &Dialect<'_>, names: &mut FunctionNames) -> Vec<u8> {
    let own = root.get("tools");
    let input = root.get("input");
    let brought = || input.into_iter().flat_map(JsonValue::items).filter(|item| brings(*item, dialect));
    // Names of the client's own functions are reserved first, because those functions must keep
    // their names.
    for function in own.into_iter().flat_map(JsonValue::items).filter(|tool| is_type(*tool, "function")) {
        names.keep(&name_of(function));
    }
    let mut writer = DefinitionWriter { dialect, names, out: vec![b'['] };
    for tool in own.into_iter().flat_map(JsonValue::items) {
        if is_type(tool, "function") {
            separate(&mut writer.out);
            tool.write(&mut writer.out);
        } else {
            writer.tool(tool);
        }
    }
    for tool in brought().filter_map(|item| item.get("tools")).flat_map(JsonValue::items) {
        if !is_type(tool, "function") {
            writer.tool(tool);
        } else if writer.names.keep(&name_of(tool)) {
            writer.function(tool, &name_of(tool), "");
        }
    }
    writer.out.push(b']');
    writer.out
}

/// Whether the tools of an item must be offered in `tools`, because the dialect does not accept the
/// item.
fn brings(item: JsonValue<'_>, dialect: &Dialect<'_>) -> bool {
    (is_type(item, "additional_tools") && !dialect.takes_items)
        || (is_type(item, "tool_search_output") && !(dialect.has_tool)("tool_search"))
}

fn name_of(tool: JsonValue<'_>) -> String {
    tool.get("name").map(|name| name.text().into_owned()).unwrap_or_default()
}

struct DefinitionWriter<'w> {
    dialect: &'w Dialect<'w>,
    names: &'w mut FunctionNames,
    out: Vec<u8>,
}

impl DefinitionWriter<'_> {
    fn tool(&mut self, tool: JsonValue<'_>) {
        let Some(tag) = tool.get("type") else { return };
        let tag = tag.text();
        if (self.dialect.has_tool)(&tag) {
            separate(&mut self.out);
            return tool.write(&mut self.out);
        }
        match &*tag {
            "namespace" => self.namespace(tool),
            "custom" => self.custom(tool, None, ""),
            "tool_search" => self.search(tool),
            search if is_search(search) => {}
            other => match ToolKind::of_type(other).and_then(|kind| Some((kind, definition(kind)?))) {
                Some((kind, function)) => self.fixed(kind, function),
                // The guest refuses a tool that it does not support, with a message about it.
                None => {
                    separate(&mut self.out);
                    tool.write(&mut self.out);
                }
            },
        }
    }

    fn namespace(&mut self, namespace: JsonValue<'_>) {
        let name = name_of(namespace);
        let mut about = namespace.get("description").map(|text| text.text().into_owned()).unwrap_or_default();
        for tool in namespace.get("tools").into_iter().flat_map(JsonValue::items) {
            let before = self.out.len();
            if is_type(tool, "custom") {
                self.custom(tool, Some(&name), &about);
            } else if let Some(function) = self.names.add(ClientTool {
                kind: ToolKind::Function,
                namespace: Some(name.clone()),
                name: name_of(tool),
            }) {
                self.function(tool, &function, &about);
            }
            if self.out.len() > before {
                // The description of a namespace may be long, so only the first of its functions
                // gets it.
                about.clear();
            }
        }
    }

    /// Writes a function under a name that may differ from its own. `about` is the description of
    /// its namespace, put before its own.
    fn function(&mut self, tool: JsonValue<'_>, name: &str, about: &str) {
        separate(&mut self.out);
        self.out.extend_from_slice(br#"{"type":"function""#);
        write_text_member("name", name, &mut self.out);
        self.describe(about, tool);
        let left = ["type", "name", "description", "defer_loading"];
        for (key, value) in tool.members().filter(|(key, _)| !left.iter().any(|name| key.is(name))) {
            write_member(key, value, &mut self.out);
        }
        self.out.push(b'}');
    }

    fn describe(&mut self, about: &str, tool: JsonValue<'_>) {
        let own = tool.get("description").map(|text| text.text()).unwrap_or_default();
        let text = match (about.is_empty(), own.is_empty()) {
            (true, true) => return,
            (true, false) => own.into_owned(),
            (false, true) => about.to_owned(),
            (false, false) => format!("{about}\n\n{own}"),
        };
        write_text_member("description", &text, &mut self.out);
    }

    fn custom(&mut self, tool: JsonValue<'_>, namespace: Option<&str>, about: &str) {
        let namespace = namespace.map(str::to_owned);
        let known = ClientTool { kind: ToolKind::Custom, namespace, name: name_of(tool) };
        let Some(name) = self.names.add(known) else { return };
        separate(&mut self.out);
        if (self.dialect.has_tool)("custom") {
            self.out.extend_from_slice(br#"{"type":"custom""#);
            write_text_member("name", &name, &mut self.out);
            self.describe(about, tool);
            if let Some(format) = tool.get("format") {
                self.out.extend_from_slice(br#","format":"#);
                format.write(&mut self.out);
            }
            return self.out.push(b'}');
        }
        self.out.extend_from_slice(br#"{"type":"function""#);
        write_text_member("name", &name, &mut self.out);
        let own = tool.get("description").map(|text| text.text()).unwrap_or_default();
        let grammar = tool.get("format").and_then(grammar).unwrap_or_default();
        let told = [about, &*own, &*grammar];
        let told: Vec<&str> = told.into_iter().filter(|text| !text.is_empty()).collect();
        write_text_member("description", &told.join("\n\n"), &mut self.out);
        self.out.extend_from_slice(br#","strict":false,"parameters":"#);
        self.out.extend_from_slice(CUSTOM_PARAMETERS.as_bytes());
        self.out.push(b'}');
    }

    fn search(&mut self, tool: JsonValue<'_>) {
        let kind = ToolKind::ToolSearch;
        let known = ClientTool { namespace: None, name: kind.type_name().to_owned(), kind: kind.clone() };
        let Some(name) = self.names.add(known) else { return };
        separate(&mut self.out);
        self.out.extend_from_slice(br#"{"type":"function""#);
        write_text_member("name", &name, &mut self.out);
        let about = tool.get("description").map(|text| text.text());
        let about = about.unwrap_or(std::borrow::Cow::Borrowed(SEARCH_DESCRIPTION));
        write_text_member("description", &about, &mut self.out);
        self.out.extend_from_slice(br#","strict":false,"parameters":"#);
        match tool.get("parameters") {
            Some(parameters) => parameters.write(&mut self.out),
            None => self.out.extend_from_slice(SEARCH_PARAMETERS.as_bytes()),
        }
        self.out.push(b'}');
    }

    /// Writes a kind that is always the same function. Only the name may differ, when it is already
    /// taken.
    fn fixed(&mut self, kind: &ToolKind, function: &str) {
        let known = ClientTool { namespace: None, name: kind.type_name().to_owned(), kind: kind.clone() };
        let Some(name) = self.names.add(known) else { return };
        separate(&mut self.out);
        if name == kind.type_name() {
            return self.out.extend_from_slice(function.as_bytes());
        }
        let Ok(document) = JsonDocument::parse(function.as_bytes()) else { return };
        self.out.push(b'{');
        for (key, value) in document.root().members() {
            write_key(key, &mut self.out);
            if key.is("name") {
                write_value(&name, &mut self.out);
            } else {
                value.write(&mut self.out);
            }
        }
        self.out.push(b'}');
    }
}

/// The description of the input format that a custom tool requires.
fn grammar(format: JsonValue<'_>) -> Option<String> {
    let (syntax, definition) = (format.get("syntax")?.text(), format.get("definition")?.text());
    let [before, after] = GRAMMAR;
    Some(format!("{before}{syntax}{after}{definition}"))
}
