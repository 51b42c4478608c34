//! Translates the request. Only fields that the client set go upstream, and of these only the ones
//! that old and strict servers accept. Other fields go to endpoints whose `supports` lists them.
//! Servers that refuse an unknown field are more common than servers that need it.

use cofferdam_dialect_openai::{failure, requested_tier};
use cofferdam_guest_kit::bindings::dialect::{Target, UpstreamRequest};
use cofferdam_guest_kit::bindings::types::Failure;
use cofferdam_guest_kit::{Request, TextFormat, add_options};
use cofferdam_protocol::ObjectWriter;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::messages::{Takes, mark_last, messages};
use crate::tools::{Tools, tools};

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ResponseFormat<'a> {
    JsonObject,
    JsonSchema { json_schema: Schema<'a> },
}

#[derive(Serialize)]
struct Schema<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    schema: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
}

/// Translates a request.
pub(crate) fn prepare(request: &[u8], target: &Target) -> Result<UpstreamRequest, Failure> {
    let mut request = Request::parse_with_raw_items(request).map_err(|_| failure::unreadable_request())?;
    let supports = |ability: &str| target.supports.iter().any(|stated| stated == ability);
    let custom = supports("custom_tools");
    let instructions = request.instructions.take();
    let input = std::mem::take(&mut request.input);
    let offered = std::mem::take(&mut request.tools);
    let Tools { tools, choice } = tools(offered, request.tool_choice.take(), custom)?;
    let limit = request.max_output_tokens.map(|limit| match target.max_output {
        0 => limit,
        most => limit.min(u64::from(most)),
    });
    // Every server accepts `max_tokens`, except OpenAI for its reasoning models.
    let limit_name = if supports("max_completion_tokens") { "max_completion_tokens" } else { "max_tokens" };
    let with_logprobs = request.top_logprobs.is_some_and(|count| count > 0)
        || request.include.iter().any(|name| name == "message.output_text.logprobs");
    let takes = Takes {
        custom,
        cache_control: supports("cache_control"),
        breakpoints: supports("prompt_cache_options"),
    };
    let mut messages = messages(instructions, &input, &target.model, takes)?;
    if let Some(mark) = request.cache_control.filter(|_| takes.cache_control) {
        mark_last(&mut messages, mark);
    }
    let effort = request
        .reasoning
        .as_ref()
        .and_then(|reasoning| reasoning.effort_word(limit.or(Some(u64::from(target.max_output)))));
    let mut body = Vec::new();
    let mut object = ObjectWriter::new(&mut body);
    object.value("model", &target.model);
    object.value("messages", &messages);
    object.value("stream", request.stream);
    object.some("stream_options", request.stream.then_some(StreamOptions { include_usage: true }));
    object.some(limit_name, limit);
    object.some("temperature", request.temperature.as_ref());
    object.some("top_p", request.top_p.as_ref());
    object.some("top_k", request.top_k.as_ref().filter(|_| supports("top_k")));
    object.some("frequency_penalty", request.frequency_penalty.as_ref());
    object.some("presence_penalty", request.presence_penalty.as_ref());
    object.some("logprobs", with_logprobs.then_some(true));
    object.some("top_logprobs", request.top_logprobs.filter(|count| *count > 0));
    object.filled("tools", &tools);
    object.some("tool_choice", choice);
    object.some("parallel_tool_calls", request.parallel_tool_calls.filter(|_| !tools.is_empty()));
    object.some("response_format", response_format(&request.text.format)?);
    object.some("reasoning_effort", effort);
    object.some("verbosity", request.text.verbosity.as_deref().map(verbosity));
    object.some("service_tier", requested_tier(&target.tier, request.service_tier.as_deref()));
    object.some("user", request.user.as_deref());
    for (name, value) in
        [("prompt_cache_key", &request.prompt_cache_key), ("safety_identifier", &request.safety_identifier)]
    {
        object.some(name, value.as_deref().filter(|_| supports(name)));
    }
    if supports("image_output") {
        object.filled("modalities", &request.modalities);
        object.some("image_config", request.image_config.as_ref().filter(|config| !config.is_empty()));
    }
    object.some("prompt_cache_options", request.prompt_cache_options.filter(|_| takes.breakpoints));
    object.end();
    Ok(UpstreamRequest::new("chat/completions", add_options(body, &target.options), request.stream))
}

/// OpenAI's scale ends at `high`; the scale of this API goes further.
fn verbosity(asked: &str) -> &str {
    if matches!(asked, "xhigh" | "max") { "high" } else { asked }
}

fn response_format<'a>(format: &'a TextFormat<'_>) -> Result<Option<ResponseFormat<'a>>, Failure> {
    Ok(match format {
        TextFormat::Text => None,
        TextFormat::JsonObject => Some(ResponseFormat::JsonObject),
        TextFormat::JsonSchema { name, description, schema, strict } => Some(ResponseFormat::JsonSchema {
            json_schema: Schema { name, description: description.as_deref(), schema, strict: *strict },
        }),
        TextFormat::Other { .. } => {
            return Err(failure::unsupported("text.format.type", "this format"));
        }
    })
}

#[cfg(test)]
mod tests;
