//! Reasoning that one provider sealed and another one cannot open. The conversation goes on without it.

use super::script;
use crate::kit::client::{Client, last_response};
use crate::kit::config::{MODEL, STEADY, model, provider};
use crate::kit::host::{Host, Setup};
use crate::kit::upstream::{Reply, Upstream};
use serde_json::{Value, json};

/// Two providers of the Responses dialect, tried in this order.
async fn pair() -> (Upstream, Upstream, Host) {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let config = STEADY.to_owned()
        + &provider("a", "openai-responses", &a.base)
        + &provider("b", "openai-responses", &b.base)
        + &model(MODEL, "responses", &["a", "b"]);
    (a, b, Setup::new().config(&config).start())
}

fn asks(input: &Value) -> Value {
    json!({"model": MODEL, "input": input, "provider": {"sort": "price"}})
}

fn reasoning(sealed: &str) -> Value {
    json!({"type": "reasoning", "id": format!("rs_{sealed}"), "summary": [], "encrypted_content": sealed})
}

fn seals_refused() -> Reply {
    let message = "The encrypted content gAAA...= could not be verified.";
    let code = "invalid_encrypted_content";
    Reply::json(
        400,
        json!({"error": {"message": message, "type": "invalid_request_error", "param": null, "code": code}}),
    )
}

/// The conversation after provider `a` has answered with sealed reasoning.
async fn conversation(a: &Upstream, host: &Host) -> Value {
    a.reply(script::response(&json!([reasoning("gAAA"), script::message("from a")])));
    let mut input = vec![json!({"type": "message", "role": "user", "content": "x"})];
    let answer = Client::new(host).post("/responses", &asks(&json!(input))).await;
    input.extend(answer.body["output"].as_array().unwrap().clone());
    input.push(json!({"type": "message", "role": "user", "content": "y"}));
    json!(input)
}

/// The ciphertexts in the input of a provider's request.
fn sealed_in(body: &Value) -> Vec<&str> {
    let items = body["input"].as_array().unwrap();
    items.iter().filter_map(|item| item["encrypted_content"].as_str()).collect()
}

#[tokio::test]
async fn a_provider_that_cannot_open_the_reasoning_of_another_is_asked_without_it() {
    let (a, b, host) = pair().await;
    let mut request = asks(&conversation(&a, &host).await);
    for streamed in [false, true] {
        request["stream"] = json!(streamed);
        let before = b.asked().len();
        a.reply(script::refusal(503, "busy"));
        b.reply(seals_refused());
        let answer = script::response(&json!([script::message("from b")]));
        let text = if streamed {
            let response = json!({"id": "r", "status": "completed", "output": [script::message("from b")]});
            b.reply(Reply::sse(&[json!({"type": "response.completed", "response": response})]));
            last_response(&Client::new(&host).stream(&request).await).clone()
        } else {
            b.reply(answer);
            Client::new(&host).post("/responses", &request).await.body
        };
        assert_eq!(text["output"][0]["content"][0]["text"], "from b", "{text}");
        let asked = b.asked();
        assert_eq!(sealed_in(&a.asked().last().unwrap().body), ["gAAA"]);
        assert_eq!(sealed_in(&asked[before].body), ["gAAA"]);
        let sent: Vec<_> =
            asked[before + 1].body["input"].as_array().unwrap().iter().map(|item| &item["role"]).collect();
        assert_eq!(sent, ["user", "assistant", "user"], "{}", asked[before + 1].body);
        assert_eq!(asked.len(), before + 2);
    }
}

#[tokio::test]
async fn a_provider_that_refuses_a_request_without_seals_too_is_not_asked_again() {
    let (a, b, host) = pair().await;
    let request = asks(&conversation(&a, &host).await);
    a.reply(script::refusal(503, "busy"));
    b.reply(seals_refused());
    b.reply(seals_refused());
    let answer = Client::new(&host).post("/responses", &request).await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    assert_eq!(b.asked().len(), 2);
    a.reply(script::refusal(503, "busy"));
    b.reply(seals_refused());
    let answer = Client::new(&host).post("/responses", &asks(&json!("z"))).await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    assert_eq!(b.asked().len(), 3);
}

#[tokio::test]
async fn later_turns_keep_the_reasoning_of_this_request_only() {
    let (a, b, host) = pair().await;
    let mut request = asks(&conversation(&a, &host).await);
    request["tools"] = json!([{"type": "service:datetime"}]);
    let call =
        json!({"type": "function_call", "id": "fc_1", "call_id": "c", "name": "datetime", "arguments": "{}"});
    a.reply(script::refusal(503, "busy"));
    b.reply(seals_refused());
    b.reply(script::response(&json!([reasoning("gBBB"), call])));
    b.reply(script::response(&json!([script::message("done")])));
    let answer = Client::new(&host).post("/responses", &request).await;
    assert_eq!(answer.output_text(), "done", "{}", answer.text);
    let seals: Vec<_> = b.asked().iter().map(|asked| json!(sealed_in(&asked.body))).collect();
    assert_eq!(seals, [json!(["gAAA"]), json!([]), json!(["gBBB"])]);
}
