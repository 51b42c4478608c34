//! Limits of keys and workspaces: requests and tokens per minute, and concurrent requests. The
//! rates are so low that nothing is refilled during a test.

mod bodies;
mod shares;

use crate::kit::admin::Admin;
use crate::kit::client::{Answer, Client, Events};
use crate::kit::config::{MODEL, several_of, single};
use crate::kit::database::is_embedded;
use crate::kit::host::{Host, Setup};
use crate::kit::raw::{Raw, post_head};
use crate::kit::script::{self, chat_events};
use crate::kit::upstream::{Reply, Upstream, sse_event};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc::Sender;

const PATIENCE: Duration = Duration::from_secs(60);

fn limits(lines: &str) -> String {
    format!("[limits]\n{lines}\n")
}

fn question() -> Value {
    json!({"model": "local/demo", "input": "hi"})
}

fn scripted() -> Value {
    json!({"model": MODEL, "input": "hi"})
}

/// A new key in the workspace `default`.
fn other_key(host: &Host) -> String {
    let made = host.command(&["key", "create", "--workspace", "default"]);
    made["key"].as_str().unwrap().to_owned()
}

fn header<'a>(answer: &'a Answer, name: &str) -> &'a str {
    answer.headers.get(name).map_or("", |value| value.to_str().unwrap())
}

fn number(answer: &Answer, name: &str) -> u64 {
    header(answer, name).parse().unwrap_or_else(|_| panic!("{name}: {:?}", answer.headers))
}

/// A stream whose first event has arrived, and the sender that feeds it.
async fn opened(client: &Client, provider: &Upstream) -> (Sender<String>, Events) {
    let (feed, reply) = Reply::fed();
    provider.reply(reply);
    feed.send(sse_event(&script::word("first"))).await.unwrap();
    let mut events = client.open(&scripted()).await;
    events.until("response.output_text.delta").await;
    (feed, events)
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// Checks that the host refused a request for this limit.
fn assert_limited(answer: &Answer, limit: &str) {
    assert_eq!(answer.status, 429, "{limit}: {}", answer.text);
    let metadata = &answer.body["error"]["metadata"];
    let scope = if limit.starts_with("workspace_") { "workspace" } else { "key" };
    let expected =
        json!({"error_type": "rate_limit_exceeded", "refused_by": "host", "limit": limit, "scope": scope});
    assert_eq!(metadata, &expected, "{}", answer.text);
    assert!(answer.message().contains("this host"), "{}", answer.text);
    let wait_s = number(answer, "retry-after");
    assert!((1..=120).contains(&wait_s), "{wait_s}");
    assert_eq!((number(answer, "x-ratelimit-remaining"), header(answer, "x-ratelimit-resource")), (0, limit));
    assert!(number(answer, "x-ratelimit-reset") > now_ms() - PATIENCE.as_millis() as u64);
}

#[tokio::test]
async fn requests_of_a_key_are_limited_and_headers_show_what_is_left() {
    let host = Setup::new().config(&limits("requests_per_minute = 3")).start();
    let client = Client::new(&host);
    let whole = client.post("/responses", &question()).await;
    assert_eq!(whole.status, 200, "{}", whole.text);
    assert_eq!((number(&whole, "x-ratelimit-limit"), number(&whole, "x-ratelimit-remaining")), (3, 2));
    assert_eq!(header(&whole, "x-ratelimit-resource"), "requests_per_minute");
    let until_whole_ms = number(&whole, "x-ratelimit-reset").abs_diff(now_ms());
    assert!(until_whole_ms <= 60_000, "{until_whole_ms}");
    client.stream(&question()).await;
    // An invalid request counts too.
    let wrong = client.post("/embeddings", &json!({"model": "local/embed"})).await;
    assert_eq!((wrong.status, number(&wrong, "x-ratelimit-remaining")), (400, 0), "{}", wrong.text);
    for path in ["/responses", "/embeddings"] {
        assert_limited(&client.post(path, &question()).await, "requests_per_minute");
    }
    let mut streamed = question();
    streamed["stream"] = json!(true);
    assert_limited(&client.post("/responses", &streamed).await, "requests_per_minute");
    // Other routes and other keys are not limited.
    let models = client.get("/models").await;
    assert_eq!((models.status, header(&models, "x-ratelimit-limit")), (200, ""));
    let other = Client::with_key(&host, &other_key(&host));
    assert_eq!(other.post("/responses", &question()).await.status, 200);
}

#[tokio::test]
async fn requests_of_a_workspace_are_limited_over_all_its_keys() {
    let host = Setup::new().config(&limits("workspace_requests_per_minute = 2")).start();
    host.command(&["workspace", "create", "elsewhere"]);
    let elsewhere = host.command(&["key", "create", "--workspace", "elsewhere"]);
    let (one, other) = (Client::new(&host), Client::with_key(&host, &other_key(&host)));
    assert_eq!(one.post("/responses", &question()).await.status, 200);
    assert_eq!(other.post("/responses", &question()).await.status, 200);
    for client in [&one, &other] {
        assert_limited(&client.post("/responses", &question()).await, "workspace_requests_per_minute");
    }
    let elsewhere = Client::with_key(&host, elsewhere["key"].as_str().unwrap());
    assert_eq!(elsewhere.post("/responses", &question()).await.status, 200);
}

/// The body of a refused request is not read. With `Expect: 100-continue` the client gets the
/// refusal at once.
#[tokio::test]
async fn a_request_is_refused_before_its_body_is_read() {
    let host = Setup::new().config(&limits("requests_per_minute = 1")).start();
    assert_eq!(Client::new(&host).post("/responses", &question()).await.status, 200);
    let mut raw = Raw::connect(&host).await;
    let headers = "Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n";
    assert!(raw.send(post_head(&host, "/responses", headers).as_bytes()).await);
    let (status, head, body) = raw.answer().await;
    assert_eq!(status, 429, "{head}");
    assert_eq!(body["error"]["metadata"]["limit"], "requests_per_minute");
}

#[tokio::test]
async fn a_request_without_a_valid_key_gets_401_instead_of_429() {
    let host = Setup::new().config(&limits("requests_per_minute = 1")).start();
    Client::new(&host).post("/responses", &question()).await;
    let answer = Client::with_key(&host, "cfd_wrong").post("/responses", &question()).await;
    assert_eq!((answer.status, header(&answer, "x-ratelimit-limit")), (401, ""));
    let provisioning = host.command(&["key", "create", "--provisioning", "--workspace", "default"]);
    let provisioning = Client::with_key(&host, provisioning["key"].as_str().unwrap());
    assert_eq!(provisioning.post("/responses", &question()).await.status, 403);
}

/// Each response of the scripted provider uses 10 tokens: 7 in, 3 out.
#[tokio::test]
async fn tokens_of_every_kind_of_response_are_counted() {
    if !is_embedded("limits that hosts share hold within bounds, not exactly") {
        return;
    }
    let a = Upstream::start().await;
    let config = limits("tokens_per_minute = 11") + &single("openai-chat", &a.base);
    let host = Setup::new().config(&config).start();
    let used_up = async |client: &Client| {
        a.clear();
        assert_limited(&client.post("/responses", &scripted()).await, "tokens_per_minute");
        assert_limited(&client.post("/embeddings", &scripted()).await, "tokens_per_minute");
    };

    let whole = Client::new(&host);
    for remaining in [11, 1] {
        a.reply(script::chat("hello"));
        let answer = whole.post("/responses", &scripted()).await;
        assert_eq!((answer.status, number(&answer, "x-ratelimit-remaining")), (200, remaining));
    }
    used_up(&whole).await;

    let streamed = Client::with_key(&host, &other_key(&host));
    for _ in 0..2 {
        a.reply(script::chat_stream(&["hello"]));
        streamed.stream(&scripted()).await;
    }
    used_up(&streamed).await;

    // Both turns of a tool loop count.
    let looping = Client::with_key(&host, &other_key(&host));
    let call = json!([{"id": "c", "type": "function", "function": {"name": "datetime", "arguments": "{}"}}]);
    let turn = json!({"role": "assistant", "content": "", "tool_calls": call});
    a.reply(script::chat_message(&turn, "tool_calls"));
    a.reply(script::chat("Noon."));
    let mut request = scripted();
    request["tools"] = json!([{"type": "service:datetime"}]);
    let answer = looping.post("/responses", &request).await;
    assert_eq!((answer.status, &answer.body["usage"]["total_tokens"]), (200, &json!(20)), "{}", answer.text);
    used_up(&looping).await;
}

/// The tokens of a stream count even if the client leaves before its end, whether or not the
/// provider has reported the usage.
#[tokio::test]
async fn tokens_of_a_stream_that_its_client_leaves_count() {
    let told = [
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 12, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hm"}}),
    ];
    let untold = [script::word("more than a token")];
    for (dialect, said) in [("anthropic", told.as_slice()), ("openai-chat", untold.as_slice())] {
        let mut a = Upstream::start().await;
        let config = limits("tokens_per_minute = 2") + &single(dialect, &a.base);
        let host = Setup::new().config(&config).start();
        let client = Client::new(&host);
        let (feed, reply) = Reply::fed();
        a.reply(reply);
        for event in said {
            feed.send(sse_event(event)).await.unwrap();
        }
        let mut events = client.open(&scripted()).await;
        events.until("response.output_text.delta").await;
        drop(events);
        a.dropped.recv().await.unwrap();
        let end = Instant::now() + PATIENCE;
        let mut answer = client.post("/responses", &scripted()).await;
        while answer.status != 429 {
            assert!(Instant::now() < end, "{dialect}: {}", answer.text);
            answer = client.post("/responses", &scripted()).await;
        }
        assert_eq!(answer.body["error"]["metadata"]["limit"], "tokens_per_minute", "{}", answer.text);
    }
}

#[tokio::test]
async fn a_refusal_of_two_limits_names_the_one_with_the_longer_wait() {
    if !is_embedded("limits that hosts share hold within bounds, not exactly") {
        return;
    }
    let a = Upstream::start().await;
    let config = limits("tokens_per_minute = 9\nrequests_per_minute = 1") + &single("openai-chat", &a.base);
    let host = Setup::new().config(&config).start();
    let client = Client::new(&host);
    a.reply(script::chat("hello"));
    assert_eq!(client.post("/responses", &scripted()).await.status, 200);
    let refused = client.post("/responses", &scripted()).await;
    assert_limited(&refused, "requests_per_minute");
    // The tokens alone would be back after 14 seconds.
    assert!(number(&refused, "retry-after") > 20, "{:?}", refused.headers);
}

#[tokio::test]
async fn tokens_of_embeddings_count_for_the_workspace_too() {
    let a = Upstream::start().await;
    let config = limits("workspace_tokens_per_minute = 5") + &several_of("embeddings", &[&a.base]);
    let host = Setup::new().config(&config).start();
    a.reply(Reply::json(
        200,
        json!({
            "object": "list",
            "data": [{"object": "embedding", "index": 0, "embedding": [0.5, 0.25]}],
            "usage": {"prompt_tokens": 6, "total_tokens": 6}
        }),
    ));
    let request = json!({"model": MODEL, "input": "x", "encoding_format": "float"});
    let answer = Client::new(&host).post("/embeddings", &request).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let other = Client::with_key(&host, &other_key(&host));
    assert_limited(&other.post("/embeddings", &request).await, "workspace_tokens_per_minute");
}

#[tokio::test]
async fn concurrent_requests_are_limited_until_one_ends_or_its_client_leaves() {
    let a = Upstream::start().await;
    let config = limits("concurrent_per_key = 2") + &single("openai-chat", &a.base);
    let host = Setup::new().config(&config).start();
    let client = Client::new(&host);
    let mut streams = Vec::new();
    for _ in 0..2 {
        streams.push(opened(&client, &a).await);
    }
    assert_limited(&client.post("/responses", &scripted()).await, "concurrent_per_key");
    let other = Client::with_key(&host, &other_key(&host));
    a.reply(script::chat("hello"));
    assert_eq!(other.post("/responses", &scripted()).await.status, 200, "a key's places are its own");

    // The request ends with its response, not when the provider closes its connection.
    let (feed, mut events) = streams.remove(0);
    for event in chat_events(&[]).into_iter().skip(1) {
        feed.send(sse_event(&event)).await.unwrap();
    }
    while events.next().await.is_some() {}
    a.reply(script::chat("hello"));
    assert_eq!(client.post("/responses", &scripted()).await.status, 200);
    drop((feed, events));

    // A request frees its permit when its client leaves, and when it is refused or fails.
    drop(streams);
    for reply in [script::refusal(500, "x"), script::refusal(400, "x")] {
        a.reply(reply);
        client.post("/responses", &scripted()).await;
    }
    let end = Instant::now() + PATIENCE;
    let (first, second) = loop {
        a.clear();
        for _ in 0..2 {
            a.reply(script::chat("hello"));
        }
        let request = scripted();
        let both = tokio::join!(client.post("/responses", &request), client.post("/responses", &request));
        if (both.0.status, both.1.status) == (200, 200) {
            break both;
        }
        assert!(Instant::now() < end, "{} {}", both.0.text, both.1.text);
    };
    assert_eq!((header(&first, "x-ratelimit-limit"), header(&second, "x-ratelimit-limit")), ("", ""));
}

/// There are 65 run permits. When 57 are taken, few are left, and a key then gets at most one.
#[tokio::test]
async fn one_key_cannot_take_all_run_permits() {
    let a = Upstream::start().await;
    let config = limits("streams = 1") + &single("openai-chat", &a.base);
    let host = Setup::new().config(&config).start();
    let intern = host.command(&["intern", "create", "greedy", "--workspace", "default"]);
    let intern = intern["id"].as_str().unwrap();
    let key = host.command(&["key", "create", "--workspace", "default", "--intern", intern]);
    let greedy = Arc::new(Client::with_key(&host, key["key"].as_str().unwrap()));
    a.always(|_| Reply::Hang);
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..73 {
        let greedy = Arc::clone(&greedy);
        running.spawn(async move { greedy.post("/responses", &scripted()).await });
    }
    for _ in 57..73 {
        assert_limited(&running.join_next().await.unwrap().unwrap(), "streams");
    }
    a.until_asked(57).await;
    for _ in 0..3 {
        a.reply(script::chat("hello"));
        let answer = Client::new(&host).post("/responses", &scripted()).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    assert_limited(&greedy.post("/responses", &scripted()).await, "streams");
}

/// The same for a stream whose client does not read, so that every buffer is full.
#[tokio::test]
async fn permit_is_freed_when_a_stalled_client_leaves() {
    let a = Upstream::start().await;
    let config = limits("concurrent_per_key = 1") + &single("openai-chat", &a.base);
    let host = Setup::new().config(&config).start();
    let client = Client::new(&host);
    let (feed, events) = opened(&client, &a).await;
    let long = sse_event(&script::word(&"x".repeat(64 * 1024)));
    let full = Duration::from_millis(500);
    while feed.send_timeout(long.clone(), full).await.is_ok() {}
    assert_limited(&client.post("/responses", &scripted()).await, "concurrent_per_key");
    drop(events);
    let end = Instant::now() + PATIENCE / 4;
    a.reply(script::chat("hello"));
    while client.post("/responses", &scripted()).await.status == 429 {
        assert!(Instant::now() < end, "the place is still taken");
    }
}

#[tokio::test]
async fn reload_changes_limits_at_once_and_keeps_counts() {
    if !is_embedded("limits that hosts share hold within bounds, not exactly") {
        return;
    }
    let host = Setup::new().config(&limits("requests_per_minute = 2")).start();
    let (client, admin) = (Client::new(&host), Admin::new(&host));
    let answered = async || {
        let mut answered = 0;
        while client.post("/responses", &question()).await.status == 200 {
            answered += 1;
        }
        answered
    };
    assert_eq!(answered().await, 2);
    let reloaded = async |lines: &str, times| {
        std::fs::write(host.directory().join("cofferdam.toml"), limits(lines)).unwrap();
        host.signal("HUP");
        admin.until_metric("cofferdam_reloads_total", times).await;
    };
    reloaded("requests_per_minute = 5", 1).await;
    assert!((3..=4).contains(&answered().await));
    reloaded("requests_per_minute = 4", 2).await;
    assert_limited(&client.post("/responses", &question()).await, "requests_per_minute");
    reloaded("", 3).await;
    let answer = client.post("/responses", &question()).await;
    assert_eq!((answer.status, header(&answer, "x-ratelimit-limit")), (200, ""));
}
