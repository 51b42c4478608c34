//! Composes an answer: reasoning if requested, then calls, a document or text.

use cofferdam_guest_kit::bindings::generation::{Event, FinishReason, ReasoningSeal};
use cofferdam_guest_kit::{ReasoningSettings, Request, TextFormat, fnv_1a};
use serde_json::{Value, json};

use crate::calls;
use crate::conversation::Conversation;
use crate::fill::Filler;
use crate::writer::Writer;

/// The model's description of itself.
const WHO: &str = "I am local/demo, a demonstration model: fixed rules, not an AI.";
/// The format name of sealed reasoning.
const SEAL_FORMAT: &str = "cofferdam-demo-v1";
/// The longest quotation of the last message, in characters.
const QUOTE_CHARS_MAX: usize = 4000;
/// The longest quotation of any other text, in characters.
const ASIDE_CHARS_MAX: usize = 1000;
/// How many earlier messages an answer mentions.
const EARLIER_MAX: usize = 3;

/// The whole answer to a request.
pub(crate) fn answer(request: &Request<'_>, tier: &str, request_id: &str) -> Vec<Event> {
    let conversation = Conversation::of(request);
    let calls = calls::plan(request, &conversation);
    let logprobs = request.top_logprobs.is_some_and(|count| count > 0)
        || request.include.iter().any(|name| name == "message.output_text.logprobs");
    let mut writer = Writer::new(request.max_output_tokens, request.stream, logprobs);
    if let Some(settings) = &request.reasoning {
        reason(&mut writer, request, settings, calls.len());
    }
    if calls.is_empty() {
        writer.text(&reply(request, &conversation));
        return writer.finish(FinishReason::Stop, conversation.input_tokens, tier);
    }
    for (key, call) in (0..).zip(&calls) {
        if writer.is_cut() {
            break;
        }
        writer.call(key, call_id(request_id, key), call);
    }
    writer.finish(FinishReason::ToolCalls, conversation.input_tokens, tier)
}

fn reason(writer: &mut Writer, request: &Request<'_>, settings: &ReasoningSettings<'_>, calls: usize) {
    let effort = settings.effort.as_deref();
    let asked = effort.is_some() || settings.summary.is_some() || settings.enabled == Some(true);
    let asked = asked || settings.max_tokens.is_some_and(|tokens| tokens > 0);
    if !asked || effort == Some("none") || settings.enabled == Some(false) {
        return;
    }
    let mut text = "I compare the words of the last message with the functions on offer.".to_owned();
    if !matches!(effort, Some("minimal" | "low")) {
        text.push_str(&match calls {
            0 => " None is asked for, so I answer myself.".to_owned(),
            1 => " One is asked for.".to_owned(),
            many => format!(" {many} are asked for."),
        });
    }
    if matches!(effort, Some("high" | "xhigh" | "max")) {
        text.push_str(" There is nothing else to think about: the rules are fixed.");
    }
    writer.reasoning(&text, settings.summary.is_some());
    if request.include.iter().any(|name| name == "reasoning.encrypted_content") {
        writer.seal(ReasoningSeal {
            signature: None,
            encrypted_content: Some(format!("{SEAL_FORMAT}:{:016x}", fnv_1a(text.bytes()))),
            format: Some(SEAL_FORMAT.to_owned()),
        });
    }
}

fn reply(request: &Request<'_>, conversation: &Conversation) -> String {
    match &request.text.format {
        TextFormat::JsonObject => document(conversation).to_string(),
        TextFormat::JsonSchema { schema, .. } => {
            let schema: Value = serde_json::from_str(schema.get()).unwrap_or(Value::Bool(true));
            Filler::for_answer(&schema, &source(conversation)).fill().to_string()
        }
        TextFormat::Text | TextFormat::Other { .. } => {
            prose(conversation, request.text.verbosity.as_deref() == Some("low"))
        }
    }
}

/// The text that a document is filled from: the message, then the results of calls.
fn source(conversation: &Conversation) -> String {
    let results = conversation.results.iter().map(|result| result.output.as_str());
    let texts: Vec<&str> = std::iter::once(conversation.message.as_str()).chain(results).collect();
    shortened(&texts.join("\n"), QUOTE_CHARS_MAX)
}

fn document(conversation: &Conversation) -> Value {
    let mut document = json!({
        "model": "local/demo",
        "notice": WHO,
        "message": shortened(&conversation.message, QUOTE_CHARS_MAX),
    });
    if let Value::Object(fields) = &mut document {
        if !conversation.instructions.is_empty() {
            let instructions = shortened(&conversation.instructions.join("\n"), ASIDE_CHARS_MAX);
            fields.insert("instructions".to_owned(), Value::String(instructions));
        }
        if !conversation.results.is_empty() {
            let result = |result: &crate::conversation::CallResult| json!({ "function": result.name, "output": shortened(&result.output, ASIDE_CHARS_MAX) });
            fields.insert("results".to_owned(), conversation.results.iter().map(result).collect());
        }
    }
    document
}

/// An answer in sentences. `brief` leaves out earlier messages and instructions, which only show
/// that the rest of the request arrived.
fn prose(conversation: &Conversation, brief: bool) -> String {
    let mut sentences = vec![WHO.to_owned()];
    for result in &conversation.results {
        let output = shortened(&result.output, ASIDE_CHARS_MAX);
        sentences.push(format!("The function {} answered: {output}", result.name));
    }
    if conversation.message.is_empty() {
        sentences.push("You said nothing.".to_owned());
    } else {
        sentences.push(format!("You said: “{}”", shortened(&conversation.message, QUOTE_CHARS_MAX)));
    }
    if !conversation.attachments.is_empty() {
        sentences.push(format!("With it came: {}.", conversation.attachments.join(", ")));
    }
    if brief {
        return sentences.join(" ");
    }
    let earlier =
        conversation.earlier.iter().rev().take(EARLIER_MAX).map(|text| shortened(text, ASIDE_CHARS_MAX / 4));
    let earlier: Vec<String> = earlier.map(|text| format!("“{text}”")).collect();
    if !earlier.is_empty() {
        sentences.push(format!("Before that you said: {}", earlier.join(", ")));
    }
    if !conversation.instructions.is_empty() {
        let instructions = shortened(&conversation.instructions.join(" "), ASIDE_CHARS_MAX);
        sentences.push(format!("My instructions are: “{instructions}”"));
    }
    sentences.join(" ")
}

fn shortened(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// An id that differs for every request and call, so that clients can distinguish calls.
fn call_id(request_id: &str, key: u32) -> String {
    format!("call_{:016x}{:08x}", fnv_1a(request_id.bytes()), key.wrapping_add(1))
}
