//! Embeddings requests: forms of input, typed members, the document for guests, refusals.

use super::super::{Ability, EmbeddingsRequest, EncodingFormat};
use proptest::prelude::*;
use serde_json::{Value, json};

fn parse(body: &Value) -> Result<EmbeddingsRequest, String> {
    EmbeddingsRequest::parse(body.to_string().as_bytes()).map_err(|error| error.to_string())
}

fn with_input(input: &Value) -> Value {
    json!({"model": "a/embed", "input": input})
}

#[test]
fn every_input_form_becomes_an_array() {
    let parts = json!({"content": [
        {"type": "text", "text": "abcd"}, {"type": "image_url", "image_url": {"url": "u"}},
        {"type": "input_audio", "input_audio": {"data": "A"}}, {"type": "input_video", "input_video": {"data": "A"}},
        {"type": "input_file", "input_file": {"data": "A"}},
    ]});
    let table = [
        (json!("abcde"), json!(["abcde"]), 1, 2),
        (json!(["a", "b"]), json!(["a", "b"]), 2, 1),
        (json!([1, 2, 3]), json!([[1, 2, 3]]), 1, 3),
        (json!([[1, 2], [3]]), json!([[1, 2], [3]]), 2, 3),
        (json!([parts]), json!([parts]), 1, 1),
        (parts.clone(), json!([parts]), 1, 1),
        (
            json!(["a", [1], {"content": [{"type": "text", "text": "b"}]}]),
            json!(["a", [1], {"content": [{"type": "text", "text": "b"}]}]),
            3,
            2,
        ),
    ];
    for (input, written, count, tokens) in table {
        let request = parse(&with_input(&input)).unwrap();
        let guest: Value = serde_json::from_slice(&request.guest_json).unwrap();
        assert_eq!(guest, json!({"model": "a/embed", "input": written}));
        assert_eq!((request.input_count, request.input_tokens), (count, tokens), "{input}");
    }
    assert_eq!(
        parse(&with_input(&json!(["a", parts, parts]))).unwrap().needs,
        [Ability::Images, Ability::Files, Ability::Audio, Ability::Video].map(|need| (need, 1)).into()
    );
}

#[test]
fn set_members_are_typed_and_passed() {
    let request = parse(&json!({
        "model": "a/embed", "input": "x", "dimensions": 256, "encoding_format": "base64",
        "input_type": "search_query", "provider": {"allow_fallbacks": false}, "session_id": "s",
        "trace": {"trace_id": "t"}, "user": "u", "unknown": 1,
    }))
    .unwrap();
    assert_eq!((request.model.as_str(), request.dimensions), ("a/embed", Some(256)));
    assert_eq!(request.encoding_format, EncodingFormat::Base64);
    assert_eq!(request.input_type.as_deref(), Some("search_query"));
    assert_eq!((request.session_id.as_deref(), request.user.as_deref()), (Some("s"), Some("u")));
    assert!(!request.provider.allow_fallbacks && request.trace.is_some());
    assert_eq!(request.parameters, ["dimensions", "input_type"]);
    let guest: Value = serde_json::from_slice(&request.guest_json).unwrap();
    assert_eq!(
        guest,
        json!({"model": "a/embed", "input": ["x"], "dimensions": 256, "encoding_format": "base64",
            "input_type": "search_query", "user": "u"})
    );
    assert_eq!(parse(&with_input(&json!("x"))).unwrap().encoding_format, EncodingFormat::Float);
}

#[test]
fn faulty_bodies_are_refused_by_path() {
    let input = |input: Value| with_input(&input);
    let with = |name: &str, value: Value| json!({"model": "a", "input": "x", name: value});
    let table = [
        (json!({"model": "a"}), "input is required"),
        (json!({"input": "x"}), "model is required"),
        (input(json!("")), "input must not be empty"),
        (input(json!([])), "input must hold at least 1 element"),
        (input(json!(5)), "input must be a string, an array or an object with content, not a number"),
        (input(json!({"content": []})), "input.content must hold at least 1 element"),
        (input(json!({})), "input.content is required"),
        (input(json!(["a", ""])), "input[1] must not be empty"),
        (
            input(json!(["a", 1])),
            "input[1] must be a string, an array of tokens or an object with content, not a number",
        ),
        (input(json!([1, "a"])), "input[1] must be an integer, not a string"),
        (input(json!([1.5])), "input[0] must be an integer, without fraction or exponent"),
        (input(json!([-1])), "input[0] must be an integer of at least 0"),
        (input(json!([[1], []])), "input[1] must hold at least 1 element"),
        (
            input(json!([null])),
            "input[0] must be a string, an array of tokens or an object with content, not null",
        ),
        (input(json!([{}])), "input[0].content is required"),
        (input(json!([{"content": []}])), "input[0].content must hold at least 1 element"),
        (
            input(json!([{"content": [{"type": "smell"}]}])),
            "input[0].content[0].type names an unknown embedding part type: \"smell\"",
        ),
        (
            input(json!([{"content": [{"type": "image_url", "image_url": "u"}]}])),
            "input[0].content[0].image_url must be an object, not a string",
        ),
        (
            input(json!([{"content": [{"type": "input_file", "input_file": {"file_id": "f"}}]}])),
            "input[0].content[0].input_file.data is required",
        ),
        (input(json!(vec!["a"; 2049])), "input must hold at most 2048 elements"),
        (with("dimensions", json!(0)), "dimensions must be an integer of at least 1"),
        (with("encoding_format", json!("hex")), "encoding_format must be one of float, base64"),
        (with("input_type", json!(1)), "input_type must be a string, not a number"),
        (with("session_id", json!("s".repeat(257))), "session_id must have at most 256 characters"),
        (
            with("provider", json!({"sort": "x"})),
            "provider.sort must be one of price, throughput, latency, exacto",
        ),
    ];
    for (body, message) in table {
        assert_eq!(parse(&body).unwrap_err(), message);
    }
    assert_eq!(parse(&with_input(&json!(vec!["a"; 2048]))).unwrap().input_count, 2048);
}

proptest! {
    #[test]
    fn writing_the_guest_form_again_does_not_change_it(
        input in prop_oneof![
            ".{1,20}".prop_map(Value::from),
            prop::collection::vec(".{1,9}", 1..5).prop_map(Value::from),
            prop::collection::vec(any::<u32>(), 1..9).prop_map(Value::from),
            prop::collection::vec(prop::collection::vec(any::<u32>(), 1..4), 1..4).prop_map(|lists| json!(lists)),
        ],
    ) {
        let first = parse(&with_input(&input)).unwrap();
        let second = EmbeddingsRequest::parse(&first.guest_json).unwrap();
        prop_assert_eq!(&first.guest_json, &second.guest_json);
        prop_assert_eq!(first.input_count, second.input_count);
    }
}
