//! `/openapi.json` of the admin listener. Paths, parameters and bodies come from the definition of
//! the command line; the answers are written in `openapi.json` beside this file, and tests hold real
//! answers against them.

use std::sync::LazyLock;

use bytes::Bytes;
use clap::builder::PossibleValue;
use clap::{Arg, ArgAction};
use serde_json::{Map, Value, json};

use super::arguments::{ENTRIES_MAX, is_taken, member};
use crate::command::remote::{self, Remote, RemoteCommand};

/// The parts that are no commands, and the shapes of all answers.
const WRITTEN: &str = include_str!("openapi.json");

static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| describe().to_string().into());

/// The document.
pub(super) fn document() -> Bytes {
    DOCUMENT.clone()
}

fn describe() -> Value {
    let mut document: Map<String, Value> = serde_json::from_str(WRITTEN).unwrap_or_default();
    // The shape of the answer of each command, by its path.
    let answers = document.remove("x-answers").unwrap_or_default();
    if let Some(info) = members_of(&mut document, "info") {
        info.insert("version".to_owned(), env!("CARGO_PKG_VERSION").into());
    }
    if let Some(paths) = members_of(&mut document, "paths") {
        paths.extend(remote::all().iter().map(|command| {
            let path = command.words.join("/");
            let operation = operation(command, answers.get(&path));
            let method = match command.remote {
                Remote::Reads => "get",
                Remote::Changes => "post",
            };
            (format!("/admin/v1/{path}"), json!({method: operation}))
        }));
    }
    document.into()
}

fn members_of<'d>(document: &'d mut Map<String, Value>, name: &str) -> Option<&'d mut Map<String, Value>> {
    document.get_mut(name)?.as_object_mut()
}

fn operation(command: &RemoteCommand, answer: Option<&Value>) -> Map<String, Value> {
    let about = command.definition.get_about().map(ToString::to_string).unwrap_or_default();
    let arguments: Vec<&Arg> = command.definition.get_arguments().filter(|it| is_taken(it)).collect();
    let done = json!({"description": "Done", "content": {"application/json": {"schema": answer}}});
    let refused = json!({"$ref": "#/components/responses/Error"});
    let (member, value) = match command.remote {
        Remote::Reads => ("parameters", arguments.iter().map(|argument| parameter(argument)).collect()),
        Remote::Changes => ("requestBody", body(&arguments)),
    };
    Map::from_iter([
        ("operationId".to_owned(), command.words.join("-").into()),
        ("tags".to_owned(), json!([command.words.first()])),
        ("summary".to_owned(), about.into()),
        (member.to_owned(), value),
        ("responses".to_owned(), json!({"200": done, "default": refused})),
    ])
}

fn body(arguments: &[&Arg]) -> Value {
    let required: Vec<String> =
        arguments.iter().filter(|it| it.is_required_set()).map(|it| member(it)).collect();
    let properties: Map<String, Value> =
        arguments.iter().map(|argument| (member(argument), shape(argument).into())).collect();
    let schema = json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    json!({"required": !required.is_empty(), "content": {"application/json": {"schema": schema}}})
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
fn shape(argument: &Arg) -> Map<String, Value> {
    let values = argument.get_possible_values();
    let names: Vec<&str> = values.iter().map(PossibleValue::get_name).collect();
    let text =
        if names.is_empty() { json!({"type": "string"}) } else { json!({"type": "string", "enum": names}) };
    let mut shape = Map::new();
    match argument.get_action() {
        ArgAction::SetTrue => shape.extend([("type".to_owned(), "boolean".into())]),
        ArgAction::Append => {
            shape.insert("type".to_owned(), "array".into());
            shape.insert("items".to_owned(), text);
            shape.insert("maxItems".to_owned(), ENTRIES_MAX.into());
        }
        _ if names.is_empty() => shape.extend([("type".to_owned(), json!(["string", "number"]))]),
        _ => shape.extend([("type".to_owned(), "string".into()), ("enum".to_owned(), json!(names))]),
    }
    if let Some(about) = argument.get_help() {
        shape.insert("description".to_owned(), about.to_string().into());
    }
    shape
}
