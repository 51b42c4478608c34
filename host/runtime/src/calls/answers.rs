//! Rules for answers that types cannot express. A guest that breaks one has a bug: the error names
//! the rule, and nothing of the answer is used.

use std::collections::BTreeSet;

use cofferdam_egress::{Reason, check_outgoing};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use crate::manifest::ToolTable;
use crate::wire::{Decision, Event, Function, Output, Prepared, UpstreamRequest};

/// The rule that was broken.
pub(super) type Broken = &'static str;

/// Length limit of a function's name, in bytes.
const FUNCTION_NAME_BYTES_MAX: usize = 64;
/// Number of functions of one tool.
const FUNCTIONS_MAX: usize = 128;

/// Indexes are in range and unique, and there is at least one.
pub(super) fn check_decision(decision: &Decision, candidates: usize) -> Result<(), Broken> {
    if decision.order.is_empty() {
        return Err("an empty order is a failure, not an answer");
    }
    let mut seen = vec![false; candidates];
    for index in &decision.order {
        let is_named = seen.get_mut(*index as usize).ok_or("an index of the order is out of range")?;
        if std::mem::replace(is_named, true) {
            return Err("an index of the order is named twice");
        }
    }
    Ok(())
}

/// A provider's request can be sent below any base URL: its path stays there, and its headers are well formed and none
/// that the host sets. `slot` is the header of the credential, for a dialect with one.
pub(super) fn check_upstream(request: &UpstreamRequest, slot: Option<&str>) -> Result<(), Broken> {
    for (name, value) in &request.headers {
        let token = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte)
        };
        if name.is_empty() || !name.bytes().all(token) {
            return Err("a header name is not a lower-case token");
        }
        if value.bytes().any(|byte| byte < b' ' && byte != b'\t' || byte == 0x7f) {
            return Err("a header value holds a control character");
        }
    }
    check_outgoing(&request.path, &request.headers, slot).map_err(|reason| match reason {
        Reason::Path(error) => error.as_str(),
        Reason::CredentialHeader => "a header is that of the credential, or says otherwise who is asking",
        Reason::HeadersTooLarge => "there are more than 100 headers, or one is longer than 16 KiB",
        _ => "a header is one that the host sets, or that no request may carry",
    })
}

/// Checks the result of `prepare`.
pub(super) fn check_prepared(prepared: &Prepared, slot: Option<&str>) -> Result<(), Broken> {
    match prepared {
        Prepared::Upstream(request) => check_upstream(request, slot),
        Prepared::Answer(events) => check_events(events),
    }
}

/// JSON inside events has the declared type.
pub(super) fn check_events(events: &[Event]) -> Result<(), Broken> {
    for event in events {
        match event {
            Event::Annotation(json) if !is_object(json) => return Err("an annotation is not a JSON object"),
            Event::OpaqueItem(json) if !is_object(json) => return Err("an opaque item is not a JSON object"),
            Event::TextDelta(delta) if !delta.logprobs.is_empty() && !is_array(&delta.logprobs) => {
                return Err("logprobs are not a JSON array");
            }
            _ => {}
        }
    }
    Ok(())
}

/// Names and schemas of a tool's functions are well formed, each name is offered once, and items that they name are
/// declared in the manifest's `table`.
pub(super) fn check_functions(functions: &[Function], table: Option<&ToolTable>) -> Result<(), Broken> {
    if functions.len() > FUNCTIONS_MAX {
        return Err("a tool offers too many functions");
    }
    let mut names = BTreeSet::new();
    for function in functions {
        let name = function.name.as_bytes();
        let plain = name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
        if !plain || name.is_empty() || name.len() > FUNCTION_NAME_BYTES_MAX {
            return Err("a function's name is not of letters, digits and underscores, at most 64");
        }
        if !is_object(&function.parameters) {
            return Err("a function's parameters are not a JSON object");
        }
        if !names.insert(name) {
            return Err("two functions have the same name");
        }
        let named = item_type(&function.parameters);
        if named.is_some_and(|named| table.is_none_or(|table| table.item(&named).is_none())) {
            return Err("the `x-item` of a function names a type that [[tool.items]] does not declare");
        }
    }
    Ok(())
}

/// The type of the item that a function's schema names.
fn item_type(parameters: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Schema {
        #[serde(rename = "x-item")]
        item: Option<Value>,
    }
    let schema: Schema = serde_json::from_slice(parameters).ok()?;
    Some(schema.item?.get("type")?.as_str()?.to_owned())
}

/// JSON inside a tool's output has the declared type.
pub(super) fn check_output(output: &Output) -> Result<(), Broken> {
    if !is_object(&output.item) {
        return Err("a tool's item is not a JSON object");
    }
    if !output.annotations.iter().all(|annotation| is_object(annotation)) {
        return Err("a tool's annotation is not a JSON object");
    }
    Ok(())
}

/// Vectors are not empty, consist of whole 32-bit values and have the same length.
pub(super) fn check_vectors(vectors: &[Vec<u8>]) -> Result<(), Broken> {
    let length = vectors.first().map_or(0, Vec::len);
    if vectors.iter().any(|vector| vector.len() != length || vector.is_empty() || vector.len() % 4 != 0) {
        return Err("vectors are not of one length in 32-bit numbers");
    }
    Ok(())
}

/// Whether these bytes are exactly one JSON object.
pub(super) fn is_object(json: &[u8]) -> bool {
    struct Object;
    impl<'de> Visitor<'de> for Object {
        type Value = ();

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok(())
        }
    }
    let mut reader = serde_json::Deserializer::from_slice(json);
    reader.deserialize_map(Object).and_then(|()| reader.end()).is_ok()
}

/// Whether these bytes are exactly one JSON array.
fn is_array(json: &[u8]) -> bool {
    serde_json::from_slice::<Vec<IgnoredAny>>(json).is_ok()
}

/// The memory that an event takes in the host, in bytes.
pub(super) fn event_bytes(event: &Event) -> usize {
    let content = match event {
        Event::MessageStart(phase) => phase.as_ref().map_or(0, String::len),
        Event::TextDelta(delta) => delta.text.len() + delta.logprobs.len(),
        Event::RefusalDelta(text) | Event::ReasoningTextDelta(text) => text.len(),
        Event::Annotation(json) | Event::OpaqueItem(json) => json.len(),
        Event::ReasoningSummaryDelta(delta) => delta.text.len(),
        Event::ReasoningSeal(seal) => {
            let parts = [&seal.signature, &seal.encrypted_content, &seal.format];
            parts.into_iter().flatten().map(String::len).sum()
        }
        Event::FunctionCallStart(start) | Event::CustomCallStart(start) => {
            start.call_id.len() + start.name.len() + start.namespace.as_ref().map_or(0, String::len)
        }
        Event::FunctionArgumentsDelta(delta) | Event::CustomInputDelta(delta) => delta.text.len(),
        Event::ImagePartial(image) | Event::ImageDone(image) => image.base64.len() + image.media_type.len(),
        Event::CallEnd(_) | Event::Usage(_) | Event::Finish(_) => 0,
        Event::Error(failure) => failure.message.len(),
    };
    content + size_of::<Event>()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decision(order: &[u32]) -> Decision {
        Decision { order: order.to_vec(), strategy: "direct".into(), reason: String::new() }
    }

    #[test]
    fn an_order_must_be_in_range_unique_and_not_empty() {
        assert_eq!(check_decision(&decision(&[2, 0]), 3), Ok(()));
        for order in [&[][..], &[3], &[0, 0], &[u32::MAX]] {
            assert!(check_decision(&decision(order), 3).is_err(), "{order:?}");
        }
    }

    #[test]
    fn malformed_headers_are_refused() {
        let request = |name: &str, value: &str| UpstreamRequest {
            path: "responses".into(),
            headers: vec![(name.into(), value.into())],
            body: vec![],
            streamed: false,
        };
        let check_upstream = |request| check_upstream(&request, None);
        assert_eq!(check_upstream(request("x-a", "b c")), Ok(()));
        for (name, value) in [("X-A", "b"), ("", "b"), ("a b", "c"), ("a", "b\r\nx: y"), ("a", "b\0")] {
            assert!(check_upstream(request(name, value)).is_err(), "{name:?}: {value:?}");
        }
    }

    #[test]
    fn a_request_that_the_host_would_not_send_is_refused() {
        let check = |path: &str, header: &str, slot| {
            let headers = vec![(header.to_owned(), "x".to_owned())];
            let request = UpstreamRequest { path: path.into(), headers, body: vec![], streamed: false };
            check_upstream(&request, slot)
        };
        assert_eq!(check("/v1/chat?a=1", "x-a", Some("authorization")), Ok(()));
        for path in ["../../admin", "https://a.test/", "complete?a=1#f", "comp lete", "", "//a.test/x"] {
            assert!(check(path, "x-a", None).is_err(), "{path}");
        }
        assert_eq!(check("../a", "x-a", None), Err("the path has a dot segment"));
        assert!(check("a", "host", None).is_err());
        assert!(check("a", "authorization", Some("x-key")).is_err());
        assert_eq!(check("a", "authorization", None), Ok(()));
    }

    #[test]
    fn functions_have_names_of_their_own_and_items_that_the_manifest_declares() {
        let function = |name: &str, parameters: &str| Function {
            name: name.to_owned(),
            description: String::new(),
            parameters: parameters.as_bytes().to_vec(),
        };
        let table: ToolTable =
            serde_json::from_str(r#"{"type":"dice","items":[{"type":"dice_call"}]}"#).unwrap();
        let check = |functions: &[Function]| check_functions(functions, Some(&table));
        assert_eq!(check(&[function("a", "{}"), function("b", "{}")]), Ok(()));
        assert_eq!(
            check(&[function("a", "{}"), function("a", "{}")]),
            Err("two functions have the same name")
        );
        for plain in [r#"{"x-item":{"type":"dice_call"}}"#, r#"{"x-item":{"a":1}}"#, r#"{"x-item":5}"#] {
            assert_eq!(check(&[function("a", plain)]), Ok(()), "{plain}");
        }
        assert!(check(&[function("a", r#"{"x-item":{"type":"other"}}"#)]).is_err());
    }

    #[test]
    fn is_object_accepts_exactly_one_object() {
        assert!(is_object(br#" {"a":[1,{"b":null}]} "#));
        for json in [&b""[..], b"[]", b"{", b"{}{}", b"{} x", b"null", b"{\"a\":}"] {
            assert!(!is_object(json), "{json:?}");
        }
    }

    #[test]
    fn vectors_have_one_length() {
        assert_eq!(check_vectors(&[vec![0; 8], vec![0; 8]]), Ok(()));
        assert!(check_vectors(&[vec![0; 8], vec![0; 4]]).is_err());
        assert!(check_vectors(&[vec![0; 7]]).is_err());
        assert!(check_vectors(&[vec![]]).is_err());
    }

    proptest! {
        #[test]
        fn checking_json_of_guests_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            is_object(&bytes);
            is_array(&bytes);
        }
    }
}
