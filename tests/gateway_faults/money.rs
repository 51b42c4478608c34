//! Budgets and bills. Complaints about other gateways: a budget lets requests through or blocks
//! with money left, the charge for a client that leaves is arbitrary, and usage pages have no
//! bound.

use crate::kit::admin::Admin;
use crate::kit::client::{Answer, Client, Events};
use crate::kit::config::{MODEL, provider, several, single};
use crate::kit::host::{Host, Setup};
use crate::kit::script::{self, word};
use crate::kit::shim::Shim;
use crate::kit::store::usage_of;
use crate::kit::upstream::{Reply, Upstream};
use cofferdam_store::{UsageOutcome, UsageRow};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::Sender;

/// How long a step may take before a test fails.
const PATIENCE: Duration = Duration::from_secs(60);
const DOLLAR: u64 = 1_000_000_000_000;
/// The cost of a scripted response: 7 tokens in and 3 out, at a dollar each.
const ANSWER: u64 = 10 * DOLLAR;

/// A model at one chat provider, at a dollar per token.
fn dear(upstream: &Upstream) -> String {
    let endpoint = "{ provider = \"one\", model = \"m\", input = 1000000, output = 1000000 }";
    provider("one", "openai-chat", &upstream.base)
        + &format!("[[models]]\nid = \"{MODEL}\"\nendpoints = [{endpoint}]\n")
        + &format!("[[models]]\nid = \"test/embed\"\nkind = \"embeddings\"\nendpoints = [{endpoint}]\n")
}

/// A host whose default workspace has this much credit.
fn prepaid(upstream: &Upstream, dollars: &str) -> Host {
    let host = Setup::new().config(&dear(upstream)).start();
    host.command(&["credits", "add", "default", dollars]);
    host
}

/// Ten tokens of output at most, and about one token of input.
fn request() -> Value {
    json!({"model": MODEL, "input": "x", "max_output_tokens": 10})
}

async fn ask(client: &Client, upstream: &Upstream) -> Answer {
    upstream.clear();
    upstream.reply(script::chat("fine"));
    client.post("/responses", &request()).await
}

/// Credit left, spent and reserved, in dollars.
fn credit(host: &Host) -> (f64, f64, f64) {
    let shown = host.command(&["credits", "show", "default"]);
    let dollars = |name: &str| shown[name].as_f64().unwrap_or(f64::NAN);
    (dollars("left"), dollars("spent"), dollars("reserved"))
}

/// Polls until the condition is true.
fn until(is_so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "it never is");
    }
}

/// Waits until the provider has received a request.
async fn asked(upstream: &Upstream) {
    while upstream.asked().is_empty() {
        tokio::task::yield_now().await;
    }
}

fn assert_refused(answer: &Answer, limit: &str) {
    assert_eq!(answer.status, 402, "{}", answer.text);
    assert!(answer.message().starts_with("Insufficient credits: this host refused "), "{}", answer.text);
    assert_eq!(answer.body["error"]["metadata"]["error_type"], "payment_required", "{}", answer.text);
    assert_eq!(answer.body["error"]["metadata"]["limit"], limit, "{}", answer.text);
}

/// A stream that the client has read up to its first word, and the sender for more words.
async fn speaking(client: &Client, upstream: &Upstream) -> (Events, Sender<String>) {
    let (words, reply) = Reply::fed();
    upstream.reply(reply);
    words.send(crate::kit::upstream::sse_event(&word("word"))).await.unwrap();
    let mut events = client.open(&request()).await;
    events.until("response.output_text.delta").await;
    (events, words)
}

#[tokio::test]
async fn requests_are_refused_only_without_credit() {
    let upstream = Upstream::start().await;
    let mut host = prepaid(&upstream, "15");
    let client = Client::new(&host);
    for _ in 0..2 {
        assert_eq!(ask(&client, &upstream).await.status, 200, "there is money left");
    }
    assert_eq!(credit(&host), (-5.0, 20.0, 0.0), "one request may cost more than there was");
    let refused = ask(&client, &upstream).await;
    assert_refused(&refused, "credit");
    assert!(refused.message().contains("`cofferdam credits add`"), "{}", refused.text);
    let embedding = json!({"model": "test/embed", "input": "x"});
    assert_refused(&client.post("/embeddings", &embedding).await, "credit");
    assert_eq!(upstream.asked().len(), 2, "a refused request reaches no provider");
    host.command(&["credits", "add", "default", "5.000000000001"]);
    assert_eq!(ask(&client, &upstream).await.status, 200, "a trillionth is left");
    host.command(&["credits", "unlimited", "default"]);
    assert_eq!(ask(&client, &upstream).await.status, 200);
    let rows = usage_of(&mut host);
    assert_eq!(rows.iter().map(|row| row.cost_pico).collect::<Vec<_>>(), [ANSWER; 4]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_requests_are_reserved_and_released() {
    let upstream = Upstream::start().await;
    let host = prepaid(&upstream, "15");
    let client = Client::new(&host);
    let (mut first, words) = speaking(&client, &upstream).await;
    let (_, _, reserved) = credit(&host);
    assert!((10.0..=12.0).contains(&reserved), "{reserved}");
    let busy = client.post("/responses", &request()).await;
    assert_refused(&busy, "credit");
    assert_eq!(busy.headers["retry-after"], "1", "what is left does not cover a second one");
    for event in script::ending("stop") {
        words.send(crate::kit::upstream::sse_event(&event)).await.unwrap();
    }
    first.until("response.completed").await;
    assert_eq!(credit(&host), (5.0, 10.0, 0.0), "charged at once, and the rest given back");
    let (second, _words) = speaking(&client, &upstream).await;
    assert_eq!(credit(&host).2, 5.0, "alone it has what is left");
    assert_refused(&client.post("/responses", &request()).await, "credit");
    drop(second);
    until(|| credit(&host).2 == 0.0);
    assert!(credit(&host).0 > 0.0);
    assert_eq!(ask(&client, &upstream).await.status, 200);
    let spent = ask(&client, &upstream).await;
    assert_refused(&spent, "credit");
    assert!(spent.headers.get("retry-after").is_none(), "waiting does not help");
}

#[tokio::test]
async fn every_way_to_end_releases_the_reservation() {
    let upstream = Upstream::start().await;
    let mut host = prepaid(&upstream, "1000");
    let client = Client::new(&host);
    let streamed = || {
        let mut request = request();
        request["stream"] = true.into();
        request
    };
    let ways: [(Reply, Value, u16); 9] = [
        (script::chat("fine"), request(), 200),
        (script::chat_stream(&["fine"]), streamed(), 200),
        (Reply::sse(&[vec![word("half")], script::ending("length")].concat()), streamed(), 200),
        (Reply::cut(&[word("half")]), streamed(), 200),
        (Reply::cut(&[]), streamed(), 502),
        (script::refusal(500, "no"), request(), 502),
        (script::refusal(400, "no"), request(), 400),
        (script::refusal(429, "no"), request(), 429),
        (Reply::json(200, json!("no answer")), request(), 502),
    ];
    for (place, (reply, request, status)) in ways.into_iter().enumerate() {
        upstream.reply(reply);
        assert_eq!(client.post("/responses", &request).await.status, status, "way {place}");
        assert_eq!(credit(&host).2, 0.0, "way {place}");
    }
    for (request, status) in
        [(json!({"model": MODEL}), 400), (json!({"model": "no/such", "input": "x"}), 404)]
    {
        assert_eq!(client.post("/responses", &request).await.status, status);
    }
    let (_, spent, reserved) = credit(&host);
    assert_eq!((spent, reserved), (30.0, 0.0));
    let rows = usage_of(&mut host);
    assert_eq!(rows.iter().map(|row| row.cost_pico).sum::<u64>(), 3 * ANSWER);
    assert_eq!(rows.len(), 9, "a request that was refused before it was routed leaves no row");
}

#[tokio::test]
async fn a_key_has_its_own_spending_limits() {
    let upstream = Upstream::start().await;
    let host = Setup::new().config(&dear(&upstream)).start();
    let line = "key create --workspace default --limit-day 12.5 --limit-total 100";
    let made = host.command(&line.split(' ').collect::<Vec<_>>());
    assert_eq!(made["limits"], json!({"day": 12.5, "total": 100}));
    let limited = Client::with_key(&host, made["key"].as_str().unwrap());
    for _ in 0..2 {
        assert_eq!(ask(&limited, &upstream).await.status, 200);
    }
    let refused = ask(&limited, &upstream).await;
    assert_refused(&refused, "day");
    let metadata = &refused.body["error"]["metadata"];
    assert_eq!(metadata["limit_usd"], 12.5);
    let resets_at = metadata["resets_at"].as_str().unwrap();
    assert!(resets_at.ends_with("T00:00:00.000Z"), "{resets_at}");
    assert!(
        refused.message().contains(&format!("$12.5 a day. It may spend again from {}", &resets_at[..10]))
    );
    assert_eq!(ask(&Client::new(&host), &upstream).await.status, 200, "another key has none");
    let keys = host.command(&["key", "list"]);
    let listed = keys.as_array().unwrap().iter().find(|key| key["id"] == made["id"]).unwrap();
    assert_eq!(listed["spent"], json!({"day": 20, "week": 20, "month": 20, "total": 20}));
    assert_eq!(credit(&host).1, 30.0);
}

#[tokio::test]
async fn a_keys_limit_resets_with_the_calendar() {
    const DAY_S: i64 = 24 * 60 * 60;
    let upstream = Upstream::start().await;
    let setup = Setup::new().config(&dear(&upstream));
    let shim = Shim::new(&setup.data());
    let host = shim.on(setup).start();
    let line = "key create --workspace default --limit-day 5 --limit-total 25";
    let made = host.command(&line.split(' ').collect::<Vec<_>>());
    let limited = Client::with_key(&host, made["key"].as_str().unwrap());
    for day in 1..=3 {
        assert_eq!(ask(&limited, &upstream).await.status, 200, "day {day}");
        assert_refused(&ask(&limited, &upstream).await, "day");
        shim.shift_date(day * DAY_S);
    }
    assert_refused(&ask(&limited, &upstream).await, "total");
    let host = host.restart();
    let limited = Client::with_key(&host, made["key"].as_str().unwrap());
    // The next process has the true date again: a date that steps back does not open a new window.
    assert_refused(&ask(&limited, &upstream).await, "day");
}

/// Opens a stream with this many words of one token each and leaves in the middle of it.
async fn leave(client: &Client, upstream: &Upstream, words: usize) -> Sender<String> {
    let (sender, reply) = Reply::fed();
    upstream.reply(reply);
    let mut events = client.open(&json!({"model": MODEL, "input": "four", "max_output_tokens": 9})).await;
    for _ in 0..words {
        sender.send(crate::kit::upstream::sse_event(&word("word"))).await.unwrap();
        events.until("response.output_text.delta").await;
    }
    drop(events);
    sender
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_clients_that_leave_are_charged_what_was_served() {
    const CLIENTS: usize = 500;
    const AT_ONCE: usize = 50;
    let upstream = Upstream::start().await;
    let mut host = prepaid(&upstream, "100000");
    let client = Client::new(&host);
    let mut served = 0;
    for batch in 0..CLIENTS / AT_ONCE {
        // All streams of a batch are equal, because it is not determined which connection gets
        // which reply.
        let words = 1 + batch % 7;
        let leaving = (0..AT_ONCE).map(|_| leave(&client, &upstream, words));
        let connections = futures_util::future::join_all(leaving).await;
        served += (words * AT_ONCE) as u64;
        let left = (AT_ONCE * (batch + 1)) as u64;
        Admin::new(&host).until_metric("cofferdam_streams_abandoned_total", left).await;
        drop(connections);
    }
    assert_eq!(upstream.asked().len(), CLIENTS);
    let (_, spent, reserved) = credit(&host);
    assert_eq!(reserved, 0.0);
    let rows = usage_of(&mut host);
    assert_eq!(rows.len(), CLIENTS, "one row each");
    assert!(rows.iter().all(|row| (row.outcome, row.attempts) == (UsageOutcome::Cancelled, 1)));
    let sum = |count: fn(&UsageRow) -> u64| rows.iter().map(count).sum::<u64>();
    assert_eq!(sum(|row| row.output_tokens), served, "as many tokens as were served");
    let input = rows[0].input_tokens;
    assert!((1..20).contains(&input), "{input}");
    assert_eq!(sum(|row| row.cost_pico), (served + input * CLIENTS as u64) * DOLLAR);
    assert_eq!(sum(|row| row.cost_pico), spent as u64 * DOLLAR);
    println!(
        "{CLIENTS} cancelled streams: {served} words served, {} in the rows",
        sum(|row| row.output_tokens)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_a_whole_response_is_charged_its_input() {
    let upstream = Upstream::start().await;
    upstream.reply(Reply::Hang);
    let mut host = Setup::new().config(&dear(&upstream)).start();
    let client = Client::new(&host);
    let body = request();
    let waiting = client.post("/responses", &body);
    tokio::select! {
        answer = waiting => panic!("{}", answer.text),
        () = asked(&upstream) => {}
    }
    until(|| credit(&host).1 > 0.0);
    let rows = usage_of(&mut host);
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].outcome, rows[0].output_tokens), (UsageOutcome::Cancelled, 0));
    assert_eq!(rows[0].cost_pico, rows[0].input_tokens * DOLLAR);
}

#[tokio::test]
async fn a_usage_row_counts_the_attempts() {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let mut host = Setup::new().config(&several(&[&a.base, &b.base])).start();
    a.reply(script::refusal(500, "no"));
    b.reply(script::chat("fine"));
    let client = Client::new(&host);
    let ordered = json!({"model": MODEL, "input": "x", "provider": {"sort": "price"}});
    assert_eq!(client.post("/responses", &ordered).await.status, 200);
    let usage = host.command(&["usage", "--by", "model"]);
    assert_eq!(usage["total"]["attempts"], 2, "{usage}");
    let rows = usage_of(&mut host);
    assert_eq!((rows[0].attempts, rows[0].provider.as_str()), (2, "b"));
}

#[tokio::test]
async fn usage_is_summed_and_bounded_and_unauthenticated_requests_leave_no_rows() {
    let upstream = Upstream::start().await;
    let host = Setup::new().config(&single("openai-chat", &upstream.base)).start();
    let client = Client::new(&host);
    for _ in 0..3 {
        assert_eq!(ask(&client, &upstream).await.status, 200);
    }
    for _ in 0..5 {
        let stranger =
            Client::with_key(&host, "cfd_000000000000_0000000000000000000000000000000000000000000_000000");
        assert_eq!(stranger.post("/responses", &request()).await.status, 401);
    }
    for by in ["day", "key", "model", "workspace"] {
        let usage = host.command(&["usage", "--by", by, "--limit", "1"]);
        assert_eq!(usage["groups"].as_array().unwrap().len(), 1, "{usage}");
        let counts = ["requests", "completed", "input_tokens", "output_tokens"].map(|name| {
            assert_eq!(usage["groups"][0][name], usage["total"][name], "{by} {name}");
            usage["total"][name].as_u64().unwrap()
        });
        assert_eq!(counts, [3, 3, 21, 9], "{usage}");
        assert_eq!(usage["others"]["requests"], 0);
    }
    let host = host.restart();
    assert_eq!(host.command(&["usage"])["total"]["requests"], 3, "sums outlive the process");
}

/// A host with credit where a token costs a millionth of a dollar.
fn cheap(upstream: &Upstream) -> Host {
    let host = Setup::new().config(&dear(upstream).replace("1000000", "1")).start();
    host.command(&["credits", "add", "default", "10"]);
    host
}

/// Which rows are marked as estimated, in a workspace whose credit is still there.
fn estimated(mut host: Host) -> Vec<bool> {
    assert!(credit(&host).0 > 9.9);
    host.until_logged("a provider reports usage that cannot be right");
    usage_of(&mut host).iter().map(|row| row.estimated).collect()
}

#[tokio::test]
async fn figures_of_embeddings_that_cannot_be_right_are_estimated() {
    let upstream = Upstream::start().await;
    let host = cheap(&upstream);
    let client = Client::new(&host);
    for (usage, expected) in [
        (json!({"prompt_tokens": 1e15, "total_tokens": 1e15}), [1, 1]),
        (json!({"prompt_tokens": 1e30, "total_tokens": 5}), [1, 5]),
        (json!({"prompt_tokens": 7, "total_tokens": 3}), [7, 7]),
        (json!({"prompt_tokens": 7, "total_tokens": 1e15}), [7, 7]),
    ] {
        let data = json!([{"index": 0, "embedding": [1.0]}]);
        upstream.reply(Reply::json(200, json!({"data": data, "usage": usage})));
        let answer = client.post("/embeddings", &json!({"model": "test/embed", "input": "x"})).await;
        let told = &answer.body["usage"];
        assert_eq!([&told["prompt_tokens"], &told["total_tokens"]], expected.each_ref(), "{usage}");
    }
    assert_eq!(estimated(host), [true, true, false, false]);
}

/// A whole answer, or the last chunk of a stream, with this usage.
fn counted(stream: bool, usage: &Value) -> Reply {
    let name = if stream { "delta" } else { "message" };
    let message = json!({"role": "assistant", "content": "fine"});
    let choice = json!({"index": 0, name: message, "finish_reason": "stop"});
    let body = json!({"choices": [choice], "usage": usage});
    if stream { Reply::sse(&[body, json!("[DONE]")]) } else { Reply::json(200, body) }
}

/// What the client is told that its request used: input, cached input, output and reasoning.
async fn told(client: &Client, stream: bool) -> [u64; 4] {
    let mut asked = request();
    asked["stream"] = stream.into();
    let response = if stream {
        client.stream(&asked).await.pop().unwrap()["response"].clone()
    } else {
        client.post("/responses", &asked).await.body
    };
    let usage = &response["usage"];
    let figures = [
        &usage["input_tokens"],
        &usage["input_tokens_details"]["cached_tokens"],
        &usage["output_tokens"],
        &usage["output_tokens_details"]["reasoning_tokens"],
    ];
    figures.map(|figure| figure.as_u64().unwrap())
}

#[tokio::test]
async fn figures_of_answers_that_cannot_be_right_are_estimated() {
    let upstream = Upstream::start().await;
    let host = cheap(&upstream);
    let client = Client::new(&host);
    let (cached, reasoning) = (json!({"cached_tokens": 500}), json!({"reasoning_tokens": 500}));
    let all = |total: Value| {
        json!({"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": total,
            "prompt_tokens_details": cached, "completion_tokens_details": reasoning})
    };
    for (usage, expected) in [
        (json!({"prompt_tokens": 7, "completion_tokens": 1e15, "total_tokens": 1e15}), [7, 0, 1, 0]),
        (json!({"prompt_tokens": 1e30, "completion_tokens": 3}), [1, 0, 3, 0]),
        (all(json!(30)), [10, 10, 20, 20]),
        // Reasoning beside the completion, as some providers count it.
        (all(json!(530)), [10, 10, 520, 500]),
        (all(Value::Null), [10, 10, 520, 500]),
    ] {
        for stream in [false, true] {
            upstream.reply(counted(stream, &usage));
            assert_eq!(told(&client, stream).await, expected, "{usage}");
        }
    }
    let expected = [true, true, true, true, false, false, false, false, false, false];
    assert_eq!(estimated(host), expected);
}
