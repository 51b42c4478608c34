//! One change of one file, as a model proposes it.

use cofferdam_guest_kit::bindings::tools::ToolError;
use cofferdam_guest_kit::server_tool::{Fields, relative_path};
use serde_json::{Value, json};

/// The kinds of changes.
pub(crate) const KINDS: [&str; 3] = ["create_file", "update_file", "delete_file"];
/// The longest path, in bytes.
const PATH_BYTES_MAX: usize = 1024;
/// The longest diff, in bytes.
const DIFF_BYTES_MAX: usize = 1 << 20;

/// Reads an operation from the arguments.
///
/// # Errors
///
/// When the operation is wrong; the message says what the model must change.
pub(crate) fn read(arguments: &Fields) -> Result<Value, ToolError> {
    // Some models put the operation into a member named `operation`, as the output item has it.
    if let Some(inner) = arguments.object("operation")? {
        let inner = Value::Object(inner.clone()).to_string();
        return operation(&Fields::arguments(inner.as_bytes())?);
    }
    operation(arguments)
}

fn operation(arguments: &Fields) -> Result<Value, ToolError> {
    let kind = arguments.required_text("type")?;
    if !KINDS.contains(&kind) {
        return Err(arguments.wrong("type", "must be one of create_file, update_file, delete_file"));
    }
    let path = arguments.text("path")?.unwrap_or_default();
    relative_path(path, PATH_BYTES_MAX).map_err(|rule| arguments.wrong("path", &rule))?;
    if kind == "delete_file" {
        return Ok(json!({ "type": kind, "path": path }));
    }
    let Some(diff) = arguments.text("diff")? else {
        return Err(arguments.wrong("diff", &format!("is required for {kind}")));
    };
    if diff.len() > DIFF_BYTES_MAX {
        return Err(arguments.wrong("diff", &format!("may have at most {DIFF_BYTES_MAX} bytes")));
    }
    let rule = if kind == "create_file" { broken_content(diff) } else { broken_hunks(diff) };
    match rule {
        Some(rule) => Err(arguments.wrong("diff", rule)),
        None => Ok(json!({ "type": kind, "path": path, "diff": diff })),
    }
}

/// The rule that the content of a new file breaks, if any.
fn broken_content(diff: &str) -> Option<&'static str> {
    let is_added = |line: &str| line.starts_with('+');
    (!diff.lines().all(is_added)).then_some("must have + in front of every line of the new file")
}

/// The rule that the hunks of a change break, if any.
fn broken_hunks(diff: &str) -> Option<&'static str> {
    if diff.lines().any(|line| line.starts_with("*** ") && line != "*** End of File") {
        return Some("must hold the hunks alone, without *** Begin Patch and *** Update File");
    }
    // An empty line is an empty line of context.
    let is_line = |line: &str| line.is_empty() || line.starts_with([' ', '+', '-', '@', '\\', '*']);
    if !diff.lines().all(is_line) {
        return Some("must have a space, + or - in front of every line, and @@ in front of every hunk");
    }
    (!diff.lines().any(|line| line.starts_with(['+', '-']))).then_some("must add or remove at least one line")
}
