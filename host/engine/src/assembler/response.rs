//! Writes the response object: for a whole body, for the first events of a stream and for its
//! terminal event.

use super::Assembler;
use super::items::{self, OutputItem};
use super::json::{key, member, number, raw};
use crate::cost::{Amount, Cost};
use crate::refusal::{Refusal, stream_code};
use serde_json::Value;
use std::sync::Arc;

/// The ids of a response, and the members that it repeats from its request.
#[derive(Clone, Debug)]
pub struct Identity {
    /// 32 hexadecimal digits, from which all ids of the response are made.
    pub hex: Arc<str>,
    /// Unix time in seconds.
    pub created_at: u64,
    /// The catalog id of the model that answers.
    pub model: String,
    /// The tier of the endpoint; the provider's own report replaces it.
    pub service_tier: String,
    /// The request's effective settings as JSON members without braces.
    pub echo: Arc<str>,
}

impl Identity {
    /// The id of the response, `resp_` followed by the digits.
    pub fn response_id(&self) -> String {
        format!("resp_{}", self.hex)
    }

    pub(super) fn item_id(&self, prefix: &str, index: usize) -> String {
        format!("{prefix}_{}{index:04x}", self.hex)
    }
}

/// The state in which a response is written.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The answer is still arriving.
    InProgress,
    /// The model finished its answer.
    Completed,
    /// The answer was cut short; the text is `incomplete_details.reason`.
    Incomplete(&'static str),
    /// The response failed.
    Failed(Refusal),
}

impl Outcome {
    fn status(&self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Incomplete(_) => "incomplete",
            Self::Failed(_) => "failed",
        }
    }

    pub(super) fn event(&self) -> &'static str {
        match self {
            Self::InProgress => "response.in_progress",
            Self::Completed => "response.completed",
            Self::Incomplete(_) => "response.incomplete",
            Self::Failed(_) => "response.failed",
        }
    }
}

/// Facts about a finished response that are not part of its output.
#[derive(Clone, Debug, Default)]
pub struct Receipt {
    /// Unix time in seconds.
    pub completed_at: u64,
    /// The cost of all turns.
    pub cost: Cost,
    /// What is charged for server tools and questions of plugins.
    pub plugins: Amount,
    /// Whether the workspace's own credential was used.
    pub is_byok: bool,
    /// Counts of the server tool loop; none if the request has no server tools.
    pub server_tools: Option<ServerToolUse>,
    /// Routing metadata and the name of its member, if the client opted in.
    pub metadata: Option<(&'static str, Value)>,
}

/// Counts of `usage.server_tool_use_details`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerToolUse {
    /// Calls that the model made.
    pub requested: u32,
    /// Calls that were run, with any result.
    pub executed: u32,
    /// The calls of `web_search` among the executed ones.
    pub web_searches: u32,
}

impl Assembler {
    pub(super) fn write_response(&self, out: &mut Vec<u8>, outcome: &Outcome, receipt: &Receipt) {
        let identity = &self.identity;
        raw(out, "{\"id\":\"resp_");
        raw(out, &identity.hex);
        raw(out, "\",\"object\":\"response\",\"created_at\":");
        number(out, identity.created_at);
        let completed_at = match outcome {
            Outcome::Completed | Outcome::Incomplete(_) => Some(receipt.completed_at),
            Outcome::InProgress | Outcome::Failed(_) => None,
        };
        member(out, "completed_at", completed_at);
        member(out, "status", outcome.status());
        key(out, "error");
        write_error(out, outcome);
        key(out, "incomplete_details");
        match outcome {
            Outcome::Incomplete(reason) => {
                raw(out, "{\"reason\":\"");
                raw(out, reason);
                raw(out, "\"}");
            }
            _ => raw(out, "null"),
        }
        member(out, "model", &identity.model);
        key(out, "output");
        let running = matches!(outcome, Outcome::InProgress);
        items::list(out, if running { &[] } else { &self.items }, |out, item: &OutputItem| item.write(out));
        key(out, "usage");
        if running {
            raw(out, "null")
        } else {
            self.write_usage(out, receipt)
        }
        let served = self.ended.as_ref().and_then(|ended| ended.service_tier.as_deref());
        member(out, "service_tier", served.unwrap_or(&identity.service_tier));
        raw(out, ",");
        raw(out, &identity.echo);
        if let (Some((field, metadata)), false) = (&receipt.metadata, running) {
            member(out, field, metadata);
        }
        raw(out, "}");
    }

    fn write_usage(&self, out: &mut Vec<u8>, receipt: &Receipt) {
        let usage = self.total_usage().unwrap_or_else(crate::cost::no_usage);
        let members = [
            ("{\"input_tokens\":", usage.input_tokens),
            (",\"input_tokens_details\":{\"cached_tokens\":", usage.cached_tokens),
            (",\"cache_write_tokens\":", usage.cache_write_tokens),
            ("},\"output_tokens\":", usage.output_tokens),
            (",\"output_tokens_details\":{\"reasoning_tokens\":", usage.reasoning_tokens),
            ("},\"total_tokens\":", usage.input_tokens.saturating_add(usage.output_tokens)),
        ];
        for (name, count) in members {
            raw(out, name);
            number(out, count);
        }
        key(out, "cost");
        receipt.cost.paid.here.plus(receipt.plugins).write(out);
        member(out, "is_byok", receipt.is_byok);
        raw(out, ",\"cost_details\":{\"upstream_inference_cost\":");
        match receipt.cost.upstream {
            Some(cost) => cost.write(out),
            None => raw(out, "null"),
        }
        key(out, "upstream_inference_input_cost");
        receipt.cost.input.write(out);
        key(out, "upstream_inference_output_cost");
        receipt.cost.output.write(out);
        match &receipt.server_tools {
            Some(tools) => write_tool_use(out, tools, receipt.plugins),
            None => raw(out, "}"),
        }
        raw(out, "}");
    }
}

/// Ends `cost_details` and writes `server_tool_use_details`.
fn write_tool_use(out: &mut Vec<u8>, tools: &ServerToolUse, cost: Amount) {
    key(out, "server_tool_cost");
    cost.write(out);
    raw(out, "},\"server_tool_use_details\":{\"tool_calls_executed\":");
    number(out, u64::from(tools.executed));
    member(out, "tool_calls_requested", tools.requested);
    member(out, "web_search_requests", tools.web_searches);
    raw(out, "}");
}

fn write_error(out: &mut Vec<u8>, outcome: &Outcome) {
    let Outcome::Failed(Refusal { kind, message, .. }) = outcome else {
        raw(out, "null");
        return;
    };
    raw(out, "{\"code\":\"");
    raw(out, stream_code(*kind));
    raw(out, "\"");
    member(out, "message", message);
    raw(out, "}");
    member(out, "error_type", kind.as_str());
}
