//! Items of earlier turns in a request: calls, results, discovered tools, messages of other agents.

use super::host;
use crate::kit::client::Client;
use crate::kit::config::{MODEL, single, single_with_tools};
use crate::kit::host::Setup;
use crate::kit::script;
use crate::kit::upstream::Upstream;
use crate::tools::script::answer;
use serde_json::{Value, json};

/// The messages and tools that a chat model gets for an input.
async fn told(input: Value) -> (Vec<Value>, Value) {
    let (host, upstream) = host("openai-chat").await;
    upstream.reply(answer(false, "done"));
    let answered = Client::new(&host).post("/responses", &json!({"model": MODEL, "input": input})).await;
    assert_eq!(answered.status, 200, "{}", answered.text);
    let asked = upstream.asked_once();
    (asked.body["messages"].as_array().unwrap().clone(), asked.body["tools"].clone())
}

fn user() -> Value {
    json!({"role": "user", "content": "Go."})
}

#[tokio::test]
async fn calls_and_results_of_every_kind_are_rendered_as_function_calls() {
    let (messages, _) = told(json!([
        user(),
        {"type": "function_call", "call_id": "a", "name": "add", "namespace": "n", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "b", "name": "edit", "input": "+x"},
        {"type": "local_shell_call", "call_id": "c", "status": "completed", "action": {"type": "exec", "command": ["ls"]}},
        {"type": "tool_search_call", "call_id": "d", "execution": "client", "arguments": {"query": "q"}},
        {"type": "function_call_output", "call_id": "a", "output": "1"},
        {"type": "custom_tool_call_output", "call_id": "b", "output": "2"},
        {"type": "local_shell_call_output", "id": "c", "output": "3"},
        {"type": "tool_search_output", "call_id": "d", "execution": "client", "tools": []},
    ]))
    .await;
    let made: Vec<_> =
        messages[1]["tool_calls"].as_array().unwrap().iter().map(|call| &call["function"]).collect();
    let names: Vec<_> = made.iter().map(|function| function["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["n__add", "edit", "local_shell", "tool_search"]);
    assert_eq!(made[1]["arguments"], r#"{"input":"+x"}"#);
    let results: Vec<_> = messages[2..].iter().map(|message| message["content"].as_str().unwrap()).collect();
    assert_eq!(results, ["1", "2", "3", r#"{"tools":[]}"#]);
    assert!(
        messages[2..].iter().zip(["a", "b", "c", "d"]).all(|(message, id)| message["tool_call_id"] == id)
    );
}

#[tokio::test]
async fn tools_that_items_bring_can_be_called() {
    let found = json!([{"type": "namespace", "name": "mcp__calc", "tools": [{"type": "function", "name": "add", "defer_loading": true}]}]);
    let (messages, tools) = told(json!([
        {"type": "additional_tools", "role": "developer", "tools": [
            {"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec"}]},
            {"type": "function", "name": "wait"},
        ]},
        user(),
        {"type": "tool_search_call", "call_id": "d", "execution": "client", "arguments": {"query": "q"}},
        {"type": "tool_search_output", "call_id": "d", "execution": "client", "tools": found},
    ]))
    .await;
    let names: Vec<_> =
        tools.as_array().unwrap().iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["functions__exec", "wait", "mcp__calc__add"]);
    assert_eq!(messages.last().unwrap()["content"], r#"{"tools":["mcp__calc__add"]}"#);
}

#[tokio::test]
async fn what_items_bring_is_checked() {
    let (host, _upstream) = host("openai-chat").await;
    let client = Client::new(&host);
    for (tool, message) in [
        (json!({"type": "service:datetime"}), "input[0].tools[0].type names a tool of this service"),
        (json!({"type": "mystery"}), "input[0].tools[0].type names an unknown tool type"),
        (
            json!({"type": "file_search", "vector_store_ids": ["v"]}),
            "input[0].tools[0].type \"file_search\" is not",
        ),
    ] {
        let input = json!([{"type": "additional_tools", "tools": [tool]}, user()]);
        let refused = client.post("/responses", &json!({"model": MODEL, "input": input})).await;
        assert_eq!(refused.status, 400, "{}", refused.text);
        assert!(refused.message().starts_with(message), "{}", refused.text);
    }
}

#[tokio::test]
async fn results_of_tools_that_are_not_offered_are_text_before_the_calls_around_them() {
    let (messages, _) = told(json!([
        user(),
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "mcp_call", "id": "mcp_1", "server_label": "calc", "name": "add", "arguments": "{\"a\":1}", "output": "3"},
        {"type": "code_interpreter_call", "id": "ci_1", "code": "1+1", "container_id": "c", "outputs": [{"type": "logs", "logs": "2"}]},
        {"type": "file_search_call", "id": "fs_1", "queries": ["q"], "results": [{"filename": "a.txt", "text": "found"}]},
        {"type": "function_call_output", "call_id": "a", "output": "1"},
        {"type": "agent_message", "author": "/lead/b", "recipient": "/lead", "content": [{"type": "input_text", "text": "I am done."}]},
        {"type": "function_call_output", "name": "watch", "output": "it changed"},
    ]))
    .await;
    let roles: Vec<_> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "user", "system"], "{messages:?}");
    let said = messages[1]["content"].as_str().unwrap();
    for part in [
        "[I used the tool calc.add with {\"a\":1}. It gave: 3]",
        "[I used the tool code_interpreter with 1+1. It gave: 2]",
        "a.txt: found]",
    ] {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(messages[3]["content"], "[Message from /lead/b to /lead]\nI am done.");
    assert_eq!(messages[4]["content"], "[Output of watch: it changed]");
}

#[tokio::test]
async fn the_responses_dialect_gets_items_as_they_are() {
    let (host, upstream) = host("openai-responses").await;
    upstream.reply(script::response(&json!([script::message("done")])));
    let input = json!([
        {"type": "additional_tools", "role": "developer", "tools": [{"type": "namespace", "name": "n", "tools": [{"type": "custom", "name": "exec"}]}]},
        {"type": "function_call_output", "name": "watch", "namespace": "n", "output": "it changed"},
        {"type": "program", "id": "prog_1", "call_id": "p", "code": "x", "fingerprint": "f"},
        {"type": "program_output", "id": "po_1", "call_id": "p", "result": "1", "status": "completed"},
    ]);
    let foreign =
        json!({"type": "mcp_call", "server_label": "l", "name": "n", "arguments": "{}", "output": "3"});
    let mut all = input.as_array().unwrap().clone();
    all.push(foreign);
    all.push(user());
    let answered = Client::new(&host).post("/responses", &json!({"model": MODEL, "input": all})).await;
    assert_eq!(answered.status, 200, "{}", answered.text);
    let asked = upstream.asked_once();
    let sent = asked.body["input"].as_array().unwrap();
    assert_eq!(sent[..4], input.as_array().unwrap()[..]);
    assert_eq!((&sent[4]["type"], &sent[4]["output"]), (&json!("mcp_call"), &json!("3")));
    assert!(sent[4]["id"].as_str().unwrap().starts_with("mcp_"));
}

/// Output of hosted tools as the official client libraries send it back: with members that are null.
fn hosted_output() -> Value {
    json!([
        user(),
        {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "calc", "error": null,
         "tools": [{"name": "wipe", "description": null, "annotations": null, "input_schema": {"type": "object"}}]},
        {"type": "web_search_call", "id": "ws_1", "status": "completed",
         "action": {"type": "search", "query": "q", "queries": null, "sources": null}},
        {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "calc", "name": "wipe", "arguments": "{\"a\":7}"},
        {"type": "mcp_approval_response", "id": null, "approval_request_id": "mcpr_1", "approve": false, "reason": "no"},
        {"type": "mcp_approval_request", "id": "mcpr_2", "server_label": "calc", "name": "add", "arguments": "{}"},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_2", "approve": true, "reason": null},
        user(),
    ])
}

#[tokio::test]
async fn output_of_hosted_tools_is_text_or_left_out_where_the_dialect_lacks_them() {
    let (messages, tools) = told(hosted_output()).await;
    let told: Vec<_> = messages
        .iter()
        .map(|told| (told["role"].as_str().unwrap(), told["content"].as_str().unwrap()))
        .collect();
    let expected = [
        ("user", "Go."),
        ("assistant", "[I asked whether I may use the tool calc.wipe with {\"a\":7}.]"),
        ("user", "[You may not use the tool: no]"),
        ("assistant", "[I asked whether I may use the tool calc.add with {}.]"),
        ("user", "[You may use the tool.]"),
        ("user", "Go."),
    ];
    assert_eq!(told, expected);
    assert!(tools.is_null(), "{tools}");

    let (host, upstream) = host("anthropic").await;
    upstream.reply(script::anthropic(&json!([{"type": "text", "text": "done"}]), "end_turn"));
    let request = json!({"model": MODEL, "input": hosted_output()});
    let answered = Client::new(&host).post("/responses", &request).await;
    assert_eq!(answered.status, 200, "{}", answered.text);
    let sent = upstream.asked_once().body["messages"].to_string();
    for (_, text) in &expected[..4] {
        assert!(sent.contains(&text.replace('"', "\\\"")), "{text}: {sent}");
    }

    let (host, upstream) = super::host("openai-responses").await;
    upstream.reply(script::response(&json!([script::message("done")])));
    let answered = Client::new(&host).post("/responses", &request).await;
    assert_eq!(answered.status, 200, "{}", answered.text);
    let types: Vec<_> = upstream.asked_once().body["input"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|item| item["type"].as_str().map(str::to_owned))
        .collect();
    let (ask, answer) = ("mcp_approval_request", "mcp_approval_response");
    assert_eq!(types, ["message", "mcp_list_tools", "web_search_call", ask, answer, ask, answer, "message"]);
}

/// A search of the client's tools found its web search too.
fn found_web_search() -> Value {
    let found = json!([{"type": "web_search"}, {"type": "function", "name": "add", "parameters": {"type": "object"}}]);
    json!([
        user(),
        {"type": "tool_search_call", "call_id": "d", "execution": "client", "arguments": {"query": "q"}},
        {"type": "tool_search_output", "call_id": "d", "execution": "client", "tools": found},
    ])
}

#[tokio::test]
async fn a_web_search_that_was_found_is_left_out_where_it_cannot_be_served() {
    let (_, tools) = told(found_web_search()).await;
    assert_eq!(tools.as_array().unwrap().len(), 1, "{tools}");
    assert_eq!(tools[0]["function"]["name"], "add");

    for (is_listed, kept) in [(false, json!(["function"])), (true, json!(["web_search", "function"]))] {
        let upstream = Upstream::start().await;
        let config = if is_listed { single_with_tools } else { single };
        let host = Setup::new().config(&config("openai-responses", &upstream.base)).start();
        upstream.reply(script::response(&json!([script::message("done")])));
        let request = json!({"model": MODEL, "input": found_web_search()});
        let headers = [("x-service-metadata", "enabled")];
        let answered = Client::new(&host).post_with("/responses", &request, &headers).await;
        assert_eq!(answered.status, 200, "{}", answered.text);
        let sent = &upstream.asked_once().body["input"][2]["tools"];
        let types: Vec<_> = sent.as_array().unwrap().iter().map(|tool| tool["type"].clone()).collect();
        assert_eq!(json!(types), kept, "{sent}");
        let told = answered.body["service_metadata"].to_string().contains("input[2].tools[0]");
        assert_eq!(told, !is_listed, "{}", answered.text);
    }
}

#[tokio::test]
async fn references_to_reasoning_are_skipped_and_others_say_what_to_do() {
    let (messages, _) = told(json!([{"type": "item_reference", "id": "rs_1"}, user(), {"id": "rs_2"}])).await;
    assert_eq!(messages.len(), 1);
    let host = Setup::new().start();
    let client = Client::new(&host);
    for (body, message) in [
        (json!({"input": [{"type": "item_reference", "id": "msg_1"}]}), "set store to false in the client"),
        (json!({"input": [{"type": "item_reference", "id": "rs_1"}]}), "input must hold at least 1 item"),
        (json!({"input": "x", "conversation": "conv_1"}), "conversation must be null"),
    ] {
        let mut body = body;
        body["model"] = "local/demo".into();
        let refused = client.post("/responses", &body).await;
        assert_eq!(refused.status, 400, "{}", refused.text);
        assert!(refused.message().contains(message), "{}", refused.text);
    }
    let none = json!({"model": "local/demo", "input": "x", "conversation": null});
    assert_eq!(client.post("/responses", &none).await.status, 200);
}

#[tokio::test]
async fn routes_of_other_interfaces_say_what_is_served() {
    let host = Setup::new().start();
    let client = Client::new(&host);
    for (path, part) in [
        ("/chat/completions", "POST /v1/responses"),
        ("/messages", "POST /v1/responses"),
        ("/responses/compact", "compaction_trigger"),
        ("/responses/resp_1", "stores no responses"),
    ] {
        let answer = client.post(path, &json!({})).await;
        assert_eq!(answer.status, 404, "{path}");
        assert!(answer.message().contains(part), "{path}: {}", answer.text);
    }
    let upgrade = client.request(reqwest::Method::GET, "/responses");
    let upgrade =
        upgrade.header("upgrade", "websocket").header("connection", "upgrade").send().await.unwrap();
    assert_eq!(upgrade.status(), 426);
    assert!(upgrade.headers().contains_key("upgrade"));
}
