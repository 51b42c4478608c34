//! Server tools selected by `plugins` or by the suffix of a model slug.

use super::script::{answer, call, calls};
use crate::kit::client::{Client, last_response};
use crate::kit::config::{MODEL, single};
use crate::kit::host::{Host, Setup};
use crate::kit::upstream::Upstream;
use serde_json::{Value, json};

async fn bench(grants: &str) -> (Host, Upstream) {
    let upstream = Upstream::start().await;
    let host = Setup::new().config(&single("openai-chat", &upstream.base)).config(grants).start();
    (host, upstream)
}

const FETCH: &str = "[plugins.tool-web-fetch]\nhosts = [\"site.test\"]";

/// The names of the functions offered to the provider last.
fn offered(upstream: &Upstream) -> Vec<Value> {
    let asked = upstream.asked().pop().unwrap();
    let tools = asked.body["tools"].as_array().cloned().unwrap_or_default();
    tools.iter().map(|tool| tool["function"]["name"].clone()).collect()
}

#[tokio::test]
async fn a_plugin_offers_its_tool_and_its_calls_are_run() {
    let (host, upstream) = bench(FETCH).await;
    for streamed in [false, true] {
        let request = json!({"model": MODEL, "input": "Go.", "stream": streamed,
            "plugins": [{"id": "web-fetch", "blocked_domains": ["site.test"]}]});
        let url = json!({"url": "https://site.test/"}).to_string();
        upstream.reply(calls(streamed, "", &[call("c1", "web_fetch", &url)]));
        upstream.reply(answer(streamed, "No."));
        let client = Client::new(&host);
        let response = if streamed {
            last_response(&client.stream(&request).await).clone()
        } else {
            client.post("/responses", &request).await.body
        };
        assert_eq!(offered(&upstream), ["web_fetch"]);
        let item = &response["output"][0];
        assert_eq!((&item["type"], &item["status"]), (&json!("service:web_fetch"), &json!("failed")));
        // The settings of the entry apply to the tool.
        assert_eq!(item["error"], "url is not on a domain that this request allows");
        assert_eq!(response["output"][1]["content"][0]["text"], "No.");
        assert_eq!(response["tools"], json!([]));
    }
}

#[tokio::test]
async fn a_tool_that_is_asked_for_twice_is_offered_once() {
    let (host, upstream) = bench(FETCH).await;
    upstream.reply(answer(false, "Yes."));
    let request = json!({"model": MODEL, "input": "Go.", "tools": [{"type": "openrouter:web_fetch"}],
        "plugins": [{"id": "web-fetch", "max_uses": 1}]});
    let answer = Client::new(&host).post("/responses", &request).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(offered(&upstream), ["web_fetch"]);
}

#[tokio::test]
async fn what_this_host_lacks_is_refused_where_it_is_asked_for() {
    let (host, _upstream) = bench("").await;
    let client = Client::new(&host);
    let request = |model: &str, plugins: Value| json!({"model": model, "input": "x", "plugins": plugins});
    for (request, message) in [
        (
            request(MODEL, json!([{"id": "web-fetch"}])),
            "plugins[0].id \"web-fetch\" is not available on this host",
        ),
        (request(MODEL, json!([{"id": "web"}])), "plugins[0].id \"web\" is not available on this host"),
        (
            request(&format!("{MODEL}:online"), json!([])),
            "model asks for web search (:online), which is not available on this host",
        ),
    ] {
        let answer = client.post("/responses", &request).await;
        assert_eq!((answer.status, answer.message()), (400, message), "{request}");
    }
}

#[tokio::test]
async fn complaints_about_settings_name_the_entry() {
    let (host, _upstream) = bench(FETCH).await;
    let request = json!({"model": MODEL, "input": "x",
        "plugins": [{"id": "web-fetch", "allowed_domains": ["https://a.test"]}]});
    let answer = Client::new(&host).post("/responses", &request).await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    assert!(answer.message().starts_with("plugins[0].allowed_domains takes domains"), "{}", answer.text);
}
