//! The steps of a request as spans below the span of the request.

use super::message::{KeyValue, Scalar, Span, SpanKind, Status, StatusCode};
use super::{SPAN_ID_BYTES, attribute, id, number, text};
use crate::timeline::{FactName, RecordedStep, RecordedTimeline, StepType};
use cofferdam_store::hex;

/// The revision of the semantic conventions that the names below are from: the last one before those
/// for generative AI moved to a repository without a schema of its own.
pub(super) const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.41.0";

const OPERATION: &str = "gen_ai.operation.name";
const TOOL_NAME: &str = "gen_ai.tool.name";
const FIRST_CHUNK: &str = "gen_ai.response.time_to_first_chunk";
const ERROR_TYPE: &str = "error.type";
const METHOD: &str = "http.request.method";

/// The attributes of facts. Those for which the conventions have no name are `cofferdam.*`.
const ATTRIBUTES: [(FactName, &str); 19] = [
    (FactName::Action, "cofferdam.action"),
    (FactName::Attempt, "cofferdam.attempt"),
    (FactName::AuditSeq, "cofferdam.audit_seq"),
    (FactName::Bytes, "cofferdam.bytes"),
    (FactName::CachedTokens, "gen_ai.usage.cache_read.input_tokens"),
    (FactName::Cause, "cofferdam.cause"),
    (FactName::ConnectUs, "cofferdam.connect_us"),
    (FactName::Count, "cofferdam.count"),
    (FactName::Host, "server.address"),
    (FactName::InputTokens, "gen_ai.usage.input_tokens"),
    (FactName::Model, "gen_ai.request.model"),
    (FactName::OutputTokens, "gen_ai.usage.output_tokens"),
    (FactName::Plugin, "cofferdam.plugin"),
    (FactName::Provider, "gen_ai.provider.name"),
    (FactName::Purpose, "cofferdam.purpose"),
    (FactName::Reflections, "cofferdam.reflections"),
    (FactName::RetryAfterMs, "cofferdam.retry_after_ms"),
    (FactName::Status, "http.response.status_code"),
    (FactName::Turn, "cofferdam.turn"),
];

/// The spans of a request: `root`, and one for each step. `operation` is what its attempts do.
pub(super) fn spans(root: Span, operation: &str, timeline: &RecordedTimeline) -> Vec<Span> {
    let began = super::nanoseconds(timeline.request.started_ms);
    let after = |us: u64| began.saturating_add(us.saturating_mul(1000));
    let root = Span {
        kind: SpanKind::Server.into(),
        start_time_unix_nano: began,
        end_time_unix_nano: after(timeline.request.us),
        ..root
    };
    let request = hex(&root.span_id);
    let id_of = |n: u16| id(&format!("{request} step {n}"), SPAN_ID_BYTES);
    let steps = timeline.steps.iter().map(|step| Span {
        trace_id: root.trace_id.clone(),
        span_id: id_of(step.n),
        parent_span_id: step.parent.map_or_else(|| root.span_id.clone(), id_of),
        name: name(step, operation),
        kind: kind(step.r#type).into(),
        start_time_unix_nano: after(step.at_us),
        end_time_unix_nano: after(step.at_us.saturating_add(step.us.unwrap_or_default())),
        attributes: attributes(step, operation),
        status: Some(Status { code: code(step).into() }),
    });
    let steps: Vec<Span> = steps.collect();
    std::iter::once(root).chain(steps).collect()
}

fn name(step: &RecordedStep, operation: &str) -> String {
    match step.r#type {
        StepType::Attempt => {
            format!("{operation} {}", step.facts.text(FactName::Model).unwrap_or_default())
        }
        StepType::Tool => format!("execute_tool {}", step.name),
        _ => step.name.clone(),
    }
}

fn kind(step: StepType) -> SpanKind {
    match step {
        StepType::Attempt | StepType::Exchange | StepType::Http => SpanKind::Client,
        _ => SpanKind::Internal,
    }
}

fn code(step: &RecordedStep) -> StatusCode {
    if step.outcome.as_deref() == Some("ok") { StatusCode::Unset } else { StatusCode::Error }
}

fn attributes(step: &RecordedStep, operation: &str) -> Vec<KeyValue> {
    let mut attributes = vec![text("cofferdam.step", step.r#type.as_str())];
    match step.r#type {
        StepType::Attempt => attributes.push(text(OPERATION, operation)),
        StepType::Tool => {
            attributes.extend([text(OPERATION, "execute_tool"), text(TOOL_NAME, &step.name)]);
        }
        StepType::Exchange | StepType::Http => {
            let method = step.name.split(' ').next().unwrap_or_default();
            attributes.push(text(METHOD, if method == "OTHER" { "_OTHER" } else { method }));
        }
        _ => {}
    }
    for (fact, key) in ATTRIBUTES {
        attributes.extend(step.facts.number(fact).map(|value| number(key, value)));
        attributes.extend(step.facts.text(fact).map(|value| text(key, value)));
    }
    if let Some(us) = step.facts.number(FactName::FirstContentUs) {
        attributes.push(attribute(FIRST_CHUNK, Scalar::DoubleValue(us as f64 / 1e6)));
    }
    attributes.extend(step.busy_us.map(|us| number("cofferdam.busy_us", us)));
    if code(step) == StatusCode::Error {
        attributes.push(text(ERROR_TYPE, step.outcome.as_deref().unwrap_or("_OTHER")));
    }
    attributes
}
