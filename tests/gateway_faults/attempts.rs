//! Attempts that providers charge for although the client gets nothing of them. If a gateway charges
//! only for the answer, the rest is paid by its operator, and a client that finds a way to make
//! attempts fail uses models for nothing.

use super::leaving::{give_up, noticed, only_row};
use crate::kit::client::{Answer, Client, last_response};
use crate::kit::config::{MODEL, provider};
use crate::kit::host::{Host, Setup};
use crate::kit::script::{self, opening, word};
use crate::kit::store::usage_of;
use crate::kit::upstream::{Reply, Upstream, sse_event};
use crate::tools::script::{answer, call, calls};
use cofferdam_store::{UsageOutcome, UsageRow};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const DOLLAR: u64 = 1_000_000_000_000;
const EMBEDDINGS: &str = "test/embed";

/// Endpoints at a dollar per token, in this order, with more members for each. `more` is further
/// configuration.
fn host(adapter: &str, endpoints: &[(&Upstream, &str)], more: &str) -> Host {
    let (mut providers, mut list) = (String::new(), String::new());
    for (name, (upstream, members)) in ["a", "b", "c"].into_iter().zip(endpoints) {
        providers += &provider(name, adapter, &upstream.base);
        list += &format!(
            "{{ provider = \"{name}\", model = \"m\", input = 1000000, output = 1000000{members} }}, "
        );
    }
    let models = format!("[[models]]\nid = \"{MODEL}\"\nendpoints = [{list}]\n")
        + &format!("[[models]]\nid = \"{EMBEDDINGS}\"\nkind = \"embeddings\"\nendpoints = [{list}]\n");
    Setup::new().config(&("[routing]\neject = false\n".to_owned() + more + &providers + &models)).start()
}

fn request() -> Value {
    json!({"model": MODEL, "input": "eight...", "max_output_tokens": 10, "provider": {"order": ["a", "b", "c"]}})
}

fn dollars(row: &UsageRow) -> u64 {
    row.cost_pico / DOLLAR
}

fn assert_refused(answer: &Answer) {
    assert_eq!(answer.status, 402, "{}", answer.text);
    assert_eq!(answer.body["error"]["metadata"]["limit"], "credit", "{}", answer.text);
}

#[tokio::test]
async fn no_further_endpoint_is_asked_when_charged_attempts_have_used_up_the_credit() {
    let upstreams = [Upstream::start().await, Upstream::start().await, Upstream::start().await];
    let [a, b, c] = &upstreams;
    let mut host = host("openai-chat", &[(a, ""), (b, ""), (c, "")], "");
    host.command(&["credits", "add", "default", "15"]);
    // Each answer without content is charged ten dollars.
    for upstream in &upstreams {
        upstream.reply(script::chat(""));
    }
    let answer = Client::new(&host).post("/responses", &request()).await;
    assert_eq!(answer.status, 200, "the first answer is used: {}", answer.text);
    let asked: Vec<usize> = upstreams.iter().map(|upstream| upstream.asked().len()).collect();
    assert_eq!(asked, [1, 1, 0], "five dollars were left after the first answer, nothing after the second");
    assert_eq!(dollars(&only_row(&mut host)), 20);
}

#[tokio::test]
async fn an_attempt_that_times_out_may_leave_no_credit_for_the_next_one() {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let mut host = host("openai-chat", &[(&a, ", first_event_ms = 300"), (&b, "")], "");
    host.command(&["credits", "add", "default", "2"]);
    a.reply(Reply::Hang);
    b.reply(script::chat("fine"));
    let answer = Client::new(&host).post("/responses", &request()).await;
    assert_refused(&answer);
    assert!(b.asked().is_empty(), "the input of the first attempt took all there was");
    assert_eq!(dollars(&only_row(&mut host)), 2);
}

#[tokio::test]
async fn usage_that_a_provider_reports_in_a_failed_attempt_is_charged() {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let mut host = host("openai-responses", &[(&a, ""), (&b, "")], "");
    let usage = json!({"input_tokens": 7, "output_tokens": 3, "total_tokens": 10});
    let error = json!({"code": "server_error", "message": "it broke"});
    let mut failed =
        json!({"id": "resp_up", "object": "response", "status": "failed", "output": [], "error": error});
    failed["usage"] = usage.clone();
    let completed = json!({"id": "resp_up", "object": "response", "status": "completed",
        "output": [script::message("fine")], "usage": usage});
    a.reply(Reply::json(200, failed));
    b.reply(Reply::json(200, completed));
    let headers = [("x-service-metadata", "enabled")];
    let answer = Client::new(&host).post_with("/responses", &request(), &headers).await;
    assert_eq!(answer.output_text(), "fine", "{}", answer.text);
    assert_eq!(answer.body["usage"]["cost"], json!(20), "{}", answer.text);
    let attempts = &answer.body["service_metadata"]["attempts"];
    assert_eq!(attempts[0]["cost"], json!(10), "{attempts}");
    let row = only_row(&mut host);
    assert_eq!((row.input_tokens, row.output_tokens, row.estimated), (14, 6, false), "{row:?}");
}

#[tokio::test]
async fn embeddings_of_a_wrong_length_are_charged() {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let mut host = host("openai-chat", &[(&a, ""), (&b, "")], "");
    let vectors = |vector: Value| {
        let data = json!([{"index": 0, "embedding": vector}]);
        Reply::json(200, json!({"data": data, "usage": {"prompt_tokens": 7, "total_tokens": 7}}))
    };
    a.reply(vectors(json!([1, 2, 3])));
    b.reply(vectors(json!([1, 2])));
    let body = json!({"model": EMBEDDINGS, "input": "x", "dimensions": 2, "provider": {"order": ["a", "b"]}});
    let answer = Client::new(&host).post("/embeddings", &body).await;
    assert_eq!(answer.body["usage"]["cost"], json!(14), "{}", answer.text);
    assert_eq!(only_row(&mut host).input_tokens, 14);
}

#[tokio::test]
async fn a_stream_that_this_host_ends_is_charged_what_has_arrived() {
    let upstream = Upstream::start().await;
    let mut host = host("openai-chat", &[(&upstream, "")], "[timeouts]\nidle_ms = 300\n");
    let client = Client::new(&host);
    // The provider falls silent. An event is longer than the host takes.
    let endless = "x".repeat(33 << 20);
    for (more, error) in [(None, "timeout"), (Some(endless), "provider_unavailable")] {
        let (sender, reply) = Reply::fed();
        upstream.reply(reply);
        for event in [opening(), word("sixteen letters.")] {
            sender.send(sse_event(&event)).await.unwrap();
        }
        if let Some(text) = more {
            sender.send(sse_event(&word(&text))).await.unwrap();
        }
        let events = client.stream(&request()).await;
        let response = last_response(&events);
        assert_eq!((&response["status"], &response["error_type"]), (&json!("failed"), &json!(error)));
        let usage = &response["usage"];
        assert_eq!(usage["cost"], json!(6), "{error}: {response}");
        assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(2), &json!(4)), "{response}");
    }
    for row in usage_of(&mut host) {
        assert_eq!((row.outcome, row.estimated), (UsageOutcome::Failed, true), "{row:?}");
        assert_eq!((row.input_tokens, row.output_tokens), (2, 4), "{row:?}");
    }
}

#[tokio::test]
async fn a_whole_answer_that_is_too_long_is_charged_its_input() {
    let upstream = Upstream::start().await;
    let mut host = host("openai-chat", &[(&upstream, "")], "");
    upstream.reply(script::chat(&"x".repeat(65 << 20)));
    let answer = Client::new(&host).post("/responses", &request()).await;
    assert_eq!(answer.status, 502, "{}", answer.text);
    let row = only_row(&mut host);
    assert_eq!((dollars(&row), row.estimated), (2, true), "{row:?}");
}

#[tokio::test]
async fn a_whole_answer_whose_time_is_up_is_charged_what_its_endpoint_makes_in_that_time() {
    let upstream = Upstream::start().await;
    let mut host = host("openai-chat", &[(&upstream, "")], "[timeouts]\ntotal_ms = 1000\n");
    let client = Client::new(&host);
    // From an answer that takes some time the speed of the endpoint is known.
    let (feed, reply) = Reply::fed();
    upstream.reply(reply);
    let begin = Instant::now();
    feed.send(sse_event(&word("word"))).await.unwrap();
    let mut events = client.open(&request()).await;
    while begin.elapsed() < Duration::from_millis(100) {
        feed.send(sse_event(&word("word"))).await.unwrap();
        events.until("response.output_text.delta").await;
    }
    let mut ending = script::ending("stop");
    ending[1]["usage"] =
        json!({"prompt_tokens": 7, "completion_tokens": 1_000_000, "total_tokens": 1_000_007});
    for event in ending {
        feed.send(sse_event(&event)).await.unwrap();
    }
    drop(feed);
    events.until("response.completed").await;
    let (feed, reply) = Reply::fed_as("application/json");
    upstream.reply(reply);
    feed.send("{".to_owned()).await.unwrap();
    let answer = client.post("/responses", &request()).await;
    assert_eq!(answer.status, 524, "{}", answer.text);
    let rows = usage_of(&mut host);
    let late = rows.iter().find(|row| row.outcome == UsageOutcome::Failed).unwrap();
    assert_eq!((late.input_tokens, late.output_tokens, late.estimated), (2, 10, true), "{late:?}");
}

#[tokio::test]
async fn a_figure_that_the_provider_leaves_at_zero_is_estimated() {
    let upstream = Upstream::start().await;
    let mut host = host("openai-chat", &[(&upstream, "")], "");
    let client = Client::new(&host);
    for (input, output) in [(7, 0), (0, 3)] {
        let message = json!({"role": "assistant", "content": "sixteen letters."});
        let usage =
            json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output});
        let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
        upstream.reply(Reply::json(200, json!({"choices": [choice], "usage": usage})));
        let answer = client.post("/responses", &request()).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    let told = usage_of(&mut host);
    let told: Vec<_> = told.iter().map(|row| (row.input_tokens, row.output_tokens, row.estimated)).collect();
    assert_eq!(told, [(7, 4, true), (2, 3, true)]);
}

#[tokio::test]
async fn a_limit_of_cost_counts_attempts_that_gave_no_answer() {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let mut host = host("openai-chat", &[(&a, ", first_event_ms = 300"), (&b, "")], "");
    a.reply(Reply::Hang);
    let mut body = request();
    body["tools"] = json!([{"type": "service:datetime"}]);
    // The first attempt costs at least two dollars for its input, and a turn ten.
    body["stop_server_tools_when"] = json!([{"type": "max_cost", "max_cost_in_dollars": 11}]);
    b.reply(calls(false, "", &[call("c", "datetime", "{}")]));
    b.reply(answer(false, "done"));
    let response = Client::new(&host).post("/responses", &body).await;
    assert_eq!(response.status, 200, "{}", response.text);
    let turns = b.asked();
    assert_eq!(turns.len(), 2);
    assert_eq!(turns[1].body["tool_choice"], "none", "{}", turns[1].body);
    assert!(dollars(&only_row(&mut host)) > 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_results_of_tools_are_part_of_the_input_of_a_client_that_leaves() {
    let upstream = Upstream::start().await;
    let plugins = crate::kit::guests::folder(&["tool-rogue"]);
    let endpoint = "{ provider = \"a\", model = \"m\", input = 1000000, output = 1000000 }";
    let config = "[plugins.tool-rogue]\nimports = [\"request\"]\n".to_owned()
        + &provider("a", "openai-chat", &upstream.base)
        + &format!("[[models]]\nid = \"{MODEL}\"\nendpoints = [{endpoint}]\n");
    let mut host = Setup::new().config(&config).plugins(plugins.path()).start();
    let echoed = json!({"text": "x".repeat(4_000)}).to_string();
    upstream.reply(calls(true, "", &[call("c", "echo", &echoed)]));
    let (sender, reply) = Reply::fed();
    upstream.reply(reply);
    sender.send(sse_event(&word("word"))).await.unwrap();
    let body =
        json!({"model": MODEL, "input": "x", "tools": [{"type": "service:rogue"}], "max_output_tokens": 10});
    let mut events = Client::new(&host).open(&body).await;
    events.until("response.output_text.delta").await;
    drop(events);
    noticed(&host, true).await;
    let row = only_row(&mut host);
    // The first turn has 7 tokens of input. The second has the call and its result.
    assert!((2_000..3_000).contains(&row.input_tokens), "{row:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_about_a_file_that_stands_elsewhere_is_read_on_for_its_usage() {
    let upstream = Upstream::start().await;
    let mut host = host("openai-responses", &[(&upstream, "")], "");
    let (sender, reply) = Reply::fed();
    upstream.reply(reply);
    let part = json!({"type": "input_file", "file_url": "https://example.com/a.pdf"});
    let body = json!({"model": MODEL, "input": [{"role": "user", "content": [part]}], "stream": true});
    give_up(&Client::new(&host), &upstream, &body).await;
    noticed(&host, false).await;
    let usage = json!({"input_tokens": 50_000, "output_tokens": 3, "total_tokens": 50_003});
    let response = json!({"id": "resp_up", "object": "response", "status": "completed",
        "output": [script::message("fine")], "usage": usage});
    let event = json!({"type": "response.completed", "sequence_number": 0, "response": response});
    sender.send(format!("event: response.completed\n{}", sse_event(&event))).await.ok();
    drop(sender);
    let row = only_row(&mut host);
    assert_eq!(
        (row.outcome, row.input_tokens, row.estimated),
        (UsageOutcome::Cancelled, 50_000, false),
        "{row:?}"
    );
}

#[tokio::test]
async fn the_next_endpoint_is_asked_when_the_rest_of_the_credit_covers_it() {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    // At the first endpoint a turn may cost far more than there is, at the second one twelve dollars.
    let mut host = host("openai-chat", &[(&a, ", first_event_ms = 300, image = 1000.0"), (&b, "")], "");
    host.command(&["credits", "add", "default", "100"]);
    a.reply(Reply::Hang);
    b.reply(script::chat("fine"));
    let client = Client::new(&host);
    let answer = client.post("/responses", &request()).await;
    assert_eq!(answer.output_text(), "fine", "{}", answer.text);
    assert_eq!(dollars(&only_row(&mut host)), 12);
}

#[tokio::test]
async fn calls_of_a_providers_tools_are_charged_when_the_answer_fails() {
    let upstream = Upstream::start().await;
    let members =
        ", supports = [\"tools\"], hosted_tools = [\"web_search\"], hosted_tool_prices = { web_search = 3 }";
    let mut host = host("openai-responses", &[(&upstream, members)], "");
    let search = json!({"type": "web_search_call", "id": "ws_1", "status": "completed",
        "action": {"type": "search", "query": "x"}});
    let error = json!({"code": "server_error", "message": "it broke"});
    let failed = json!({"id": "resp_up", "object": "response", "status": "failed", "output": [search], "error": error});
    upstream.reply(Reply::json(200, failed));
    let mut body = request();
    body["tools"] = json!([{"type": "web_search"}]);
    let answer = Client::new(&host).post("/responses", &body).await;
    assert_eq!(answer.status, 502, "{}", answer.text);
    assert_eq!(dollars(&only_row(&mut host)), 3);
}

#[tokio::test]
async fn an_answer_that_ends_because_the_context_is_full_is_charged() {
    let upstream = Upstream::start().await;
    let mut host = host("openai-chat", &[(&upstream, "")], "");
    let full = json!({"error": {"message": "the context is full", "code": "context_length_exceeded", "type": "invalid_request_error"}});
    upstream.reply(Reply::sse(&[opening(), word("sixteen letters."), full]));
    let events = Client::new(&host).stream(&request()).await;
    let response = last_response(&events);
    assert_eq!(response["status"], "incomplete", "{response}");
    assert_eq!(response["usage"]["cost"], json!(6), "{response}");
    let row = only_row(&mut host);
    assert_eq!((row.outcome, row.estimated), (UsageOutcome::Incomplete, true), "{row:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn embeddings_are_read_on_for_their_usage_where_responses_are() {
    let upstream = Upstream::start().await;
    let mut host = host("openai-chat", &[(&upstream, ", supports = [\"reasoning\"]")], "");
    let (sender, reply) = Reply::fed_as("application/json");
    upstream.reply(reply);
    let body = json!({"model": EMBEDDINGS, "input": "x"});
    let client = Client::new(&host);
    tokio::select! {
        answer = client.post("/embeddings", &body) => panic!("{}", answer.text),
        _ = upstream.until_asked(1) => {}
    }
    let left = "cofferdam_requests_total{route=\"embeddings\",status=\"499\"}";
    crate::kit::admin::Admin::new(&host).until_metric(left, 1).await;
    let vectors = json!({"data": [{"index": 0, "embedding": [1]}], "usage": {"prompt_tokens": 50_000, "total_tokens": 50_000}});
    sender.send(vectors.to_string()).await.ok();
    drop(sender);
    let row = only_row(&mut host);
    assert_eq!(
        (row.outcome, row.input_tokens, row.estimated),
        (UsageOutcome::Cancelled, 50_000, false),
        "{row:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_fails_over_a_file_costs_a_client_that_has_left_no_file() {
    let upstream = Upstream::start().await;
    let mut host = host("openai-responses", &[(&upstream, "")], "");
    let (sender, reply) = Reply::fed();
    upstream.reply(reply);
    let part = json!({"type": "input_file", "file_url": "https://example.com/a.pdf"});
    let body = json!({"model": MODEL, "input": [{"role": "user", "content": [part]}], "stream": true});
    give_up(&Client::new(&host), &upstream, &body).await;
    noticed(&host, false).await;
    let error = json!({"code": "invalid_url", "message": "the file cannot be fetched"});
    let response =
        json!({"id": "resp_up", "object": "response", "status": "failed", "output": [], "error": error});
    let event = json!({"type": "response.failed", "sequence_number": 0, "response": response});
    sender.send(format!("event: response.failed\n{}", sse_event(&event))).await.ok();
    drop(sender);
    let row = only_row(&mut host);
    assert!(row.input_tokens < 100, "{row:?}");
}
