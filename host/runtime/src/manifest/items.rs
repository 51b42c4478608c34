//! The `[tool]` table: what a tool is called, which of the client's own kinds of tools it serves, and how its
//! calls look in an answer where they are more than plain `service:TYPE` items.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

/// The longest word of this table.
const WORD_BYTES_MAX: usize = 64;
/// The longest prefix of ids.
const ID_BYTES_MAX: usize = 16;
/// Entries of one list.
const ENTRIES_MAX: usize = 16;
/// Kinds of tools that are the client's own by definition.
const NEVER_SERVED: [&str; 3] = ["function", "custom", "namespace"];

/// The `[tool]` table.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolTable {
    /// The tool type without prefix: `datetime`.
    #[serde(rename = "type")]
    pub tool_type: String,
    /// Events of `service:TYPE` items, where nothing else of theirs is special.
    pub events: Option<ToolEvents>,
    /// The client's own types of tools, such as `code_interpreter`, that this one serves for endpoints whose
    /// dialect has none of its own.
    #[serde(default)]
    pub client_types: BTreeSet<String>,
    /// The type of the items that stand for calls of those, a key of `items`.
    pub client_item: Option<String>,
    /// The items that stand for calls, by type. `service:TYPE` is that of the prefixed tool, whichever prefix
    /// a request uses; it needs no entry where it has no events.
    #[serde(default)]
    pub items: BTreeMap<String, ItemTable>,
}

/// The `[tool.events]` table, short for `events` and `questions` of `[tool.items."service:TYPE"]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolEvents {
    /// As [`ItemTable::events`].
    pub prefix: String,
    /// As [`ItemTable::questions`].
    #[serde(default)]
    pub questions: bool,
}

/// How a type of item looks and what its calls do: `[tool.items.TYPE]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ItemTable {
    /// What its ids begin with, without the underscore.
    #[serde(default = "plain_id")]
    pub id: String,
    /// The middle of its events' names, `response.EVENTS.in_progress` and so on; without it there are none.
    pub events: Option<String>,
    /// Stages between `in_progress` and `completed`, all told when the call is about to be run.
    #[serde(default)]
    pub stages: Vec<String>,
    /// Whether a call that failed has an event `failed`.
    #[serde(default)]
    pub failed: bool,
    /// Whether the questions that a call puts to models are told: those of `model-panel` as `panel`, others as
    /// `analysis` (names.md 2.2).
    #[serde(default)]
    pub questions: bool,
    /// A part of the arguments that events of their own show.
    pub text: Option<TextTable>,
    /// Members that are null unless the request's `include` names them, as `TYPE.MEMBER`.
    #[serde(default)]
    pub on_request: BTreeSet<String>,
    /// Whether a call that went well ends the response, because it is the client's to answer. Such an item
    /// has a `call_id`.
    #[serde(default)]
    pub halts: bool,
}

/// A part of a call's arguments that the client is shown: `response.EVENTS.delta` and `response.EVENTS.done`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextTable {
    /// The middle of the two names.
    pub events: String,
    /// Where the text stands in the arguments, a JSON pointer; empty for the arguments as they are.
    pub argument: String,
    /// The member of the event `done` that holds it, and of the item if it has one of that name from its start.
    pub member: String,
}

fn plain_id() -> String {
    "st".to_owned()
}

impl Default for ItemTable {
    fn default() -> Self {
        Self {
            id: plain_id(),
            events: None,
            stages: Vec::new(),
            failed: false,
            questions: false,
            text: None,
            on_request: BTreeSet::new(),
            halts: false,
        }
    }
}

impl ToolTable {
    /// What the manifest declares for this type of item, a key of `items`.
    #[must_use]
    pub fn item(&self, item_type: &str) -> Option<ItemTable> {
        let declared = self.items.get(item_type).cloned();
        let own = || {
            let events = self.events.as_ref().filter(|_| item_type == self.own_item())?;
            let table = ItemTable::default();
            Some(ItemTable { events: Some(events.prefix.clone()), questions: events.questions, ..table })
        };
        declared.or_else(own)
    }

    /// The key of `items` for calls of the prefixed tool, whichever prefix a request uses.
    #[must_use]
    pub fn own_item(&self) -> String {
        format!("service:{}", self.tool_type)
    }

    /// The first key whose value breaks a rule that its type cannot express.
    pub(super) fn problem(&self) -> Option<(&'static str, String)> {
        if self.tool_type.is_empty() {
            return Some(("type", "must not be empty".to_owned()));
        }
        let types = &self.client_types;
        if types.len() > ENTRIES_MAX || !types.iter().all(|word| is_word(word)) {
            return Some(("client_types", "takes at most 16 types of tools".to_owned()));
        }
        if let Some(word) = types.iter().find(|word| NEVER_SERVED.contains(&word.as_str())) {
            return Some(("client_types", format!("names {word}, which is always the client's")));
        }
        let item = self.client_item.as_ref();
        if item.is_some_and(|item| !is_word(item) || !self.items.contains_key(item)) {
            return Some(("client_item", "names a table below tool.items".to_owned()));
        }
        if types.is_empty() != item.is_none() {
            return Some(("client_types", "needs client_item, and the other way round".to_owned()));
        }
        if self.items.len() > ENTRIES_MAX {
            return Some(("items", "takes at most 16 types of items".to_owned()));
        }
        if self.events.as_ref().is_some_and(|events| !is_word(&events.prefix)) {
            return Some(("prefix", format!("takes {WORDS}")));
        }
        let own = self.own_item();
        if self.events.is_some() && self.items.contains_key(&own) {
            return Some(("events", format!("is there twice: in tool.items.\"{own}\" too")));
        }
        if let Some(item) = self.items.keys().find(|item| !is_word(item) && **item != own) {
            return Some(("items", format!("names {item}, which is no type of item, nor {own}")));
        }
        self.items.values().find_map(ItemTable::problem)
    }
}

impl ItemTable {
    fn problem(&self) -> Option<(&'static str, String)> {
        if !is_word(&self.id) || self.id.len() > ID_BYTES_MAX {
            return Some(("id", format!("takes {WORDS}, at most {ID_BYTES_MAX}")));
        }
        if !self.events.iter().all(|word| is_word(word)) {
            return Some(("events", format!("takes {WORDS}")));
        }
        if self.stages.len() > ENTRIES_MAX || !self.stages.iter().all(|word| is_word(word)) {
            return Some(("stages", format!("takes at most {ENTRIES_MAX} words of {WORDS}")));
        }
        if self.events.is_none() && (self.failed || self.questions || !self.stages.is_empty()) {
            return Some(("stages", "failed and questions need events".to_owned()));
        }
        if self.on_request.len() > ENTRIES_MAX {
            return Some(("on_request", format!("takes at most {ENTRIES_MAX} members")));
        }
        let text = self.text.as_ref()?;
        if !is_word(&text.events) || !is_word(&text.member) {
            return Some(("text", format!("takes {WORDS} for events and member")));
        }
        let pointer = &text.argument;
        if pointer.len() > WORD_BYTES_MAX || !(pointer.is_empty() || pointer.starts_with('/')) {
            return Some(("text", "takes a JSON pointer for argument".to_owned()));
        }
        None
    }
}

const WORDS: &str = "lower-case letters, digits and underscores";

fn is_word(word: &str) -> bool {
    (1..=WORD_BYTES_MAX).contains(&word.len())
        && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}
