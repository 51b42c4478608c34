//! The deferred tools, which the model can find by a search.

use serde::Deserialize;
use serde_json::{Map, Value};

/// The searchable parts of one tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Deferred {
    /// The name by which the model calls it.
    pub(crate) name: String,
    /// Empty when the client gave none.
    pub(crate) description: String,
    /// The names and descriptions of the parameters, in lower case.
    pub(crate) parameters: String,
}

#[derive(Deserialize)]
struct Definition {
    name: Option<String>,
    description: Option<String>,
    parameters: Option<Schema>,
}

#[derive(Deserialize)]
struct Schema {
    properties: Option<Map<String, Value>>,
}

/// Reads a JSON array of tool definitions. Entries without a name or of another form cannot be loaded
/// and are left out.
pub(crate) fn read(json: &[u8]) -> Vec<Deferred> {
    let definitions: Vec<Value> = serde_json::from_slice(json).unwrap_or_default();
    definitions.into_iter().filter_map(one).collect()
}

fn one(definition: Value) -> Option<Deferred> {
    let name = definition.get("name")?.as_str()?.to_owned();
    let definition: Definition = serde_json::from_value(definition).ok()?;
    let properties = definition.parameters.and_then(|schema| schema.properties).unwrap_or_default();
    let mut parameters = String::new();
    for (name, schema) in &properties {
        parameters.push_str(name);
        parameters.push(' ');
        parameters.push_str(schema.get("description").and_then(Value::as_str).unwrap_or_default());
        parameters.push('\n');
    }
    Some(Deferred {
        name: definition.name.unwrap_or(name),
        description: definition.description.unwrap_or_default(),
        parameters: parameters.to_lowercase(),
    })
}
