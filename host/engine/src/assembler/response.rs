//! Writes the response object: for a whole body, for the first events of a stream and for its
//! terminal event.

use super::Assembler;
use crate::cost::{Amount, Cost};
use crate::refusal::{Refusal, stream_code};
use cofferdam_protocol::{ObjectWriter, write_list};
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
        let is_running = matches!(outcome, Outcome::InProgress);
        let is_finished = matches!(outcome, Outcome::Completed | Outcome::Incomplete(_));
        let mut response = ObjectWriter::new(out);
        response.value("id", format_args!("resp_{}", identity.hex));
        response.word("object", "response");
        response.value("created_at", identity.created_at);
        response.value("completed_at", is_finished.then_some(receipt.completed_at));
        response.word("status", outcome.status());
        write_error(&mut response, outcome);
        match outcome {
            Outcome::Incomplete(reason) => {
                let mut details = ObjectWriter::new(response.name("incomplete_details"));
                details.word("reason", reason);
                details.end();
            }
            _ => response.raw("incomplete_details", "null"),
        }
        response.value("model", &identity.model);
        let items = self.items.iter().filter(|_| !is_running);
        write_list(items, response.name("output"), |item, out| item.write(out));
        if is_running {
            response.raw("usage", "null");
        } else {
            self.write_usage(response.name("usage"), receipt);
        }
        let served = self.ended.as_ref().and_then(|ended| ended.service_tier);
        response.value("service_tier", served.map_or(identity.service_tier.as_str(), |tier| tier.as_str()));
        response.members(identity.echo.as_bytes());
        if let (Some((field, metadata)), false) = (&receipt.metadata, is_running) {
            response.value(field, metadata);
        }
        response.end();
    }

    fn write_usage(&self, out: &mut Vec<u8>, receipt: &Receipt) {
        let tokens = self.total_usage().unwrap_or_else(crate::cost::no_usage);
        let mut usage = ObjectWriter::new(out);
        usage.value("input_tokens", tokens.input_tokens);
        let mut details = ObjectWriter::new(usage.name("input_tokens_details"));
        details.value("cached_tokens", tokens.cached_tokens);
        details.value("cache_write_tokens", tokens.cache_write_tokens);
        details.end();
        usage.value("output_tokens", tokens.output_tokens);
        let mut details = ObjectWriter::new(usage.name("output_tokens_details"));
        details.value("reasoning_tokens", tokens.reasoning_tokens);
        details.end();
        usage.value("total_tokens", tokens.input_tokens.saturating_add(tokens.output_tokens));
        receipt.cost.paid.here.plus(receipt.plugins).write(usage.name("cost"));
        usage.value("is_byok", receipt.is_byok);
        let mut details = ObjectWriter::new(usage.name("cost_details"));
        match receipt.cost.upstream {
            Some(cost) => cost.write(details.name("upstream_inference_cost")),
            None => details.raw("upstream_inference_cost", "null"),
        }
        receipt.cost.input.write(details.name("upstream_inference_input_cost"));
        receipt.cost.output.write(details.name("upstream_inference_output_cost"));
        if receipt.server_tools.is_some() {
            receipt.plugins.write(details.name("server_tool_cost"));
        }
        details.end();
        if let Some(tools) = &receipt.server_tools {
            let mut details = ObjectWriter::new(usage.name("server_tool_use_details"));
            details.value("tool_calls_executed", tools.executed);
            details.value("tool_calls_requested", tools.requested);
            details.value("web_search_requests", tools.web_searches);
            details.end();
        }
        usage.end();
    }
}

fn write_error(response: &mut ObjectWriter<'_>, outcome: &Outcome) {
    let Outcome::Failed(Refusal { kind, message, .. }) = outcome else {
        return response.raw("error", "null");
    };
    let mut error = ObjectWriter::new(response.name("error"));
    error.word("code", stream_code(*kind));
    error.value("message", message);
    error.end();
    response.word("error_type", kind.as_str());
}
