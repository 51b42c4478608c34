//! Items of earlier turns in a request: calls, results, discovered tools, messages of other agents.

use super::host;
use crate::kit::client::Client;
use crate::kit::config::MODEL;
use crate::kit::host::Setup;
use crate::kit::script;
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
