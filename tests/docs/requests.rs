//! The examples and tables of `docs/plugins/requests.md`, held against what plugins get.

use super::markdown::{Page, root};
use crate::kit::client::Client;
use crate::kit::config::{MODEL, model, single};
use crate::kit::guests::folder;
use crate::kit::host::{Host, Setup};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

fn page() -> Page {
    Page::read(root().join("docs/plugins/requests.md"))
}

/// An example of the page.
fn example(name: &str) -> Value {
    let info = format!("json example={name}");
    let page = page();
    let block = page.blocks.iter().find(|block| block.info == info).unwrap_or_else(|| panic!("no {info}"));
    serde_json::from_str(&block.text).unwrap_or_else(|error| panic!("{}: {error}", block.place))
}

/// The members that the first table below a heading lists.
fn members(heading: &str) -> Vec<String> {
    let text = page().text;
    let (_, section) = text.split_once(&format!("\n## {heading}\n")).unwrap();
    let (_, table) = section.split_once("\n| member | type | present |\n|---|---|---|\n").unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let mut members: Vec<String> = rows.map(|row| row.split('`').nth(1).unwrap().to_owned()).collect();
    members.sort();
    members
}

fn names(object: &Value) -> Vec<String> {
    let mut names: Vec<String> = object.as_object().unwrap().keys().cloned().collect();
    names.sort();
    names
}

/// A host whose models tell what their provider gets, with a hook that tells what it gets.
fn mirrors() -> (Host, TempDir) {
    let guests = folder(&["hook-mirror", "provider-mirror"]);
    let config = single("mirror", "http://127.0.0.1:9/v1") + &model("test/embed", "embeddings", &["one"]);
    (Setup::new().config(&config).plugins(guests.path()).start(), guests)
}

/// The text of an answer, which is JSON.
async fn told(host: &Host, body: &Value) -> Value {
    let answer = Client::new(host).post("/responses", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let response: Value = serde_json::from_str(&answer.text).unwrap();
    serde_json::from_str(response["output"][0]["content"][0]["text"].as_str().unwrap()).unwrap()
}

/// The example of a client, with a member of the hook's entry that says in which phase it tells.
fn client(phase: &str) -> Value {
    let mut body = example("client");
    body["plugins"][0]["phase"] = phase.into();
    body
}

fn settings(phase: &str) -> Value {
    let mut settings = example("settings");
    settings["phase"] = phase.into();
    settings
}

#[tokio::test]
async fn a_provider_gets_the_documented_request() {
    let (host, _guests) = mirrors();
    let told = told(&host, &example("client")).await;
    assert_eq!(told["request"], example("request"));
    assert_eq!(told["target"]["options"], example("options"));
    assert_eq!(told["target"]["model"], "upstream-one");
}

#[tokio::test]
async fn a_hook_gets_the_documented_request_and_settings() {
    let (host, _guests) = mirrors();
    let told = told(&host, &client("on-request")).await;
    let shown = told["request"]["input"][0]["content"][0]["text"].as_str().unwrap();
    let shown: Value = serde_json::from_str(shown).unwrap();
    assert_eq!(shown["request"], example("request"));
    assert_eq!(shown["settings"], settings("on-request"));
}

#[tokio::test]
async fn a_hook_gets_the_documented_request_with_the_response() {
    let (host, _guests) = mirrors();
    let shown = told(&host, &client("on-response")).await;
    assert_eq!(shown["request"], example("request"));
    assert_eq!(shown["settings"], settings("on-response"));
    let response = &shown["response"];
    assert_eq!((&response["object"], &response["status"]), (&json!("response"), &json!("completed")));
    assert_eq!(response["id"], shown["context"]["request_id"]);
    assert!(response["usage"]["cost"].is_number(), "{response}");
}

#[tokio::test]
async fn the_table_lists_every_member_that_plugins_get() {
    let (host, _guests) = mirrors();
    let body = json!({
        "model": MODEL, "input": "Hi", "stream": false, "instructions": "Be kind.", "max_output_tokens": 5,
        "temperature": 0.5, "top_p": 1, "top_k": 3, "frequency_penalty": -1.5, "presence_penalty": 2,
        "top_logprobs": 20, "parallel_tool_calls": false, "tools": [{"type": "function", "name": "f"}],
        "tool_choice": "required", "text": {"verbosity": "low"}, "reasoning": {"effort": "high"},
        "include": ["reasoning.encrypted_content"], "service_tier": "default", "prompt_cache_key": "k",
        "prompt_cache_options": {"mode": "explicit"}, "cache_control": {"type": "ephemeral"},
        "safety_identifier": "s", "user": "u", "metadata": {"a": "b"}, "truncation": "disabled",
        "modalities": ["text"], "image_config": {"size": "1K"}, "models": [MODEL], "session_id": "x", "store": false,
        "provider": {"allow_fallbacks": false}, "trace": {"trace_id": "t"}, "max_tool_calls": 3, "anything": 1,
    });
    assert_eq!(names(&told(&host, &body).await["request"]), members("The form of a request"));
}

#[tokio::test]
async fn a_provider_gets_the_documented_embeddings_request() {
    let (host, _guests) = mirrors();
    let shown = async |body: Map<String, Value>| -> Value {
        let answer = Client::new(&host).post("/embeddings", &Value::Object(body)).await;
        let error: Value = serde_json::from_str(&answer.text).unwrap();
        let message = error["error"]["message"].as_str().unwrap();
        serde_json::from_str::<Value>(message).unwrap_or_else(|_| panic!("{error}"))["request"].clone()
    };
    let example = example("embeddings");
    let mut body = example.as_object().unwrap().clone();
    assert_eq!(shown(body.clone()).await, example);
    let more = json!({"input": "one", "encoding_format": "float", "input_type": "search_query", "user": "u",
        "session_id": "s", "trace": {"trace_id": "t"}});
    body.extend(more.as_object().unwrap().clone());
    let shown = shown(body).await;
    assert_eq!(shown["input"], json!(["one"]));
    assert_eq!(names(&shown), members("What a provider gets"));
}
