//! What each dialect does with each field, through the whole host. The tests of the guests cover
//! more cases.

use crate::kit::client::Client;
use crate::kit::config::{MODEL, provider};
use crate::kit::host::{Host, Setup};
use crate::kit::script;
use crate::kit::upstream::{Reply, Upstream};
use serde_json::{Value, json};

/// A model at one provider whose endpoint lists these abilities.
async fn host(adapter: &str, upstream_model: &str, supports: &[&str]) -> (Upstream, Host) {
    let upstream = Upstream::start().await;
    let model = format!(
        "[[models]]\nid = \"{MODEL}\"\nendpoints = [{{ provider = \"one\", model = \"{upstream_model}\", \
         supports = {supports:?} }}]\n"
    );
    let host = Setup::new().config(&(provider("one", adapter, &upstream.base) + &model)).start();
    (upstream, host)
}

/// Sends the members of each row and compares the provider's request at JSON pointers; null means
/// that the field must be absent.
async fn check(upstream: &Upstream, host: &Host, reply: fn() -> Reply, rows: &[(Value, &[(&str, Value)])]) {
    let client = Client::new(host);
    for (members, expected) in rows {
        let mut request = json!({"model": MODEL, "input": "x"});
        for (name, value) in members.as_object().unwrap() {
            request[name] = value.clone();
        }
        let before = upstream.asked().len();
        upstream.reply(reply());
        let answer = client.post("/responses", &request).await;
        assert_eq!(answer.status, 200, "{members}: {}", answer.text);
        let sent = &upstream.asked()[before].body;
        for (pointer, value) in *expected {
            assert_eq!(sent.pointer(pointer).unwrap_or(&Value::Null), value, "{members} {pointer}: {sent}");
        }
    }
}

fn responses() -> Reply {
    script::response(&json!([script::message("ok")]))
}

fn chat() -> Reply {
    script::chat("ok")
}

fn anthropic() -> Reply {
    script::anthropic(&json!([{"type": "text", "text": "ok"}]), "end_turn")
}

fn schema() -> Value {
    json!({"format": {"type": "json_schema", "name": "n", "schema": {"type": "object", "properties": {}, "additionalProperties": false}, "strict": true}})
}

fn function() -> Value {
    json!([{"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}])
}

/// An input whose only part has a cache breakpoint.
fn marked() -> Value {
    let mark = json!({"mode": "explicit", "ttl": "30m"});
    json!([{"role": "user", "content": [{"type": "input_text", "text": "x", "prompt_cache_breakpoint": mark}]}])
}

#[tokio::test]
async fn the_responses_dialect_passes_most_fields_on() {
    let (upstream, host) = host("openai-responses", "up", &["top_k"]).await;
    let rows: &[(Value, &[(&str, Value)])] = &[
        (
            json!({"prompt_cache_key": "k", "prompt_cache_options": {"mode": "explicit", "ttl": "12h"}}),
            &[
                ("/prompt_cache_key", json!("k")),
                ("/prompt_cache_options", json!({"mode": "explicit", "ttl": "12h"})),
            ],
        ),
        (
            json!({"input": marked()}),
            &[("/input/0/content/0/prompt_cache_breakpoint", json!({"mode": "explicit", "ttl": "30m"}))],
        ),
        (
            json!({"reasoning": {"effort": "xhigh", "summary": "auto", "context": "all_turns", "mode": "pro"}}),
            &[(
                "/reasoning",
                json!({"effort": "xhigh", "summary": "auto", "context": "all_turns", "mode": "pro"}),
            )],
        ),
        (
            json!({"text": schema()}),
            &[("/text/format/type", json!("json_schema")), ("/text/format/strict", json!(true))],
        ),
        (json!({"text": {"verbosity": "max"}}), &[("/text/verbosity", json!("high"))]),
        (
            json!({"include": ["reasoning.encrypted_content"], "truncation": "auto", "top_logprobs": 2, "top_k": 5}),
            &[
                ("/include", json!(["reasoning.encrypted_content"])),
                ("/truncation", json!("auto")),
                ("/top_logprobs", json!(2)),
                ("/top_k", json!(5)),
            ],
        ),
        (
            json!({"safety_identifier": "s", "user": "u", "metadata": {"a": "b"}}),
            &[("/safety_identifier", json!("s")), ("/user", json!("u")), ("/metadata", json!({"a": "b"}))],
        ),
        (
            json!({"tools": function(), "parallel_tool_calls": false, "service_tier": "default"}),
            &[("/parallel_tool_calls", json!(false)), ("/service_tier", json!("default"))],
        ),
        (
            json!({"cache_control": {"type": "ephemeral"}, "image_config": {"n": 1}, "modalities": ["text"],
                   "trace": {"trace_id": "t"}, "session_id": "s", "debug": {"echo_upstream_body": true},
                   "route": "sort", "store": null, "background": false}),
            &[
                ("/cache_control", Value::Null),
                ("/image_config", Value::Null),
                ("/modalities", Value::Null),
                ("/trace", Value::Null),
                ("/session_id", Value::Null),
                ("/debug", Value::Null),
                ("/route", Value::Null),
                ("/store", json!(false)),
                ("/background", Value::Null),
            ],
        ),
    ];
    check(&upstream, &host, responses, rows).await;
}

#[tokio::test]
async fn the_chat_dialect_sends_the_fields_of_chat_completions() {
    let able = [
        "top_k",
        "prompt_cache_key",
        "safety_identifier",
        "image_output",
        "max_completion_tokens",
        "custom_tools",
        "tools",
    ];
    let (upstream, host) = host("openai-chat", "up", &able).await;
    let rows: &[(Value, &[(&str, Value)])] = &[
        (json!({"reasoning": {"effort": "high"}}), &[("/reasoning_effort", json!("high"))]),
        (json!({"reasoning": {"enabled": false}}), &[("/reasoning_effort", json!("none"))]),
        (
            json!({"tools": [{"type": "custom", "name": "c"}]}),
            &[("/tools/0", json!({"type": "custom", "custom": {"name": "c"}}))],
        ),
        (
            json!({"text": schema()}),
            &[
                ("/response_format/type", json!("json_schema")),
                ("/response_format/json_schema/name", json!("n")),
            ],
        ),
        (json!({"text": {"verbosity": "low"}}), &[("/verbosity", json!("low"))]),
        (
            json!({"include": ["message.output_text.logprobs"], "top_logprobs": 2, "top_k": 5}),
            &[("/logprobs", json!(true)), ("/top_logprobs", json!(2)), ("/top_k", json!(5))],
        ),
        (
            json!({"safety_identifier": "s", "user": "u", "prompt_cache_key": "k", "modalities": ["text", "image"]}),
            &[
                ("/safety_identifier", json!("s")),
                ("/user", json!("u")),
                ("/prompt_cache_key", json!("k")),
                ("/modalities", json!(["text", "image"])),
            ],
        ),
        (
            json!({"tools": function(), "parallel_tool_calls": false, "max_output_tokens": 9}),
            &[("/parallel_tool_calls", json!(false)), ("/max_completion_tokens", json!(9))],
        ),
        (
            json!({"metadata": {"a": "b"}, "cache_control": {"type": "ephemeral"}, "input": marked(),
                   "prompt_cache_options": {"mode": "explicit"}, "trace": {"a": 1}, "session_id": "s"}),
            &[
                ("/metadata", Value::Null),
                ("/cache_control", Value::Null),
                ("/prompt_cache_options", Value::Null),
                ("/trace", Value::Null),
                ("/session_id", Value::Null),
                ("/messages/0", json!({"role": "user", "content": "x"})),
            ],
        ),
    ];
    check(&upstream, &host, chat, rows).await;
}

#[tokio::test]
async fn anthropics_dialect_translates_fields() {
    let (upstream, host) = host("anthropic", "claude-sonnet-4-6", &[]).await;
    let rows: &[(Value, &[(&str, Value)])] = &[
        (
            json!({"cache_control": {"type": "ephemeral", "ttl": "1h"}}),
            &[("/cache_control", json!({"type": "ephemeral", "ttl": "1h"}))],
        ),
        (
            json!({"input": marked(), "prompt_cache_options": {"mode": "explicit"}, "cache_control": {"type": "ephemeral"}}),
            &[
                ("/cache_control", Value::Null),
                ("/messages/0/content/0/cache_control", json!({"type": "ephemeral", "ttl": "1h"})),
            ],
        ),
        (
            json!({"reasoning": {"effort": "max"}}),
            &[("/thinking/type", json!("adaptive")), ("/output_config/effort", json!("max"))],
        ),
        (
            json!({"reasoning": {"max_tokens": 2000}, "max_output_tokens": 9000}),
            &[("/thinking", json!({"type": "enabled", "budget_tokens": 2000}))],
        ),
        (json!({"text": schema()}), &[("/output_config/format/type", json!("json_schema"))]),
        (
            json!({"safety_identifier": "s", "user": "u", "top_k": 5, "service_tier": "default"}),
            &[
                ("/metadata", json!({"user_id": "s"})),
                ("/top_k", json!(5)),
                ("/service_tier", json!("standard_only")),
            ],
        ),
        (
            json!({"tools": function(), "parallel_tool_calls": false}),
            &[("/tool_choice/disable_parallel_tool_use", json!(true))],
        ),
        (
            json!({"metadata": {"a": "b"}, "top_logprobs": 2, "prompt_cache_key": "k", "trace": {"a": 1},
                   "include": ["reasoning.encrypted_content"], "truncation": "disabled", "text": {"verbosity": "low"}}),
            &[
                ("/metadata", Value::Null),
                ("/top_logprobs", Value::Null),
                ("/prompt_cache_key", Value::Null),
                ("/trace", Value::Null),
                ("/include", Value::Null),
                ("/truncation", Value::Null),
                ("/text", Value::Null),
            ],
        ),
    ];
    check(&upstream, &host, anthropic, rows).await;
}

#[tokio::test]
async fn embeddings_pass_only_the_providers_fields() {
    let upstream = Upstream::start().await;
    let models = ["test/plain", "test/typed"].map(|id| {
        let supports = if id == "test/typed" { "\"input_type\"" } else { "" };
        format!(
            "[[models]]\nid = \"{id}\"\nkind = \"embeddings\"\n\
             endpoints = [{{ provider = \"one\", model = \"up\", supports = [{supports}] }}]\n"
        )
    });
    let config = provider("one", "openai-chat", &upstream.base) + &models.concat();
    let host = Setup::new().config(&config).start();
    let client = Client::new(&host);
    for (model, input_type) in [("test/plain", Value::Null), ("test/typed", json!("search_query"))] {
        let before = upstream.asked().len();
        let row = json!({"index": 0, "embedding": [1.0, 2.0]});
        upstream.reply(Reply::json(
            200,
            json!({"data": [row], "usage": {"prompt_tokens": 1, "total_tokens": 1}}),
        ));
        let request = json!({
            "model": model, "input": "x", "dimensions": 2, "encoding_format": "float", "user": "u",
            "input_type": "search_query", "session_id": "s", "trace": {"trace_id": "t"},
            "provider": {"allow_fallbacks": false},
        });
        let answer = client.post("/embeddings", &request).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let sent = &upstream.asked()[before].body;
        let mut expected =
            json!({"model": "up", "input": ["x"], "dimensions": 2, "encoding_format": "float", "user": "u"});
        if !input_type.is_null() {
            expected["input_type"] = input_type;
        }
        assert_eq!(sent, &expected);
    }
}
