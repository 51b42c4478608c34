//! Records as OpenTelemetry spans, one export request for a batch. Attributes follow the semantic
//! conventions for generative AI (`gen_ai.*`). What those have no name for is `cofferdam.*`, and
//! each key of the client's trace becomes `trace.KEY`.

mod message;

use super::OtlpFormat;
use super::record::ExportRecord;
use cofferdam_runtime::wire::ErrorKind;
use cofferdam_store::{UsageKind, UsageOutcome};
use message::{
    AnyValue, ExportRequest, KeyValue, Resource, ResourceSpans, Scalar, Scope, ScopeSpans, Span, SpanKind,
    Status, StatusCode,
};
use prost::Message as _;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::sync::Arc;

const TRACE_ID_BYTES: usize = 16;
const SPAN_ID_BYTES: usize = 8;

/// The body of `POST /v1/traces`, with one span for each record.
pub(super) fn body(records: &[Arc<ExportRecord>], format: OtlpFormat) -> Vec<u8> {
    let request = export(records);
    match format {
        OtlpFormat::Protobuf => request.encode_to_vec(),
        // Text, numbers and bytes always serialize.
        OtlpFormat::Json => serde_json::to_vec(&request).unwrap_or_default(),
    }
}

fn export(records: &[Arc<ExportRecord>]) -> ExportRequest {
    let attributes =
        vec![text("service.name", "cofferdam"), text("service.version", env!("CARGO_PKG_VERSION"))];
    let scope_spans = ScopeSpans {
        scope: Some(Scope { name: "cofferdam".to_owned() }),
        spans: records.iter().map(|record| span(record)).collect(),
    };
    let resource_spans =
        ResourceSpans { resource: Some(Resource { attributes }), scope_spans: vec![scope_spans] };
    ExportRequest { resource_spans: vec![resource_spans] }
}

fn span(record: &ExportRecord) -> Span {
    let trace = trace_of(record);
    let known = |name: &str| trace.get(name).and_then(Value::as_str).filter(|value| !value.is_empty());
    let request = record.row.request_id.rsplit('_').next().unwrap_or_default();
    let operation = operation(record);
    let failed = record.row.outcome == UsageOutcome::Failed;
    let code = if failed { StatusCode::Error } else { StatusCode::Unset };
    let named = known("span_name").or_else(|| known("generation_name"));
    Span {
        trace_id: id(known("trace_id").unwrap_or(request), TRACE_ID_BYTES),
        span_id: id(request, SPAN_ID_BYTES),
        parent_span_id: known("parent_span_id")
            .and_then(|parent| parse_id(parent, SPAN_ID_BYTES))
            .unwrap_or_default(),
        name: named.map_or_else(|| format!("{operation} {}", record.about.requested), str::to_owned),
        kind: SpanKind::Client.into(),
        start_time_unix_nano: nanoseconds(record.about.started_ms),
        end_time_unix_nano: nanoseconds(record.ended_ms),
        attributes: attributes(record, operation, &trace),
        status: Some(Status { code: code.into() }),
    }
}

fn trace_of(record: &ExportRecord) -> Map<String, Value> {
    let trace = record.about.trace.as_deref();
    trace.and_then(|trace| serde_json::from_slice(trace).ok()).unwrap_or_default()
}

fn operation(record: &ExportRecord) -> &'static str {
    match record.row.kind {
        UsageKind::Responses => "chat",
        UsageKind::Embeddings => "embeddings",
    }
}

fn attributes(record: &ExportRecord, operation: &str, trace: &Map<String, Value>) -> Vec<KeyValue> {
    let ExportRecord { about, row, .. } = record;
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
        attribute("gen_ai.usage.cost", Scalar::DoubleValue(row.cost_pico as f64 / 1e12)),
        attribute("cofferdam.byok_cost", Scalar::DoubleValue(row.byok_pico as f64 / 1e12)),
        number("cofferdam.attempts", u64::from(row.attempts)),
        text("cofferdam.outcome", record.outcome()),
        attribute("cofferdam.streamed", Scalar::BoolValue(row.streamed)),
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
        // The conventions' value for an error without a known type.
        attributes.push(text("error.type", record.error.map_or("_OTHER", ErrorKind::as_str)));
    }
    attributes.extend(trace.iter().map(|(key, value)| attribute(&format!("trace.{key}"), scalar(value))));
    attributes
}

/// A JSON value as the value of an attribute. Lists and objects become JSON text.
fn scalar(value: &Value) -> Scalar {
    match value {
        Value::String(text) => Scalar::StringValue(text.clone()),
        Value::Bool(flag) => Scalar::BoolValue(*flag),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => Scalar::IntValue(number),
            (None, Some(number)) => Scalar::DoubleValue(number),
            (None, None) => Scalar::StringValue(number.to_string()),
        },
        value => Scalar::StringValue(value.to_string()),
    }
}

fn attribute(key: &str, value: Scalar) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}

fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Scalar::StringValue(value.to_owned()))
}

fn number(key: &str, value: u64) -> KeyValue {
    attribute(key, Scalar::IntValue(i64::try_from(value).unwrap_or(i64::MAX)))
}

fn nanoseconds(ms: u64) -> u64 {
    ms.saturating_mul(1_000_000)
}

/// Decodes an id of `bytes` bytes from hexadecimal. All zeros are refused, because OpenTelemetry
/// calls them invalid.
fn parse_id(text: &str, bytes: usize) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if digits.len() != bytes * 2 {
        return None;
    }
    let value = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(value(*high)? << 4 | value(*low)?),
        _ => None,
    };
    let id: Option<Vec<u8>> = digits.chunks_exact(2).map(pair).collect();
    id.filter(|id| id.iter().any(|byte| *byte != 0))
}

/// An id of `bytes` bytes: the one that the text spells in hexadecimal, hyphens removed, else the
/// beginning of the text's SHA-256 hash, so that equal texts give equal ids.
fn id(text: &str, bytes: usize) -> Vec<u8> {
    let plain: String = text.chars().filter(|character| *character != '-').collect();
    parse_id(&plain, bytes)
        .unwrap_or_else(|| Sha256::digest(text.as_bytes()).iter().copied().take(bytes).collect())
}
