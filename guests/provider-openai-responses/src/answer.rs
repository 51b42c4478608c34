//! The decoder. The upstream server sends every text up to four times: as deltas, at the end of the
//! part, at the end of the item and at the end of the response. Imitations leave out any three of
//! these, so each item records what has been passed on.

mod item;
mod pictures;

use cofferdam_dialect_openai::{Fields, failure, log_probabilities, map_reported, on_one_line, served_tier};
use cofferdam_guest_kit::bindings::generation::{
    CallDelta, CallStart, Event, Finish, FinishReason, Image, ReasoningSeal, SummaryDelta, TextDelta,
};
use cofferdam_guest_kit::{Events, Malformed, MaybeText, ReadAnswer, json, reported_error};
use cofferdam_protocol::{ItemRole, ObjectWriter, ToolClass, ToolKind, write_value};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::seal;
use crate::wire::{ItemHead, PartBody, Response, StreamEvent, WholeItem};
use item::{Item, ItemRef, Items, Kind, Piece};
use pictures::Pictures;

/// The members of annotations that are positions in the text of their part.
const POSITIONS: [&str; 3] = ["start_index", "end_index", "index"];

/// Translates one answer.
#[derive(Default)]
pub(crate) struct Answer {
    streamed: bool,
    items: Items,
    pictures: Pictures,
    events: Events,
    /// Whether reasoning was passed on and its item has not ended yet.
    reasoning_open: bool,
    /// Whether the client must act before the model can continue.
    waits: bool,
    images: u32,
    searches: u32,
}

impl ReadAnswer for Answer {
    const MALFORMED: &'static str = failure::MALFORMED;

    fn begin(streamed: bool) -> Self {
        Self { streamed, ..Self::default() }
    }

    fn events(&mut self) -> &mut Events {
        &mut self.events
    }

    fn frame(&mut self, name: &str, data: &str) -> Result<(), Malformed> {
        if self.streamed { self.on_frame(name, data) } else { self.on_body(data) }
    }

    fn connection_ended(&mut self) -> Result<(), Malformed> {
        self.pass_pictures_on(true);
        Ok(())
    }
}

impl Answer {
    fn on_frame(&mut self, name: &str, data: &str) -> Result<(), Malformed> {
        if data.is_empty() || data == "[DONE]" {
            return Ok(());
        }
        let event: StreamEvent<'_> = json::from_str(data)?;
        let kind = event.kind.0.as_deref().unwrap_or(name);
        match kind {
            "response.output_text.delta" => {
                self.delta(&event, Piece::Text(event.content_index.0.unwrap_or_default()));
            }
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                self.delta(&event, Piece::Input);
            }
            "response.reasoning_text.delta" | "response.reasoning.delta" => {
                self.delta(&event, Piece::Reasoning(event.content_index.0.unwrap_or_default()));
            }
            "response.reasoning_summary_text.delta" => {
                self.delta(&event, Piece::Summary(event.summary_index.0.unwrap_or_default()));
            }
            "response.refusal.delta" => {
                self.delta(&event, Piece::Refusal(event.content_index.0.unwrap_or_default()))
            }
            "response.output_item.added" => self.added(&event)?,
            "response.output_item.done" => self.done(event.item.ok_or(Malformed)?, ItemRef::of(&event))?,
            "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled" => {
                let response: Response<'_> = json::from_str(event.response.ok_or(Malformed)?.get())?;
                self.end(&response, kind.trim_start_matches("response."))?;
            }
            "error" => self.fail(data),
            "" => match reported_error(event.error) {
                Some(error) => self.fail(error),
                None => return Ok(()),
            },
            other => self.on_rare(other, &event)?,
        }
        Ok(())
    }

    /// Handles the events that most answers have at most once.
    fn on_rare(&mut self, kind: &str, event: &StreamEvent<'_>) -> Result<(), Malformed> {
        match kind {
            "response.output_text.done" => {
                self.whole(event, Piece::Text(event.content_index.0.unwrap_or_default()), &event.text)
            }
            "response.refusal.done" => {
                self.whole(event, Piece::Refusal(event.content_index.0.unwrap_or_default()), &event.refusal)
            }
            "response.reasoning_text.done" => {
                self.whole(event, Piece::Reasoning(event.content_index.0.unwrap_or_default()), &event.text);
            }
            "response.reasoning_summary_text.done" => {
                self.whole(event, Piece::Summary(event.summary_index.0.unwrap_or_default()), &event.text);
            }
            "response.function_call_arguments.done" => self.whole(event, Piece::Input, &event.arguments),
            "response.custom_tool_call_input.done" => self.whole(event, Piece::Input, &event.input),
            "response.content_part.done" => {
                let part: PartBody<'_> = json::from_str(event.part.ok_or(Malformed)?.get())?;
                let index = event.content_index.0.unwrap_or_default();
                // Reasoning parts are passed on by their own events.
                if part.owner() == Kind::Message
                    && let Some(at) = self.item_for(ItemRef::of(event), Kind::Message)
                {
                    self.part(at, index, &part);
                }
            }
            "response.output_text.annotation.added" => self.annotation(event),
            "response.image_generation_call.partial_image" => self.partial_image(event),
            _ => {}
        }
        Ok(())
    }

    fn delta(&mut self, event: &StreamEvent<'_>, piece: Piece) {
        let Some(text) = event.delta.0.as_deref().filter(|text| !text.is_empty()) else { return };
        let Some(at) = self.item_for(ItemRef::of(event), piece.kind()) else { return };
        self.items.mark(at, piece);
        self.pass_on(at, piece, text, event.logprobs);
    }

    /// The end of a piece, with its whole text. It is used when no deltas came.
    fn whole(&mut self, event: &StreamEvent<'_>, piece: Piece, text: &MaybeText<'_>) {
        if let Some(at) = self.item_for(ItemRef::of(event), piece.kind()) {
            self.rest(at, piece, text, event.logprobs);
        }
    }

    /// Passes a piece on, unless a part of it has already been passed on.
    fn rest(&mut self, at: usize, piece: Piece, text: &MaybeText<'_>, logprobs: Option<&RawValue>) {
        let Some(text) = text.0.as_deref().filter(|text| !text.is_empty()) else { return };
        if self.items.mark(at, piece) {
            self.pass_on(at, piece, text, logprobs);
        }
    }

    fn pass_on(&mut self, at: usize, piece: Piece, text: &str, logprobs: Option<&RawValue>) {
        match piece {
            Piece::Text(part) => self.items.add_text(at, part, text),
            Piece::Refusal(_) => self.items.end_text(at),
            _ => {}
        }
        let text = text.to_owned();
        let key = self.items.key(at);
        let event = match (piece, self.items.kind(at)) {
            (Piece::Text(_), _) => {
                Event::TextDelta(TextDelta { text, logprobs: log_probabilities(logprobs) })
            }
            (Piece::Refusal(_), _) => Event::RefusalDelta(text),
            (Piece::Reasoning(_), _) => Event::ReasoningTextDelta(text),
            (Piece::Summary(part), _) => Event::ReasoningSummaryDelta(SummaryDelta {
                part: u32::try_from(part).unwrap_or_default(),
                text,
            }),
            (Piece::Input, Kind::Custom) => Event::CustomInputDelta(CallDelta { key, text }),
            (Piece::Input, _) => Event::FunctionArgumentsDelta(CallDelta { key, text }),
        };
        self.reasoning_open = matches!(piece, Piece::Reasoning(_) | Piece::Summary(_));
        self.events.push(event);
    }

    /// The item that an event belongs to. Messages and reasoning may begin with any event. A call
    /// cannot begin without its name, so its deltas are skipped until the whole item comes.
    fn item_for(&mut self, item: ItemRef<'_>, kind: Kind) -> Option<usize> {
        let call = matches!(kind, Kind::Function);
        let fits = |item: &Item| item.kind == kind || (call && item.kind == Kind::Custom);
        self.items.find(item, fits).or_else(|| (!call).then(|| self.open(item, kind, &ItemHead::default())))
    }

    fn open(&mut self, item: ItemRef<'_>, kind: Kind, head: &ItemHead<'_>) -> usize {
        let at = self.items.open(item, kind);
        let key = self.items.key(at);
        match kind {
            Kind::Message => {
                let phase =
                    head.phase.0.as_deref().filter(|phase| matches!(*phase, "commentary" | "final_answer"));
                self.events.push(Event::MessageStart(phase.map(str::to_owned)));
            }
            // Two reasoning items without a seal between them would become one item.
            Kind::Reasoning if self.reasoning_open => self.end_reasoning(None),
            Kind::Function | Kind::Custom => {
                let owned = |text: &MaybeText<'_>| text.as_str().to_owned();
                let namespace = Some(owned(&head.namespace)).filter(|namespace| !namespace.is_empty());
                let call_id = owned(if head.call_id.as_str().is_empty() { &head.id } else { &head.call_id });
                let start = CallStart { key, call_id, name: owned(&head.name), namespace };
                self.events.push(if kind == Kind::Custom {
                    Event::CustomCallStart(start)
                } else {
                    Event::FunctionCallStart(start)
                });
                self.waits = true;
            }
            Kind::Reasoning | Kind::Image | Kind::Opaque => return at,
        }
        self.reasoning_open = false;
        at
    }

    fn end_reasoning(&mut self, sealed: Option<String>) {
        let format = sealed.is_some().then(|| seal::FORMAT.to_owned());
        self.events.push(Event::ReasoningSeal(ReasoningSeal {
            signature: None,
            encrypted_content: sealed,
            format,
        }));
        self.reasoning_open = false;
    }

    fn added(&mut self, event: &StreamEvent<'_>) -> Result<(), Malformed> {
        let head: ItemHead<'_> = json::from_str(event.item.ok_or(Malformed)?.get())?;
        let kind = Kind::of(head.kind.as_str());
        let item = ItemRef::of(event).or_id(head.id.as_str());
        let nameless = matches!(kind, Kind::Function | Kind::Custom)
            && (head.name.as_str().is_empty() || head.call_id.as_str().is_empty());
        if !nameless && self.items.find_same(item, kind).is_none() {
            self.open(item, kind, &head);
        }
        Ok(())
    }

    /// A whole item. Everything that has not been passed on yet is passed on now.
    fn done(&mut self, raw: &RawValue, item: ItemRef<'_>) -> Result<(), Malformed> {
        // A list would be read as the fields of an item in their order.
        if !raw.get().starts_with('{') {
            return Err(Malformed);
        }
        // Usually one pass is enough. An opaque item may have fields of other types than the translated
        // items; then only its head is read.
        let mut whole = json::from_str::<WholeItem<'_>>(raw.get());
        let head = match &mut whole {
            Ok(whole) => whole.take_head(),
            Err(_) => json::from_str(raw.get())?,
        };
        let kind = Kind::of(head.kind.as_str());
        let item = item.or_id(head.id.as_str());
        let at = match self.items.find_whole(item, kind) {
            Some(at) => at,
            None => self.open(item, kind, &head),
        };
        if !self.items.finish(at) {
            return Ok(());
        }
        if kind == Kind::Opaque {
            self.opaque(head.kind.as_str(), raw);
            return Ok(());
        }
        let body = whole?;
        match kind {
            Kind::Message => self.message(at, &body),
            Kind::Reasoning => self.reasoning(at, &head, &body),
            Kind::Function | Kind::Custom => {
                let text = if kind == Kind::Custom { &body.input } else { &body.arguments };
                self.rest(at, Piece::Input, text, None);
                self.reasoning_open = false;
                // A call that was cut off is not ended, and nothing may be added to its arguments.
                if body.status.as_str() == "incomplete" {
                    return Ok(());
                }
                // A function without parameters: clients parse the arguments, so they must be valid JSON.
                if kind == Kind::Function && !self.items.has_like(at, Piece::Input) {
                    self.pass_on(at, Piece::Input, "{}", None);
                }
                self.events.push(Event::CallEnd(self.items.key(at)));
            }
            Kind::Image | Kind::Opaque => self.image(at, raw, &body),
        }
        Ok(())
    }

    /// Passes on all parts of a message. If the message has only one part, its text counts as passed
    /// on whatever index the deltas had.
    fn message(&mut self, at: usize, body: &WholeItem<'_>) {
        for (part, index) in body.content.0.iter().zip(0..) {
            if body.content.0.len() > 1 || !self.items.has_like(at, Piece::Text(index)) {
                self.part(at, index, part);
            } else {
                self.annotations(at, index, part);
            }
        }
    }

    fn part(&mut self, at: usize, index: u64, part: &PartBody<'_>) {
        if part.kind.as_str() == "refusal" {
            return self.rest(at, Piece::Refusal(index), &part.refusal, None);
        }
        self.rest(at, Piece::Text(index), &part.text, part.logprobs);
        self.annotations(at, index, part);
    }

    fn annotations(&mut self, at: usize, index: u64, part: &PartBody<'_>) {
        let passed_on = self.items.annotations(at, index);
        for annotation in part.annotations.0.iter().skip(passed_on) {
            self.annotate(at, index, annotation);
        }
    }

    fn annotation(&mut self, event: &StreamEvent<'_>) {
        let Some(annotation) = event.annotation else { return };
        if let Some(at) = self.item_for(ItemRef::of(event), Kind::Message) {
            self.annotate(at, event.content_index.0.unwrap_or_default(), annotation);
        }
    }

    fn annotate(&mut self, at: usize, index: u64, annotation: &RawValue) {
        if annotation.get().starts_with('{') {
            self.items.annotate(at, index);
            self.events.push(Event::Annotation(moved(annotation, self.items.start(at, index))));
        }
    }

    fn reasoning(&mut self, at: usize, head: &ItemHead<'_>, body: &WholeItem<'_>) {
        for (part, index) in body.summary.0.iter().zip(0..) {
            self.rest(at, Piece::Summary(index), &part.text, None);
        }
        for (part, index) in body.content.0.iter().zip(0..) {
            self.rest(at, Piece::Reasoning(index), &part.text, None);
        }
        let payload = body.encrypted_content.as_str();
        if !payload.is_empty() && seal::is_id(head.id.as_str()) {
            self.end_reasoning(Some(seal::seal(head.id.as_str(), payload)));
        }
    }

    fn partial_image(&mut self, event: &StreamEvent<'_>) {
        let base64 = event.partial_image_b64.as_str().to_owned();
        let item = ItemRef::of(event);
        if base64.is_empty() || self.items.is_done(item) {
            return;
        }
        let index = event.partial_image_index.0.and_then(|index| u32::try_from(index).ok());
        if let Some(at) = self.item_for(item, Kind::Image) {
            self.pictures.begin(at);
            self.events.push(Event::ImagePartial(Image {
                key: self.items.key(at),
                partial_index: index.unwrap_or_default(),
                base64,
                media_type: media_type(event.output_format.as_str()),
            }));
            self.reasoning_open = false;
        }
    }

    /// A finished picture is passed on as a whole item, with its prompt and format.
    fn image(&mut self, at: usize, raw: &RawValue, body: &WholeItem<'_>) {
        let is_made = !body.result.as_str().is_empty();
        self.images = self.images.saturating_add(u32::from(is_made));
        // The server leaves this status in the items of finished pictures.
        let item = match body.status.as_str() {
            "generating" if is_made => with_status(raw, "completed"),
            _ => on_one_line(raw),
        };
        self.pictures.finish(at, item);
        self.pass_pictures_on(false);
    }

    fn pass_pictures_on(&mut self, at_end: bool) {
        while let Some(picture) = self.pictures.next(at_end) {
            self.events.push(Event::OpaqueItem(picture));
            self.reasoning_open = false;
        }
    }

    /// Ends the answer with an error of the server.
    fn fail(&mut self, reported: &str) {
        self.pass_pictures_on(true);
        self.events.fail(map_reported(reported));
    }

    fn opaque(&mut self, kind: &str, raw: &RawValue) {
        match kind {
            "web_search_call" | "file_search_call" => self.searches = self.searches.saturating_add(1),
            "mcp_approval_request" => self.waits = true,
            _ => match ToolKind::of_item(kind) {
                // A search for tools may be the server's own.
                Some((ToolKind::ToolSearch, _)) => {}
                Some((tool, ItemRole::Call)) => self.waits |= tool.class() == ToolClass::Client,
                _ => {}
            },
        }
        self.events.push(Event::OpaqueItem(on_one_line(raw)));
        self.reasoning_open = false;
    }

    fn on_body(&mut self, body: &str) -> Result<(), Malformed> {
        let response: Response<'_> = json::from_str(body)?;
        if response.object.as_str() == "error" {
            self.fail(body);
            return Ok(());
        }
        let status = match (response.status.as_str(), reported_error(response.error), &response.output) {
            ("", Some(_), _) => "failed",
            ("", None, Some(_)) => "completed",
            (status, ..) => status,
        };
        self.end(&response, status)
    }

    /// The end of the answer. `status` comes from the terminal event or from the body.
    fn end(&mut self, response: &Response<'_>, status: &str) -> Result<(), Malformed> {
        for (raw, index) in response.output.iter().flat_map(|output| &output.0).zip(0..) {
            self.done(raw, ItemRef::listed(index))?;
        }
        self.pass_pictures_on(true);
        if let Some(usage) = &response.usage {
            self.events.push(Event::Usage(usage.total(self.images, self.searches)));
        }
        let reason = match status {
            "completed" if self.waits => FinishReason::ToolCalls,
            "completed" => FinishReason::Stop,
            "incomplete" => incomplete(response),
            "failed" | "cancelled" => {
                self.fail(response.error.map_or("null", RawValue::get));
                return Ok(());
            }
            _ => return Err(Malformed),
        };
        let service_tier = served_tier(response.service_tier.as_str());
        self.events.end(Event::Finish(Finish { reason, service_tier }));
        Ok(())
    }
}

fn incomplete(response: &Response<'_>) -> FinishReason {
    let reason = response.incomplete_details.as_ref().map_or("", |details| details.reason.as_str());
    match reason {
        "content_filter" => FinishReason::ContentFilter,
        // Servers have words of their own for a limit. The answer is incomplete whatever the word is.
        _ => FinishReason::Length,
    }
}

/// The annotation with its positions in the text, which count Unicode scalar values, moved by `by`.
fn moved(annotation: &RawValue, by: usize) -> Vec<u8> {
    if by == 0 {
        return on_one_line(annotation);
    }
    rewritten(annotation, |name, value| {
        let position: usize = value.get().parse().ok().filter(|_| POSITIONS.contains(&name))?;
        Some(position.saturating_add(by).into())
    })
}

/// The item with another `status`.
fn with_status(item: &RawValue, status: &str) -> Vec<u8> {
    rewritten(item, |name, _| (name == "status").then(|| status.into()))
}

/// The object with the values that `change` gives in place of its own.
fn rewritten(object: &RawValue, change: impl Fn(&str, &RawValue) -> Option<Value>) -> Vec<u8> {
    let Ok(fields) = Fields::read(object.get()) else { return on_one_line(object) };
    let mut out = Vec::with_capacity(object.get().len() + 16);
    let mut writer = ObjectWriter::new(&mut out);
    for (name, value) in fields.iter() {
        let out = writer.foreign_name(name);
        match change(name, value) {
            Some(value) => write_value(value, out),
            None => out.extend(on_one_line(value)),
        }
    }
    writer.end();
    out
}

fn media_type(format: &str) -> String {
    let format = match format {
        "jpeg" | "jpg" => "jpeg",
        "webp" => "webp",
        _ => "png",
    };
    format!("image/{format}")
}
