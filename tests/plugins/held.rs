//! Hooks that check answers, with streams: an answer is held back until the hook has passed it.

use crate::kit::client::{Client, events_of, last_response, text_of, types_of};
use crate::kit::config::{MODEL, STEADY, several, single};
use crate::kit::guests::{built, folder};
use crate::kit::host::{Host, Setup};
use crate::kit::script::{chat_events, chat_stream, ending, opening, word};
use crate::kit::upstream::{Reply, Upstream, sse_event};
use crate::tools::script::{answer, call, calls};
use serde_json::{Value, json};
use tempfile::TempDir;

fn host_of(config: &str) -> (Host, TempDir) {
    let guests = folder(&["hook-editor"]);
    (Setup::new().config(config).plugins(guests.path()).start(), guests)
}

async fn bench() -> (Host, Upstream, TempDir) {
    let upstream = Upstream::start().await;
    let (host, guests) = host_of(&single("openai-chat", &upstream.base));
    (host, upstream, guests)
}

fn request(entry: &Value) -> Value {
    let mut entry = entry.clone();
    entry["id"] = json!("editor");
    json!({"model": MODEL, "input": "x", "plugins": [entry]})
}

#[tokio::test]
async fn a_replaced_answer_is_streamed_with_one_delta_for_each_part() {
    let (host, upstream, _guests) = bench().await;
    upstream.reply(chat_stream(&["first ", "second ", "third"]));
    let added = json!({"type": "message", "role": "assistant", "status": "completed", "content": [
        {"type": "output_text", "text": "more", "annotations": [], "logprobs": []}, {"type": "refusal", "refusal": "no"}]});
    let entry = json!({"text": "edited", "add": added, "set": {"id": "resp_of_the_hook", "seen": true}});
    let events = Client::new(&host).stream(&request(&entry)).await;
    let text = ["content_part.added", "output_text.delta", "output_text.done", "content_part.done"];
    let refusal = ["content_part.added", "refusal.delta", "refusal.done", "content_part.done"];
    let expected = ["created", "in_progress", "output_item.added"].into_iter().chain(text);
    let expected = expected.chain(["output_item.done", "output_item.added"]).chain(text).chain(refusal);
    let expected: Vec<String> =
        expected.chain(["output_item.done", "completed"]).map(|name| format!("response.{name}")).collect();
    assert_eq!(types_of(&events), expected);
    assert_eq!(text_of(&events), "editedmore");
    let response = last_response(&events);
    assert_eq!(response["output"][0]["content"][0]["text"], "edited");
    assert_eq!(response["seen"], true);
    // The host assigns ids: an item without one gets one, and the response keeps its id.
    assert_eq!(response["id"], events[0]["response"]["id"]);
    for event in events.iter().filter(|event| event["type"] == "response.output_item.done") {
        let place = usize::try_from(event["output_index"].as_u64().unwrap()).unwrap();
        assert_eq!(event["item"], response["output"][place]);
        assert!(!event["item"]["id"].as_str().unwrap().is_empty());
    }
    assert_eq!(response["usage"]["total_tokens"], 10);
}

#[tokio::test]
async fn a_rejection_of_a_streamed_answer_has_its_status_and_nothing_of_the_answer() {
    let (host, upstream, _guests) = bench().await;
    upstream.reply(chat_stream(&["secret ", "words"]));
    let mut request = request(&json!({"reject": "not this"}));
    request["stream"] = json!(true);
    let answer = Client::new(&host).post("/responses", &request).await;
    assert_eq!((answer.status, answer.message()), (403, "not this"), "{}", answer.text);
    assert_eq!(answer.body["error"]["metadata"]["error_type"], "content_policy_violation");
    assert!(!answer.text.contains("secret"), "{}", answer.text);
}

#[tokio::test]
async fn a_held_stream_is_kept_alive_and_may_then_end_with_a_rejection() {
    let (host, upstream, _guests) = bench().await;
    let (words, reply) = Reply::fed();
    upstream.reply(reply);
    for event in [opening(), word("secret")] {
        words.send(sse_event(&event)).await.unwrap();
    }
    let mut stream = Client::new(&host).open(&request(&json!({"reject": "not this"}))).await;
    stream.more().await;
    assert_eq!(stream.unread(), ": keep-alive\n", "nothing of the answer is out");
    for event in ending("stop") {
        words.send(sse_event(&event)).await.unwrap();
    }
    drop(words);
    let failed = stream.until("response.failed").await;
    assert_eq!(failed["sequence_number"], 2, "{failed}");
    assert_eq!(failed["response"]["error_type"], "content_policy_violation", "{failed}");
    assert_eq!(failed["response"]["output"], json!([]));
    assert_eq!(failed["response"]["usage"]["total_tokens"], 10, "what was consumed is told");
    assert!(stream.next().await.is_none(), "the stream is complete");
}

#[tokio::test]
async fn another_endpoint_takes_over_from_one_that_breaks_while_its_answer_is_held() {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let (host, _guests) = host_of(&(STEADY.to_owned() + &several(&[&a.base, &b.base])));
    a.reply(Reply::cut(&[opening(), word("half of "), word("an answer")]));
    b.reply(chat_stream(&["from ", "b"]));
    let events = Client::new(&host).stream(&request(&json!({}))).await;
    assert_eq!(text_of(&events), "from b");
    assert_eq!(last_response(&events)["output"].as_array().unwrap().len(), 1);
    assert_eq!(events.last().unwrap()["type"], "response.completed");
}

#[tokio::test]
async fn the_items_of_all_turns_are_held() {
    let (host, upstream, _guests) = bench().await;
    upstream.reply(calls(true, "Let me see.", &[call("c1", "datetime", "{}")]));
    upstream.reply(chat_stream(&["It is ", "late."]));
    let mut request = request(&json!({"text": "edited"}));
    request["tools"] = json!([{"type": "service:datetime"}]);
    let events = Client::new(&host).stream(&request).await;
    assert_eq!(text_of(&events), "editededited", "the hook has seen the texts of both turns");
    let output = last_response(&events)["output"].as_array().unwrap();
    let types: Vec<_> = output.iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["message", "service:datetime", "message"]);
    assert_eq!(last_response(&events)["usage"]["total_tokens"], 20);
    let added = events.iter().find(|event| event["item"]["type"] == "service:datetime").unwrap();
    assert_eq!(
        (&added["type"], &added["item"]["status"]),
        (&json!("response.output_item.added"), &json!("in_progress"))
    );
}

#[tokio::test]
async fn an_answer_that_is_too_long_to_be_held_fails() {
    let (host, upstream, _guests) = bench().await;
    let piece = "x".repeat(1 << 20);
    for (pieces, ends_as) in [(15, "response.completed"), (17, "response.failed")] {
        upstream.reply(chat_stream(&vec![piece.as_str(); pieces]));
        let mut request = request(&json!({"text": "edited"}));
        request["stream"] = json!(true);
        let answer = Client::new(&host).post("/responses", &request).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let events = events_of(&answer.text);
        let last = events.last().unwrap();
        assert_eq!(last["type"], ends_as, "{}", last["response"]["error"]);
        if ends_as == "response.failed" {
            let message = last["response"]["error"]["message"].as_str().unwrap();
            assert!(message.starts_with("The answer is longer than the 16 MiB"), "{message}");
            assert_eq!(last["response"]["output"], json!([]));
        }
    }
}

#[tokio::test]
async fn an_invalid_replacement_ends_the_request_streamed_or_not() {
    let (host, upstream, _guests) = bench().await;
    for (streamed, set) in [
        (true, json!({"status": "in_progress"})),
        (false, json!({"status": "in_progress"})),
        (true, json!({"output": [{"id": "x"}]})),
        (false, json!({"output": "x"})),
    ] {
        upstream.reply(answer(streamed, "words"));
        let mut request = request(&json!({"set": set}));
        request["stream"] = json!(streamed);
        let answer = Client::new(&host).post("/responses", &request).await;
        assert_eq!(answer.status, 500, "{streamed} {set}: {}", answer.text);
    }
    host.until_logged("hook-editor");
}

#[tokio::test]
async fn a_hook_that_lets_streams_pass_is_not_called_and_nothing_is_held() {
    let upstream = Upstream::start().await;
    let guests = folder(&["hook-editor"]);
    let manifest = std::fs::read_to_string(built("hook-editor.toml")).unwrap();
    std::fs::write(guests.path().join("hook-editor.toml"), manifest + "on_stream = \"pass\"\n").unwrap();
    let config = single("openai-chat", &upstream.base);
    let host = Setup::new().config(&config).plugins(guests.path()).start();
    let (words, reply) = Reply::fed();
    upstream.reply(reply);
    words.send(sse_event(&word("early"))).await.unwrap();
    let mut stream = Client::new(&host).open(&request(&json!({"text": "edited"}))).await;
    // The provider sends nothing more until this event has arrived.
    assert_eq!(stream.until("response.output_text.delta").await["delta"], "early");
    for event in chat_events(&[" bird"]) {
        words.send(sse_event(&event)).await.unwrap();
    }
    let completed = stream.until("response.completed").await;
    assert_eq!(completed["response"]["output"][0]["content"][0]["text"], "early bird");
}

#[tokio::test]
async fn what_was_sent_upstream_is_echoed_before_a_held_answer() {
    let (host, upstream, _guests) = bench().await;
    upstream.reply(chat_stream(&["words"]));
    let mut request = request(&json!({}));
    request["debug"] = json!({"echo_upstream_body": true});
    let events = Client::new(&host).stream(&request).await;
    assert_eq!(events[0]["type"], "response.debug");
    assert_eq!(text_of(&events), "words");
}
