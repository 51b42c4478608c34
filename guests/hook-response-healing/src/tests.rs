use proptest::prelude::{Just, Strategy, any, proptest};
use proptest::prop_oneof;
use serde_json::{Value, json};

use super::healed;
use super::repair::repaired;
use super::wanted::Wanted;

fn repair(text: &str) -> Option<Value> {
    repaired(text, Wanted::Object).map(|json| serde_json::from_str(&json).unwrap())
}

#[test]
fn common_mistakes_of_models_are_repaired() {
    let expected = json!({ "a": 1, "b": ["x", "y"] });
    let cases = [
        "```json\n{\"a\": 1, \"b\": [\"x\", \"y\"]}\n```",
        "```\n{\"a\": 1, \"b\": [\"x\", \"y\"]}",
        "Here you are [1]:\n{\"a\": 1, \"b\": [\"x\", \"y\"]}\nAnything {else}?",
        "As ordered:\n```json\n{\"a\": 1, \"b\": [\"x\", \"y\"],}\n```\nBye.",
        "{\"a\": 1, \"b\": [\"x\", \"y\",],}",
        "{\"a\": 1, \"b\": [\"x\", \"y\"",
        "{\"a\": 1, \"b\": [\"x\", \"y",
        "{\"a\": 1, \"b\": [\"x\", \"y\"}",
        "{\"a\": 1, \"b\": [\"x\", \"y\"]]}",
        "{'a': 1, 'b': ['x', 'y']}",
        "{a: 1, b: [“x”, `y`]}",
        "{\"a\": 1 \"b\": [\"x\" , , \"y\"]}",
        "{\"a\": +1, // one\n \"b\": [\"x\", /* and */ \"y\", ...]}",
        "```json\n{\"a\": 1, \"b\": [\"x\", \"y",
        "{\"a\": 1.,\n\"b\": [\"x\"\n\"y\"]}",
    ];
    for text in cases {
        assert_eq!(repair(text).as_ref(), Some(&expected), "{text}");
    }
}

#[test]
fn values_are_repaired() {
    let cases = [
        (
            "{\"a\": True, \"b\": None, \"c\": undefined, \"d\": fal",
            json!({ "a": true, "b": null, "c": null, "d": false }),
        ),
        ("{\"a\": \"say \"hi\" now\"}", json!({ "a": "say \"hi\" now" })),
        ("{\"a\": \"two\nlines\t\"}", json!({ "a": "two\nlines\t" })),
        ("{'a': 'it\\'s \"5\\\"'}", json!({ "a": "it's \"5\"" })),
        ("{\"a\": \"\\d \\u00e4 \\u12", json!({ "a": "d ä 12" })),
        (
            "{\"a\": .5, \"b\": 1_000, \"c\": 2026-11-21, \"d\": 1e}",
            json!({ "a": 0.5, "b": 1000, "c": "2026-11-21", "d": 1 }),
        ),
        ("{\"a\":, \"b\":", json!({ "a": null, "b": null })),
        ("{\"a\": {\"b\": [{\"c\": 1}, {\"d", json!({ "a": { "b": [{ "c": 1 }, {}] } })),
        ("{\"a\": 1, \"key without", json!({ "a": 1 })),
        ("{\"a\": -", json!({ "a": null })),
        ("{\"a\": 1, \"b\": [2, -", json!({ "a": 1, "b": [2] })),
    ];
    for (text, expected) in cases {
        assert_eq!(repair(text), Some(expected), "{text}");
    }
}

#[test]
fn valid_json_and_plain_prose_pass() {
    let prose =
        ["", "I cannot do that.", "I cannot {do} that", "see [1] and [2]", "{\"a\" is broken} here", "}{"];
    let valid = ["{}", " {\"a\": [1]} ", "[1]", "\"text\"", "null"];
    for text in prose.into_iter().chain(valid) {
        assert_eq!(repaired(text, Wanted::Object), None, "{text}");
    }
    assert_eq!(repaired("so: [1, 2,]", Wanted::Array).as_deref(), Some("[1,2]"));
    assert_eq!(repaired("so: {\"a\":1} [1, 2,]", Wanted::Array).as_deref(), Some("[1,2]"));
}

#[test]
fn a_fence_inside_of_an_answer_is_text() {
    let answer = r#"{"answer": "Use:\n```js\nconst x = {};\n```", "score": 5,}"#;
    let expected = json!({ "answer": "Use:\n```js\nconst x = {};\n```", "score": 5 });
    assert_eq!(repair(answer), Some(expected.clone()));
    let fenced = format!("As ordered [1]:\n```json\n{answer}\n```\nBye.");
    assert_eq!(repair(&fenced), Some(expected));
    let array = "[\"a\", \"```\\n[1]\\n```\",]";
    assert_eq!(repaired(array, Wanted::Array).as_deref(), Some("[\"a\",\"```\\n[1]\\n```\"]"));
    let behind = "I cannot {do} it, but:\n```json\n{\"a\": 1}\n```";
    assert_eq!(repair(behind), Some(json!({ "a": 1 })));
}

#[test]
fn empty_brackets_are_an_answer_where_a_fence_holds_nothing_else() {
    assert_eq!(repair("```json\n{}\n```"), Some(json!({})));
    assert_eq!(repaired("So:\n```\n[]", Wanted::Array).as_deref(), Some("[]"));
    for text in ["```js\nconst x = {};\n```", "So: {}", "```json\n[{}]\n```"] {
        assert_eq!(repair(text), None, "{text}");
    }
}

#[test]
fn one_of_several_values_is_not_the_answer() {
    for text in [
        "[{\"a\":1},{\"b\":2},]",
        "{\"a\":1}\n{\"b\":2}",
        "{\"a\":1} or {b: 2,}",
        "```json\n{\"a\":1}\n```\nor\n```json\n{\"b\":2}\n```",
        "```json\n{\"a\":1}\n```\nor {\"b\":2}",
        "{\"a\": [1, 2}, \"b\": {\"c\": 3}}",
        "{\"a\": call(), \"b\": {\"c\": 3}}",
    ] {
        assert_eq!(repair(text), None, "{text}");
    }
    assert_eq!(repaired("[1] [2]", Wanted::Array), None);
    assert_eq!(repaired("{\"a\":1} [2]", Wanted::Either), None);
    let one = Some(json!({ "a": 1 }));
    for text in ["{\"a\":1} as in [1] and {x}", "{\"a\":1}}", "[{\"a\":1},]", "see {x}: {\"a\":1} ({y})."] {
        assert_eq!(repair(text), one, "{text}");
    }
}

#[test]
fn a_number_that_is_cut_off_is_not_kept() {
    for (text, expected) in [
        ("{\"total\": 12", json!({ "total": null })),
        ("{\"total\": -1.5e", json!({ "total": null })),
        ("{\"on\": 2026-11-2", json!({ "on": null })),
        ("{\"a\": [12, 34", json!({ "a": [12] })),
        ("{\"total\": 12 ", json!({ "total": 12 })),
        ("```json\n{\"total\": 12\n```", json!({ "total": 12 })),
        ("{\"total\": 12]", json!({ "total": 12 })),
    ] {
        assert_eq!(repair(text), Some(expected), "{text}");
    }
}

#[test]
fn what_parsers_refuse_is_no_repair() {
    for text in [
        r#"{"a": "\ud800"}"#,
        r#"{"a": "\ud800",}"#,
        r#"{"a": "\ud800", "b": {"c": 1}}"#,
        r#"so: {"a": "\udc00\ud800"}"#,
        r#"{"a": 1e999}"#,
        r#"{"a": 1e999, "b": {"c": 1},}"#,
    ] {
        assert_eq!(repair(text), None, "{text}");
    }
    assert_eq!(repair(r#"{"a": "\ud83d\ude00",}"#), Some(json!({ "a": "😀" })));
}

fn request(format: Value) -> Vec<u8> {
    json!({ "model": "m", "text": { "format": format } }).to_string().into_bytes()
}

fn response(text: &str) -> Value {
    let part = json!({ "type": "output_text", "text": text, "annotations": [] });
    json!({ "id": "resp_1", "output": [
        { "type": "reasoning", "content": [{ "type": "reasoning_text", "text": "{a:1}" }] },
        { "type": "message", "content": [{ "type": "refusal", "refusal": "{a:1}" }, part] }],
        "output_text": text, "cost": 0.1 })
}

fn heal(format: Value, text: &str, settings: &str) -> Option<Value> {
    let response = response(text).to_string().into_bytes();
    healed(&request(format), &response, settings.as_bytes())
        .map(|json| serde_json::from_slice(&json).unwrap())
}

#[test]
fn only_the_text_of_the_answer_changes() {
    let object = json!({ "type": "json_object" });
    assert_eq!(heal(object.clone(), "{\"a\": 1,}", "{}"), Some(response("{\"a\":1}")));
    assert_eq!(heal(object, "{\"a\":1}", "{}"), None);
}

#[test]
fn only_json_answers_are_looked_at() {
    let schema = |schema: Value| json!({ "type": "json_schema", "name": "n", "schema": schema });
    let cases = [
        (json!({ "type": "text" }), "{}", false),
        (Value::Null, "{}", false),
        (schema(json!({ "type": "object" })), "{}", true),
        (schema(json!({ "anyOf": [] })), "{}", true),
        (schema(json!({ "type": "string" })), "{}", false),
        (schema(json!({ "type": "array" })), "{}", false),
        (json!({ "type": "json_object" }), r#"{"enabled":false}"#, false),
        (json!({ "type": "json_object" }), r#"{"enabled":true}"#, true),
    ];
    for (format, settings, expected) in cases {
        assert_eq!(heal(format.clone(), "{a: 1}", settings).is_some(), expected, "{format} {settings}");
    }
}

#[test]
fn foreign_bytes_pass() {
    for bytes in [
        &b""[..],
        b"{}",
        b"\xff",
        b"{\"output\":7}",
        b"{\"output\":[7,{\"type\":\"message\",\"content\":[7]}]}",
    ] {
        assert_eq!(healed(&request(json!({ "type": "json_object" })), bytes, b"{}"), None);
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-zA-Z \\\\\"\n{}\\[\\],:é]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec(("[a-z]{1,4}", inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_text_gives_valid_json_or_nothing(text in "\\PC{0,200}|[{}\\[\\]\"',:\\\\ a1`/*.\n]{0,60}") {
        for wanted in [Wanted::Object, Wanted::Array, Wanted::Either] {
            if let Some(json) = repaired(&text, wanted) {
                assert!(serde_json::from_str::<Value>(&json).is_ok(), "{json}");
            }
        }
    }

    #[test]
    fn cut_documents_are_repaired(value in any_json(), share in 0.0..1.0_f64) {
        let text = json!({ "key": value }).to_string();
        let end = (1..text.len()).filter(|at| text.is_char_boundary(*at)).nth((text.len() as f64 * share) as usize);
        let cut = &text[..end.unwrap_or(text.len() - 1)];
        assert!(repair(cut).is_some() || !cut.contains(':'), "{cut}");
    }

    #[test]
    fn documents_among_prose_are_found(value in any_json(), before in "[a-zA-Z ,.!\n]{0,30}", after in "[a-zA-Z ,.!\n]{0,30}") {
        let document = json!({ "key": value });
        for text in [format!("x{before}{document}{after}"), format!("{before}```json\n{document}\n```{after}")] {
            assert_eq!(repair(&text).as_ref(), Some(&document), "{text}");
        }
    }
}
