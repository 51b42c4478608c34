//! The decoder. It holds the end of the answer back: usage comes in a chunk after the finish
//! reason, and some servers send neither that chunk nor `[DONE]`.

use std::borrow::Cow;
use std::cell::RefCell;

use cofferdam_dialect_openai::{Fields, failure, log_probabilities, map_reported, on_one_line, served_tier};
use cofferdam_guest_kit::bindings::generation::{Event, Finish, FinishReason, Image, TextDelta};
use cofferdam_guest_kit::bindings::types::{ErrorKind, Failure, Usage};
use cofferdam_guest_kit::{DataUrl, Events, Malformed, MaybeText, ReadAnswer, json, reported_error};
use cofferdam_protocol::ObjectWriter;
use serde_json::value::RawValue;

use crate::calls::Calls;
use crate::thought::{self, Thought};
use crate::wire::{Choice, Chunk, ContentPart, Delta, Logprobs};

thread_local! {
    /// The id of the current request, for calls that arrive without an id, and the provider's
    /// name of the model, for the seals of its reasoning.
    pub(crate) static PREPARED: RefCell<(String, String)> = const { RefCell::new((String::new(), String::new())) };
}

/// Translates one answer.
#[derive(Default)]
pub(crate) struct Answer {
    streamed: bool,
    events: Events,
    calls: Calls,
    reason: Option<String>,
    usage: Option<Usage>,
    service_tier: Option<String>,
    images: u32,
    /// Pictures that are not passed on yet. Citations of a text may come after the pictures that follow
    /// it, and a picture ends the text.
    pictures: Vec<Image>,
    /// The provider's name of the model.
    model: String,
    /// `reasoning_content` that is not sealed yet.
    thought: String,
    /// Whether a part of the answer has been passed on.
    begun: bool,
}

impl ReadAnswer for Answer {
    const MALFORMED: &'static str = failure::MALFORMED;

    fn begin(streamed: bool) -> Self {
        PREPARED.with_borrow(|(id, model)| Self::new(streamed, id, model))
    }

    fn events(&mut self) -> &mut Events {
        &mut self.events
    }

    fn frame(&mut self, _name: &str, data: &str) -> Result<(), Malformed> {
        self.on_data(data)
    }

    /// An answer without a finish reason was cut off.
    fn connection_ended(&mut self) -> Result<(), Malformed> {
        if self.reason.is_some() {
            return self.complete();
        }
        self.release_pictures();
        Ok(())
    }
}

impl Answer {
    pub(crate) fn new(streamed: bool, request_id: &str, model: &str) -> Self {
        Self { streamed, calls: Calls::new(request_id), model: model.to_owned(), ..Self::default() }
    }

    fn on_data(&mut self, data: &str) -> Result<(), Malformed> {
        if data.is_empty() && self.streamed {
            return Ok(());
        }
        if data == "[DONE]" {
            // Some servers never send a finish reason. Without any content there is no answer.
            return if self.reason.is_some() || self.begun { self.complete() } else { Ok(()) };
        }
        let chunk: Chunk<'_> = json::from_str(data)?;
        let groq_error = || reported_error(chunk.x_groq.as_ref().and_then(|groq| groq.error));
        let error = reported_error(chunk.error).or_else(groq_error);
        if let Some(error) = error.or_else(|| (chunk.object.as_str() == "error").then_some(data)) {
            self.release_pictures();
            self.events.fail(map_reported(error));
            return Ok(());
        }
        self.service_tier = served_tier(chunk.service_tier.as_str()).or(self.service_tier.take());
        let choice = chunk.choices.0.first();
        if let Some(choice) = choice {
            self.on_choice(choice)?;
        }
        let usage = chunk.usage.as_ref().or(chunk.x_groq.as_ref().and_then(|groq| groq.usage.as_ref()));
        let usage = usage.or(choice.and_then(|choice| choice.usage.as_ref())).map(|usage| usage.total());
        let counted = usage.is_some();
        self.usage = usage.or(self.usage.take());
        if !self.streamed {
            return if choice.is_some() { self.complete() } else { Err(Malformed) };
        }
        if counted && self.reason.is_some() { self.complete() } else { Ok(()) }
    }

    fn on_choice(&mut self, choice: &Choice<'_>) -> Result<(), Malformed> {
        if let Some(delta) = &choice.delta {
            self.on_content(delta, choice.logprobs);
            for part in &delta.tool_calls.0 {
                self.begun = true;
                self.seal(part.signature());
                self.calls.take_piece(part, &mut self.events)?;
            }
            if let Some(named) = &delta.function_call {
                self.seal(None);
                self.calls.take_only(named, &mut self.events)?;
            }
        }
        // Some servers end a stream with the whole message; it is used only if no delta came.
        if let Some(message) = choice.message.as_ref().filter(|_| !self.begun) {
            self.on_content(message, choice.logprobs);
            for part in &message.tool_calls.0 {
                self.begun = true;
                self.seal(part.signature());
                self.calls.take_whole(part, &mut self.events)?;
            }
            if let Some(named) = message.function_call.as_ref().filter(|_| self.calls.is_empty()) {
                self.seal(None);
                self.calls.take_only(named, &mut self.events)?;
            }
        }
        self.begun |= !self.calls.is_empty();
        if let Some(reason) = choice.finish_reason.0.as_deref().filter(|reason| !reason.is_empty()) {
            self.reason = Some(reason.chars().filter(|c| !c.is_control()).take(64).collect());
        }
        Ok(())
    }

    fn on_content(&mut self, delta: &Delta<'_>, logprobs: Option<&RawValue>) {
        let reasoning = [&delta.reasoning_content, &delta.reasoning];
        if let Some(text) = reasoning.into_iter().find_map(text_of) {
            self.thought.push_str(delta.reasoning_content.as_str());
            self.push(Event::ReasoningTextDelta(text));
        }
        if let Some(text) = &delta.content.text {
            self.text(text, logprobs);
        }
        for part in &delta.content.list {
            self.on_part(part);
        }
        if let Some(text) = text_of(&delta.refusal) {
            self.push(Event::RefusalDelta(text));
        }
        for annotation in delta.annotations.0.iter().filter(|annotation| annotation.get().starts_with('{')) {
            self.push(Event::Annotation(flat_annotation(annotation)));
        }
        for image in &delta.images.0 {
            self.image(image);
        }
    }

    fn text(&mut self, text: &str, logprobs: Option<&RawValue>) {
        if text.is_empty() {
            return;
        }
        let logprobs = logprobs.and_then(|json| json::from_str::<Logprobs<'_>>(json.get()).ok());
        let logprobs = log_probabilities(logprobs.and_then(|logprobs| logprobs.content));
        self.push(Event::TextDelta(TextDelta { text: text.to_owned(), logprobs }));
    }

    fn on_part(&mut self, part: &ContentPart<'_>) {
        let thinking = part.thinking.list.iter().map(|part| part.text.as_str());
        let thinking: String = part.thinking.text.as_deref().into_iter().chain(thinking).collect();
        if !thinking.is_empty() {
            self.push(Event::ReasoningTextDelta(thinking));
        }
        self.text(part.text.as_str(), None);
        self.image(part);
    }

    fn image(&mut self, part: &ContentPart<'_>) {
        let Some(url) = part.image_url.as_ref().map(|image| image.url.as_str()) else { return };
        match DataUrl::parse(url) {
            Some(data) if data.base64 && !data.data.is_empty() => {
                let key = self.images;
                self.images = self.images.saturating_add(1);
                self.begun = true;
                if self.pictures.is_empty() {
                    self.seal(None);
                }
                self.pictures.push(Image {
                    key,
                    partial_index: 0,
                    base64: data.data.to_owned(),
                    media_type: data.media_type.to_ascii_lowercase(),
                });
            }
            // An image at a URL cannot be fetched here, so its address becomes text.
            None if url.starts_with("https://") => self.text(&format!("![image]({url})"), None),
            _ => {}
        }
    }

    /// Ends the reasoning that came as `reasoning_content`, because another kind of content follows,
    /// for example a call with a signature.
    fn seal(&mut self, extra: Option<&RawValue>) {
        self.release_pictures();
        let text = Some(std::mem::take(&mut self.thought)).filter(|text| !text.is_empty());
        let extra = extra.filter(|extra| extra.get().starts_with('{'));
        if text.is_some() || extra.is_some() {
            let thought = Thought { text: text.map(Cow::Owned), extra: extra.map(ToOwned::to_owned) };
            self.events.push(Event::ReasoningSeal(thought::seal(&self.model, thought)));
        }
    }

    fn push(&mut self, event: Event) {
        self.begun = true;
        match event {
            Event::Annotation(_) if !self.pictures.is_empty() => {}
            Event::ReasoningTextDelta(_) => self.release_pictures(),
            _ => self.seal(None),
        }
        self.events.push(event);
    }

    fn release_pictures(&mut self) {
        self.events.extend(self.pictures.drain(..).map(Event::ImageDone));
    }

    /// Sends the events that were held back: the ends of calls, usage and finish.
    fn complete(&mut self) -> Result<(), Malformed> {
        let reason = self.reason.take();
        let reason = match finish_reason(reason.as_deref().unwrap_or("stop"), !self.calls.is_empty()) {
            Ok(reason) => reason,
            Err(kind) => return self.interrupt(kind),
        };
        self.seal(None);
        let is_cut = matches!(reason, FinishReason::Length | FinishReason::ContentFilter);
        let calls = self.calls.finish(is_cut, &mut self.events);
        if matches!(reason, FinishReason::Stop | FinishReason::ToolCalls) {
            calls?;
        }
        self.report_usage();
        self.events.end(Event::Finish(Finish { reason, service_tier: self.service_tier.take() }));
        Ok(())
    }

    /// The server aborted the answer.
    fn interrupt(&mut self, kind: ErrorKind) -> Result<(), Malformed> {
        self.release_pictures();
        self.report_usage();
        self.events.fail(Failure::new(kind, "The provider broke off its answer."));
        Ok(())
    }

    fn report_usage(&mut self) {
        if let Some(usage) = self.usage.take() {
            self.events.push(Event::Usage(Usage { images: self.images, ..usage }));
        }
    }
}

/// Reads why the answer ended; an error if the server aborted it. Servers pass on the words of the
/// providers behind them, which may be in upper case.
fn finish_reason(reason: &str, has_calls: bool) -> Result<FinishReason, ErrorKind> {
    Ok(match &*reason.to_ascii_lowercase() {
        "stop" | "eos" | "end_turn" | "stop_sequence" if !has_calls => FinishReason::Stop,
        // Several servers send `stop` although the model made calls.
        "stop" | "eos" | "end_turn" | "stop_sequence" | "tool_calls" | "tool_use" | "function_call" => {
            FinishReason::ToolCalls
        }
        "length"
        | "max_tokens"
        | "max_output_tokens"
        | "model_length"
        | "model_context_window_exceeded"
        | "pause_turn" => FinishReason::Length,
        "content_filter" | "content-filter" | "sensitive" | "safety" | "recitation" | "blocklist"
        | "prohibited_content" | "spii" | "refusal" => FinishReason::ContentFilter,
        "insufficient_system_resource" => return Err(ErrorKind::ProviderOverloaded),
        "error" | "abort" | "network_error" | "timeout" | "malformed_function_call" => {
            return Err(ErrorKind::ProviderUnavailable);
        }
        _ => FinishReason::Other(reason.to_owned()),
    })
}

fn text_of(text: &MaybeText<'_>) -> Option<String> {
    text.0.as_ref().filter(|text| !text.is_empty()).map(|text| Cow::clone(text).into_owned())
}

/// Chat Completions puts the fields of an annotation into an object named after its type. The
/// Responses API has them next to the type.
fn flat_annotation(annotation: &RawValue) -> Vec<u8> {
    let flat = || {
        let outer = Fields::read(annotation.get()).ok()?;
        let kind = outer.text("type")?;
        let inner = Fields::read(outer.get(&kind)?.get()).ok()?;
        let mut out = Vec::new();
        let mut object = ObjectWriter::new(&mut out);
        object.value("type", kind);
        for (name, value) in inner.iter().filter(|(name, _)| *name != "type") {
            object.foreign_name(name).extend_from_slice(&on_one_line(value));
        }
        object.end();
        Some(out)
    };
    flat().unwrap_or_else(|| on_one_line(annotation))
}
