//! The tools that come with the program, called by a model.

use super::script::{answer, call, calls};
use super::told;
use crate::kit::client::Client;
use crate::kit::config::{MODEL, single};
use crate::kit::host::{Host, Setup};
use crate::kit::upstream::Upstream;
use serde_json::{Value, json};

async fn host(grants: &str) -> (Host, Upstream) {
    let upstream = Upstream::start().await;
    let host = Setup::new().config(&single("openai-chat", &upstream.base)).config(grants).start();
    (host, upstream)
}

fn request(tools: &Value) -> Value {
    json!({"model": MODEL, "input": "Go.", "tools": tools})
}

#[tokio::test]
async fn models_are_searched_without_any_grant() {
    let (host, upstream) = host("").await;
    let tools = json!([{"type": "openrouter:experimental__search_models", "parameters": {"max_results": 3}}]);
    let arguments = format!("{{\"query\":\"{MODEL}\"}}");
    upstream.reply(calls(false, "", &[call("c1", "search_models", &arguments)]));
    upstream.reply(answer(false, "found"));
    let response = Client::new(&host).post("/responses", &request(&tools)).await;
    assert_eq!(response.status, 200, "{}", response.text);
    let item = &response.body["output"][0];
    assert_eq!(item["type"], "openrouter:experimental__search_models");
    assert_eq!((&item["status"], &item["query"]), (&json!("completed"), &json!(MODEL)));
    let asked = upstream.asked();
    let found: Value = serde_json::from_str(told(asked.last().unwrap())[0]).unwrap();
    assert_eq!(found["models"][0]["id"], MODEL);
}

#[tokio::test]
async fn deferred_functions_are_found_by_their_description() {
    let (host, upstream) = host("").await;
    let deferred = |name: &str, about: &str| json!({"type": "function", "name": name, "description": about, "parameters": {"type": "object"}, "defer_loading": true});
    let tools = json!([
        {"type": "tool_search"},
        deferred("f1", "Sends a letter"),
        deferred("f2", "Tells the weather")
    ]);
    upstream.reply(calls(false, "", &[call("c1", "tool_search", r#"{"query":"(["}"#)]));
    upstream.reply(calls(false, "", &[call("c2", "tool_search", r#"{"query":"weather"}"#)]));
    upstream.reply(answer(false, "found"));
    let response = Client::new(&host).post("/responses", &request(&tools)).await;
    let output = response.body["output"].as_array().unwrap();
    assert_eq!((&output[0]["status"], &output[1]["status"]), (&json!("failed"), &json!("completed")));
    assert_eq!((&output[1]["query"], &output[1]["matches"]), (&json!("weather"), &json!(["f2"])));
    let asked = upstream.asked();
    let names = |place: usize| -> Vec<Value> {
        let tools = asked[place].body["tools"].as_array().unwrap().iter();
        tools.map(|tool| tool["function"]["name"].clone()).collect()
    };
    assert_eq!(names(0), ["tool_search"]);
    assert_eq!(names(2), ["tool_search", "f2"]);
}

#[tokio::test]
async fn tools_that_reach_out_are_not_there_until_hosts_are_granted() {
    let (host, _upstream) = host("").await;
    for tool in ["service:web_fetch", "openrouter:web_fetch", "service:http_request"] {
        let answer = Client::new(&host).post("/responses", &request(&json!([{"type": tool}]))).await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        assert_eq!(answer.message(), format!("tools[0].type \"{tool}\" is not available on this host"));
    }
}

#[tokio::test]
async fn wrong_settings_and_unreachable_hosts_are_different_errors() {
    let (host, upstream) = host("[plugins.tool-web-fetch]\nhosts = [\"site.test\"]").await;
    let tools = json!([{"type": "service:web_fetch", "parameters": {"engine": "exa"}}]);
    let refused = Client::new(&host).post("/responses", &request(&tools)).await;
    assert_eq!(refused.status, 400, "{}", refused.text);
    assert!(
        refused.message().contains("parameters.engine is not available on this host"),
        "{}",
        refused.text
    );

    let tools = json!([{"type": "service:web_fetch"}]);
    let fetch = |url: &str| json!({"url": url}).to_string();
    let (granted, other) = (fetch("http://site.test/"), fetch("https://other.test/"));
    upstream.reply(calls(false, "", &[call("c1", "web_fetch", &granted), call("c2", "web_fetch", &other)]));
    upstream.reply(answer(false, "No."));
    let response = Client::new(&host).post("/responses", &request(&tools)).await;
    let errors: Vec<_> =
        response.body["output"].as_array().unwrap().iter().map(|item| &item["error"]).collect();
    assert_eq!(errors[0], "url must begin with https://");
    assert!(
        errors[1].as_str().unwrap().starts_with("This tool may not send that request"),
        "{}",
        response.text
    );
}
