//! The document for guests, and the members that the response repeats.

use super::{accepted, body_with, echo, guest, parse_text};
use crate::request::{GuestTurn, is_shown_to_guests};
use bytes::Bytes;
use serde_json::{Value, json};

#[test]
fn a_minimal_body_becomes_the_normal_form_byte_for_byte() {
    let request = parse_text(r#" { "input" : "Hi \u00e9\n", "model" : "meta/llama" } "#).unwrap();
    assert_eq!(
        std::str::from_utf8(&request.guest_json).unwrap(),
        r#"{"model":"meta/llama","stream":false,"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"Hi \u00e9\n"}]}]}"#
    );
}

#[test]
fn every_member_for_guests_is_passed_and_no_other() {
    let members = json!({
        "stream": true, "instructions": "Be kind.", "max_output_tokens": 5, "temperature": 0.5, "top_p": 1,
        "top_k": 3, "frequency_penalty": -1.5, "presence_penalty": 2, "top_logprobs": 20,
        "parallel_tool_calls": false, "tools": [{"type": "function", "name": "f"}], "tool_choice": "required",
        "text": {"format": {"type": "json_object"}, "verbosity": "low"},
        "reasoning": {"effort": "high", "summary": "auto", "max_tokens": 100},
        "include": ["reasoning.encrypted_content"], "service_tier": "flex", "prompt_cache_key": "k",
        "prompt_cache_options": {"mode": "explicit", "ttl": "30m"}, "cache_control": {"type": "ephemeral", "ttl": "1h"},
        "safety_identifier": "s", "user": "u", "metadata": {"a": "b"}, "truncation": "auto",
        "modalities": ["text", "image"], "image_config": {"size": "1K", "n": 2, "list": [1]}, "max_tool_calls": 3,
    });
    let others = json!({
        "models": ["a/b"], "session_id": "x", "store": false, "background": false, "previous_response_id": null,
        "provider": {"allow_fallbacks": false}, "plugins": [{"id": "web"}], "route": "fallback",
        "trace": {"trace_id": "t", "mine": 1}, "debug": {"echo_upstream_body": true},
        "stream_options": {"include_obfuscation": false}, "conversation": null,
        "prompt_cache_retention": "24h", "context_management": [], "moderation": {}, "client_metadata": {"a": 1},
        "stop": ["x"], "deferred_tools": [], "anything": {"at": ["all"]},
    });
    let mut body = body_with(&members);
    super::merge(&mut body, &others);
    let request = accepted(&body);
    let mut expected = members;
    super::merge(
        &mut expected,
        &json!({"model": "meta/llama", "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}]}),
    );
    assert_eq!(guest(&request), expected);
    let names = |object: &Value| object.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert!(names(&expected).iter().all(|name| is_shown_to_guests(name)));
    assert!(!names(&others).iter().any(|name| is_shown_to_guests(name)));
}

#[test]
fn conditions_replace_the_limit_of_calls() {
    let conditions = json!([{"type": "step_count_is", "step_count": 2}]);
    let request = accepted(&body_with(&json!({"max_tool_calls": 3, "stop_server_tools_when": conditions})));
    assert!(guest(&request).get("max_tool_calls").is_none());
}

#[test]
fn null_means_absent_for_every_optional_member() {
    let names = [
        "stream",
        "instructions",
        "max_output_tokens",
        "temperature",
        "top_p",
        "top_k",
        "frequency_penalty",
        "presence_penalty",
        "top_logprobs",
        "parallel_tool_calls",
        "tools",
        "tool_choice",
        "max_tool_calls",
        "stop_server_tools_when",
        "text",
        "reasoning",
        "include",
        "service_tier",
        "prompt",
        "prompt_cache_key",
        "prompt_cache_options",
        "cache_control",
        "safety_identifier",
        "user",
        "session_id",
        "metadata",
        "truncation",
        "modalities",
        "image_config",
        "provider",
        "route",
        "plugins",
        "trace",
        "debug",
        "store",
        "background",
        "previous_response_id",
        "models",
    ];
    let mut body = body_with(&json!({}));
    for name in names {
        body[name] = Value::Null;
    }
    let plain = accepted(&body_with(&json!({})));
    let nulls = accepted(&body);
    assert_eq!(nulls.guest_json, plain.guest_json);
    assert_eq!(nulls.echo, plain.echo);
    assert!(nulls.parameters.is_empty());
}

#[test]
fn objects_of_nulls_are_left_out() {
    let request = accepted(&body_with(
        &json!({"text": {"format": null, "verbosity": "low"}, "reasoning": {"effort": null, "summary": null}}),
    ));
    let guest = guest(&request);
    assert_eq!(guest["text"], json!({"verbosity": "low"}));
    assert!(guest.get("reasoning").is_none());
}

#[test]
fn fast_is_the_priority_tier() {
    let request = accepted(&body_with(&json!({"service_tier": "fast"})));
    assert_eq!(guest(&request)["service_tier"], "priority");
    assert_eq!(request.service_tier.as_str(), "priority");
}

#[test]
fn the_model_for_guests_is_the_first_candidate() {
    let request = accepted(&json!({"models": ["a/b", "c/d"], "input": "Hi"}));
    assert_eq!(guest(&request)["model"], "a/b");
    assert_eq!(request.model, None);
}

#[test]
fn an_echo_states_effective_values() {
    let request = accepted(&body_with(&json!({})));
    assert!(request.echo.starts_with("\"background\":false,"));
    assert_eq!(
        echo(&request),
        json!({
            "background": false, "frequency_penalty": 0.0, "instructions": null, "max_output_tokens": null,
            "max_tool_calls": null, "metadata": null, "parallel_tool_calls": true, "presence_penalty": 0.0,
            "previous_response_id": null, "prompt": null, "prompt_cache_key": null, "prompt_cache_options": null,
            "reasoning": {"effort": null, "summary": null}, "safety_identifier": null, "store": false,
            "temperature": 1.0, "text": {"format": {"type": "text"}, "verbosity": "medium"},
            "tool_choice": "auto", "tools": [], "top_logprobs": 0, "top_p": 1.0, "truncation": "disabled",
            "user": null,
        })
    );
}

#[test]
fn an_echo_repeats_what_was_set() {
    let members = json!({
        "frequency_penalty": 0.25, "instructions": "Be \"kind\".", "max_output_tokens": 7, "max_tool_calls": 4,
        "metadata": {"k": "v"}, "parallel_tool_calls": false, "presence_penalty": -0.5,
        "prompt_cache_key": "key", "prompt_cache_options": {"mode": "explicit"}, "safety_identifier": "s",
        "temperature": 0, "tool_choice": "none", "top_logprobs": 3, "top_p": 0.5, "truncation": "auto", "user": "u",
    });
    let request = accepted(&body_with(&members));
    let echo = echo(&request);
    for (name, value) in members.as_object().unwrap() {
        assert_eq!(&echo[name], value, "{name}");
    }
}

#[test]
fn an_echo_completes_what_strict_clients_need() {
    let request = accepted(&body_with(&json!({
        "reasoning": {"effort": "low", "context": "auto"},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
        "tools": [
            {"type": "function", "name": "bare"},
            {"type": "function", "name": "full", "description": "d", "parameters": {"type": "object"}, "strict": true},
            {"type": "function", "name": "nulls", "description": null, "parameters": null, "strict": null},
            {"type": "openrouter:datetime"},
        ],
    })));
    let echo = echo(&request);
    assert_eq!(echo["reasoning"], json!({"effort": "low", "context": "auto", "summary": null}));
    assert_eq!(
        echo["text"],
        json!({"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "description": null,
            "strict": false}, "verbosity": "medium"})
    );
    assert_eq!(
        echo["tools"],
        json!([
            {"type": "function", "name": "bare", "description": null, "parameters": null, "strict": null},
            {"type": "function", "name": "full", "description": "d", "parameters": {"type": "object"}, "strict": true},
            {"type": "function", "name": "nulls", "description": null, "parameters": null, "strict": null},
            {"type": "openrouter:datetime"},
        ])
    );
}

#[test]
fn an_echo_never_repeats_credentials_of_mcp_servers() {
    let tool = json!({"type": "mcp", "server_label": "l", "server_url": "https://a", "authorization": "secret",
        "headers": {"x-key": "secret"}});
    let request = accepted(&body_with(&json!({"tools": [tool]})));
    assert_eq!(
        echo(&request)["tools"],
        json!([{"type": "mcp", "server_label": "l", "server_url": "https://a"}])
    );
    assert_eq!(guest(&request)["tools"], json!([tool]));
}

#[test]
fn an_overridden_step_limit_is_not_echoed() {
    let request = accepted(&body_with(&json!({
        "max_tool_calls": "whatever", "stop_server_tools_when": [{"type": "step_count_is", "step_count": 2}],
    })));
    assert_eq!(echo(&request)["max_tool_calls"], json!(null));
    assert_eq!(request.max_tool_calls, None);
}

#[test]
fn a_turn_changes_items_and_tools_and_copies_the_rest() {
    let tools = json!([{"type": "function", "name": "f"}]);
    let full = accepted(&body_with(&json!({"tools": tools, "tool_choice": "auto", "temperature": 0.5})));
    let bare = accepted(&body_with(&json!({"temperature": 0.5})));
    let items =
        [Bytes::from_static(br#"{"type":"compaction"}"#), Bytes::from_static(br#"{"type":"agent_message"}"#)];
    let turn = GuestTurn { input: None, items: &items, tools: Some(b"[1]"), tool_choice: Some(b"\"none\"") };
    for request in [&full, &bare] {
        let written: Value = serde_json::from_slice(&request.guest_json_for(&turn)).unwrap();
        let mut expected = guest(request);
        expected["tools"] = json!([1]);
        expected["tool_choice"] = json!("none");
        let input = expected["input"].as_array_mut().unwrap();
        input.extend([json!({"type": "compaction"}), json!({"type": "agent_message"})]);
        assert_eq!(written, expected);
        assert_eq!(request.guest_json_for(&GuestTurn::default()), request.guest_json);
    }
    let told = br#"{"type":"agent_message"}"#;
    let replaced = GuestTurn { input: Some(told), items: &items[..1], ..GuestTurn::default() };
    let written: Value = serde_json::from_slice(&full.guest_json_for(&replaced)).unwrap();
    assert_eq!(written["input"], json!([{"type": "agent_message"}, {"type": "compaction"}]));
    assert_eq!(written["tools"], tools);
    let without = GuestTurn { tools: Some(b""), tool_choice: Some(b""), ..GuestTurn::default() };
    assert_eq!(full.guest_json_for(&without), bare.guest_json);
}

#[test]
fn the_opening_of_a_conversation_is_its_first_system_and_other_message() {
    let opening = |input: Value| -> Vec<Value> {
        let request = accepted(&json!({"model": "a/b", "input": input}));
        request.opening.iter().map(|message| serde_json::from_slice(message).unwrap()).collect()
    };
    let message = |role: &str, text: &str| json!({"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]});
    assert_eq!(opening(json!("Hi")), [message("user", "Hi")]);
    let input = json!([
        {"type": "reasoning", "summary": []}, message("user", "1"), {"role": "developer", "content": "2"},
        message("system", "3"), message("user", "4"),
    ]);
    assert_eq!(opening(input), [message("developer", "2"), message("user", "1")]);
}

#[test]
fn the_dropped_document_is_held_by_nothing_and_tools_of_providers_keep_their_json() {
    let mut request = accepted(&body_with(&json!({
        "input": [{"role": "developer", "content": "Be kind."}, {"role": "user", "content": "Hi"}],
        "tools": [{"type": "function", "name": "f"}, {"type": "web_search", "engine": "native"}],
        "tool_choice": "required",
    })));
    let document = request.guest_json.clone();
    assert!(!document.is_unique());
    request.drop_document();
    assert!(document.is_unique());
    let engines: Vec<_> = request.tools.iter().map(|tool| tool.engine()).collect();
    assert_eq!(engines, [None, Some("native".to_owned())]);
}
