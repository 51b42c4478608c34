//! `/openapi.json` of the admin listener. Paths, parameters and bodies come from the definition of
//! the command line; the answers are written in `openapi.json` beside this file, and tests hold real
//! answers against them.

use std::sync::LazyLock;

use bytes::Bytes;
use clap::{Arg, ArgAction};
use serde_json::{Map, Value, json};

use super::arguments::{is_taken, member};
use crate::command::remote::{self, Remote, RemoteCommand};

/// The parts that are no commands, and the shapes of all answers.
const WRITTEN: &str = include_str!("openapi.json");

static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| describe().to_string().into());

/// The document.
pub(super) fn document() -> Bytes {
    DOCUMENT.clone()
}

fn describe() -> Value {
    let mut document: Value = serde_json::from_str(WRITTEN).unwrap_or_default();
    document["info"]["version"] = env!("CARGO_PKG_VERSION").into();
    // The shape of the answer of each command, by its path.
    let answers =
        document.as_object_mut().and_then(|members| members.remove("x-answers")).unwrap_or_default();
    for command in remote::all() {
        let path = command.words.join("/");
        let answer = answers.get(&path).cloned().unwrap_or_default();
        let method = match command.remote {
            Remote::Reads => "get",
            Remote::Changes => "post",
        };
        document["paths"][format!("/admin/v1/{path}")][method] = operation(&command, &answer);
    }
    document
}

fn operation(command: &RemoteCommand, answer: &Value) -> Value {
    let about = command.definition.get_about().map(ToString::to_string).unwrap_or_default();
    let arguments: Vec<&Arg> = command.definition.get_arguments().filter(|it| is_taken(it)).collect();
    let mut operation = json!({
        "operationId": command.words.join("-"),
        "tags": [command.words.first()],
        "summary": about,
        "responses": {
            "200": {"description": "Done", "content": {"application/json": {"schema": answer}}},
            "default": {"$ref": "#/components/responses/Error"},
        },
    });
    match command.remote {
        Remote::Reads => {
            operation["parameters"] = arguments.iter().map(|argument| parameter(argument)).collect();
        }
        Remote::Changes => {
            let required: Vec<String> =
                arguments.iter().filter(|it| it.is_required_set()).map(|it| member(it)).collect();
            let properties: Map<String, Value> = arguments.iter().map(|it| (member(it), shape(it))).collect();
            let schema = json!({
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": false,
            });
            operation["requestBody"] = json!({"required": !required.is_empty(), "content": {"application/json": {"schema": schema}}});
        }
    }
    operation
}

fn parameter(argument: &Arg) -> Value {
    json!({
        "name": member(argument),
        "in": "query",
        "required": argument.is_required_set(),
        "schema": shape(argument),
    })
}

/// The schema of an argument. Numbers may also be written as texts.
fn shape(argument: &Arg) -> Value {
    let mut shape = match argument.get_action() {
        ArgAction::SetTrue => json!({"type": "boolean"}),
        ArgAction::Append => json!({"type": "array", "items": {"type": "string"}, "maxItems": 100}),
        _ => json!({"type": ["string", "number"]}),
    };
    let values = argument.get_possible_values();
    if !values.is_empty() && !matches!(argument.get_action(), ArgAction::SetTrue) {
        let values: Vec<&str> = values.iter().map(clap::builder::PossibleValue::get_name).collect();
        match argument.get_action() {
            ArgAction::Append => shape["items"]["enum"] = values.into(),
            _ => shape = json!({"type": "string", "enum": values}),
        }
    }
    if let Some(about) = argument.get_help() {
        shape["description"] = about.to_string().into();
    }
    shape
}
