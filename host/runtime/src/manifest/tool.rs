//! The `[tool]` table: what a tool is called, for which tools of clients it stands in, and how its calls look
//! where they are not items of its own type.

use serde::Deserialize;
use serde_json::{Map, Value};

/// The `[tool]` table.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolTable {
    /// The tool type without prefix: `datetime`.
    #[serde(rename = "type")]
    pub tool_type: String,
    /// Tool types of clients, such as `mcp`, that this tool serves where an endpoint does not itself. Its
    /// settings are then the client's whole entry.
    #[serde(default)]
    pub client_types: Vec<String>,
    /// How calls are shown. Those for a client's type are the first of these items, or the one that the
    /// function names. One of the type `service:TYPE` says more of the tool's own items, whichever prefix a
    /// request uses.
    #[serde(default)]
    pub items: Vec<ItemTable>,
    /// The tool's function that is called once for each entry when the request is over, however it ends. It gets no
    /// arguments, is not offered to models, and nobody waits for what comes of it.
    pub closing: Option<String>,
}

/// How a client sees what a tool does: one table of `[[tool.items]]`.
///
/// Events are named without the item's type: `completed` of `mcp_call` is `response.mcp_call.completed`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ItemTable {
    /// The item's type: `mcp_call`.
    #[serde(rename = "type")]
    pub item_type: String,
    /// What its ids begin with: `mcp`.
    #[serde(default = "own_prefix")]
    pub id_prefix: String,
    /// The word between `response.` and an event's own, else the item's type: `fusion_call`.
    pub events: Option<String>,
    /// Members that it has from its beginning on, until the tool says others.
    #[serde(default)]
    pub members: Map<String, Value>,
    /// Whether it has a `status`.
    #[serde(default = "yes")]
    pub status: bool,
    /// Events when the item is added.
    #[serde(default)]
    pub added: Vec<String>,
    /// Events when the call is run.
    #[serde(default)]
    pub running: Vec<String>,
    /// Events when it has a result.
    #[serde(default)]
    pub completed: Vec<String>,
    /// Events when it has none.
    #[serde(default)]
    pub failed: Vec<String>,
    /// Whether clients see what the model passes.
    #[serde(default)]
    pub arguments: Arguments,
    /// What the host itself says of a failed call is an object in `error`, with this `type`, a `code` and a
    /// `message`; text without it.
    pub error_type: Option<String>,
    /// A part of the arguments that is shown by itself.
    pub text: Option<TextTable>,
    /// Whether the questions of a call to models are told: those of `model-panel` by events `panel`, others by
    /// `analysis`.
    #[serde(default)]
    pub questions: bool,
    /// Members that are null unless the request's `include` names them, as `TYPE.MEMBER`.
    #[serde(default)]
    pub on_request: Vec<String>,
    /// A call that went well ends the response, because the client has to answer it. Such an item has a
    /// `call_id`.
    #[serde(default)]
    pub halts: bool,
    /// The tool's function that makes one such item before the first turn. It gets no arguments and is not
    /// offered to models.
    pub opening: Option<String>,
    /// The call is not run but put to the client.
    pub asks: Option<Asks>,
}

/// A part of a call's arguments that clients see, when all of it is there, by the events `response.EVENTS.delta`
/// and `response.EVENTS.done`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextTable {
    /// The word in the names of both events.
    pub events: String,
    /// Where the text stands in the arguments, a JSON pointer.
    pub argument: String,
    /// The member of `done` that holds it, and of the item where that has one of this name from its beginning.
    pub member: String,
}

/// Whether clients see the arguments of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arguments {
    /// They do not.
    #[default]
    Hidden,
    /// In the finished item.
    Shown,
    /// And as events `response.TYPE_arguments.delta` and `.done`.
    Streamed,
}

/// A call that the client has to approve in its next request.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asks {
    /// The type of the input item with the answer: its `approval_request_id` is the id of this item and
    /// its `approve` a boolean.
    pub answer: String,
    /// The type of the item that an approved call is.
    pub approved: String,
}

fn yes() -> bool {
    true
}

/// What ids of a tool's own items begin with.
fn own_prefix() -> String {
    "st".to_owned()
}

impl ToolTable {
    /// The item of this type.
    #[must_use]
    pub fn item(&self, item_type: &str) -> Option<&ItemTable> {
        self.items.iter().find(|item| item.item_type == item_type)
    }

    /// The item of the tool's own type, if anything is declared of it.
    #[must_use]
    pub fn own_item(&self) -> Option<&ItemTable> {
        self.item(&self.own_item_type())
    }

    fn own_item_type(&self) -> String {
        format!("service:{}", self.tool_type)
    }

    /// The first key whose value breaks a rule that its type cannot express.
    pub(super) fn problem(&self) -> Option<(&'static str, String)> {
        if self.tool_type.is_empty() {
            return Some(("type", "must not be empty".to_owned()));
        }
        if self.client_types.iter().any(|name| !is_word(name)) {
            return Some(("client_types", "takes lower-case letters, digits and underscores".to_owned()));
        }
        let own = self.own_item_type();
        for (place, item) in self.items.iter().enumerate() {
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
            if self.items.iter().take(place).any(|earlier| earlier.item_type == item.item_type) {
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
