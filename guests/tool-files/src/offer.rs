//! The functions of the tool.

use cofferdam_guest_kit::bindings::tools::Function;
use serde_json::{Value, json};

pub(crate) const LIST: &str = "files_list";
pub(crate) const READ: &str = "files_read";
pub(crate) const WRITE: &str = "files_write";
pub(crate) const EDIT: &str = "files_edit";

/// The functions that the model is offered. They are always the same.
pub(crate) fn functions() -> Vec<Function> {
    let name = json!({ "type": "string", "description": "The file, such as notes/plan.md." });
    vec![
        function(
            LIST,
            "list",
            "Lists the text files that were written while answering this request.",
            &json!({}),
            &[],
        ),
        function(
            READ,
            "read",
            "Reads a text file that was written while answering this request.",
            &json!({
                "filename": name,
                "first_line": { "type": "integer", "minimum": 1, "description": "Where to begin; the first line is 1." },
                "lines": { "type": "integer", "minimum": 1, "description": "How many lines; all when left out." }
            }),
            &["filename"],
        ),
        function(
            WRITE,
            "write",
            "Writes a text file, in the place of what was there. Files last until this request is answered: use them \
             for plans, drafts and long results, and put what the user should have into your answer.",
            &json!({ "filename": name, "content": { "type": "string" } }),
            &["filename", "content"],
        ),
        function(
            EDIT,
            "edit",
            "Replaces a piece of a text file.",
            &json!({
                "filename": name,
                "old_text": { "type": "string", "description": "The piece, to the letter; it has to occur once." },
                "new_text": { "type": "string" },
                "everywhere": { "type": "boolean", "description": "Replace it wherever it occurs." }
            }),
            &["filename", "old_text", "new_text"],
        ),
    ]
}

fn function(
    name: &str,
    operation: &str,
    description: &str,
    properties: &Value,
    required: &[&str],
) -> Function {
    let parameters = json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
        "x-item": { "operation": operation }
    });
    Function::new(name, description, parameters)
}
