//! The `[tool]` table: the tool's type, the client tools for which it is a substitute, and how its
//! calls look to clients.

use serde::Deserialize;
use serde_json::{Map, Value};

/// The `[tool]` table.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolTable {
    /// The tool type without the prefix `service:`, such as `datetime`: lower-case letters, digits and underscores.
    #[serde(rename = "type")]
    pub tool_type: String,
    /// Client tool types, such as `mcp`, for which this tool is the hosted substitute where an
    /// endpoint does not serve them itself. The tool's settings are then the client's whole entry.
    #[serde(default)]
    pub client_types: Vec<String>,
    /// How calls look to clients. A call for a client's type is shown as the first of these items,
    /// or as the one that the function names in `x-item`. An item of the type `service:TYPE` adds
    /// to the tool's own item, with any prefix that a request uses.
    #[serde(default)]
    pub items: Vec<ItemTable>,
    /// Name of a function of the tool that is called once per entry when the request has ended, in
    /// any way. It gets no arguments and is not offered to models. Its result is ignored, and the
    /// response does not wait for it.
    pub closing: Option<String>,
    /// The key of the plugin's configuration that has the most that one call costs, in dollars. It
    /// is reserved before each call.
    pub price: Option<String>,
}

/// How a client sees a call of a tool: one table of `[[tool.items]]`.
///
/// Names of events are written without the item's type: `completed` of `mcp_call` is
/// `response.mcp_call.completed`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ItemTable {
    /// The item's type, such as `mcp_call`.
    #[serde(rename = "type")]
    pub item_type: String,
    /// Prefix of the item's ids, such as `mcp`.
    #[serde(default = "own_prefix")]
    pub id_prefix: String,
    /// The word between `response.` and the event's name, such as `fusion_call`; the item's type if
    /// absent.
    pub events: Option<String>,
    /// Members that the item has from the start, until the tool's result replaces them.
    #[serde(default)]
    pub members: Map<String, Value>,
    /// Whether the item has a `status`.
    #[serde(default = "yes")]
    pub status: bool,
    /// Events that are sent when the item is added.
    #[serde(default)]
    pub added: Vec<String>,
    /// Events that are sent when the call starts to run.
    #[serde(default)]
    pub running: Vec<String>,
    /// Events that are sent when the call has succeeded.
    #[serde(default)]
    pub completed: Vec<String>,
    /// Events that are sent when the call has failed.
    #[serde(default)]
    pub failed: Vec<String>,
    /// Whether clients see the arguments of the call.
    #[serde(default)]
    pub arguments: Arguments,
    /// If set, the host's own message about a failed call is an object in `error`, with this
    /// `type`, a `code` and a `message`. Otherwise it is text.
    pub error_type: Option<String>,
    /// A part of the arguments that is also shown separately.
    pub text: Option<TextTable>,
    /// Whether the call's questions to models are sent as events: those of `model-panel` as `panel`
    /// events, others as `analysis` events.
    #[serde(default)]
    pub questions: bool,
    /// Members that are null unless the request's `include` names them, as `TYPE.MEMBER`.
    #[serde(default)]
    pub on_request: Vec<String>,
    /// A successful call ends the response, because the client must answer it. Such an item has a
    /// `call_id`.
    #[serde(default)]
    pub halts: bool,
    /// Name of a function of the tool that makes one such item before the first turn. It gets no
    /// arguments and is not offered to models.
    pub opening: Option<String>,
    /// The call is not run. The client is asked to approve it.
    pub asks: Option<Asks>,
}

/// A part of a call's arguments that is sent to clients once it is complete, in the events
/// `response.EVENTS.delta` and `response.EVENTS.done`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextTable {
    /// `EVENTS` in the names of both events.
    pub events: String,
    /// The place of the text in the arguments, as a JSON pointer.
    pub argument: String,
    /// The member of the `done` event that holds the text. Also the member of the item, if the item
    /// has one of this name from the start.
    pub member: String,
}

/// Whether clients see the arguments of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arguments {
    /// Clients do not see them.
    #[default]
    Hidden,
    /// They are in the finished item.
    Shown,
    /// They are in the finished item, and in the events `response.TYPE_arguments.delta` and
    /// `.done`.
    Streamed,
}

/// A call that the client must approve in its next request.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asks {
    /// The type of the input item with the answer. Its `approval_request_id` is the id of this item
    /// and its `approve` is a boolean.
    pub answer: String,
    /// The type of the item that an approved call becomes.
    pub approved: String,
}

fn yes() -> bool {
    true
}

/// Default prefix of item ids.
fn own_prefix() -> String {
    "st".to_owned()
}

impl ToolTable {
    /// The type of the tool that finds functions whose loading the client deferred. No other tool gets them by
    /// the import `deferred-tools`.
    pub const FINDS_DEFERRED: &str = "tool_search";

    /// The declared item of this type.
    #[must_use]
    pub fn item(&self, item_type: &str) -> Option<&ItemTable> {
        self.items.iter().find(|item| item.item_type == item_type)
    }

    /// The declared item of the tool's own type `service:TYPE`, if there is one.
    #[must_use]
    pub fn own_item(&self) -> Option<&ItemTable> {
        self.item(&self.own_item_type())
    }

    fn own_item_type(&self) -> String {
        format!("service:{}", self.tool_type)
    }

    /// The first key with a value that its type allows but a rule does not, and the message about
    /// it.
    pub(super) fn problem(&self) -> Option<(&'static str, String)> {
        if !is_word(&self.tool_type) {
            let message = "takes lower-case letters, digits and underscores, without the prefix service:";
            return Some(("type", message.to_owned()));
        }
        if self.client_types.iter().any(|name| !is_word(name)) {
            return Some(("client_types", "takes lower-case letters, digits and underscores".to_owned()));
        }
        let own = self.own_item_type();
        for (index, item) in self.items.iter().enumerate() {
            let events = [&item.added, &item.running, &item.completed, &item.failed, &item.on_request];
            let words = events.into_iter().flatten().chain(&item.events).chain([&item.id_prefix]);
            let text = item.text.iter().flat_map(|text| [&text.events, &text.member]);
            let item_type = Some(&item.item_type).filter(|item_type| **item_type != own);
            let mut words = words.chain(text).chain(item_type);
            if words.any(|word| !is_word(word)) {
                let message =
                    "has a type, id_prefix or event that is not lower-case letters, digits and underscores";
                return Some(("items", message.to_owned()));
            }
            if self.items.iter().take(index).any(|earlier| earlier.item_type == item.item_type) {
                return Some(("items", format!("has {} twice", item.item_type)));
            }
            let has_events = events[..4].iter().any(|events| !events.is_empty()) || item.questions;
            if item.item_type == own && has_events && item.events.is_none() {
                return Some(("events", format!("is needed: no event is named after {own}")));
            }
            let pointer = item.text.as_ref().map(|text| text.argument.as_str());
            if pointer.is_some_and(|pointer| !pointer.starts_with('/')) {
                return Some(("argument", "takes a JSON pointer".to_owned()));
            }
            if let Some(asks) = &item.asks
                && self.item(&asks.approved).is_none()
            {
                return Some(("asks", format!("names {}, which `items` does not", asks.approved)));
            }
        }
        None
    }
}

fn is_word(word: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    !word.is_empty() && word.bytes().all(is_plain)
}
