//! Kinds of client tools as functions: what the model is offered, and what the arguments of its calls
//! mean for the client.

use cofferdam_protocol::ToolKind;
use serde_json::{Map, Value, json};

const LOCAL_SHELL: &str = r#"{"type":"function","name":"local_shell","description":"Runs a program on the user's machine, and returns what it writes.","strict":false,"parameters":{"type":"object","properties":{"command":{"type":"array","items":{"type":"string"},"description":"The program and its arguments, such as [\"bash\", \"-lc\", \"ls\"]."},"working_directory":{"type":"string","description":"Where to run it."},"env":{"type":"object","additionalProperties":{"type":"string"},"description":"Variables of its environment."},"user":{"type":"string","description":"The user to run it as."},"timeout_ms":{"type":"integer","description":"The longest time that it may take, in milliseconds."}},"required":["command"],"additionalProperties":false}}"#;

const SHELL: &str = r#"{"type":"function","name":"shell","description":"Runs commands in a shell on the user's machine, and returns for each what it writes and its exit code.","strict":false,"parameters":{"type":"object","properties":{"commands":{"type":"array","items":{"type":"string"},"description":"The commands."},"timeout_ms":{"type":"integer","description":"The longest time that they may take, in milliseconds."},"max_output_length":{"type":"integer","description":"The most characters of output to return."}},"required":["commands"],"additionalProperties":false}}"#;

const APPLY_PATCH: &str = r#"{"type":"function","name":"apply_patch","description":"Creates, changes or deletes one file of the user. A diff has a line that begins with @@ before each place that changes, and then lines that begin with a space where they stay, with - where they go and with + where they are new. The diff of a new file has only lines that begin with +.","strict":false,"parameters":{"type":"object","properties":{"type":{"type":"string","enum":["create_file","update_file","delete_file"]},"path":{"type":"string","description":"The file, relative to the user's workspace."},"diff":{"type":"string","description":"The change; left out for delete_file."}},"required":["type","path"],"additionalProperties":false}}"#;

/// The function for a kind whose tools are all alike.
pub(super) fn definition(kind: &ToolKind) -> Option<&'static str> {
    match kind {
        ToolKind::LocalShell => Some(LOCAL_SHELL),
        ToolKind::Shell => Some(SHELL),
        ToolKind::ApplyPatch => Some(APPLY_PATCH),
        _ => None,
    }
}

/// What a call's item holds before the arguments are complete.
pub(crate) fn no_arguments(kind: &ToolKind) -> Value {
    match kind {
        ToolKind::Custom => json!(""),
        ToolKind::LocalShell => json!({ "type": "exec", "command": [], "env": {} }),
        ToolKind::Shell => json!({ "commands": [], "timeout_ms": null, "max_output_length": null }),
        ToolKind::ApplyPatch => json!({ "type": "update_file", "path": "", "diff": "" }),
        _ => json!({}),
    }
}

/// What a call's item holds for these arguments; none where they do not fit the kind.
pub(crate) fn read_arguments(kind: &ToolKind, arguments: &str) -> Option<Value> {
    let object = serde_json::from_str::<Map<String, Value>>(arguments).ok();
    match kind {
        ToolKind::Custom => match object.and_then(|mut object| object.shift_remove("input")) {
            Some(Value::String(input)) => Some(input.into()),
            // Some models write the plain input instead of the JSON object.
            _ => Some(arguments.into()),
        },
        ToolKind::LocalShell => local_shell(object?),
        ToolKind::Shell => shell(object?),
        ToolKind::ApplyPatch => operation(object?),
        _ => object.map(Value::Object),
    }
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
