//! The list of a server's tools: validated and limited when it is fetched, kept for the request, and
//! rendered for the model and the client.

use cofferdam_guest_kit::bindings::tools::Function;
use cofferdam_guest_kit::tool::clip;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::names;
use crate::rpc::Trouble;
use crate::session::Session;
use crate::settings::Settings;

/// The largest number of tools of one server.
const TOOLS_MAX: usize = 128;
/// The longest name of a tool, in bytes.
const NAME_BYTES_MAX: usize = 256;
/// The longest description, in characters.
const DESCRIPTION_CHARS_MAX: usize = 4_000;
/// The longest schema, in bytes.
const SCHEMA_BYTES_MAX: usize = 32 << 10;
/// The largest size of all tools of a server together, in bytes.
const ALL_BYTES_MAX: usize = 400 << 10;

/// A tool of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Tool {
    pub(crate) name: String,
    description: String,
    #[serde(rename = "input_schema")]
    schema: Map<String, Value>,
    annotations: Option<Map<String, Value>>,
}

/// What this request has learned from one server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Listing {
    #[serde(flatten)]
    pub(crate) session: Session,
    pub(crate) tools: Vec<Tool>,
    /// Why the list could not be fetched.
    pub(crate) error: Option<String>,
}

/// Adds tools from a server's list. Tools without a valid name or schema are left out, and so are
/// tools whose name is already present.
///
/// # Errors
///
/// When there are more tools than a model can be offered.
pub(crate) fn add(tools: &mut Vec<Tool>, listed: &[Value]) -> Result<(), Trouble> {
    let fresh: Vec<Tool> = listed.iter().take(TOOLS_MAX + 1).filter_map(Tool::read).collect();
    for tool in fresh {
        if !tools.iter().any(|known| known.name == tool.name) {
            tools.push(tool);
        }
    }
    let bytes: usize = tools.iter().map(|tool| json!(tool).to_string().len()).sum();
    if listed.len() > TOOLS_MAX || tools.len() > TOOLS_MAX || bytes > ALL_BYTES_MAX {
        return Err(Trouble::invalid(format!(
            "The MCP server lists more than {TOOLS_MAX} tools or {} KiB of them.",
            ALL_BYTES_MAX >> 10
        )));
    }
    Ok(())
}

impl Tool {
    fn read(listed: &Value) -> Option<Self> {
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
    fn parameters(&self) -> Map<String, Value> {
        let mut schema = self.schema.clone();
        schema.shift_remove("x-item");
        schema.insert("type".to_owned(), "object".into());
        if !schema.get("properties").is_some_and(Value::is_object) {
            schema.insert("properties".to_owned(), json!({}));
        }
        schema
    }
}

impl Listing {
    /// Reads what [`Listing::write`] has written.
    pub(crate) fn read(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }

    /// The listing as JSON, to be kept.
    pub(crate) fn write(&self) -> Vec<u8> {
        json!(self).to_string().into_bytes()
    }

    fn allowed(&self, settings: &Settings) -> impl Iterator<Item = (String, &Tool)> {
        let tools: Vec<&Tool> = self.tools.iter().filter(|tool| settings.allows(tool)).collect();
        let names = names::of(&settings.label, tools.iter().map(|tool| tool.name.as_str()));
        names.into_iter().zip(tools)
    }

    /// The tool of a function.
    pub(crate) fn tool(&self, settings: &Settings, function: &str) -> Option<&Tool> {
        self.allowed(settings).find(|(name, _)| name == function).map(|(_, tool)| tool)
    }

    /// The functions for models, with the items that clients see for their calls.
    pub(crate) fn functions(&self, settings: &Settings) -> Vec<Function> {
        let function = |(name, tool): (String, &Tool)| {
            let item = if settings.asks_for(tool) { "mcp_approval_request" } else { "mcp_call" };
            let mut parameters = tool.parameters();
            let shown = json!({ "type": item, "server_label": settings.label, "name": tool.name });
            parameters.insert("x-item".to_owned(), shown);
            Function::new(name, &tool.description, parameters)
        };
        self.allowed(settings).map(function).collect()
    }

    /// The members of the item `mcp_list_tools`.
    pub(crate) fn item(&self, settings: &Settings) -> Value {
        let tools: Vec<Value> = self.allowed(settings).map(|(_, tool)| json!(tool)).collect();
        json!({ "server_label": settings.label, "tools": tools, "error": self.error })
    }
}
