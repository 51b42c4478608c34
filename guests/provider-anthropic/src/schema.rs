//! Answers in a given form: `text.format`.
//!
//! A JSON Schema becomes the provider's structured output (`output_config.format`). Every current
//! model has it, and it works together with tools and thinking; a forced tool would work with
//! neither. The provider enforces only a subset of JSON Schema, so the schema is adapted: objects
//! are closed, and limits outside the subset move into the description, where the model still
//! reads them. If that would change the meaning (open maps, recursion), the whole schema goes into
//! the system prompt instead. Plain `json_object` goes into the system prompt as well.

use std::collections::BTreeSet;

use cofferdam_guest_kit::TextFormat;
use serde::Serialize;
use serde_json::{Map, Value};

const JSON_ONLY: &str = "Answer with one JSON object and nothing else: no code fence, no text around it.";

/// Keywords that the provider does not support.
const UNSUPPORTED: [&str; 21] = [
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "maxItems",
    "uniqueItems",
    "contains",
    "minContains",
    "maxContains",
    "prefixItems",
    "minProperties",
    "maxProperties",
    "propertyNames",
    "dependentRequired",
    "not",
    "if",
    "then",
    "else",
];

/// Values of `format` that the provider supports.
const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"];

/// Keywords whose value is an object with a schema for each name.
const NAMED: [&str; 3] = ["properties", "$defs", "definitions"];
/// Keywords whose value is a list of schemas.
const LISTED: [&str; 2] = ["anyOf", "allOf"];

/// The deepest nesting of a schema that is adapted. Deeper ones go into the system prompt.
const DEPTH_MAX: usize = 48;

/// `output_config.format`.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum OutputFormat {
    JsonSchema { schema: Value },
}

/// The translation of a requested form.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Form {
    pub format: Option<OutputFormat>,
    /// An instruction for the system prompt.
    pub instruction: Option<String>,
}

impl Form {
    /// Translates `text.format`.
    pub fn read(format: &TextFormat<'_>) -> Self {
        match format {
            TextFormat::JsonObject => Form { format: None, instruction: Some(JSON_ONLY.to_owned()) },
            TextFormat::JsonSchema { schema, .. } => {
                let parsed: Value = serde_json::from_str(schema.get()).unwrap_or_default();
                let adapted = parsed.is_object().then(|| adapt(&parsed, 0)).flatten();
                match adapted.filter(|_| !is_recursive(&parsed)) {
                    Some(schema) => {
                        Form { format: Some(OutputFormat::JsonSchema { schema }), instruction: None }
                    }
                    None => Form { format: None, instruction: Some(as_instruction(schema.get())) },
                }
            }
            TextFormat::Text | TextFormat::Other { .. } => Form::default(),
        }
    }
}

fn as_instruction(schema: &str) -> String {
    format!(
        "Answer with one JSON value that matches this JSON Schema and nothing else: no code fence, no text \
         around it.\n{schema}"
    )
}

/// The schema in the provider's subset. `None` when the adapted schema would accept other values.
fn adapt(schema: &Value, depth: usize) -> Option<Value> {
    let Value::Object(schema) = schema else { return None };
    if depth > DEPTH_MAX || schema.contains_key("patternProperties") {
        return None;
    }
    if schema.get("additionalProperties").is_some_and(|open| *open != Value::Bool(false)) {
        return None;
    }
    let mut adapted = Map::new();
    let mut notes = Vec::new();
    for (key, value) in schema {
        let value = match key.as_str() {
            key if NAMED.contains(&key) => adapt_named(value, depth)?,
            key if LISTED.contains(&key) => adapt_list(value, depth)?,
            "oneOf" => {
                adapted.insert("anyOf".to_owned(), adapt_list(value, depth)?);
                continue;
            }
            "items" => adapt(value, depth.saturating_add(1))?,
            key if !is_known(key, value) => {
                notes.push(format!("{key}: {value}"));
                continue;
            }
            _ => value.clone(),
        };
        adapted.insert(key.clone(), value);
    }
    let is_object = schema.contains_key("properties") || schema.get("type").is_some_and(|t| t == "object");
    if is_object {
        adapted.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    if !notes.is_empty() {
        describe(&mut adapted, &notes.join(", "));
    }
    Some(Value::Object(adapted))
}

fn adapt_named(value: &Value, depth: usize) -> Option<Value> {
    let schemas = value.as_object()?.iter();
    let adapted: Option<Map<String, Value>> =
        schemas.map(|(name, schema)| Some((name.clone(), adapt(schema, depth.saturating_add(1))?))).collect();
    adapted.map(Value::Object)
}

fn adapt_list(value: &Value, depth: usize) -> Option<Value> {
    let schemas = value.as_array()?.iter();
    let adapted: Option<Vec<Value>> = schemas.map(|schema| adapt(schema, depth.saturating_add(1))).collect();
    adapted.map(Value::Array)
}

fn is_known(key: &str, value: &Value) -> bool {
    match key {
        "format" => value.as_str().is_some_and(|format| FORMATS.contains(&format)),
        "minItems" => value.as_u64().is_some_and(|count| count <= 1),
        _ => !UNSUPPORTED.contains(&key),
    }
}

fn describe(schema: &mut Map<String, Value>, note: &str) {
    let description = match schema.get("description").and_then(Value::as_str) {
        Some(text) if !text.is_empty() => format!("{text} ({note})"),
        _ => note.to_owned(),
    };
    schema.insert("description".to_owned(), Value::String(description));
}

/// Whether a definition refers to itself, directly or through others.
fn is_recursive(root: &Value) -> bool {
    Paths { root, open: BTreeSet::new(), closed: BTreeSet::new() }.lead_back(root, 0)
}

/// The search for a recursive definition. Each definition is visited once.
struct Paths<'v> {
    root: &'v Value,
    /// Addresses of the definitions on the current path.
    open: BTreeSet<usize>,
    /// Addresses of the definitions that are not recursive.
    closed: BTreeSet<usize>,
}

impl<'v> Paths<'v> {
    fn lead_back(&mut self, value: &'v Value, depth: usize) -> bool {
        if depth > DEPTH_MAX.saturating_mul(2) {
            return true;
        }
        let depth = depth.saturating_add(1);
        match value {
            Value::Array(items) => items.iter().any(|item| self.lead_back(item, depth)),
            Value::Object(fields) => fields.iter().any(|(key, value)| match (key.as_str(), value.as_str()) {
                ("$ref", Some(reference)) => self.follow(reference, depth),
                // Definitions are followed where they are used.
                ("$defs" | "definitions", _) => false,
                _ => self.lead_back(value, depth),
            }),
            _ => false,
        }
    }

    fn follow(&mut self, reference: &str, depth: usize) -> bool {
        let Some(pointer) = reference.strip_prefix('#') else { return true };
        if pointer.is_empty() {
            return true;
        }
        let Some(target) = self.root.pointer(pointer) else { return false };
        // The address identifies the definition, because a pointer can be written in several ways.
        let address = std::ptr::from_ref(target).addr();
        if self.closed.contains(&address) {
            return false;
        }
        if !self.open.insert(address) {
            return true;
        }
        let found = self.lead_back(target, depth);
        self.open.remove(&address);
        self.closed.insert(address);
        found
    }
}

#[cfg(test)]
mod tests;
