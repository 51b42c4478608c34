//! The members that the engine reads as typed values.

use super::super::{Ability, RouteSetting, ServiceTier, StopCondition, TextFormat};
use super::{accepted, body_with};
use bytes::Bytes;
use serde_json::{Value, json};

#[test]
fn a_minimal_request_has_every_default() {
    let request = accepted(&body_with(&json!({})));
    assert_eq!(request.model.as_deref(), Some("meta/llama"));
    assert_eq!(request.models, ["meta/llama"]);
    assert!(!request.stream && !request.echo_upstream_body);
    assert_eq!((request.max_output_tokens, request.max_tool_calls), (None, None));
    assert!(
        request.stop_server_tools_when.is_empty() && request.tools.is_empty() && request.plugins.is_empty()
    );
    assert!(request.parallel_tool_calls && request.provider.allow_fallbacks);
    assert!(!request.provider.require_parameters && !request.provider.has_order);
    assert_eq!(request.provider.json.as_ref(), b"{}");
    assert_eq!(
        (request.service_tier, request.route, request.text_format),
        (ServiceTier::Auto, None, TextFormat::Text)
    );
    assert!(request.needs.is_empty() && request.parameters.is_empty() && request.metadata.is_empty());
    assert_eq!((request.session_id, request.prompt_cache_key, request.user), (None, None, None));
    assert_eq!((request.facts.all_chars, request.facts.last_user_chars, request.facts.turns), (2, 2, 1));
    assert_eq!(request.input_tokens, 1);
}

#[test]
fn candidates_are_model_then_models_without_repeats() {
    let request = accepted(&body_with(&json!({"models": ["b/b", "meta/llama", "c/c", "b/b"]})));
    assert_eq!(request.models, ["meta/llama", "b/b", "c/c"]);
}

#[test]
fn set_members_are_typed() {
    let request = accepted(&body_with(&json!({
        "stream": true, "debug": {"echo_upstream_body": true}, "max_output_tokens": 4_294_967_295_u32,
        "max_tool_calls": 30, "session_id": "s \u{e9}", "prompt_cache_key": "k", "user": "u", "route": "sort",
        "service_tier": "ultrafast", "metadata": {"b": "1", "a": "2"}, "trace": {"trace_id": "t", "mine": [1]},
        "parallel_tool_calls": false,
    })));
    assert!(request.stream && request.echo_upstream_body && !request.parallel_tool_calls);
    assert_eq!((request.max_output_tokens, request.max_tool_calls), (Some(u32::MAX), Some(30)));
    assert_eq!(request.session_id.as_deref(), Some("s é"));
    assert_eq!((request.route, request.service_tier), (Some(RouteSetting::Sort), ServiceTier::Ultrafast));
    assert_eq!(request.metadata, [("b".to_owned(), "1".to_owned()), ("a".to_owned(), "2".to_owned())]);
    assert_eq!(request.trace.unwrap().as_ref(), br#"{"trace_id":"t","mine":[1]}"#);
}

#[test]
fn the_upstream_body_is_echoed_only_into_streams() {
    let request = accepted(&body_with(&json!({"debug": {"echo_upstream_body": true}})));
    assert!(!request.echo_upstream_body);
}

#[test]
fn every_stop_condition_is_typed_and_overrides_the_step_limit() {
    let request = accepted(&body_with(&json!({
        "max_tool_calls": 99,
        "stop_server_tools_when": [
            {"type": "step_count_is", "step_count": 3},
            {"type": "has_tool_call", "tool_name": "t"},
            {"type": "max_tokens_used", "max_tokens": 9_000_000_000_u64},
            {"type": "max_cost", "max_cost_in_dollars": 0.5},
            {"type": "finish_reason_is", "reason": "length"},
        ],
    })));
    assert_eq!(request.max_tool_calls, None);
    assert_eq!(
        request.stop_server_tools_when,
        [
            StopCondition::StepCountIs { step_count: 3 },
            StopCondition::HasToolCall { tool_name: "t".to_owned() },
            StopCondition::MaxTokensUsed { max_tokens: 9_000_000_000 },
            StopCondition::MaxCost { max_cost_in_dollars: 0.5 },
            StopCondition::FinishReasonIs { reason: "length".to_owned() },
        ]
    );
}

#[test]
fn needs_follow_from_input_tools_and_settings() {
    let part = |part: Value| json!({"input": [{"role": "user", "content": [part]}]});
    let schema = json!({"format": {"type": "json_schema", "name": "n", "schema": {}}});
    let table = [
        (json!({"tools": [{"type": "service:datetime"}]}), vec![Ability::Tools]),
        (part(json!({"type": "input_image", "image_url": "u"})), vec![Ability::Images]),
        (part(json!({"type": "input_file", "file_id": "f"})), vec![Ability::Files]),
        (
            part(json!({"type": "input_audio", "input_audio": {"data": "A", "format": "wav"}})),
            vec![Ability::Audio],
        ),
        (part(json!({"type": "input_video", "video_url": "u"})), vec![Ability::Video]),
        (
            json!({"input": [{"type": "function_call_output", "call_id": "c",
                "output": [{"type": "input_image", "image_url": "u"}]}]}),
            vec![Ability::Images],
        ),
        (json!({"text": schema}), vec![Ability::StructuredOutput]),
        (json!({"text": {"format": {"type": "json_object"}}}), vec![]),
        (json!({"reasoning": {"effort": "low"}}), vec![Ability::Reasoning]),
        (json!({"reasoning": {"enabled": true}}), vec![Ability::Reasoning]),
        (json!({"reasoning": {"max_tokens": 100}}), vec![Ability::Reasoning]),
        (json!({"reasoning": {"effort": "none"}}), vec![]),
        (json!({"reasoning": {"effort": "high", "enabled": false}}), vec![]),
        (json!({"modalities": ["text", "image"]}), vec![Ability::ImageOutput]),
        (json!({"tools": [], "modalities": ["text"]}), vec![]),
        (
            json!({"modalities": ["image"], "text": schema, "tools": [{"type": "shell"}]}),
            vec![Ability::Tools, Ability::StructuredOutput, Ability::ImageOutput],
        ),
    ];
    for (members, needs) in table {
        assert_eq!(accepted(&body_with(&members)).needs, needs, "{members}");
    }
    assert_eq!(Ability::StructuredOutput.as_str(), "structured_output");
}

#[test]
fn parameters_are_the_generation_settings_that_were_set() {
    let request = accepted(&body_with(&json!({
        "temperature": 0, "top_k": 1, "text": {"format": {"type": "text"}}, "user": "u", "session_id": "s",
        "metadata": {}, "tool_choice": "auto", "reasoning": {"effort": null},
    })));
    assert_eq!(request.parameters, ["temperature", "top_k", "tool_choice"]);
    let request =
        accepted(&body_with(&json!({"text": {"verbosity": "low"}, "reasoning": {"effort": "low"}})));
    assert_eq!(request.parameters, ["text", "reasoning"]);
}

#[test]
fn marks_on_content_parts_are_parameters_too() {
    let mark = json!({"type": "input_text", "text": "t", "cache_control": {"type": "ephemeral"}});
    let breakpoint =
        json!({"type": "input_image", "image_url": "u", "prompt_cache_breakpoint": {"mode": "explicit"}});
    let plain = json!({"type": "input_text", "text": "t", "cache_control": null});
    let message = |part: &Value| json!({"input": [{"role": "user", "content": [part]}]});
    let output = json!({"input": [{"type": "function_call_output", "call_id": "c", "output": [mark]}]});
    let table = [
        (message(&mark), vec!["cache_control"]),
        (message(&breakpoint), vec!["prompt_cache_options"]),
        (output, vec!["cache_control"]),
        (message(&plain), vec![]),
    ];
    for (members, parameters) in table {
        assert_eq!(accepted(&body_with(&members)).parameters, parameters, "{members}");
    }
}

#[test]
fn provider_preferences_are_read_and_kept() {
    let provider = json!({
        "order": ["openai/priority"], "only": null, "ignore": ["a"], "allow_fallbacks": false,
        "require_parameters": true, "data_collection": "deny", "zdr": true, "enforce_distillable_text": false,
        "quantizations": ["fp8", "unknown"], "sort": {"by": "price", "partition": "none"},
        "max_price": {"prompt": "0.5", "completion": 2}, "preferred_min_throughput": 50,
        "preferred_max_latency": {"p90": 2.5}, "options": {"openai": {"a": [1]}, "b c": {}}, "later": 1,
    });
    let preferences = accepted(&body_with(&json!({"provider": provider}))).provider;
    assert!(!preferences.allow_fallbacks && preferences.require_parameters && preferences.has_order);
    assert_eq!(serde_json::from_slice::<Value>(&preferences.json).unwrap(), provider);
    assert_eq!(
        preferences.options,
        [("openai".to_owned(), vec![("a".to_owned(), Bytes::from("[1]"))]), ("b c".to_owned(), Vec::new())]
    );
    assert_eq!(preferences.options_for("OpenAI"), Some(&vec![("a".to_owned(), Bytes::from("[1]"))]));
    assert_eq!(preferences.options_for("other"), None);
    let sorted = accepted(&body_with(&json!({"provider": {"sort": "latency", "order": []}}))).provider;
    assert!(sorted.allow_fallbacks && !sorted.has_order);
}
