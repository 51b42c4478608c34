//! Holds JSON documents against schemas of an OpenAPI document. It knows the words of JSON Schema
//! that the documents of this program use, and refuses others, so that none is skipped.

use serde_json::Value;

/// Checks `value` against `schema`, whose references are looked up in `document`. Panics with the
/// place of the first difference.
pub fn assert_fits(document: &Value, schema: &Value, value: &Value, at: &str) {
    let schema = match schema["$ref"].as_str() {
        Some(reference) => {
            let found = document.pointer(reference.strip_prefix('#').unwrap());
            return assert_fits(document, found.unwrap_or_else(|| panic!("{at}: no {reference}")), value, at);
        }
        None => schema,
    };
    let members = schema.as_object().unwrap_or_else(|| panic!("{at}: no schema"));
    for (word, rule) in members {
        match word.as_str() {
            "type" => assert!(is_of_type(rule, value), "{at}: {value} is not {rule}"),
            "enum" => assert!(rule.as_array().unwrap().contains(value), "{at}: {value} is not one of {rule}"),
            "required" => {
                for name in rule.as_array().unwrap() {
                    let name = name.as_str().unwrap();
                    assert!(
                        value.as_object().is_none_or(|it| it.contains_key(name)),
                        "{at}: no {name} in {value}"
                    );
                }
            }
            "properties" | "additionalProperties" | "description" | "maxItems" => {}
            "items" => {
                for (index, value) in value.as_array().into_iter().flatten().enumerate() {
                    assert_fits(document, rule, value, &format!("{at}[{index}]"));
                }
            }
            other => panic!("{at}: unknown word {other}"),
        }
    }
    for (name, value) in value.as_object().into_iter().flatten() {
        let at = format!("{at}.{name}");
        match (schema["properties"].get(name), schema.get("additionalProperties")) {
            (Some(schema), _) => assert_fits(document, schema, value, &at),
            (None, Some(Value::Bool(false))) => panic!("{at} is not described"),
            (None, Some(schema)) => assert_fits(document, schema, value, &at),
            (None, None) => {}
        }
    }
}

fn is_of_type(rule: &Value, value: &Value) -> bool {
    match rule {
        Value::Array(rules) => rules.iter().any(|rule| is_of_type(rule, value)),
        rule => match rule.as_str().unwrap() {
            "string" => value.is_string(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "boolean" => value.is_boolean(),
            "array" => value.is_array(),
            "object" => value.is_object(),
            "null" => value.is_null(),
            other => panic!("unknown type {other}"),
        },
    }
}
