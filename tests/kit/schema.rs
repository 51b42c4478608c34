//! Holds JSON documents against schemas of an OpenAPI document. It knows the words of JSON Schema
//! that the documents of this program use, and refuses others, so that none is skipped.

use serde_json::Value;

/// Words that add nothing to what is checked here: texts for people, and forms of texts.
const UNCHECKED: [&str; 10] = [
    "additionalProperties",
    "contentEncoding",
    "contentMediaType",
    "description",
    "format",
    "maxLength",
    "maxProperties",
    "minLength",
    "properties",
    "propertyNames",
];

/// Checks `value` against `schema`, whose references are looked up in `document`. Panics with the
/// place of the first difference.
pub fn assert_fits(document: &Value, schema: &Value, value: &Value, at: &str) {
    fits(document, schema, value, at).unwrap_or_else(|difference| panic!("{difference}"));
}

/// The place of the first difference between `value` and `schema`.
pub fn fits(document: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let found = document.pointer(reference.strip_prefix('#').unwrap());
        return fits(document, found.unwrap_or_else(|| panic!("{at}: no {reference}")), value, at);
    }
    let members = schema.as_object().unwrap_or_else(|| panic!("{at}: no schema"));
    for (word, rule) in members {
        let is_good = match word.as_str() {
            "type" => is_of_type(rule, value),
            "enum" => rule.as_array().unwrap().contains(value),
            "const" => rule == value,
            "not" => fits(document, rule, value, at).is_err(),
            "minimum" => value.as_f64().is_none_or(|number| number >= rule.as_f64().unwrap()),
            "maximum" => value.as_f64().is_none_or(|number| number <= rule.as_f64().unwrap()),
            "minItems" => value.as_array().is_none_or(|it| it.len() as u64 >= rule.as_u64().unwrap()),
            "maxItems" => value.as_array().is_none_or(|it| it.len() as u64 <= rule.as_u64().unwrap()),
            "uniqueItems" => true,
            "pattern" => value.as_str().is_none_or(|text| {
                let pattern = fancy_regex::Regex::new(rule.as_str().unwrap()).unwrap();
                pattern.is_match(text).unwrap()
            }),
            "required" => {
                let names = rule.as_array().unwrap().iter().map(|name| name.as_str().unwrap());
                value.as_object().is_none_or(|it| names.into_iter().all(|name| it.contains_key(name)))
            }
            "items" => {
                for (index, value) in value.as_array().into_iter().flatten().enumerate() {
                    fits(document, rule, value, &format!("{at}[{index}]"))?;
                }
                true
            }
            "allOf" => {
                rule.as_array().unwrap().iter().try_for_each(|rule| fits(document, rule, value, at))?;
                true
            }
            "anyOf" | "oneOf" => {
                let tried = rule.as_array().unwrap().iter().map(|rule| fits(document, rule, value, at));
                let (good, bad): (Vec<_>, Vec<_>) = tried.partition(Result::is_ok);
                if good.is_empty() {
                    let differences: Vec<String> = bad.into_iter().filter_map(Result::err).collect();
                    return Err(format!("{at}: none of\n  {}", differences.join("\n  ")));
                }
                word == "anyOf" || good.len() == 1
            }
            other => {
                assert!(UNCHECKED.contains(&other), "{at}: unknown word {other}");
                true
            }
        };
        if !is_good {
            return Err(format!("{at}: {value} does not fit {word} {rule}"));
        }
    }
    for (name, value) in value.as_object().into_iter().flatten() {
        let at = format!("{at}.{name}");
        match (schema["properties"].get(name), schema.get("additionalProperties")) {
            (Some(schema), _) => fits(document, schema, value, &at)?,
            (None, Some(Value::Bool(false))) => return Err(format!("{at} is not described")),
            (None, Some(schema)) => fits(document, schema, value, &at)?,
            (None, None) => {}
        }
    }
    Ok(())
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
