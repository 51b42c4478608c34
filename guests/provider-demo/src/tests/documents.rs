//! Tests of documents made for schemas, checked by a small validator.

use serde_json::{Value, json};

use super::{answer, calls, request};

/// Whether `value` is valid. It checks only the keywords that these tests use.
fn is_valid(value: &Value, schema: &Value, root: &Value) -> bool {
    let Some(fields) = schema.as_object() else { return schema != &json!(false) };
    fields.iter().all(|(keyword, rule)| keeps(value, keyword, rule, schema, root))
}

fn keeps(value: &Value, keyword: &str, rule: &Value, schema: &Value, root: &Value) -> bool {
    let number = || value.as_f64().zip(rule.as_f64());
    let each = |all: &dyn Fn(&Value) -> bool| value.as_array().is_none_or(|items| items.iter().all(all));
    let length = |text: &str| text.chars().count() as u64;
    let valid = |schema: &Value| is_valid(value, schema, root);
    match keyword {
        "$ref" => valid(root.pointer(rule.as_str().unwrap().trim_start_matches('#')).unwrap()),
        "type" => match rule {
            Value::Array(names) => names.iter().any(|name| has_type(value, name)),
            name => has_type(value, name),
        },
        "const" => value == rule,
        "enum" => rule.as_array().unwrap().contains(value),
        "anyOf" => rule.as_array().unwrap().iter().any(valid),
        "oneOf" => rule.as_array().unwrap().iter().filter(|schema| valid(schema)).count() == 1,
        "allOf" => rule.as_array().unwrap().iter().all(valid),
        "minimum" => number().is_none_or(|(value, limit)| value >= limit),
        "maximum" => number().is_none_or(|(value, limit)| value <= limit),
        "exclusiveMinimum" => number().is_none_or(|(value, limit)| value > limit),
        "exclusiveMaximum" => number().is_none_or(|(value, limit)| value < limit),
        "multipleOf" => number().is_none_or(|(value, step)| (value / step).fract() == 0.0),
        "minLength" => value.as_str().is_none_or(|text| length(text) >= rule.as_u64().unwrap()),
        "maxLength" => value.as_str().is_none_or(|text| length(text) <= rule.as_u64().unwrap()),
        "minItems" => value.as_array().is_none_or(|items| items.len() as u64 >= rule.as_u64().unwrap()),
        "maxItems" => value.as_array().is_none_or(|items| items.len() as u64 <= rule.as_u64().unwrap()),
        "uniqueItems" => {
            value.as_array().is_none_or(|items| (1..items.len()).all(|i| !items[..i].contains(&items[i])))
        }
        "items" => each(&|item| is_valid(item, rule, root)),
        "required" => value.as_object().is_none_or(|fields| {
            rule.as_array().unwrap().iter().all(|name| fields.contains_key(name.as_str().unwrap()))
        }),
        "properties" => value.as_object().is_none_or(|fields| {
            fields
                .iter()
                .all(|(name, field)| rule.get(name).is_none_or(|schema| is_valid(field, schema, root)))
        }),
        "additionalProperties" if rule == &json!(false) => value
            .as_object()
            .is_none_or(|fields| fields.keys().all(|name| schema["properties"].get(name).is_some())),
        _ => true,
    }
}

fn has_type(value: &Value, name: &Value) -> bool {
    match name.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("{other}"),
    }
}

fn document(text: &str, schema: &Value) -> Value {
    let format = json!({ "type": "json_schema", "name": "n", "schema": schema, "strict": true });
    let answer = answer(&request(text, json!({ "text": { "format": format } })));
    let document = serde_json::from_str(&answer.text).unwrap_or_else(|_| panic!("{}", answer.text));
    assert!(is_valid(&document, schema, schema), "{document} for {schema}");
    document
}

#[test]
fn json_objects_are_objects() {
    let answer = answer(&request("Tell me", json!({ "text": { "format": { "type": "json_object" } } })));
    let document: Value = serde_json::from_str(&answer.text).unwrap();
    assert_eq!((&document["message"], answer.finish.as_str()), (&json!("Tell me"), "stop"));
}

#[test]
fn documents_use_values_of_the_message() {
    let schema = json!({
        "type": "object", "additionalProperties": false, "required": ["name", "age", "mood", "member"],
        "properties": {
            "name": { "type": "string" }, "age": { "type": "integer" },
            "mood": { "type": "string", "enum": ["sad", "happy"] }, "member": { "type": "boolean" } } });
    let document = document("This is Ada Lovelace, aged 36, happy but not a member", &schema);
    assert_eq!(document, json!({ "name": "Ada Lovelace", "age": 36, "mood": "happy", "member": false }));
}

#[test]
fn documents_are_valid_for_all_kinds_of_schemas() {
    let schemas = [
        json!({ "type": "string", "minLength": 30, "maxLength": 40 }),
        json!({ "type": "string", "maxLength": 3 }),
        json!({ "type": "integer", "minimum": 7, "maximum": 9 }),
        json!({ "type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1 }),
        json!({ "type": "integer", "multipleOf": 25, "minimum": 30 }),
        json!({ "type": "integer", "maximum": -5 }),
        json!({ "type": ["null", "string"] }),
        json!({ "type": "null" }),
        json!({ "const": { "a": [1] } }),
        json!({ "enum": [3, "x", null] }),
        json!({ "type": "array", "items": { "type": "string" }, "minItems": 3, "uniqueItems": true }),
        json!({ "type": "array", "items": { "enum": ["a", "b", "c"] }, "minItems": 2, "uniqueItems": true }),
        json!({ "type": "array", "items": { "type": "integer" }, "maxItems": 2 }),
        json!({ "type": "array", "items": { "type": "object", "required": ["k"], "properties": { "k": { "type": "boolean" } } }, "minItems": 2 }),
        json!({ "anyOf": [{ "type": "null" }, { "type": "object", "required": ["x"], "properties": { "x": { "const": 1 } } }] }),
        json!({ "oneOf": [{ "type": "string" }, { "type": "integer" }] }),
        json!({ "allOf": [
            { "type": "object", "required": ["a"], "properties": { "a": { "type": "string" } } },
            { "required": ["b"], "properties": { "b": { "type": "integer" } } }] }),
        json!({ "$ref": "#/$defs/p", "$defs": { "p": { "type": "object", "required": ["q"], "properties": { "q": { "$ref": "#/$defs/r" } } }, "r": { "type": "array", "items": { "type": "number" }, "minItems": 1 } } }),
        json!({ "allOf": [{ "$ref": "#/definitions/a" }, { "$ref": "#/definitions/b" }], "definitions": {
            "a": { "type": "object", "required": ["a"], "properties": { "a": { "type": "string" } } },
            "b": { "type": "object", "required": ["b"], "properties": { "b": { "type": "boolean" } } } } }),
        json!({ "type": "object", "properties": { "name": { "type": "string" }, "tags": { "type": "array", "items": { "type": "string" } } } }),
        json!({ "type": "object", "required": ["undescribed"] }),
        json!({ "type": "object", "required": ["d", "t", "e", "u"], "properties": {
            "d": { "type": "string", "format": "date" }, "t": { "type": "string", "format": "date-time" },
            "e": { "type": "string", "format": "email" }, "u": { "type": "string", "format": "uuid" } } }),
        json!({}),
    ];
    for text in ["Hello", "Rate \"Dune\" 5 of 10 for Ada and Bob, not 3.7", ""] {
        for schema in &schemas {
            document(text, schema);
        }
    }
}

#[test]
fn recursive_schemas_end() {
    let tree = json!({ "$ref": "#/$defs/node", "$defs": { "node": {
        "type": "object", "required": ["value", "next", "children"], "additionalProperties": false,
        "properties": {
            "value": { "type": "integer" },
            "next": { "anyOf": [{ "$ref": "#/$defs/node" }, { "type": "null" }] },
            "children": { "type": "array", "items": { "$ref": "#/$defs/node" } } } } } });
    document("grow a tree of 3", &tree);
    for circle in [
        json!({ "$ref": "#" }),
        json!({ "allOf": [{ "$ref": "#" }, { "$ref": "#" }] }),
        json!({ "type": "object", "required": ["a"], "properties": { "a": { "$ref": "#" } } }),
        json!({ "type": "array", "minItems": 9, "items": { "$ref": "#" } }),
    ] {
        let format = json!({ "type": "json_schema", "name": "n", "schema": circle });
        let answer = answer(&request("go", json!({ "text": { "format": format } })));
        assert!(serde_json::from_str::<Value>(&answer.text).is_ok());
    }
}

#[test]
fn optional_arguments_need_a_hint() {
    let datetime = |required: Option<Value>| {
        let mut parameters = json!({ "type": "object", "properties": { "timezone": { "type": "string" } } });
        if let Some(required) = required {
            parameters["required"] = required;
        }
        json!({ "tools": [{ "type": "function", "name": "datetime", "description": "Current date and time", "parameters": parameters }] })
    };
    let cases = [
        ("What time is it?", None, "{}"),
        ("What time is it in Europe/Berlin?", None, r#"{"timezone":"Europe/Berlin"}"#),
        ("What time is it?", Some(json!(["timezone"])), r#"{"timezone":"UTC"}"#),
    ];
    for (text, required, expected) in cases {
        assert_eq!(calls(text, datetime(required))[0].1, expected, "{text}");
    }
    let nothing = json!({ "tools": [{ "type": "function", "name": "ping" }] });
    assert_eq!(calls("ping it", nothing)[0].1, "{}");
}
