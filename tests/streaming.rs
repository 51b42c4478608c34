//! Streams: the order of events, when a fallback is still possible, and every way to end.

mod order;

use crate::kit::client::{Client, events_of, last_response, text_of, types_of};
use crate::kit::config::{MODEL, model, provider, several, single};
use crate::kit::host::{Host, Setup};
use crate::kit::script::{self, word};
use crate::kit::upstream::{Reply, Upstream, sse_event};
use serde_json::{Value, json};

/// A generous limit for events that should happen at once.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

fn request() -> Value {
    json!({"model": MODEL, "input": "x", "provider": {"sort": "price"}})
}

/// Polls a request until the provider has received it, then leaves.
async fn leave_once_asked<T>(asking: impl Future<Output = T>, upstream: &Upstream) {
    let mut asking = std::pin::pin!(asking);
    while upstream.asked().is_empty() {
        tokio::select! {
            biased;
            _ = &mut asking => panic!("an answer without a word"),
            () = tokio::task::yield_now() => {}
        }
    }
}

/// Two chat providers, tried in this order.
async fn pair() -> (Upstream, Upstream, Host) {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let host = Setup::new().config(&several(&[&a.base, &b.base])).start();
    (a, b, host)
}

/// The error of the last event, which must be `response.failed`.
fn failure_of(events: &[Value]) -> (&str, &str) {
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.failed", "{last}");
    let response = &last["response"];
    assert_eq!((&response["status"], &response["completed_at"]), (&json!("failed"), &Value::Null));
    (response["error"]["code"].as_str().unwrap(), response["error_type"].as_str().unwrap())
}

#[tokio::test]
async fn error_before_any_content_falls_back_unseen() {
    let (a, b, host) = pair().await;
    let error = json!({"error": {"message": "overloaded", "code": 503}});
    a.reply(Reply::sse(&[script::opening(), script::opening(), error]));
    b.reply(script::chat_stream(&["from ", "b"]));
    let events = Client::new(&host).stream(&request()).await;
    assert_eq!(text_of(&events), "from b");
    assert_eq!(types_of(&events).iter().filter(|kind| **kind == "response.created").count(), 1);
    assert_eq!((a.asked().len(), b.asked().len()), (1, 1));
}

#[tokio::test]
async fn stream_without_content_falls_back_unseen() {
    let (a, b, host) = pair().await;
    for reply in [
        Reply::sse(&[script::opening()]),
        Reply::sse(&[]),
        Reply::cut(&[script::opening()]),
        script::chat_stream(&[]),
        Reply::sse(&[json!("not json")]),
    ] {
        a.reply(reply);
        b.reply(script::chat_stream(&["from b"]));
        let events = Client::new(&host).stream(&request()).await;
        assert_eq!(text_of(&events), "from b");
    }
}

#[tokio::test]
async fn an_error_after_the_first_word_ends_the_stream_as_failed() {
    let (a, b, host) = pair().await;
    let error = json!({"error": {"message": "secret inner words", "type": "server_error", "code": 500}});
    a.reply(Reply::sse(&[script::opening(), word("half"), error]));
    let events = Client::new(&host).stream(&request()).await;
    assert_eq!(text_of(&events), "half");
    assert_eq!(failure_of(&events).0, "server_error");
    let response = last_response(&events);
    assert_eq!(response["error"]["message"], "Provider returned error");
    assert_eq!(response["output"][0]["content"][0]["text"], "half");
    assert_eq!(response["output"][0]["status"], "incomplete");
    assert!(b.asked().is_empty(), "nothing is tried again after the first word");
}

#[tokio::test]
async fn rate_limit_in_the_middle_has_its_own_code() {
    let (a, _b, host) = pair().await;
    let error = json!({"error": {"message": "slow down", "code": "rate_limit_exceeded"}});
    a.reply(Reply::sse(&[word("half"), error]));
    let events = Client::new(&host).stream(&request()).await;
    assert_eq!(failure_of(&events), ("rate_limit_exceeded", "rate_limit_exceeded"));
}

#[tokio::test]
async fn response_that_breaks_off_fails_and_never_completes() {
    let (a, b, host) = pair().await;
    for reply in [
        Reply::cut(&[script::opening(), word("half")]),
        Reply::sse(&[script::opening(), word("half")]),
        Reply::sse(&[word("half"), json!("{\"choices\": [")]),
    ] {
        a.reply(reply);
        let events = Client::new(&host).stream(&request()).await;
        assert_eq!(text_of(&events), "half");
        assert_eq!(failure_of(&events), ("server_error", "provider_unavailable"));
        assert!(!types_of(&events).contains(&"response.completed"));
    }
    assert!(b.asked().is_empty());
}

#[tokio::test]
async fn reaching_the_output_limit_gives_an_incomplete_response() {
    let (a, _b, host) = pair().await;
    let error = json!({"error": {"message": "too long", "code": "context_length_exceeded"}});
    for reply in [
        Reply::sse(&[word("half"), error]),
        Reply::sse(&[vec![word("half")], script::ending("length")].concat()),
    ] {
        a.reply(reply);
        let events = Client::new(&host).stream(&request()).await;
        let last = events.last().unwrap();
        assert_eq!(last["type"], "response.incomplete", "{last}");
        assert_eq!(last["response"]["status"], "incomplete");
        assert_eq!(last["response"]["incomplete_details"], json!({"reason": "max_output_tokens"}));
        assert_eq!(last["response"]["error"], Value::Null);
    }
}

#[tokio::test]
async fn a_filtered_response_is_incomplete_for_that_reason() {
    let (a, _b, host) = pair().await;
    a.reply(Reply::sse(&[vec![word("half")], script::ending("content_filter")].concat()));
    let events = Client::new(&host).stream(&request()).await;
    assert_eq!(last_response(&events)["incomplete_details"], json!({"reason": "content_filter"}));
}

#[tokio::test]
async fn a_stream_that_no_provider_starts_is_an_ordinary_error() {
    let (a, b, host) = pair().await;
    a.reply(script::refusal(500, "broken"));
    b.reply(Reply::sse(&[json!({"error": {"message": "broken", "code": 500}})]));
    let mut request = request();
    request["stream"] = json!(true);
    let answer = Client::new(&host).post("/responses", &request).await;
    assert_eq!(answer.status, 502, "{}", answer.text);
    assert_eq!(answer.headers["content-type"], "application/json");
    assert_eq!(answer.message(), "Provider returned error");
    assert_eq!(answer.body["error"]["metadata"]["previous_errors"][0]["provider_name"], "a");
}

#[tokio::test]
async fn a_client_that_leaves_cancels_its_upstream_request() {
    let mut upstream = Upstream::start().await;
    let (words, reply) = Reply::fed();
    upstream.reply(reply);
    let host = Setup::new().config(&single("openai-chat", &upstream.base)).start();
    let client = Client::new(&host);
    let mut events = client.open(&request()).await;
    words.send(sse_event(&word("hello"))).await.unwrap();
    events.until("response.output_text.delta").await;
    drop(events);
    let gone = tokio::time::timeout(PATIENCE, upstream.dropped.recv()).await;
    gone.expect("the upstream connection stays open").unwrap();
    // The host still serves.
    upstream.reply(script::chat("fine"));
    assert_eq!(client.post("/responses", &request()).await.output_text(), "fine");
}

#[tokio::test]
async fn a_client_that_leaves_before_the_first_word_cancels_its_upstream_request() {
    let mut upstream = Upstream::start().await;
    let (words, reply) = Reply::fed();
    upstream.reply(reply);
    let host = Setup::new().config(&single("openai-chat", &upstream.base)).start();
    let client = Client::new(&host);
    let request = request();
    // The response head is sent with the first word.
    leave_once_asked(client.open(&request), &upstream).await;
    drop(client);
    let gone = tokio::time::timeout(PATIENCE, upstream.dropped.recv()).await;
    gone.expect("the upstream connection stays open").unwrap();
    drop(words);
}

#[tokio::test]
async fn the_total_time_ends_a_stream_as_timed_out() {
    let upstream = Upstream::start().await;
    let (words, reply) = Reply::fed();
    upstream.reply(reply);
    let config = format!("[timeouts]\ntotal_ms = 1500\n{}", single("openai-chat", &upstream.base));
    let host = Setup::new().config(&config).start();
    words.send(sse_event(&word("half"))).await.unwrap();
    let events = Client::new(&host).stream(&request()).await;
    assert_eq!(text_of(&events), "half");
    assert_eq!(failure_of(&events), ("server_error", "timeout"));
    drop(words);
}

#[tokio::test]
async fn a_provider_that_falls_silent_ends_a_stream_as_timed_out() {
    let upstream = Upstream::start().await;
    let (words, reply) = Reply::fed();
    upstream.reply(reply);
    let config = format!("[timeouts]\nidle_ms = 300\n{}", single("openai-chat", &upstream.base));
    let host = Setup::new().config(&config).start();
    words.send(sse_event(&word("half"))).await.unwrap();
    let events = Client::new(&host).stream(&request()).await;
    assert_eq!(failure_of(&events), ("server_error", "timeout"));
    drop(words);
}

#[tokio::test]
async fn streams_at_the_same_time_do_not_mix() {
    let upstream = Upstream::start().await;
    let host = Setup::new().config(&single("openai-chat", &upstream.base)).start();
    let client = Client::new(&host);
    let mut open = Vec::new();
    for name in ["left", "right"] {
        let (words, reply) = Reply::fed();
        upstream.reply(reply);
        words.send(sse_event(&word(name))).await.unwrap();
        let mut events = client.open(&request()).await;
        let first = events.until("response.output_text.delta").await;
        assert_eq!(first["delta"], name);
        open.push((name, words, events));
    }
    for round in 0..20 {
        for (name, words, events) in &mut open {
            let text = format!("{name}{round}");
            words.send(sse_event(&word(&text))).await.unwrap();
            assert_eq!(events.until("response.output_text.delta").await["delta"], text);
        }
    }
    for (name, words, events) in &mut open {
        for event in script::ending("stop") {
            words.send(sse_event(&event)).await.unwrap();
        }
        let whole: String = std::iter::once((*name).to_owned())
            .chain((0..20).map(|round| format!("{name}{round}")))
            .collect();
        let last = events.until("response.completed").await;
        assert_eq!(last["response"]["output"][0]["content"][0]["text"], whole);
    }
}

#[tokio::test]
async fn streams_are_read_the_same_however_the_network_splits_them() {
    let upstream = Upstream::start().await;
    let host = Setup::new().config(&single("openai-chat", &upstream.base)).start();
    let client = Client::new(&host);
    let words = ["Grüße ", "aus ", "Köln 🏙", "\r\n\u{2028}", "\"quoted\""];
    let bytes: Vec<u8> = script::chat_events(&words).iter().map(sse_event).collect::<String>().into_bytes();
    let with_returns: Vec<u8> = String::from_utf8(bytes.clone()).unwrap().replace('\n', "\r\n").into_bytes();
    for (bytes, size) in
        [(&bytes, 1), (&bytes, 3), (&bytes, 17), (&with_returns, 1), (&with_returns, 2), (&bytes, 1 << 20)]
    {
        upstream.reply(Reply::Split { pieces: bytes.chunks(size).map(<[u8]>::to_vec).collect() });
        let events = client.stream(&request()).await;
        assert_eq!(text_of(&events), words.concat(), "in pieces of {size}");
        assert_eq!(events.last().unwrap()["type"], "response.completed");
    }
}

#[tokio::test]
async fn a_provider_that_answers_a_stream_with_one_body_is_understood() {
    let upstream = Upstream::start().await;
    upstream.reply(script::chat("all at once"));
    let host = Setup::new().config(&single("openai-chat", &upstream.base)).start();
    let events = Client::new(&host).stream(&request()).await;
    assert_eq!(text_of(&events), "all at once");
    assert_eq!(events.last().unwrap()["type"], "response.completed");
}

#[tokio::test]
async fn the_type_of_a_stream_may_be_written_in_any_letter_case() {
    let upstream = Upstream::start().await;
    let pieces = script::chat_events(&["fine"]).iter().map(sse_event).collect();
    upstream.reply(Reply::Stream { content_type: "Text/Event-Stream; charset=UTF-8", pieces });
    let host = Setup::new().config(&single("openai-chat", &upstream.base)).start();
    assert_eq!(text_of(&Client::new(&host).stream(&request()).await), "fine");
}

#[tokio::test]
async fn a_stream_without_a_content_type_is_understood() {
    let upstream = Upstream::start().await;
    let pieces = script::chat_events(&["fine"]).iter().map(sse_event).collect();
    upstream.reply(Reply::Stream { content_type: "", pieces });
    let host = Setup::new().config(&single("openai-chat", &upstream.base)).start();
    assert_eq!(text_of(&Client::new(&host).stream(&request()).await), "fine");
}

#[tokio::test]
async fn metadata_of_a_broken_stream_has_no_selection_and_names_the_error() {
    let (a, _b, host) = pair().await;
    a.reply(Reply::cut(&[word("half")]));
    let mut request = request();
    request["stream"] = json!(true);
    let answer =
        Client::new(&host).post_with("/responses", &request, &[("x-service-metadata", "enabled")]).await;
    let events = events_of(&answer.text);
    failure_of(&events);
    let metadata = &last_response(&events)["service_metadata"];
    assert_eq!(metadata["attempts"][0]["error_type"], "provider_unavailable", "{metadata}");
    let available = metadata["endpoints"]["available"].as_array().unwrap();
    assert!(available.iter().all(|endpoint| endpoint["selected"] == false), "{metadata}");
}

#[tokio::test]
async fn every_dialect_falls_back_before_its_first_word() {
    let started =
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 1, "output_tokens": 1}}});
    let overloaded = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let created = json!({"type": "response.created", "response": {"id": "up", "status": "in_progress"}});
    let failed = json!({"type": "response.failed", "response": {
        "status": "failed", "output": [], "error": {"code": "server_error", "message": "inner words"}}});
    let added = json!({"type": "response.output_item.added", "output_index": 0,
        "item": {"type": "message", "id": "msg_up", "role": "assistant", "content": []}});
    for (adapter, before) in [
        ("anthropic", vec![started.clone(), overloaded.clone()]),
        ("anthropic", vec![started.clone()]),
        ("openai-responses", vec![created.clone(), added.clone(), failed.clone()]),
        (
            "openai-responses",
            vec![created.clone(), json!({"type": "error", "code": "server_error", "message": "x"})],
        ),
        ("openai-responses", vec![created, added]),
    ] {
        let (a, b) = (Upstream::start().await, Upstream::start().await);
        let config = provider("a", adapter, &a.base)
            + &provider("b", "openai-chat", &b.base)
            + &model(MODEL, "responses", &["a", "b"]);
        let host = Setup::new().config(&config).start();
        a.reply(Reply::sse(&before));
        b.reply(script::chat_stream(&["from b"]));
        let events = Client::new(&host).stream(&request()).await;
        assert_eq!(text_of(&events), "from b", "{adapter}");
        assert_eq!(last_response(&events)["usage"]["input_tokens"], 7, "only who answered is counted");
    }
}

#[tokio::test]
async fn every_dialect_fails_in_band_after_its_first_word() {
    let block =
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "half"}});
    let overloaded = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let delta =
        json!({"type": "response.output_text.delta", "output_index": 0, "item_id": "m", "delta": "half"});
    let failed = json!({"type": "response.failed", "response": {
        "status": "failed", "output": [], "error": {"code": "server_error", "message": "inner words"}}});
    for (adapter, events) in [
        ("anthropic", vec![block.clone(), overloaded]),
        ("anthropic", vec![block]),
        ("openai-responses", vec![delta.clone(), failed]),
        ("openai-responses", vec![delta]),
    ] {
        let upstream = Upstream::start().await;
        upstream.reply(Reply::sse(&events));
        let host = Setup::new().config(&single(adapter, &upstream.base)).start();
        let events = Client::new(&host).stream(&request()).await;
        assert_eq!(text_of(&events), "half", "{adapter}");
        assert_eq!(failure_of(&events).0, "server_error");
        assert!(!format!("{events:?}").contains("inner words"));
    }
}

#[tokio::test]
async fn a_client_that_leaves_a_whole_response_cancels_its_upstream_request() {
    let mut upstream = Upstream::start().await;
    let (words, pieces) = tokio::sync::mpsc::channel(8);
    upstream.reply(Reply::Fed { content_type: "application/json", pieces });
    let host = Setup::new().config(&single("openai-chat", &upstream.base)).start();
    let client = Client::new(&host);
    let request = request();
    leave_once_asked(client.post("/responses", &request), &upstream).await;
    drop(client);
    let gone = tokio::time::timeout(PATIENCE, upstream.dropped.recv()).await;
    gone.expect("the upstream connection stays open").unwrap();
    drop(words);
}

#[tokio::test]
async fn a_long_answer_arrives_whole() {
    let upstream = Upstream::start().await;
    let words: Vec<String> = (0..5000).map(|number| format!("{number} ")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    upstream.reply(script::chat_stream(&words));
    let host = Setup::new().config(&single("openai-chat", &upstream.base)).start();
    let mut request = request();
    request["stream"] = json!(true);
    let answer = Client::new(&host).post("/responses", &request).await;
    let events = events_of(&answer.text);
    assert_eq!(text_of(&events), words.concat());
    assert_eq!(last_response(&events)["output"][0]["content"][0]["text"], words.concat());
}
