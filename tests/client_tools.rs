//! Tools that clients run themselves, of kinds that a dialect lacks: how they are offered to
//! models, and how calls are returned to clients.

mod compaction;
mod cut;
mod history;

use crate::kit::client::{Client, last_response};
use crate::kit::config::{HOSTED_TOOLS, MODEL, model, provider, single, single_with_tools, with_keys};
use crate::kit::host::{Host, Setup};
use crate::kit::script;
use crate::kit::upstream::Upstream;
use crate::tools::script::{answer, call, calls};
use serde_json::{Value, json};

pub(crate) async fn host(dialect: &str) -> (Host, Upstream) {
    let upstream = Upstream::start().await;
    (Setup::new().config(&single(dialect, &upstream.base)).start(), upstream)
}

fn tools() -> Value {
    let schema = json!({"type": "object", "properties": {"a": {"type": "number"}}});
    json!([
        {"type": "function", "name": "exec_command", "parameters": {"type": "object"}},
        {"type": "namespace", "name": "mcp__calc", "description": "Arithmetic.", "tools": [
            {"type": "function", "name": "add", "description": "Adds.", "parameters": schema, "defer_loading": true},
            {"type": "custom", "name": "solve"},
        ]},
        {"type": "custom", "name": "edit", "description": "Edits files.",
         "format": {"type": "grammar", "syntax": "lark", "definition": "start: LINE"}},
        {"type": "local_shell"},
        {"type": "shell"},
        {"type": "tool_search", "execution": "client", "description": "Finds tools.",
         "parameters": {"type": "object", "properties": {"query": {"type": "string"}}}},
        {"type": "web_search", "external_web_access": false},
    ])
}

fn request() -> Value {
    json!({"model": MODEL, "input": "Go.", "tools": tools()})
}

const NAMES: [&str; 7] =
    ["exec_command", "mcp__calc__add", "mcp__calc__solve", "edit", "local_shell", "shell", "tool_search"];

#[tokio::test]
async fn chat_dialect_offers_every_kind_of_tool_as_a_function() {
    let (host, upstream) = host("openai-chat").await;
    upstream.reply(answer(false, "done"));
    let answered = Client::new(&host).post("/responses", &request()).await;
    assert_eq!(answered.status, 200, "{}", answered.text);
    assert_eq!(answered.body["tools"].as_array().unwrap().len(), 7, "the client's own tools are repeated");
    let asked = upstream.asked_once();
    let offered = asked.body["tools"].as_array().unwrap();
    let names: Vec<_> = offered.iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, NAMES);
    let add = &offered[1]["function"];
    assert_eq!(add["description"], "Arithmetic.\n\nAdds.");
    assert!(add["parameters"]["properties"]["a"].is_object() && add.get("defer_loading").is_none(), "{add}");
    let edit = &offered[3]["function"];
    assert_eq!(
        edit["description"],
        "Edits files.\n\nThe input has to follow this lark grammar:\nstart: LINE"
    );
    assert_eq!(edit["parameters"]["required"], json!(["input"]));
    assert_eq!(offered[6]["function"]["description"], "Finds tools.");
}

#[tokio::test]
async fn messages_dialect_offers_every_kind_of_tool_as_a_function() {
    let (host, upstream) = host("anthropic").await;
    upstream.reply(script::anthropic(&json!([{"type": "text", "text": "done"}]), "end_turn"));
    let answered = Client::new(&host).post("/responses", &request()).await;
    assert_eq!(answered.status, 200, "{}", answered.text);
    let asked = upstream.asked_once();
    let offered = asked.body["tools"].as_array().unwrap();
    let names: Vec<_> = offered.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, NAMES);
}

#[tokio::test]
async fn responses_dialect_gets_every_kind_of_tool_unchanged() {
    let upstream = Upstream::start().await;
    let host = Setup::new().config(&single_with_tools("openai-responses", &upstream.base)).start();
    upstream.reply(script::response(&json!([script::message("done")])));
    let answered = Client::new(&host).post("/responses", &request()).await;
    assert_eq!(answered.status, 200, "{}", answered.text);
    let asked = upstream.asked_once();
    let offered = asked.body["tools"].as_array().unwrap();
    let types: Vec<_> = offered.iter().map(|tool| &tool["type"]).collect();
    let given = tools();
    let expected: Vec<_> = given.as_array().unwrap().iter().map(|tool| &tool["type"]).collect();
    assert_eq!(types, expected);
    assert_eq!(offered[5]["execution"], "client");
    assert_eq!(offered[1]["tools"][0]["defer_loading"], true, "the search may find it");
    assert_eq!(offered[6]["external_web_access"], false);
}

#[tokio::test]
async fn demo_provider_accepts_all_kinds_of_tools() {
    let host = Setup::new().start();
    let mut request = request();
    request["model"] = "local/demo".into();
    request["input"] = "use local_shell".into();
    let answered = Client::new(&host).post("/responses", &request).await;
    assert_eq!(answered.status, 200, "{}", answered.text);
    assert_eq!(answered.body["output"][0]["type"], "local_shell_call", "{}", answered.text);
}

/// Calls as models make them, and the output items that the client gets for them.
fn made() -> Vec<(&'static str, &'static str, Value)> {
    vec![
        (
            "mcp__calc__add",
            r#"{"a":1}"#,
            json!({"type": "function_call", "name": "add", "namespace": "mcp__calc", "arguments": "{\"a\":1}"}),
        ),
        (
            "mcp__calc__solve",
            r#"{"input":"x=1"}"#,
            json!({"type": "custom_tool_call", "name": "solve", "namespace": "mcp__calc", "input": "x=1"}),
        ),
        (
            "edit",
            r#"{"input":"*** Begin\n+a"}"#,
            json!({"type": "custom_tool_call", "name": "edit", "input": "*** Begin\n+a"}),
        ),
        ("edit", "+plain", json!({"type": "custom_tool_call", "name": "edit", "input": "+plain"})),
        (
            "local_shell",
            r#"{"command":["ls"],"timeout_ms":5}"#,
            json!({"type": "local_shell_call", "action": {"type": "exec", "command": ["ls"], "env": {}, "timeout_ms": 5}}),
        ),
        (
            "shell",
            r#"{"commands":["ls","pwd"]}"#,
            json!({"type": "shell_call", "action": {"commands": ["ls", "pwd"], "timeout_ms": null, "max_output_length": null}}),
        ),
        (
            "tool_search",
            r#"{"query":"add"}"#,
            json!({"type": "tool_search_call", "execution": "client", "arguments": {"query": "add"}}),
        ),
    ]
}

#[tokio::test]
async fn calls_come_back_in_the_clients_own_kind() {
    let (host, upstream) = host("openai-chat").await;
    let client = Client::new(&host);
    let both = made().into_iter().flat_map(|made| [(false, made.clone()), (true, made)]);
    for (streamed, (function, arguments, item)) in both {
        upstream.reply(calls(streamed, "", &[call("c1", function, arguments)]));
        let response = client.ask(&request(), streamed).await;
        let [made] = response["output"].as_array().unwrap().as_slice() else { panic!("{response}") };
        let mut made = made.clone();
        let own = made.as_object_mut().unwrap();
        assert!(own.shift_remove("id").unwrap().is_string());
        assert_eq!(own.shift_remove("status"), Some("completed".into()));
        assert_eq!(own.shift_remove("call_id"), Some("c1".into()));
        assert_eq!(made, item, "{function} streamed: {streamed}");
    }
}

#[tokio::test]
async fn calls_have_the_events_of_their_kind() {
    let (host, upstream) = host("openai-chat").await;
    let client = Client::new(&host);
    let expected: [(&str, &[&str]); 4] = [
        ("edit", &["custom_tool_call_input.delta", "custom_tool_call_input.done"]),
        (
            "mcp__calc__add",
            &[
                "function_call_arguments.delta",
                "function_call_arguments.delta",
                "function_call_arguments.done",
            ],
        ),
        ("local_shell", &[]),
        (
            "shell",
            &[
                "shell_call_command.added",
                "shell_call_command.delta",
                "shell_call_command.done",
                "shell_call_command.added",
                "shell_call_command.delta",
                "shell_call_command.done",
            ],
        ),
    ];
    for (function, between) in expected {
        let (_, arguments, _) = made().into_iter().find(|(name, ..)| *name == function).unwrap();
        upstream.reply(calls(true, "", &[call("c1", function, arguments)]));
        let events = client.stream(&request()).await;
        let about = events.iter().filter(|event| event["output_index"] == 0);
        let types: Vec<_> =
            about.map(|event| event["type"].as_str().unwrap().strip_prefix("response.").unwrap()).collect();
        let [first, middle @ .., last] = types.as_slice() else { panic!("{types:?}") };
        assert_eq!((*first, middle, *last), ("output_item.added", between, "output_item.done"), "{function}");
        assert_eq!(last_response(&events)["status"], "completed");
    }
}

#[tokio::test]
async fn calls_with_invalid_arguments_are_not_run() {
    let (host, upstream) = host("openai-chat").await;
    for arguments in [r#"{"command":"rm -rf /"}"#, "{", r#"{"command":[]}"#] {
        upstream.reply(calls(false, "", &[call("c1", "local_shell", arguments)]));
        let response = Client::new(&host).ask(&request(), false).await;
        let item = &response["output"][0];
        assert_eq!(
            (&item["type"], &item["status"]),
            (&json!("local_shell_call"), &json!("incomplete")),
            "{arguments}"
        );
        assert_eq!(item["action"]["command"], json!([]));
    }
}

#[tokio::test]
async fn missing_search_tool_is_left_out_and_reported() {
    let (host, upstream) = host("openai-chat").await;
    let client = Client::new(&host);
    upstream.reply(answer(false, "done"));
    let headers = [("x-service-metadata", "enabled")];
    let answered = client.post_with("/responses", &request(), &headers).await;
    let pipeline = answered.body["service_metadata"]["pipeline"].as_array().unwrap();
    let left = json!([{"path": "tools[6]", "type": "web_search"}]);
    assert!(pipeline.iter().any(|stage| stage["data"]["left_out"] == left), "{pipeline:?}");
    for choice in [
        json!({"type": "web_search"}),
        json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]}),
    ] {
        let mut named = request();
        named["tool_choice"] = choice;
        let refused = client.post("/responses", &named).await;
        assert_eq!(refused.status, 400, "{}", refused.text);
        assert!(refused.message().starts_with("tools[6].type \"web_search\""), "{}", refused.text);
    }
    let only =
        json!({"model": MODEL, "input": "x", "tools": [{"type": "web_search"}], "tool_choice": "required"});
    assert_eq!(client.post("/responses", &only).await.status, 400);
    let own = json!({"model": MODEL, "input": "x", "tools": [{"type": "service:web_search"}]});
    assert_eq!(client.post("/responses", &own).await.status, 400);
}

#[tokio::test]
async fn unlisted_search_tool_is_left_out_on_the_operators_key() {
    let (host, upstream) = host("openai-responses").await;
    let client = Client::new(&host);
    let search = json!({"type": "web_search", "external_web_access": false});
    let function = json!({"type": "function", "name": "f", "parameters": {"type": "object"}});
    let item = |tools: Value| json!({"type": "additional_tools", "role": "developer", "tools": tools});
    let user = json!({"role": "user", "content": [{"type": "input_text", "text": "Go."}]});
    let mut asked_for = json!({"model": MODEL, "tools": [function, search],
        "input": [item(json!([search, function])), item(json!([search])), user]});
    upstream.reply(script::response(&json!([script::message("done")])));
    let answered = client.post_with("/responses", &asked_for, &[("x-service-metadata", "enabled")]).await;
    assert_eq!(answered.status, 200, "{}", answered.text);
    let pipeline = answered.body["service_metadata"]["pipeline"].as_array().unwrap();
    let paths = ["tools[1]", "input[0].tools[0]", "input[1].tools[0]"];
    let left = json!(paths.map(|path| json!({"path": path, "type": "web_search"})));
    assert!(pipeline.iter().any(|stage| stage["data"]["left_out"] == left), "{pipeline:?}");
    let asked = upstream.asked_once();
    assert_eq!(asked.body["tools"], json!([function]));
    let input = asked.body["input"].as_array().unwrap();
    assert_eq!((input.len(), &input[0]), (2, &item(json!([function]))), "{input:?}");
    asked_for["tool_choice"] = json!({"type": "web_search"});
    assert_eq!(client.post("/responses", &asked_for).await.status, 400);
    assert_eq!(upstream.asked().len(), 1);
}

#[tokio::test]
async fn tool_choice_names_the_substitute_functions() {
    let (host, upstream) = host("openai-chat").await;
    let client = Client::new(&host);
    for (choice, function) in [
        (json!({"type": "custom", "name": "edit"}), "edit"),
        (json!({"type": "function", "name": "add"}), "mcp__calc__add"),
        (json!({"type": "function", "name": "exec_command"}), "exec_command"),
        (json!({"type": "local_shell"}), "local_shell"),
        (json!({"type": "tool_search"}), "tool_search"),
    ] {
        upstream.reply(answer(false, "done"));
        let mut chosen = request();
        chosen["tool_choice"] = choice.clone();
        let answered = client.post("/responses", &chosen).await;
        assert_eq!(answered.status, 200, "{}", answered.text);
        let asked = upstream.asked().pop().unwrap();
        assert_eq!(asked.body["tool_choice"]["function"]["name"], function, "{choice}");
    }
    upstream.reply(answer(false, "done"));
    let mut allowed = request();
    allowed["tool_choice"] = json!({"type": "allowed_tools", "mode": "auto", "tools": [
        {"type": "namespace", "name": "mcp__calc"}, {"type": "function", "name": "exec_command"},
    ]});
    client.post("/responses", &allowed).await;
    let asked = upstream.asked().pop().unwrap();
    let offered = asked.body["tools"].as_array().unwrap();
    let names: Vec<_> = offered.iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["exec_command", "mcp__calc__add", "mcp__calc__solve"]);
}

#[tokio::test]
async fn function_names_are_unique_and_short() {
    let (host, upstream) = host("openai-chat").await;
    upstream.reply(calls(false, "", &[call("c1", "a__b_2", "{}")]));
    let long = "x".repeat(100);
    let group = |name: &str, tool: &str| json!({"type": "namespace", "name": name, "tools": [{"type": "function", "name": tool}]});
    let request = json!({"model": MODEL, "input": "Go.", "tools": [
        {"type": "function", "name": "a__b"}, group("a", "b"), group("a.", "b"), group("n", &long),
    ]});
    let response = Client::new(&host).ask(&request, false).await;
    let made = &response["output"][0];
    assert_eq!((&made["namespace"], &made["name"]), (&json!("a"), &json!("b")), "{response}");
    let asked = upstream.asked_once();
    let offered = asked.body["tools"].as_array().unwrap();
    let names: Vec<_> = offered.iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect();
    assert_eq!(names[..3], ["a__b", "a__b_2", "a___b"]);
    assert_eq!(names[3].len(), 64);
}

#[tokio::test]
async fn endpoint_is_skipped_only_for_tools_it_cannot_express() {
    let upstream = Upstream::start().await;
    let config = provider("one", "openai-chat", &upstream.base)
        + &provider("two", "openai-responses", &upstream.base)
        + &with_keys(&model(MODEL, "responses", &["one", "two"]), "two", HOSTED_TOOLS);
    let host = Setup::new().config(&config).start();
    let client = Client::new(&host);
    for tool in [
        json!({"type": "computer"}),
        json!({"type": "programmatic_tool_calling"}),
        json!({"type": "shell", "environment": {"type": "container_auto"}}),
    ] {
        upstream.reply(script::response(&json!([script::message("done")])));
        let asked_for = json!({"model": MODEL, "input": "x", "tools": [tool]});
        let answered = client.post("/responses", &asked_for).await;
        assert_eq!(answered.status, 200, "{}", answered.text);
        let asked = upstream.asked().pop().unwrap();
        assert_eq!((asked.path.as_str(), &asked.body["tools"][0]["type"]), ("/v1/responses", &tool["type"]));
    }
    upstream.reply(answer(false, "done"));
    client.post("/responses", &request()).await;
    assert_eq!(upstream.asked().pop().unwrap().path, "/v1/chat/completions");
}
