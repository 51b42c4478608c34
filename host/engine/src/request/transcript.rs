//! The items of an input, as far as the tools of the request distinguish them. They are read once,
//! when the tools are known.
//!
//! The input is in normal form: the parser has written each call of a server tool as a call of a
//! function under the tool's prefixed name, which is also what hooks read and write.

use super::host_item::HostItem;
use super::json::{JsonDocument, JsonKind, JsonValue};
use super::server_items::{CallPart, ServerItemReader, ToolCallRecord};
use bytes::Bytes;
use cofferdam_protocol::split_prefix;
use std::collections::{HashMap, VecDeque};

/// One item of an input.
#[derive(Debug)]
pub(crate) enum TranscriptItem {
    /// A call of a server tool, and its result where there is one.
    ServerCall(ToolCallRecord, Option<ToolResult>),
    /// The place of the result of the call at this index, and its item.
    Result(usize, Bytes),
    /// An item that models get as it is.
    Plain(PlainItem),
}

/// An item that no server tool is behind.
#[derive(Debug)]
pub(crate) enum PlainItem {
    /// A call of a function or custom tool.
    Call(Bytes),
    /// An item of a type that a tool of the request declares.
    Declared(Bytes),
    Other(Bytes),
}

/// The result of a call of a server tool.
#[derive(Debug)]
pub(crate) enum ToolResult {
    /// A text, which is often the JSON of the members of the call's item.
    Text(String),
    /// The texts of a result in parts. Pictures and files cannot be written as text.
    Parts(String),
}

impl PlainItem {
    pub(crate) fn json(&self) -> &[u8] {
        match self {
            Self::Call(json) | Self::Declared(json) | Self::Other(json) => json,
        }
    }
}

/// Reads the items of `input`, an array in normal form. Items of the types `substituted` are calls
/// of hosted substitutes. None if it is not JSON.
pub(crate) fn read_transcript(
    input: &Bytes,
    substituted: &[String],
    declared: &[String],
) -> Option<Vec<TranscriptItem>> {
    let document = JsonDocument::parse(input).ok()?;
    let mut calls = ServerItemReader::new(document.root(), substituted);
    let mut reader = TranscriptReader { input, declared, items: Vec::new(), waiting: HashMap::new() };
    let mut parts = Vec::new();
    for (place, item) in document.root().items().enumerate() {
        let is_taken = calls.take(item, place, &mut parts);
        parts.drain(..).for_each(|part| reader.part(part));
        if !is_taken {
            reader.item(item);
        }
    }
    calls.end(&mut parts);
    parts.into_iter().for_each(|part| reader.part(part));
    Some(reader.items)
}

struct TranscriptReader<'r> {
    input: &'r Bytes,
    declared: &'r [String],
    items: Vec<TranscriptItem>,
    /// The indexes of calls of server tools that have no result yet, by call id. A call has the next
    /// result with its id that no earlier call has.
    waiting: HashMap<String, VecDeque<usize>>,
}

impl TranscriptReader<'_> {
    fn part(&mut self, part: CallPart) {
        match part {
            CallPart::Call(call) => self.call(call),
            CallPart::Result { call_id, output } => {
                let json = HostItem::FunctionCallOutput { call_id: &call_id, output: &output }.to_json();
                self.result(&call_id, json, || ToolResult::Text(output));
            }
        }
    }

    fn item(&mut self, item: JsonValue<'_>) {
        let text = |name| item.get(name).map(|value: JsonValue<'_>| value.text()).unwrap_or_default();
        let json = self.input.slice_ref(item.raw().as_bytes());
        let plain = match &*text("type") {
            "function_call" => match split_prefix(&text("name")) {
                Some((_, tool)) => {
                    let (call_id, arguments) = (text("call_id").into_owned(), text("arguments").into_owned());
                    return self.call(ToolCallRecord { tool: tool.to_owned(), call_id, arguments });
                }
                None => PlainItem::Call(json),
            },
            "function_call_output" => {
                return self.result(&text("call_id"), json, || result_of(item.get("output")));
            }
            "custom_tool_call" => PlainItem::Call(json),
            kind if self.declared.iter().any(|declared| declared == kind) => PlainItem::Declared(json),
            _ => PlainItem::Other(json),
        };
        self.items.push(TranscriptItem::Plain(plain));
    }

    fn call(&mut self, call: ToolCallRecord) {
        self.waiting.entry(call.call_id.clone()).or_default().push_back(self.items.len());
        self.items.push(TranscriptItem::ServerCall(call, None));
    }

    fn result(&mut self, call_id: &str, json: Bytes, read: impl FnOnce() -> ToolResult) {
        let call = self.waiting.get_mut(call_id).and_then(VecDeque::pop_front);
        if let Some(TranscriptItem::ServerCall(_, result)) = call.and_then(|call| self.items.get_mut(call)) {
            *result = Some(read());
        }
        self.items.push(match call {
            Some(call) => TranscriptItem::Result(call, json),
            None => TranscriptItem::Plain(PlainItem::Other(json)),
        });
    }
}

fn result_of(output: Option<JsonValue<'_>>) -> ToolResult {
    if let Some(text) = output.filter(|output| output.kind() == JsonKind::String) {
        return ToolResult::Text(text.text().into_owned());
    }
    let parts = output.into_iter().flat_map(JsonValue::items).filter_map(|part| part.get("text"));
    let texts = parts.filter(|text| text.kind() == JsonKind::String).map(JsonValue::text);
    ToolResult::Parts(texts.collect::<Vec<_>>().join("\n"))
}
