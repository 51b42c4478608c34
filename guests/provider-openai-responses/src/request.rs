//! Reduces the client's request to what the Responses dialect supports.

use cofferdam_dialect_openai::{Fields, failure, picked, requested_tier};
use cofferdam_guest_kit::bindings::dialect::{Target, UpstreamRequest};
use cofferdam_guest_kit::bindings::types::Failure;
use cofferdam_guest_kit::{ReasoningSettings, add_options, json};
use cofferdam_protocol::{ObjectWriter, separate};
use serde_json::value::RawValue;

use crate::input::write_input;
use crate::members::{Carried, DEFERRED, SEARCH, carried, is_hosted};

/// Fields that go upstream unchanged.
const KEPT: &[&str] = &[
    "temperature",
    "top_p",
    "top_logprobs",
    "parallel_tool_calls",
    "include",
    "prompt_cache_key",
    "prompt_cache_options",
    "safety_identifier",
    "user",
    "metadata",
    "truncation",
];
/// Fields that only imitations of the API accept. OpenAI refuses them, so they go to endpoints
/// whose `supports` lists them.
const KEPT_IF_SUPPORTED: &[&str] = &["frequency_penalty", "presence_penalty", "top_k"];

const FORMAT: &[&str] = &["type", "name", "description", "schema", "strict"];
const CHOICE: &[&str] = &["type", "name", "namespace", "mode", "tools", "server_label"];
const REASONING: &[&str] = &["summary", "context", "mode"];

/// Translates a request.
pub(crate) fn prepare(request: &[u8], target: &Target) -> Result<UpstreamRequest, Failure> {
    let text = json::utf8(request).map_err(|_| failure::unreadable_request())?;
    let (fields, input) = Fields::read_with_list(text, "input").map_err(|_| failure::unreadable_request())?;
    let streamed = fields.get("stream").is_some_and(|value| value.get() == "true");
    let mut body = Vec::with_capacity(request.len());
    let mut object = ObjectWriter::new(&mut body);
    object.value("model", &target.model);
    write_input(&input, object.name("input"))?;
    fields.pick(&["instructions"], &mut object);
    object.value("stream", streamed);
    object.value("store", false);
    if let Some(limit) = fields.get("max_output_tokens") {
        match within(limit, target.max_output) {
            Some(limit) => object.value("max_output_tokens", limit),
            None => object.raw("max_output_tokens", limit.get()),
        }
    }
    fields.pick(KEPT, &mut object);
    for name in KEPT_IF_SUPPORTED.iter().filter(|name| target.supports.iter().any(|s| s == *name)) {
        fields.pick(&[name], &mut object);
    }
    if let Some(tools) = fields.get("tools") {
        let tools = list(tools)?;
        let has = |is_sought: &dyn Fn(&str) -> bool| {
            tools.iter().any(|tool| tool.text("type").as_deref().is_some_and(is_sought))
        };
        let searches = has(&|kind| kind == SEARCH);
        // The limit is for tools that the server runs. Imitations of the API without such tools may not know it.
        if has(&is_hosted) {
            fields.pick(&["max_tool_calls"], &mut object);
        }
        write_tools(&tools, "tools", searches, object.name("tools"))?;
    }
    if let Some(choice) = fields.get("tool_choice") {
        match Fields::read(choice.get()) {
            Ok(choice) => picked(&choice, CHOICE, object.name("tool_choice")),
            Err(_) => object.raw("tool_choice", choice.get()),
        }
    }
    write_text(&fields, &mut object)?;
    write_reasoning(&fields, target.max_output, &mut object)?;
    if let Some(tier) = requested_tier(&target.tier, fields.text("service_tier").as_deref()) {
        object.value("service_tier", tier);
    }
    object.end();
    Ok(UpstreamRequest::new("responses", add_options(body, &target.options), streamed))
}

/// The endpoint's limit, when the client's limit is higher.
fn within(limit: &RawValue, endpoint: u32) -> Option<u32> {
    let limit: u64 = limit.get().parse().ok()?;
    (endpoint > 0 && limit > u64::from(endpoint)).then_some(endpoint)
}

fn list(tools: &RawValue) -> Result<Vec<Fields<'_>>, Failure> {
    let tools: Vec<&RawValue> = json::from_str(tools.get()).map_err(|_| failure::unreadable_request())?;
    tools
        .into_iter()
        .map(|tool| Fields::read(tool.get()).map_err(|_| failure::unreadable_request()))
        .collect()
}

/// `searches` says whether the request has a tool that finds deferred tools.
fn write_tools(tools: &[Fields<'_>], path: &str, searches: bool, out: &mut Vec<u8>) -> Result<(), Failure> {
    out.push(b'[');
    for (index, tool) in tools.iter().enumerate() {
        separate(out);
        write_tool(tool, &format!("{path}[{index}]"), searches, out)?;
    }
    out.push(b']');
    Ok(())
}

fn write_tool(fields: &Fields<'_>, path: &str, searches: bool, out: &mut Vec<u8>) -> Result<(), Failure> {
    let kind = fields.text("type").unwrap_or_default();
    // Namespaces do not nest. This also bounds the recursion.
    let misplaced = kind == "namespace" && path.contains('.');
    let Some(carried) = carried(&kind).filter(|_| !misplaced) else {
        return Err(failure::unsupported(&format!("{path}.type"), "a tool of this type"));
    };
    let mut object = ObjectWriter::new(out);
    object.value("type", &kind);
    match carried {
        Carried::Only(names) => {
            for name in names.iter().filter(|name| searches || **name != DEFERRED) {
                fields.pick(&[name], &mut object);
            }
        }
        Carried::But(names) => {
            let gone =
                |name: &str| name == "type" || names.contains(&name) || (name == DEFERRED && !searches);
            for (name, value) in fields.iter().filter(|(name, value)| !gone(name) && value.get() != "null") {
                object.foreign_name(name).extend_from_slice(value.get().as_bytes());
            }
        }
    }
    if let Some(inner) = fields.get("tools").filter(|_| kind == "namespace") {
        write_tools(&list(inner)?, &format!("{path}.tools"), searches, object.name("tools"))?;
    }
    object.end();
    Ok(())
}

fn write_text(fields: &Fields<'_>, object: &mut ObjectWriter<'_>) -> Result<(), Failure> {
    let Some(text) = fields.get("text") else { return Ok(()) };
    let text = Fields::read(text.get()).map_err(|_| failure::unreadable_request())?;
    let mut settings = ObjectWriter::new(object.name("text"));
    if let Some(format) = text.get("format") {
        let format = Fields::read(format.get()).map_err(|_| failure::unreadable_request())?;
        picked(&format, FORMAT, settings.name("format"));
    }
    if let Some(verbosity) = text.text("verbosity") {
        // OpenAI's scale ends at `high`; the scale of this API goes further.
        let verbosity = if matches!(&*verbosity, "xhigh" | "max") { "high" } else { &*verbosity };
        settings.value("verbosity", verbosity);
    }
    settings.end();
    Ok(())
}

/// Writes `reasoning`. The switch and the budget, which this dialect lacks, become an effort.
fn write_reasoning(
    fields: &Fields<'_>,
    endpoint_limit: u32,
    object: &mut ObjectWriter<'_>,
) -> Result<(), Failure> {
    let Some(raw) = fields.get("reasoning") else { return Ok(()) };
    let reasoning = Fields::read(raw.get()).map_err(|_| failure::unreadable_request())?;
    let asked: ReasoningSettings<'_> =
        json::from_str(raw.get()).map_err(|_| failure::unreadable_request())?;
    let limit = fields.get("max_output_tokens").and_then(|limit| limit.get().parse().ok());
    let effort = asked.effort_word(limit.or(Some(u64::from(endpoint_limit))));
    if effort.is_none() && REASONING.iter().all(|name| reasoning.get(name).is_none()) {
        return Ok(());
    }
    let mut settings = ObjectWriter::new(object.name("reasoning"));
    if let Some(effort) = effort {
        settings.value("effort", effort);
    }
    reasoning.pick(REASONING, &mut settings);
    settings.end();
    Ok(())
}

#[cfg(test)]
mod tests;
