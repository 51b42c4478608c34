//! The request bodies and their parts as JSON Schema, made of the tables that requests are checked
//! against.

use super::bounds::{ITEMS_MAX, TOOLS_MAX};
use super::embeddings::{INPUTS_MAX, TOKEN};
use super::plugins::PLUGINS_MAX;
use super::rule::{NAME, OPEN_OBJECT, Shape, TEXT, ValueRule, or_null};
use super::shapes::body::{BODY, REASONING, STEPS, TRACE};
use super::shapes::embeddings;
use super::shapes::items::{ITEMS, MESSAGE, SERVER_ITEM, SERVER_ITEMS};
use super::shapes::parts::{ASSISTANT_PARTS, INPUT_PARTS};
use super::shapes::plugins::{EXTRA_PLUGIN, PLUGINS};
use super::shapes::provider::PROVIDER;
use super::shapes::server_tools::SERVER_TOOLS;
use super::shapes::tools::TOOLS;
use cofferdam_protocol::ToolPrefix;
use serde_json::{Map, Value, json};

/// The schemas of `ResponsesRequest`, `EmbeddingsRequest` and the parts that they refer to as
/// `#/components/schemas/NAME`. `null` is taken where a member may be absent. Members that a schema
/// does not name are ignored by this host.
#[must_use]
pub fn request_schemas() -> Map<String, Value> {
    let whole = [
        ("ProviderPreferences", PROVIDER.schema()),
        ("Reasoning", REASONING.schema()),
        ("Trace", TRACE.schema()),
        ("InputPart", INPUT_PARTS.schema()),
        ("AssistantPart", ASSISTANT_PARTS.schema()),
        ("InputMessage", message()),
        ("InputItem", item()),
        ("Tool", tool()),
        ("ToolChoice", tool_choice()),
        ("RequestPlugin", plugin()),
        ("EmbeddingPart", embeddings::PARTS.schema()),
        ("EmbeddingsInput", embeddings_input()),
        ("ResponsesRequest", responses_request()),
        ("EmbeddingsRequest", embeddings_request()),
    ];
    let referring = whole.iter().map(|(name, schema)| ((*name).to_owned(), referring(schema, &whole, true)));
    referring.collect()
}

/// A copy of the schema in which the parts that are components themselves are references.
fn referring(schema: &Value, components: &[(&str, Value)], is_root: bool) -> Value {
    let same = components.iter().find(|(_, component)| !is_root && component == schema);
    match (same, schema) {
        (Some((name, _)), _) => json!({"$ref": format!("#/components/schemas/{name}")}),
        (None, Value::Object(members)) => {
            let copied = members.iter().map(|(name, it)| (name.clone(), referring(it, components, false)));
            Value::Object(copied.collect())
        }
        (None, Value::Array(parts)) => parts.iter().map(|it| referring(it, components, false)).collect(),
        (None, schema) => schema.clone(),
    }
}

fn responses_request() -> Value {
    let input =
        json!([{"type": "string"}, {"type": "array", "items": item(), "minItems": 1, "maxItems": ITEMS_MAX}]);
    with(
        BODY.schema(),
        [
            ("input", or_null(json!({"anyOf": input}))),
            ("tools", or_null(json!({"type": "array", "items": tool(), "maxItems": TOOLS_MAX}))),
            ("tool_choice", or_null(tool_choice())),
            ("max_tool_calls", or_null(STEPS.schema())),
            ("plugins", or_null(json!({"type": "array", "items": plugin(), "maxItems": PLUGINS_MAX}))),
        ],
    )
}

fn embeddings_request() -> Value {
    with(embeddings::BODY.schema(), [("input", embeddings_input())])
}

/// A text, a list of tokens, an object with content, or a list with one of these for each vector.
fn embeddings_input() -> Value {
    let tokens = json!({"type": "array", "items": TOKEN.schema(), "minItems": 1});
    let parts =
        json!({"type": "array", "items": embeddings::PARTS.schema(), "minItems": 1, "maxItems": INPUTS_MAX});
    let object = json!({"type": "object", "properties": {"content": parts}, "required": ["content"]});
    let one = json!({"anyOf": [NAME.schema(), tokens, object]});
    let several = json!({"type": "array", "items": one, "minItems": 1, "maxItems": INPUTS_MAX});
    json!({"anyOf": [NAME.schema(), tokens, object, several]})
}

/// A message. In those of users and systems the parts are [`INPUT_PARTS`].
fn message() -> Value {
    let parts = json!({"type": "array", "items": ASSISTANT_PARTS.schema()});
    let typed = or_null(json!({"type": "string", "enum": ["message"]}));
    let content = or_null(json!({"anyOf": [TEXT.schema(), parts]}));
    let mut schema = with(MESSAGE.schema(), [("type", typed), ("content", content)]);
    if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
        required.push("content".into());
    }
    schema
}

fn item() -> Value {
    let reference = json!({
        "type": "object",
        "properties": {
            "type": or_null(json!({"type": "string", "enum": ["item_reference"]})),
            "id": {"type": "string", "pattern": "^rs_"},
        },
        "required": ["id"],
        "description": "A reference to reasoning of an earlier answer. It is skipped, because this host stores none.",
    });
    let known: Vec<Value> =
        SERVER_ITEMS.iter().map(|(name, shape)| shape.tagged_schema("type", &prefixed(name))).collect();
    let others = other_server_type(SERVER_ITEMS.iter().map(|(name, _)| *name));
    let other = with(SERVER_ITEM.schema(), [("type", others)]);
    let items = ITEMS.variant_schemas(|_| true).into_iter().chain(known);
    let all: Vec<Value> =
        [message(), reference].into_iter().chain(items).chain([requiring(other, "type")]).collect();
    json!({"anyOf": all})
}

fn tool() -> Value {
    // A search that the client does not run is a server tool, whose members are `parameters` alone.
    let search = json!({
        "type": "object",
        "properties": {"type": {"type": "string", "enum": ["tool_search"]}},
        "required": ["type"],
    });
    let tools = TOOLS.variant_schemas(|name| name != "tool_search").into_iter().chain([search]);
    let known = SERVER_TOOLS.iter().map(|(name, shape)| {
        let parameters = or_null(shape.schema());
        let entry = Shape::of(&[]).tagged_schema("type", &prefixed(name));
        with(entry, [("parameters", parameters)])
    });
    let others = other_server_type(SERVER_TOOLS.iter().map(|(name, _)| *name));
    let other =
        with(json!({"type": "object"}), [("type", others), ("parameters", or_null(OPEN_OBJECT.schema()))]);
    let all: Vec<Value> = tools.chain(known).chain([requiring(other, "type")]).collect();
    json!({"anyOf": all})
}

fn tool_choice() -> Value {
    let named = |word: &str, member: &str| {
        json!({
            "type": "object",
            "properties": {"type": {"type": "string", "enum": [word]}, member: {"type": "string"}},
            "required": ["type", member],
        })
    };
    let allowed = json!({
        "type": "object",
        "properties": {
            "type": {"type": "string", "enum": ["allowed_tools"]},
            "mode": {"type": "string", "enum": ["auto", "required"]},
            "tools": {
                "type": "array",
                "items": {"type": "object", "properties": {"type": {"type": "string"}}, "required": ["type"]},
                "minItems": 1,
                "maxItems": TOOLS_MAX,
            },
        },
        "required": ["type", "mode", "tools"],
    });
    let unnamed = |name: &&str| !["function", "custom", "mcp"].contains(name);
    let types: Vec<&str> = TOOLS.variants.iter().map(|(name, _)| *name).filter(unnamed).collect();
    let by_type = json!({
        "type": "object",
        "properties": {"type": {"anyOf": [{"type": "string", "enum": types}, server_type("")]}},
        "required": ["type"],
    });
    json!({"anyOf": [
        ValueRule::OneOf(&["auto", "none", "required"]).schema(),
        named("function", "name"),
        named("custom", "name"),
        named("mcp", "server_label"),
        allowed,
        by_type,
    ]})
}

fn plugin() -> Value {
    let known: Vec<&str> = PLUGINS.variants.iter().map(|(id, _)| *id).collect();
    let id =
        json!({"type": "string", "not": {"enum": known}, "description": "an installed hook or model router"});
    let extra = requiring(with(EXTRA_PLUGIN.schema(), [("id", id)]), "id");
    let all: Vec<Value> = PLUGINS.variant_schemas(|_| true).into_iter().chain([extra]).collect();
    json!({"oneOf": all})
}

/// The types of a server tool, which has two prefixes.
fn prefixed(name: &str) -> [String; 2] {
    [ToolPrefix::Service, ToolPrefix::OpenRouter].map(|prefix| format!("{}{name}", prefix.as_str()))
}

/// The types of the server tools that are not `known`.
fn other_server_type<'a>(known: impl Iterator<Item = &'a str>) -> Value {
    let known: Vec<&str> = known.collect();
    server_type(&format!("(?!({})$)", known.join("|")))
}

fn server_type(except: &str) -> Value {
    let [service, other] = prefixed("");
    json!({"type": "string", "pattern": format!("^({service}|{other}){except}.")})
}

fn with<const N: usize>(mut schema: Value, added: [(&str, Value); N]) -> Value {
    if let Some(members) = schema.as_object_mut() {
        let properties = members.entry("properties").or_insert_with(|| json!({}));
        if let Some(properties) = properties.as_object_mut() {
            properties.extend(added.map(|(name, rule)| (name.to_owned(), rule)));
        }
    }
    schema
}

fn requiring(mut schema: Value, name: &str) -> Value {
    if let Some(members) = schema.as_object_mut() {
        members.insert("required".to_owned(), json!([name]));
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::request_schemas;
    use serde_json::{Value, json};

    fn references(schema: &Value, found: &mut Vec<String>) {
        match schema {
            Value::Object(members) => {
                found.extend(members.get("$ref").and_then(Value::as_str).map(str::to_owned));
                members.values().for_each(|part| references(part, found));
            }
            Value::Array(parts) => parts.iter().for_each(|part| references(part, found)),
            _ => {}
        }
    }

    #[test]
    fn every_member_of_a_body_has_a_rule_and_every_reference_a_schema() {
        let schemas = request_schemas();
        for body in ["ResponsesRequest", "EmbeddingsRequest"] {
            for (name, rule) in schemas[body]["properties"].as_object().unwrap() {
                assert_ne!(rule, &json!({}), "{body}.{name}");
            }
        }
        let mut found = Vec::new();
        schemas.values().for_each(|schema| references(schema, &mut found));
        assert!(found.len() > 10, "{found:?}");
        for reference in found {
            let name = reference.strip_prefix("#/components/schemas/").unwrap();
            assert!(schemas.contains_key(name), "{reference}");
        }
    }
}
