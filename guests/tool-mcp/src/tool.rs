//! One tool of a server, as it is kept for the request.

use cofferdam_guest_kit::server_tool::clip;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The longest name of a tool, in bytes.
const NAME_BYTES_MAX: usize = 256;
/// The longest description, in characters.
const DESCRIPTION_CHARS_MAX: usize = 4_000;
/// The longest schema, in bytes.
const SCHEMA_BYTES_MAX: usize = 32 << 10;
/// A tool of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Tool {
    pub(crate) name: String,
    pub(crate) description: String,
    #[serde(rename = "input_schema")]
    schema: Map<String, Value>,
    annotations: Option<Map<String, Value>>,
}

impl Tool {
    /// Reads an entry of the list; `None` without a valid name or schema.
    pub(crate) fn read(listed: &Value) -> Option<Self> {
        let name = listed.get("name")?.as_str()?;
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return None;
        }
        let Some(Value::Object(schema)) = listed.get("inputSchema") else { return None };
        if Value::Object(schema.clone()).to_string().len() > SCHEMA_BYTES_MAX {
            return None;
        }
        let description = listed.get("description").and_then(Value::as_str).unwrap_or_default();
        let annotations = listed.get("annotations").and_then(Value::as_object).cloned();
        Some(Self {
            name: name.to_owned(),
            description: clip(description, DESCRIPTION_CHARS_MAX).text.to_owned(),
            schema: schema.clone(),
            annotations: annotations.filter(|object| json!(object).to_string().len() <= SCHEMA_BYTES_MAX),
        })
    }

    /// Whether the server claims that the tool changes nothing. The claim cannot be trusted.
    pub(crate) fn is_read_only(&self) -> bool {
        let hint = self.annotations.as_ref().and_then(|annotations| annotations.get("readOnlyHint"));
        hint.and_then(Value::as_bool).unwrap_or(false)
    }

    /// The schema for models. `type` and `properties` are added, because some models require them.
    /// `x-item` is removed, because it is an instruction to the host and must not come from the server.
    pub(crate) fn parameters(&self) -> Map<String, Value> {
        let mut schema = self.schema.clone();
        schema.shift_remove("x-item");
        schema.insert("type".to_owned(), "object".into());
        if !schema.get("properties").is_some_and(Value::is_object) {
            schema.insert("properties".to_owned(), json!({}));
        }
        schema
    }
}
