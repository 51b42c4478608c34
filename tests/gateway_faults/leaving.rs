//! A client that leaves before the provider has reported the usage is still charged for it. For
//! endpoints that reason before they send any text, the reasoning is most of the cost.

use crate::kit::admin::Admin;
use crate::kit::client::Client;
use crate::kit::config::{MODEL, provider};
use crate::kit::host::{Host, Setup};
use crate::kit::script::{self, opening, word};
use crate::kit::store::usage_of;
use crate::kit::upstream::{Reply, Upstream, sse_event};
use cofferdam_store::{UsageOutcome, UsageRow};
use serde_json::{Value, json};
use tokio::sync::mpsc::Sender;

const DOLLAR: u64 = 1_000_000_000_000;
/// Reasoning tokens that the provider reports at the end.
const THOUGHT: u64 = 100_000;

/// [`MODEL`] at chat providers at a dollar per token, with more members for each endpoint.
fn host(endpoints: &[(&Upstream, &str)], more: &str) -> Host {
    let (mut providers, mut list) = (String::new(), String::new());
    for (name, (upstream, members)) in ["a", "b"].into_iter().zip(endpoints) {
        providers += &provider(name, "openai-chat", &upstream.base);
        list += &format!(
            "{{ provider = \"{name}\", model = \"m\", input = 1000000, output = 1000000{members} }}, "
        );
    }
    let model = format!("[[models]]\nid = \"{MODEL}\"\nendpoints = [{list}]\n");
    Setup::new().config(&(more.to_owned() + &providers + &model)).start()
}

fn request() -> Value {
    json!({"model": MODEL, "input": "four", "max_output_tokens": 200_000})
}

/// Starts a stream and leaves it after its first word. The sender takes the rest of the answer of the
/// provider.
async fn left_after_a_word(host: &Host, upstream: &Upstream) -> Sender<String> {
    let (sender, reply) = Reply::fed();
    upstream.reply(reply);
    sender.send(sse_event(&word("four"))).await.unwrap();
    let mut events = Client::new(host).open(&request()).await;
    events.until("response.output_text.delta").await;
    sender
}

fn ending() -> [Value; 3] {
    let usage = json!({"prompt_tokens": 7, "completion_tokens": THOUGHT, "total_tokens": THOUGHT + 7,
        "completion_tokens_details": {"reasoning_tokens": THOUGHT - 1}});
    [
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
        json!({"choices": [], "usage": usage}),
        json!("[DONE]"),
    ]
}

/// Waits until the host has noticed that the client left, during its stream or while it waited for
/// the response.
pub(super) async fn noticed(host: &Host, was_getting: bool) {
    let sample = if was_getting {
        "cofferdam_streams_abandoned_total"
    } else {
        "cofferdam_requests_total{route=\"responses\",status=\"499\"}"
    };
    Admin::new(host).until_metric(sample, 1).await;
}

/// Sends a request and leaves as soon as the provider has received it.
pub(super) async fn give_up(client: &Client, upstream: &Upstream, body: &Value) {
    tokio::select! {
        answer = client.post("/responses", body) => panic!("{}", answer.text),
        _ = upstream.until_asked(1) => {}
    }
}

/// Waits until this many requests have a usage row.
fn settled(host: &Host, requests: u64) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while host.command(&["usage"])["total"]["requests"] != json!(requests) {
        assert!(std::time::Instant::now() < end, "there is no row");
    }
}

pub(super) fn only_row(host: &mut Host) -> UsageRow {
    settled(host, 1);
    let [row] = usage_of(host).try_into().unwrap();
    row
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reasoning_endpoint_is_read_on_for_its_usage() {
    for (reasons, words) in [
        (", supports = [\"reasoning\"]", 1),
        (", supports = [\"reasoning\"]", 0),
        (", reasoning = 1000000", 1),
    ] {
        let upstream = Upstream::start().await;
        let mut host = host(&[(&upstream, reasons)], "");
        let client = Client::new(&host);
        let (sender, reply) = Reply::fed();
        upstream.reply(reply);
        sender.send(sse_event(&opening())).await.unwrap();
        if words == 0 {
            // The client has received no response head yet: it leaves while the model reasons.
            let mut body = request();
            body["stream"] = true.into();
            give_up(&client, &upstream, &body).await;
        } else {
            sender.send(sse_event(&word("word"))).await.unwrap();
            let mut events = client.open(&request()).await;
            events.until("response.output_text.delta").await;
            drop(events);
        }
        noticed(&host, words > 0).await;
        for event in ending() {
            // The host closes the connection once it has the usage, so sending may fail.
            sender.send(sse_event(&event)).await.ok();
        }
        drop(sender);
        let row = only_row(&mut host);
        assert_eq!((row.outcome, row.estimated), (UsageOutcome::Cancelled, false), "{row:?}");
        assert_eq!((row.input_tokens, row.output_tokens, row.reasoning_tokens), (7, THOUGHT, THOUGHT - 1));
        assert_eq!(row.cost_pico, (7 + THOUGHT) * DOLLAR);
        assert_eq!(upstream.asked().len(), 1);
    }
}

/// The answer of a later turn is read on for its usage like that of the first one. Its failure is no error of a
/// request whose client has left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_later_turn_that_fails_after_its_client_has_left_is_cancelled() {
    let upstream = Upstream::start().await;
    let mut host = host(&[(&upstream, ", supports = [\"reasoning\", \"tools\"]")], "");
    let call = json!([{"index": 0, "id": "c", "type": "function", "function": {"name": "datetime", "arguments": "{}"}}]);
    upstream.reply(Reply::sse(&[
        json!({"choices": [{"index": 0, "delta": {"role": "assistant", "tool_calls": call}}]}),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
        json!("[DONE]"),
    ]));
    let (sender, reply) = Reply::fed();
    upstream.reply(reply);
    let mut request = request();
    request["tools"] = json!([{"type": "service:datetime"}]);
    let mut events = Client::new(&host).open(&request).await;
    upstream.until_asked(2).await;
    events.until("response.output_item.done").await;
    drop(events);
    noticed(&host, true).await;
    // The provider ends its answer without a word.
    drop(sender);
    let row = only_row(&mut host);
    assert_eq!(row.outcome, UsageOutcome::Cancelled, "{row:?}");
    assert_eq!(upstream.asked().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_response_is_read_on_too() {
    let upstream = Upstream::start().await;
    let mut host = host(&[(&upstream, ", supports = [\"reasoning\"]")], "");
    let client = Client::new(&host);
    let (sender, reply) = Reply::fed_as("application/json");
    upstream.reply(reply);
    give_up(&client, &upstream, &request()).await;
    noticed(&host, false).await;
    let usage = json!({"prompt_tokens": 7, "completion_tokens": THOUGHT, "total_tokens": THOUGHT + 7});
    let message = json!({"role": "assistant", "content": "done"});
    let whole =
        json!({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage});
    sender.send(whole.to_string()).await.unwrap();
    drop(sender);
    Admin::new(&host).until_metric("cofferdam_answers_total{outcome=\"cancelled\"}", 1).await;
    let row = only_row(&mut host);
    assert_eq!((row.outcome, row.output_tokens, row.estimated), (UsageOutcome::Cancelled, THOUGHT, false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_that_has_reasoned_is_read_on_without_further_turns() {
    let upstream = Upstream::start().await;
    let mut host = host(&[(&upstream, "")], "");
    let client = Client::new(&host);
    upstream.reply(Reply::sse(&[[word("fine")].as_slice(), &ending()].concat()));
    client.stream(&request()).await;
    let (sender, reply) = Reply::fed();
    upstream.reply(reply);
    let call = json!({"index": 0, "id": "c", "type": "function",
        "function": {"name": "service_datetime", "arguments": "{}"}});
    sender.send(sse_event(&word("word"))).await.unwrap();
    let mut body = request();
    body["tools"] = json!([{"type": "service:datetime"}]);
    let mut events = client.open(&body).await;
    events.until("response.output_text.delta").await;
    drop(events);
    noticed(&host, true).await;
    let tool_name = upstream.asked()[1].body["tools"][0]["function"]["name"].clone();
    let mut call = call;
    call["function"]["name"] = tool_name;
    sender.send(sse_event(&script::chunk(&json!({"tool_calls": [call]})))).await.unwrap();
    let [mut end, usage, done] = ending();
    end["choices"][0]["finish_reason"] = json!("tool_calls");
    for event in [end, usage, done] {
        sender.send(sse_event(&event)).await.ok();
    }
    drop(sender);
    settled(&host, 2);
    assert_eq!(upstream.asked().len(), 2, "no turn follows for a client that has left");
    let rows = usage_of(&mut host);
    assert_eq!((rows[1].outcome, rows[1].output_tokens), (UsageOutcome::Cancelled, THOUGHT), "{rows:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_reported_usage_at_least_the_received_output_is_charged() {
    let upstream = Upstream::start().await;
    let mut host = host(&[(&upstream, ", supports = [\"reasoning\"]")], "");
    let sender = left_after_a_word(&host, &upstream).await;
    noticed(&host, true).await;
    sender.send(sse_event(&word("eight..."))).await.unwrap();
    drop(sender);
    let row = only_row(&mut host);
    assert_eq!((row.outcome, row.estimated), (UsageOutcome::Cancelled, true), "{row:?}");
    assert_eq!((row.input_tokens, row.output_tokens), (1, 3), "nothing is measured yet");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_that_does_not_reason_is_cancelled_at_once() {
    let mut upstream = Upstream::start().await;
    let mut host = host(&[(&upstream, "")], "");
    let sender = left_after_a_word(&host, &upstream).await;
    upstream.dropped.recv().await.unwrap();
    let row = only_row(&mut host);
    assert_eq!((row.outcome, row.output_tokens, row.estimated), (UsageOutcome::Cancelled, 1, true));
    drop(sender);
}

#[tokio::test]
async fn an_attempt_that_times_out_is_charged_its_input() {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let mut host = host(&[(&a, ", first_event_ms = 300"), (&b, "")], "[routing]\neject = false\n");
    let client = Client::new(&host);
    let mut body = json!({"model": MODEL, "input": "eight...", "provider": {"order": ["a", "b"]}});
    for streamed in [false, true] {
        a.reply(Reply::Hang);
        b.reply(if streamed { script::chat_stream(&["fine"]) } else { script::chat("fine") });
        body["stream"] = streamed.into();
        let headers = [("x-service-metadata", "enabled")];
        let response = if streamed {
            let events = client.stream_with(&body, &headers).await;
            crate::kit::client::last_response(&events).clone()
        } else {
            client.post_with("/responses", &body, &headers).await.body
        };
        assert_eq!(response["usage"]["cost"], json!(12), "two tokens beside the answer: {response}");
        let attempts = &response["service_metadata"]["attempts"];
        assert_eq!(
            (&attempts[0]["cost"], &attempts[0]["estimated"]),
            (&json!(2), &json!(true)),
            "{attempts}"
        );
        assert!(attempts[1].get("cost").is_none(), "{attempts}");
    }
    for row in usage_of(&mut host) {
        assert_eq!((row.input_tokens, row.output_tokens, row.cost_pico), (9, 3, 12 * DOLLAR), "{row:?}");
        assert!(row.estimated && row.attempts == 2, "{row:?}");
    }
}
