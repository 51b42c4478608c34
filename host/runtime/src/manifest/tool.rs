//! The `[tool]` table: what a tool is called, for which tools of clients it stands in, and how its calls look
//! where they are not items of its own type.

use serde::Deserialize;

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
    /// Items of other types than the tool's own. Calls for a client's type are the first of them, or the
    /// one that the function names.
    #[serde(default)]
    pub items: Vec<ItemTable>,
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
    pub id_prefix: String,
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
    /// The tool's function that makes one such item before the first turn. It gets no arguments and is not
    /// offered to models.
    pub opening: Option<String>,
    /// The call is not run but put to the client.
    pub asks: Option<Asks>,
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

impl ToolTable {
    /// The item of this type.
    #[must_use]
    pub fn item(&self, item_type: &str) -> Option<&ItemTable> {
        self.items.iter().find(|item| item.item_type == item_type)
    }

    /// The first key whose value breaks a rule that its type cannot express.
    pub(super) fn problem(&self) -> Option<(&'static str, String)> {
        if self.tool_type.is_empty() {
            return Some(("type", "must not be empty".to_owned()));
        }
        if self.client_types.iter().any(|name| !is_word(name)) {
            return Some(("client_types", "takes lower-case letters, digits and underscores".to_owned()));
        }
        for (place, item) in self.items.iter().enumerate() {
            let events = [&item.added, &item.running, &item.completed, &item.failed];
            let mut words = events.into_iter().flatten().chain([&item.item_type, &item.id_prefix]);
            if words.any(|word| !is_word(word)) {
                let message =
                    "has a type, id_prefix or event that is not lower-case letters, digits and underscores";
                return Some(("items", message.to_owned()));
            }
            if self.items.iter().take(place).any(|earlier| earlier.item_type == item.item_type) {
                return Some(("items", format!("has {} twice", item.item_type)));
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
