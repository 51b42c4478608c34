//! The server tool `apply_patch`: the model proposes one change of one file, and the client applies
//! it. The tool only validates the change. The call ends the response, and the client sends the
//! outcome in its next request.

mod operation;

#[cfg(test)]
mod tests;

use cofferdam_toolbox::Fields;
use cofferdam_toolbox::bindings::cofferdam::plugin::types::{CallContext, Json};
use cofferdam_toolbox::bindings::exports::cofferdam::plugin::tools::{Function, Guest, Output, ToolError};
use serde_json::json;

/// The only function, named like the tool. Its arguments are the members of an operation, so that
/// histories from other endpoints have the same form.
const NAME: &str = "apply_patch";

const DESCRIPTION: &str = "Creates, changes or deletes one file of the user's. For create_file the diff is the whole \
content, each line with + in front. For update_file it is one or more hunks: a line that begins with @@ (and may name \
the function or class around it), then lines of context with a space in front, lines to remove with - and lines to add \
with +, with three lines of context around each change. delete_file has no diff. One call changes one file.";

struct ApplyPatch;

cofferdam_toolbox::export_tool!(ApplyPatch);

impl Guest for ApplyPatch {
    fn functions(settings: Json, _: CallContext) -> Result<Vec<Function>, ToolError> {
        let settings = Fields::settings(&settings)?;
        let known = ["auto", "native", "openrouter"];
        if settings.text("engine")?.is_some_and(|engine| !known.contains(&engine)) {
            return Err(settings.wrong("engine", "must be one of auto, native, openrouter"));
        }
        let mut parameters = json!({
            "type": "object",
            "properties": {
                "type": { "type": "string", "enum": operation::KINDS },
                "path": { "type": "string", "description": "The file, relative to the user's folder, such as src/main.js." },
                "diff": { "type": "string", "description": "What to change; not for delete_file." }
            },
            "required": ["type", "path"],
            "additionalProperties": false
        });
        // Clients of this tool type require an operation from the start of the item, before it is known.
        let is_clients = settings.text("type")?.is_some();
        if let Some(parameters) = parameters.as_object_mut().filter(|_| is_clients) {
            let unknown = json!({ "type": "update_file", "path": "", "diff": "" });
            parameters.insert("x-item".to_owned(), json!({ "operation": unknown }));
        }
        Ok(vec![Function {
            name: NAME.to_owned(),
            description: DESCRIPTION.to_owned(),
            parameters: parameters.to_string().into_bytes(),
        }])
    }

    fn invoke(function: String, arguments: Json, _: Json, _: CallContext) -> Result<Output, ToolError> {
        if function != NAME {
            return Err(ToolError::InvalidArguments(format!("there is no function {function}")));
        }
        let operation = operation::read(&Fields::arguments(&arguments)?)?;
        Ok(Output {
            for_model: "The change was handed to the user.".to_owned(),
            item: json!({ "operation": operation }).to_string().into_bytes(),
            annotations: Vec::new(),
            cost_pico: 0,
        })
    }
}
