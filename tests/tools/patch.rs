//! Changes of files that the model proposes and the client applies.

use super::script::{answer, call, calls};
use crate::kit::client::{Client, last_response};
use crate::kit::config::{MODEL, single};
use crate::kit::host::{Host, Setup};
use crate::kit::script::{message, response};
use crate::kit::upstream::Upstream;
use serde_json::{Value, json};

const DIFF: &str = "@@\n-old\n+new\n";

async fn host(dialect: &str) -> (Host, Upstream) {
    let upstream = Upstream::start().await;
    let host = Setup::new().config(&single(dialect, &upstream.base)).start();
    (host, upstream)
}

fn request(tool: &str) -> Value {
    json!({"model": MODEL, "input": "Go.", "tools": [{"type": tool}]})
}

fn update() -> Value {
    json!({"type": "update_file", "path": "src/a.js", "diff": DIFF})
}

#[tokio::test]
async fn a_change_ends_the_response_and_the_client_says_what_came_of_it() {
    let (host, upstream) = host("openai-chat").await;
    let client = Client::new(&host);
    let operation = update().to_string();
    for (tool, item_type, answers) in [
        ("service:apply_patch", "service:apply_patch", "apply_patch_call_output"),
        ("openrouter:apply_patch", "openrouter:apply_patch", "function_call_output"),
        ("apply_patch", "apply_patch_call", "apply_patch_call_output"),
    ] {
        upstream.reply(calls(false, "", &[call("c1", "apply_patch", &operation)]));
        let first = client.post("/responses", &request(tool)).await;
        assert_eq!(first.body["status"], "completed", "{}", first.text);
        let [item] = first.body["output"].as_array().unwrap().as_slice() else { panic!("{}", first.text) };
        assert_eq!((&item["type"], &item["status"]), (&json!(item_type), &json!("completed")));
        assert_eq!((&item["call_id"], &item["operation"]), (&json!("c1"), &update()));

        let mut next = request(tool);
        let answered =
            json!({"type": answers, "call_id": "c1", "status": "failed", "output": "no such file"});
        next["input"] = json!([{"role": "user", "content": "Go."}, item, answered]);
        upstream.reply(answer(false, "I see."));
        let second = client.post("/responses", &next).await;
        assert_eq!(second.output_text(), "I see.", "{}", second.text);
        let asked = upstream.asked().pop().unwrap();
        let messages = asked.body["messages"].as_array().unwrap();
        let roles: Vec<_> = messages.iter().map(|message| &message["role"]).collect();
        assert_eq!(roles, ["user", "assistant", "tool"], "{messages:?}");
        let function = &messages[1]["tool_calls"][0]["function"];
        assert_eq!(function["name"], "apply_patch");
        let told: Value = serde_json::from_str(function["arguments"].as_str().unwrap()).unwrap();
        assert_eq!(told, update());
        assert_eq!(messages[2]["tool_call_id"], messages[1]["tool_calls"][0]["id"]);
        assert!(messages[2]["content"].as_str().unwrap().contains("no such file"), "{messages:?}");
    }
}

#[tokio::test]
async fn the_clients_own_kind_has_its_events() {
    let (host, upstream) = host("openai-chat").await;
    let operation = update().to_string();
    let delete = json!({"type": "delete_file", "path": "b"}).to_string();
    upstream.reply(calls(
        true,
        "",
        &[call("c1", "apply_patch", &operation), call("c2", "apply_patch", &delete)],
    ));
    let events = Client::new(&host).stream(&request("apply_patch")).await;
    let about = |index: u64| -> Vec<&str> {
        let about = events.iter().filter(|event| event["output_index"] == index);
        about.map(|event| event["type"].as_str().unwrap()).collect()
    };
    assert_eq!(
        about(0),
        [
            "response.output_item.added",
            "response.apply_patch_call_operation_diff.delta",
            "response.apply_patch_call_operation_diff.done",
            "response.output_item.done",
        ]
    );
    assert_eq!(about(1), ["response.output_item.added", "response.output_item.done"]);
    let done =
        events.iter().find(|event| event["type"] == "response.apply_patch_call_operation_diff.done").unwrap();
    assert_eq!(done["diff"], DIFF);
    let output = last_response(&events)["output"].as_array().unwrap();
    assert!(output[0]["id"].as_str().unwrap().starts_with("apc_"));
    assert_eq!((&output[0]["call_id"], &output[1]["call_id"]), (&json!("c1"), &json!("c2")));
}

#[tokio::test]
async fn a_malformed_change_is_reported_to_the_model() {
    let (host, upstream) = host("openai-chat").await;
    let client = Client::new(&host);
    for streamed in [false, true] {
        let before = upstream.asked().len();
        for (operation, _) in faulty() {
            upstream.reply(calls(streamed, "", &[call("", "apply_patch", &operation)]));
        }
        upstream.reply(answer(streamed, "I give up."));
        let request = request("service:apply_patch");
        let response = if streamed {
            last_response(&client.stream(&request).await).clone()
        } else {
            client.post("/responses", &request).await.body
        };
        let output = response["output"].as_array().unwrap();
        let errors: Vec<_> = output.iter().filter_map(|item| item["error"].as_str()).collect();
        let expected: Vec<_> = faulty().into_iter().map(|(_, error)| error).collect();
        assert_eq!(errors, expected);
        assert_eq!(upstream.asked().len() - before, expected.len() + 1);
    }
}

/// Operations and what is wrong with them.
fn faulty() -> Vec<(String, &'static str)> {
    let operation =
        |kind: &str, path: &str, diff: Value| json!({"type": kind, "path": path, "diff": diff}).to_string();
    let relative = "path must be relative and have / between names, such as src/main.js";
    vec![
        ("{\"type\":".to_owned(), "The arguments are not a JSON object."),
        (operation("update_file", "a", Value::Null), "diff is required for update_file"),
        (operation("delete_file", "/etc/passwd", Value::Null), relative),
        (operation("delete_file", "C:\\x", Value::Null), relative),
        (operation("delete_file", "a/../../b", Value::Null), "path must not have empty names, . or .."),
        (
            operation("rename_file", "a", Value::Null),
            "type must be one of create_file, update_file, delete_file",
        ),
        (
            operation("create_file", "a", json!("x")),
            "diff must have + in front of every line of the new file",
        ),
    ]
}

#[tokio::test]
async fn an_endpoint_with_the_tool_of_its_own_keeps_it() {
    let (host, upstream) = host("openai-responses").await;
    let item = json!({"type": "apply_patch_call", "id": "apc_up", "call_id": "c9", "status": "completed", "operation": update()});
    upstream.reply(response(&json!([item])));
    let answer = Client::new(&host).post("/responses", &request("apply_patch")).await;
    assert_eq!(answer.body["output"][0], item, "{}", answer.text);
    assert_eq!(upstream.asked()[0].body["tools"], json!([{"type": "apply_patch"}]));
    // A prefixed tool is a function in this dialect too, and so is its history.
    upstream.reply(response(&json!([message("done")])));
    let mut next = request("service:apply_patch");
    let made = json!({"type": "service:apply_patch", "id": "st_1", "call_id": "c1", "status": "completed", "operation": update()});
    let answered =
        json!({"type": "apply_patch_call_output", "call_id": "c1", "status": "completed", "output": "done"});
    next["input"] = json!([{"role": "user", "content": "Go."}, made, answered]);
    Client::new(&host).post("/responses", &next).await;
    let asked = upstream.asked().pop().unwrap();
    let input = asked.body["input"].as_array().unwrap();
    assert_eq!((&input[1]["type"], &input[1]["call_id"]), (&json!("function_call"), &json!("c1")));
    assert_eq!(
        input[2],
        json!({"type": "function_call_output", "call_id": "c1", "output": "{\"output\":\"done\"}"})
    );
}
