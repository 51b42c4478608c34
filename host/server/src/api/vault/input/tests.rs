use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use proptest::prelude::*;

use super::{Put, check_headers, names, unescape};
use crate::fault::Fault;

fn put(body: &str) -> Result<Vec<String>, String> {
    match Put::parse(body.as_bytes()) {
        Ok(put) => Ok(put.hosts.as_slice().iter().map(ToString::to_string).collect()),
        Err(Fault::InvalidVaultRequest(flaw)) => Err(flaw.path.into_owned()),
        Err(fault) => panic!("{fault:?}"),
    }
}

#[test]
fn put_bodies_are_objects_with_hosts_and_value() {
    for body in [
        r#"{"hosts":["a.com"],"value":"x"}"#,
        r#" {"value" : "x" , "hosts" : ["A.com." , "a.com"] } "#,
        r#"{"hosts":["a.com"],"value":"x","more":{"value":["a","a"],"hosts":5}}"#,
        r#"{"hosts":["a.com"],"val\u0075e":"\ud83d\ude00"}"#,
    ] {
        assert_eq!(put(body), Ok(vec!["a.com".to_owned()]), "{body}");
    }
}

#[test]
fn other_bodies_are_refused_with_the_path_of_the_mistake() {
    for (body, path) in [
        ("", "body"),
        (" ", "body"),
        ("null", "body"),
        ("\"x\"", "body"),
        (r#"[["a.com"],"x"]"#, "body"),
        (r#"{"hosts":["a.com"],"value":"x"}{}"#, "body"),
        (r#"{"hosts":["a.com"],"value":"x"},"#, "body"),
        (r#"{"hosts":["a.com"],"value":"x",}"#, "body"),
        ("\u{feff}{\"hosts\":[\"a.com\"],\"value\":\"x\"}", "body"),
        (r#"{"hosts":["a.com"],"value":"x"/**/}"#, "body"),
        (r#"{"hosts":["a.com"],"value":NaN}"#, "body"),
        (r#"{"hosts":["a.com"],"value":"a","value":"b"}"#, "body"),
        (r#"{"hosts":["a.com"],"value":"a","val\u0075e":"a"}"#, "body"),
        (r#"{"hosts":["a.com"],"hosts":["a.com"],"value":"b"}"#, "body"),
        ("{\"hosts\":[\"a.com\"],\"value\":\"a\nb\"}", "body"),
        (r#"{"hosts":["a.com"],"value":"\x"}"#, "body"),
        (r#"{"hosts":["a.com"],"value":"\ud800"}"#, "value"),
        (r#"{"hosts":["a.com"],"value":"\ud800\u0041"}"#, "value"),
        (r#"{"hosts":["a.com"],"value":"\udc00\ud800"}"#, "value"),
        (r#"{"hosts":["a.com"],"value":null}"#, "value"),
        (r#"{"hosts":["a.com"],"value":5}"#, "value"),
        (r#"{"hosts":["a.com"],"value":[]}"#, "value"),
        (r#"{"hosts":["a.com"],"value":{}}"#, "value"),
        (r#"{"hosts":["a.com"],"value":""}"#, "value"),
        (r#"{"hosts":["a.com"]}"#, "value"),
        (r#"{"value":"x"}"#, "hosts"),
        (r#"{"hosts":null,"value":"x"}"#, "hosts"),
        (r#"{"hosts":"a","value":"x"}"#, "body"),
        (r#"{"hosts":[],"value":"x"}"#, "hosts"),
        (r#"{"hosts":[null],"value":"x"}"#, "body"),
        (r#"{"hosts":[5],"value":"x"}"#, "body"),
        (r#"{"hosts":[["a.com"]],"value":"x"}"#, "body"),
        (r#"{"hosts":["a.com","*"],"value":"x"}"#, "hosts[1]"),
    ] {
        assert_eq!(put(body), Err(path.to_owned()), "{body}");
    }
    assert!(Put::parse(b"{\"hosts\":[\"a.com\"],\"value\":\"\xff\"}").is_err());
}

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let body = |hosts: &str, more: &str| format!("{{\"hosts\":{hosts},\"value\":\"x\",\"more\":{more}}}");
    assert!(put(&body("[\"a.com\"]", &nested(100_000))).is_ok());
    assert!(put(&body(&nested(129), "1")).is_err());
    assert!(put(&body(&nested(100_000), "1")).is_err());
}

#[test]
fn too_long_lists_are_counted_but_not_kept() {
    let body = |count: usize| format!("{{\"hosts\":[{}],\"value\":\"x\"}}", vec!["\"a\""; count].join(","));
    assert_eq!(put(&body(100)), Ok(vec!["a".to_owned()]));
    assert_eq!(put(&body(101)), Err("hosts".to_owned()));
    assert_eq!(put(&body(100_000)), Err("hosts".to_owned()));
}

#[test]
fn names_to_copy_are_valid_and_unique() {
    let read = |body: &str| names(body.as_bytes()).map(|names| names.len()).ok();
    assert_eq!(read(r#"{"names":["a"]}"#), Some(1));
    assert_eq!(read(r#"{"names":["b","a"],"x":1}"#), Some(2));
    let many = |count: usize| {
        let names: Vec<String> = (0..count).map(|number| format!("\"n{number}\"")).collect();
        format!("{{\"names\":[{}]}}", names.join(","))
    };
    assert_eq!(read(&many(100)), Some(100));
    for body in [
        &many(101),
        "",
        "[[\"a\"]]",
        "{}",
        r#"{"names":null}"#,
        r#"{"names":"a"}"#,
        r#"{"names":[]}"#,
        r#"{"names":[5]}"#,
        r#"{"names":["a","a"]}"#,
        r#"{"names":["a","A"]}"#,
        r#"{"names":["a"],"names":["b"]}"#,
    ] {
        assert_eq!(read(body), None, "{body}");
    }
}

#[test]
fn bodies_must_be_utf_8_even_in_ignored_members() {
    assert!(names(b"{\"names\":[\"a\"],\"note\":\"\xc3\xa4\"}").is_ok());
    assert!(names(b"{\"names\":[\"a\"],\"note\":\"\xaf\"}").is_err());
    assert!(Put::parse(b"{\"hosts\":[\"a.com\"],\"value\":\"x\",\"note\":\"\xaf\"}").is_err());
}

/// An unpaired surrogate is valid by the JSON grammar. It only has no meaning, which is irrelevant
/// in an unknown member.
#[test]
fn unpaired_surrogate_is_refused_except_in_ignored_members() {
    let half = r#""\ud83d""#;
    assert!(put(&format!(r#"{{"hosts": ["a.com"], "value": "x", "valve": {half}}}"#)).is_ok());
    assert!(put(&format!(r#"{{"hosts": ["a.com"], "value": {half}}}"#)).is_err());
    assert!(put(&format!(r#"{{"hosts": [{half}], "value": "x"}}"#)).is_err());
    let names_of = |body: String| names(body.as_bytes()).is_ok_and(|names| names.len() == 1);
    assert!(names_of(format!(r#"{{"names": ["a"], "x": {half}}}"#)));
    assert!(!names_of(format!(r#"{{"names": [{half}]}}"#)));
}

#[test]
fn only_plain_json_in_utf_8_is_read() {
    let headers = |kinds: &[&'static str]| {
        let mut headers = HeaderMap::new();
        for kind in kinds {
            headers.append(CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        headers
    };
    for kind in [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        "application/json;charset=\"UTF-8\"",
        "application/json ; x=y",
    ] {
        assert!(check_headers(&headers(&[kind])).is_ok(), "{kind}");
    }
    let table: [&[&str]; 7] = [
        &[],
        &["text/plain"],
        &["application/json; charset=latin1"],
        &["application/json; Charset = utf-16"],
        &["application/jsonp"],
        &["application/x-www-form-urlencoded"],
        &["application/json", "application/json"],
    ];
    for kinds in table {
        assert!(check_headers(&headers(kinds)).is_err(), "{kinds:?}");
    }
    let mut compressed = headers(&["application/json"]);
    compressed.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    assert!(check_headers(&compressed).is_err());
    compressed.insert(CONTENT_ENCODING, HeaderValue::from_static("identity"));
    assert!(check_headers(&compressed).is_ok());
}

proptest! {
    #[test]
    fn unescape_returns_the_text_without_a_larger_buffer(text in any::<String>()) {
        let json = serde_json::to_string(&text).unwrap();
        let read = unescape(&json).unwrap();
        prop_assert_eq!(read.as_str(), &text);
        prop_assert!(read.capacity() <= json.len());
    }

    #[test]
    fn strings_are_decoded_like_serde_json_does(
        inner in r#"([ -~é😀]|\\[bfnrtu"/\\]|\\u[0-9a-fA-F]{4}|\\ud8[0-9a-f]{2}|\\ud[c-f][0-9a-f]{2}){0,8}"#
    ) {
        let json = format!("\"{inner}\"");
        let body = format!("{{\"hosts\":[\"a\"],\"value\":{json}}}");
        let other = serde_json::from_str::<String>(&json).ok().filter(|text| !text.is_empty());
        prop_assert_eq!(Put::parse(body.as_bytes()).is_ok(), other.is_some(), "{}", body);
        if let Some(other) = other {
            let read = unescape(&json).unwrap();
            prop_assert_eq!(read.as_str(), &other);
        }
    }

    #[test]
    fn no_body_breaks_the_parser(body in proptest::collection::vec(any::<u8>(), 0..64)) {
        drop(Put::parse(&body));
        drop(names(&body));
    }

    #[test]
    fn no_text_breaks_the_parser(body in r#"[{}\[\]",:\\ahostsvlu0-9]{0,48}"#) {
        drop(Put::parse(body.as_bytes()));
    }
}
