//! From the members of a request to a command: they become a command line, which the definition of
//! the command line parses, so both have the same rules.

use std::any::TypeId;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, FromArgMatches};
use serde_json::{Map, Value};

use super::fault::AdminFault;
use crate::command::remote::{RemoteCommand, definition};
use crate::command::{Command, GrantCommand, PluginCommand, WorkspaceCommand};
use crate::route::decode;

/// Entries of one list in a request.
pub(super) const ENTRIES_MAX: usize = 100;

/// The members of a query. A member that is given several times is a list.
pub(super) fn of_query(query: &str) -> Result<Map<String, Value>, AdminFault> {
    let mut members: Map<String, Value> = Map::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, "true"));
        let read = |text: &str| {
            decode(&text.replace('+', "%20"))
                .ok_or_else(|| AdminFault::malformed("the query is not UTF-8 in percent code"))
        };
        let (name, value) = (read(name)?, Value::String(read(value)?));
        match members.get_mut(&name) {
            None => drop(members.insert(name, value)),
            Some(Value::Array(values)) => values.push(value),
            Some(first) => *first = Value::Array(vec![first.take(), value]),
        }
    }
    Ok(members)
}

/// The members of a body; an empty one has none.
pub(super) fn of_body(body: &[u8]) -> Result<Map<String, Value>, AdminFault> {
    if body.trim_ascii().is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_slice(body) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) => Err(AdminFault::malformed("the body must be a JSON object")),
        Err(error) => Err(AdminFault::malformed(format!(
            "the body is not JSON: line {}, column {}",
            error.line(),
            error.column()
        ))),
    }
}

/// Whether the admin API takes this argument. Paths are those of the machine on which a command was
/// started, so none is taken.
pub(super) fn is_taken(argument: &Arg) -> bool {
    !argument.is_hide_set() && !is_path(argument.get_value_parser())
}

fn is_path(parser: &ValueParser) -> bool {
    parser.type_id() == TypeId::of::<PathBuf>()
}

/// The member that stands for an argument: the name of its option, or that of its position.
pub(super) fn member(argument: &Arg) -> String {
    match argument.get_long() {
        Some(long) => long.to_owned(),
        None => argument.get_id().as_str().replace('_', "-"),
    }
}

/// Reads a command from the members of a request.
pub(super) fn command(remote: &RemoteCommand, members: &Map<String, Value>) -> Result<Command, AdminFault> {
    let taken: Vec<&Arg> = remote.definition.get_arguments().filter(|argument| is_taken(argument)).collect();
    if let Some(unknown) =
        members.keys().find(|name| !taken.iter().any(|argument| member(argument) == **name))
    {
        let known: Vec<String> = taken.iter().map(|argument| format!("`{}`", member(argument))).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(AdminFault::malformed(format!("unknown member `{}`; known: {known}", shown(unknown))));
    }
    let mut line: Vec<OsString> = vec!["cofferdam".into()];
    line.extend(remote.words.iter().map(OsString::from));
    let mut positions = Vec::new();
    for argument in taken {
        let name = member(argument);
        let Some(value) = members.get(&name).filter(|value| !value.is_null()) else { continue };
        for text in texts(&name, argument, value)? {
            match argument.get_long() {
                None => positions.push(text.into()),
                Some(long) if matches!(argument.get_action(), ArgAction::SetTrue) => {
                    line.push(format!("--{long}").into());
                }
                Some(long) => line.push(format!("--{long}={text}").into()),
            }
        }
    }
    // After this no value is taken for an option.
    line.push("--".into());
    line.extend(positions);
    let parsed = definition().try_get_matches_from(line);
    let parsed = parsed.and_then(|matches| Command::from_arg_matches(&matches));
    let command = parsed.map_err(|error| AdminFault::malformed(reason(&error)))?;
    match command {
        Command::Workspace(WorkspaceCommand::Delete { yes: false, .. }) => {
            Err(AdminFault::malformed("deleting a workspace cannot be undone: set `yes` to true"))
        }
        // Another update may be held by now than the one that the operator was shown.
        Command::Plugin(PluginCommand::Grant(GrantCommand {
            accept: true,
            print: false,
            digest: None,
            ..
        })) => Err(AdminFault::malformed("to accept an update, send its `digest`, which plugin/list has")),
        command => Ok(command),
    }
}

/// The texts of a value on the command line.
fn texts(name: &str, argument: &Arg, value: &Value) -> Result<Vec<String>, AdminFault> {
    let wrong = |expected: &str| AdminFault::malformed(format!("`{name}` must be {expected}"));
    let is_list = matches!(argument.get_action(), ArgAction::Append);
    match (argument.get_action(), value) {
        (ArgAction::SetTrue, Value::Bool(true)) => Ok(vec![String::new()]),
        (ArgAction::SetTrue, Value::String(text)) if text == "true" => Ok(vec![String::new()]),
        (ArgAction::SetTrue, Value::Bool(false)) => Ok(Vec::new()),
        (ArgAction::SetTrue, Value::String(text)) if text == "false" => Ok(Vec::new()),
        (ArgAction::SetTrue, _) => Err(wrong("true or false")),
        (_, Value::Array(values)) if is_list => {
            if values.len() > ENTRIES_MAX {
                return Err(wrong(&format!("a list of at most {ENTRIES_MAX} texts")));
            }
            values.iter().map(|value| text(value).ok_or_else(|| wrong("a list of texts"))).collect()
        }
        (_, value) => match text(value) {
            Some(text) => Ok(vec![text]),
            None if is_list => Err(wrong("a list of texts")),
            None => Err(wrong("a text or a number")),
        },
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The part of a name that is shown in an error.
fn shown(name: &str) -> String {
    name.chars().take(64).collect()
}

/// What the parser of the command line says, without usage and hints for a terminal.
fn reason(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let lines = text.lines().take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let said: Vec<&str> = lines.map(str::trim).filter(|line| !line.is_empty()).collect();
    let said = said.join(" ");
    said.strip_prefix("error: ").unwrap_or(&said).to_owned()
}
