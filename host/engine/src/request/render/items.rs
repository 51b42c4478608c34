//! Renders the items of the input for a dialect. Items that it supports are copied. Others become
//! function calls, results or messages with text, or are left out if they say nothing.

use super::super::host_item::HostItem;
use super::super::json::{JsonKind, JsonValue, separate, write_key, write_member};
use super::super::tools::is_search;
use super::names::FunctionNames;
use super::{COMPACT, Dialect, is_type, write_text_member};
use cofferdam_protocol::{ItemRole, Rendering, ToolKind};
use std::borrow::Cow;

/// Appends the rendered array `input`.
pub(super) fn write(
    input: JsonValue<'_>,
    dialect: &Dialect<'_>,
    names: &FunctionNames,
    compacts: bool,
    out: &mut Vec<u8>,
) {
    let mut writer = ItemWriter { dialect, names, out: vec![b'['], calls: Vec::new() };
    input.items().for_each(|item| writer.item(item));
    writer.end_calls();
    if compacts {
        separate(&mut writer.out);
        HostItem::message("user", COMPACT).write(&mut writer.out);
    }
    out.append(&mut writer.out);
    out.push(b']');
}

struct ItemWriter<'w> {
    dialect: &'w Dialect<'w>,
    names: &'w FunctionNames,
    out: Vec<u8>,
    /// Adjacent calls and results, comma-separated. Providers require results directly after their
    /// calls, so a message rendered from an item between them goes before all of them.
    calls: Vec<u8>,
}

impl ItemWriter<'_> {
    fn item(&mut self, item: JsonValue<'_>) {
        let Some(tag) = item.get("type") else { return self.keep(item) };
        let tag = tag.text();
        match &*tag {
            "function_call" => self.function_call(item),
            "function_call_output" => self.function_output(item),
            "custom_tool_call" => self.custom_call(item),
            // The model cannot call these tools, so it does not need their list.
            "mcp_list_tools" if self.lacks("mcp") => {}
            "mcp_approval_request" if self.lacks("mcp") => {
                self.message("assistant", &mcp_approval_request(item));
            }
            "mcp_approval_response" if self.lacks("mcp") => {
                self.message("user", &mcp_approval_response(item));
            }
            "agent_message" if !self.dialect.takes_items => self.agent_message(item),
            "additional_tools" | "compaction_trigger" if !self.dialect.takes_items => {}
            "additional_tools" => self.added(item),
            "tool_search_output" if !self.lacks("tool_search") => self.added(item),
            "compaction" => self.compaction(item),
            _ if self.rendered(item, &tag) => {}
            kind if kind.ends_with("_call") || kind.ends_with("_call_output") => item.write(self.begin()),
            _ => self.keep(item),
        }
    }

    /// Renders a call or result of a kind of tool that the dialect lacks. Returns false for other
    /// items.
    fn rendered(&mut self, item: JsonValue<'_>, tag: &str) -> bool {
        let Some((kind, role)) = ToolKind::of_item(tag).filter(|(kind, _)| self.lacks(kind.type_name()))
        else {
            return false;
        };
        match (kind, role) {
            (ToolKind::Mcp, _) => self.used(mcp_call(item)),
            (ToolKind::CodeInterpreter, _) => self.used(code_interpreter_call(item)),
            (ToolKind::FileSearch, _) => self.used(file_search_call(item)),
            (ToolKind::ProgrammaticToolCalling, ItemRole::Output) => self.used(program_output(item)),
            (ToolKind::ApplyPatch, ItemRole::Output) => self.patched(item),
            (ToolKind::ToolSearch, ItemRole::Output) => self.found(item),
            (kind, role) if kind.rendering() == Rendering::Functions => match role {
                ItemRole::Call => self.own_call(item, kind),
                ItemRole::Output => self.output(item, item.get("output")),
            },
            _ => return false,
        }
        true
    }

    fn lacks(&self, tool: &str) -> bool {
        !(self.dialect.has_tool)(tool)
    }

    /// Copies an item unchanged.
    fn keep(&mut self, item: JsonValue<'_>) {
        self.end_calls();
        separate(&mut self.out);
        item.write(&mut self.out);
    }

    /// Copies an item that brings tools, without web searches that the dialect lacks. An
    /// `additional_tools` item without any tool left is left out.
    fn added(&mut self, item: JsonValue<'_>) {
        let is_gone = |tool: &JsonValue<'_>| {
            tool.get("type").map(|tag| tag.text()).is_some_and(|tag| is_search(&tag) && self.lacks(&tag))
        };
        let tools = || item.get("tools").into_iter().flat_map(JsonValue::items);
        if !tools().any(|tool| is_gone(&tool)) {
            return self.keep(item);
        }
        let mut kept = vec![b'['];
        for tool in tools().filter(|tool| !is_gone(tool)) {
            separate(&mut kept);
            tool.write(&mut kept);
        }
        self.end_calls();
        if kept == b"[" && is_type(item, "additional_tools") {
            return;
        }
        kept.push(b']');
        separate(&mut self.out);
        self.out.push(b'{');
        for (key, value) in item.members() {
            if !key.is("tools") {
                write_member(key, value, &mut self.out);
                continue;
            }
            write_key(key, &mut self.out);
            self.out.append(&mut kept);
        }
        self.out.push(b'}');
    }

    fn end_calls(&mut self) {
        if !self.calls.is_empty() {
            separate(&mut self.out);
            self.out.append(&mut self.calls);
        }
    }

    /// Writes a message instead of an item. An assistant's message goes before the calls around it;
    /// any other message ends them.
    fn message(&mut self, role: &str, text: &str) {
        if role != "assistant" {
            self.end_calls();
        }
        separate(&mut self.out);
        HostItem::message(role, text).write(&mut self.out);
    }

    fn used(&mut self, told: Option<String>) {
        if let Some(told) = told {
            self.message("assistant", &told);
        }
    }

    /// Adds a separator for the next call or result, and returns the buffer for it.
    fn begin(&mut self) -> &mut Vec<u8> {
        if !self.calls.is_empty() {
            self.calls.push(b',');
        }
        &mut self.calls
    }

    fn function_call(&mut self, item: JsonValue<'_>) {
        let namespace = item.get("namespace").filter(|_| self.lacks("namespace")).map(|name| name.text());
        let own = item.get("name").map(|name| name.text()).unwrap_or_default();
        let name = namespace.map(|space| self.names.of(&ToolKind::Function, Some(&space), &own));
        self.call_named(item, name.as_deref());
    }

    /// Writes a call; with `name`, under that function name and without `namespace`.
    fn call_named(&mut self, item: JsonValue<'_>, name: Option<&str>) {
        let out = self.begin();
        let Some(name) = name else { return item.write(out) };
        out.push(b'{');
        for (key, value) in item.members() {
            if key.is("name") {
                write_text_member("name", name, out);
            } else if !key.is("namespace") {
                write_member(key, value, out);
            }
        }
        out.push(b'}');
    }

    fn function_output(&mut self, item: JsonValue<'_>) {
        if item.get("call_id").is_some() || self.dialect.takes_items {
            return item.write(self.begin());
        }
        let text = |name| item.get(name).map(|value: JsonValue<'_>| value.text()).unwrap_or_default();
        let (namespace, name) = (text("namespace"), text("name"));
        let who = match (namespace.is_empty(), name.is_empty()) {
            (_, true) => String::new(),
            (true, false) => format!(" of {name}"),
            (false, false) => format!(" of {namespace}.{name}"),
        };
        let output = item.get("output").map(text_of).unwrap_or_default();
        self.message("developer", &format!("[Output{who}: {output}]"));
    }

    fn custom_call(&mut self, item: JsonValue<'_>) {
        let text = |name| item.get(name).map(|value: JsonValue<'_>| value.text());
        let namespace = text("namespace").filter(|_| self.lacks("namespace"));
        let own = text("name").unwrap_or_default();
        let told = || self.names.of(&ToolKind::Custom, namespace.as_deref(), &own);
        if !self.lacks("custom") {
            let name = namespace.is_some().then(told);
            return self.call_named(item, name.as_deref());
        }
        let name = told();
        let input = serde_json::json!({ "input": text("input").unwrap_or_default() }).to_string();
        self.call(item, &name, &input);
    }

    /// Writes a call of a kind that is rendered as one function.
    fn own_call(&mut self, item: JsonValue<'_>, kind: &ToolKind) {
        if call_id(item).is_empty() {
            // Without a call id it is a search that the provider ran itself, and there is no result
            // to pair it with.
            return;
        }
        let given = item.get(kind.arguments_member());
        let arguments = given.filter(|given| given.kind() == JsonKind::Object).map(JsonValue::compact);
        let arguments = arguments.unwrap_or_else(|| b"{}".to_vec());
        let name = self.names.of(kind, None, kind.type_name());
        self.call(item, &name, &String::from_utf8_lossy(&arguments));
    }

    fn call(&mut self, item: JsonValue<'_>, name: &str, arguments: &str) {
        let call_id = call_id(item);
        HostItem::FunctionCall { call_id: &call_id, name, arguments }.write(self.begin());
    }

    /// Writes the result of a call. Text and content parts are copied; any other value becomes text
    /// with its JSON.
    fn output(&mut self, item: JsonValue<'_>, output: Option<JsonValue<'_>>) {
        let parts = |output: JsonValue<'_>| {
            output.kind() == JsonKind::Array
                && output.items().all(|part| part.get("text").is_some() || is_media(part))
        };
        match output {
            Some(output) if output.kind() == JsonKind::String || parts(output) => {
                let (call_id, out) = (call_id(item), self.begin());
                out.extend_from_slice(br#"{"type":"function_call_output""#);
                write_text_member("call_id", &call_id, out);
                out.extend_from_slice(br#","output":"#);
                output.write(out);
                out.push(b'}');
            }
            Some(output) => self.told_output(item, &String::from_utf8_lossy(&output.compact())),
            None => self.told_output(item, ""),
        }
    }

    fn told_output(&mut self, item: JsonValue<'_>, output: &str) {
        let call_id = call_id(item);
        HostItem::FunctionCallOutput { call_id: &call_id, output }.write(self.begin());
    }

    fn patched(&mut self, item: JsonValue<'_>) {
        let text = |name| item.get(name).map(|value: JsonValue<'_>| value.text());
        let said = text("output").filter(|said| !said.is_empty());
        let told = match (text("status").as_deref(), said) {
            (Some(status), Some(said)) => format!("{status}: {said}"),
            (Some(status), None) => status.to_owned(),
            (None, said) => said.unwrap_or_default().into_owned(),
        };
        self.told_output(item, &told);
    }

    /// Writes the names of the tools that a client's search found. Their definitions are in
    /// `tools`.
    fn found(&mut self, item: JsonValue<'_>) {
        if call_id(item).is_empty() {
            return;
        }
        let mut found: Vec<String> = Vec::new();
        for tool in item.get("tools").into_iter().flat_map(JsonValue::items) {
            let name = tool.get("name").map(|name| name.text()).unwrap_or_default();
            if !is_type(tool, "namespace") {
                found.push(name.into_owned());
                continue;
            }
            for inner in tool.get("tools").into_iter().flat_map(JsonValue::items) {
                let own = inner.get("name").map(|name| name.text()).unwrap_or_default();
                let told = self.names.known(&kind_of(inner), Some(&name), &own);
                found.push(told.map_or_else(|| format!("{name}.{own}"), str::to_owned));
            }
        }
        self.told_output(item, &serde_json::json!({ "tools": found }).to_string());
    }

    fn agent_message(&mut self, item: JsonValue<'_>) {
        let text = item.get("content").map(text_of).unwrap_or_default();
        if text.is_empty() {
            return;
        }
        let named = |member, word| {
            let name =
                item.get(member).map(|name: JsonValue<'_>| name.text()).filter(|name| !name.is_empty());
            name.map(|name| format!(" {word} {name}")).unwrap_or_default()
        };
        let (from, to) = (named("author", "from"), named("recipient", "to"));
        self.message("user", &format!("[Message{from}{to}]\n{text}"));
    }

    fn compaction(&mut self, item: JsonValue<'_>) {
        let sealed = item.get("encrypted_content").map(|sealed| sealed.text());
        match sealed.and_then(|sealed| (self.dialect.open)(&sealed)) {
            Some(summary) => {
                self.message("user", &format!("[Summary of the conversation before this point]\n{summary}"));
            }
            // It was not sealed by this host for this caller, so it may be one of the provider
            // itself.
            None => self.keep(item),
        }
    }
}

/// The id that links a call and its result. Outputs of `local_shell` have it in `id`.
fn call_id(item: JsonValue<'_>) -> String {
    let given = |name| item.get(name).map(|id| id.text()).filter(|id| !id.is_empty());
    let is_search = ["tool_search_call", "tool_search_output"].iter().any(|kind| is_type(item, kind));
    let id = given("call_id").or_else(|| given("id").filter(|_| !is_search));
    id.map(Cow::into_owned).unwrap_or_default()
}

/// The kind of a tool inside a namespace.
fn kind_of(tool: JsonValue<'_>) -> ToolKind {
    if is_type(tool, "custom") { ToolKind::Custom } else { ToolKind::Function }
}

/// Whether a part is media, which function results may contain too.
fn is_media(part: JsonValue<'_>) -> bool {
    ["input_image", "input_file", "input_audio"].iter().any(|kind| is_type(part, kind))
}

/// The text of a string, or of all parts joined by line breaks.
fn text_of(content: JsonValue<'_>) -> String {
    if content.kind() == JsonKind::String {
        return content.text().into_owned();
    }
    let texts: Vec<Cow<'_, str>> =
        content.items().filter_map(|part| part.get("text")).map(|text| text.text()).collect();
    texts.join("\n")
}

/// Text about a past tool call, for a model that cannot call the tool again.
fn result_text(tool: &str, given: &str, gave: &str) -> String {
    let with = if given.is_empty() || given == "{}" { String::new() } else { format!(" with {given}") };
    format!("[I used the tool {tool}{with}. It gave: {gave}]")
}

/// The name of an MCP tool with its server.
fn mcp_tool(item: JsonValue<'_>) -> String {
    let text = |name| item.get(name).map(|value: JsonValue<'_>| value.text()).unwrap_or_default();
    format!("{}.{}", text("server_label"), text("name"))
}

fn mcp_approval_request(item: JsonValue<'_>) -> String {
    let arguments = item.get("arguments").map(|arguments| arguments.text()).unwrap_or_default();
    format!("[I asked whether I may use the tool {} with {arguments}.]", mcp_tool(item))
}

fn mcp_approval_response(item: JsonValue<'_>) -> String {
    let reason = item.get("reason").map(|reason| reason.text()).filter(|reason| !reason.is_empty());
    match (item.get("approve").is_some_and(JsonValue::is_true), reason) {
        (true, _) => "[You may use the tool.]".to_owned(),
        (false, None) => "[You may not use the tool.]".to_owned(),
        (false, Some(reason)) => format!("[You may not use the tool: {reason}]"),
    }
}

fn mcp_call(item: JsonValue<'_>) -> Option<String> {
    let text = |name| item.get(name).map(|value: JsonValue<'_>| value.text()).unwrap_or_default();
    let error = item.get("error").map(|error| match error.kind() {
        JsonKind::String => error.text().into_owned(),
        _ => String::from_utf8_lossy(&error.compact()).into_owned(),
    });
    let gave = match (item.get("output"), error) {
        (Some(output), _) => output.text().into_owned(),
        (None, Some(error)) => format!("the error {error}"),
        (None, None) => return None,
    };
    Some(result_text(&mcp_tool(item), &text("arguments"), &gave))
}

fn code_interpreter_call(item: JsonValue<'_>) -> Option<String> {
    let outputs = item.get("outputs")?;
    let said = |output: JsonValue<'_>| match output.get("logs") {
        Some(logs) => logs.text().into_owned(),
        None => "a picture".to_owned(),
    };
    let gave: Vec<String> = outputs.items().map(said).collect();
    let gave = if gave.is_empty() { "nothing".to_owned() } else { gave.join("\n") };
    let code = item.get("code").map(|code| code.text()).unwrap_or_default();
    Some(result_text("code_interpreter", &code, &gave))
}

fn file_search_call(item: JsonValue<'_>) -> Option<String> {
    let results = item.get("results")?;
    let queries = item.get("queries").map(|queries| String::from_utf8_lossy(&queries.compact()).into_owned());
    let mut gave = String::new();
    for result in results.items() {
        let text = |name| result.get(name).map(|value: JsonValue<'_>| value.text()).unwrap_or_default();
        gave.push_str(&format!("\n{}: {}", text("filename"), text("text")));
    }
    if gave.is_empty() {
        gave.push_str("nothing");
    }
    Some(result_text("file_search", &queries.unwrap_or_default(), &gave))
}

fn program_output(item: JsonValue<'_>) -> Option<String> {
    let result = item.get("result").map(|result| result.text())?;
    Some(format!("[A program that I ran gave: {result}]"))
}
