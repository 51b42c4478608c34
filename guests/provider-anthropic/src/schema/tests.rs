use cofferdam_guest_kit::TextFormat;
use serde_json::{Value, json};

use super::{Form, JSON_ONLY, OutputFormat};

fn form(schema: &Value) -> Form {
    let format = json!({"type":"json_schema","name":"answer","schema":schema}).to_string();
    let format: TextFormat<'_> = serde_json::from_str(&format).expect("a format");
    Form::read(&format)
}

fn adapted(schema: &Value) -> Value {
    match form(schema).format {
        Some(OutputFormat::JsonSchema { schema }) => schema,
        None => panic!("not expressible: {schema}"),
    }
}

#[test]
fn objects_are_closed_at_every_level() {
    let schema = json!({
        "type":"object",
        "properties":{"a":{"type":"array","items":{"type":"object","properties":{"b":{"$ref":"#/$defs/c"}}}}},
        "$defs":{"c":{"oneOf":[{"type":"object","properties":{}},{"type":"null"}]}}
    });
    let expected = json!({
        "type":"object",
        "properties":{"a":{"type":"array","items":{
            "type":"object","properties":{"b":{"$ref":"#/$defs/c"}},"additionalProperties":false}}},
        "$defs":{"c":{"anyOf":[{"type":"object","properties":{},"additionalProperties":false},{"type":"null"}]}},
        "additionalProperties":false
    });
    assert_eq!(adapted(&schema), expected);
}

#[test]
fn limits_the_provider_lacks_move_into_the_description() {
    let schema = json!({"type":"object","properties":{
        "n":{"type":"integer","minimum":1,"maximum":5,"description":"How many"},
        "s":{"type":"string","maxLength":3,"format":"phone"},
        "d":{"type":"string","format":"date"},
        "l":{"type":"array","items":{"type":"string"},"minItems":2}
    },"required":["n"]});
    let expected = json!({"type":"object","properties":{
        "n":{"type":"integer","description":"How many (minimum: 1, maximum: 5)"},
        "s":{"type":"string","description":"maxLength: 3, format: \"phone\""},
        "d":{"type":"string","format":"date"},
        "l":{"type":"array","items":{"type":"string"},"description":"minItems: 2"}
    },"required":["n"],"additionalProperties":false});
    assert_eq!(adapted(&schema), expected);
}

#[test]
fn unenforceable_schemas_go_into_the_system_prompt() {
    let mut deep = json!({"type":"string"});
    for _ in 0..100 {
        deep = json!({"type":"array","items":deep});
    }
    let cases = [
        json!({"type":"object","additionalProperties":{"type":"string"}}),
        json!({"type":"object","properties":{"m":{"type":"object","additionalProperties":true}}}),
        json!({"type":"object","properties":{"next":{"$ref":"#"}}}),
        json!({"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},
               "$defs":{"a":{"anyOf":[{"$ref":"#/$defs/b"}]},"b":{"type":"array","items":{"$ref":"#/$defs/a"}}}}),
        json!({"type":"object","properties":{"a":true}}),
        deep,
    ];
    for schema in cases {
        let form = form(&schema);
        assert_eq!(form.format, None, "{schema}");
        assert!(form.instruction.is_some_and(|text| text.contains(&schema.to_string())), "{schema}");
    }
    let object = Form::read(&TextFormat::JsonObject);
    assert_eq!(object, Form { format: None, instruction: Some(JSON_ONLY.to_owned()) });
    assert_eq!(Form::read(&TextFormat::Text), Form::default());
}
