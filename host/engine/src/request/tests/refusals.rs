//! Members of the body: each rule has a refusal, with its path.

use super::{accepted, body_with, parse_text, refused};
use serde_json::{Value, json};

#[test]
fn members_out_of_range_are_refused_by_path() {
    let table = [
        (json!({"model": ""}), "model must not be empty"),
        (json!({"model": 5}), "model must be a string, not a number"),
        (json!({"model": "m".repeat(257)}), "model must have at most 256 characters"),
        (json!({"models": vec!["a"; 33]}), "models must hold at most 32 elements"),
        (json!({"models": ["a", 1]}), "models[1] must be a string, not a number"),
        (json!({"stream": "true"}), "stream must be a boolean, not a string"),
        (json!({"instructions": ["x"]}), "instructions must be a string, not an array"),
        (json!({"max_output_tokens": 0}), "max_output_tokens must be an integer of at least 1"),
        (json!({"max_output_tokens": -5}), "max_output_tokens must be an integer of at least 1"),
        (
            json!({"max_output_tokens": 1.5}),
            "max_output_tokens must be an integer, without fraction or exponent",
        ),
        (json!({"max_output_tokens": "9"}), "max_output_tokens must be an integer, not a string"),
        (json!({"temperature": 2.1}), "temperature must be a number from 0 to 2"),
        (json!({"temperature": -0.1}), "temperature must be a number from 0 to 2"),
        (json!({"temperature": "hot"}), "temperature must be a number, not a string"),
        (json!({"top_p": 1.01}), "top_p must be a number from 0 to 1"),
        (json!({"top_k": -1}), "top_k must be an integer of at least 0"),
        (json!({"frequency_penalty": 2.5}), "frequency_penalty must be a number from -2 to 2"),
        (json!({"presence_penalty": -2.5}), "presence_penalty must be a number from -2 to 2"),
        (json!({"top_logprobs": 21}), "top_logprobs must be an integer from 0 to 20"),
        (json!({"parallel_tool_calls": 1}), "parallel_tool_calls must be a boolean, not a number"),
        (json!({"max_tool_calls": 31}), "max_tool_calls must be an integer from 1 to 30"),
        (json!({"max_tool_calls": 0}), "max_tool_calls must be an integer from 1 to 30"),
        (json!({"max_tool_calls": true}), "max_tool_calls must be an integer, not a boolean"),
        (
            json!({"service_tier": "slow"}),
            "service_tier must be one of auto, default, fast, flex, priority, scale, ultrafast",
        ),
    ];
    for (members, message) in table {
        assert_eq!(refused(&body_with(&members)), message);
    }
}

#[test]
fn faulty_names_and_options_are_refused_by_path() {
    let table = [
        (json!({"user": "u".repeat(257)}), "user must have at most 256 characters"),
        (json!({"session_id": "é".repeat(257)}), "session_id must have at most 256 characters"),
        (json!({"session_id": 1}), "session_id must be a string, not a number"),
        (json!({"prompt_cache_key": {}}), "prompt_cache_key must be a string, not an object"),
        (json!({"safety_identifier": []}), "safety_identifier must be a string, not an array"),
        (json!({"truncation": "middle"}), "truncation must be one of auto, disabled"),
        (json!({"modalities": ["text", "smell"]}), "modalities[1] must be one of text, image"),
        (
            json!({"image_config": {"a": true}}),
            "image_config.a must be a string or a number or an array, not a boolean",
        ),
        (json!({"route": "direct"}), "route must be one of fallback, sort"),
        (json!({"trace": "t"}), "trace must be an object, not a string"),
        (json!({"trace": {"trace_id": 5}}), "trace.trace_id must be a string, not a number"),
        (
            json!({"debug": {"echo_upstream_body": "yes"}}),
            "debug.echo_upstream_body must be a boolean, not a string",
        ),
        (json!({"cache_control": {"type": "eternal"}}), "cache_control.type must be one of ephemeral"),
        (
            json!({"cache_control": {"type": "ephemeral", "ttl": "2h"}}),
            "cache_control.ttl must be one of 5m, 1h",
        ),
        (json!({"prompt_cache_options": {"ttl": "5m"}}), "prompt_cache_options.ttl must be one of 30m, 12h"),
        (json!({"trace": {"mine": "t".repeat(16 << 10)}}), "trace must take at most 16384 bytes"),
        (json!({"cache_control": {}}), "cache_control.type is required"),
        (
            json!({"prompt_cache_options": {"mode": "on"}}),
            "prompt_cache_options.mode must be one of explicit, implicit",
        ),
        (json!({"prompt": {"variables": {}}}), "prompt.id is required"),
        (
            json!({"prompt": {"id": "p", "variables": {"v": {"type": "input_audio"}}}}),
            "prompt.variables.v.type names an unknown prompt variable type: \"input_audio\"",
        ),
        (
            json!({"include": ["everything"]}),
            "include[0] must be one of file_search_call.results, \
            message.input_image.image_url, computer_call_output.output.image_url, reasoning.encrypted_content, \
            code_interpreter_call.outputs, message.output_text.logprobs, web_search_call.results, \
            web_search_call.action.sources",
        ),
    ];
    for (members, message) in table {
        assert_eq!(refused(&body_with(&members)), message);
    }
}

#[test]
fn faulty_reasoning_text_and_input_are_refused_by_path() {
    let table = [
        (
            json!({"reasoning": {"effort": "extreme"}}),
            "reasoning.effort must be one of none, minimal, low, medium, high, xhigh, max",
        ),
        (
            json!({"reasoning": {"summary": "long"}}),
            "reasoning.summary must be one of auto, concise, detailed",
        ),
        (json!({"reasoning": {"enabled": 1}}), "reasoning.enabled must be a boolean, not a number"),
        (json!({"reasoning": {"max_tokens": -1}}), "reasoning.max_tokens must be an integer of at least 0"),
        (
            json!({"reasoning": {"context": "none"}}),
            "reasoning.context must be one of auto, all_turns, current_turn",
        ),
        (json!({"reasoning": {"mode": "amateur"}}), "reasoning.mode must be one of standard, pro"),
        (
            json!({"text": {"verbosity": "loud"}}),
            "text.verbosity must be one of low, medium, high, xhigh, max",
        ),
        (
            json!({"text": {"format": {"type": "xml"}}}),
            "text.format.type names an unknown text format: \"xml\"",
        ),
        (json!({"text": {"format": {"type": "json_schema", "schema": {}}}}), "text.format.name is required"),
        (json!({"text": {"format": {"type": "json_schema", "name": "n"}}}), "text.format.schema is required"),
        (json!({"input": 5}), "input must be a string or an array, not a number"),
        (json!({"input": []}), "input must hold at least 1 item"),
        (json!({"input": null}), "input is required"),
        (json!({"model": null}), "model is required, or models with at least 1 model"),
        (json!({"model": null, "models": []}), "model is required, or models with at least 1 model"),
    ];
    for (members, message) in table {
        assert_eq!(refused(&body_with(&members)), message);
    }
}

#[test]
fn members_that_need_stored_responses_are_refused_with_the_reason() {
    let table = [
        (json!({"store": true}), "store must be false: this service stores no responses"),
        (json!({"store": "false"}), "store must be a boolean, not a string"),
        (
            json!({"background": true}),
            "background must be false: a background response would have to be stored, \
            and this service stores none",
        ),
        (
            json!({"previous_response_id": "resp_1"}),
            "previous_response_id must be null: this service stores no \
            responses, send the whole conversation in input",
        ),
    ];
    for (members, message) in table {
        assert_eq!(refused(&body_with(&members)), message);
    }
    accepted(&body_with(&json!({"store": false, "background": false, "previous_response_id": null})));
    accepted(&body_with(&json!({"store": null, "background": null})));
}

#[test]
fn metadata_is_bounded() {
    let pairs = |count: usize| -> Value { (0..count).map(|n| (format!("k{n}"), json!("v"))).collect() };
    accepted(&body_with(&json!({"metadata": pairs(16)})));
    accepted(&body_with(&json!({"metadata": {"é".repeat(64): "ü".repeat(512)}})));
    let long = "k".repeat(65);
    let table = [
        (json!({"metadata": pairs(17)}), "metadata must hold at most 16 pairs".to_owned()),
        (
            json!({"metadata": {(long.as_str()): "v"}}),
            format!("metadata.{}… has a key of more than 64 characters", "k".repeat(64)),
        ),
        (json!({"metadata": {"a[0]": "v"}}), "metadata[\"a[0]\"] has a key with brackets".to_owned()),
        (
            json!({"metadata": {"a": "v".repeat(513)}}),
            "metadata.a must have at most 512 characters".to_owned(),
        ),
        (json!({"metadata": {"a": 1}}), "metadata.a must be a string, not a number".to_owned()),
        (json!({"metadata": {"a": null}}), "metadata.a must be a string, not null".to_owned()),
        (json!({"metadata": []}), "metadata must be an object, not an array".to_owned()),
    ];
    for (members, message) in table {
        assert_eq!(refused(&body_with(&members)), message);
    }
}

#[test]
fn stop_conditions_are_checked() {
    let table = [
        (json!([]), "stop_server_tools_when must hold at least 1 element"),
        (json!({}), "stop_server_tools_when must be an array, not an object"),
        (json!([{"type": "step_count_is"}]), "stop_server_tools_when[0].step_count is required"),
        (
            json!([{"type": "step_count_is", "step_count": 0}]),
            "stop_server_tools_when[0].step_count must be an integer of at least 1",
        ),
        (
            json!([{"type": "has_tool_call", "tool_name": ""}]),
            "stop_server_tools_when[0].tool_name must not be empty",
        ),
        (
            json!([{"type": "max_tokens_used", "max_tokens": "5"}]),
            "stop_server_tools_when[0].max_tokens must be an integer, not a string",
        ),
        (
            json!([{"type": "max_cost", "max_cost_in_dollars": -1}]),
            "stop_server_tools_when[0].max_cost_in_dollars must be a number of at least 0",
        ),
        (json!([{"type": "finish_reason_is"}]), "stop_server_tools_when[0].reason is required"),
        (
            json!([{"type": "bored"}]),
            "stop_server_tools_when[0].type names an unknown stop condition: \"bored\"",
        ),
    ];
    for (conditions, message) in table {
        assert_eq!(refused(&body_with(&json!({"stop_server_tools_when": conditions}))), message);
    }
}

#[test]
fn provider_preferences_are_checked_deeply() {
    let table = [
        (json!([]), "provider must be an object, not an array"),
        (json!({"order": "openai"}), "provider.order must be an array, not a string"),
        (json!({"only": [1]}), "provider.only[0] must be a string, not a number"),
        (json!({"ignore": [""]}), "provider.ignore[0] must not be empty"),
        (json!({"allow_fallbacks": "no"}), "provider.allow_fallbacks must be a boolean, not a string"),
        (json!({"require_parameters": 0}), "provider.require_parameters must be a boolean, not a number"),
        (json!({"data_collection": "ask"}), "provider.data_collection must be one of allow, deny"),
        (json!({"zdr": "x"}), "provider.zdr must be a boolean, not a string"),
        (
            json!({"quantizations": ["int3"]}),
            "provider.quantizations[0] must be one of int4, int8, fp4, mxfp4, nvfp4, \
            fp6, fp8, mxfp8, fp16, bf16, fp32, unknown",
        ),
        (json!({"sort": "size"}), "provider.sort must be one of price, throughput, latency, exacto"),
        (json!({"sort": 1}), "provider.sort must be a string or an object, not a number"),
        (
            json!({"sort": {"by": "price", "partition": "all"}}),
            "provider.sort.partition must be one of model, none",
        ),
        (
            json!({"max_price": {"prompt": -1}}),
            "provider.max_price.prompt must be an amount of dollars, at least 0",
        ),
        (
            json!({"max_price": {"image": "cheap"}}),
            "provider.max_price.image must be an amount of dollars, at least 0",
        ),
        (
            json!({"max_price": {"audio": "inf"}}),
            "provider.max_price.audio must be an amount of dollars, at least 0",
        ),
        (
            json!({"max_price": {"request": true}}),
            "provider.max_price.request must be a number or a numeric string, not a boolean",
        ),
        (
            json!({"preferred_min_throughput": "fast"}),
            "provider.preferred_min_throughput must be a number or an object, not a string",
        ),
        (
            json!({"preferred_max_latency": {"p90": -1}}),
            "provider.preferred_max_latency.p90 must be a number of at least 0",
        ),
        (json!({"options": {"openai": 1}}), "provider.options.openai must be an object, not a number"),
    ];
    for (provider, message) in table {
        assert_eq!(refused(&body_with(&json!({"provider": provider}))), message);
    }
}

#[test]
fn messages_never_quote_values() {
    let secret = "sk-very-secret";
    for name in [
        "stream",
        "max_output_tokens",
        "temperature",
        "service_tier",
        "text",
        "reasoning",
        "include",
        "truncation",
        "modalities",
        "metadata",
        "provider",
        "plugins",
        "trace",
        "debug",
        "cache_control",
        "prompt",
        "tools",
        "tool_choice",
        "max_tool_calls",
        "stop_server_tools_when",
        "store",
        "background",
        "previous_response_id",
        "parallel_tool_calls",
        "route",
    ] {
        assert!(!refused(&body_with(&json!({name: secret}))).contains(secret), "{name}");
    }
}

#[test]
fn nesting_bombs_are_refused_inside_any_member() {
    for member in ["input", "tools", "metadata", "trace", "unknown"] {
        let bomb = format!(r#"{{"model":"a","{member}":{}"#, "[{\"a\":".repeat(50_000));
        let message = parse_text(&bomb).unwrap_err().to_string();
        assert!(message.contains("nested deeper than 64 containers"), "{message}");
    }
}

#[test]
fn duplicate_keys_are_refused_inside_any_member() {
    let table = [
        (r#"{"model":"a","input":"x","model":"b"}"#, "model is given twice"),
        (
            r#"{"model":"a","input":[{"role":"user","content":"x","role":"system"}]}"#,
            "input[0].role is given twice",
        ),
        (
            r#"{"model":"a","input":[{"role":"user","content":[{"type":"input_text","text":"a","te\u0078t":"b"}]}]}"#,
            "input[0].content[0].text is given twice",
        ),
        (
            r#"{"model":"a","input":"x","tools":[{"type":"function","name":"f","parameters":{"a":{"b":1,"b":2}}}]}"#,
            "tools[0].parameters.a.b is given twice",
        ),
        (
            r#"{"model":"a","input":"x","unknown":{"deep":[{"k":1,"k":1}]}}"#,
            "unknown.deep[0].k is given twice",
        ),
    ];
    for (body, message) in table {
        assert_eq!(parse_text(body).unwrap_err().to_string(), message);
    }
}
