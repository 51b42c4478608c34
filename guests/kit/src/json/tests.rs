//! Every text is read as `serde_json` reads it.

use proptest::prelude::{Strategy, any, prop, prop_assert_eq, prop_oneof, proptest};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Debug;

use super::from_str;

#[derive(Debug, PartialEq, Deserialize)]
struct Members<'a> {
    #[serde(borrow)]
    a: Option<Cow<'a, str>>,
    b: Option<f32>,
    c: Option<u8>,
    #[serde(default)]
    d: Vec<i64>,
    e: Option<Letter>,
}

#[derive(Debug, PartialEq, Deserialize)]
enum Letter {
    X,
    Y(u8),
}

#[track_caller]
fn assert_same(text: &str) {
    fn same<T: DeserializeOwned + Debug>(text: &str) -> (String, String) {
        let shown = |value: Option<T>| format!("{value:?}");
        (shown(from_str(text).ok()), shown(serde_json::from_str(text).ok()))
    }
    let read = |(own, expected): (String, String)| assert_eq!(own, expected, "{text}");
    read(same::<Value>(text));
    read(same::<IgnoredAny>(text));
    read(same::<Option<bool>>(text));
    read(same::<f64>(text));
    read(same::<f32>(text));
    read(same::<String>(text));
    read(same::<Letter>(text));
    read(same::<BTreeMap<String, IgnoredAny>>(text));
    read(same::<Vec<Box<RawValue>>>(text));
    let members = |read: Option<Members<'_>>| format!("{read:?}");
    assert_eq!(members(from_str(text).ok()), members(serde_json::from_str(text).ok()), "{text}");
    let raw = |read: Option<&RawValue>| read.map(|raw| raw.get().to_owned());
    assert_eq!(raw(from_str(text).ok()), raw(serde_json::from_str(text).ok()), "{text}");
}

/// Valid and broken texts of every kind of value.
const TEXTS: &[&str] = &[
    "",
    " ",
    "null",
    "nul",
    "nulll",
    " true ",
    "fals",
    "0",
    "-0",
    "-",
    "01",
    "-01",
    "1.",
    ".5",
    "1.50",
    "1e5",
    "1E+5",
    "1e-400",
    "1e400",
    "-1e",
    "0e9999999999",
    "1e9999999999",
    "0.1234567890123456789",
    "0.12345678901234567890123",
    "123456789012345678901234567890",
    "18446744073709551615",
    "18446744073709551616",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "1 2",
    "1,",
    "-0.0",
    "3.4e39",
    "\"\"",
    "\"a",
    "\"a\\\"",
    "\"\\u00e4\\n\"",
    "\"\\ud83d\\ude00\"",
    "\"\\ud83d\"",
    "\"\\ud83dx\"",
    "\"\\ude00\"",
    "\"\\ud83d\\u0041\"",
    "\"\\u00g0\"",
    "\"\\u12\"",
    "\"\\u+123\"",
    "\"\\x\"",
    "\"\n\"",
    "\"a\u{7f}ä\u{2028}\"",
    "[]",
    "[ ]",
    "[,]",
    "[1,]",
    "[1 2]",
    "[1",
    "[1]]",
    "[1, 2.50 ,\"x\"]",
    "{}",
    "{ }",
    "{,}",
    "{\"a\":1,}",
    "{\"a\" 1}",
    "{\"a\":}",
    "{a:1}",
    "{\"a\":1",
    "{\"a\":1}}",
    "{\"a\":1]",
    "[1}",
    "{\"\\u0061\":\"x\",\"b\":0.1}",
    "{\"a\":\"x\",\"a\":\"y\"}",
    "{\"\\ud800\":1}",
    "{\"q\":\"\\ud800\"}",
    "[\"x\",0.25,7,[1,2],\"X\"]",
    "[\"x\",0.25,7,[1,2],\"X\",9]",
    "{\"c\":256}",
    "{\"d\":[1,-2,3.0]}",
    "{\"e\":\"X\"}",
    "{\"e\":{\"Y\":3}}",
    "{\"e\":\"Z\"}",
    "\u{feff}1",
    "\u{a0}1",
    "\u{b}1",
    "{\"a\":null,\"b\":null}",
];

#[test]
fn values_are_read_and_errors_found_as_by_serde_json() {
    TEXTS.iter().copied().for_each(assert_same);
}

#[test]
fn deep_values_are_skipped_and_refused_as_by_serde_json() {
    for depth in [1, 63, 64, 65, 126, 127, 128, 129, 200] {
        for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("[{\"a\":[", "]}]")] {
            assert_same(&format!("{}1{}", open.repeat(depth), close.repeat(depth)));
            assert_same(&format!("{}1{}", open.repeat(depth), close.repeat(depth - 1)));
            assert_same(&format!("{}1{}]", open.repeat(depth), close.repeat(depth - 1)));
        }
    }
}

#[test]
fn a_string_ends_at_any_distance_from_a_block() {
    for length in 0..70 {
        for end in ["\"", "\\n\"", "\\\"x\"", "\n\"", "ä\"", "", "\\"] {
            let text = format!("\"{}{end}", "x".repeat(length));
            assert_same(&text);
            assert_same(&format!("{{\"a\":{text},\"b\":1.5                       }}"));
        }
    }
}

/// JSON text, with white space and escapes.
fn json() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        any::<f64>().prop_map(|number| format!("{number:?}")),
        any::<f32>().prop_map(|number| number.to_string()),
        any::<i64>().prop_map(|number| number.to_string()),
        "-?[0-9]{1,24}(\\.[0-9]{1,24})?([eE][+-]?[0-9]{1,3})?",
    ];
    let string = prop_oneof![
        any::<String>().prop_map(|text| Value::from(text).to_string()),
        "\"([ -~]|\\\\[\"\\\\/bfnrt]|\\\\u[0-9a-fD]{4}){0,40}\"",
    ];
    let leaf = prop_oneof![string.clone(), number, "null|true|false"];
    leaf.prop_recursive(4, 32, 6, move |inner| {
        let name = prop_oneof!["\"[a-e]\"", "\"[a-z_]{0,30}\""];
        let member = (name, "[ \n\r\t]{0,2}", inner.clone())
            .prop_map(|(name, space, value)| format!("{name}{space}:{value}"));
        prop_oneof![
            prop::collection::vec(inner, 0..6).prop_map(|list| format!("[{}]", list.join(", "))),
            prop::collection::vec(member, 0..6).prop_map(|list| format!("{{{}}}", list.join(",\n"))),
        ]
    })
}

proptest! {
    #[test]
    fn any_json_is_read_as_by_serde_json(text in json()) {
        assert_same(&text);
    }

    #[test]
    fn damaged_json_is_read_as_by_serde_json(text in json(), at in any::<prop::sample::Index>(), by in "[ -~\n]{0,2}") {
        let at = at.index(text.len() + 1);
        if let (Some(before), Some(after)) = (text.get(..at), text.get(at + 1..)) {
            assert_same(&format!("{before}{by}{after}"));
            assert_same(before);
        }
    }

    #[test]
    fn fractions_have_the_same_bits(text in "-?(0\\.0{0,6}|[1-9][0-9]{0,6}\\.)[0-9]{1,20}") {
        let bits = |number: f64| number.to_bits();
        prop_assert_eq!(from_str(&text).map(bits).unwrap(), serde_json::from_str(&text).map(bits).unwrap());
    }
}
