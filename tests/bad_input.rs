//! Invalid input from clients: each mistake gets a clear error, and no content appears in the log.

mod connection;

use crate::kit::client::{Answer, Client, http, read};
use crate::kit::host::{Host, Setup};
use reqwest::Method;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Part of every invalid body; it must not appear in the log.
const CANARY: &str = "canary-5e1d0c";

/// Checks an error response: its envelope, and that the client is at fault.
fn check(answer: &Answer, status: u16, words: &str) {
    assert_eq!(answer.status, status, "{}", answer.text);
    let error = &answer.body["error"];
    assert_eq!(error["code"], status, "{}", answer.text);
    assert!(error["metadata"]["error_type"].is_string(), "{}", answer.text);
    assert!(answer.message().contains(words), "{words}: {}", answer.text);
    assert!(answer.body.get("user_id").is_some(), "{}", answer.text);
    assert!(answer.headers.contains_key("x-request-id"));
}

/// Ends a host that has received the canary and checks that it is neither in the log nor in a file.
fn end(mut host: Host) {
    let log = host.end();
    assert!(log.contains("\"request\""), "{log}");
    assert!(!log.contains(CANARY), "content is in the log: {log}");
    assert_eq!(host.files_with(CANARY), Vec::<PathBuf>::new());
}

fn traced() -> Host {
    Setup::new().environment("COFFERDAM_LOG", "trace").start()
}

#[tokio::test]
async fn fields_of_the_wrong_type_are_named_by_path() {
    let host = traced();
    let client = Client::new(&host);
    let message =
        |content: Value| json!([{"role": "user", "content": CANARY}, {"role": "user", "content": content}]);
    for (members, words) in [
        (json!({"model": 5}), "model must be a string"),
        (json!({"model": null}), "model"),
        (json!({"input": null}), "input"),
        (json!({"input": 7}), "input"),
        (json!({"input": []}), "input"),
        (json!({"input": [CANARY]}), "input[0]"),
        (json!({"input": message(json!(5))}), "input[1].content"),
        (json!({"input": message(json!([{"type": "input_text"}]))}), "input[1].content[0].text"),
        (
            json!({"input": message(json!([{"type": "input_smell", "smell": CANARY}]))}),
            "input[1].content[0].type",
        ),
        (json!({"input": message(json!([{"text": CANARY}]))}), "input[1].content[0].type"),
        (json!({"input": [{"role": "wizard", "content": CANARY}]}), "input[0].role"),
        (json!({"input": [{"type": "levitation", "x": CANARY}]}), "input[0].type"),
        (json!({"input": [{"type": "item_reference", "id": CANARY}]}), "input[0]"),
        (json!({"input": [{"type": "custom_tool_call_output", "output": CANARY}]}), "input[0].call_id"),
        (
            json!({"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": {}}]}),
            "input[0].arguments",
        ),
        (json!({"previous_response_id": "resp_1"}), "previous_response_id"),
        (json!({"store": true}), "store"),
        (json!({"background": true}), "background"),
        (json!({"max_tool_calls": 31}), "max_tool_calls"),
        (json!({"max_tool_calls": 0}), "max_tool_calls"),
        (json!({"temperature": 3}), "temperature"),
        (json!({"temperature": CANARY}), "temperature"),
        (json!({"stream": CANARY}), "stream"),
        (json!({"max_output_tokens": -1}), "max_output_tokens"),
        (json!({"tools": [{"type": "function"}]}), "tools[0].name"),
        (json!({"tools": [{"name": CANARY}]}), "tools[0].type"),
        (json!({"tools": {}}), "tools"),
        (json!({"tool_choice": {"type": "function", "name": "f"}}), "tool_choice"),
        (json!({"tool_choice": "sometimes"}), "tool_choice"),
        (json!({"metadata": {"k": 1}}), "metadata.k"),
        (json!({"text": {"format": {"type": "poem"}}}), "text.format.type"),
        (json!({"reasoning": {"effort": "heroic"}}), "reasoning.effort"),
        (json!({"provider": {"order": CANARY}}), "provider.order"),
        (json!({"provider": {"sort": "beauty"}}), "provider.sort"),
        (json!({"models": [1]}), "models[0]"),
        (json!({"user": "u".repeat(257)}), "user"),
        (json!({"include": ["everything"]}), "include[0]"),
        (json!({"plugins": [{"enabled": true}]}), "plugins[0].id"),
        (json!({"service_tier": CANARY}), "service_tier"),
        (json!({"stop_server_tools_when": []}), "stop_server_tools_when"),
    ] {
        let mut body = json!({"model": "local/demo", "input": CANARY, "instructions": CANARY});
        body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        check(&client.post("/responses", &body).await, 400, words);
        body.as_object_mut().unwrap().entry("stream").or_insert(json!(true));
        check(&client.post("/responses", &body).await, 400, words);
    }
    end(host);
}

#[tokio::test]
async fn embedding_fields_of_the_wrong_type_are_named_by_path() {
    let host = traced();
    let client = Client::new(&host);
    for (members, words) in [
        (json!({"input": ""}), "input"),
        (json!({"input": []}), "input"),
        (json!({"input": [""]}), "input[0]"),
        (json!({"input": [CANARY, 5]}), "input[1]"),
        (json!({"input": [1, CANARY]}), "input[1]"),
        (json!({"input": [[]]}), "input[0]"),
        (json!({"input": [[1.5]]}), "input[0][0]"),
        (json!({"input": [-1]}), "input[0]"),
        (json!({"input": [{"content": []}]}), "input[0].content"),
        (json!({"input": [{"content": [{"type": "smell"}]}]}), "input[0].content[0].type"),
        (json!({"input": {"content": CANARY}}), "input.content"),
        (json!({"model": ""}), "model"),
        (json!({"dimensions": 0}), "dimensions"),
        (json!({"encoding_format": CANARY}), "encoding_format"),
        (json!({"provider": []}), "provider"),
    ] {
        let mut body = json!({"model": "local/embed", "input": CANARY});
        body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        check(&client.post("/embeddings", &body).await, 400, words);
    }
    end(host);
}

#[tokio::test]
async fn bodies_that_are_not_json_objects_are_refused() {
    let host = traced();
    let client = Client::new(&host);
    let deep = |depth: usize| {
        let open = "[".repeat(depth);
        let close = "]".repeat(depth);
        format!("{{\"model\": \"local/demo\", \"input\": \"{CANARY}\", \"trace\": {{\"x\": {open}{close}}}}}")
    };
    let bodies: Vec<Vec<u8>> = vec![
        Vec::new(),
        b" ".to_vec(),
        b"null".to_vec(),
        b"[]".to_vec(),
        b"7".to_vec(),
        format!("\"{CANARY}\"").into_bytes(),
        format!("{{\"model\": \"local/demo\", \"input\": \"{CANARY}\"").into_bytes(),
        format!("{{\"model\": \"local/demo\", \"input\": \"{CANARY}\"}} {{}}").into_bytes(),
        format!("{{\"model\": \"local/demo\", \"input\": \"{CANARY}\",}}").into_bytes(),
        format!("{{'model': '{CANARY}'}}").into_bytes(),
        format!("{{\"model\": \"local/demo\", \"input\": \"{CANARY}\", \"input\": \"x\"}}").into_bytes(),
        format!("{{\"model\": \"local/demo\", \"input\": \"{CANARY}\", \"in\\u0070ut\": \"x\"}}")
            .into_bytes(),
        [b"{\"model\": \"local/demo\", \"input\": \"", CANARY.as_bytes(), b"\xff\xfe\"}"].concat(),
        format!("{{\"model\": \"local/demo\", \"input\": \"{CANARY}\\ud800\"}}").into_bytes(),
        format!("{{\"model\": \"local/demo\", \"input\": \"{CANARY}\n\"}}").into_bytes(),
        format!("{{\"model\": \"local/demo\", \"input\": \"{CANARY}\", \"temperature\": NaN}}").into_bytes(),
        format!("{{\"model\": \"local/demo\", \"input\": \"{CANARY}\", \"temperature\": 1e999}}")
            .into_bytes(),
        deep(65).into_bytes(),
        deep(100_000).into_bytes(),
        "{\"a\":".repeat(50_000).into_bytes(),
    ];
    for body in bodies {
        let start = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
        for path in ["/responses", "/embeddings"] {
            let answer = client.post_bytes(path, body.clone()).await;
            assert_eq!(answer.status, 400, "{path} {start}: {}", answer.text);
            check(&answer, 400, "");
            assert!(!answer.text.contains(CANARY), "{}", answer.text);
        }
    }
    let nested = client.post_bytes("/responses", deep(60).into_bytes()).await;
    assert_eq!(nested.status, 200, "{}", nested.text);
    end(host);
}

#[tokio::test]
async fn names_from_the_client_are_escaped_in_messages_and_log() {
    let host = traced();
    let client = Client::new(&host);
    let hostile = format!("no/\u{1b}[31m\r\nX: 1 <script>{CANARY}");
    let answer = client.post("/responses", &json!({"model": hostile, "input": "x"})).await;
    check(&answer, 404, "no/");
    assert!(!answer.message().contains(['\u{1b}', '\r', '\n']), "{}", answer.text);
    check(&client.post("/responses", &json!({"model": "x".repeat(300), "input": "x"})).await, 400, "model");
    let tool = json!({"type": format!("service:{CANARY}\n")});
    let body = json!({"model": "local/demo", "input": "x", "tools": [tool]});
    check(&client.post("/responses", &body).await, 400, "tools[0].type");
    check(&client.get(&format!("/models/{CANARY}")).await, 404, "");
    end(host);
}

#[tokio::test]
async fn missing_keys_are_distinguished_from_invalid_ones_and_nothing_else_is() {
    let host = Setup::new().start();
    let body = json!({"model": "local/demo", "input": "x"});
    let without = http().build().unwrap();
    let answer =
        without.post(format!("{}/responses", host.base)).body(body.to_string()).send().await.unwrap();
    check_key(&read(answer).await, "Missing Authentication header");
    let expired = host.command(&["key", "create", "--workspace", "default", "--expires-days", "1"]);
    assert!(expired["key"].is_string(), "{expired}");
    let revoked = host.command(&["key", "create", "--workspace", "default"]);
    let token = revoked["key"].as_str().unwrap();
    assert_eq!(Client::with_key(&host, token).post("/responses", &body).await.status, 200);
    host.command(&["key", "revoke", revoked["id"].as_str().unwrap()]);
    let mut wrong = host.key.clone();
    let last = wrong.pop().unwrap();
    wrong.push(if last == 'a' { 'b' } else { 'a' });
    for key in [token, &wrong, "cfd_", "nonsense", "cfd_000000000000_00000000"] {
        let answer = Client::with_key(&host, key).post("/responses", &body).await;
        check_key(&answer, "Invalid or missing API key");
    }
}

fn check_key(answer: &Answer, message: &str) {
    assert_eq!((answer.status, answer.message()), (401, message), "{}", answer.text);
    assert_eq!(answer.body["error"]["metadata"]["error_type"], "authentication");
    assert_eq!(answer.body["user_id"], Value::Null);
}

#[tokio::test]
async fn keys_of_other_kinds_are_refused_for_inference() {
    let host = Setup::new().start();
    for arguments in [
        &["key", "create", "--provisioning", "--workspace", "default"][..],
        &["key", "create", "--no-scope"][..],
    ] {
        let key = host.command(arguments);
        let client = Client::with_key(&host, key["key"].as_str().unwrap());
        let body = json!({"model": "local/demo", "input": "x"});
        check(&client.post("/responses", &body).await, 403, "");
        check(&client.post("/embeddings", &body).await, 403, "");
        assert_eq!(client.get("/models").await.status, 200);
    }
}

#[tokio::test]
async fn other_methods_and_paths_are_refused() {
    let host = Setup::new().start();
    let client = Client::new(&host);
    for (method, path, allowed) in [
        (Method::GET, "/responses", "POST"),
        (Method::DELETE, "/responses", "POST"),
        (Method::PUT, "/embeddings", "POST"),
        (Method::POST, "/models", "GET, HEAD"),
    ] {
        let answer = client.request(method, path).send().await.unwrap();
        let answer = read(answer).await;
        check(&answer, 405, "Method not allowed");
        assert_eq!(answer.headers["allow"], allowed);
    }
    for path in ["/nothing", "/responses/", "/responses/resp_1", "/chat/completions", "//responses", ""] {
        check(&client.get(path).await, 404, "Not found");
    }
}

#[tokio::test]
async fn a_compressed_body_is_refused() {
    let host = Setup::new().start();
    let client = Client::new(&host);
    let body = json!({"model": "local/demo", "input": "x"});
    let answer = client.post_with("/responses", &body, &[("content-encoding", "gzip")]).await;
    check(&answer, 400, "compressed");
}

#[tokio::test]
async fn other_content_types_are_refused() {
    let host = Setup::new().start();
    let client = Client::new(&host);
    let post = async |path: &str, types: &[&str]| {
        let model = if path == "/embeddings" { "local/embed" } else { "local/demo" };
        let mut request = client.request(Method::POST, path);
        for written in types {
            request = request.header("content-type", *written);
        }
        read(request.body(json!({"model": model, "input": "x"}).to_string()).send().await.unwrap()).await
    };
    for path in ["/responses", "/embeddings"] {
        for types in [&[][..], &["application/json"], &["Application/JSON; charset=\"UTF-8\""]] {
            assert_eq!(post(path, types).await.status, 200, "{path} {types:?}");
        }
        for types in [
            &["text/plain"][..],
            &["application/x-www-form-urlencoded"],
            &["application/json; charset=latin1"],
            &["application/json", "application/json"],
            &[""],
        ] {
            check(&post(path, types).await, 400, "content-type must be application/json");
        }
    }
}

#[tokio::test]
async fn a_configuration_with_a_mistake_is_refused_with_its_position() {
    let output = Setup::new().config("[timeouts]\nidle_ms = \"soon\"").argument("--check").fail();
    assert_eq!(output.status.code(), Some(78));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("idle_ms") && told.contains(":2:"), "{told}");
}

#[tokio::test]
async fn an_empty_directory_of_plugins_changes_nothing() {
    let empty = tempfile::tempdir().unwrap();
    let host = Setup::new().plugins(empty.path()).start();
    let body = json!({"model": "local/demo", "input": "x"});
    assert_eq!(Client::new(&host).post("/responses", &body).await.status, 200);
}

#[tokio::test]
async fn a_session_header_is_bounded_unless_the_body_has_its_own() {
    let host = traced();
    let client = Client::new(&host);
    let long = "s".repeat(257);
    for (path, model) in [("/responses", "local/demo"), ("/embeddings", "local/embed")] {
        let post = |body: Value| {
            let request = client.request(Method::POST, path).header("x-session-id", &long);
            request.header("content-type", "application/json").body(body.to_string()).send()
        };
        let refused = read(post(json!({"model": model, "input": CANARY})).await.unwrap()).await;
        check(&refused, 400, "x-session-id");
        // An empty name is none, so that the conversations of clients that send one have nothing in common.
        let refused =
            read(post(json!({"model": model, "input": CANARY, "session_id": ""})).await.unwrap()).await;
        check(&refused, 400, "x-session-id");
        let own = json!({"model": model, "input": CANARY, "session_id": "s"});
        assert_eq!(read(post(own).await.unwrap()).await.status, 200);
    }
    end(host);
}
