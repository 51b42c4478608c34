//! Records as OpenTelemetry spans, in the JSON encoding of OTLP/HTTP: ids in hexadecimal, 64-bit numbers as
//! text. Attributes follow the semantic conventions for generative AI (`gen_ai.*`); what those have no name
//! for is `cofferdam.*`, and every key of the client's trace is `trace.KEY`.

use super::record::Record;
use cofferdam_runtime::wire::ErrorKind;
use cofferdam_store::{UsageKind, UsageOutcome};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::sync::Arc;

/// The span is a call to somebody else's model.
const KIND_CLIENT: u32 = 3;
/// The span's request failed.
const STATUS_ERROR: u32 = 2;

/// The body of `POST /v1/traces` with one span for each record.
pub(super) fn body(records: &[Arc<Record>]) -> Vec<u8> {
    let spans: Vec<Value> = records.iter().map(|record| span(record)).collect();
    let resource = [text("service.name", "cofferdam"), text("service.version", env!("CARGO_PKG_VERSION"))];
    let body = json!({
        "resourceSpans": [{
            "resource": { "attributes": resource },
            "scopeSpans": [{ "scope": { "name": "cofferdam" }, "spans": spans }],
        }],
    });
    body.to_string().into_bytes()
}

fn span(record: &Record) -> Value {
    let trace = trace_of(record);
    let known = |name: &str| trace.get(name).and_then(Value::as_str).filter(|value| !value.is_empty());
    let hex = record.row.request_id.rsplit('_').next().unwrap_or_default();
    let operation = operation(record);
    let failed = record.row.outcome == UsageOutcome::Failed;
    let status = if failed { json!({ "code": STATUS_ERROR }) } else { json!({}) };
    let named = known("span_name").or_else(|| known("generation_name"));
    let mut span = json!({
        "traceId": known("trace_id").map_or_else(|| id(hex, 32), |given| id(given, 32)),
        "spanId": id(hex, 16),
        "name": named.map_or_else(|| format!("{operation} {}", record.about.requested), str::to_owned),
        "kind": KIND_CLIENT,
        "startTimeUnixNano": nanoseconds(record.about.started_ms),
        "endTimeUnixNano": nanoseconds(record.ended_ms),
        "attributes": attributes(record, operation, &trace),
        "status": status,
    });
    let parent = known("parent_span_id").filter(|parent| is_id(parent, 16));
    if let (Some(parent), Some(members)) = (parent, span.as_object_mut()) {
        members.insert("parentSpanId".to_owned(), Value::from(parent.to_ascii_lowercase()));
    }
    span
}

fn trace_of(record: &Record) -> Map<String, Value> {
    let trace = record.about.trace.as_deref();
    trace.and_then(|trace| serde_json::from_slice(trace).ok()).unwrap_or_default()
}

fn operation(record: &Record) -> &'static str {
    match record.row.kind {
        UsageKind::Responses => "chat",
        UsageKind::Embeddings => "embeddings",
    }
}

fn attributes(record: &Record, operation: &str, trace: &Map<String, Value>) -> Vec<Value> {
    let Record { about, row, .. } = record;
    let mut attributes = vec![
        text("gen_ai.operation.name", operation),
        text("gen_ai.provider.name", &row.provider),
        text("gen_ai.request.model", &about.requested),
        text("gen_ai.response.model", &row.model),
        text("gen_ai.response.id", &row.request_id),
        number("gen_ai.usage.input_tokens", row.input_tokens),
        number("gen_ai.usage.output_tokens", row.output_tokens),
        number("gen_ai.usage.cache_read.input_tokens", row.cached_tokens),
        number("gen_ai.usage.reasoning.output_tokens", row.reasoning_tokens),
        attribute("gen_ai.usage.cost", json!({ "doubleValue": row.cost_pico as f64 / 1e12 })),
        text("cofferdam.outcome", record.outcome()),
        attribute("cofferdam.streamed", json!({ "boolValue": row.streamed })),
        text("cofferdam.workspace.id", &row.workspace.to_string()),
        text("cofferdam.key.id", &row.key.to_string()),
    ];
    if let Some(intern) = about.intern {
        attributes.push(text("cofferdam.intern.id", &intern.to_string()));
    }
    if let Some(session) = &about.session_id {
        attributes.push(text("gen_ai.conversation.id", session));
    }
    if let Some(user) = &about.user {
        attributes.push(text("user.id", user));
    }
    if row.outcome == UsageOutcome::Failed {
        // The conventions' word for an error that nobody can name.
        attributes.push(text("error.type", record.error.map_or("_OTHER", ErrorKind::as_str)));
    }
    attributes.extend(trace.iter().map(|(key, value)| attribute(&format!("trace.{key}"), any(value))));
    attributes
}

/// The value of an attribute. Lists and objects become JSON text: not every collector takes them nested.
fn any(value: &Value) -> Value {
    match value {
        Value::String(text) => json!({ "stringValue": text }),
        Value::Bool(flag) => json!({ "boolValue": flag }),
        Value::Number(number) => match number.as_i64() {
            Some(number) => json!({ "intValue": number.to_string() }),
            None => json!({ "doubleValue": number }),
        },
        value => json!({ "stringValue": value.to_string() }),
    }
}

fn attribute(key: &str, value: Value) -> Value {
    json!({ "key": key, "value": value })
}

fn text(key: &str, value: &str) -> Value {
    attribute(key, json!({ "stringValue": value }))
}

fn number(key: &str, value: u64) -> Value {
    attribute(key, json!({ "intValue": value.to_string() }))
}

fn nanoseconds(ms: u64) -> String {
    (u128::from(ms) * 1_000_000).to_string()
}

fn is_id(id: &str, digits: usize) -> bool {
    id.len() == digits
        && id.bytes().all(|byte| byte.is_ascii_hexdigit())
        && id.bytes().any(|byte| byte != b'0')
}

/// An id of so many hexadecimal digits: the given one, hyphens aside, where it is one, else one made from it,
/// so that equal names make equal ids.
fn id(given: &str, digits: usize) -> String {
    let plain: String = given.chars().filter(|character| *character != '-').collect();
    if is_id(&plain, digits) {
        return plain.to_ascii_lowercase();
    }
    let mut id = String::with_capacity(64);
    for byte in Sha256::digest(given.as_bytes()) {
        // Writing into a string cannot fail.
        _ = write!(id, "{byte:02x}");
    }
    id.truncate(digits);
    id
}
