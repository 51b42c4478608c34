//! Calls that the host answers itself: what the model makes as a function call, the client sees as one item
//! of a server tool, added when the call begins and done when its result is there. The arguments are the
//! model's and stay inside, but for what the tool's manifest shows of them.

use super::items::{Body, Status};
use super::json::compact_json;
use super::{Assembler, Malformed, OUTPUT_BYTES_MAX, PARTS_MAX, Served, Shown};
use cofferdam_runtime::wire::CallStart;
use serde_json::{Map, Value};
use std::sync::Arc;

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

    /// How this call is shown, if it is one of a server tool.
    pub(super) fn served_as(&self, start: &CallStart) -> Option<Arc<Shown>> {
        let served = self.served.as_ref().filter(|_| start.namespace.is_none())?;
        served.get(&start.name).cloned()
    }

    pub(super) fn start_tool(&mut self, start: CallStart, shown: Arc<Shown>) -> Result<(), Malformed> {
        let CallStart { key, call_id, name, .. } = start;
        let call_id = self.own_call_id(call_id);
        let base = shown.members.clone();
        let body = Body::Tool {
            members: shown.members(&call_id, &base, Map::new()),
            shown,
            call_id,
            function: name,
            arguments: String::new(),
            ended: false,
            base,
        };
        let place = self.add(body, Some(key))?;
        self.call_event(place, "in_progress", |_| {});
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
    /// They are shown as being worked at from now on.
    ///
    /// # Errors
    /// [`Malformed`] when showing what was called makes the output too large.
    pub fn end_turn(&mut self) -> Result<Vec<ServerCall>, Malformed> {
        self.close_open(Status::Completed);
        for place in self.turn_start..self.items.len() {
            self.end_arguments(place)?;
        }
        let calls = self.calls_to_run();
        self.work_events(calls.iter().map(|call| call.item));
        Ok(calls)
    }

    fn calls_to_run(&self) -> Vec<ServerCall> {
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

    /// Whether this turn called something that the client has to answer: what nobody here runs, and what
    /// went well of server tools that leave the rest to the client.
    pub fn has_client_calls(&self) -> bool {
        self.items.iter().skip(self.turn_start).any(|item| match &item.body {
            Body::Call { .. } | Body::Opaque { is_client_call: true, .. } => true,
            Body::Tool { shown, .. } => shown.table.halts && item.status == Status::Completed,
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
        let said: Map<String, Value> = serde_json::from_slice(members).map_err(|_| Malformed::InvalidJson)?;
        self.grow(members.len())?;
        let Some(Body::Tool { shown, call_id, base, members, .. }) =
            self.items.get_mut(place).map(|item| &mut item.body)
        else {
            return Ok(());
        };
        *members = shown.members(call_id, base, said);
        let tells_failure = shown.table.failed;
        let status = match outcome {
            ToolOutcome::Completed => Status::Completed,
            ToolOutcome::Failed => Status::Failed,
        };
        match outcome {
            ToolOutcome::Completed => self.call_event(place, "completed", |_| {}),
            ToolOutcome::Failed if tells_failure => self.call_event(place, "failed", |_| {}),
            ToolOutcome::Failed => {}
        }
        self.finish_item(place, status);
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
