//! Rules for answers that types cannot express. A guest that breaks one has a bug: the error names
//! the rule, and nothing of the answer is used.

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

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

/// Headers of a provider's request are well formed.
pub(super) fn check_upstream(request: &UpstreamRequest) -> Result<(), Broken> {
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
    Ok(())
}

/// Checks the result of `prepare`.
pub(super) fn check_prepared(prepared: &Prepared) -> Result<(), Broken> {
    match prepared {
        Prepared::Upstream(request) => check_upstream(request),
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

/// Names and schemas of a tool's functions are well formed.
pub(super) fn check_functions(functions: &[Function]) -> Result<(), Broken> {
    if functions.len() > FUNCTIONS_MAX {
        return Err("a tool offers too many functions");
    }
    for function in functions {
        let name = function.name.as_bytes();
        let plain = name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
        if !plain || name.is_empty() || name.len() > FUNCTION_NAME_BYTES_MAX {
            return Err("a function's name is not of letters, digits and underscores, at most 64");
        }
        if !is_object(&function.parameters) {
            return Err("a function's parameters are not a JSON object");
        }
    }
    Ok(())
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
        assert_eq!(check_upstream(&request("x-a", "b c")), Ok(()));
        for (name, value) in [("X-A", "b"), ("", "b"), ("a b", "c"), ("a", "b\r\nx: y"), ("a", "b\0")] {
            assert!(check_upstream(&request(name, value)).is_err(), "{name:?}: {value:?}");
        }
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
