//! The response object repeats the request's settings and reports what served it.

use crate::kit::client::{Client, last_response};
use crate::kit::config::{MODEL, single};
use crate::kit::host::Setup;
use crate::kit::script;
use crate::kit::upstream::{Reply, Upstream};
use serde_json::{Value, json};

#[tokio::test]
async fn every_setting_is_repeated_in_the_response() {
    let upstream = Upstream::start().await;
    let host = Setup::new().config(&single("openai-responses", &upstream.base)).start();
    let asked = json!({
        "metadata": {"k": "v"}, "prompt_cache_key": "key", "safety_identifier": "s-1", "user": "u-1",
        "prompt_cache_options": {"mode": "explicit", "ttl": "30m"}, "truncation": "auto", "top_logprobs": 2,
        "reasoning": {"effort": "low", "summary": "auto"}, "parallel_tool_calls": false, "max_tool_calls": 3,
        "text": {"format": {"type": "text"}, "verbosity": "low"}, "instructions": "Be brief.",
    });
    let mut request = json!({"model": MODEL, "input": "x", "service_tier": "flex", "store": false});
    for (name, value) in asked.as_object().unwrap() {
        request[name] = value.clone();
    }
    upstream.reply(script::response(&json!([script::message("Hi")])));
    let answer = Client::new(&host).post("/responses", &request).await;
    for (name, value) in asked.as_object().unwrap() {
        assert_eq!(&answer.body[name], value, "{name}");
    }
    // The tier that served the request, not the requested one.
    assert_eq!(answer.body["service_tier"], "default");
    for (name, value) in [
        ("background", json!(false)),
        ("store", json!(false)),
        ("previous_response_id", Value::Null),
        ("prompt", Value::Null),
        ("error", Value::Null),
    ] {
        assert_eq!(answer.body[name], value, "{name}");
    }
    let usage = &answer.body["usage"];
    assert_eq!(usage["input_tokens_details"], json!({"cached_tokens": 40, "cache_write_tokens": 0}));
    assert_eq!(usage["is_byok"], json!(false));
    for name in ["upstream_inference_cost", "upstream_inference_input_cost", "upstream_inference_output_cost"]
    {
        assert!(usage["cost_details"].get(name).is_some(), "{name}");
    }
    let sent = upstream.asked_once().body;
    for name in
        ["prompt_cache_key", "prompt_cache_options", "safety_identifier", "user", "metadata", "truncation"]
    {
        assert_eq!(sent[name], asked[name], "{name}");
    }
}

#[tokio::test]
async fn a_failed_stream_has_the_error_codes_of_both_apis() {
    let upstream = Upstream::start().await;
    let host = Setup::new().config(&single("openai-chat", &upstream.base)).start();
    upstream.reply(Reply::cut(&[script::opening(), script::word("half")]));
    let events = Client::new(&host).stream(&json!({"model": MODEL, "input": "x"})).await;
    let response = last_response(&events);
    assert_eq!(response["status"], "failed");
    assert_eq!(response["error"]["code"], "server_error");
    assert_eq!(response["error_type"], "provider_unavailable");
}
