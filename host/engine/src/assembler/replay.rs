//! Renders a finished response as a stream: its items in their order, each part in one delta. The
//! items are unchanged, apart from ids that are missing or occur twice; numbers, indexes and the
//! first and last events of the stream are made here.

use super::items::{ItemBody, ItemStatus, OutputItem, text};
use super::{Assembler, CallItem, Malformed, OUTPUT_ITEMS_MAX, hosted_calls};
use cofferdam_protocol::ObjectWriter;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

type ResponseMembers = Map<String, Value>;

/// A JSON response that is complete enough to end a stream.
struct FinishedResponse {
    members: ResponseMembers,
    terminal: &'static str,
}

impl FinishedResponse {
    /// # Errors
    /// [`Malformed`] when it is not an object with a final `status`, or its `output` is not an
    /// array of objects with a `type`.
    fn parse(response: &[u8]) -> Result<Self, Malformed> {
        let members: ResponseMembers =
            serde_json::from_slice(response).map_err(|_| Malformed::InvalidJson)?;
        let terminal = match text(&members, "status") {
            "completed" => "response.completed",
            "incomplete" => "response.incomplete",
            "failed" => "response.failed",
            _ => return Err(Malformed::InvalidJson),
        };
        let output = members.get("output").and_then(Value::as_array).ok_or(Malformed::InvalidJson)?;
        if output.len() > OUTPUT_ITEMS_MAX {
            return Err(Malformed::TooLarge);
        }
        if output.iter().any(|item| !item.get("type").is_some_and(Value::is_string)) {
            return Err(Malformed::InvalidJson);
        }
        Ok(Self { members, terminal })
    }
}

/// Checks that `response` is the JSON of a finished response.
///
/// # Errors
/// [`Malformed`] says what is wrong.
pub fn check_finished(response: &[u8]) -> Result<(), Malformed> {
    FinishedResponse::parse(response).map(drop)
}

/// Renders a finished response in steps.
pub struct ResponseReplay {
    assembler: Assembler,
    /// The forms of calls of server tools, by the ids of their items.
    calls: BTreeMap<String, Arc<CallItem>>,
    response: FinishedResponse,
    /// The index of the next item; none when the stream is complete.
    next: Option<usize>,
}

impl ResponseReplay {
    /// Renders `response`, which is the response of `made` as it is or as a hook has changed it.
    ///
    /// # Errors
    /// [`Malformed`], as for [`check_finished`].
    pub fn new(made: &Assembler, response: &[u8]) -> Result<Self, Malformed> {
        let mut response = FinishedResponse::parse(response)?;
        let identity = made.identity.clone();
        // A hook may change the response, but not its id.
        response.members.insert("id".to_owned(), Value::String(identity.response_id()));
        // Events refer to items by their ids, so each item needs an id that is unique.
        let mut known = BTreeSet::new();
        let items = response.members.get_mut("output").and_then(Value::as_array_mut).into_iter().flatten();
        for (place, item) in items.filter_map(Value::as_object_mut).enumerate() {
            let id = text(item, "id").to_owned();
            if id.is_empty() || !known.insert(id) {
                item.insert("id".to_owned(), Value::String(identity.item_id("item", place)));
            }
        }
        let calls = made.items.iter().filter_map(|item| match &item.body {
            ItemBody::Tool { item: call, .. } => Some((item.id.clone(), Arc::clone(call))),
            _ => None,
        });
        let calls = calls.collect();
        Ok(Self { assembler: Assembler::new(identity, true), calls, response, next: Some(0) })
    }

    /// The assembler, for events that are not part of the response.
    pub fn assembler(&mut self) -> &mut Assembler {
        &mut self.assembler
    }

    /// The next events as server-sent events. The terminal event and `[DONE]` come last; none after
    /// them.
    pub fn next_events(&mut self) -> Option<Vec<u8>> {
        let Self { assembler, calls, response, next } = self;
        let place = (*next)?;
        assembler.begin();
        match response.members.get("output").and_then(|output| output.get(place)?.as_object()) {
            Some(item) => {
                *next = Some(place + 1);
                assembler.replay(item, calls.get(text(item, "id")));
            }
            None => {
                *next = None;
                assembler.events.write(response.terminal, |event| event.value("response", &response.members));
                assembler.events.end();
            }
        }
        Some(assembler.take_events())
    }
}

/// How parts of one kind are rendered.
struct PartKind {
    /// The member with the index of the part.
    index: &'static str,
    /// The prefix of the names of events about the part.
    part: &'static str,
    /// The prefix of the names of events about the part's text.
    text: &'static str,
    /// The member with the text.
    member: &'static str,
    /// The part without its text.
    empty: &'static str,
    has_logprobs: bool,
}

const OUTPUT_TEXT: PartKind = PartKind {
    index: "content_index",
    part: "response.content_part",
    text: "response.output_text",
    member: "text",
    empty: "{\"type\":\"output_text\",\"text\":\"\",\"annotations\":[],\"logprobs\":[]}",
    has_logprobs: true,
};
const REFUSAL: PartKind = PartKind {
    text: "response.refusal",
    member: "refusal",
    empty: "{\"type\":\"refusal\",\"refusal\":\"\"}",
    has_logprobs: false,
    ..OUTPUT_TEXT
};
const REASONING_TEXT: PartKind = PartKind {
    text: "response.reasoning_text",
    empty: "{\"type\":\"reasoning_text\",\"text\":\"\"}",
    has_logprobs: false,
    ..OUTPUT_TEXT
};
const SUMMARY_TEXT: PartKind = PartKind {
    index: "summary_index",
    part: "response.reasoning_summary_part",
    text: "response.reasoning_summary_text",
    empty: "{\"type\":\"summary_text\",\"text\":\"\"}",
    has_logprobs: false,
    ..OUTPUT_TEXT
};

impl PartKind {
    /// None for parts that are rendered in one piece.
    fn of(part: &ResponseMembers) -> Option<&'static Self> {
        match text(part, "type") {
            "output_text" => Some(&OUTPUT_TEXT),
            "refusal" => Some(&REFUSAL),
            "reasoning_text" => Some(&REASONING_TEXT),
            "summary_text" => Some(&SUMMARY_TEXT),
            _ => None,
        }
    }

    fn write_logprobs(&self, event: &mut ObjectWriter<'_>, part: &ResponseMembers) {
        if self.has_logprobs {
            event.value("logprobs", part.get("logprobs").unwrap_or(&Value::Array(Vec::new())));
        }
    }
}

impl Assembler {
    /// Limits the output, in bytes of text, arguments and pictures.
    pub fn limit(&mut self, bytes_max: usize) {
        self.output_max = bytes_max;
    }

    /// Whether the output exceeds the limit.
    pub fn is_overfull(&self) -> bool {
        self.output_bytes > self.output_max
    }

    /// Whether events are written.
    pub fn is_streamed(&self) -> bool {
        self.events.are_wanted()
    }

    /// Renders one item from its beginning to its end.
    fn replay(&mut self, item: &ResponseMembers, call: Option<&Arc<CallItem>>) {
        let hosted = hosted_calls::form(item).map(Arc::new);
        let call = call.filter(|call| call.item_type == text(item, "type")).or(hosted.as_ref());
        let place = self.items.len();
        let body = opened(item, call);
        let id = text(item, "id").to_owned();
        self.items.push(OutputItem { id, key: None, body, status: ItemStatus::InProgress });
        self.whole_item_event("response.output_item.added", place);
        match (call, text(item, "type")) {
            (Some(call), _) => self.finished_call_events(place, item, call),
            (None, "message" | "reasoning") => {
                for list in ["summary", "content"] {
                    self.replay_parts(place, item.get(list));
                }
            }
            (None, "function_call") => self.replay_call(place, item),
            (None, "custom_tool_call") => {
                self.text_events(place, "custom_tool_call_input", "input", text(item, "input"));
            }
            _ => {}
        }
        self.events.write("response.output_item.done", |event| {
            event.value("output_index", place);
            event.value("item", item);
        });
    }

    fn replay_parts(&mut self, place: usize, parts: Option<&Value>) {
        let parts = parts.and_then(Value::as_array).into_iter().flatten();
        for (index, part) in parts.filter_map(Value::as_object).enumerate() {
            self.replay_part(place, index, part);
        }
    }

    fn replay_part(&mut self, place: usize, index: usize, part: &ResponseMembers) {
        let kind = PartKind::of(part);
        let PartKind { index: counter, part: part_name, text: text_name, member: member_name, .. } =
            kind.unwrap_or(&OUTPUT_TEXT);
        self.item_event(&format!("{part_name}.added"), place, |event, _| {
            event.value(counter, index);
            match kind {
                Some(kind) => event.raw("part", kind.empty),
                None => event.value("part", part),
            }
        });
        if let Some(kind) = kind {
            let words = text(part, member_name);
            let told = |event: &mut ObjectWriter<'_>, name: &str| {
                event.value(counter, index);
                event.value(name, words);
                kind.write_logprobs(event, part);
            };
            if !words.is_empty() {
                self.item_event(&format!("{text_name}.delta"), place, |event, _| told(event, "delta"));
            }
            self.replay_annotations(place, index, part);
            self.item_event(&format!("{text_name}.done"), place, |event, _| told(event, member_name));
        }
        self.item_event(&format!("{part_name}.done"), place, |event, _| {
            event.value(counter, index);
            event.value("part", part);
        });
    }

    fn replay_annotations(&mut self, place: usize, part_index: usize, part: &ResponseMembers) {
        let annotations = part.get("annotations").and_then(Value::as_array).into_iter().flatten();
        for (index, annotation) in annotations.enumerate() {
            self.item_event("response.output_text.annotation.added", place, |event, _| {
                event.value("content_index", part_index);
                event.value("annotation_index", index);
                event.value("annotation", annotation);
            });
        }
    }

    fn replay_call(&mut self, place: usize, item: &ResponseMembers) {
        let words = text(item, "arguments");
        if !words.is_empty() {
            self.item_event("response.function_call_arguments.delta", place, |event, _| {
                event.value("delta", words);
            });
        }
        self.item_event("response.function_call_arguments.done", place, |event, _| {
            event.value("name", text(item, "name"));
            event.value("arguments", words);
        });
    }

    /// Renders a call of a tool that this host or a provider has run, with the events of its form.
    pub(super) fn finished_call_events(&mut self, place: usize, item: &ResponseMembers, call: &CallItem) {
        self.item_events(&call.added, place);
        if call.streams_arguments {
            let events = format!("{}_arguments", call.item_type);
            self.text_events(place, &events, "arguments", text(item, "arguments"));
        }
        let shown = call.text.as_ref().and_then(|table| Some((table, item.get(&table.member)?.as_str()?)));
        if let Some((table, words)) = shown {
            self.text_events(place, &table.events, &table.member, words);
        }
        if let Some(events) = call.end_events(item) {
            self.item_events(&call.running, place);
            self.item_events(events, place);
        }
    }
}

impl CallItem {
    /// The events about the end of the call that this item reports; none if it was not finished.
    pub(super) fn end_events(&self, item: &ResponseMembers) -> Option<&[String]> {
        let has_error = self.fails_by_error && item.get("error").is_some_and(|error| !error.is_null());
        match text(item, "status") {
            "failed" => Some(&self.failed),
            _ if has_error => Some(&self.failed),
            "incomplete" => None,
            _ => Some(&self.completed),
        }
    }
}

/// The item in the state in which it is added to a stream.
pub(super) fn opened(item: &ResponseMembers, call: Option<&Arc<CallItem>>) -> ItemBody {
    let word = |name: &str| text(item, name).to_owned();
    let optional = |name: &str| item.get(name).and_then(Value::as_str).map(str::to_owned);
    if let Some(call) = call {
        let call_id = word("call_id");
        return ItemBody::Tool {
            members: call.written(&call_id, Map::new()).unwrap_or_default(),
            item: Arc::clone(call),
            call_id,
            function: String::new(),
            arguments: String::new(),
            ended: false,
        };
    }
    match text(item, "type") {
        "message" => ItemBody::Message { phase: optional("phase"), parts: Vec::new() },
        "reasoning" => ItemBody::reasoning(),
        kind @ ("function_call" | "custom_tool_call") => ItemBody::Call {
            custom: kind == "custom_tool_call",
            call_id: word("call_id"),
            name: word("name"),
            namespace: optional("namespace"),
            text: String::new(),
        },
        _ => ItemBody::opaque(item),
    }
}

#[cfg(test)]
mod tests;
