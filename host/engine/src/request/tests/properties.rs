//! Properties of all bodies: parsing never panics, and writing the document for guests again does
//! not change it.

use super::{body_with, echo, guest, parse};
use crate::request::{EmbeddingsRequest, ResponsesRequest};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A value of any kind, with a bias towards words of the API.
fn anything() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "message",
        "user",
        "assistant",
        "input_text",
        "output_text",
        "function",
        "function_call",
        "reasoning",
        "service:datetime",
        "openrouter:x",
        "auto",
        "required",
        "none",
        "high",
        "json_schema",
        "text",
        "web",
        "",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..40).prop_map(Value::from),
        (-3.0..3.0).prop_map(Value::from),
        word.prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    let key = prop::sample::select(vec![
        "type",
        "role",
        "content",
        "text",
        "name",
        "id",
        "call_id",
        "arguments",
        "output",
        "status",
        "summary",
        "parameters",
        "tools",
        "format",
        "effort",
        "enabled",
        "order",
        "sort",
        "x y",
    ]);
    leaf.prop_recursive(4, 32, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::hash_map(key.clone().prop_map(str::to_owned), inner, 0..6)
                .prop_map(|map| map.into_iter().collect()),
        ]
    })
}

fn message() -> impl Strategy<Value = Value> {
    let role = prop::sample::select(vec!["user", "system", "developer", "assistant"]);
    let typed = prop_oneof![Just(json!({})), Just(json!({"type": "message"})), Just(json!({"type": null}))];
    (role, typed, "\\PC{0,40}", 0..4u8, anything()).prop_map(|(role, mut message, text, form, extra)| {
        let part = if role == "assistant" { "output_text" } else { "input_text" };
        message["extra"] = extra;
        message["role"] = role.into();
        message["content"] = match form {
            0 => text.into(),
            1 => Value::Null,
            2 => json!([]),
            _ => json!([{"type": part, "text": text, "annotations": null}, {"type": part, "text": "?"}]),
        };
        message
    })
}

fn item() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => message(),
        1 => ("[a-z]{1,9}", "\\PC{0,20}").prop_map(|(id, text)| json!({"type": "function_call", "call_id": id,
            "name": "f", "arguments": text})),
        1 => "\\PC{0,20}".prop_map(|text| json!({"type": "function_call_output", "call_id": "c",
            "output": [{"type": "input_text", "text": text}]})),
        1 => anything().prop_map(|value| json!({"type": "service:anything", "value": value})),
    ]
}

/// A body that is accepted.
fn body() -> impl Strategy<Value = Value> {
    let settings = (
        prop::option::of(any::<bool>()),
        prop::option::of(0.0..2.0),
        prop::option::of(1..5000u32),
        prop::option::of(prop::sample::select(vec!["fast", "auto", "flex"])),
        prop::option::of(prop::sample::select(vec!["low", "none"])),
        prop::option::of(prop::collection::hash_map("[a-z]{1,5}", "\\PC{0,9}", 0..4)),
        prop::option::of("\\PC{0,30}"),
    );
    (prop::collection::vec(item(), 1..5), settings, anything(), any::<bool>()).prop_map(
        |(input, (stream, temperature, tokens, tier, effort, metadata, instructions), extra, tools)| {
            let mut body = json!({"input": input, "model": "a/b", "stream": stream, "temperature": temperature,
                "max_output_tokens": tokens, "service_tier": tier, "reasoning": {"effort": effort, "summary": null},
                "metadata": metadata, "instructions": instructions, "unknown": extra});
            if tools {
                body["tools"] = json!([{"type": "function", "name": "f", "parameters": {"extra": extra}},
                    {"type": "service:datetime", "parameters": null}]);
            }
            body
        },
    )
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..300)) {
        _ = ResponsesRequest::parse(&body, &[]);
        _ = EmbeddingsRequest::parse(&body);
    }

    #[test]
    fn arbitrary_members_never_panic(name in prop::sample::select(vec![
        "input", "tools", "tool_choice", "plugins", "provider", "text", "reasoning", "metadata", "prompt", "trace",
        "stop_server_tools_when", "image_config", "include", "debug", "cache_control", "max_tool_calls",
    ]), value in anything()) {
        if let Ok(request) = parse(&body_with(&json!({name: value}))) {
            prop_assert!(guest(&request).is_object());
            prop_assert!(echo(&request).is_object());
        }
    }

    #[test]
    fn writing_the_guest_form_again_does_not_change_it(body in body(), pretty in any::<bool>()) {
        let text = if pretty { serde_json::to_string_pretty(&body) } else { serde_json::to_string(&body) }.unwrap();
        let first = ResponsesRequest::parse(text.as_bytes(), &[]).unwrap();
        let second = ResponsesRequest::parse(&first.guest_json, &[]).unwrap();
        prop_assert_eq!(&first.guest_json, &second.guest_json);
        if !text.contains("service:anything") {
            prop_assert_eq!(&first.facts, &second.facts);
        }
        prop_assert_eq!(&first.tools, &second.tools);
        prop_assert_eq!(&first.needs, &second.needs);
        // Members that are not sent to guests may differ.
        prop_assert_eq!(first.service_tier, second.service_tier);
        let echo = echo(&first);
        for name in ["temperature", "tools", "metadata", "reasoning", "text"] {
            prop_assert!(echo.get(name).is_some(), "{}", name);
        }
    }

    #[test]
    fn no_member_for_guests_is_null_and_every_message_has_parts(body in body()) {
        let request = parse(&body).unwrap();
        let guest = guest(&request);
        for (name, value) in guest.as_object().unwrap() {
            prop_assert!(!value.is_null(), "{}", name);
        }
        for item in guest["input"].as_array().unwrap() {
            prop_assert!(item["type"].is_string());
            prop_assert!(item["type"] != "message" || item["content"].is_array());
        }
    }

    #[test]
    fn changing_any_byte_never_panics(body in body(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut text = body.to_string().into_bytes();
        let at = at.index(text.len());
        text[at] = byte;
        if let Err(error) = ResponsesRequest::parse(&text, &[]) {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}
