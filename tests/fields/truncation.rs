//! `truncation: auto`: whether the host or the provider drops what does not fit.

use crate::kit::client::Client;
use crate::kit::config::{MODEL, model, provider};
use crate::kit::host::{Host, Setup};
use crate::kit::script;
use crate::kit::upstream::Upstream;
use serde_json::{Value, json};

/// A conversation longer than the 9,000 tokens that the model accepts. For models with a smaller
/// context, the host would drop items without being asked.
fn request(truncation: Option<&str>) -> Value {
    let turns = (0..40).map(|turn| {
        let role = if turn % 2 == 0 { "user" } else { "assistant" };
        json!({"role": role, "content": format!("turn {turn}: {}", "word ".repeat(250))})
    });
    let mut request = json!({"model": MODEL, "input": turns.collect::<Vec<_>>()});
    request["input"].as_array_mut().unwrap().push(json!({"role": "user", "content": "last"}));
    if let Some(truncation) = truncation {
        request["truncation"] = json!(truncation);
    }
    request
}

async fn host(adapter: &str) -> (Upstream, Host) {
    let upstream = Upstream::start().await;
    let model = model(MODEL, "responses", &["one"]).replace("kind =", "context_length = 9000\nkind =");
    let host = Setup::new().config(&(provider("one", adapter, &upstream.base) + &model)).start();
    (upstream, host)
}

#[tokio::test]
async fn the_host_drops_the_middle_if_the_dialect_cannot_truncate() {
    let (upstream, host) = host("openai-chat").await;
    let client = Client::new(&host);
    for (truncation, cut) in [(Some("auto"), true), (Some("disabled"), false), (None, false)] {
        let before = upstream.asked().len();
        upstream.reply(script::chat("ok"));
        let answer = client.post("/responses", &request(truncation)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(answer.body["truncation"], truncation.unwrap_or("disabled"));
        let asked = upstream.asked();
        let messages = asked[before].body["messages"].as_array().unwrap();
        assert_eq!(messages.len() < 41, cut, "{truncation:?}: {}", messages.len());
        assert_eq!(messages.last().unwrap()["content"], "last");
    }
    // The entry in the request takes precedence over `truncation`.
    let mut off = request(Some("auto"));
    off["plugins"] = json!([{"id": "context-compression", "enabled": false}]);
    upstream.reply(script::chat("ok"));
    client.post("/responses", &off).await;
    assert_eq!(upstream.asked()[3].body["messages"].as_array().unwrap().len(), 41);
}

#[tokio::test]
async fn a_dialect_with_truncation_gets_the_whole_input_and_the_setting() {
    let (upstream, host) = host("openai-responses").await;
    upstream.reply(script::response(&json!([script::message("ok")])));
    let answer = Client::new(&host).post("/responses", &request(Some("auto"))).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let sent = upstream.asked_once().body;
    assert_eq!((&sent["truncation"], sent["input"].as_array().unwrap().len()), (&json!("auto"), 41));
}
