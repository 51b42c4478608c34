//! A call of one of the client's own kinds of tools, and its item.

use super::json::{member, named_member, raw};
use crate::request::{ClientKind, ClientTool};
use serde_json::{Map, Value, json};

/// Item types and id prefixes of each kind.
impl ClientKind {
    fn item_type(self) -> &'static str {
        match self {
            Self::Function => "function_call",
            Self::Custom => "custom_tool_call",
            Self::LocalShell => "local_shell_call",
            Self::Shell => "shell_call",
            Self::ApplyPatch => "apply_patch_call",
            Self::ToolSearch => "tool_search_call",
        }
    }

    fn id_prefix(self) -> &'static str {
        match self {
            Self::Function => "fc",
            Self::Custom => "ctc",
            Self::LocalShell => "lsh",
            Self::Shell => "sh",
            Self::ApplyPatch => "apc",
            Self::ToolSearch => "tsc",
        }
    }
}

/// A call that is converted into the client's kind.
#[derive(Debug)]
pub(super) struct ClientCall {
    pub(super) tool: ClientTool,
    pub(super) call_id: String,
    /// The arguments that the model has written so far.
    pub(super) arguments: String,
    /// The members made from the arguments, once these are complete.
    pub(super) said: Option<Map<String, Value>>,
}

impl ClientCall {
    pub(super) fn id_prefix(&self) -> &'static str {
        self.tool.kind.id_prefix()
    }

    pub(super) fn push(&mut self, arguments: &str) {
        self.arguments.push_str(arguments);
    }

    /// The members of the item besides type, id and status.
    fn members(&self) -> Map<String, Value> {
        let ClientTool { kind, namespace, name } = &self.tool;
        let mut members = Map::new();
        members.insert("call_id".to_owned(), self.call_id.clone().into());
        if *kind == ClientKind::Custom {
            members.insert("name".to_owned(), name.clone().into());
            members.extend(namespace.clone().map(|namespace| ("namespace".to_owned(), namespace.into())));
        }
        if *kind == ClientKind::ToolSearch {
            members.insert("execution".to_owned(), "client".into());
        }
        members.extend(self.said.clone().unwrap_or_else(|| empty(*kind)));
        members
    }

    /// Writes the item. Without `id_and_status` it is written for the model's history.
    pub(super) fn write(&self, id_and_status: Option<(&str, &str)>, out: &mut Vec<u8>) {
        raw(out, "{\"type\":\"");
        raw(out, self.tool.kind.item_type());
        raw(out, "\"");
        if let Some((id, status)) = id_and_status {
            member(out, "id", id);
            member(out, "status", status);
        }
        for (name, member) in self.members() {
            named_member(out, &name, &member);
        }
        raw(out, "}");
    }

    /// Parses the arguments. Returns whether they fit the kind.
    pub(super) fn complete(&mut self) -> bool {
        let said = read(self.tool.kind, &self.arguments);
        let is_whole = said.is_some();
        self.said = said;
        is_whole
    }
}

/// The members of an item before its arguments are complete.
fn empty(kind: ClientKind) -> Map<String, Value> {
    let (name, empty) = match kind {
        ClientKind::Function => ("arguments", json!("")),
        ClientKind::Custom => ("input", json!("")),
        ClientKind::LocalShell => ("action", json!({ "type": "exec", "command": [], "env": {} })),
        ClientKind::Shell => {
            ("action", json!({ "commands": [], "timeout_ms": null, "max_output_length": null }))
        }
        ClientKind::ApplyPatch => ("operation", json!({ "type": "update_file", "path": "", "diff": "" })),
        ClientKind::ToolSearch => ("arguments", json!({})),
    };
    Map::from_iter([(name.to_owned(), empty)])
}

/// The members of an item; none where the arguments do not fit the kind.
fn read(kind: ClientKind, arguments: &str) -> Option<Map<String, Value>> {
    let object = || serde_json::from_str::<Map<String, Value>>(arguments).ok();
    let one = |name: &str, value: Value| Map::from_iter([(name.to_owned(), value)]);
    Some(match kind {
        ClientKind::Function => one("arguments", arguments.into()),
        ClientKind::Custom => {
            let input = object().and_then(|mut object| match object.shift_remove("input") {
                Some(Value::String(input)) => Some(input),
                _ => None,
            });
            // Some models write the plain input instead of the JSON object.
            one("input", input.unwrap_or_else(|| arguments.to_owned()).into())
        }
        ClientKind::LocalShell => one("action", local_shell(object()?)?),
        ClientKind::Shell => one("action", shell(object()?)?),
        ClientKind::ApplyPatch => one("operation", operation(object()?)?),
        ClientKind::ToolSearch => one("arguments", Value::Object(object()?)),
    })
}

fn is_texts(value: &Value) -> bool {
    value.as_array().is_some_and(|texts| !texts.is_empty() && texts.iter().all(Value::is_string))
}

fn local_shell(mut given: Map<String, Value>) -> Option<Value> {
    let command = given.shift_remove("command").filter(is_texts)?;
    let env = given.shift_remove("env").filter(Value::is_object).unwrap_or_else(|| json!({}));
    let mut action = json!({ "type": "exec", "command": command, "env": env });
    let members = action.as_object_mut()?;
    let optional = [
        ("timeout_ms", Value::is_u64 as fn(&Value) -> bool),
        ("user", Value::is_string),
        ("working_directory", Value::is_string),
    ];
    for (name, fits) in optional {
        members.extend(given.shift_remove(name).filter(fits).map(|value| (name.to_owned(), value)));
    }
    Some(action)
}

fn shell(mut given: Map<String, Value>) -> Option<Value> {
    let commands = given.shift_remove("commands").filter(is_texts)?;
    let mut number = |name: &str| given.shift_remove(name).filter(Value::is_u64);
    let (timeout_ms, max_output_length) = (number("timeout_ms"), number("max_output_length"));
    Some(json!({ "commands": commands, "timeout_ms": timeout_ms, "max_output_length": max_output_length }))
}

fn operation(mut given: Map<String, Value>) -> Option<Value> {
    let mut text = |name: &str| match given.shift_remove(name) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    };
    let (kind, path) = (text("type")?, text("path").filter(|path| !path.is_empty())?);
    match kind.as_str() {
        "delete_file" => Some(json!({ "type": kind, "path": path })),
        "create_file" | "update_file" => {
            let diff = text("diff")?;
            Some(json!({ "type": kind, "path": path, "diff": diff }))
        }
        _ => None,
    }
}
