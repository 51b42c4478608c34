//! Conversations that a client compacts: the summary is a sealed item.

use super::host;
use crate::kit::client::{Client, types_of};
use crate::kit::config::{MODEL, model, provider};
use crate::kit::host::Setup;
use crate::kit::script;
use crate::kit::upstream::Upstream;
use crate::tools::script::answer;
use serde_json::{Value, json};

fn trigger() -> Value {
    json!({"model": MODEL, "input": [
        {"role": "user", "content": "Build a boat."}, {"type": "compaction_trigger"},
    ], "tools": [{"type": "function", "name": "f"}], "tool_choice": "auto"})
}

#[tokio::test]
async fn a_conversation_becomes_one_sealed_item_that_any_dialect_opens() {
    let upstream = Upstream::start().await;
    let config = provider("one", "openai-chat", &upstream.base)
        + &provider("two", "openai-responses", &upstream.base)
        + &provider("three", "anthropic", &upstream.base)
        + &model(MODEL, "responses", &["one"])
        + &model("test/responses", "responses", &["two"])
        + &model("test/anthropic", "responses", &["three"]);
    let host = Setup::new().config(&config).start();
    let client = Client::new(&host);
    let mut item = Value::Null;
    for streamed in [false, true] {
        upstream.reply(answer(streamed, "A boat is wanted."));
        let response = client.ask(&trigger(), streamed).await;
        assert_eq!(response["status"], "completed", "{response}");
        assert_eq!(response["usage"]["total_tokens"], 10);
        let [made] = response["output"].as_array().unwrap().as_slice() else { panic!("{response}") };
        assert_eq!(made["type"], "compaction");
        assert!(!made["encrypted_content"].as_str().unwrap().contains("boat"));
        item = made.clone();
    }
    let asked = upstream.asked().pop().unwrap();
    assert!(asked.body.get("tools").is_none() && asked.body.get("tool_choice").is_none(), "{}", asked.body);
    let messages = asked.body["messages"].as_array().unwrap();
    assert_eq!(messages[0]["content"], "Build a boat.");
    assert!(messages[1]["content"].as_str().unwrap().contains("summary"), "{messages:?}");

    let next = json!([item, {"role": "user", "content": "Go on."}]);
    for (name, reply) in [
        (MODEL, answer(false, "done")),
        ("test/responses", script::response(&json!([script::message("done")]))),
        ("test/anthropic", script::anthropic(&json!([{"type": "text", "text": "done"}]), "end_turn")),
    ] {
        upstream.reply(reply);
        let answered = client.post("/responses", &json!({"model": name, "input": next})).await;
        assert_eq!(answered.status, 200, "{}", answered.text);
        assert!(upstream.asked().pop().unwrap().body.to_string().contains("A boat is wanted."), "{name}");
    }
}

#[tokio::test]
async fn the_client_sees_nothing_of_the_summary() {
    let (host, upstream) = host("openai-chat").await;
    upstream.reply(answer(true, "A boat is wanted."));
    let events = Client::new(&host).stream(&trigger()).await;
    assert_eq!(
        types_of(&events),
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.output_item.done",
            "response.completed"
        ]
    );
}

#[tokio::test]
async fn only_the_workspace_or_the_intern_that_it_was_made_for_opens_it() {
    let (host, upstream) = host("openai-chat").await;
    host.command(&["workspace", "create", "other"]);
    for intern in ["one", "two"] {
        host.command(&["intern", "create", intern, "--workspace", "default"]);
    }
    let key = |of: &[&str]| {
        let made = host.command(&[&["key", "create", "--workspace"], of].concat());
        made["key"].as_str().unwrap().to_owned()
    };
    let keys = [key(&["default"]), key(&["default", "--intern", "one"])];
    let others = [key(&["other"]), key(&["default", "--intern", "two"])];
    for (maker, own) in keys.iter().enumerate() {
        upstream.reply(answer(false, "A boat is wanted."));
        let response = Client::with_key(&host, own).ask(&trigger(), false).await;
        let next =
            json!({"model": MODEL, "input": [response["output"][0], {"role": "user", "content": "Go on."}]});
        for (reader, key) in keys.iter().chain(&others).enumerate() {
            upstream.reply(answer(false, "done"));
            Client::with_key(&host, key).ask(&next, false).await;
            let asked = upstream.asked().pop().unwrap();
            assert_eq!(asked.body.to_string().contains("boat"), reader == maker, "{reader}: {}", asked.body);
        }
    }
}

#[tokio::test]
async fn the_responses_dialect_gets_the_trigger_and_answers_with_its_own_item() {
    let (host, upstream) = host("openai-responses").await;
    let item = json!({"type": "compaction", "id": "cmp_up", "encrypted_content": "gAAA"});
    upstream.reply(script::response(&json!([item])));
    let response = Client::new(&host).ask(&trigger(), false).await;
    assert_eq!(response["output"], json!([item]));
    let asked = upstream.asked_once();
    assert_eq!(asked.body["input"][1], json!({"type": "compaction_trigger"}));
    assert!(asked.body["tools"].is_array());
}
