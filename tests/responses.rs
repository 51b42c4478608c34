//! Responses that are not streamed: what the client gets, and what the provider received.

mod dialects;
mod metadata;
mod texts;
mod usage;

use crate::kit::client::{Client, last_response, text_of};
use crate::kit::config::{MODEL, provider, several, single};
use crate::kit::host::Setup;
use crate::kit::script;
use crate::kit::upstream::Upstream;
use serde_json::{Value, json};

#[tokio::test]
async fn a_string_and_a_list_of_messages_are_answered() {
    let host = Setup::new().start();
    let client = Client::new(&host);
    let text = client.post("/responses", &json!({"model": "local/demo", "input": "good morning"})).await;
    assert_eq!(text.status, 200, "{}", text.text);
    assert!(text.output_text().contains("good morning"), "{}", text.text);
    let list = json!([
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "good evening"}]}
    ]);
    let list = client.post("/responses", &json!({"model": "local/demo", "input": list})).await;
    assert!(list.output_text().contains("good evening"), "{}", list.text);
}

#[tokio::test]
async fn a_response_has_every_field_strict_clients_require() {
    let host = Setup::new().start();
    let answer = Client::new(&host).post("/responses", &json!({"model": "local/demo", "input": "hi"})).await;
    let body = answer.body;
    for (member, expected) in [
        ("object", json!("response")),
        ("status", json!("completed")),
        ("error", Value::Null),
        ("incomplete_details", Value::Null),
        ("instructions", Value::Null),
        ("max_output_tokens", Value::Null),
        ("metadata", Value::Null),
        ("model", json!("local/demo")),
        ("parallel_tool_calls", json!(true)),
        ("temperature", json!(1.0)),
        ("top_p", json!(1.0)),
        ("presence_penalty", json!(0.0)),
        ("frequency_penalty", json!(0.0)),
        ("top_logprobs", json!(0)),
        ("tool_choice", json!("auto")),
        ("tools", json!([])),
        ("truncation", json!("disabled")),
        ("store", json!(false)),
        ("background", json!(false)),
        ("previous_response_id", Value::Null),
        ("service_tier", json!("default")),
        ("text", json!({"format": {"type": "text"}, "verbosity": "medium"})),
        ("reasoning", json!({"effort": null, "summary": null})),
    ] {
        assert_eq!(body.get(member), Some(&expected), "{member}");
    }
    assert!(body["id"].as_str().unwrap().starts_with("resp_"));
    assert!(body["created_at"].as_u64().unwrap() <= body["completed_at"].as_u64().unwrap());
    assert!(body.get("service_metadata").is_none() && body.get("openrouter_metadata").is_none());
    let message = &body["output"][0];
    assert_eq!((&message["role"], &message["status"]), (&json!("assistant"), &json!("completed")));
    assert_eq!(message["content"][0]["annotations"], json!([]));
    assert_eq!(message["content"][0]["logprobs"], json!([]));
}

#[tokio::test]
async fn what_the_client_set_is_echoed() {
    let host = Setup::new().start();
    let settings = json!({
        "instructions": "Be brief.", "max_output_tokens": 500, "metadata": {"a": "b"}, "temperature": 0.25,
        "top_p": 0.5, "presence_penalty": 0.5, "frequency_penalty": -1, "parallel_tool_calls": false,
        "truncation": "auto", "user": "u1", "safety_identifier": "s1", "prompt_cache_key": "k1",
        "max_tool_calls": 7, "tool_choice": "none", "store": false, "top_logprobs": 2
    });
    let mut request = settings.clone();
    request["model"] = json!("local/demo");
    request["input"] = json!("hi");
    request["reasoning"] = json!({"effort": "low"});
    let answer = Client::new(&host).post("/responses", &request).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    for (name, value) in settings.as_object().unwrap() {
        assert_eq!(&answer.body[name], value, "{name}");
    }
    assert_eq!(answer.body["reasoning"], json!({"effort": "low", "summary": null}));
}

#[tokio::test]
async fn parallel_calls_and_their_results_are_accepted_as_history() {
    let upstream = Upstream::start().await;
    let call = |id: &str, city: &str| {
        let arguments = json!({"city": city}).to_string();
        json!({"id": id, "type": "function", "function": {"name": "weather", "arguments": arguments}})
    };
    let calls = json!([call("call_1", "Köln"), call("call_2", "Oslo")]);
    upstream.reply(script::chat_message(
        &json!({"role": "assistant", "content": null, "tool_calls": calls}),
        "tool_calls",
    ));
    upstream.reply(script::chat("warm and cold"));
    let host = Setup::new().config(&single("openai-chat", &upstream.base)).start();
    let client = Client::new(&host);
    let weather = json!({"type": "function", "name": "weather", "parameters": {"type": "object"}});
    let user = json!({"role": "user", "content": "weather?"});
    let first = json!({"model": MODEL, "input": [user], "tools": [weather]});
    let first = client.post("/responses", &first).await;
    let output = first.body["output"].as_array().unwrap();
    assert_eq!(output.len(), 2, "{}", first.text);
    for (item, (id, city)) in output.iter().zip([("call_1", "Köln"), ("call_2", "Oslo")]) {
        assert_eq!(item["type"], "function_call");
        assert_eq!((item["call_id"].as_str(), item["name"].as_str()), (Some(id), Some("weather")));
        let arguments: Value = serde_json::from_str(item["arguments"].as_str().unwrap()).unwrap();
        assert_eq!(arguments, json!({"city": city}));
        assert_eq!(item["status"], "completed");
    }
    assert_eq!(first.body["status"], "completed");
    // The output is sent back unchanged, followed by the results.
    let mut input = vec![user];
    input.extend(output.iter().cloned());
    input.push(json!({"type": "function_call_output", "call_id": "call_1", "output": "20"}));
    input.push(json!({"type": "function_call_output", "call_id": "call_2", "output": "2"}));
    let second =
        client.post("/responses", &json!({"model": MODEL, "input": input, "tools": [weather]})).await;
    assert_eq!(second.output_text(), "warm and cold");
    let messages = upstream.asked()[1].body["messages"].clone();
    let roles: Vec<&str> =
        messages.as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "tool"], "{messages}");
    assert_eq!(messages[1]["tool_calls"].as_array().unwrap().len(), 2);
    assert_eq!((&messages[3]["tool_call_id"], &messages[3]["content"]), (&json!("call_2"), &json!("2")));
}

#[tokio::test]
async fn our_own_output_is_accepted_as_history() {
    let host = Setup::new().start();
    let client = Client::new(&host);
    let mut input = vec![json!({"role": "user", "content": "good morning"})];
    for _ in 0..3 {
        let answer = client.post("/responses", &json!({"model": "local/demo", "input": input})).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        input.extend(answer.body["output"].as_array().unwrap().iter().cloned());
        input.push(json!({"role": "user", "content": "and again"}));
    }
}

#[tokio::test]
async fn streamed_and_whole_responses_are_equal_at_the_end() {
    let host = Setup::new().start();
    let client = Client::new(&host);
    let request = json!({"model": "local/demo", "input": "good morning"});
    let whole = client.post("/responses", &request).await;
    let events = client.stream(&request).await;
    let streamed = last_response(&events);
    assert_eq!(whole.output_text(), text_of(&events));
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&whole.body), keys(streamed));
    assert_eq!(whole.body["usage"], streamed["usage"]);
}

#[tokio::test]
async fn unknown_and_null_fields_are_accepted_and_not_passed_on() {
    let upstream = Upstream::start().await;
    upstream.reply(script::response(&json!([script::message("fine")])));
    let host = Setup::new().config(&single("openai-responses", &upstream.base)).start();
    let request = json!({
        "model": MODEL, "client_metadata": {"a": 1}, "conversation": null, "zebra": [1, 2],
        "temperature": null, "tools": null, "metadata": null, "stream_options": {"include_usage": true},
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "hi", "zebra": 1}], "zebra": 2}]
    });
    let answer = Client::new(&host).post("/responses", &request).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let sent = upstream.asked_once().body;
    let names: Vec<&str> = sent.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(names, ["model", "input", "stream", "store"], "{sent}");
    assert!(!sent.to_string().contains("zebra"), "{sent}");
}

#[tokio::test]
async fn usage_is_priced_in_all_its_parts() {
    let upstream = Upstream::start().await;
    upstream.reply(script::response(&json!([script::message("fine")])));
    let endpoint = "{ provider = \"one\", model = \"m\", input = 1.0, cached_input = 0.5, output = 2.0, reasoning = 4.0 }";
    let config = provider("one", "openai-responses", &upstream.base)
        + &format!("[[models]]\nid = \"{MODEL}\"\nendpoints = [{endpoint}]\n");
    let host = Setup::new().config(&config).start();
    let answer = Client::new(&host).post("/responses", &json!({"model": MODEL, "input": "hi"})).await;
    let usage = &answer.body["usage"];
    assert_eq!(usage["input_tokens"], 100, "{}", answer.text);
    assert_eq!(usage["input_tokens_details"], json!({"cached_tokens": 40, "cache_write_tokens": 0}));
    assert_eq!(usage["output_tokens"], 50);
    assert_eq!(usage["output_tokens_details"], json!({"reasoning_tokens": 20}));
    assert_eq!(usage["total_tokens"], 150);
    // 60 fresh + 40 cached + 30 plain + 20 reasoning, in millionths of a dollar.
    assert_eq!(usage["cost"], json!(0.00022));
    assert_eq!(usage["is_byok"], false);
    let details = &usage["cost_details"];
    assert_eq!(details["upstream_inference_input_cost"], json!(0.00008), "{details}");
    assert_eq!(details["upstream_inference_output_cost"], json!(0.00014), "{details}");
}

#[tokio::test]
async fn the_tier_that_served_is_reported() {
    let upstream = Upstream::start().await;
    let message = json!([script::message("fine")]);
    let body =
        json!({"object": "response", "status": "completed", "output": message, "service_tier": "flex"});
    upstream.reply(crate::kit::upstream::Reply::json(200, body));
    let host = Setup::new().config(&single("openai-responses", &upstream.base)).start();
    let request = json!({"model": MODEL, "input": "hi", "service_tier": "flex"});
    let answer = Client::new(&host).post("/responses", &request).await;
    assert_eq!(answer.body["service_tier"], "flex", "{}", answer.text);
}

#[tokio::test]
async fn models_are_listed_and_read_one_by_one() {
    let host = Setup::new().start();
    let client = Client::new(&host);
    let list = client.get("/models").await;
    let ids: Vec<&str> =
        list.body["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!((&list.body["object"], ids), (&json!("list"), vec!["local/demo", "local/embed"]));
    for path in ["/models/local/demo", "/models/local%2Fdemo"] {
        let one = client.get(path).await;
        assert_eq!((one.status, &one.body), (200, &list.body["data"][0]), "{path}");
    }
    assert_eq!(list.body["data"][0]["object"], "model");
    assert_eq!((&list.body["total_count"], &list.body["links"]), (&json!(2), &json!({"next": null})));
    let missing = client.get("/models/local/none").await;
    assert_eq!((missing.status, missing.message()), (404, "Model local/none does not exist"));
}

/// OpenRouter's SDKs reject the whole list if one field is missing or has another type.
#[tokio::test]
async fn models_have_the_fields_of_openrouters_api() {
    let upstream = Upstream::start().await;
    let model = format!(
        "[[models]]\nid = \"{MODEL}\"\ncontext_length = 9000\nendpoints = [{{ provider = \"one\", model = \"up\", \
         input = 0.15, output = 2.5, max_output = 500, supports = [\"tools\", \"images\", \"structured_output\"] }}]\n"
    );
    let host = Setup::new().config(&(provider("one", "openai-chat", &upstream.base) + &model)).start();
    let shown = Client::new(&host).get(&format!("/models/{MODEL}")).await.body;
    for (name, value) in [
        ("name", json!(MODEL)),
        ("canonical_slug", json!(MODEL)),
        (
            "architecture",
            json!({
                "modality": "text+image->text", "input_modalities": ["text", "image"], "output_modalities": ["text"]
            }),
        ),
        (
            "top_provider",
            json!({"context_length": 9000, "max_completion_tokens": 500, "is_moderated": false}),
        ),
        ("supported_parameters", json!(["tools", "structured_outputs"])),
        ("links", json!({"details": format!("/v1/models/{MODEL}")})),
    ] {
        assert_eq!(shown[name], value, "{name}: {shown}");
    }
    assert_eq!(shown["pricing"]["prompt"], "0.00000015", "{shown}");
    assert_eq!(shown["pricing"]["completion"], "0.0000025", "{shown}");
    for name in ["supported_voices", "default_parameters", "per_request_limits"] {
        assert_eq!(shown.get(name), Some(&Value::Null), "{name}");
    }
}

#[tokio::test]
async fn unusable_models_are_named_in_the_error() {
    let host = Setup::new().start();
    let client = Client::new(&host);
    let ask = async |path: &str, body: Value| {
        let answer = client.post(path, &body).await;
        (answer.status, answer.message().to_owned())
    };
    for (path, body, status, words) in [
        ("/responses", json!({"model": "no/such", "input": "x"}), 404, "no/such"),
        ("/responses", json!({"model": "local/demo", "models": ["no/such"], "input": "x"}), 404, "no/such"),
        ("/responses", json!({"model": "openrouter/fusion", "input": "x"}), 404, "openrouter/fusion"),
        ("/embeddings", json!({"model": "openrouter/auto", "input": "x"}), 404, "openrouter/auto"),
        ("/responses", json!({"model": "local/embed", "input": "x"}), 400, "local/embed"),
        ("/embeddings", json!({"model": "local/demo", "input": "x"}), 400, "local/demo"),
        ("/embeddings", json!({"model": "no/such", "input": "x"}), 404, "no/such"),
    ] {
        let (got, message) = ask(path, body).await;
        assert_eq!(got, status, "{message}");
        assert!(message.contains(words), "{message}");
    }
}

#[tokio::test]
async fn unknown_tools_are_named_by_path() {
    let upstream = Upstream::start().await;
    let host = Setup::new().config(&single("openai-chat", &upstream.base)).start();
    let client = Client::new(&host);
    let function = json!({"type": "function", "name": "f", "parameters": {}});
    for (tool, words) in [
        (json!({"type": "computer"}), "tools[1].type \"computer\" is not available on this host"),
        (
            json!({"type": "service:web_search"}),
            "tools[1].type \"service:web_search\" is not available on this host",
        ),
        (
            json!({"type": "openrouter:fusion"}),
            "tools[1].type \"openrouter:fusion\" is not available on this host",
        ),
        (json!({"type": "teleport"}), "tools[1].type"),
    ] {
        let request = json!({"model": MODEL, "input": "x", "tools": [function, tool]});
        let answer = client.post("/responses", &request).await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        assert!(answer.message().contains(words), "{}", answer.text);
        assert_eq!(answer.body["error"]["metadata"]["error_type"], "invalid_request");
    }
    assert!(upstream.asked().is_empty());
}

#[tokio::test]
async fn an_unknown_plugin_is_named_unless_it_is_disabled() {
    let host = Setup::new().start();
    let client = Client::new(&host);
    let request = |plugins: Value| json!({"model": "local/demo", "input": "x", "plugins": plugins});
    let missing = client.post("/responses", &request(json!([{"id": "fusion"}]))).await;
    assert_eq!(missing.status, 400, "{}", missing.text);
    assert!(missing.message().contains("plugins[0].id \"fusion\" is not available"), "{}", missing.text);
    let unknown = client.post("/responses", &request(json!([{"id": "nonsense"}]))).await;
    assert_eq!(unknown.status, 400, "{}", unknown.text);
    assert!(unknown.message().contains("plugins[0].id"), "{}", unknown.text);
    let off = client.post("/responses", &request(json!([{"id": "web", "enabled": false}]))).await;
    assert_eq!(off.status, 200, "{}", off.text);
}

#[tokio::test]
async fn response_healing_repairs_json_only() {
    let upstream = Upstream::start().await;
    let broken = "Here you are:\n```json\n{\"a\": [1, 2,], 'b': true\n```";
    for text in [broken, broken, "{\"a\":1}"] {
        upstream.reply(script::chat(text));
    }
    let host = Setup::new().config(&single("openai-chat", &upstream.base)).start();
    let client = Client::new(&host);
    let request = |plugins: Value| json!({"model": MODEL, "input": "x", "text": {"format": {"type": "json_object"}}, "plugins": plugins});
    let healing = json!([{"id": "response-healing"}]);
    let healed = client.post("/responses", &request(healing.clone())).await;
    let repaired: Value = serde_json::from_str(healed.output_text()).unwrap();
    assert_eq!(repaired, json!({"a": [1, 2], "b": true}));
    let off = json!([{"id": "response-healing", "enabled": false}]);
    assert_eq!(client.post("/responses", &request(off)).await.output_text(), broken);
    assert_eq!(client.post("/responses", &request(healing)).await.output_text(), "{\"a\":1}");
}

#[tokio::test]
async fn suffixes_of_a_model_choose_how_to_route() {
    let (cheap, dear) = (Upstream::start().await, Upstream::start().await);
    let host = Setup::new().config(&several(&[&cheap.base, &dear.base])).start();
    let client = Client::new(&host);
    for suffix in ["nitro", "floor", "free", "exacto"] {
        cheap.reply(script::chat("cheap"));
        let request = json!({"model": format!("{MODEL}:{suffix}"), "input": "x"});
        let answer = client.post("/responses", &request).await;
        assert_eq!(answer.output_text(), "cheap", "{suffix}");
        assert_eq!(answer.body["model"], MODEL, "{suffix}");
    }
    assert!(dear.asked().is_empty());
}
