//! `[[broadcast]] spans = "steps"`: what a collector sees of each step of a request. The recorder keeps nothing here, so
//! the steps are collected for the collector alone.

use crate::kit::client::Client;
use crate::kit::config::{MODEL, STEADY, model, provider};
use crate::kit::host::Setup;
use crate::kit::script;
use crate::kit::upstream::{Asked, Reply, Upstream};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message as _;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const CONTENT: &str = "canary-of-the-conversation";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// Providers `one` and `two`, asked in this order, and a collector that gets steps.
fn config(one: &Upstream, two: &Upstream, collector: &Upstream, more: &str) -> String {
    let mut config = format!("[server]\nrecorder = 0\n{STEADY}");
    config += &provider("one", "openai-chat", &one.base);
    config += &provider("two", "openai-chat", &two.base);
    config += &model(MODEL, "responses", &["one", "two"]);
    config
        + &format!(
            "[[broadcast]]\nname = \"otel\"\nkind = \"otlp\"\nspans = \"steps\"\nurl = \"{}\"\n{more}",
            collector.base
        )
}

fn request(more: Value) -> Value {
    let mut request = json!({"model": MODEL, "input": CONTENT, "provider": {"sort": "price"}});
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    request
}

fn spans(asked: &Asked) -> Vec<Value> {
    asked.body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone()
}

/// The attributes of a span by their names.
fn attributes(span: &Value) -> BTreeMap<&str, &Value> {
    let attributes = span["attributes"].as_array().unwrap().iter();
    attributes
        .map(|attribute| {
            let value = attribute["value"].as_object().unwrap().values().next().unwrap();
            (attribute["key"].as_str().unwrap(), value)
        })
        .collect()
}

fn named<'a>(spans: &'a [Value], name: &str) -> &'a Value {
    let names: Vec<&Value> = spans.iter().map(|span| &span["name"]).collect();
    spans.iter().find(|span| span["name"] == name).unwrap_or_else(|| panic!("no {name} in {names:?}"))
}

/// Checks the steps below the `first` attempt and beside it.
fn assert_parts(spans: &[Value], first: &Value) {
    let prepare = named(spans, "provider-openai-chat prepare");
    assert_eq!(
        (&prepare["kind"], &prepare["parentSpanId"]),
        (&json!(SpanKind::Internal as i32), &first["spanId"])
    );
    assert!(attributes(prepare).contains_key("cofferdam.busy_us"));
    let exchange = attributes(named(spans, "POST 127.0.0.1"));
    assert_eq!(
        (exchange["http.request.method"], exchange["cofferdam.step"]),
        (&json!("POST"), &json!("exchange"))
    );
    let tool = named(spans, "execute_tool datetime");
    assert_eq!((&tool["kind"], &tool["status"]), (&json!(SpanKind::Internal as i32), &json!({})));
    assert_eq!(attributes(tool)["gen_ai.tool.name"], "datetime");
    for name in ["parse", "router route", "provider-openai-chat decode", "body", "usage row"] {
        named(spans, name);
    }
}

/// Checks that each span lies within the span of the request.
fn assert_within(root: &Value, spans: &[Value]) {
    let time = |span: &Value, member: &str| span[member].as_str().unwrap().parse::<u64>().unwrap();
    for span in spans {
        let (start, end) = (time(span, "startTimeUnixNano"), time(span, "endTimeUnixNano"));
        assert!(start <= end, "{span}");
        assert!(time(root, "startTimeUnixNano") <= start && end <= time(root, "endTimeUnixNano"), "{span}");
    }
}

#[tokio::test]
async fn a_collector_gets_a_span_for_each_step_of_a_request() {
    let (one, two, collector) = (Upstream::start().await, Upstream::start().await, Upstream::start().await);
    let host = Setup::new().config(&config(&one, &two, &collector, "")).start();
    collector.reply(Reply::json(200, json!({})));
    // Two turns: the first endpoint is limited in each, the second one calls a tool and then answers.
    (0..2).for_each(|_| one.reply(script::limited(429, "2")));
    let call = json!({"id": "c1", "type": "function", "function": {"name": "datetime", "arguments": "{}"}});
    two.reply(script::chat_message(
        &json!({"role": "assistant", "content": null, "tool_calls": [call]}),
        "tool_calls",
    ));
    two.reply(script::chat("Hi"));
    let body = request(json!({"tools": [{"type": "service:datetime"}]}));
    let headers = [("traceparent", format!("00-{TRACE}-{PARENT}-01"))];
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let answer = Client::new(&host).post_with("/responses", &body, &headers).await;
    assert_eq!(answer.output_text(), "Hi", "{}", answer.text);
    let asked = &collector.until_asked(1).await[0];
    assert!(!asked.body.to_string().contains(CONTENT));
    let scope = &asked.body["resourceSpans"][0]["scopeSpans"][0];
    assert_eq!(scope["schemaUrl"], "https://opentelemetry.io/schemas/1.41.0");
    let spans = spans(asked);
    let kind = |kind: SpanKind| json!(kind as i32);

    let root = &spans[0];
    assert_eq!((&root["traceId"], &root["parentSpanId"]), (&json!(TRACE), &json!(PARENT)));
    assert_eq!(root["kind"], kind(SpanKind::Server));
    assert_eq!(attributes(root)["gen_ai.response.id"], &answer.body["id"]);
    assert!(spans.iter().all(|span| span["traceId"] == TRACE));

    let attempts: Vec<&Value> = spans.iter().filter(|span| span["name"] == format!("chat {MODEL}")).collect();
    let shown: Vec<Value> = attempts[1..]
        .iter()
        .map(|span| {
            assert_eq!((&span["kind"], &span["parentSpanId"]), (&kind(SpanKind::Client), &root["spanId"]));
            let of = attributes(span);
            let attribute = |key| of.get(key).copied().cloned().unwrap_or_default();
            json!([
                attribute("gen_ai.provider.name"),
                attribute("cofferdam.turn"),
                attribute("http.response.status_code"),
                attribute("error.type"),
                attribute("gen_ai.usage.input_tokens"),
            ])
        })
        .collect();
    let limited = |turn| json!(["one", turn, "429", "rate_limit_exceeded", null]);
    let answered = |turn| json!(["two", turn, "200", null, "7"]);
    // In the second turn the endpoint that answered the first is asked at once.
    assert_eq!(shown, [limited("1"), answered("1"), answered("2")]);
    let failed = attributes(attempts[1]);
    assert_eq!(
        (failed["server.address"], failed["cofferdam.cause"]),
        (&json!("127.0.0.1"), &json!("limited"))
    );
    assert_eq!(
        (failed["cofferdam.retry_after_ms"], &attempts[1]["status"]["code"]),
        (&json!("2000"), &json!(2))
    );

    assert_parts(&spans, attempts[1]);
    assert_within(root, &spans);
}

#[tokio::test]
async fn a_stream_that_is_hooked_has_its_first_content_and_the_hook_among_its_steps() {
    let (one, two, collector) = (Upstream::start().await, Upstream::start().await, Upstream::start().await);
    let host = Setup::new().config(&config(&one, &two, &collector, "format = \"protobuf\"\n")).start();
    collector.reply(Reply::json(200, json!({})));
    one.reply(script::chat_stream(&["a", "b"]));
    // Not valid, so the trace is the request's own.
    let headers = [("traceparent", "00-0af7-01")];
    let body = request(json!({"stream": true, "plugins": [{"id": "context-compression"}]}));
    let answer = Client::new(&host).post_with("/responses", &body, &headers).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let asked = &collector.until_asked(1).await[0];
    let received = ExportTraceServiceRequest::decode(asked.bytes.clone()).unwrap();
    let spans = &received.resource_spans[0].scope_spans[0].spans;
    let number = |span: &str, key: &str| {
        let span = spans.iter().find(|it| it.name == span && it.kind == SpanKind::Client as i32).unwrap();
        span.attributes.iter().any(|attribute| attribute.key == key)
    };
    assert!(number(&format!("chat {MODEL}"), "gen_ai.response.time_to_first_chunk"));
    assert!(spans[0].parent_span_id.is_empty());
    let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    assert!(names.iter().any(|name| name.ends_with("on-request")), "{names:?}");
}
