//! Calls that the host answers itself: what the model makes as a function call, the client sees as one item
//! of a server tool, added when the call begins and done when its result is there. The arguments are the
//! model's and stay inside.

use super::items::{Body, Item, Status};
use super::json::{raw, string};
use super::{Assembler, Malformed, OUTPUT_BYTES_MAX};
use crate::assembler::approvals::Binding;
use cofferdam_runtime::manifest::TextTable;
use cofferdam_runtime::wire::CallStart;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A member of every item of a server tool's own type. Clients of OpenAI's library for Python take an item whose
/// type they do not know for a message, and some, its own agents among them, break where it has no content.
const NO_CONTENT: &str = "content";

/// JSON-RPC's code for what went wrong inside.
const INTERNAL_ERROR: i64 = -32603;

/// How a client sees the calls of a function.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallItem {
    /// The type of the item: `service:datetime`.
    pub item_type: String,
    /// What its id begins with.
    pub id_prefix: String,
    /// Its members from the beginning on; what the tool says later replaces them.
    pub members: Map<String, Value>,
    /// Whether it has no `status`.
    pub is_stateless: bool,
    /// Whether the item has the model's arguments.
    pub shows_arguments: bool,
    /// Whether there are events about them, too.
    pub streams_arguments: bool,
    /// A part of the arguments that is shown by itself.
    pub text: Option<TextTable>,
    /// The word in the names of the events that tell of a call's questions to models, if they are told.
    pub questions: Option<String>,
    /// Members that are null, because the request did not ask for them.
    pub withheld: Vec<String>,
    /// Full names of the events when the item is added, when its call is run and when it has ended, well or
    /// not.
    pub added: Vec<String>,
    /// See [`Self::added`].
    pub running: Vec<String>,
    /// See [`Self::added`].
    pub completed: Vec<String>,
    /// See [`Self::added`].
    pub failed: Vec<String>,
    /// Whether an `error` that the tool says is the end of the call, not a part of its result.
    pub fails_by_error: bool,
    /// The `type` of an error that the host words itself, where errors are objects.
    pub error_type: Option<String>,
    /// The call is not run: it ends the turn, and the client has to approve it by the id that this makes.
    pub(crate) asks: Option<Binding>,
    /// A call that went well is the client's to answer, by its `call_id`.
    pub halts: bool,
}

impl CallItem {
    /// The item of a tool's own type.
    pub fn own(item_type: String) -> Self {
        let members = Map::from_iter([(NO_CONTENT.to_owned(), Value::Array(Vec::new()))]);
        Self { item_type, id_prefix: "st".to_owned(), members, ..Self::default() }
    }

    /// Makes an object of an error in words.
    fn type_error(&self, said: &mut Map<String, Value>) {
        let Some(error_type) = &self.error_type else { return };
        if let Some(error) = said.get_mut("error")
            && let Value::String(message) = error
        {
            *error =
                json!({ "type": error_type, "code": INTERNAL_ERROR, "message": std::mem::take(message) });
        }
    }

    /// The part of the arguments that is shown by itself; none where they hold none, or are no JSON.
    fn text_of(&self, arguments: &str) -> Option<(&TextTable, String)> {
        let table = self.text.as_ref()?;
        let mut arguments: Value = serde_json::from_str(arguments).ok()?;
        match arguments.pointer_mut(&table.argument)?.take() {
            Value::String(text) => Some((table, text)),
            _ => None,
        }
    }

    /// The member that shows a part of the arguments, of an item that has it from its beginning.
    fn text_members(&self, arguments: &str) -> Map<String, Value> {
        let text = self.text_of(arguments).filter(|(table, _)| self.members.contains_key(&table.member));
        text.map(|(table, text)| (table.member.clone(), Value::from(text))).into_iter().collect()
    }

    /// Members as they are written: comma-separated, without braces. What is the host's to say stays out.
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

/// The functions that the host serves, each with what a client sees of a call.
#[derive(Debug, Default)]
pub struct Served(BTreeMap<String, Arc<CallItem>>);

impl Served {
    /// From pairs of function and item.
    pub fn new(functions: impl IntoIterator<Item = (String, Arc<CallItem>)>) -> Self {
        Self(functions.into_iter().collect())
    }
}

/// One call of a function that the host serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerCall {
    /// The place of its item in the output.
    pub item: usize,
    /// Ties it to its result.
    pub call_id: String,
    /// The function.
    pub function: String,
    /// What the model passes: JSON if the model did well.
    pub arguments: String,
}

/// How a call of a server tool ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolOutcome {
    /// With a result.
    Completed,
    /// With an error, which stands in the item's `error`.
    Failed,
}

impl Assembler {
    /// Takes calls of these functions for calls of server tools from now on.
    pub fn serve(&mut self, served: Arc<Served>) {
        self.served = Some(served);
    }

    /// What a client sees of this call, if it is one of a server tool.
    pub(super) fn call_item(&self, start: &CallStart) -> Option<Arc<CallItem>> {
        let served = self.served.as_ref().filter(|_| start.namespace.is_none())?;
        served.0.get(&start.name).cloned()
    }

    pub(super) fn start_tool(&mut self, start: CallStart, item: Arc<CallItem>) -> Result<(), Malformed> {
        if item.asks.is_some() {
            self.start_asking(start, item);
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
        let body = Body::Tool { item, call_id, function, arguments, ended: false, members };
        let place = self.add(body, key)?;
        self.item_events(&added, place);
        Ok(place)
    }

    /// Shows something that a tool did before the first turn: a call with these arguments, finished at once.
    ///
    /// # Errors
    /// [`Malformed`] when there is no room for it, or `members` is no JSON object.
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

    /// Events of an item that say nothing but its place.
    pub(super) fn item_events(&mut self, names: &[String], place: usize) {
        for name in names {
            self.item_event(name, place, |_, _| {});
        }
    }

    /// Adds to the arguments of a call.
    pub(super) fn arguments(&mut self, place: usize, delta: &str) {
        let Some(Body::Tool { item, arguments, .. }) = self.items.get_mut(place).map(|item| &mut item.body)
        else {
            return;
        };
        arguments.push_str(delta);
        if item.streams_arguments && !delta.is_empty() {
            let name = format!("response.{}_arguments.delta", item.item_type);
            self.item_event(&name, place, |out, _| {
                raw(out, ",\"delta\":");
                string(out, delta);
            });
        }
    }

    /// The model has said all arguments of a call.
    pub(super) fn end_arguments(&mut self, place: usize) -> Result<(), Malformed> {
        let Some(Body::Tool { item, call_id, arguments, ended, members, .. }) =
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
        match text {
            Some((table, text)) => self.text_events(place, table, &text),
            None => Ok(()),
        }
    }

    /// Shows a part of the arguments, in one piece: before its end nobody can tell where in them it stands.
    fn text_events(&mut self, place: usize, table: &TextTable, text: &str) -> Result<(), Malformed> {
        self.grow(text.len())?;
        if !text.is_empty() {
            self.item_event(&format!("response.{}.delta", table.events), place, |out, _| {
                raw(out, ",\"delta\":");
                string(out, text);
            });
        }
        self.item_event(&format!("response.{}.done", table.events), place, |out, _| {
            raw(out, ",");
            string(out, &table.member);
            raw(out, ":");
            string(out, text);
        });
        Ok(())
    }

    fn run_event(&mut self, place: usize) {
        let Some(Body::Tool { item, .. }) = self.items.get(place).map(|item| &item.body) else { return };
        let item = Arc::clone(item);
        self.item_events(&item.running, place);
    }

    /// Providers without ids of their own number the calls of each answer anew; here several answers become one.
    pub(super) fn own_call_id(&self, call_id: String) -> String {
        let taken = |id: &str| {
            self.items.iter().any(|item| match &item.body {
                Body::Tool { call_id, .. } | Body::Call { call_id, .. } => call_id == id,
                _ => false,
            })
        };
        if !call_id.is_empty() && !taken(&call_id) {
            return call_id;
        }
        self.identity.item_id("call", self.items.len())
    }

    /// Closes what the turn left open but for the calls that the host is to run, and returns these, in their
    /// order.
    ///
    /// # Errors
    /// [`Malformed`] when what is shown of their arguments is more than a response may hold.
    pub fn end_turn(&mut self) -> Result<Vec<ServerCall>, Malformed> {
        let is_run = |item: &Item| {
            item.status == Status::InProgress
                && matches!(&item.body, Body::Tool { item, .. } if item.asks.is_none())
        };
        self.end_all_asking()?;
        // Without a call there is no other turn.
        self.is_ending = !self.items.iter().skip(self.turn_start).any(is_run);
        self.close_open(Status::Completed);
        let mut calls = Vec::new();
        for place in self.turn_start..self.items.len() {
            let is_open = self.items.get(place).is_some_and(|item| item.status == Status::InProgress);
            if !is_open {
                continue;
            }
            self.end_arguments(place)?;
            let Some(Body::Tool { item, call_id, function, arguments, .. }) =
                self.items.get(place).map(|item| &item.body)
            else {
                continue;
            };
            if item.asks.is_some() {
                self.finish_item(place, Status::Completed);
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

    /// Whether the client is told of the questions that the call at `place` puts to models.
    pub fn tells_questions(&self, place: usize) -> bool {
        let body = self.items.get(place).map(|item| &item.body);
        matches!(body, Some(Body::Tool { item, .. }) if item.questions.is_some())
    }

    /// Whether this turn called something that the client has to answer.
    pub fn has_client_calls(&self) -> bool {
        self.items.iter().skip(self.turn_start).any(|item| match &item.body {
            Body::Call { .. } | Body::Client(_) | Body::Opaque { is_client_call: true, .. } => true,
            Body::Tool { item: call, .. } => {
                call.asks.is_some() || (call.halts && item.status == Status::Completed)
            }
            _ => false,
        })
    }

    /// Ends the call whose item stands at `place`. `members` is a JSON object: the item's members beyond
    /// type, id and status, which stay ours whatever it says.
    ///
    /// # Errors
    /// [`Malformed`] when `members` is no JSON object or too large; the call is open still.
    pub fn finish_call(
        &mut self,
        place: usize,
        outcome: ToolOutcome,
        members: &[u8],
    ) -> Result<(), Malformed> {
        if self.output_bytes.saturating_add(members.len()) > OUTPUT_BYTES_MAX {
            return Err(Malformed::TooLarge);
        }
        let mut said: Map<String, Value> =
            serde_json::from_slice(members).map_err(|_| Malformed::InvalidJson)?;
        let Some(Body::Tool { item, call_id, arguments, .. }) = self.items.get(place).map(|item| &item.body)
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
        // Checked before it is counted: what does not fit is left out, and another end still may.
        if self.output_bytes.saturating_add(written.len()) > OUTPUT_BYTES_MAX {
            return Err(Malformed::TooLarge);
        }
        self.grow(written.len())?;
        if let Some(Body::Tool { members, .. }) = self.items.get_mut(place).map(|item| &mut item.body) {
            *members = written;
        }
        let (events, status) = match outcome {
            ToolOutcome::Completed => (&item.completed, Status::Completed),
            ToolOutcome::Failed => (&item.failed, Status::Failed),
        };
        self.item_events(events, place);
        self.finish_item(place, status);
        Ok(())
    }

    /// Closes calls of this turn that nobody has run.
    pub(super) fn close_server_calls(&mut self) {
        for index in self.turn_start..self.items.len() {
            if self.items.get(index).is_some_and(|item| item.status == Status::InProgress) {
                self.finish_item(index, Status::Incomplete);
            }
        }
    }

    /// Begins the answer of another turn, given by a model of this name and tier. What the turns before
    /// consumed is added to what this one will.
    pub fn next_turn(&mut self, model: &str, service_tier: &str) {
        self.close_server_calls();
        self.asking.clear();
        self.earlier = self.total_usage();
        self.usage = None;
        self.ended = None;
        self.turn_start = self.items.len();
        model.clone_into(&mut self.identity.model);
        service_tier.clone_into(&mut self.identity.service_tier);
    }
}

/// What an event about the end of a call's arguments says.
fn write_arguments(out: &mut Vec<u8>, item: &Item) {
    if let Body::Tool { arguments, .. } = &item.body {
        raw(out, ",\"arguments\":");
        string(out, arguments);
    }
}
