//! The scanner: every error in a body that is not one JSON document.

use super::super::InvalidKind;
use super::super::json::{DEPTH_MAX, JsonDocument};
use super::parse_text;
use proptest::prelude::*;

fn refusal(body: &[u8]) -> String {
    JsonDocument::parse(body).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn malformed_bodies_are_refused_with_line_and_column() {
    let table: &[(&str, &str)] = &[
        ("", "The request body is not valid JSON: it ends too early at line 1, column 1"),
        ("  \n ", "The request body is not valid JSON: it ends too early at line 2, column 2"),
        (
            "{\"a\":1,}",
            "The request body is not valid JSON: a key in double quotes was expected at line 1, column 8",
        ),
        ("{\"a\" 1}", "The request body is not valid JSON: a colon was expected at line 1, column 6"),
        ("{\"é\":tru}", "The request body is not valid JSON: a value was expected at line 1, column 6"),
        (
            "[1 2]",
            "The request body is not valid JSON: a comma or a closing bracket was expected at line 1, column 4",
        ),
        (
            "{\"a\":1]",
            "The request body is not valid JSON: a comma or a closing brace was expected at line 1, column 7",
        ),
        ("[1,]", "The request body is not valid JSON: a value was expected at line 1, column 4"),
        ("{\"a\":1", "The request body is not valid JSON: it ends too early at line 1, column 7"),
        (
            "{}\n{}",
            "The request body is not valid JSON: something follows the JSON value at line 2, column 1",
        ),
        (
            "\"a\nb\"",
            "The request body is not valid JSON: a control character stands in a string at line 1, column 3",
        ),
        ("\"abc", "The request body is not valid JSON: it ends too early at line 1, column 5"),
        (
            "\"\\x\"",
            "The request body is not valid JSON: an unknown escape stands in a string at line 1, column 2",
        ),
        (
            "\"\\u12g4\"",
            "The request body is not valid JSON: an unknown escape stands in a string at line 1, column 2",
        ),
        (
            "\"\\ud800\"",
            "The request body is not valid JSON: half a surrogate pair stands in a string at line 1, column 2",
        ),
        (
            "\"\\udc00\"",
            "The request body is not valid JSON: half a surrogate pair stands in a string at line 1, column 2",
        ),
        (
            "\"\\ud800\\u0041\"",
            "The request body is not valid JSON: half a surrogate pair stands in a string at line 1, column 2",
        ),
        ("01", "The request body is not valid JSON: something follows the JSON value at line 1, column 2"),
        ("[1.]", "The request body is not valid JSON: a digit was expected at line 1, column 4"),
        ("[-]", "The request body is not valid JSON: a digit was expected at line 1, column 3"),
        ("[1e+]", "The request body is not valid JSON: a digit was expected at line 1, column 5"),
        ("NaN", "The request body is not valid JSON: a value was expected at line 1, column 1"),
    ];
    for (body, message) in table {
        assert_eq!(refusal(body.as_bytes()), *message, "{body:?}");
    }
}

#[test]
fn invalid_utf8_is_refused_with_line_and_column() {
    assert_eq!(refusal(b"{\n \"a\": \"\xff\"}"), "The request body is not valid UTF-8 at line 2, column 8");
}

#[test]
fn numbers_out_of_range_are_refused_by_path() {
    assert_eq!(refusal(b"{\"a\":[1,1e999]}"), "a[1] is a number out of range");
    assert_eq!(refusal(format!("[{}]", "9".repeat(400)).as_bytes()), "[0] is a number out of range");
    assert!(JsonDocument::parse(b"[1e308,-1e-999,123456789012345678901234567890]").is_ok());
}

#[test]
fn duplicate_keys_are_refused_at_every_level() {
    let many: String = (0..40).map(|n| format!("\"k{n}\":0,")).collect();
    let table: &[(String, &str)] = &[
        (r#"{"a":1,"a":2}"#.to_owned(), "a is given twice"),
        (r#"{"a":1,"\u0061":2}"#.to_owned(), "a is given twice"),
        (r#"{"a":{"b":[0,{"c":1,"d":2,"c":3}]}}"#.to_owned(), "a.b[1].c is given twice"),
        (r#"[[{"x y":{},"x y":[]}]]"#.to_owned(), r#"[0][0]["x y"] is given twice"#),
        (format!("{{\"m\":{{{many}\"k7\":1}}}}"), "m.k7 is given twice"),
        (r#"{"":1,"":1}"#.to_owned(), r#"[""] is given twice"#),
    ];
    for (body, message) in table {
        assert_eq!(refusal(body.as_bytes()), *message, "{body}");
    }
    assert!(JsonDocument::parse(br#"{"a":{"a":{"a":1}},"A":1,"b":[{"a":1},{"a":1}]}"#).is_ok());
}

#[test]
fn keys_in_paths_are_truncated_and_escaped() {
    let key = format!("{}\\n", "k".repeat(70));
    let message = refusal(format!("{{\"{key}\":1,\"{key}\":1}}").as_bytes());
    assert_eq!(message, format!("[\"{}…\"] is given twice", "k".repeat(64)));
    assert_eq!(refusal(b"{\"a\\n\":1,\"a\\n\":1}"), "[\"a\\n\"] is given twice");
}

#[test]
fn nesting_is_bounded() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(JsonDocument::parse(nested(DEPTH_MAX).as_bytes()).is_ok());
    let message = "The request body is nested deeper than 64 containers at line 1, column 65";
    assert_eq!(refusal(nested(DEPTH_MAX + 1).as_bytes()), message);
    assert_eq!(refusal("[".repeat(1_000_000).as_bytes()), message);
    assert_eq!(
        refusal("{\"a\":".repeat(100_000).as_bytes()),
        "The request body is nested deeper than 64 containers at line 1, column 321"
    );
}

#[test]
fn bodies_of_too_many_values_are_refused() {
    let body = format!("[0{}]", ",0".repeat(1 << 20));
    assert_eq!(refusal(body.as_bytes()), "The request body holds more than 1048576 values and keys");
}

#[test]
fn bodies_that_are_not_objects_are_refused() {
    for (body, noun) in [("[]", "an array"), ("1", "a number"), ("\"a\"", "a string"), ("null", "null")] {
        let error = parse_text(body).unwrap_err();
        assert_eq!(error.to_string(), format!("The request body must be an object, not {noun}"));
        assert_eq!(error.kind, InvalidKind::InvalidRequest);
        assert_eq!(error.kind.as_str(), "invalid_request");
    }
}

#[test]
fn strings_are_scanned_correctly_at_every_alignment() {
    for length in 0..40 {
        for stop in ["\\\"", "\\\\", "\\u00e9", "é", "😀", "\\ud83d\\ude00", "\u{7f}"] {
            let body = format!("\"{}{stop}{}\"", "x".repeat(length), "y".repeat(length));
            let expected: String = serde_json::from_str(&body).unwrap();
            let document = JsonDocument::parse(body.as_bytes()).unwrap();
            assert_eq!(document.root().text(), expected);
            assert_eq!(document.root().chars(), expected.chars().count());
        }
    }
}

#[test]
fn counts_resolve_escapes() {
    let body = r#""2 + 2 = 4?\n```rust\n```\u00e9 \ud83d\ude00 ∑×?？""#;
    let document = JsonDocument::parse(body.as_bytes()).unwrap();
    let counts = document.root().counts();
    let text: String = serde_json::from_str(body).unwrap();
    assert_eq!(counts.chars, text.chars().count() as u64);
    assert_eq!((counts.questions, counts.fences), (3, 2));
    assert!(counts.math >= 7);
}

#[test]
fn fences_are_counted_without_overlap() {
    for (text, fences) in
        [("", 0), ("``", 0), ("```", 1), ("`````", 1), ("``````", 2), ("a```b```` `` ```", 3)]
    {
        let body = format!("\"{text}\"");
        assert_eq!(JsonDocument::parse(body.as_bytes()).unwrap().root().counts().fences, fences, "{text}");
    }
}

fn documents() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(serde_json::Value::from),
        any::<i64>().prop_map(serde_json::Value::from),
        (-1e300..1e300).prop_map(serde_json::Value::from),
        ".*".prop_map(serde_json::Value::from),
    ];
    leaf.prop_recursive(6, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(serde_json::Value::from),
            prop::collection::hash_map(".{0,8}", inner, 0..24).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
        _ = JsonDocument::parse(&body);
    }

    #[test]
    fn accepted_token_sequences_are_accepted_by_serde_json(
        body in "([\\[\\]{}:,\"\\\\ 0-9eE.+-]|true|null|\"a\"|\"b\":|\\\\u00){0,40}",
    ) {
        let ours = JsonDocument::parse(body.as_bytes()).is_ok();
        let theirs = serde_json::from_str::<serde_json::Value>(&body).is_ok();
        // serde_json accepts duplicate keys, which the scanner refuses.
        prop_assert!(!ours || theirs, "{}", body);
    }

    #[test]
    fn reading_and_writing_a_document_preserves_it(document in documents(), pretty in any::<bool>()) {
        let body = if pretty { serde_json::to_string_pretty(&document) } else { serde_json::to_string(&document) }.unwrap();
        let ours = JsonDocument::parse(body.as_bytes()).unwrap();
        let written = ours.root().compact();
        prop_assert_eq!(String::from_utf8(written).unwrap(), document.to_string());
    }

    #[test]
    fn strings_are_resolved_and_counted_as_by_serde_json(text in "\\PC*|[\\x00-\\x20\"\\\\]*") {
        let escaped: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
        for body in [serde_json::to_string(&text).unwrap(), format!("\"{escaped}\"")] {
            let document = JsonDocument::parse(body.as_bytes()).unwrap();
            prop_assert_eq!(document.root().text(), text.as_str());
            prop_assert_eq!(document.root().chars(), text.chars().count());
            prop_assert!(document.root().is(&text));
        }
    }
}
