//! Remote MCP servers for endpoints that do not support the client's tool `mcp`. The server is
//! scripted by the test; `tests/clients` uses the official one.

use super::reach::{HOST, NATIVE, OTHER, Reach, events_of, with_tool};
use super::script::{answer, call};
use crate::kit::client::Client;
use crate::kit::config::MODEL;
use crate::kit::script::{escaped, message, response};
use crate::kit::site::ID;
use crate::kit::upstream::Reply;
use serde_json::{Value, json};

pub async fn bench() -> Reach {
    Reach::start(|_| format!("[plugins.tool-mcp]\nhosts = [\"{HOST}\"]")).await
}

/// One tool of a server.
pub fn tool(name: &str) -> Value {
    json!({"name": name, "description": "Adds.", "inputSchema": {"type": "object", "properties": {"a": {"type": "integer"}}}})
}

/// An answer of the server, as JSON or as a stream that begins with another message.
pub fn says(result: Value, streamed: bool) -> Reply {
    let message = json!({"jsonrpc": "2.0", "id": ID, "result": result});
    if !streamed {
        return Reply::json(200, message);
    }
    let other = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info"}});
    Reply::sse(&[other, message])
}

/// Scripts the handshake and the list of tools.
pub fn lists(bench: &Reach, tools: Value, streamed: bool) {
    lists_at(bench, "/mcp", tools, streamed);
}

fn lists_at(bench: &Reach, path: &str, tools: Value, streamed: bool) {
    bench.site.reply_at(path, agrees());
    bench.site.reply_at(path, Reply::Whole { status: 202, headers: Vec::new(), body: String::new() });
    bench.site.reply_at(path, says(json!({"tools": tools}), streamed));
}

fn agrees() -> Reply {
    let agreed = json!({"jsonrpc": "2.0", "id": ID, "result": {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}});
    let headers =
        vec![("content-type", "application/json".to_owned()), ("mcp-session-id", "session-1".to_owned())];
    Reply::Whole { status: 200, headers, body: agreed.to_string() }
}

pub fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

pub fn entry(bench: &Reach, members: Value) -> Value {
    let mut entry = json!({"type": "mcp", "server_label": "calc", "server_url": bench.url("/mcp"), "require_approval": "never"});
    entry.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    entry
}

#[tokio::test]
async fn the_model_calls_a_tool_of_the_server() {
    let bench = bench().await;
    for streamed in [false, true] {
        lists(&bench, json!([tool("add-up"), tool("other")]), streamed);
        bench.site.reply(says(text("3"), streamed));
        let request =
            with_tool(entry(&bench, json!({"allowed_tools": ["add-up"], "authorization": "token-1"})));
        let made = [call("c1", "calc__add_up", r#"{"a":1}"#)];
        let (answered, events) = bench.run(&request, streamed, &made, "It is 3.").await;

        let [listed, called, said] = answered["output"].as_array().unwrap().as_slice() else {
            panic!("{answered}")
        };
        assert_eq!(
            *listed,
            json!({"type": "mcp_list_tools", "id": listed["id"], "server_label": "calc", "error": null, "tools": [
                {"name": "add-up", "description": "Adds.", "input_schema": tool("x")["inputSchema"], "annotations": null}]})
        );
        assert!(listed["id"].as_str().unwrap().starts_with("mcpl_"));
        assert_eq!(
            *called,
            json!({"type": "mcp_call", "id": called["id"], "status": "completed", "server_label": "calc",
                "name": "add-up", "arguments": r#"{"a":1}"#, "output": "3", "error": null})
        );
        assert!(called["id"].as_str().unwrap().starts_with("mcp_"));
        assert_eq!(said["content"][0]["text"], "It is 3.");
        assert_eq!(answered["tools"][0].get("authorization"), None);

        assert_eq!((bench.told().as_str(), bench.offered()), ("3", vec![json!("calc__add_up")]));
        let seen = bench.site.seen();
        let [.., first, ready, listing, calling] = seen.as_slice() else { panic!() };
        for request in [first, ready, listing, calling] {
            assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/mcp"));
            assert_eq!(request.header("authorization"), Some("Bearer token-1"));
        }
        assert_eq!(first.header("mcp-session-id"), None);
        assert_eq!(calling.header("mcp-session-id"), Some("session-1"));
        assert_eq!(calling.header("mcp-protocol-version"), Some("2025-06-18"));
        let sent: Value = serde_json::from_slice(&calling.body).unwrap();
        assert_eq!(sent["params"], json!({"name": "add-up", "arguments": {"a": 1}}));
        if streamed {
            let list = [
                "output_item.added",
                "mcp_list_tools.in_progress",
                "mcp_list_tools.completed",
                "output_item.done",
            ];
            assert_eq!(events_of(&events, 0), list);
            let call = [
                "output_item.added",
                "mcp_call.in_progress",
                "mcp_call_arguments.delta",
                "mcp_call_arguments.delta",
                "mcp_call_arguments.done",
                "mcp_call.completed",
                "output_item.done",
            ];
            assert_eq!(events_of(&events, 1), call);
            let added = events.iter().find(|event| event["output_index"] == 1).unwrap();
            assert_eq!((&added["item"]["name"], &added["item"]["arguments"]), (&json!("add-up"), &json!("")));
            let done =
                events.iter().find(|event| event["type"] == "response.mcp_call_arguments.done").unwrap();
            assert_eq!((&done["arguments"], &done["item_id"]), (&json!(r#"{"a":1}"#), &called["id"]));
        }
    }
}

#[tokio::test]
async fn secrets_of_the_vault_go_to_the_server_and_are_removed_from_answers() {
    let key = "mcp-token-very-secret-0123456789";
    let bench = Reach::start(|_| {
        format!("[plugins.tool-mcp]\nhosts = [\"{HOST}\"]\nsecrets = [\"mcp_token\"]\nplaceholder_headers = [\"authorization\", \"x-api-key\"]")
    })
    .await;
    bench.secret("mcp_token", key);
    for (members, header, sent) in [
        (json!({"authorization": "{{secret:mcp_token}}"}), "authorization", format!("Bearer {key}")),
        (json!({"headers": {"X-Api-Key": "k={{secret:mcp_token}}"}}), "x-api-key", format!("k={key}")),
    ] {
        lists(&bench, json!([tool("leak")]), false);
        bench.site.reply(says(text(&format!("your token is {key}")), true));
        let request = with_tool(entry(&bench, members));
        let (answered, _) = bench.run(&request, false, &[call("c1", "calc__leak", "{}")], "done").await;
        assert_eq!(bench.site.last().header(header), Some(sent.as_str()));
        assert_eq!(bench.told(), "your token is [secret:mcp_token]");
        assert!(!answered.to_string().contains(key));
    }
    // A plugin parses JSON, so escaped letters reach the host unescaped when the plugin passes them
    // on.
    let letters = escaped(key, 1);
    let leaked = json!({"jsonrpc": "2.0", "id": ID, "result": text("your token is LETTERS")});
    let body = leaked.to_string().replace("LETTERS", &letters);
    let headers = vec![("content-type", "application/json".to_owned())];
    lists(&bench, json!([tool("leak")]), false);
    bench.site.reply(Reply::Whole { status: 200, headers, body });
    let request = with_tool(entry(&bench, json!({"authorization": "{{secret:mcp_token}}"})));
    let (answered, _) = bench.run(&request, false, &[call("c1", "calc__leak", "{}")], "done").await;
    assert_eq!(bench.told(), "your token is [secret:mcp_token]");
    assert!(!answered.to_string().contains(key));
    let request = with_tool(entry(&bench, json!({"authorization": "{{secret:other}}"})));
    let refused = Client::new(&bench.host).post("/responses", &request).await;
    assert_eq!(
        (refused.status, refused.message()),
        (400, "tools[0].headers or authorization name a secret that is not available for this server")
    );
}

#[tokio::test]
async fn errors_of_the_server_reach_model_and_client() {
    let bench = bench().await;
    let error = json!({"jsonrpc": "2.0", "id": ID, "error": {"code": -32602, "message": "no such argument"}});
    let unread =
        json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": "not initialized"}});
    let html = Reply::Whole {
        status: 200,
        headers: vec![("content-type", "text/html".to_owned())],
        body: "<p>Hi".to_owned(),
    };
    let elsewhere = Reply::Whole {
        status: 307,
        headers: vec![("location", "https://other.test/".to_owned())],
        body: String::new(),
    };
    let endless = (0..100).map(|_| format!("data: {}\n\n", "x".repeat(1 << 17))).collect();
    for (reply, words) in [
        (
            says(json!({"isError": true, "content": [{"type": "text", "text": "no such city"}]}), false),
            "no such city",
        ),
        (Reply::json(200, error), "no such argument"),
        (Reply::json(400, unread), "not initialized"),
        (html, "not one of the protocol"),
        (elsewhere, "redirects (HTTP 307)"),
        (Reply::json(401, json!({})), "refuses access"),
        (
            Reply::Stream { content_type: "text/event-stream", pieces: endless },
            "larger than this tool accepts",
        ),
        (Reply::sse(&[json!({"jsonrpc": "2.0", "id": 99, "result": {}})]), "ended before the answer"),
        (Reply::Cut { content_type: "application/json", pieces: vec!["{\"json".to_owned()] }, "broke"),
    ] {
        lists(&bench, json!([tool("x")]), false);
        bench.site.reply(reply);
        let request = with_tool(entry(&bench, json!({})));
        let (answered, events) = bench.run(&request, true, &[call("c1", "calc__x", "{}")], "Sorry.").await;
        let item = &answered["output"][1];
        assert_eq!((&item["type"], &item["status"]), (&json!("mcp_call"), &json!("failed")), "{words}");
        assert!(item["error"].to_string().contains(words), "{words}: {item}");
        assert!(item["error"]["type"].as_str().unwrap().ends_with("_error"), "{item}");
        assert_eq!((&item["server_label"], &item["name"]), (&json!("calc"), &json!("x")));
        assert!(bench.told().contains(words), "{words}");
        assert_eq!(answered["output"][2]["content"][0]["text"], "Sorry.");
        assert!(events_of(&events, 1).contains(&"mcp_call.failed".to_owned()));
    }
}

#[tokio::test]
async fn a_server_that_does_not_list_its_tools_leaves_the_model_without_them() {
    let bench = bench().await;
    for streamed in [false, true] {
        bench.site.reply(Reply::json(503, json!({})));
        bench.chat.reply(answer(streamed, "Without."));
        let (answered, events) = bench.ask(&with_tool(entry(&bench, json!({}))), streamed).await;
        let item = &answered["output"][0];
        assert_eq!(
            *item,
            json!({"type": "mcp_list_tools", "id": item["id"], "server_label": "calc", "tools": [],
                "error": "The MCP server answers with HTTP 503."})
        );
        assert_eq!(bench.offered(), Vec::<Value>::new());
        if streamed {
            assert!(events_of(&events, 0).contains(&"mcp_list_tools.failed".to_owned()), "{events:?}");
        }
    }
}

#[tokio::test]
async fn a_client_may_choose_a_few_of_many_tools() {
    let bench = bench().await;
    let mut large = tool("large");
    large["inputSchema"]["description"] = json!("x".repeat(33 << 10));
    let many: Vec<Value> = (0..200).map(|number| tool(&number.to_string())).chain([large]).collect();
    lists(&bench, json!(many), false);
    bench.chat.reply(answer(false, "done"));
    let request = with_tool(entry(&bench, json!({"allowed_tools": ["7", "199", "large"]})));
    let (answered, _) = bench.ask(&request, false).await;
    assert_eq!(answered["output"][0]["error"], Value::Null, "{answered}");
    assert_eq!(bench.offered(), [json!("calc__7"), json!("calc__199")]);
    bench.host.until_logged("1 of the tools of the MCP server at api.test cannot be offered");
    bench.host.until_logged("The first: \\\"large\\\"");
}

#[tokio::test]
async fn invalid_names_and_equal_names_of_two_servers_become_distinct() {
    let bench = bench().await;
    lists(&bench, json!([tool("größe.messen"), tool("gr__e_messen"), tool(&"long".repeat(40))]), false);
    lists_at(&bench, "/other", json!([tool("größe.messen")]), true);
    bench.site.reply(says(text("first"), false));
    bench.site.reply(says(text("second"), false));
    let other = json!({"server_label": "other one", "server_url": bench.url("/other")});
    let second = entry(&bench, other);
    let request = json!({"model": MODEL, "input": "Go.", "tools": [entry(&bench, json!({})), second]});
    let made = [call("c1", "calc__gr__e_messen_2", "{}"), call("c2", "other_one__gr__e_messen", "{}")];
    let (answered, _) = bench.run(&request, false, &made, "done").await;
    let offered = bench.offered();
    assert_eq!(offered.len(), 4);
    assert!(offered.iter().all(|name| name.as_str().unwrap().len() <= 64));
    let output = &answered["output"];
    assert_eq!((&output[2]["server_label"], &output[2]["name"]), (&json!("calc"), &json!("gr__e_messen")));
    assert_eq!(
        (&output[3]["server_label"], &output[3]["name"]),
        (&json!("other one"), &json!("größe.messen"))
    );
    // The same label twice is an error.
    lists(&bench, json!([tool("x")]), false);
    lists_at(&bench, "/other", json!([tool("x")]), false);
    let again = entry(&bench, json!({"server_url": bench.url("/other")}));
    let twice = json!({"model": MODEL, "input": "Go.", "tools": [entry(&bench, json!({})), again]});
    let refused = Client::new(&bench.host).post("/responses", &twice).await;
    assert!(refused.message().contains("can be offered only once"), "{}", refused.text);
}

#[tokio::test]
async fn streams_that_the_server_does_not_end_are_answers_and_the_session_is_ended() {
    let bench = bench().await;
    let event = |result: Value| {
        format!("event: message\ndata: {}\n\n", json!({"jsonrpc": "2.0", "id": ID, "result": result}))
    };
    bench.site.reply(agrees());
    bench.site.reply(Reply::Whole { status: 202, headers: Vec::new(), body: String::new() });
    let (listing, listed) = Reply::fed();
    let (calling, called) = Reply::fed();
    bench.site.reply(listed);
    bench.site.reply(called);
    listing.send(event(json!({"tools": [tool("add")]}))).await.unwrap();
    calling.send(": wait\n\n".to_owned()).await.unwrap();
    calling.send(event(text("3"))).await.unwrap();
    let request = with_tool(entry(&bench, json!({"authorization": "token-1"})));
    let (answered, _) = bench.run(&request, true, &[call("c1", "calc__add", r#"{"a":1}"#)], "3.").await;
    assert_eq!(answered["output"][1]["output"], "3", "{answered}");
    drop((listing, calling));
    let ended = bench.site.ended().await;
    assert_eq!((ended.method.as_str(), ended.path.as_str()), ("DELETE", "/mcp"));
    assert_eq!(ended.header("mcp-session-id"), Some("session-1"));
    assert_eq!(ended.header("authorization"), Some("Bearer token-1"));
}

#[tokio::test]
async fn a_session_is_ended_when_the_request_comes_to_nothing() {
    let bench = bench().await;
    lists(&bench, json!([tool("add")]), false);
    let wrong = json!({"type": "service:datetime", "parameters": {"timezone": "Nowhere/At_all"}});
    let request = json!({"model": MODEL, "input": "Go.", "tools": [entry(&bench, json!({})), wrong]});
    let refused = Client::new(&bench.host).post("/responses", &request).await;
    assert_eq!(refused.status, 400, "{}", refused.text);
    assert_eq!(bench.site.ended().await.header("mcp-session-id"), Some("session-1"));
}

#[tokio::test]
async fn several_servers_are_asked_at_the_same_time() {
    let bench = bench().await;
    let begun = || Reply::fed_as("application/json");
    let ((first, one), (second, two)) = (begun(), begun());
    bench.site.reply_at("/mcp", one);
    bench.site.reply_at("/other", two);
    for path in ["/mcp", "/other"] {
        bench.site.reply_at(path, Reply::Whole { status: 202, headers: Vec::new(), body: String::new() });
        bench.site.reply_at(path, says(json!({"tools": [tool("add")]}), false));
    }
    bench.chat.reply(answer(false, "done"));
    let other = entry(&bench, json!({"server_label": "other", "server_url": bench.url("/other")}));
    let request = json!({"model": MODEL, "input": "Go.", "tools": [entry(&bench, json!({})), other]});
    let both_asked = async {
        bench.site.until(2).await;
        let agreed = json!({"jsonrpc": "2.0", "id": ID, "result": {"protocolVersion": "2025-06-18", "capabilities": {}}});
        for server in [first, second] {
            server.send(agreed.to_string()).await.unwrap();
        }
    };
    let ((answered, _), ()) = tokio::join!(bench.ask(&request, false), both_asked);
    let labels: Vec<_> = (0..2).map(|place| &answered["output"][place]["server_label"]).collect();
    assert_eq!(labels, [&json!("calc"), &json!("other")]);
    assert_eq!(bench.offered(), [json!("calc__add"), json!("other__add")]);
}

#[tokio::test]
async fn a_choice_of_a_server_or_a_tool_is_one_of_its_functions() {
    let bench = bench().await;
    let tools = json!([tool("one"), tool("two")]);
    for (choice, expected) in [
        (
            json!({"type": "mcp", "server_label": "calc", "name": "two"}),
            json!({"type": "function", "function": {"name": "calc__two"}}),
        ),
        (
            json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp", "server_label": "calc", "name": "one"}]}),
            Value::Null,
        ),
    ] {
        lists(&bench, tools.clone(), false);
        bench.chat.reply(answer(false, "done"));
        let mut request = with_tool(entry(&bench, json!({})));
        request["tool_choice"] = choice.clone();
        bench.ask(&request, false).await;
        let body = bench.chat.asked().pop().unwrap().body;
        match expected {
            Value::Null => assert!(body.to_string().contains("calc__one"), "{body}"),
            expected => assert_eq!(body["tool_choice"], expected, "{choice}"),
        }
    }
}

#[tokio::test]
async fn what_cannot_be_reached_or_is_wrong_is_refused_by_its_field() {
    let bench = bench().await;
    let client = Client::new(&bench.host);
    for (members, told) in [
        (
            json!({"server_url": format!("https://{OTHER}:{}/mcp", bench.site.port)}),
            "tools[0].server_url is at a host",
        ),
        (json!({"server_url": "https://127.0.0.1/mcp"}), "tools[0].server_url is at a host"),
        (json!({"server_url": "http://api.test/mcp"}), "tools[0].server_url is at a host"),
        (json!({"server_url": "api.test"}), "tools[0].server_url must be an absolute https URL"),
        (json!({"connector_id": "connector_gmail"}), "tools[0].connector_id is not available on this host"),
        (json!({"require_approval": {"never": 1}}), "tools[0].require_approval.never takes a list"),
        (json!({"headers": {"Host": "evil.test"}}), "tools[0].headers has a name that no client may set"),
    ] {
        let refused = client.post("/responses", &with_tool(entry(&bench, members.clone()))).await;
        assert_eq!(refused.status, 400, "{members}");
        assert!(refused.message().starts_with(told), "{members}: {}", refused.text);
    }
    assert!(bench.site.seen().is_empty());
    // Without a grant the tool is unavailable. An unknown model is reported before the tool.
    let bare = Reach::start(|_| String::new()).await;
    let refused = Client::new(&bare.host).post("/responses", &with_tool(entry(&bare, json!({})))).await;
    assert_eq!(refused.message(), "tools[0].type \"mcp\" is not offered by any endpoint of this model");
    let mut request = with_tool(entry(&bench, json!({})));
    request["model"] = json!("no/such");
    assert_eq!(client.post("/responses", &request).await.status, 404);
    // No server is contacted for a request with too many, not even to end a session.
    let many: Vec<Value> =
        (0..65).map(|place| entry(&bench, json!({"server_label": format!("s{place}")}))).collect();
    let refused = client.post("/responses", &json!({"model": MODEL, "input": "Go.", "tools": many})).await;
    assert_eq!(refused.message(), "tools[64] is one server tool too many, of 64");
    assert!(bench.site.seen().is_empty());
}

#[tokio::test]
async fn an_endpoint_that_speaks_mcp_does_it_itself() {
    let bench = bench().await;
    bench.native.reply(response(&json!([message("own")])));
    let mut request = with_tool(entry(&bench, json!({})));
    request["model"] = json!(NATIVE);
    let (answered, _) = bench.ask(&request, false).await;
    assert_eq!(answered["output"][0]["content"][0]["text"], "own");
    assert_eq!(bench.native.asked().pop().unwrap().body["tools"][0]["type"], "mcp");
    assert!(bench.site.seen().is_empty());
}

#[tokio::test]
async fn every_request_of_a_session_has_an_id_of_its_own() {
    let bench = bench().await;
    for streamed in [false, true] {
        lists(&bench, json!([tool("slow"), tool("add")]), streamed);
        let before = bench.site.seen().len();
        // No answer is sent until all three calls have arrived.
        let waiting: Vec<_> = (0..3)
            .map(|_| Reply::fed())
            .map(|(sender, reply)| {
                bench.site.reply(reply);
                sender
            })
            .collect();
        let made = [
            call("c1", "calc__slow", r#"{"a":1}"#),
            call("c2", "calc__add", r#"{"a":2}"#),
            call("c3", "calc__add", r#"{"a":3}"#),
        ];
        let request = with_tool(entry(&bench, json!({})));
        let answers = async {
            bench.site.until(before + 6).await;
            let message = json!({"jsonrpc": "2.0", "id": ID, "result": text("done")});
            let event = format!("data: {message}\n\n");
            let sent = waiting.iter().map(|sender| sender.send(event.clone()));
            futures_util::future::try_join_all(sent).await.unwrap();
            // Dropping the sender ends the answer.
            drop(waiting);
        };
        let ((answered, _), ()) = tokio::join!(bench.run(&request, streamed, &made, "Done."), answers);
        for place in 1..4 {
            assert_eq!(answered["output"][place]["output"], "done", "{answered}");
        }
        let seen = bench.site.seen();
        let messages = seen[before..].iter().map(|seen| serde_json::from_slice::<Value>(&seen.body).unwrap());
        let ids: Vec<u64> = messages.filter_map(|message| message["id"].as_u64()).collect();
        let distinct: std::collections::BTreeSet<&u64> = ids.iter().collect();
        assert_eq!((ids.len(), distinct.len()), (5, 5), "{ids:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_ended_when_the_host_ends() {
    let config =
        format!("[timeouts]\ndrain_ms = 100\nunready_ms = 0\n[plugins.tool-mcp]\nhosts = [\"{HOST}\"]");
    let mut bench = Reach::start(|_| config.clone()).await;
    lists(&bench, json!([tool("add")]), false);
    bench.chat.reply(Reply::Hang);
    let request = with_tool(entry(&bench, json!({})));
    let client = Client::new(&bench.host);
    let asking = tokio::spawn(async move { client.post("/responses", &request).await });
    bench.chat.until_asked(1).await;
    bench.host.end();
    drop(asking);
    assert_eq!(bench.site.ended().await.header("mcp-session-id"), Some("session-1"));
}
