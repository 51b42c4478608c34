//! Calls that the host runs. The model makes a function call; the client receives one item of a
//! server tool, which is added when the call begins and done when its result is there. The model's
//! arguments stay inside the host, unless the tool's manifest shows them.

use super::items::{ItemBody, ItemStatus, OutputItem};
use super::{Assembler, Malformed};
use crate::assembler::approvals::Binding;
use bytes::Bytes;
use cofferdam_protocol::ObjectWriter;
use cofferdam_runtime::manifest::TextTable;
use cofferdam_runtime::wire::CallStart;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A member of every item of a server tool's own type, with an empty array. OpenAI's Python library
/// parses an item of unknown type as a message, and some of its clients, the OpenAI Agents SDK
/// among them, fail on a message without content.
const NO_CONTENT: &str = "content";

/// The JSON-RPC code for an internal error.
const INTERNAL_ERROR: i64 = -32603;

/// How the client sees the calls of a function.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallItem {
    /// The type of the item, such as `service:datetime`.
    pub item_type: String,
    /// The prefix of the item's id.
    pub id_prefix: String,
    /// The members of the item when it is added. Members in the tool's result replace them.
    pub members: Map<String, Value>,
    /// Whether the item has no `status`.
    pub is_stateless: bool,
    /// Whether the item has the model's arguments as `arguments`.
    pub shows_arguments: bool,
    /// Whether the arguments are streamed as events as well.
    pub streams_arguments: bool,
    /// A part of the arguments that is shown as a member of its own.
    pub text: Option<TextTable>,
    /// The word in the names of events about the call's questions to models; none if there are no
    /// such events.
    pub questions: Option<String>,
    /// Members that are written as null, because the request did not ask for them.
    pub withheld: Vec<String>,
    /// Full names of the events that are written when the item is added.
    pub added: Vec<String>,
    /// Full names of the events that are written when the call is run.
    pub running: Vec<String>,
    /// Full names of the events that are written when the call has completed.
    pub completed: Vec<String>,
    /// Full names of the events that are written when the call has failed.
    pub failed: Vec<String>,
    /// Whether an `error` in the tool's result makes the call fail, instead of being a part of the
    /// result.
    pub fails_by_error: bool,
    /// The `type` of an error that is only a text, for items whose `error` must be an object.
    pub error_type: Option<String>,
    /// Set when the client must approve the call. The call is then not run but ends the turn, and
    /// this makes the id of the approval request.
    pub(crate) asks: Option<Binding>,
    /// The client answers the call, by its `call_id`, after it completed here.
    pub halts: bool,
}

impl CallItem {
    /// The item of a server tool's own type.
    pub fn own(item_type: String) -> Self {
        let members = Map::from_iter([(NO_CONTENT.to_owned(), Value::Array(Vec::new()))]);
        Self { item_type, id_prefix: "st".to_owned(), members, ..Self::default() }
    }

    /// Converts an error text into an error object.
    fn type_error(&self, said: &mut Map<String, Value>) {
        let Some(error_type) = &self.error_type else { return };
        if let Some(error) = said.get_mut("error")
            && let Value::String(message) = error
        {
            *error =
                json!({ "type": error_type, "code": INTERNAL_ERROR, "message": std::mem::take(message) });
        }
    }

    /// The part of the arguments that is shown as a member; none if the arguments do not have it or
    /// are not JSON.
    fn text_of(&self, arguments: &str) -> Option<(&TextTable, String)> {
        let table = self.text.as_ref()?;
        let mut arguments: Value = serde_json::from_str(arguments).ok()?;
        match arguments.pointer_mut(&table.argument)?.take() {
            Value::String(text) => Some((table, text)),
            _ => None,
        }
    }

    /// The member that shows a part of the arguments, if the item has this member from the
    /// beginning.
    fn text_members(&self, arguments: &str) -> Map<String, Value> {
        let text = self.text_of(arguments).filter(|(table, _)| self.members.contains_key(&table.member));
        text.map(|(table, text)| (table.member.clone(), Value::from(text))).into_iter().collect()
    }

    /// The members as JSON, comma-separated and without braces. Members that the host sets itself
    /// are left out.
    pub(super) fn written(&self, call_id: &str, said: Map<String, Value>) -> Result<Vec<u8>, Malformed> {
        let mut object = self.members.clone();
        object.extend(said);
        object.extend(self.withheld.iter().map(|name| (name.clone(), Value::Null)));
        if self.halts {
            object.insert("call_id".to_owned(), Value::from(call_id));
        }
        for own in ["type", "id", "status"] {
            object.shift_remove(own);
        }
        if self.shows_arguments {
            object.shift_remove("arguments");
        }
        let written = serde_json::to_vec(&object).map_err(|_| Malformed::InvalidJson)?;
        Ok(written.get(1..written.len().saturating_sub(1)).unwrap_or_default().to_vec())
    }
}

/// The functions that the host runs, each with the form of its calls for the client.
#[derive(Debug, Default)]
pub struct Served(BTreeMap<String, Arc<CallItem>>);

impl Served {
    /// From pairs of a function name and an item.
    pub fn new(functions: impl IntoIterator<Item = (String, Arc<CallItem>)>) -> Self {
        Self(functions.into_iter().collect())
    }
}

/// One call of a function that the host runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerCall {
    /// The index of its item in the output.
    pub item: usize,
    /// The id that links the call and its result.
    pub call_id: String,
    /// The name of the function.
    pub function: String,
    /// The arguments as the model wrote them; they may be invalid JSON.
    pub arguments: String,
}

/// How a call of a server tool ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolOutcome {
    /// The call has a result.
    Completed,
    /// The call failed; the item's `error` says why.
    Failed,
}

impl Assembler {
    /// From now on, calls of these functions are calls of server tools.
    pub fn serve(&mut self, served: Arc<Served>) {
        self.served = Some(served);
    }

    /// The form of this call for the client, if it is a call of a server tool.
    pub(super) fn call_item(&self, start: &CallStart) -> Option<Arc<CallItem>> {
        let served = self.served.as_ref().filter(|_| start.namespace.is_none())?;
        served.0.get(&start.name).cloned()
    }

    pub(super) fn start_tool(&mut self, start: CallStart, item: Arc<CallItem>) -> Result<(), Malformed> {
        if item.asks.is_some() {
            self.start_call_for_approval(start, item);
            return Ok(());
        }
        let CallStart { key, call_id, name, .. } = start;
        let call_id = self.own_call_id(call_id);
        self.add_call(item, call_id, name, Some(key), String::new())?;
        Ok(())
    }

    pub(super) fn add_call(
        &mut self,
        item: Arc<CallItem>,
        call_id: String,
        function: String,
        key: Option<u32>,
        arguments: String,
    ) -> Result<usize, Malformed> {
        let members = item.written(&call_id, Map::new())?;
        self.grow(members.len())?;
        let added = item.added.clone();
        let body = ItemBody::Tool { item, call_id, function, arguments, ended: false, members };
        let place = self.add(body, key)?;
        self.item_events(&added, place);
        Ok(place)
    }

    /// Adds an item for something that a tool did before the first turn: a call with these
    /// arguments that is finished at once.
    ///
    /// # Errors
    /// [`Malformed`] when the output would be too large, or `members` is not a JSON object.
    pub fn show_call(
        &mut self,
        item: Arc<CallItem>,
        arguments: &str,
        outcome: ToolOutcome,
        members: &[u8],
    ) -> Result<(), Malformed> {
        let place = self.add_call(item, String::new(), String::new(), None, String::new())?;
        self.arguments(place, arguments);
        self.end_arguments(place)?;
        self.run_event(place);
        self.finish_call(place, outcome, members)?;
        self.turn_start = self.items.len();
        Ok(())
    }

    /// Writes events that have no members besides the item's id and index.
    pub(super) fn item_events(&mut self, names: &[String], place: usize) {
        for name in names {
            self.item_event(name, place, |_, _| {});
        }
    }

    /// Adds to the arguments of a call.
    pub(super) fn arguments(&mut self, place: usize, delta: &str) {
        let Some(ItemBody::Tool { item, arguments, .. }) =
            self.items.get_mut(place).map(|item| &mut item.body)
        else {
            return;
        };
        arguments.push_str(delta);
        if item.streams_arguments && !delta.is_empty() {
            let name = format!("response.{}_arguments.delta", item.item_type);
            self.item_event(&name, place, |event, _| {
                event.value("delta", delta);
            });
        }
    }

    /// Marks the arguments of a call as complete and writes the events about them.
    pub(super) fn end_arguments(&mut self, place: usize) -> Result<(), Malformed> {
        let Some(ItemBody::Tool { item, call_id, arguments, ended, members, .. }) =
            self.items.get_mut(place).map(|item| &mut item.body)
        else {
            return Ok(());
        };
        if std::mem::replace(ended, true) {
            return Ok(());
        }
        let item = Arc::clone(item);
        let text = item.text_of(arguments);
        if text.is_some() {
            *members = item.written(call_id, item.text_members(arguments))?;
        }
        if item.streams_arguments {
            let name = format!("response.{}_arguments.done", item.item_type);
            self.item_event(&name, place, write_arguments);
        }
        if let Some((table, text)) = text {
            // In one piece: the position of the text is known only when the JSON is complete.
            self.grow(text.len())?;
            self.text_events(place, &table.events, &table.member, &text);
        }
        Ok(())
    }

    fn run_event(&mut self, place: usize) {
        let Some(ItemBody::Tool { item, .. }) = self.items.get(place).map(|item| &item.body) else { return };
        let item = Arc::clone(item);
        self.item_events(&item.running, place);
    }

    /// Returns the provider's call id, or a new one if it is empty or already used. Some providers
    /// only number the calls of each answer, and a response may consist of several answers.
    pub(super) fn own_call_id(&self, call_id: String) -> String {
        let taken = |id: &str| {
            self.items.iter().any(|item| match &item.body {
                ItemBody::Tool { call_id, .. } | ItemBody::Call { call_id, .. } => call_id == id,
                _ => false,
            })
        };
        if !call_id.is_empty() && !taken(&call_id) {
            return call_id;
        }
        self.identity.item_id("call", self.items.len())
    }

    /// Closes everything that the turn left open, except the calls that the host must run. Returns
    /// these calls in their order.
    ///
    /// # Errors
    /// [`Malformed`] when the shown parts of their arguments exceed the limits of a response.
    pub fn end_turn(&mut self) -> Result<Vec<ServerCall>, Malformed> {
        let is_run = |item: &OutputItem| {
            item.status == ItemStatus::InProgress
                && matches!(&item.body, ItemBody::Tool { item, .. } if item.asks.is_none())
        };
        self.end_calls_for_approval()?;
        // A further turn follows calls that the host runs, unless the client has to answer one too.
        let is_run = self.items.iter().skip(self.turn_start).any(is_run);
        self.is_ending = !is_run || self.has_client_calls();
        self.close_open(ItemStatus::Completed);
        let mut calls = Vec::new();
        for place in self.turn_start..self.items.len() {
            let is_open = self.items.get(place).is_some_and(|item| item.status == ItemStatus::InProgress);
            if !is_open {
                continue;
            }
            self.end_arguments(place)?;
            let Some(ItemBody::Tool { item, call_id, function, arguments, .. }) =
                self.items.get(place).map(|item| &item.body)
            else {
                continue;
            };
            if item.asks.is_some() {
                self.finish_item(place, ItemStatus::Completed);
                continue;
            }
            calls.push(ServerCall {
                item: place,
                call_id: call_id.clone(),
                function: function.clone(),
                arguments: arguments.clone(),
            });
            self.run_event(place);
        }
        Ok(calls)
    }

    /// Whether the client receives events about the questions that the call at index `place` asks
    /// models.
    pub fn tells_questions(&self, place: usize) -> bool {
        let body = self.items.get(place).map(|item| &item.body);
        matches!(body, Some(ItemBody::Tool { item, .. }) if item.questions.is_some())
    }

    /// Whether this turn made a call that the client must answer.
    pub fn has_client_calls(&self) -> bool {
        self.items.iter().skip(self.turn_start).any(|item| match &item.body {
            ItemBody::Call { .. } | ItemBody::Client(_) | ItemBody::Opaque { is_client_call: true, .. } => {
                true
            }
            ItemBody::Tool { item: call, .. } => {
                call.asks.is_some() || (call.halts && item.status == ItemStatus::Completed)
            }
            _ => false,
        })
    }

    /// Ends the call at index `place`. `members` is a JSON object with the members of the item;
    /// `type`, `id` and `status` in it are ignored.
    ///
    /// # Errors
    /// [`Malformed`] when `members` is not a JSON object or is too large. The call then stays open.
    pub fn finish_call(
        &mut self,
        place: usize,
        outcome: ToolOutcome,
        members: &[u8],
    ) -> Result<(), Malformed> {
        if self.output_bytes.saturating_add(members.len()) > self.output_max {
            return Err(Malformed::TooLarge);
        }
        let mut said: Map<String, Value> =
            serde_json::from_slice(members).map_err(|_| Malformed::InvalidJson)?;
        let Some(ItemBody::Tool { item, call_id, arguments, .. }) =
            self.items.get(place).map(|item| &item.body)
        else {
            return Ok(());
        };
        let item = Arc::clone(item);
        item.type_error(&mut said);
        let has_error = item.fails_by_error && said.get("error").is_some_and(|error| !error.is_null());
        let outcome = if has_error { ToolOutcome::Failed } else { outcome };
        let mut all = item.text_members(arguments);
        all.extend(said);
        let written = item.written(call_id, all)?;
        // Checked before it is counted, so that a smaller result can still end the call.
        if self.output_bytes.saturating_add(written.len()) > self.output_max {
            return Err(Malformed::TooLarge);
        }
        self.grow(written.len())?;
        if let Some(ItemBody::Tool { members, .. }) = self.items.get_mut(place).map(|item| &mut item.body) {
            *members = written;
        }
        let (events, status) = match outcome {
            ToolOutcome::Completed => (&item.completed, ItemStatus::Completed),
            ToolOutcome::Failed => (&item.failed, ItemStatus::Failed),
        };
        self.item_events(events, place);
        self.finish_item(place, status);
        Ok(())
    }

    /// Closes the calls of this turn that were not run.
    pub(super) fn close_server_calls(&mut self) {
        for index in self.turn_start..self.items.len() {
            if self.items.get(index).is_some_and(|item| item.status == ItemStatus::InProgress) {
                self.finish_item(index, ItemStatus::Incomplete);
            }
        }
    }

    /// The items of this turn in their order, each as a JSON object for the input of the next turn.
    pub fn turn_items(&self) -> Vec<Bytes> {
        self.items.iter().skip(self.turn_start).filter_map(OutputItem::as_input).collect()
    }

    /// Begins another turn, with the name and tier of the model that answers. The usage so far is
    /// kept and added to that of the new turn.
    pub fn next_turn(&mut self, model: &str, service_tier: &str) {
        self.close_server_calls();
        self.for_approval.clear();
        self.earlier = self.total_usage();
        self.usage = None;
        self.ended = None;
        self.turn_start = self.items.len();
        model.clone_into(&mut self.identity.model);
        service_tier.clone_into(&mut self.identity.service_tier);
    }
}

fn write_arguments(event: &mut ObjectWriter<'_>, item: &OutputItem) {
    if let ItemBody::Tool { arguments, .. } = &item.body {
        event.value("arguments", arguments);
    }
}
