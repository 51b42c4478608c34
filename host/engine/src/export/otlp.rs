//! Records as OpenTelemetry spans, one export request for a batch. Attributes follow the semantic
//! conventions for generative AI (`gen_ai.*`). What those have no name for is `cofferdam.*`, and
//! each key of the client's trace becomes `trace.KEY`.

mod message;
mod steps;

use super::record::ExportRecord;
use super::trace_parent::{TraceParent, parse_id};
use super::{OtlpFormat, Spans};
use cofferdam_runtime::wire::ErrorKind;
use cofferdam_store::{UsageKind, UsageOutcome};
use message::{
    AnyValue, ExportAnswer, ExportRequest, KeyValue, Resource, ResourceSpans, Scalar, Scope, ScopeSpans,
    Span, SpanKind, Status, StatusCode,
};
use prost::Message as _;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::sync::Arc;

const TRACE_ID_BYTES: usize = 16;
const SPAN_ID_BYTES: usize = 8;
/// The most characters of a collector's reason in the log.
const REASON_CHARS_MAX: usize = 200;
/// The most keys of the client's trace that become attributes, the first ones. Each becomes several times as long as in
/// the request.
const TRACE_KEYS_MAX: usize = 64;

/// The body of `POST /v1/traces` with the spans of each record, and their number.
pub(super) fn body(records: &[Arc<ExportRecord>], format: OtlpFormat, spans: Spans) -> (Vec<u8>, u64) {
    let request = export(records, spans);
    let scopes = request.resource_spans.iter().flat_map(|resource| &resource.scope_spans);
    let count = scopes.map(|scope| scope.spans.len() as u64).sum();
    let body = match format {
        OtlpFormat::Protobuf => request.encode_to_vec(),
        // Text, numbers and bytes always serialize.
        OtlpFormat::Json => serde_json::to_vec(&request).unwrap_or_default(),
    };
    (body, count)
}

/// What a collector has not taken of a request that it answered with status 200.
pub(super) struct Rejected {
    pub(super) spans: u64,
    /// The collector's reason, cut and without control characters.
    pub(super) message: String,
}

/// What a collector says that it has not taken; `None` if it took everything.
pub(super) fn rejected(answer: &[u8], format: OtlpFormat) -> Option<Rejected> {
    let answer: ExportAnswer = match format {
        OtlpFormat::Protobuf => ExportAnswer::decode(answer).ok(),
        OtlpFormat::Json => serde_json::from_slice(answer).ok(),
    }?;
    let partial = answer.partial_success?;
    let spans = u64::try_from(partial.rejected_spans).ok().filter(|spans| *spans > 0)?;
    let message = partial.error_message.chars().take(REASON_CHARS_MAX);
    Some(Rejected { spans, message: message.filter(|character| !character.is_control()).collect() })
}

fn export(records: &[Arc<ExportRecord>], spans: Spans) -> ExportRequest {
    let attributes =
        vec![text("service.name", "cofferdam"), text("service.version", env!("CARGO_PKG_VERSION"))];
    let scope_spans = ScopeSpans {
        scope: Some(Scope { name: "cofferdam".to_owned() }),
        spans: records.iter().flat_map(|record| spans_of(record, spans)).collect(),
        schema_url: match spans {
            Spans::Request => String::new(),
            Spans::Steps => steps::SCHEMA_URL.to_owned(),
        },
    };
    let resource_spans =
        ResourceSpans { resource: Some(Resource { attributes }), scope_spans: vec![scope_spans] };
    ExportRequest { resource_spans: vec![resource_spans] }
}

fn spans_of(record: &ExportRecord, spans: Spans) -> Vec<Span> {
    let root = span(record);
    match &record.timeline {
        Some(timeline) if spans == Spans::Steps => steps::spans(root, operation(record), timeline),
        _ => vec![root],
    }
}

fn span(record: &ExportRecord) -> Span {
    let trace = trace_of(record);
    let known = |name: &str| trace.get(name).and_then(Value::as_str).filter(|value| !value.is_empty());
    let request = record.row.request_id.rsplit('_').next().unwrap_or_default();
    let operation = operation(record);
    let failed = record.row.outcome == UsageOutcome::Failed;
    let code = if failed { StatusCode::Error } else { StatusCode::Unset };
    let named = known("span_name").or_else(|| known("generation_name"));
    let given = known("parent_span_id").and_then(|parent| parse_id(parent, SPAN_ID_BYTES));
    let (trace_id, parent) = match (known("trace_id"), record.about.trace_parent) {
        (Some(trace), _) => (id(trace, TRACE_ID_BYTES), given),
        (None, Some(TraceParent { trace_id, span_id })) => (trace_id.to_vec(), Some(span_id.to_vec())),
        (None, None) => (id(request, TRACE_ID_BYTES), given),
    };
    Span {
        trace_id,
        span_id: id(request, SPAN_ID_BYTES),
        parent_span_id: parent.unwrap_or_default(),
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
    let trace = trace.iter().take(TRACE_KEYS_MAX);
    attributes.extend(trace.map(|(key, value)| attribute(&format!("trace.{key}"), scalar(value))));
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

/// An id of `bytes` bytes: the one that the text spells in hexadecimal, hyphens removed, else the
/// beginning of the text's SHA-256 hash, so that equal texts give equal ids.
fn id(text: &str, bytes: usize) -> Vec<u8> {
    let plain: String = text.chars().filter(|character| *character != '-').collect();
    parse_id(&plain, bytes)
        .unwrap_or_else(|| Sha256::digest(text.as_bytes()).iter().copied().take(bytes).collect())
}
