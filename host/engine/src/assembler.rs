//! Turns normalized provider events into a response. Only the assembler assigns ids, sequence
//! numbers and output indexes, and writes the added, delta and done events and the terminal event,
//! so no guest can produce a malformed stream. The body of a request without streaming is written
//! from the same state at the end.

mod approval_requests;
pub(crate) mod approvals;
mod citations;
mod client_call;
mod client_calls;
mod compaction;
mod events;
mod hosted_calls;
mod items;
mod json;
mod message;
mod permits;
mod progress;
pub(crate) mod question_progress;
mod reasoning;
mod replay;
mod response;
mod tools;
mod whole;

pub use permits::Permits;
pub use replay::{ResponseReplay, check_finished};
pub use response::{Identity, Outcome, Receipt, ServerToolUse};
pub use tools::{CallItem, Served, ServerCall, ToolOutcome};

use crate::cost;
use crate::request::{RenderedTools, ServiceTier};
use approval_requests::StreamedCall;
use citations::WaitingCitation;
use cofferdam_runtime::wire::{CallDelta, CallStart, Event, Finish, FinishReason, Usage};
use events::Events;
use items::{ItemBody, ItemStatus, OutputItem};
use std::sync::Arc;

/// The most output of one response, in bytes of text, arguments and pictures.
pub const OUTPUT_BYTES_MAX: usize = 64 << 20;
/// The most output items of one response.
pub const OUTPUT_ITEMS_MAX: usize = 1024;
/// The most parts of one item.
const PARTS_MAX: u32 = 1024;

/// Why the events of a provider guest do not form a valid answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// More than [`OUTPUT_BYTES_MAX`] or [`OUTPUT_ITEMS_MAX`].
    #[error("the provider's answer is too large")]
    TooLarge,
    /// Arguments or input for a call that is not open, or a second start of a call that is open.
    #[error("the provider's answer continues a call that is not open")]
    UnknownCall,
    /// An item of a type that only the client or this host may create.
    #[error("the provider's answer holds an item that only a client or this host may make")]
    Forged,
    /// An annotation, log-probability list or opaque item is not JSON of the right shape.
    #[error("the provider's answer holds invalid JSON")]
    InvalidJson,
}

/// How the model ended its turn.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The reason that the provider gave.
    pub reason: FinishReason,
    /// The tier that served the turn, if the provider reported one that a response can name.
    pub service_tier: Option<ServiceTier>,
}

impl Ended {
    fn of(finish: Finish) -> Self {
        Self {
            reason: finish.reason,
            service_tier: finish.service_tier.as_deref().and_then(ServiceTier::named),
        }
    }
}

/// The state of one response while its events arrive.
pub struct Assembler {
    identity: Identity,
    events: Events,
    items: Vec<OutputItem>,
    open_message: Option<usize>,
    open_reasoning: Option<usize>,
    output_bytes: usize,
    output_max: usize,
    usage: Option<Usage>,
    /// The usage of all turns before the current one.
    earlier: Option<Usage>,
    ended: Option<Ended>,
    /// The item types that the provider of this turn may create.
    permits: Permits,
    /// The functions that the host runs, if any.
    served: Option<Arc<Served>>,
    /// The functions of this turn that represent tools of the client's own kinds, if any.
    told: Option<Arc<RenderedTools>>,
    /// The text of the model so far, when a conversation is compacted.
    summary: Option<String>,
    /// Calls of this turn that the client must approve and whose arguments are still arriving.
    for_approval: Vec<StreamedCall>,
    /// The index of the first item of this turn.
    turn_start: usize,
    /// Annotations from tools that no text has received yet.
    next_annotations: Vec<WaitingCitation>,
    /// The items that are closed from now on are the last of the answer.
    is_ending: bool,
}

impl Assembler {
    /// A response without output. With `streamed` false no events are written.
    pub fn new(identity: Identity, streamed: bool) -> Self {
        Self {
            identity,
            events: Events::new(streamed),
            items: Vec::new(),
            open_message: None,
            open_reasoning: None,
            output_bytes: 0,
            output_max: OUTPUT_BYTES_MAX,
            usage: None,
            earlier: None,
            ended: None,
            permits: Permits::default(),
            served: None,
            told: None,
            summary: None,
            for_approval: Vec::new(),
            turn_start: 0,
            next_annotations: Vec::new(),
            is_ending: false,
        }
    }

    /// Sets the item types that the provider may create from now on.
    pub fn permit(&mut self, permits: Permits) {
        self.permits = permits;
    }

    /// Writes `response.created` and `response.in_progress`, unless they have been written.
    pub fn begin(&mut self) {
        if !self.events.are_wanted() || self.events.have_begun() {
            return;
        }
        for name in ["response.created", "response.in_progress"] {
            let mut response = Vec::with_capacity(1024);
            self.write_response(&mut response, &Outcome::InProgress, &Receipt::default());
            self.events.write(name, |event| event.raw("response", &response));
        }
    }

    /// Writes `response.debug` with this object, which must be JSON without line breaks. It may
    /// come before all other events.
    pub fn debug(&mut self, debug: &[u8]) {
        self.events.write_aside("response.debug", |event| event.raw("debug", debug));
    }

    /// The events written since the last call, as server-sent events; empty when there are none.
    pub fn take_events(&mut self) -> Vec<u8> {
        self.events.take()
    }

    /// How the model ended the turn; none while it has not.
    pub fn ended(&self) -> Option<&Ended> {
        self.ended.as_ref()
    }

    /// The usage of this turn, as far as the provider has reported it.
    pub fn usage(&self) -> Option<&Usage> {
        self.usage.as_ref()
    }

    /// The usage of all turns, as far as the providers have reported it.
    pub fn total_usage(&self) -> Option<Usage> {
        match (&self.earlier, &self.usage) {
            (Some(earlier), Some(usage)) => Some(cost::sum(earlier, usage)),
            (earlier, usage) => earlier.or(*usage),
        }
    }

    /// Sets the usage of the turn, where the provider has reported none or left out some of it.
    pub fn assume(&mut self, usage: Usage) {
        self.usage = Some(usage);
    }

    /// Applies one event of the provider's answer.
    ///
    /// # Errors
    /// [`Malformed`]. The response can then only fail.
    pub fn apply(&mut self, event: Event) -> Result<(), Malformed> {
        let Some(event) = self.take_into_summary(event)? else { return Ok(()) };
        match event {
            Event::MessageStart(phase) => {
                self.close_reasoning(ItemStatus::Completed);
                self.close_message(ItemStatus::Completed);
                self.open_message(phase)?;
            }
            Event::TextDelta(delta) => self.text(delta)?,
            Event::RefusalDelta(text) => self.refusal(&text)?,
            Event::Annotation(annotation) => self.annotation(&annotation)?,
            Event::ReasoningTextDelta(text) => self.reasoning_text(&text)?,
            Event::ReasoningSummaryDelta(delta) => self.reasoning_summary(&delta)?,
            Event::ReasoningSeal(seal) => self.seal(seal)?,
            Event::FunctionCallStart(start) => self.start_call(start, false)?,
            Event::CustomCallStart(start) => self.start_call(start, true)?,
            Event::FunctionArgumentsDelta(delta) | Event::CustomInputDelta(delta) => {
                self.call_delta(&delta)?
            }
            Event::CallEnd(key) => self.end_call(key)?,
            Event::ImagePartial(image) => self.image(image, false)?,
            Event::ImageDone(image) => self.image(image, true)?,
            Event::OpaqueItem(item) => self.opaque(&item)?,
            // Some servers send zeros when they do not count.
            Event::Usage(usage) if usage == cost::no_usage() => {}
            Event::Usage(usage) => self.usage = Some(usage),
            Event::Finish(finish) => {
                self.ended = Some(Ended::of(finish));
            }
            // Callers handle errors before they apply events.
            Event::Error(_) => {}
        }
        Ok(())
    }

    /// Ends the response. For a stream, returns the remaining events up to the terminal event and
    /// `[DONE]`; otherwise the whole body.
    pub fn complete(&mut self, outcome: &Outcome, receipt: &Receipt) -> Vec<u8> {
        self.begin();
        self.is_ending = true;
        self.close_all(match outcome {
            Outcome::Completed => ItemStatus::Completed,
            _ => ItemStatus::Incomplete,
        });
        let mut body = Vec::with_capacity(1024 + self.output_bytes * 2);
        self.write_response(&mut body, outcome, receipt);
        if !self.events.are_wanted() {
            return body;
        }
        self.events.write(outcome.event(), |event| event.raw("response", &body));
        self.events.end();
        self.take_events()
    }

    fn grow(&mut self, bytes: usize) -> Result<(), Malformed> {
        self.output_bytes += bytes;
        if self.is_overfull() { Err(Malformed::TooLarge) } else { Ok(()) }
    }

    fn add(&mut self, body: ItemBody, key: Option<u32>) -> Result<usize, Malformed> {
        let id = body.id(&self.identity, self.items.len());
        self.add_as(id, body, key)
    }

    fn add_as(&mut self, id: String, body: ItemBody, key: Option<u32>) -> Result<usize, Malformed> {
        let index = self.items.len();
        if index >= OUTPUT_ITEMS_MAX {
            return Err(Malformed::TooLarge);
        }
        self.items.push(OutputItem { id, key, body, status: ItemStatus::InProgress });
        self.whole_item_event("response.output_item.added", index);
        Ok(index)
    }

    fn finish_item(&mut self, index: usize, status: ItemStatus) {
        if let Some(item) = self.items.get_mut(index) {
            item.status = status;
        }
        self.whole_item_event("response.output_item.done", index);
    }

    fn start_call(&mut self, start: CallStart, custom: bool) -> Result<(), Malformed> {
        if self.open_call(start.key).is_some() || self.waits_for_approval(start.key) {
            return Err(Malformed::UnknownCall);
        }
        let served = self.call_item(&start).filter(|_| !custom);
        // The response ends with a call that the client answers, so no text of a later turn can have
        // the citations that wait.
        self.is_ending |= served.as_ref().is_none_or(|item| item.asks.is_some() || item.halts);
        self.close_reasoning(ItemStatus::Completed);
        self.close_message(ItemStatus::Completed);
        if let Some(item) = served {
            return self.start_tool(start, item);
        }
        let Some(start) = self.start_client_call(start, custom)? else { return Ok(()) };
        let CallStart { key, call_id, name, namespace } = start;
        self.add(ItemBody::Call { custom, call_id, name, namespace, text: String::new() }, Some(key))?;
        Ok(())
    }

    fn open_call(&self, key: u32) -> Option<usize> {
        self.items.iter().position(|item| item.is_open_call(key))
    }

    fn call_delta(&mut self, delta: &CallDelta) -> Result<(), Malformed> {
        if delta.text.is_empty() {
            return Ok(());
        }
        self.grow(delta.text.len())?;
        if self.ask_delta(delta.key, &delta.text) {
            return Ok(());
        }
        let index = self.open_call(delta.key).ok_or(Malformed::UnknownCall)?;
        let name = match self.items.get_mut(index).map(|item| &mut item.body) {
            Some(ItemBody::Call { custom, text, .. }) => {
                text.push_str(&delta.text);
                if *custom {
                    "response.custom_tool_call_input.delta"
                } else {
                    "response.function_call_arguments.delta"
                }
            }
            Some(ItemBody::Tool { .. }) => {
                self.arguments(index, &delta.text);
                return Ok(());
            }
            Some(ItemBody::Client(call)) => {
                call.push(&delta.text);
                return Ok(());
            }
            _ => return Ok(()),
        };
        self.item_event(name, index, |event, _| {
            event.value("delta", &delta.text);
        });
        Ok(())
    }

    fn end_call(&mut self, key: u32) -> Result<(), Malformed> {
        if self.end_call_for_approval(key)? {
            return Ok(());
        }
        let Some(index) = self.open_call(key) else { return Ok(()) };
        match self.items.get_mut(index).map(|item| &mut item.body) {
            Some(ItemBody::Tool { .. }) => return self.end_arguments(index),
            Some(ItemBody::Client(_)) => self.close_client_call(index, ItemStatus::Completed),
            _ => self.close_call(index, ItemStatus::Completed),
        }
        Ok(())
    }

    fn close_call(&mut self, index: usize, status: ItemStatus) {
        let custom = self.items.get(index).is_some_and(OutputItem::is_custom);
        let name = if custom {
            "response.custom_tool_call_input.done"
        } else {
            "response.function_call_arguments.done"
        };
        self.item_event(name, index, |event, item| item.write_call_done(event));
        self.finish_item(index, status);
    }

    /// Closes everything. Calls of server tools that were not run become incomplete.
    fn close_all(&mut self, status: ItemStatus) {
        self.close_open(status);
        if self.served.is_some() {
            self.close_server_calls();
        }
    }

    /// Closes everything except calls of server tools.
    fn close_open(&mut self, status: ItemStatus) {
        self.close_reasoning(status);
        self.close_message(status);
        for index in self.turn_start..self.items.len() {
            let Some(item) = self.items.get(index) else { continue };
            match (&item.body, item.status) {
                (ItemBody::Call { .. }, ItemStatus::InProgress) => self.close_call(index, status),
                (ItemBody::Client(_), ItemStatus::InProgress) => self.close_client_call(index, status),
                (ItemBody::Tool { .. }, _) => {}
                // Its last version has not come.
                (ItemBody::Image { .. }, ItemStatus::InProgress) => {
                    self.finish_item(index, ItemStatus::Incomplete)
                }
                (_, ItemStatus::InProgress) => self.finish_item(index, status),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
