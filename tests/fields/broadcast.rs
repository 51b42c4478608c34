//! Request export: which records of finished requests destinations receive.

use crate::kit::client::{Client, http};
use crate::kit::config::{MODEL, model, provider};
use crate::kit::deadline::until;
use crate::kit::host::{Host, Setup, program};
use crate::kit::script;
use crate::kit::upstream::{Asked, Closed, Reply, Upstream};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value;
use prost::Message as _;
use serde_json::{Value, json};
use std::io::Write;
use std::process::Stdio;

const SECRET: &str = "sk-canary-broadcast-77aa";
const CONTENT: &str = "canary-of-the-conversation";
const EMBED: &str = "test/embed";

fn taken() -> Reply {
    Reply::json(200, json!({}))
}

/// The configuration of a webhook or collector at this address.
fn destination(name: &str, kind: &str, url: &str) -> String {
    format!("[[broadcast]]\nname = \"{name}\"\nkind = \"{kind}\"\nurl = \"{url}\"\n")
}

/// A chat provider with a key, for responses and embeddings.
fn served(upstream: &Upstream) -> String {
    provider("one", "openai-chat", &upstream.base)
        + &model(MODEL, "responses", &["one"])
        + &model(EMBED, "embeddings", &["one"])
}

fn traced() -> Value {
    json!({
        "model": MODEL, "input": CONTENT, "session_id": "session-1", "user": "user-1",
        "trace": {"trace_id": "0af7651916cd43dd8448eb211c80319c", "parent_span_id": "b7ad6b7169203331",
                  "span_name": "answer", "team": "blue", "try": 2},
    })
}

/// The record that a destination received, without values that differ from run to run.
fn told(asked: &Asked) -> Value {
    let mut told = asked.body.clone();
    let times = ["started_at_ms", "ended_at_ms"].map(|name| told[name].take().as_u64().unwrap());
    assert!(times[0] <= times[1], "{times:?}");
    for name in ["id", "workspace_id", "key_id"] {
        assert!(told[name].take().is_string(), "{name}");
    }
    told
}

fn attribute<'a>(span: &'a Value, key: &str) -> &'a Value {
    let attributes = span["attributes"].as_array().unwrap();
    let found = attributes.iter().find(|attribute| attribute["key"] == key);
    found.map_or(&Value::Null, |attribute| &attribute["value"])
}

async fn counts(host: &Host, name: &str) -> [u64; 3] {
    let page = http().build().unwrap().get(format!("{}/metrics", host.admin)).send().await.unwrap();
    let page = page.text().await.unwrap();
    ["sent", "failed", "dropped"].map(|outcome| {
        let sample =
            format!("cofferdam_broadcast_records_total{{destination=\"{name}\",outcome=\"{outcome}\"}} ");
        let line = page.lines().find_map(|line| line.strip_prefix(&sample));
        line.unwrap_or_else(|| panic!("{sample} in {page}")).parse().unwrap()
    })
}

#[tokio::test]
async fn a_webhook_receives_a_record_of_each_request_however_it_ends() {
    let (upstream, hook) = (Upstream::start().await, Upstream::start().await);
    let url = hook.base.replace("/v1", "/hooks/requests");
    let host = Setup::new().config(&(served(&upstream) + &destination("hook", "webhook", &url))).start();
    let client = Client::new(&host);
    (0..4).for_each(|_| hook.reply(taken()));

    upstream.reply(script::chat("Hi"));
    let answer = client.post("/responses", &traced()).await;
    let asked = hook.until_asked(1).await;
    assert_eq!((asked[0].method.as_str(), asked[0].path.as_str()), ("POST", "/hooks/requests"));
    assert_eq!(asked[0].headers["content-type"], "application/json");
    assert_eq!(asked[0].body["id"], answer.body["id"]);
    let expected = json!({
        "type": "request.finished", "id": null, "kind": "responses", "outcome": "completed",
        "error_type": null, "started_at_ms": null, "ended_at_ms": null, "streamed": false,
        "requested_model": MODEL, "model": MODEL, "provider": "one",
        "usage": {"input_tokens": 7, "cached_tokens": 0, "output_tokens": 3, "reasoning_tokens": 0},
        "cost": 0, "byok_cost": 0, "attempts": 1, "workspace_id": null, "key_id": null, "intern_id": null,
        "session_id": "session-1", "user": "user-1", "trace": traced()["trace"],
    });
    assert_eq!(told(&asked[0]), expected);

    upstream.reply(Reply::cut(&[script::opening(), script::word("half")]));
    client.stream(&traced()).await;
    upstream.reply(script::refusal(500, "broken"));
    client
        .post_with("/responses", &json!({"model": MODEL, "input": CONTENT}), &[("x-session-id", "header")])
        .await;
    let vector =
        json!({"data": [{"index": 0, "embedding": [1.0]}], "usage": {"prompt_tokens": 5, "total_tokens": 5}});
    upstream.reply(Reply::json(200, vector));
    let embedding =
        json!({"model": EMBED, "input": CONTENT, "trace": {"k": "v"}, "session_id": "s", "user": "u"});
    assert_eq!(client.post("/embeddings", &embedding).await.status, 200);
    let asked = hook.until_asked(4).await;
    let found = |field: &str, value: &str| {
        let told = asked.iter().skip(1).map(|asked| &asked.body).find(|told| told[field] == value);
        told.unwrap_or_else(|| panic!("{field} {value} in {asked:?}"))
    };
    let cut = found("session_id", "session-1");
    assert_eq!((&cut["outcome"], &cut["error_type"]), (&json!("failed"), &json!("provider_unavailable")));
    assert_eq!(cut["streamed"], true);
    let refused = found("session_id", "header");
    assert_eq!((&refused["outcome"], &refused["trace"]), (&json!("failed"), &Value::Null));
    let embedded = found("kind", "embeddings");
    assert_eq!((&embedded["trace"], &embedded["usage"]["input_tokens"]), (&json!({"k": "v"}), &json!(5)));
    let sent: Vec<String> = upstream.asked().iter().map(|asked| asked.body.to_string()).collect();
    assert!(sent.iter().all(|body| !body.contains("trace") && !body.contains("session")), "{sent:?}");
    assert!(asked.iter().all(|asked| !asked.body.to_string().contains(CONTENT)), "{asked:?}");
}

#[tokio::test]
async fn a_collector_gets_spans() {
    let (upstream, collector) = (Upstream::start().await, Upstream::start().await);
    let base = collector.base.replace("/v1", "/otel");
    let more = "headers = { x-scope = \"team-1\" }\n";
    let config = served(&upstream) + &destination("otel", "otlp", &base) + more;
    let host = Setup::new().config(&config).start();
    collector.reply(taken());
    upstream.reply(script::chat("Hi"));
    let answer = Client::new(&host).post("/responses", &traced()).await;
    let asked = &collector.until_asked(1).await[0];
    assert_eq!((asked.method.as_str(), asked.path.as_str()), ("POST", "/otel/v1/traces"));
    assert_eq!(asked.headers["content-type"], "application/json");
    assert_eq!(asked.headers["x-scope"], "team-1");
    let resource = &asked.body["resourceSpans"][0];
    assert_eq!(resource["resource"]["attributes"][0]["value"]["stringValue"], "cofferdam");
    let span = &resource["scopeSpans"][0]["spans"][0];
    assert_eq!(span["traceId"], "0af7651916cd43dd8448eb211c80319c");
    assert_eq!((&span["parentSpanId"], &span["name"]), (&json!("b7ad6b7169203331"), &json!("answer")));
    assert!(span["startTimeUnixNano"].is_string() && span["endTimeUnixNano"].is_string());
    assert_eq!(attribute(span, "gen_ai.operation.name")["stringValue"], "chat");
    assert_eq!(attribute(span, "gen_ai.provider.name")["stringValue"], "one");
    assert_eq!(attribute(span, "gen_ai.response.id")["stringValue"], answer.body["id"]);
    assert_eq!(attribute(span, "gen_ai.usage.input_tokens")["intValue"], "7");
    assert_eq!(attribute(span, "gen_ai.conversation.id")["stringValue"], "session-1");
    assert_eq!(attribute(span, "trace.team")["stringValue"], "blue");
    assert_eq!(attribute(span, "trace.try")["intValue"], "2");
    assert!(!asked.body.to_string().contains(CONTENT));
}

#[tokio::test]
async fn a_collector_gets_spans_in_the_binary_encoding() {
    let (upstream, collector) = (Upstream::start().await, Upstream::start().await);
    let config =
        served(&upstream) + &destination("otel", "otlp", &collector.base) + "format = \"protobuf\"\n";
    let host = Setup::new().config(&config).start();
    collector.reply(taken());
    upstream.reply(script::chat("Hi"));
    let answer = Client::new(&host).post("/responses", &traced()).await;
    let asked = &collector.until_asked(1).await[0];
    assert_eq!(asked.headers["content-type"], "application/x-protobuf");
    let request = ExportTraceServiceRequest::decode(asked.bytes.clone()).unwrap();
    let span = &request.resource_spans[0].scope_spans[0].spans[0];
    assert_eq!(span.trace_id, 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c_u128.to_be_bytes());
    let id = span.attributes.iter().find(|attribute| attribute.key == "gen_ai.response.id").unwrap();
    let expected = any_value::Value::StringValue(answer.body["id"].as_str().unwrap().to_owned());
    assert_eq!(id.value.as_ref().unwrap().value, Some(expected));
    assert!(memchr::memmem::find(&asked.bytes, CONTENT.as_bytes()).is_none());
}

#[tokio::test]
async fn the_key_of_a_destination_is_sent_only_to_it() {
    let (upstream, hook) = (Upstream::start().await, Upstream::start().await);
    let url = hook.base.replace("127.0.0.1", "hooks.test").replace("/v1", "/in");
    let other = hook.base.replace("/v1", "/env");
    let egress =
        "[egress]\nallow_plaintext_loopback = true\nresolve = { \"hooks.test\" = [\"127.0.0.1\"] }\n";
    let config = egress.to_owned()
        + &served(&upstream)
        + &destination("vault", "webhook", &url)
        + "key = \"operator:hook_key\"\nkey_header = \"x-hook-key\"\nkey_format = \"{}\"\n"
        + &destination("env", "webhook", &other)
        + "key = \"env:TEST_HOOK_KEY\"\n";
    let mut host = Setup::new().environment("TEST_HOOK_KEY", SECRET).config(&config).start();
    let mut put = program();
    put.arg("--data").arg(host.data()).args([
        "secret",
        "put",
        "hook_key",
        "--host",
        "hooks.test",
        "--operator",
    ]);
    let mut put = put.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    put.stdin.take().unwrap().write_all(SECRET.as_bytes()).unwrap();
    assert!(put.wait().unwrap().success());
    (0..2).for_each(|_| hook.reply(taken()));
    upstream.reply(script::chat("Hi"));
    Client::new(&host).post("/responses", &traced()).await;
    let asked = hook.until_asked(2).await;
    let at = |path: &str| asked.iter().find(|asked| asked.path == path).unwrap();
    assert_eq!(at("/in").headers["x-hook-key"], SECRET);
    assert_eq!(at("/env").headers["authorization"], format!("Bearer {SECRET}"));
    assert!(asked.iter().all(|asked| !asked.body.to_string().contains("canary")));
    let (host, log) = tokio::task::spawn_blocking(move || {
        let log = host.end();
        (host, log)
    })
    .await
    .unwrap();
    assert!(!log.contains("canary"), "{log}");
    let audit = host.command_output(&["vault", "audit"]);
    let audit = String::from_utf8_lossy(&audit.stdout).into_owned();
    assert!(audit.contains("broadcast vault") && !audit.contains("canary"), "{audit}");
}

#[tokio::test]
async fn a_failing_destination_is_retried_and_delays_no_request() {
    let (upstream, hook, silent) =
        (Upstream::start().await, Upstream::start().await, Upstream::start().await);
    let closed = Closed::new();
    let config = served(&upstream)
        + &destination("hook", "webhook", &hook.base)
        + &destination("silent", "webhook", &silent.base)
        + &destination("closed", "otlp", &closed.base);
    let host = Setup::new().config(&config).start();
    silent.reply(Reply::Hang);
    hook.reply(script::refusal(503, "busy"));
    hook.reply(taken());
    hook.reply(script::refusal(400, "never"));
    upstream.reply(script::chat("Hi"));
    assert_eq!(Client::new(&host).post("/responses", &traced()).await.status, 200);
    let asked = hook.until_asked(2).await;
    assert_eq!(asked[0].body, asked[1].body, "the same record again");
    upstream.reply(script::chat("Hi"));
    assert_eq!(Client::new(&host).post("/responses", &traced()).await.status, 200);
    hook.until_asked(3).await;
    upstream.reply(script::chat("Hi"));
    hook.reply(taken());
    assert_eq!(Client::new(&host).post("/responses", &traced()).await.status, 200);
    hook.until_asked(4).await;
    let [sent, failed, dropped] = counts(&host, "hook").await;
    assert!(sent >= 1 && failed == 1 && dropped == 0, "{sent} {failed} {dropped}");
    assert_eq!(counts(&host, "silent").await, [0, 0, 0]);
}

#[tokio::test]
async fn an_answer_that_does_not_end_delays_no_further_record() {
    let (upstream, hook) = (Upstream::start().await, Upstream::start().await);
    let host =
        Setup::new().config(&(served(&upstream) + &destination("hook", "webhook", &hook.base))).start();
    hook.reply(Reply::Comments);
    hook.reply(taken());
    for count in 1..=2 {
        upstream.reply(script::chat("Hi"));
        assert_eq!(Client::new(&host).post("/responses", &traced()).await.status, 200);
        hook.until_asked(count).await;
    }
}

#[tokio::test]
async fn queued_records_are_sent_before_the_host_ends() {
    let (upstream, collector) = (Upstream::start().await, Upstream::start().await);
    let config = served(&upstream) + &destination("otel", "otlp", &collector.base);
    let mut host = Setup::new().config(&config).start();
    (0..3).for_each(|_| collector.reply(taken()));
    let client = Client::new(&host);
    for _ in 0..3 {
        upstream.reply(script::chat("Hi"));
        assert_eq!(client.post("/responses", &traced()).await.status, 200);
    }
    tokio::task::spawn_blocking(move || host.end()).await.unwrap();
    assert_eq!(collector.asked().iter().map(spans).sum::<usize>(), 3);
}

/// The number of spans in a request to a collector.
fn spans(asked: &Asked) -> usize {
    asked.body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().len()
}

#[tokio::test]
async fn records_that_are_too_many_for_one_request_are_sent_in_parts() {
    let (upstream, collector) = (Upstream::start().await, Upstream::start().await);
    let config = served(&upstream) + &destination("otel", "otlp", &collector.base);
    let host = Setup::new().config(&config).start();
    let client = Client::new(&host);
    let (request, mut asked, mut refused_alone) = (traced(), 0, 0);
    // Records that come soon after each other are sent together. On a busy machine one may be sent alone.
    for round in 1..=20_u64 {
        collector.reply(script::refusal(413, "too large"));
        let requests = (0..4).map(|_| {
            upstream.reply(script::chat("Hi"));
            collector.reply(taken());
            client.post("/responses", &request)
        });
        let answers = futures_util::future::join_all(requests).await;
        assert!(answers.iter().all(|answer| answer.status == 200), "{answers:?}");
        until("all records are counted", async || {
            counts(&host, "otel").await[..2].iter().sum::<u64>() == 4 * round
        })
        .await;
        let all = collector.asked();
        let refused = spans(&all[asked]);
        collector.clear();
        asked = all.len();
        refused_alone += u64::from(refused == 1);
        assert_eq!(counts(&host, "otel").await, [4 * round - refused_alone, refused_alone, 0]);
        if refused > 1 {
            return;
        }
    }
    panic!("no records were sent together");
}

#[tokio::test]
async fn spans_that_a_collector_takes_no_room_for_count_as_failed() {
    let (upstream, collector) = (Upstream::start().await, Upstream::start().await);
    let config = served(&upstream) + &destination("otel", "otlp", &collector.base);
    let host = Setup::new().config(&config).start();
    let answers = [json!({"partialSuccess": {"rejectedSpans": "1", "errorMessage": "no room"}}), json!({})];
    for (sent, answer) in answers.into_iter().enumerate() {
        collector.reply(Reply::json(200, answer));
        upstream.reply(script::chat("Hi"));
        assert_eq!(Client::new(&host).post("/responses", &traced()).await.status, 200);
        until("the record is counted", async || counts(&host, "otel").await == [sent as u64, 1, 0]).await;
    }
}

#[tokio::test]
async fn records_of_the_configuration_before_are_sent_before_the_host_ends() {
    let (upstream, collector) = (Upstream::start().await, Upstream::start().await);
    let with = served(&upstream) + &destination("otel", "otlp", &collector.base);
    let mut host = Setup::new().config(&with).start();
    let client = Client::new(&host);
    // The first record holds the second one back until its answer ends.
    let (gate, held) = Reply::fed_as("application/json");
    collector.reply(held);
    collector.reply(taken());
    for _ in 0..2 {
        upstream.reply(script::chat("Hi"));
        assert_eq!(client.post("/responses", &traced()).await.status, 200);
        collector.until_asked(1).await;
    }
    std::fs::write(host.directory().join("cofferdam.toml"), served(&upstream)).unwrap();
    host.signal("HUP");
    host.until_logged("configuration and plugins were read again");
    host.signal("TERM");
    host.until_logged("stopping");
    drop(gate);
    tokio::task::spawn_blocking(move || host.wait()).await.unwrap();
    assert_eq!(collector.asked().iter().map(spans).sum::<usize>(), 2);
}

#[test]
fn an_invalid_destination_is_refused_at_start() {
    let good = destination("a", "webhook", "https://x.test/hook");
    for (toml, message) in [
        (destination("a", "mail", "https://x.test/"), "broadcast[0].kind: expected `webhook` or `otlp`"),
        (
            destination("a", "webhook", "https://x.test/"),
            "broadcast[0].url: expected the whole URL of the webhook, with a path",
        ),
        (destination("a", "otlp", "http://8.8.8.8/"), "broadcast[0].url: http:// is allowed to loopback"),
        (destination("a", "webhook", "https://x.test/a?key=1"), "broadcast[0].url: a query is not allowed"),
        (format!("{good}format = \"protobuf\""), "broadcast[0].format: a webhook takes `json` only"),
        (format!("{good}format = \"xml\""), "broadcast[0].format: expected `json` or `protobuf`"),
        (format!("{good}{good}"), "broadcast[1].name: a destination named `a` exists already"),
        (format!("{good}key = \"sk-1\""), "broadcast[0].key: expected env:NAME or operator:NAME"),
        (format!("{good}key = \"env:TEST_NO_SUCH_KEY\""), "TEST_NO_SUCH_KEY is not set"),
        (format!("{good}key_header = \"host\""), "broadcast[0].key_header: this header cannot carry"),
        (format!("{good}headers = {{ host = \"x\" }}"), "names a header that is not the operator's to set"),
        (format!("{good}headers = {{ authorization = \"x\" }}"), "a credential does not belong in this file"),
    ] {
        let output = Setup::new().config(&toml).fail();
        assert_eq!(output.status.code(), Some(78), "{toml}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(message), "{toml}: {said}");
    }
}
