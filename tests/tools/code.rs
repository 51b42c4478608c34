//! JavaScript written by the model, run in the sandbox.

use super::script::{answer, call, calls};
use super::told;
use crate::kit::client::{Client, last_response};
use crate::kit::config::{MODEL, single_with_tools};
use crate::kit::host::{Host, Setup};
use crate::kit::script::{message, response};
use crate::kit::upstream::Upstream;
use serde_json::{Value, json};

async fn host(dialect: &str) -> (Host, Upstream) {
    let upstream = Upstream::start().await;
    // The manifest's deadline is longer; a shorter one keeps the test fast.
    let limit = "[plugins.tool-code-interpreter]\ndeadline_ms = 4000";
    let host = Setup::new().config(&single_with_tools(dialect, &upstream.base)).config(limit).start();
    (host, upstream)
}

fn request(tool: Value) -> Value {
    json!({"model": MODEL, "input": "Go.", "tools": [tool]})
}

fn clients() -> Value {
    json!({"type": "code_interpreter", "container": {"type": "auto"}})
}

/// The arguments of a call that runs `code`.
fn code(code: &str) -> String {
    json!({ "code": code }).to_string()
}

#[tokio::test]
async fn the_clients_own_kind_is_run_here_and_looks_as_clients_know_it() {
    let (host, upstream) = host("openai-chat").await;
    let client = Client::new(&host);
    let program = "console.log('hi'); 6 * 7";
    let outputs = json!([{"type": "logs", "logs": "hi\n"}, {"type": "logs", "logs": "42"}]);
    for (include, outputs) in [(json!([]), Value::Null), (json!(["code_interpreter_call.outputs"]), outputs)]
    {
        let mut request = request(clients());
        request["include"] = include;
        upstream.reply(calls(true, "", &[call("c1", "code_interpreter", &code(program))]));
        upstream.reply(answer(true, "done"));
        let events = client.stream(&request).await;
        let about: Vec<&Value> = events.iter().filter(|event| event["output_index"] == 0).collect();
        let types: Vec<&str> = about.iter().map(|event| event["type"].as_str().unwrap()).collect();
        assert_eq!(
            types,
            [
                "response.output_item.added",
                "response.code_interpreter_call.in_progress",
                "response.code_interpreter_call_code.delta",
                "response.code_interpreter_call_code.done",
                "response.code_interpreter_call.interpreting",
                "response.code_interpreter_call.completed",
                "response.output_item.done",
            ]
        );
        let item = &last_response(&events)["output"][0];
        let id = item["id"].as_str().unwrap();
        let container = item["container_id"].as_str().unwrap();
        assert!(id.starts_with("ci_") && container.starts_with("cntr_"), "{item}");
        let finished = json!({"type": "code_interpreter_call", "id": id, "status": "completed",
            "code": program, "container_id": container, "outputs": outputs});
        assert_eq!(*item, finished);
        let begun = json!({"type": "code_interpreter_call", "id": id, "status": "in_progress",
            "code": "", "container_id": container, "outputs": null});
        assert_eq!(about[0]["item"], begun);
        assert_eq!((&about[2]["delta"], &about[3]["code"]), (&json!(program), &json!(program)));
        assert!(about[1..6].iter().all(|event| event["item_id"] == id));
        assert_eq!(told(upstream.asked().last().unwrap()), ["hi\n=> 42"]);

        request["stream"] = json!(false);
        upstream.reply(calls(false, "", &[call("c1", "code_interpreter", &code(program))]));
        upstream.reply(answer(false, "done"));
        let whole = client.post("/responses", &request).await;
        assert_eq!(whole.body["output"][0]["outputs"], outputs, "{}", whole.text);
        assert_eq!(whole.body["output"][1]["content"][0]["text"], "done");
    }
    let asked = upstream.asked();
    let function = &asked[0].body["tools"][0]["function"];
    assert!(function["description"].as_str().unwrap().starts_with("Runs JavaScript"), "{function}");
    assert!(!function.to_string().contains("x-item"), "{function}");
}

#[tokio::test]
async fn an_endpoint_with_an_interpreter_of_its_own_keeps_it() {
    let (host, upstream) = host("openai-responses").await;
    upstream.reply(response(&json!([message("done")])));
    let answer = Client::new(&host).post("/responses", &request(clients())).await;
    assert_eq!(answer.output_text(), "done", "{}", answer.text);
    assert_eq!(upstream.asked()[0].body["tools"], json!([clients()]));
}

#[tokio::test]
async fn the_prefixed_tool_is_an_item_of_its_own() {
    let (host, upstream) = host("openai-chat").await;
    let client = Client::new(&host);
    for (program, stdout, stderr, exit_code) in [
        ("console.log(1); 2", "1\n=> 2", "", 0),
        ("console.log(1); throw new TypeError('no')", "1\n", "Uncaught TypeError: no (code.js:1:23)", 1),
    ] {
        upstream.reply(calls(false, "", &[call("c1", "code_interpreter", &code(program))]));
        upstream.reply(answer(false, "done"));
        let answer =
            client.post("/responses", &request(json!({"type": "openrouter:code_interpreter"}))).await;
        let item = &answer.body["output"][0];
        let expected = json!({"type": "openrouter:code_interpreter", "id": item["id"], "status": "completed",
            "code": program, "language": "javascript", "stdout": stdout, "stderr": stderr,
            "exit_code": exit_code, "content": []});
        assert_eq!(*item, expected);
    }
}

#[tokio::test]
async fn code_that_throws_is_an_output_for_client_and_model() {
    let (host, upstream) = host("openai-chat").await;
    let mut request = request(clients());
    request["include"] = json!(["code_interpreter_call.outputs"]);
    upstream.reply(calls(false, "", &[call("c1", "code_interpreter", &code("let x = null; x.y"))]));
    upstream.reply(calls(false, "", &[call("c2", "code_interpreter", r#"{"code":7}"#)]));
    upstream.reply(answer(false, "I see."));
    let response = Client::new(&host).post("/responses", &request).await;
    assert_eq!(response.body["status"], "completed", "{}", response.text);
    let output = &response.body["output"];
    assert_eq!(output[0]["status"], "completed");
    let logs = output[0]["outputs"][0]["logs"].as_str().unwrap();
    assert!(logs.starts_with("Uncaught TypeError: "), "{logs}");
    assert_eq!(
        (&output[1]["status"], &output[1]["error"]),
        (&json!("failed"), &json!("code must be a string"))
    );
    assert_eq!(output[1]["code"], "");
    let asked = upstream.asked();
    assert_eq!(told(&asked[1])[0], logs);
}

#[tokio::test]
async fn whatever_code_does_ends_with_its_call() {
    let (host, upstream) = host("openai-chat").await;
    let client = Client::new(&host);
    let mut request = request(clients());
    request["include"] = json!(["code_interpreter_call.outputs"]);
    // Programs, and the beginning of the result that the model gets.
    let table = [
        ("console.log('a'); for (;;) {}", "a\nStopped: a loop went round too many times."),
        ("function f() { return f() + 1 } f()", "Stopped: the code recursed too deeply."),
        ("const go = () => Promise.resolve().then(go); go(); 1", "{\"error\":\"The tool "),
        ("const o = { get x() { return this.x } }; o.x", "{\"error\":\"The tool "),
        ("const a = []; for (;;) a.push(new Array(1000).fill(a))", "{\"error\":\"The tool "),
        ("let s = 'x'; for (;;) s += s", "{\"error\":\"The tool "),
        ("new ArrayBuffer(1e9)", "Uncaught RangeError: "),
        ("/^(a+)+$/.test('a'.repeat(40) + '!')", "{\"error\":\"The tool took too long.\"}"),
        ("for (let i = 0; i < 1e5; i++) console.log('0123456789'.repeat(10))", "0123456789"),
        ("Object.prototype.then = go => { throw 1 }; Array.prototype.push = null; ({}).x", "("),
        ("fetch('https://example.com')", "Uncaught ReferenceError: "),
        ("require('fs').readFileSync('/etc/passwd')", "Uncaught ReferenceError: "),
        ("await import('fs')", "Uncaught "),
        ("process.env", "Uncaught ReferenceError: "),
    ];
    let nested = "(".repeat(100_000);
    let long = "x".repeat(300_000);
    let rows = table.into_iter().chain([
        (nested.as_str(), "{\"error\":\"The tool "),
        (long.as_str(), "{\"error\":\"code may have at most 262144 bytes\"}"),
    ]);
    for (program, begin) in rows {
        let before = upstream.asked().len();
        upstream.reply(calls(false, "", &[call("c1", "code_interpreter", &code(program))]));
        upstream.reply(answer(false, "done"));
        let response = client.post("/responses", &request).await;
        let shown: String = program.chars().take(60).collect();
        assert_eq!(response.body["status"], "completed", "{shown}: {}", response.text);
        assert_eq!(response.output_text(), "done", "{shown}");
        let asked = upstream.asked();
        let result = told(&asked[before + 1])[0];
        assert!(result.starts_with(begin), "{shown}: {}", result.chars().take(200).collect::<String>());
        assert!(result.len() < 110_000, "{shown}: {} bytes", result.len());
        let expected = if begin.starts_with('{') { "failed" } else { "completed" };
        assert_eq!(response.body["output"][0]["status"], expected, "{shown}");
    }
    // The next call is served normally.
    upstream.reply(calls(false, "", &[call("c1", "code_interpreter", &code("1 + 1"))]));
    upstream.reply(answer(false, "done"));
    let response = client.post("/responses", &request).await;
    assert_eq!(response.body["output"][0]["outputs"][0]["logs"], "2", "{}", response.text);
}

#[tokio::test]
async fn nothing_is_kept_between_calls_and_files_of_a_container_are_refused() {
    let (host, upstream) = host("openai-chat").await;
    let client = Client::new(&host);
    let keep = code("globalThis.kept = 1; Object.prototype.left = 2; 0");
    let look = code("typeof kept + ' ' + ({}).left");
    let made = [call("c1", "code_interpreter", &keep), call("c2", "code_interpreter", &look)];
    upstream.reply(calls(false, "", &made));
    upstream.reply(answer(false, "done"));
    client.post("/responses", &request(clients())).await;
    assert_eq!(told(upstream.asked().last().unwrap())[1], "=> undefined undefined");
    let container = json!({"type": "auto", "file_ids": ["file_1"]});
    let refused = client
        .post("/responses", &request(json!({"type": "code_interpreter", "container": container})))
        .await;
    let text = "tools[0].container.file_ids names files, but this host stores none: send their text";
    assert_eq!((refused.status, refused.message()), (400, text));
}

#[tokio::test]
async fn a_history_is_rendered_as_function_calls_for_dialects_without_the_tool() {
    let made = json!({"type": "code_interpreter_call", "id": "ci_1", "status": "completed", "code": "6 * 7",
        "container_id": "cntr_1", "outputs": [{"type": "logs", "logs": "42"}]});
    let mut asking = request(clients());
    asking["input"] =
        json!([{"role": "user", "content": "Go."}, made, {"role": "user", "content": "And now?"}]);
    let (host, upstream) = host("openai-chat").await;
    upstream.reply(answer(false, "done"));
    let response = Client::new(&host).post("/responses", &asking).await;
    assert_eq!(response.output_text(), "done", "{}", response.text);
    let asked = upstream.asked();
    let messages = asked[0].body["messages"].as_array().unwrap();
    assert_eq!(messages[1]["tool_calls"][0]["function"]["name"], "code_interpreter", "{messages:?}");
    let result: Value = serde_json::from_str(messages[2]["content"].as_str().unwrap()).unwrap();
    assert_eq!(messages[1]["tool_calls"][0]["function"]["arguments"], r#"{"code":"6 * 7"}"#);
    assert_eq!(result["outputs"][0]["logs"], "42");
    assert_eq!((messages.len(), &messages[3]["content"]), (4, &json!("And now?")));

    let (host, upstream) = self::host("openai-responses").await;
    upstream.reply(crate::kit::script::response(&json!([message("done")])));
    Client::new(&host).post("/responses", &asking).await;
    assert_eq!(upstream.asked()[0].body["input"][1]["type"], "code_interpreter_call");
}
