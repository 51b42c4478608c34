use super::record::{About, ExportRecord};
use super::{Broadcaster, ExportQueue, ExportTally, Message, OtlpFormat, Spans, otlp, webhook};
use bytes::Bytes;
use cofferdam_runtime::wire::ErrorKind;
use cofferdam_store::{KeyId, UsageKind, UsageOutcome, UsageRow, WorkspaceId};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value;
use prost::Message as _;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::mpsc::channel;

const HEX: &str = "00112233445566778899aabbccddeeff";

fn record(trace: Option<Value>, outcome: UsageOutcome, error: Option<ErrorKind>) -> ExportRecord {
    let row = UsageRow {
        request_id: format!("resp_{HEX}"),
        at_ms: 1_700_000_000_000,
        workspace: "3f2a0000-0000-4000-8000-000000000001".parse::<WorkspaceId>().unwrap(),
        key: "abcdefghijkl".parse::<KeyId>().unwrap(),
        kind: UsageKind::Responses,
        model: "meta/llama".to_owned(),
        provider: "ollama".to_owned(),
        input_tokens: 7,
        cached_tokens: 2,
        output_tokens: 3,
        reasoning_tokens: 1,
        cost_pico: 1_500_000,
        byok_pico: 0,
        attempts: 2,
        outcome,
        streamed: true,
        estimated: false,
    };
    let about = About {
        started_ms: 1_700_000_000_000,
        requested: "meta/llama:nitro".to_owned(),
        intern: None,
        session_id: Some("s-1".to_owned()),
        user: Some("u-1".to_owned()),
        trace: trace.map(|trace| Bytes::from(trace.to_string())),
        trace_parent: None,
    };
    ExportRecord { about, ended_ms: 1_700_000_000_250, row, error, timeline: None }
}

#[test]
fn a_full_queue_drops_records_and_counts_them() {
    let (sender, mut messages) = channel(1);
    let tally = Arc::new(ExportTally::default());
    let queue = ExportQueue { sender, tally: Arc::clone(&tally) };
    let broadcaster = Broadcaster { queues: Arc::from([queue]), wants_steps: false };
    for _ in 0..3 {
        broadcaster.send(record(None, UsageOutcome::Completed, None));
    }
    assert_eq!(tally.dropped.load(Ordering::Relaxed), 2);
    assert!(matches!(messages.try_recv(), Ok(Message::Record(_))));
    assert!(messages.try_recv().is_err());
}

fn span(record: ExportRecord) -> Value {
    let body: Value =
        serde_json::from_slice(&otlp::body(&[Arc::new(record)], OtlpFormat::Json, Spans::Request)).unwrap();
    let spans = &body["resourceSpans"][0]["scopeSpans"][0]["spans"];
    assert_eq!(spans.as_array().unwrap().len(), 1);
    spans[0].clone()
}

fn attribute<'a>(span: &'a Value, key: &str) -> Option<&'a Value> {
    let attributes = span["attributes"].as_array().unwrap();
    attributes.iter().find(|attribute| attribute["key"] == key).map(|attribute| &attribute["value"])
}

#[test]
fn a_webhook_gets_counts_ids_and_the_trace() {
    let trace = json!({"trace_id": "t", "mine": {"deep": [1]}});
    let body = webhook::body(&record(Some(trace.clone()), UsageOutcome::Completed, None));
    let expected = json!({
        "type": "request.finished", "id": format!("resp_{HEX}"), "kind": "responses", "outcome": "completed",
        "error_type": null, "started_at_ms": 1_700_000_000_000_u64, "ended_at_ms": 1_700_000_000_250_u64,
        "streamed": true, "requested_model": "meta/llama:nitro", "model": "meta/llama", "provider": "ollama",
        "usage": {"input_tokens": 7, "cached_tokens": 2, "output_tokens": 3, "reasoning_tokens": 1},
        "cost": 0.000_001_5, "byok_cost": 0, "attempts": 2, "workspace_id": "3f2a0000-0000-4000-8000-000000000001", "key_id": "abcdefghijkl",
        "intern_id": null, "session_id": "s-1", "user": "u-1", "trace": trace,
    });
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), expected);
}

#[test]
fn a_span_follows_the_conventions_for_generative_models() {
    let span = span(record(None, UsageOutcome::Completed, None));
    assert_eq!(span["traceId"], HEX);
    assert_eq!(span["name"], "chat meta/llama:nitro");
    assert_eq!((&span["kind"], &span["status"]), (&json!(3), &json!({})));
    assert_eq!(span["startTimeUnixNano"], "1700000000000000000");
    assert_eq!(span["endTimeUnixNano"], "1700000000250000000");
    assert_eq!(span["spanId"].as_str().unwrap().len(), 16);
    assert_eq!(span.get("parentSpanId"), None);
    for (key, value) in [
        ("gen_ai.operation.name", json!({"stringValue": "chat"})),
        ("gen_ai.provider.name", json!({"stringValue": "ollama"})),
        ("gen_ai.request.model", json!({"stringValue": "meta/llama:nitro"})),
        ("gen_ai.response.model", json!({"stringValue": "meta/llama"})),
        ("gen_ai.usage.input_tokens", json!({"intValue": "7"})),
        ("gen_ai.usage.output_tokens", json!({"intValue": "3"})),
        ("gen_ai.usage.cost", json!({"doubleValue": 1.5e-6})),
        ("gen_ai.conversation.id", json!({"stringValue": "s-1"})),
        ("user.id", json!({"stringValue": "u-1"})),
    ] {
        assert_eq!(attribute(&span, key), Some(&value), "{key}");
    }
    assert_eq!(attribute(&span, "error.type"), None);
}

/// Decodes with the types generated by the OpenTelemetry project, independent of the types that
/// wrote the body.
#[test]
fn protobuf_and_json_encode_the_same_span() {
    let trace = json!({
        "trace_id": "0af7651916cd43dd8448eb211c80319c", "parent_span_id": "b7ad6b7169203331",
        "count": -3, "share": 0.5, "flag": true,
    });
    let record = Arc::new(record(Some(trace), UsageOutcome::Failed, Some(ErrorKind::Timeout)));
    let body = otlp::body(&[record], OtlpFormat::Protobuf, Spans::Request);
    let request = ExportTraceServiceRequest::decode(body.as_slice()).unwrap();
    let [resource] = request.resource_spans.as_slice() else { panic!() };
    assert_eq!(resource.resource.as_ref().unwrap().attributes[0].key, "service.name");
    let [scope] = resource.scope_spans.as_slice() else { panic!() };
    assert_eq!(scope.scope.as_ref().unwrap().name, "cofferdam");
    let [span] = scope.spans.as_slice() else { panic!() };
    assert_eq!(span.trace_id, 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c_u128.to_be_bytes());
    assert_eq!(span.parent_span_id, 0xb7ad_6b71_6920_3331_u64.to_be_bytes());
    assert_eq!((span.span_id.len(), span.name.as_str(), span.kind), (8, "chat meta/llama:nitro", 3));
    assert_eq!(span.start_time_unix_nano, 1_700_000_000_000_000_000);
    assert_eq!(span.end_time_unix_nano, 1_700_000_000_250_000_000);
    assert_eq!(span.status.as_ref().unwrap().code, 2);
    let attribute = |key: &str| {
        let found = span.attributes.iter().find(|attribute| attribute.key == key);
        found.unwrap().value.as_ref().unwrap().value.clone().unwrap()
    };
    assert_eq!(attribute("gen_ai.usage.input_tokens"), any_value::Value::IntValue(7));
    assert_eq!(attribute("gen_ai.usage.cost"), any_value::Value::DoubleValue(1.5e-6));
    assert_eq!(attribute("cofferdam.streamed"), any_value::Value::BoolValue(true));
    assert_eq!(attribute("error.type"), any_value::Value::StringValue("timeout".to_owned()));
    assert_eq!(attribute("trace.count"), any_value::Value::IntValue(-3));
    assert_eq!(attribute("trace.share"), any_value::Value::DoubleValue(0.5));
}

#[test]
fn known_trace_keys_set_span_fields_and_others_become_attributes() {
    let trace = json!({
        "trace_id": "0AF7651916CD43DD-8448EB211C80319C", "parent_span_id": "B7AD6B7169203331",
        "span_name": "step", "generation_name": "gen", "trace_name": "run",
        "mine": {"deep": [1]}, "count": 3, "share": 0.5, "flag": true, "none": null,
    });
    let span = span(record(Some(trace), UsageOutcome::Failed, Some(ErrorKind::Timeout)));
    assert_eq!(span["traceId"], "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(span["parentSpanId"], "b7ad6b7169203331");
    assert_eq!((&span["name"], &span["status"]), (&json!("step"), &json!({"code": 2})));
    for (key, value) in [
        ("error.type", json!({"stringValue": "timeout"})),
        ("trace.trace_name", json!({"stringValue": "run"})),
        ("trace.mine", json!({"stringValue": "{\"deep\":[1]}"})),
        ("trace.count", json!({"intValue": "3"})),
        ("trace.share", json!({"doubleValue": 0.5})),
        ("trace.flag", json!({"boolValue": true})),
        ("trace.none", json!({"stringValue": "null"})),
    ] {
        assert_eq!(attribute(&span, key), Some(&value), "{key}");
    }
}

#[test]
fn equal_trace_names_give_equal_ids() {
    let trace_id = |given: &str| {
        let trace = json!({"trace_id": given, "parent_span_id": "not hex", "generation_name": "gen"});
        let span = span(record(Some(trace), UsageOutcome::Failed, None));
        assert_eq!((span.get("parentSpanId"), &span["name"]), (None, &json!("gen")));
        assert_eq!(attribute(&span, "error.type"), Some(&json!({"stringValue": "_OTHER"})));
        span["traceId"].as_str().unwrap().to_owned()
    };
    assert_eq!(trace_id("my run"), trace_id("my run"));
    assert_ne!(trace_id("my run"), trace_id("my other run"));
    for given in ["my run", &"0".repeat(32), "é"] {
        let id = trace_id(given);
        assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    }
    assert_eq!(trace_id(""), HEX);
}
