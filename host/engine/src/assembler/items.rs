//! The output items while they grow, and their JSON.

use super::client_call::ClientCall;
use super::json::compact_json;
use super::{Assembler, CallItem, Identity, Malformed};
use crate::request::HostItem;
use bytes::Bytes;
use cofferdam_protocol::{ItemRole, ObjectWriter, ToolClass, ToolKind, write_list, write_value};
use cofferdam_runtime::wire::ReasoningSeal;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ItemStatus {
    InProgress,
    Completed,
    Incomplete,
    /// Only items of server tools can fail.
    Failed,
}

impl ItemStatus {
    fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Incomplete => "incomplete",
            Self::Failed => "failed",
        }
    }
}

/// For whom an item is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ItemReader {
    /// With id and status.
    Client,
    /// In the normal form of requests, with calls of server tools as the function calls that the model
    /// made. Ids are left out: they differ in each response, while equal conversations must give
    /// equal requests.
    Model,
}

/// A content part of a message.
#[derive(Debug)]
pub(super) enum ContentPart {
    Text {
        text: String,
        annotations: Vec<Vec<u8>>,
        /// Comma-separated JSON objects.
        logprobs: Vec<u8>,
    },
    Refusal(String),
}

impl ContentPart {
    pub(super) fn text() -> Self {
        Self::Text { text: String::new(), annotations: Vec::new(), logprobs: Vec::new() }
    }

    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::Refusal(_))
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        self.write_for(ItemReader::Client, out);
    }

    fn write_for(&self, reader: ItemReader, out: &mut Vec<u8>) {
        match self {
            Self::Text { text, annotations, logprobs } => {
                let is_client = reader == ItemReader::Client;
                let mut part = ObjectWriter::new(out);
                part.word("type", "output_text");
                part.value("text", text);
                let shown = annotations.iter().filter(|_| is_client);
                write_list(shown, part.name("annotations"), |annotation, out| {
                    out.extend_from_slice(annotation)
                });
                if is_client {
                    write_logprobs(&mut part, logprobs);
                }
                part.end();
            }
            Self::Refusal(refusal) => {
                let mut part = ObjectWriter::new(out);
                part.word("type", "refusal");
                part.value("refusal", refusal);
                part.end();
            }
        }
    }

    /// The members of a `.done` event, which has the whole text instead of `delta`.
    pub(super) fn write_done(&self, event: &mut ObjectWriter<'_>) {
        match self {
            Self::Text { text, logprobs, .. } => {
                event.value("text", text);
                write_logprobs(event, logprobs);
            }
            Self::Refusal(refusal) => event.value("refusal", refusal),
        }
    }
}

#[derive(Debug)]
pub(super) enum ItemBody {
    Message {
        phase: Option<String>,
        parts: Vec<ContentPart>,
    },
    Reasoning {
        summary: Vec<String>,
        text: Option<String>,
        seal: Option<ReasoningSeal>,
    },
    Call {
        custom: bool,
        call_id: String,
        name: String,
        namespace: Option<String>,
        text: String,
    },
    /// A call of a client's tool that was rendered as a function for the model.
    Client(Box<ClientCall>),
    /// A call that the host runs.
    Tool {
        item: Arc<CallItem>,
        call_id: String,
        function: String,
        arguments: String,
        /// The arguments are complete.
        ended: bool,
        /// The members of the item as JSON, comma-separated and without braces.
        members: Vec<u8>,
    },
    Image {
        result: Option<String>,
    },
    Opaque {
        json: Vec<u8>,
        /// The item is a call that the client must answer.
        is_client_call: bool,
    },
}

impl ItemBody {
    pub(super) fn reasoning() -> Self {
        Self::Reasoning { summary: Vec::new(), text: None, seal: None }
    }

    /// An item as the guest wrote it.
    pub(super) fn opaque(item: &Map<String, Value>) -> Self {
        let mut json = Vec::new();
        write_value(item, &mut json);
        Self::Opaque { json, is_client_call: is_client_call(text(item, "type")) }
    }

    pub(super) fn id(&self, identity: &Identity, index: usize) -> String {
        match self {
            Self::Message { .. } => identity.item_id("msg", index),
            Self::Reasoning { .. } => identity.item_id("rs", index),
            Self::Call { custom: false, .. } => identity.item_id("fc", index),
            Self::Call { custom: true, .. } => identity.item_id("ctc", index),
            Self::Client(call) => identity.item_id(call.id_prefix(), index),
            Self::Tool { item, arguments, .. } => item.id(identity, index, arguments),
            Self::Image { .. } => identity.item_id("ig", index),
            Self::Opaque { .. } => identity.item_id("item", index),
        }
    }
}

/// One output item.
#[derive(Debug)]
pub(super) struct OutputItem {
    pub(super) id: String,
    pub(super) key: Option<u32>,
    pub(super) body: ItemBody,
    pub(super) status: ItemStatus,
}

impl OutputItem {
    pub(super) fn parts(&self) -> &[ContentPart] {
        match &self.body {
            ItemBody::Message { parts, .. } => parts,
            _ => &[],
        }
    }

    pub(super) fn part_mut(&mut self, part: usize) -> Option<&mut ContentPart> {
        match &mut self.body {
            ItemBody::Message { parts, .. } => parts.get_mut(part),
            _ => None,
        }
    }

    pub(super) fn summary_parts(&self) -> usize {
        match &self.body {
            ItemBody::Reasoning { summary, .. } => summary.len(),
            _ => 0,
        }
    }

    pub(super) fn summary(&self, part: usize) -> &str {
        match &self.body {
            ItemBody::Reasoning { summary, .. } => summary.get(part).map_or("", String::as_str),
            _ => "",
        }
    }

    pub(super) fn has_reasoning_text(&self) -> bool {
        matches!(self.body, ItemBody::Reasoning { text: Some(_), .. })
    }

    pub(super) fn reasoning_text(&self) -> &str {
        match &self.body {
            ItemBody::Reasoning { text: Some(text), .. } => text,
            _ => "",
        }
    }

    pub(super) fn is_open_call(&self, key: u32) -> bool {
        self.key == Some(key)
            && self.status == ItemStatus::InProgress
            && matches!(
                self.body,
                ItemBody::Call { .. } | ItemBody::Client(_) | ItemBody::Tool { ended: false, .. }
            )
    }

    pub(super) fn is_open_image(&self) -> bool {
        self.status == ItemStatus::InProgress && matches!(self.body, ItemBody::Image { .. })
    }

    pub(super) fn is_custom(&self) -> bool {
        matches!(self.body, ItemBody::Call { custom: true, .. })
    }

    /// The members of the `.done` event of a call.
    pub(super) fn write_call_done(&self, event: &mut ObjectWriter<'_>) {
        let ItemBody::Call { custom, name, text, .. } = &self.body else { return };
        if *custom {
            event.value("input", text);
        } else {
            event.value("name", name);
            event.value("arguments", text);
        }
    }

    /// Appends the item as the client gets it.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        self.write_for(ItemReader::Client, out);
    }

    /// The item as input of the next turn. None for a message without content.
    pub(super) fn as_input(&self) -> Option<Bytes> {
        if matches!(&self.body, ItemBody::Message { parts, .. } if parts.is_empty()) {
            return None;
        }
        let mut out = Vec::with_capacity(256);
        self.write_for(ItemReader::Model, &mut out);
        Some(Bytes::from(out))
    }

    fn write_for(&self, reader: ItemReader, out: &mut Vec<u8>) {
        let kind = match &self.body {
            ItemBody::Opaque { json, .. } => return out.extend_from_slice(json),
            ItemBody::Tool { call_id, function, arguments, .. } if reader == ItemReader::Model => {
                return HostItem::FunctionCall { call_id, name: function, arguments }.write(out);
            }
            ItemBody::Tool { item, .. } => &item.item_type,
            ItemBody::Client(call) => call.item_type(),
            ItemBody::Message { .. } => "message",
            ItemBody::Reasoning { .. } => "reasoning",
            ItemBody::Call { custom: false, .. } => "function_call",
            ItemBody::Call { custom: true, .. } => "custom_tool_call",
            ItemBody::Image { .. } => "image_generation_call",
        };
        let mut item = ObjectWriter::new(out);
        item.value("type", kind);
        if reader == ItemReader::Client {
            item.value("id", &self.id);
            if !matches!(&self.body, ItemBody::Tool { item, .. } if item.is_stateless) {
                item.word("status", self.status.as_str());
            }
        }
        self.write_members(reader, &mut item);
        item.end();
    }

    /// The members besides type, id and status.
    fn write_members(&self, reader: ItemReader, out: &mut ObjectWriter<'_>) {
        match &self.body {
            ItemBody::Message { phase, parts } => {
                out.word("role", "assistant");
                if reader == ItemReader::Model {
                    out.word("status", "completed");
                }
                phase.iter().for_each(|phase| out.value("phase", phase));
                write_list(parts, out.name("content"), |part, out| part.write_for(reader, out));
            }
            ItemBody::Reasoning { summary, text, seal } => {
                write_text_parts("summary_text", summary, out.name("summary"));
                if text.is_some() {
                    write_text_parts("reasoning_text", text, out.name("content"));
                }
                seal.iter().for_each(|seal| write_seal(seal, out));
            }
            ItemBody::Call { custom, call_id, name, namespace, text } => {
                out.value("call_id", call_id);
                out.value("name", name);
                namespace.iter().for_each(|namespace| out.value("namespace", namespace));
                out.value(if *custom { "input" } else { "arguments" }, text);
            }
            ItemBody::Tool { item, arguments, members, .. } => {
                out.members(members);
                if item.shows_arguments {
                    out.value("arguments", arguments);
                }
            }
            ItemBody::Image { result } => {
                if reader == ItemReader::Model {
                    out.word("status", "completed");
                }
                out.value("result", result.as_deref());
            }
            ItemBody::Client(call) => call.write_members(out),
            ItemBody::Opaque { .. } => {}
        }
    }
}

/// The id of an opaque item after these `earlier` ones: its own, or a new one if it has none, or one
/// that another item has or can get. Events refer to items by their ids, and only the host makes ids
/// with the digits of the response.
pub(super) fn opaque_id(item: &Map<String, Value>, identity: &Identity, earlier: &[OutputItem]) -> String {
    let id = text(item, "id");
    let is_own = !id.is_empty() && !id.contains(&*identity.hex) && earlier.iter().all(|item| item.id != id);
    if is_own { id.to_owned() } else { identity.item_id("item", earlier.len()) }
}

/// A member that is a string; empty if it is missing or has another type.
pub(super) fn text<'a>(members: &'a Map<String, Value>, name: &str) -> &'a str {
    members.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Whether items of this type are calls that the client must answer.
pub(super) fn is_client_call(item_type: &str) -> bool {
    item_type == "mcp_approval_request"
        || matches!(ToolKind::of_item(item_type), Some((kind, ItemRole::Call)) if kind.class() == ToolClass::Client)
}

fn write_seal(seal: &ReasoningSeal, out: &mut ObjectWriter<'_>) {
    let members = [
        ("encrypted_content", &seal.encrypted_content),
        ("signature", &seal.signature),
        ("format", &seal.format),
    ];
    for (name, text) in members {
        text.iter().for_each(|text| out.value(name, text));
    }
}

fn write_text_parts<'t>(kind: &str, texts: impl IntoIterator<Item = &'t String>, out: &mut Vec<u8>) {
    write_list(texts, out, |text, out| write_text_part(kind, text, out));
}

/// Appends a part of reasoning.
pub(super) fn write_text_part(kind: &str, text: &str, out: &mut Vec<u8>) {
    let mut part = ObjectWriter::new(out);
    part.word("type", kind);
    part.value("text", text);
    part.end();
}

/// Writes `content_index` and `delta`, which all text deltas have.
pub(super) fn write_delta(event: &mut ObjectWriter<'_>, part: usize, delta: &str) {
    event.value("content_index", part);
    event.value("delta", delta);
}

/// Writes `logprobs` with these elements, which are JSON already and comma-separated.
pub(super) fn write_logprobs(object: &mut ObjectWriter<'_>, logprobs: &[u8]) {
    let out = object.name("logprobs");
    out.push(b'[');
    out.extend_from_slice(logprobs);
    out.push(b']');
}

pub(super) fn summary_part_event(assembler: &mut Assembler, name: &str, index: usize, part: usize) {
    assembler.item_event(name, index, |event, item| {
        event.value("summary_index", part);
        write_text_part("summary_text", item.summary(part), event.name("part"));
    });
}

/// The `type` of an item; none where there is not exactly one `type`, or where it is not a string.
pub(super) fn tag_of(item: &[u8]) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Tagged<'a> {
        #[serde(rename = "type", borrow)]
        tag: Cow<'a, str>,
    }
    serde_json::from_slice(item).ok().map(|Tagged { tag }| tag)
}

/// Converts a JSON array into its elements, comma-separated and without the brackets.
pub(super) fn logprob_members(logprobs: &[u8]) -> Result<Vec<u8>, Malformed> {
    if logprobs.is_empty() {
        return Ok(Vec::new());
    }
    let array = compact_json(logprobs, b'[').ok_or(Malformed::InvalidJson)?;
    Ok(array.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]")).unwrap_or_default().to_vec())
}

pub(super) fn append_members(all: &mut Vec<u8>, more: &[u8]) {
    if !all.is_empty() && !more.is_empty() {
        all.push(b',');
    }
    all.extend_from_slice(more);
}
