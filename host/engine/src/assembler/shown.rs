//! How calls that the host answers are shown: the type of their items, what these have from the start, and the
//! events beside `output_item.added` and `.done`, as the tool's manifest declares them.

use super::items::Body;
use super::json::{raw, string};
use super::{Assembler, Malformed};
use cofferdam_runtime::manifest::{ItemTable, TextTable};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How the calls of one function are shown.
#[derive(Debug, Default)]
pub struct Shown {
    /// The type of their items, such as `service:datetime`.
    pub item_type: String,
    /// Ids, events, and whether a call is the client's to answer.
    pub table: ItemTable,
    /// Members that an item has from its start and keeps where the tool does not replace them.
    pub members: Map<String, Value>,
    /// Members that the request did not ask for: null in every item.
    pub withheld: Vec<String>,
}

impl Shown {
    /// Items of this type that are nothing special.
    pub fn plain(item_type: &str) -> Self {
        Self { item_type: item_type.to_owned(), ..Self::default() }
    }
}

/// The functions that the host serves.
#[derive(Debug, Default)]
pub struct Served(BTreeMap<String, Arc<Shown>>);

impl Served {
    /// From pairs of a function and how its calls are shown.
    pub fn new(functions: impl IntoIterator<Item = (String, Arc<Shown>)>) -> Self {
        Self(functions.into_iter().collect())
    }

    pub(super) fn get(&self, function: &str) -> Option<&Arc<Shown>> {
        self.0.get(function)
    }
}

impl Shown {
    /// The members of an item beyond type, id and status, without braces. What the tool says of a call
    /// stands over what its items begin with; what the host says stands over both.
    pub(super) fn members(
        &self,
        call_id: &str,
        base: &Map<String, Value>,
        said: Map<String, Value>,
    ) -> Vec<u8> {
        let mut members = base.clone();
        members.extend(said);
        for own in ["type", "id", "status"] {
            members.shift_remove(own);
        }
        for name in &self.withheld {
            members.insert(name.clone(), Value::Null);
        }
        if self.table.halts {
            members.insert("call_id".to_owned(), Value::from(call_id));
        }
        // Clients of OpenAI's library for Python take an item whose type they do not know for a message,
        // and some, its own agents among them, break where it has no content.
        if self.item_type.contains(':') && !members.contains_key("content") {
            members.insert("content".to_owned(), Value::Array(Vec::new()));
        }
        let written = Value::Object(members).to_string();
        written.get(1..written.len().saturating_sub(1)).unwrap_or_default().as_bytes().to_vec()
    }
}

impl Assembler {
    /// Tells that the calls at `places` are about to be run.
    pub(super) fn work_events(&mut self, places: impl Iterator<Item = usize>) {
        for place in places {
            let Some(shown) = self.shown(place) else { continue };
            for stage in &shown.table.stages {
                self.call_event(place, stage, |_| {});
            }
        }
    }

    /// Shows what the model wrote, once all of it is there, where its kind of item shows it.
    pub(super) fn end_arguments(&mut self, place: usize) -> Result<(), Malformed> {
        let Some(shown) = self.shown(place) else { return Ok(()) };
        let Some(Body::Tool { arguments, base, call_id, members, ended, .. }) =
            self.items.get_mut(place).map(|item| &mut item.body)
        else {
            return Ok(());
        };
        if std::mem::replace(ended, true) {
            return Ok(());
        }
        let Some(table) = &shown.table.text else { return Ok(()) };
        let Some(text) = text_of(table, arguments) else { return Ok(()) };
        if base.contains_key(&table.member) {
            base.insert(table.member.clone(), Value::from(text.as_str()));
            *members = shown.members(call_id, base, Map::new());
        }
        self.grow(text.len())?;
        if !text.is_empty() {
            self.item_event(&format!("response.{}.delta", table.events), place, |out, _| {
                raw(out, ",\"delta\":");
                string(out, &text);
            });
        }
        self.item_event(&format!("response.{}.done", table.events), place, |out, _| {
            raw(out, ",");
            string(out, &table.member);
            raw(out, ":");
            string(out, &text);
        });
        Ok(())
    }

    /// How the call at `place` is shown, if it is one that the host answers.
    pub(super) fn shown(&self, place: usize) -> Option<Arc<Shown>> {
        match self.items.get(place).map(|item| &item.body) {
            Some(Body::Tool { shown, .. }) => Some(Arc::clone(shown)),
            _ => None,
        }
    }
}

/// The text that the arguments hold; none where they hold none, or are no JSON.
fn text_of(table: &TextTable, arguments: &str) -> Option<String> {
    if table.argument.is_empty() {
        return Some(arguments.to_owned());
    }
    let mut arguments: Value = serde_json::from_str(arguments).ok()?;
    match arguments.pointer_mut(&table.argument)?.take() {
        Value::String(text) => Some(text),
        _ => None,
    }
}
