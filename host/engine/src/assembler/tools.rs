//! Calls that the host answers itself: what the model makes as a function call, the client sees as one item
//! of a server tool, added when the call begins and done when its result is there. The arguments are the
//! model's and stay inside.

use super::items::{Body, Status};
use super::json::compact_json;
use super::{Assembler, Malformed, OUTPUT_BYTES_MAX, PARTS_MAX};
use cofferdam_runtime::wire::CallStart;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A member of every item of a server tool. Clients of OpenAI's library for Python take an item whose type
/// they do not know for a message, and some, its own agents among them, break where it has no content.
const NO_CONTENT: &[u8] = br#""content":[]"#;

/// How calls of a function are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedKind {
    /// The type of the item that stands for a call, such as `service:datetime`.
    pub item_type: Arc<str>,
    /// The word in the names of its own events, such as `fusion_call`, if it has any.
    pub events: Option<Arc<str>>,
}

/// The functions that the host serves.
#[derive(Debug, Default)]
pub struct Served(BTreeMap<String, ServedKind>);

impl Served {
    /// From pairs of function and kind.
    pub fn new(functions: impl IntoIterator<Item = (String, ServedKind)>) -> Self {
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

    /// The kind of the server tool that this call is of, if it is of any.
    pub(super) fn served_kind(&self, start: &CallStart) -> Option<ServedKind> {
        let served = self.served.as_ref().filter(|_| start.namespace.is_none())?;
        served.0.get(&start.name).cloned()
    }

    pub(super) fn start_tool(&mut self, start: CallStart, kind: ServedKind) -> Result<(), Malformed> {
        let CallStart { key, call_id, name, .. } = start;
        let call_id = self.own_call_id(call_id);
        let body = Body::Tool {
            item_type: kind.item_type,
            events: kind.events,
            call_id,
            function: name,
            arguments: String::new(),
            ended: false,
            members: NO_CONTENT.to_vec(),
        };
        let index = self.add(body, Some(key))?;
        self.call_event(index, "in_progress", |_| {});
        Ok(())
    }

    /// Providers without ids of their own number the calls of each answer anew; here several answers become one.
    fn own_call_id(&self, call_id: String) -> String {
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

    /// Closes what the turn left open but for the calls of server tools, and returns these, in their order.
    pub fn end_turn(&mut self) -> Vec<ServerCall> {
        self.close_open(Status::Completed);
        let calls = self.items.iter().enumerate().skip(self.turn_start);
        calls
            .filter_map(|(place, item)| match &item.body {
                Body::Tool { call_id, function, arguments, .. } if item.status == Status::InProgress => {
                    Some(ServerCall {
                        item: place,
                        call_id: call_id.clone(),
                        function: function.clone(),
                        arguments: arguments.clone(),
                    })
                }
                _ => None,
            })
            .collect()
    }

    /// Whether this turn called something that the client has to answer.
    pub fn has_client_calls(&self) -> bool {
        self.items
            .iter()
            .skip(self.turn_start)
            .any(|item| matches!(item.body, Body::Call { .. } | Body::Opaque { is_client_call: true, .. }))
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
        let mut object: Map<String, Value> =
            serde_json::from_slice(members).map_err(|_| Malformed::InvalidJson)?;
        for own in ["type", "id", "status"] {
            object.shift_remove(own);
        }
        if !object.contains_key("content") {
            object.insert("content".to_owned(), Value::Array(Vec::new()));
        }
        let written = serde_json::to_vec(&object).map_err(|_| Malformed::InvalidJson)?;
        let written = written.get(1..written.len().saturating_sub(1)).unwrap_or_default();
        self.grow(members.len())?;
        if let Some(Body::Tool { members, .. }) = self.items.get_mut(place).map(|item| &mut item.body) {
            written.clone_into(members);
        }
        if outcome == ToolOutcome::Completed {
            self.call_event(place, "completed", |_| {});
        }
        self.finish_item(
            place,
            match outcome {
                ToolOutcome::Completed => Status::Completed,
                ToolOutcome::Failed => Status::Failed,
            },
        );
        Ok(())
    }

    /// Adds these JSON objects to the annotations of the next text. What is none, or too much, is left out.
    pub fn annotate_next(&mut self, annotations: Vec<Vec<u8>>) {
        for annotation in annotations {
            let Some(annotation) = compact_json(&annotation, b'{') else { continue };
            // What does not fit is left out and counts for nothing.
            let fits = self.output_bytes + annotation.len() <= OUTPUT_BYTES_MAX;
            if self.next_annotations.len() < PARTS_MAX as usize && fits {
                self.output_bytes += annotation.len();
                self.next_annotations.push(annotation);
            }
        }
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
        self.earlier = self.total_usage();
        self.usage = None;
        self.ended = None;
        self.turn_start = self.items.len();
        model.clone_into(&mut self.identity.model);
        service_tier.clone_into(&mut self.identity.service_tier);
    }
}
