//! The server tool `{{type}}`: writes a text backwards.

wit_bindgen::generate!({ path: "wit", world: "plugin", generate_all });

use cofferdam::plugin::types::{CallContext, Json};
use exports::cofferdam::plugin::tools::{Function, Guest, Output, ToolError};
use serde_json::{Value, json};

struct Tool;
export!(Tool);

impl Guest for Tool {
    /// The functions that the model may call. `settings` are the `parameters` of the request's entry for this tool.
    fn functions(_settings: Json, _context: CallContext) -> Result<Vec<Function>, ToolError> {
        let parameters = json!({
            "type": "object",
            "properties": { "text": { "type": "string", "description": "The text" } },
            "required": ["text"]
        });
        Ok(vec![Function {
            name: "backwards".to_owned(),
            description: "Writes a text backwards.".to_owned(),
            parameters: parameters.to_string().into_bytes(),
        }])
    }

    /// One call of a model.
    fn invoke(_function: String, arguments: Json, _settings: Json, _context: CallContext) -> Result<Output, ToolError> {
        let arguments: Value = serde_json::from_slice(&arguments).unwrap_or_default();
        let Some(text) = arguments["text"].as_str() else {
            return Err(ToolError::InvalidArguments("`text` must be a string".to_owned()));
        };
        let backwards: String = text.chars().rev().collect();
        Ok(Output {
            item: json!({ "backwards": backwards }).to_string().into_bytes(),
            for_model: backwards,
            annotations: Vec::new(),
            cost_pico: 0,
        })
    }
}
