//! Assembles the calls of one answer from pieces. A call is announced when its first argument
//! arrives or the answer ends, because its id and its name may be incomplete until then. Calls end
//! only with the answer, because servers may interleave their pieces.

use std::collections::BTreeSet;

use cofferdam_guest_kit::bindings::generation::{CallDelta, CallStart, Event};
use cofferdam_guest_kit::{Events, Malformed};

use crate::wire::{CallPart, Named};

/// The largest number of calls in one answer; more are treated as an error of the server.
const CALLS_MAX: usize = 256;

#[derive(Default)]
pub(crate) struct Calls {
    calls: Vec<Call>,
    /// The ids of the calls that were announced. The client assigns its results by them.
    call_ids: BTreeSet<String>,
    /// Taken from the request's id. It makes generated call ids differ between answers.
    tag: String,
}

#[derive(Default)]
struct Call {
    index: Option<u64>,
    /// The server's id, by which its pieces are found.
    id: String,
    name: String,
    custom: bool,
    announced: bool,
    /// Whether arguments have arrived.
    begun: bool,
    /// Arguments that arrived before the name.
    held: String,
}

impl Calls {
    pub(crate) fn new(request_id: &str) -> Self {
        let tag = request_id.rsplit('_').next().unwrap_or_default();
        let tag = tag.chars().filter(char::is_ascii_alphanumeric).take(40).collect();
        Self { tag, ..Self::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Takes a piece of a call from a stream.
    pub(crate) fn take_piece(&mut self, part: &CallPart<'_>, events: &mut Events) -> Result<(), Malformed> {
        let at = match self.find(part) {
            Some(at) => at,
            None => self.add(part.index.0)?,
        };
        self.extend(at, part, events);
        Ok(())
    }

    /// Takes a complete call.
    pub(crate) fn take_whole(&mut self, part: &CallPart<'_>, events: &mut Events) -> Result<(), Malformed> {
        let at = self.add(None)?;
        self.extend(at, part, events);
        Ok(())
    }

    /// Takes a piece of the old form `function_call`, which has only one call.
    pub(crate) fn take_only(&mut self, named: &Named<'_>, events: &mut Events) -> Result<(), Malformed> {
        if self.calls.is_empty() {
            self.add(None)?;
        }
        self.extend_named(0, named, events);
        Ok(())
    }

    /// Announces the remaining calls and ends all calls. A call without a name is an error. With
    /// `is_cut` the answer was cut off: its calls are not ended, because each of them may be cut, too.
    pub(crate) fn finish(&mut self, is_cut: bool, events: &mut Events) -> Result<(), Malformed> {
        self.announce_up_to(self.calls.len(), events);
        if is_cut {
            return Ok(());
        }
        for (at, call) in self.calls.iter().enumerate().filter(|(_, call)| call.announced) {
            // A function without parameters: clients parse the arguments, so they must be valid JSON.
            if !call.begun && !call.custom {
                events.push(arguments(at, "{}".to_owned(), false));
            }
            events.push(Event::CallEnd(key(at)));
        }
        if self.calls.iter().all(|call| call.announced) { Ok(()) } else { Err(Malformed) }
    }

    /// The call that a piece continues. Some servers give every call the index 0 and distinguish
    /// calls by id; others send no index at all, or one id for all calls.
    fn find(&self, part: &CallPart<'_>) -> Option<usize> {
        let id = part.id.as_str();
        let named = part.function.as_ref().or(part.custom.as_ref());
        let name = named.map_or("", |named| named.name.as_str());
        let at = match part.index.0 {
            Some(_) => self.calls.iter().rposition(|call| call.index == part.index.0)?,
            None if !id.is_empty() => self.calls.iter().rposition(|call| call.id == id)?,
            None => self.calls.len().checked_sub(1)?,
        };
        let call = self.calls.get(at)?;
        let has_neither = part.index.0.is_none() && id.is_empty();
        let differs = name != call.name || (!id.is_empty() && id != call.id);
        let is_new = call.announced && !name.is_empty() && (differs || has_neither);
        (!is_new).then_some(at)
    }

    fn add(&mut self, index: Option<u64>) -> Result<usize, Malformed> {
        if self.calls.len() >= CALLS_MAX {
            return Err(Malformed);
        }
        self.calls.push(Call { index, ..Call::default() });
        Ok(self.calls.len() - 1)
    }

    fn extend(&mut self, at: usize, part: &CallPart<'_>, events: &mut Events) {
        let Some(call) = self.calls.get_mut(at) else { return };
        append(&mut call.id, part.id.as_str(), call.announced);
        call.custom |= part.custom.is_some();
        if let Some(named) = part.function.as_ref().or(part.custom.as_ref()) {
            self.extend_named(at, named, events);
        }
    }

    fn extend_named(&mut self, at: usize, named: &Named<'_>, events: &mut Events) {
        let Some(call) = self.calls.get_mut(at) else { return };
        append(&mut call.name, named.name.as_str(), call.announced);
        let text = named.arguments.0.as_deref().or(named.input.0.as_deref()).unwrap_or_default();
        if text.is_empty() {
            return;
        }
        call.begun = true;
        if call.name.is_empty() {
            call.held.push_str(text);
            return;
        }
        let custom = call.custom;
        self.announce_up_to(at + 1, events);
        events.push(arguments(at, text.to_owned(), custom));
    }

    /// Announces the calls before `end` in their order, so that the items have the same order. A call
    /// that has no name yet is skipped. A call whose id is absent or came already gets another one.
    fn announce_up_to(&mut self, end: usize, events: &mut Events) {
        for (at, call) in self.calls.iter_mut().enumerate().take(end) {
            if call.announced || call.name.is_empty() {
                continue;
            }
            call.announced = true;
            let is_new = !call.id.is_empty() && !self.call_ids.contains(&call.id);
            let call_id = if is_new { call.id.clone() } else { format!("call_{}_{at}", self.tag) };
            self.call_ids.insert(call_id.clone());
            let start = CallStart { key: key(at), call_id, name: call.name.clone(), namespace: None };
            events.push(if call.custom {
                Event::CustomCallStart(start)
            } else {
                Event::FunctionCallStart(start)
            });
            if !call.held.is_empty() {
                events.push(arguments(at, std::mem::take(&mut call.held), call.custom));
            }
        }
    }
}

fn key(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// Adds a piece of an id or a name. Some servers repeat the whole value in each chunk.
fn append(text: &mut String, piece: &str, announced: bool) {
    if !announced && *text != piece {
        text.push_str(piece);
    }
}

fn arguments(at: usize, text: String, custom: bool) -> Event {
    let delta = CallDelta { key: key(at), text };
    if custom { Event::CustomInputDelta(delta) } else { Event::FunctionArgumentsDelta(delta) }
}
