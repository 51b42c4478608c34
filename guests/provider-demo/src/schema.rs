//! Reads JSON Schema: references are resolved, and combined schemas are merged into one.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// The largest number of subschemas merged into one; more than that is a recursion.
const COMBINED_MAX: usize = 64;

/// The type a value must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Object,
    Array,
    String,
    Number,
    Integer,
    Boolean,
    Null,
}

/// Follows the reference of `schema`, merges `allOf` and chooses one branch of `anyOf` or `oneOf`.
/// With `small`, it prefers a branch that ends a recursion.
pub(crate) fn resolve<'a>(schema: &'a Value, root: &'a Value, small: bool) -> Cow<'a, Value> {
    let mut left = COMBINED_MAX;
    resolve_within(schema, root, small, &mut left)
}

fn resolve_within<'a>(schema: &'a Value, root: &'a Value, small: bool, left: &mut usize) -> Cow<'a, Value> {
    let Some(fields) = schema.as_object().filter(|fields| fields.keys().any(|key| is_combination(key)))
    else {
        return Cow::Borrowed(schema);
    };
    let plain = fields.iter().filter(|(key, _)| !is_combination(key));
    let mut merged: Map<String, Value> = plain.map(|(key, value)| (key.clone(), value.clone())).collect();
    for part in parts(fields, root, small) {
        if *left == 0 {
            break;
        }
        *left -= 1;
        if let Value::Object(part) = &*resolve_within(part, root, small, left) {
            merge(&mut merged, part);
        }
    }
    Cow::Owned(Value::Object(merged))
}

fn is_combination(key: &str) -> bool {
    matches!(key, "$ref" | "allOf" | "anyOf" | "oneOf")
}

/// The subschemas that the combining keywords add.
fn parts<'a>(fields: &'a Map<String, Value>, root: &'a Value, small: bool) -> Vec<&'a Value> {
    let list = |key| fields.get(key).and_then(Value::as_array);
    let target = fields.get("$ref").and_then(Value::as_str).and_then(|path| follow(path, root));
    let mut parts: Vec<&Value> = target.into_iter().chain(list("allOf").into_iter().flatten()).collect();
    parts.extend(["anyOf", "oneOf"].iter().filter_map(|key| branch(list(key)?, root, small)));
    parts
}

/// The schema at `#` or `#/a/b`, or with the anchor `#name`. References to other documents are
/// not followed.
fn follow<'a>(path: &str, root: &'a Value) -> Option<&'a Value> {
    let pointer = path.strip_prefix('#')?;
    if pointer.is_empty() || pointer.starts_with('/') {
        return root.pointer(pointer);
    }
    let definitions = ["$defs", "definitions"].iter().filter_map(|key| root.get(key)?.as_object());
    definitions
        .flat_map(Map::values)
        .find(|schema| schema.get("$anchor").and_then(Value::as_str) == Some(pointer))
}

fn branch<'a>(branches: &'a [Value], root: &'a Value, small: bool) -> Option<&'a Value> {
    let target = |branch: &'a Value| {
        let target = branch.get("$ref").and_then(Value::as_str).and_then(|path| follow(path, root));
        target.unwrap_or(branch)
    };
    let kind_of = |branch: &'a Value| kind(target(branch), small);
    let wanted = |branch: &&'a Value| {
        let is_small = !matches!(kind_of(branch), Kind::Object | Kind::Array);
        if small { is_small } else { kind_of(branch) != Kind::Null }
    };
    branches.iter().find(wanted).or_else(|| branches.first())
}

/// Merges `part` into a schema: properties and required names are added, other keywords replaced.
fn merge(into: &mut Map<String, Value>, part: &Map<String, Value>) {
    for (key, value) in part {
        match (into.get_mut(key), value) {
            (Some(Value::Object(old)), Value::Object(new)) if key == "properties" => {
                old.extend(new.iter().map(|(name, schema)| (name.clone(), schema.clone())));
            }
            (Some(Value::Array(old)), Value::Array(new)) if key == "required" => {
                old.extend(new.iter().cloned());
            }
            _ => {
                into.insert(key.clone(), value.clone());
            }
        }
    }
}

/// The type that a resolved schema asks for. Without `small`, null is chosen only if no other type
/// is allowed; with `small`, whenever it is allowed.
pub(crate) fn kind(schema: &Value, small: bool) -> Kind {
    let named = |name: &Value| match name.as_str() {
        Some("object") => Some(Kind::Object),
        Some("array") => Some(Kind::Array),
        Some("string") => Some(Kind::String),
        Some("number") => Some(Kind::Number),
        Some("integer") => Some(Kind::Integer),
        Some("boolean") => Some(Kind::Boolean),
        Some("null") => Some(Kind::Null),
        _ => None,
    };
    let stated = match schema.get("type") {
        Some(Value::Array(names)) => {
            let mut kinds = names.iter().filter_map(named);
            let wanted = kinds.clone().find(|kind| (*kind == Kind::Null) == small);
            wanted.or_else(|| kinds.next())
        }
        Some(name) => named(name),
        None => None,
    };
    stated.unwrap_or_else(|| {
        let has = |key| schema.get(key).is_some();
        if has("properties") || has("required") || has("additionalProperties") {
            Kind::Object
        } else if has("items") || has("prefixItems") || has("minItems") {
            Kind::Array
        } else if has("minimum") || has("maximum") || has("multipleOf") {
            Kind::Number
        } else {
            Kind::String
        }
    })
}
