//! What a server offers: checked and cut to size when it is listed, kept for the request, told to model and
//! client.

use cofferdam_toolbox::bindings::exports::cofferdam::plugin::tools::Function;
use cofferdam_toolbox::clip;
use serde_json::{Map, Value, json};

use crate::names;
use crate::rpc::Trouble;
use crate::session::Session;
use crate::settings::Settings;

/// The most tools of a server.
const TOOLS_MAX: usize = 128;
/// The longest name of a tool, in bytes.
const NAME_BYTES_MAX: usize = 256;
/// The longest description, in characters.
const DESCRIPTION_CHARS_MAX: usize = 4_000;
/// The longest schema, in bytes.
const SCHEMA_BYTES_MAX: usize = 32 << 10;
/// All tools of a server together, in bytes.
const ALL_BYTES_MAX: usize = 400 << 10;

/// A tool of a server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tool {
    pub(crate) name: String,
    description: String,
    schema: Map<String, Value>,
    annotations: Option<Map<String, Value>>,
}

/// A server as this request knows it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Listing {
    pub(crate) session: Session,
    pub(crate) tools: Vec<Tool>,
    /// Why there are none.
    pub(crate) error: Option<String>,
}

/// Adds tools as a server lists them. One without name or schema, and one whose name is there already, is left
/// out.
///
/// # Errors
///
/// They are more than a model could be told.
pub(crate) fn add(tools: &mut Vec<Tool>, listed: &[Value]) -> Result<(), Trouble> {
    let fresh: Vec<Tool> = listed.iter().take(TOOLS_MAX + 1).filter_map(Tool::read).collect();
    for tool in fresh {
        if !tools.iter().any(|known| known.name == tool.name) {
            tools.push(tool);
        }
    }
    let bytes: usize = tools.iter().map(|tool| tool.json().to_string().len()).sum();
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

    /// As clients see it, and as it is kept.
    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "description": self.description,
            "input_schema": self.schema,
            "annotations": self.annotations,
        })
    }

    fn kept(json: &Value) -> Option<Self> {
        let object = |name: &str| json.get(name).and_then(Value::as_object).cloned();
        let text = |name: &str| json.get(name).and_then(Value::as_str).map(str::to_owned);
        Some(Self {
            name: text("name")?,
            description: text("description")?,
            schema: object("input_schema")?,
            annotations: object("annotations"),
        })
    }

    /// Whether the server says that the tool changes nothing. It may lie.
    pub(crate) fn is_read_only(&self) -> bool {
        let hint = self.annotations.as_ref().and_then(|annotations| annotations.get("readOnlyHint"));
        hint.and_then(Value::as_bool).unwrap_or(false)
    }

    /// The schema that models are told. Some take none without `type` and `properties`, and a member for the
    /// host in it would be the server's.
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
    /// What was kept.
    pub(crate) fn read(json: &[u8]) -> Option<Self> {
        let kept: Value = serde_json::from_slice(json).ok()?;
        let text = |name: &str| kept.get(name).and_then(Value::as_str).map(str::to_owned);
        let tools = kept.get("tools")?.as_array()?.iter().map(Tool::kept).collect::<Option<Vec<_>>>()?;
        Some(Self {
            session: Session { id: text("session"), version: text("version") },
            tools,
            error: text("error"),
        })
    }

    /// What is to be kept.
    pub(crate) fn write(&self) -> Vec<u8> {
        let tools: Vec<Value> = self.tools.iter().map(Tool::json).collect();
        let kept = json!({
            "session": self.session.id,
            "version": self.session.version,
            "tools": tools,
            "error": self.error,
        });
        kept.to_string().into_bytes()
    }

    /// The tools that the client allows, each with its function.
    fn allowed(&self, settings: &Settings) -> impl Iterator<Item = (String, &Tool)> {
        let tools: Vec<&Tool> = self.tools.iter().filter(|tool| settings.allows(tool)).collect();
        let names = names::of(&settings.label, tools.iter().map(|tool| tool.name.as_str()));
        names.into_iter().zip(tools)
    }

    /// The tool behind a function.
    pub(crate) fn tool(&self, settings: &Settings, function: &str) -> Option<&Tool> {
        self.allowed(settings).find(|(name, _)| name == function).map(|(_, tool)| tool)
    }

    /// The functions that models are offered, and what clients see of their calls.
    pub(crate) fn functions(&self, settings: &Settings) -> Vec<Function> {
        let function = |(name, tool): (String, &Tool)| {
            let item = if settings.asks_for(tool) { "mcp_approval_request" } else { "mcp_call" };
            let mut parameters = tool.parameters();
            let shown = json!({ "type": item, "server_label": settings.label, "name": tool.name });
            parameters.insert("x-item".to_owned(), shown);
            Function {
                name,
                description: tool.description.clone(),
                parameters: Value::Object(parameters).to_string().into_bytes(),
            }
        };
        self.allowed(settings).map(function).collect()
    }

    /// The members of the item `mcp_list_tools`.
    pub(crate) fn item(&self, settings: &Settings) -> Value {
        let tools: Vec<Value> = self.allowed(settings).map(|(_, tool)| tool.json()).collect();
        json!({ "server_label": settings.label, "tools": tools, "error": self.error })
    }
}
