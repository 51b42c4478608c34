//! Answers that end normally without text: accepted where nothing has to be said, otherwise the
//! last resort.

use crate::kit::client::{Client, last_response, types_of};
use crate::kit::config::{MODEL, STEADY, provider};
use crate::kit::host::{Host, Setup};
use crate::kit::script::{self, word};
use crate::kit::store::usage_of;
use crate::kit::upstream::{Reply, Upstream};
use crate::tools::script::{call, calls};
use serde_json::{Value, json};

const METADATA: [(&str, &str); 1] = [("x-service-metadata", "enabled")];

/// Two chat providers, tried in this order, at one dollar per token.
async fn pair() -> (Upstream, Upstream, Host) {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let endpoint =
        |name| format!("{{ provider = \"{name}\", model = \"m\", input = 1000000, output = 1000000 }}");
    let list = [endpoint("a"), endpoint("b")].join(", ");
    let config = STEADY.to_owned()
        + &provider("a", "openai-chat", &a.base)
        + &provider("b", "openai-chat", &b.base)
        + &format!("[[models]]\nid = \"{MODEL}\"\nendpoints = [{list}]\n");
    (a, b, Setup::new().config(&config).start())
}

/// An answer of ten tokens that ends with `stop` and has no text.
fn wordless(streamed: bool) -> Reply {
    if streamed {
        return Reply::sse(&[[script::opening()].as_slice(), &script::ending("stop")].concat());
    }
    script::chat("")
}

fn asks(input: Value) -> Value {
    json!({"model": MODEL, "input": input, "provider": {"order": ["a", "b"]}})
}

async fn answer(host: &Host, request: &Value, streamed: bool) -> Value {
    let client = Client::new(host);
    if streamed {
        return last_response(&client.stream_with(request, &METADATA).await).clone();
    }
    let answer = client.post_with("/responses", request, &METADATA).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.body
}

fn assert_wordless(response: &Value, cost: u64) {
    assert_eq!((&response["status"], &response["output"]), (&json!("completed"), &json!([])), "{response}");
    assert_eq!(response["usage"]["cost"], json!(cost), "{response}");
}

#[tokio::test]
async fn nothing_to_add_to_a_result_is_an_answer() {
    let (a, b, host) = pair().await;
    let result = json!([
        {"role": "user", "content": "Do it."},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "done"},
    ]);
    for streamed in [false, true] {
        a.reply(wordless(streamed));
        let response = answer(&host, &asks(result.clone()), streamed).await;
        assert_wordless(&response, 10);
        assert_eq!(response["service_metadata"]["attempt"], 1, "{response}");
    }
    assert!(b.asked().is_empty());
}

#[tokio::test]
async fn tools_do_not_run_again_because_the_model_has_nothing_to_add() {
    let (a, b, host) = pair().await;
    let mut request = asks(json!("What time is it?"));
    request["tools"] = json!([{"type": "service:datetime"}]);
    for streamed in [false, true] {
        a.reply(calls(streamed, "", &[call("c", "datetime", "{}")]));
        a.reply(wordless(streamed));
        let response = answer(&host, &request, streamed).await;
        assert_eq!(response["status"], "completed", "{response}");
        let kinds: Vec<&Value> =
            response["output"].as_array().unwrap().iter().map(|item| &item["type"]).collect();
        assert_eq!(kinds, ["service:datetime"], "{response}");
    }
    assert_eq!((a.asked().len(), b.asked().len()), (4, 0));
}

#[tokio::test]
async fn the_next_endpoint_is_asked_for_words_and_both_are_charged() {
    let (a, b, mut host) = pair().await;
    for streamed in [false, true] {
        a.reply(wordless(streamed));
        b.reply(if streamed { script::chat_stream(&["words"]) } else { script::chat("words") });
        let response = answer(&host, &asks(json!("x")), streamed).await;
        assert_eq!(response["output"][0]["content"][0]["text"], "words", "{response}");
        assert_eq!(response["usage"]["cost"], 20, "{response}");
        let metadata = &response["service_metadata"];
        assert_eq!(metadata["attempts"][0]["cost"], 10, "{metadata}");
        assert_eq!(metadata["endpoints"]["available"][1]["selected"], true, "{metadata}");
    }
    for row in usage_of(&mut host) {
        assert_eq!((row.input_tokens, row.output_tokens, row.provider.as_str()), (14, 6, "b"), "{row:?}");
        assert!(!row.estimated, "{row:?}");
    }
}

#[tokio::test]
async fn where_no_endpoint_has_words_the_first_wordless_answer_is_given() {
    let (a, b, mut host) = pair().await;
    for streamed in [false, true] {
        a.reply(wordless(streamed));
        b.reply(script::refusal(500, "broken"));
        let response = answer(&host, &asks(json!("x")), streamed).await;
        assert_wordless(&response, 10);
        let metadata = &response["service_metadata"];
        assert_eq!(metadata["endpoints"]["available"][0]["selected"], true, "{metadata}");
        assert!(metadata["attempts"][0].get("error_type").is_none(), "{metadata}");

        a.reply(script::refusal(500, "broken"));
        b.reply(wordless(streamed));
        assert_wordless(&answer(&host, &asks(json!("x")), streamed).await, 10);

        a.reply(wordless(streamed));
        b.reply(wordless(streamed));
        let response = answer(&host, &asks(json!("x")), streamed).await;
        assert_wordless(&response, 20);
        assert_eq!(response["service_metadata"]["attempts"][1]["cost"], 10, "{response}");
    }
    let rows = usage_of(&mut host);
    let told: Vec<_> = rows.iter().map(|row| (row.provider.as_str(), row.output_tokens)).collect();
    assert_eq!(told, [("a", 3), ("b", 3), ("a", 6)].repeat(2));
}

#[tokio::test]
async fn a_wordless_stream_has_its_frame_and_no_item() {
    let (a, b, host) = pair().await;
    a.reply(wordless(true));
    b.reply(Reply::cut(&[script::opening()]));
    let events = Client::new(&host).stream(&asks(json!("x"))).await;
    assert_eq!(types_of(&events), ["response.created", "response.in_progress", "response.completed"]);
    // Once an endpoint has sent text, its answer is used and no other is asked.
    a.reply(Reply::sse(&[[word("a")].as_slice(), &script::ending("stop")].concat()));
    assert_eq!(last_response(&Client::new(&host).stream(&asks(json!("x"))).await)["status"], "completed");
}
