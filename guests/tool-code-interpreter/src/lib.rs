//! The server tool `code_interpreter`: runs JavaScript that a model writes.
//!
//! The interpreter is part of this component. The code therefore runs inside two sandboxes: the
//! interpreter gives it no imports, and the component has no network and no files. All state ends
//! with the call.

mod console;
mod inspect;
mod module;
mod script;
mod timers;

#[cfg(test)]
mod tests;

use cofferdam_guest_kit::bindings::tools::{Function, Output, ToolError};
use cofferdam_guest_kit::bindings::types::CallContext;
use cofferdam_guest_kit::server_tool::{Fields, SingleFunction, schema};
use serde_json::{Value, json};

use script::{LOOP_ITERATIONS_MAX, Ran};

/// The value of `language` in items of the prefixed tool.
const LANGUAGE: &str = "javascript";
/// The longest code, in bytes. Models do not write more in one answer.
const CODE_BYTES_MAX: usize = 256 * 1024;

const DESCRIPTION: &str = "Runs JavaScript (ECMAScript 2024; not Python and not Node.js) and returns what \
console.log printed and the value of the last expression. Use it to calculate, to transform data and to try out \
code. Each call starts afresh: nothing is kept between calls. There is no network, no file system, no import or \
require; `await` works at top level. A call may run for a few seconds.";

struct CodeInterpreter;

cofferdam_guest_kit::export!(tool: CodeInterpreter);

impl SingleFunction for CodeInterpreter {
    const NAME: &'static str = "code_interpreter";
    /// Whether the tool entry has the client's own type, whose items have other members.
    type Settings = bool;

    fn settings(fields: &Fields) -> Result<bool, ToolError> {
        check(fields)?;
        Ok(fields.value("type").is_some())
    }

    fn function(is_clients: &bool, context: &CallContext) -> Result<Function, ToolError> {
        let begin = if *is_clients {
            json!({ "code": "", "container_id": container(context), "outputs": null })
        } else {
            json!({ "code": "", "language": LANGUAGE })
        };
        let code = json!({ "type": "string", "description": "The JavaScript to run." });
        let mut parameters = schema(json!({ "code": code }), &["code"]);
        parameters.insert("x-item".to_owned(), begin);
        Ok(Function::new(Self::NAME, DESCRIPTION, parameters))
    }

    fn call(arguments: &[u8], is_clients: &bool, context: &CallContext) -> Result<Output, ToolError> {
        let arguments = Fields::arguments(arguments)?;
        let code = arguments.text("code")?.ok_or_else(|| arguments.wrong("code", "is required"))?;
        if code.len() > CODE_BYTES_MAX {
            return Err(arguments.wrong("code", &format!("may have at most {CODE_BYTES_MAX} bytes")));
        }
        let ran = script::run(code, context.now_ms, LOOP_ITERATIONS_MAX);
        let item = if *is_clients {
            json!({ "code": code, "container_id": container(context), "outputs": outputs(&ran) })
        } else {
            json!({
                "code": code,
                "language": LANGUAGE,
                "stdout": printed(&ran),
                "stderr": ran.error.as_deref().unwrap_or_default(),
                "exit_code": i32::from(ran.error.is_some()),
            })
        };
        Ok(Output::new(rendered(&ran), item))
    }
}

/// Refuses files for a client's container, because nothing here stores files. The id of a container
/// is ignored.
fn check(settings: &Fields) -> Result<(), ToolError> {
    let files = settings.value("container").and_then(|container| container.get("file_ids"));
    let none = files.is_none_or(|files| files.is_null() || files.as_array().is_some_and(Vec::is_empty));
    if none {
        return Ok(());
    }
    Err(settings.wrong("container.file_ids", "names files, but this host stores none: send their text"))
}

/// A container id made from the request, because clients expect one.
fn container(context: &CallContext) -> String {
    format!("cntr_{}", context.request_id.strip_prefix("resp_").unwrap_or(&context.request_id))
}

/// The output, the value and the error, as far as there are any.
fn outputs(ran: &Ran) -> Vec<Value> {
    let texts = [(!ran.logs.is_empty()).then_some(&ran.logs), ran.value.as_ref(), ran.error.as_ref()];
    texts.into_iter().flatten().map(|logs| json!({ "type": "logs", "logs": logs })).collect()
}

/// The output, followed by the value on a line of its own.
fn printed(ran: &Ran) -> String {
    let mut printed = ran.logs.clone();
    if let Some(value) = &ran.value {
        add_line(&mut printed, &format!("=> {value}"));
    }
    printed
}

fn add_line(text: &mut String, line: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(line);
}

fn rendered(ran: &Ran) -> String {
    let mut rendered = printed(ran);
    if let Some(error) = &ran.error {
        add_line(&mut rendered, error);
    }
    if rendered.is_empty() { "(The code ran and printed nothing.)".to_owned() } else { rendered }
}
