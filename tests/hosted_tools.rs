//! Hosted tools, which a provider runs itself, and objects stored at a provider: which requests may
//! use them, on whose key, and what calls cost.

use crate::kit::client::{Answer, Client, last_response, types_of};
use crate::kit::config::{HOSTED_TOOLS, MODEL, model, provider, single, with_keys};
use crate::kit::host::{Host, Setup, program};
use crate::kit::script;
use crate::kit::store::usage_of;
use crate::kit::upstream::{Reply, Upstream};
use serde_json::{Value, json};
use std::io::Write;
use std::process::Stdio;

const HOST: &str = "provider.test";

/// One provider of the Responses dialect, with these additional keys in its endpoint.
fn host(upstream: &Upstream, keys: &str) -> Host {
    let models = model(MODEL, "responses", &["one"]);
    let models = if keys.is_empty() { models } else { with_keys(&models, "one", keys) };
    Setup::new().config(&(provider("one", "openai-responses", &upstream.base) + &models)).start()
}

/// Providers `a` and `b`, which accept the operator's key or the caller's own. Their endpoints list
/// no hosted tools.
fn two_keys(adapter: &str, a: &Upstream, b: &Upstream) -> Host {
    let mut config =
        format!("[egress]\nallow_plaintext_loopback = true\nresolve = {{ \"{HOST}\" = [\"127.0.0.1\"] }}\n");
    for (name, upstream, byok) in [("a", a, ""), ("b", b, "byok = \"own_key\"\n")] {
        let base = upstream.base.replace("127.0.0.1", HOST);
        config += &provider(name, adapter, &base);
        config += &format!("key = \"operator:provider_key\"\n{byok}");
    }
    let host = Setup::new().config(&(config + &model(MODEL, "responses", &["a", "b"]))).start();
    put(&host, "provider_key", &["--operator"]);
    put(&host, "own_key", &["--workspace", "default"]);
    host
}

fn put(host: &Host, name: &str, scope: &[&str]) {
    let mut command = program();
    command.arg("--data").arg(host.data()).args(["secret", "put", name, "--host", HOST]).args(scope);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(format!("sk-{name}").as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

fn request(tools: &Value) -> Value {
    json!({"model": MODEL, "input": "x", "tools": tools, "provider": {"sort": "price"}})
}

async fn ask(host: &Host, request: &Value) -> Answer {
    Client::new(host).post("/responses", request).await
}

fn hello() -> Reply {
    script::response(&json!([script::message("hello")]))
}

fn search(id: &str) -> Value {
    json!({"type": "web_search_call", "id": id, "status": "completed", "action": {"type": "search", "query": "q"}})
}

#[tokio::test]
async fn a_tool_that_no_endpoint_lists_is_refused_on_the_operators_key() {
    let upstream = Upstream::start().await;
    let host = host(&upstream, "");
    let other = "is not available on this host";
    for tool in [
        json!({"type": "web_search", "engine": "native"}),
        json!({"type": "web_search_preview", "engine": "native"}),
        json!({"type": "programmatic_tool_calling"}),
        json!({"type": "file_search", "vector_store_ids": ["vs_1"]}),
        json!({"type": "code_interpreter", "engine": "native", "container": {"type": "auto"}}),
        json!({"type": "mcp", "server_label": "l", "server_url": "https://x.test"}),
        json!({"type": "image_generation"}),
    ] {
        let answer = ask(&host, &request(&json!([tool]))).await;
        let expected = format!("tools[0].type {} {other}", tool["type"]);
        assert_eq!((answer.status, answer.message()), (400, expected.as_str()));
    }
    let shell = json!([{"type": "shell", "environment": {"type": "container_auto"}}]);
    assert_eq!(ask(&host, &request(&shell)).await.status, 400);
    let brought = json!([{"type": "additional_tools", "tools": [
        {"type": "function", "name": "f"}, {"type": "mcp", "server_label": "l", "server_url": "https://x.test"}
    ]}, {"role": "user", "content": "x"}]);
    let answer = ask(&host, &json!({"model": MODEL, "input": brought})).await;
    let expected = format!("input[0].tools[1].type \"mcp\" {other}");
    assert_eq!((answer.status, answer.message()), (400, expected.as_str()));
    assert!(upstream.asked().is_empty());
    // Tools that the client runs need no list.
    upstream.reply(hello());
    let own = json!([{"type": "shell", "environment": {"type": "local"}}, {"type": "shell"}, {"type": "apply_patch"}]);
    assert_eq!(ask(&host, &request(&own)).await.status, 200);
}

#[tokio::test]
async fn calls_of_a_listed_tool_are_charged() {
    let upstream = Upstream::start().await;
    let keys = "hosted_tools = [\"web_search\", \"web_search_preview\"], \
                hosted_tool_prices = { web_search = 0.01, web_search_preview = 0.025 }";
    let mut host = host(&upstream, keys);
    let output = json!([search("ws_1"), search("ws_2"), script::message("found")]);
    for (tool, cost) in [("web_search", 0.02), ("web_search_preview", 0.05)] {
        upstream.reply(script::response(&output));
        let mut request = request(&json!([{"type": tool}]));
        request["max_tool_calls"] = json!(2);
        let answer = ask(&host, &request).await;
        assert_eq!(answer.body["usage"]["cost"], cost, "{}", answer.text);
        let asked = upstream.asked();
        let sent = &asked.last().unwrap().body;
        assert_eq!((&sent["tools"], &sent["max_tool_calls"]), (&json!([{"type": tool}]), &json!(2)));
    }
    let items = [search("ws_1"), search("ws_2"), script::message("found")];
    let events: Vec<Value> = items
        .iter()
        .enumerate()
        .map(|(index, item)| json!({"type": "response.output_item.done", "output_index": index, "item": item}))
        .chain([json!({"type": "response.completed", "response": {"id": "r", "status": "completed", "output": items,
            "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}}})])
        .collect();
    upstream.reply(Reply::sse(&events));
    let events = Client::new(&host).stream(&request(&json!([{"type": "web_search"}]))).await;
    assert_eq!(last_response(&events)["usage"]["cost"], 0.02, "{events:?}");
    let rows = usage_of(&mut host);
    let charged: Vec<u64> = rows.iter().map(|row| row.cost_pico).collect();
    assert_eq!(charged, [20_000_000_000, 50_000_000_000, 20_000_000_000]);
}

/// The events of a stream in which the provider gives these items one after the other.
fn told(items: &[Value]) -> Vec<Value> {
    let done =
        |(index, item)| json!({"type": "response.output_item.done", "output_index": index, "item": item});
    items.iter().enumerate().map(done).collect()
}

#[tokio::test]
async fn calls_of_hosted_tools_stream_the_events_of_their_type() {
    let upstream = Upstream::start().await;
    let host = host(&upstream, HOSTED_TOOLS);
    let code = json!({"type": "code_interpreter_call", "id": "ci_1", "status": "completed", "code": "print(1)",
        "container_id": "cntr_1", "outputs": [{"type": "logs", "logs": "1"}]});
    let items = [search("ws_1"), code];
    let completed = json!({"type": "response.completed",
        "response": {"id": "r", "status": "completed", "output": items}});
    upstream.reply(Reply::sse(&[told(&items), vec![completed]].concat()));
    let tools = json!([{"type": "web_search"}, {"type": "code_interpreter", "container": {"type": "auto"}, "engine": "native"}]);
    let events = Client::new(&host).stream(&request(&tools)).await;
    assert_eq!(
        types_of(&events),
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.web_search_call.in_progress",
            "response.web_search_call.searching",
            "response.web_search_call.completed",
            "response.output_item.done",
            "response.output_item.added",
            "response.code_interpreter_call.in_progress",
            "response.code_interpreter_call_code.delta",
            "response.code_interpreter_call_code.done",
            "response.code_interpreter_call.interpreting",
            "response.code_interpreter_call.completed",
            "response.output_item.done",
            "response.completed"
        ]
    );
    let added = json!({"type": "code_interpreter_call", "id": "ci_1", "status": "in_progress", "code": "",
        "container_id": "cntr_1", "outputs": null});
    assert_eq!(events[7]["item"], added);
    assert_eq!(last_response(&events)["output"], json!(items));
}

#[tokio::test]
async fn a_picture_of_a_provider_keeps_its_members_and_is_charged_once() {
    let upstream = Upstream::start().await;
    let keys = "image = 0.5, hosted_tools = [\"image_generation\"], \
                hosted_tool_prices = { image_generation = 0.25 }";
    let mut host = host(&upstream, keys);
    let picture = json!({"type": "image_generation_call", "id": "ig_1", "status": "completed",
        "output_format": "webp", "result": "RE9ORQ==", "revised_prompt": "a cat", "size": "1024x1024"});
    let partial = json!({"type": "response.image_generation_call.partial_image", "item_id": "ig_1",
        "output_index": 0, "partial_image_index": 0, "partial_image_b64": "UEFSVA=="});
    let ended = |usage: &Value| {
        json!({"type": "response.completed",
            "response": {"id": "r", "status": "completed", "output": [picture], "usage": usage}})
    };
    let usage = json!({"input_tokens": 1, "output_tokens": 1, "total_tokens": 2});
    let request = request(&json!([{"type": "image_generation", "partial_images": 1}]));
    let client = Client::new(&host);
    // The second answer reports no usage.
    for usage in [usage, Value::Null] {
        let stream =
            [vec![partial.clone()], told(std::slice::from_ref(&picture)), vec![ended(&usage)]].concat();
        upstream.reply(Reply::sse(&stream));
        let events = client.stream(&request).await;
        let output = last_response(&events)["output"].as_array().unwrap();
        let mut expected = picture.clone();
        expected["id"] = output[0]["id"].clone();
        assert_eq!(output, &[expected]);
        assert!(types_of(&events).contains(&"response.image_generation_call.partial_image"));
    }
    let charged: Vec<u64> = usage_of(&mut host).iter().map(|row| row.cost_pico).collect();
    assert_eq!(charged, [750_000_000_000; 2]);
}

#[tokio::test]
async fn a_client_that_leaves_is_charged_for_calls_already_reported() {
    let upstream = Upstream::start().await;
    let keys = "hosted_tools = [\"web_search\"], hosted_tool_prices = { web_search = 0.01 }";
    let mut host = host(&upstream, keys);
    let (feed, reply) = Reply::fed();
    upstream.reply(reply);
    let mut events = Client::new(&host).open(&request(&json!([{"type": "web_search"}]))).await;
    let text =
        json!({"type": "response.output_text.delta", "output_index": 1, "item_id": "m", "delta": "hello"});
    let found = json!({"type": "response.output_item.done", "output_index": 0, "item": search("ws_1")});
    for event in [found, text] {
        feed.send(crate::kit::upstream::sse_event(&event)).await.unwrap();
    }
    events.until("response.output_text.delta").await;
    drop(events);
    feed.closed().await;
    let rows = usage_of(&mut host);
    assert_eq!(rows.iter().map(|row| row.cost_pico).collect::<Vec<_>>(), [10_000_000_000]);
}

#[tokio::test]
async fn stored_objects_can_be_used_only_if_the_endpoint_lists_them() {
    let upstream = Upstream::start().await;
    let keys = "hosted_tools = [\"file_search\", \"code_interpreter\", \"web_search\", \"image_generation\"], \
                hosted_tool_ids = [\"vs_1\", \"file-1\"]";
    let host = host(&upstream, keys);
    let listed = json!([
        {"type": "file_search", "vector_store_ids": ["vs_1"]},
        {"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["file-1"]}},
        {"type": "image_generation", "input_image_mask": {"file_id": "file-1"}},
        {"type": "web_search", "index_id": "vs_1"}
    ]);
    upstream.reply(hello());
    let answer = ask(&host, &request(&listed)).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(upstream.asked_once().body["tools"], listed);
    for (tool, path) in [
        (json!({"type": "file_search", "vector_store_ids": ["vs_1", "vs_2"]}), "vector_store_ids"),
        (json!({"type": "code_interpreter", "engine": "native", "container": "cntr_1"}), "container"),
        (
            json!({"type": "code_interpreter", "engine": "native", "container": {"type": "auto", "file_ids": ["file-2"]}}),
            "container.file_ids",
        ),
        (
            json!({"type": "image_generation", "input_image_mask": {"file_id": "file-2"}}),
            "input_image_mask.file_id",
        ),
        (json!({"type": "web_search", "index_id": "vs_2"}), "index_id"),
    ] {
        let answer = ask(&host, &request(&json!([tool]))).await;
        let start = format!("tools[0].{path} names something stored at a provider");
        assert!(answer.status == 400 && answer.message().starts_with(&start), "{}", answer.text);
    }
    for (kind, id, status) in
        [("input_file", "file-1", 200), ("input_file", "file-2", 400), ("input_image", "file-2", 400)]
    {
        upstream.clear();
        upstream.reply(hello());
        let content = json!([{"type": "input_text", "text": "t"}, {"type": kind, "file_id": id}]);
        let answer =
            ask(&host, &json!({"model": MODEL, "input": [{"role": "user", "content": content}]})).await;
        assert_eq!(answer.status, status, "{}", answer.text);
        if status == 400 {
            assert!(answer.message().starts_with("input[0].content[1].file_id names"), "{}", answer.text);
        }
    }
}

#[tokio::test]
async fn no_field_of_a_tool_is_dropped() {
    let upstream = Upstream::start().await;
    let host = host(&upstream, "hosted_tools = [\"web_search\", \"code_interpreter\"]");
    let tools = json!([
        {"type": "web_search", "search_content_types": ["text"], "external_web_access": false,
         "allowed_callers": ["direct"], "output_schema": {"type": "object", "properties": {"user_id": {}}}},
        {"type": "function", "name": "f", "parameters": {"type": "object"}, "allowed_callers": ["x"], "later": {"a": [1]}}
    ]);
    upstream.reply(hello());
    let answer = ask(&host, &request(&tools)).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(upstream.asked_once().body["tools"], tools);
    for (tool, path) in [
        (json!({"type": "web_search", "max_uses": 1}), "max_uses"),
        (json!({"type": "web_search", "only_on_sundays": true}), "only_on_sundays"),
        (
            json!({"type": "code_interpreter", "engine": "native", "container": {"type": "auto", "memory_limit": "64g"}}),
            "container.memory_limit",
        ),
    ] {
        let answer = ask(&host, &request(&json!([tool]))).await;
        let expected = format!("tools[0].{path} is not taken by any endpoint of this model");
        assert_eq!((answer.status, answer.message()), (400, expected.as_str()));
    }
    assert_eq!(upstream.asked().len(), 1);
}

#[tokio::test]
async fn hosted_substitute_is_not_used_if_a_field_would_be_lost() {
    let upstream = Upstream::start().await;
    let host = Setup::new().config(&single("openai-chat", &upstream.base)).start();
    let tool = |container: Value| json!([{"type": "code_interpreter", "container": container}]);
    upstream.reply(script::chat("hello"));
    assert_eq!(ask(&host, &request(&tool(json!({"type": "auto"})))).await.status, 200);
    let restricted = json!({"type": "auto", "network_policy": {"type": "disabled"}});
    let answer = ask(&host, &request(&tool(restricted))).await;
    let expected = "tools[0].container.network_policy is not taken by any endpoint of this model";
    assert_eq!((answer.status, answer.message()), (400, expected));
    let unknown =
        json!([{"type": "code_interpreter", "container": {"type": "auto"}, "only_on_sundays": true}]);
    let answer = ask(&host, &request(&unknown)).await;
    assert!(answer.message().starts_with("tools[0].only_on_sundays is not taken"), "{}", answer.text);
    assert_eq!(upstream.asked().len(), 1);
}

#[tokio::test]
async fn all_hosted_tools_are_free_on_the_callers_own_key() {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let mut host = two_keys("openai-responses", &a, &b);
    let tools = json!([{"type": "web_search"}, {"type": "file_search", "vector_store_ids": ["vs_own"]}]);
    b.reply(script::response(&json!([search("ws_1"), script::message("found")])));
    let answer = ask(&host, &request(&tools)).await;
    assert_eq!(answer.output_text(), "found", "{}", answer.text);
    assert_eq!(b.asked_once().headers["authorization"], "Bearer sk-own_key");
    assert_eq!((&answer.body["usage"]["cost"], &answer.body["usage"]["is_byok"]), (&json!(0), &json!(true)));
    assert!(a.asked().is_empty(), "the operator's key pays for no tool");
    host.command(&["secret", "delete", "own_key", "--workspace", "default"]);
    assert_eq!(ask(&host, &request(&tools)).await.status, 400);
    assert_eq!(usage_of(&mut host)[0].cost_pico, 0);
}

#[tokio::test]
async fn attempt_fails_if_the_callers_key_is_deleted_after_routing() {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let host = two_keys("openai-chat", &a, &b);
    let (feed, reply) = Reply::fed();
    a.reply(reply);
    b.reply(script::chat("on whose key"));
    let client = Client::new(&host);
    let request = json!({"model": MODEL, "input": "x", "provider": {"sort": "price"}});
    let metadata = [("x-service-metadata", "enabled")];
    let asked = client.post_with("/responses", &request, &metadata);
    let meanwhile = async {
        a.until_asked(1).await;
        host.command(&["secret", "delete", "own_key", "--workspace", "default"]);
        // Ends the first endpoint's response, so that the second would be tried.
        drop(feed);
    };
    let (answer, ()) = tokio::join!(asked, meanwhile);
    assert!(b.asked().is_empty(), "the operator's key took its place");
    assert_eq!(answer.status, 503, "{}", answer.text);
    assert!(answer.message().starts_with("Provider b: your own key"), "{}", answer.text);
    assert_eq!(answer.body["error"]["metadata"]["refused_by"], "host");
    b.reply(script::chat("hello"));
    a.reply(script::refusal(500, "down"));
    assert_eq!(client.post("/responses", &request).await.status, 200, "sent again it is routed anew");
}

#[tokio::test]
async fn later_turn_fails_if_the_callers_key_is_deleted() {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let mut host = two_keys("openai-chat", &a, &b);
    let (feed, reply) = Reply::fed_as("application/json");
    b.reply(reply);
    b.reply(script::chat("on whose key"));
    let request = json!({"model": MODEL, "input": "x", "tools": [{"type": "service:datetime"}], "provider": {"only": ["b"]}});
    let client = Client::new(&host);
    let asked = client.post("/responses", &request);
    let call = json!({"id": "c1", "type": "function", "function": {"name": "datetime", "arguments": "{}"}});
    let message = json!({"role": "assistant", "content": null, "tool_calls": [call]});
    let turn = json!({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}});
    let meanwhile = async {
        b.until_asked(1).await;
        host.command(&["secret", "delete", "own_key", "--workspace", "default"]);
        feed.send(turn.to_string()).await.unwrap();
        drop(feed);
    };
    let (answer, ()) = tokio::join!(asked, meanwhile);
    assert_eq!(answer.status, 503, "{}", answer.text);
    assert_eq!(b.asked().len(), 1, "the operator's key took its place");
    assert_eq!(usage_of(&mut host)[0].cost_pico, 0);
}

#[test]
fn hosted_tools_that_the_dialect_lacks_are_configuration_errors() {
    let base = "http://127.0.0.1:9/v1";
    for (adapter, keys, words) in [
        (
            "openai-chat",
            "hosted_tools = [\"web_search\"]",
            "provider-openai-chat has no tool `web_search`; it has none",
        ),
        (
            "openai-responses",
            "hosted_tools = [\"web_serch\"]",
            "has no tool `web_serch`; it has code_interpreter",
        ),
        (
            "openai-responses",
            "hosted_tools = [\"mcp\"], hosted_tool_prices = { web_search = 1 }",
            "hosted_tool_prices.web_search: hosted_tools does not list this type of tool",
        ),
    ] {
        let config = with_keys(&single(adapter, base), "one", keys);
        let output = Setup::new().config(&config).argument("--check").fail();
        assert_eq!(output.status.code(), Some(78));
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn start_warns_of_providers_whose_hosted_tools_are_not_listed() {
    let base = "http://127.0.0.1:9/v1";
    let names = ["silent", "listing", "chat"];
    let adapters = ["openai-responses", "openai-responses", "openai-chat"];
    let providers: String =
        names.iter().zip(adapters).map(|(name, adapter)| provider(name, adapter, base)).collect();
    let models = with_keys(&model(MODEL, "responses", &names), "listing", "hosted_tools = [\"mcp\"]");
    let mut host = Setup::new().config(&(providers + &models)).start();
    let log = host.end();
    let warned: Vec<&str> = log.lines().filter(|line| line.contains("lists hosted_tools")).collect();
    assert_eq!(warned.len(), 1, "{log}");
    assert!(warned[0].contains("silent") && warned[0].contains("web_search"), "{log}");
}
