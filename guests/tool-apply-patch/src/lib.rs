//! The server tool `apply_patch`: the model proposes one change of one file, and the client applies
//! it. The tool only validates the change. The call ends the response, and the client sends the
//! outcome in its next request.

mod operation;

#[cfg(test)]
mod tests;

use cofferdam_guest_kit::bindings::tools::{Function, Output, ToolError};
use cofferdam_guest_kit::bindings::types::CallContext;
use cofferdam_guest_kit::server_tool::{Fields, SingleFunction, schema};
use serde_json::json;

const DESCRIPTION: &str = "Creates, changes or deletes one file of the user's. For create_file the diff is the whole \
content, each line with + in front. For update_file it is one or more hunks: a line that begins with @@ (and may name \
the function or class around it), then lines of context with a space in front, lines to remove with - and lines to add \
with +, with three lines of context around each change. delete_file has no diff. One call changes one file.";

struct ApplyPatch;

cofferdam_guest_kit::export!(tool: ApplyPatch);

impl SingleFunction for ApplyPatch {
    /// The only function, named like the tool. Its arguments are the members of an operation, so that
    /// histories from other endpoints have the same form.
    const NAME: &'static str = "apply_patch";
    /// Whether the entry is of the client's own tool type.
    type Settings = bool;

    fn settings(fields: &Fields) -> Result<bool, ToolError> {
        let known = ["auto", "native", "openrouter"];
        if fields.text("engine")?.is_some_and(|engine| !known.contains(&engine)) {
            return Err(fields.wrong("engine", "must be one of auto, native, openrouter"));
        }
        Ok(fields.text("type")?.is_some())
    }

    fn function(is_clients: &bool, _: &CallContext) -> Result<Function, ToolError> {
        let properties = json!({
            "type": { "type": "string", "enum": operation::KINDS },
            "path": { "type": "string", "description": "The file, relative to the user's folder, such as src/main.js." },
            "diff": { "type": "string", "description": "What to change; not for delete_file." }
        });
        let mut parameters = schema(properties, &["type", "path"]);
        // Clients of this tool type require an operation from the start of the item, before it is known.
        if *is_clients {
            let unknown = json!({ "type": "update_file", "path": "", "diff": "" });
            parameters.insert("x-item".to_owned(), json!({ "operation": unknown }));
        }
        Ok(Function::new(Self::NAME, DESCRIPTION, parameters))
    }

    fn call(arguments: &[u8], _: &bool, _: &CallContext) -> Result<Output, ToolError> {
        let operation = operation::read(&Fields::arguments(arguments)?)?;
        Ok(Output::new("The change was handed to the user.", json!({ "operation": operation })))
    }
}
