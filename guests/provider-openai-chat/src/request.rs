//! Translates the request. Only fields that the client set go upstream, and of these only the ones
//! that old and strict servers accept. Other fields go to endpoints whose `supports` lists them.
//! Servers that refuse an unknown field are more common than servers that need it.

use cofferdam_dialect_openai::{failure, requested_tier};
use cofferdam_guest_kit::bindings::dialect::{Target, UpstreamRequest};
use cofferdam_guest_kit::bindings::types::Failure;
use cofferdam_guest_kit::{Request, TextFormat, add_options};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

use crate::messages::{Message, Takes, mark_last, messages};
use crate::tools::{Choice, Tool, Tools, tools};

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Vec<Message<'a>>,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    /// The name that every server accepts.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u64>,
    /// The only name that OpenAI's reasoning models accept.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<&'a Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<&'a Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<&'a Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    frequency_penalty: Option<&'a Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    presence_penalty: Option<&'a Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_logprobs: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Choice<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel_tool_calls: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_format: Option<ResponseFormat<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verbosity: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    service_tier: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    safety_identifier: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    modalities: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    image_config: Option<&'a Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_options: Option<&'a RawValue>,
}

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
    let (max_completion_tokens, max_tokens) =
        if supports("max_completion_tokens") { (limit, None) } else { (None, limit) };
    let with_logprobs = request.top_logprobs.is_some_and(|count| count > 0)
        || request.include.iter().any(|wish| wish == "message.output_text.logprobs");
    let takes = Takes {
        custom,
        cache_control: supports("cache_control"),
        breakpoints: supports("prompt_cache_options"),
    };
    let mut messages = messages(instructions, &input, &target.model, takes)?;
    if let Some(mark) = request.cache_control.filter(|_| takes.cache_control) {
        mark_last(&mut messages, mark);
    }
    let image_output = supports("image_output");
    let body = Body {
        model: &target.model,
        messages,
        stream: request.stream,
        stream_options: request.stream.then_some(StreamOptions { include_usage: true }),
        max_tokens,
        max_completion_tokens,
        temperature: request.temperature.as_ref(),
        top_p: request.top_p.as_ref(),
        top_k: request.top_k.as_ref().filter(|_| supports("top_k")),
        frequency_penalty: request.frequency_penalty.as_ref(),
        presence_penalty: request.presence_penalty.as_ref(),
        logprobs: with_logprobs.then_some(true),
        top_logprobs: request.top_logprobs.filter(|count| *count > 0),
        parallel_tool_calls: request.parallel_tool_calls.filter(|_| !tools.is_empty()),
        tools,
        tool_choice: choice,
        response_format: response_format(&request.text.format)?,
        reasoning_effort: request
            .reasoning
            .as_ref()
            .and_then(|reasoning| reasoning.effort_word(limit.or(Some(u64::from(target.max_output))))),
        verbosity: request.text.verbosity.as_deref().map(verbosity),
        service_tier: requested_tier(&target.tier, request.service_tier.as_deref()),
        user: request.user.as_deref(),
        prompt_cache_key: request.prompt_cache_key.as_deref().filter(|_| supports("prompt_cache_key")),
        safety_identifier: request.safety_identifier.as_deref().filter(|_| supports("safety_identifier")),
        modalities: if image_output { &request.modalities } else { &[] },
        image_config: request.image_config.as_ref().filter(|config| image_output && !config.is_empty()),
        prompt_cache_options: request.prompt_cache_options.filter(|_| takes.breakpoints),
    };
    let streamed = body.stream;
    let body = serde_json::to_vec(&body).map_err(|_| failure::unreadable_request())?;
    Ok(UpstreamRequest::new("chat/completions", add_options(body, &target.options), streamed))
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
