//! Translates a Responses request into one call of `messages`.

use std::borrow::Cow;

use cofferdam_guest_kit::Request;
use cofferdam_guest_kit::bindings::dialect::{Target, UpstreamRequest};
use cofferdam_guest_kit::bindings::types::{ErrorKind, Failure};
use cofferdam_protocol::ObjectWriter;
use serde::{Deserialize, Serialize};
use serde_json::Number;
use serde_json::value::RawValue;

use crate::blocks::{Block, Turn};
use crate::cache::{CacheControl, CacheOptions, Marking};
use crate::models::Model;
use crate::options;
use crate::schema::{Form, OutputFormat};
use crate::thinking::{Limits, Plan};
use crate::tools::{Choice, Offer, ToolDefinition};
use crate::turns::Conversation;

/// The beta that requests to endpoints of the tier `ultrafast` use.
const FAST_MODE: &str = "fast-mode-2026-02-01";

/// The largest number of marks in one request; the provider refuses a request with more.
const MARKS_MAX: usize = 4;

/// A translated request.
pub struct Translated {
    pub upstream: UpstreamRequest,
    /// Whether the client asked for reasoning summaries.
    pub summaries: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Stop<'a> {
    One(#[serde(borrow)] Cow<'a, str>),
    Many(Vec<String>),
}

#[derive(Default, Serialize)]
struct OutputConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<OutputFormat>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    user_id: &'a str,
}

/// The sampling fields that the model accepts.
#[derive(Default)]
struct Sampling {
    temperature: Option<Number>,
    top_p: Option<Number>,
    top_k: Option<Number>,
}

/// Translates a request for this target.
pub fn translate(request: &[u8], target: &Target) -> Result<Translated, Failure> {
    let fields = Request::parse(request).map_err(|_| unreadable())?;
    let cache_options: Option<CacheOptions<'_>> = optional(fields.prompt_cache_options)?;
    let stop: Option<Stop<'_>> = optional(fields.stop)?;
    let model = Model::of(&target.model, &target.supports);
    let marking = Marking { ttl: cache_options.as_ref().and_then(CacheOptions::ttl) };
    let instructions = fields.instructions.as_deref();
    let mut conversation = Conversation::read(instructions, &fields.input, marking)?;
    if !model.continues {
        conversation.ask_on();
    }

    let form = Form::read(&fields.text.format);
    conversation.system.extend(form.instruction.map(Block::text));
    let mut offer = Offer::read(&fields.tools, fields.tool_choice.as_ref(), fields.parallel_tool_calls)?;
    offer.cover_history(&conversation.turns);

    let limits = Limits { asked: fields.max_output_tokens, endpoint: u64::from(target.max_output) };
    let mut plan = Plan::new(fields.reasoning.as_ref(), model, limits);
    if plan.has_budget() && conversation.forbids_budget() {
        plan = Plan::without_thinking(limits);
    }
    if plan.thinks() {
        offer.choice.iter_mut().filter(|choice| choice.is_forced()).for_each(Choice::relax);
    } else {
        conversation.drop_final_thinking();
    }
    let sampling = Sampling::of(&fields, model, plan.thinks());
    let automatic = automatic_caching(&fields, cache_options.as_ref());
    limit_marks(&mut offer.tools, &mut conversation.system, &mut conversation.turns, automatic.is_some());

    let fast = target.tier == "ultrafast";
    let output_config = OutputConfig { effort: plan.effort, format: form.format };
    // The fields are in the order in which the provider caches them.
    let mut body = Vec::new();
    let mut object = ObjectWriter::new(&mut body);
    object.value("model", &target.model);
    object.value("max_tokens", plan.max_tokens);
    object.filled("tools", &offer.tools);
    object.some("tool_choice", offer.choice);
    match conversation.system.as_slice() {
        // More compatible servers support plain text than blocks.
        [Block::Text { text, cache_control: None }] => object.value("system", text),
        blocks => object.filled("system", blocks),
    }
    object.value("messages", &conversation.turns);
    object.some("cache_control", automatic);
    object.some("thinking", plan.thinking);
    object.some("output_config", Some(output_config).filter(|config| !config.is_empty()));
    object.some("temperature", sampling.temperature);
    object.some("top_p", sampling.top_p);
    object.some("top_k", sampling.top_k);
    object.filled("stop_sequences", &stop_sequences(stop.as_ref()));
    object.some("metadata", user_id(&fields).map(|user_id| Metadata { user_id }));
    object.some("service_tier", service_tier(&fields, &target.tier));
    object.some("speed", fast.then_some("fast"));
    object.some("stream", fields.stream.then_some(true));
    object.end();
    let upstream = options::apply(body, &target.options, fast.then_some(FAST_MODE), fields.stream);
    let summaries = fields.reasoning.as_ref().is_some_and(|reasoning| reasoning.summary.is_some());
    Ok(Translated { upstream, summaries })
}

impl Sampling {
    /// Anthropic's temperature ends at 1. Some models accept only a part of the three fields, and
    /// with thinking none of them may be set.
    fn of(request: &Request<'_>, model: Model, thinks: bool) -> Self {
        if thinks || model.fixed_sampling {
            return Self::default();
        }
        let clamped = |number: &Number| match number.as_f64() {
            Some(value) if value > 1.0 => Number::from(1),
            Some(value) if value < 0.0 => Number::from(0),
            _ => number.clone(),
        };
        let temperature = request.temperature.as_ref().map(clamped);
        let top_p = request.top_p.clone().filter(|_| temperature.is_none() || !model.one_sampler);
        Self { temperature, top_p, top_k: request.top_k.clone() }
    }
}

/// Removes marks beyond the provider's limit, earliest first, because a later mark covers a longer
/// prefix. `automatic` says that the request itself carries a mark, which counts too.
fn limit_marks(
    tools: &mut [ToolDefinition<'_>],
    system: &mut [Block<'_>],
    turns: &mut [Turn<'_>],
    automatic: bool,
) {
    let mut marks: Vec<&mut Option<CacheControl>> = Vec::new();
    marks.extend(tools.iter_mut().map(|tool| &mut tool.cache_control));
    marks.extend(system.iter_mut().filter_map(Block::cache_control_mut));
    for block in turns.iter_mut().flat_map(|turn| &mut turn.content) {
        match block {
            Block::ToolResult { content, .. } => {
                marks.extend(content.iter_mut().filter_map(Block::cache_control_mut));
            }
            other => marks.extend(other.cache_control_mut()),
        }
    }
    marks.retain(|mark| mark.is_some());
    let surplus = marks.len().saturating_sub(MARKS_MAX.saturating_sub(usize::from(automatic)));
    for mark in marks.into_iter().take(surplus) {
        *mark = None;
    }
}

/// The mark for automatic caching, when the client asked for it by either field and did not
/// choose explicit marks.
fn automatic_caching(request: &Request<'_>, options: Option<&CacheOptions<'_>>) -> Option<CacheControl> {
    if options.is_some_and(CacheOptions::is_explicit) {
        return None;
    }
    let implicit = options.filter(|options| options.asks_for_automatic());
    let implicit = implicit.map(|options| CacheControl::lasting(options.ttl()));
    request.cache_control.and_then(CacheControl::read).or(implicit)
}

/// The stop sequences without those that are only white space, which the provider refuses.
fn stop_sequences<'a>(stop: Option<&'a Stop<'_>>) -> Vec<&'a str> {
    let sequences: Vec<&str> = match stop {
        None => Vec::new(),
        Some(Stop::One(one)) => vec![one],
        Some(Stop::Many(many)) => many.iter().map(String::as_str).collect(),
    };
    sequences.into_iter().filter(|sequence| !sequence.trim().is_empty()).collect()
}

/// The user id, unless the provider would refuse it: it refuses ids that look like a mail
/// address and ids that are too long.
fn user_id<'a>(request: &'a Request<'_>) -> Option<&'a str> {
    let id = request.safety_identifier.as_deref().or(request.user.as_deref())?;
    (!id.is_empty() && !id.contains('@') && id.chars().count() <= 256).then_some(id)
}

/// The provider's tier. `auto` may use the capacity that the operator reserved at the provider;
/// the provider assumes `auto` when the field is absent.
fn service_tier(request: &Request<'_>, endpoint: &str) -> Option<&'static str> {
    if endpoint == "priority" {
        return Some("auto");
    }
    match request.service_tier.as_deref() {
        Some("default") => Some("standard_only"),
        Some("auto" | "priority" | "fast") => Some("auto"),
        _ => None,
    }
}

impl OutputConfig {
    fn is_empty(&self) -> bool {
        self.effort.is_none() && self.format.is_none()
    }
}

/// A field that is read further.
fn optional<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>) -> Result<Option<T>, Failure> {
    raw.map(|raw| serde_json::from_str(raw.get())).transpose().map_err(|_| unreadable())
}

fn unreadable() -> Failure {
    Failure::new(ErrorKind::Server, "the request could not be translated")
}

#[cfg(test)]
mod tests;
