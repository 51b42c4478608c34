//! The JSON form of a record, which a webhook receives.

use super::record::ExportRecord;
use crate::cost::Amount;
use cofferdam_store::UsageKind;
use serde::Serialize;
use serde_json::value::RawValue;

#[derive(Serialize)]
struct WebhookBody<'a> {
    /// Always `request.finished`.
    r#type: &'static str,
    id: &'a str,
    kind: &'static str,
    outcome: &'static str,
    error_type: Option<&'static str>,
    started_at_ms: u64,
    ended_at_ms: u64,
    streamed: bool,
    requested_model: &'a str,
    model: &'a str,
    provider: &'a str,
    usage: WebhookUsage,
    /// Charged here, in dollars.
    cost: Amount,
    /// Paid at providers with the caller's own credentials, in dollars.
    byok_cost: Amount,
    /// Whether usage and cost are in part estimates of this host. Left out when false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    estimated: bool,
    /// The number of endpoints that were asked.
    attempts: u32,
    workspace_id: String,
    key_id: String,
    intern_id: Option<String>,
    session_id: Option<&'a str>,
    user: Option<&'a str>,
    trace: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct WebhookUsage {
    input_tokens: u64,
    cached_tokens: u64,
    output_tokens: u64,
    reasoning_tokens: u64,
}

/// The body of the POST.
pub(super) fn body(record: &ExportRecord) -> Vec<u8> {
    let ExportRecord { about, row, .. } = record;
    let body = WebhookBody {
        r#type: "request.finished",
        id: &row.request_id,
        kind: match row.kind {
            UsageKind::Responses => "responses",
            UsageKind::Embeddings => "embeddings",
        },
        outcome: record.outcome(),
        error_type: record.error.map(|error| error.as_str()),
        started_at_ms: about.started_ms,
        ended_at_ms: record.ended_ms,
        streamed: row.streamed,
        requested_model: &about.requested,
        model: &row.model,
        provider: &row.provider,
        usage: WebhookUsage {
            input_tokens: row.input_tokens,
            cached_tokens: row.cached_tokens,
            output_tokens: row.output_tokens,
            reasoning_tokens: row.reasoning_tokens,
        },
        cost: Amount(row.cost_pico),
        byok_cost: Amount(row.byok_pico),
        estimated: row.estimated,
        attempts: row.attempts,
        workspace_id: row.workspace.to_string(),
        key_id: row.key.to_string(),
        intern_id: about.intern.map(|intern| intern.to_string()),
        session_id: about.session_id.as_deref(),
        user: about.user.as_deref(),
        trace: about.trace.as_deref().and_then(|trace| serde_json::from_slice(trace).ok()),
    };
    // Text, numbers and checked JSON always serialize.
    serde_json::to_vec(&body).unwrap_or_default()
}
