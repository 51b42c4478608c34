//! Calls that the client must approve. Each becomes a request for approval whose id ends with a proof
//! over the call, including its arguments, so the item is added only when the arguments are complete.

use super::{Assembler, CallItem, Identity, Malformed};
use cofferdam_runtime::wire::CallStart;
use std::sync::Arc;

/// How many digits of the response's id are part of an approval request's id.
const DIGITS: usize = 12;

/// A call whose arguments are still arriving.
pub(super) struct StreamedCall {
    key: u32,
    item: Arc<CallItem>,
    call_id: String,
    function: String,
    arguments: String,
}

impl Assembler {
    pub(super) fn start_call_for_approval(&mut self, start: CallStart, item: Arc<CallItem>) {
        let CallStart { key, call_id, name, .. } = start;
        let call_id = self.own_call_id(call_id);
        self.for_approval.push(StreamedCall { key, item, call_id, function: name, arguments: String::new() });
    }

    /// Whether there is a call with this key that the client must approve and whose arguments are
    /// still arriving.
    pub(super) fn waits_for_approval(&self, key: u32) -> bool {
        self.for_approval.iter().any(|call| call.key == key)
    }

    /// Adds to the arguments of a call that the client must approve. Returns false if the key is
    /// not one of such a call.
    pub(super) fn ask_delta(&mut self, key: u32, delta: &str) -> bool {
        let call = self.for_approval.iter_mut().find(|call| call.key == key);
        call.map(|call| call.arguments.push_str(delta)).is_some()
    }

    /// Adds the item of a call whose arguments are now complete. Returns false if the key is not
    /// one of a call that the client must approve.
    pub(super) fn end_call_for_approval(&mut self, key: u32) -> Result<bool, Malformed> {
        let Some(place) = self.for_approval.iter().position(|call| call.key == key) else { return Ok(false) };
        let call = self.for_approval.remove(place);
        self.ask(call)?;
        Ok(true)
    }

    /// Adds the items of all such calls that are left in the turn.
    pub(super) fn end_calls_for_approval(&mut self) -> Result<(), Malformed> {
        std::mem::take(&mut self.for_approval).into_iter().try_for_each(|call| self.ask(call))
    }

    fn ask(&mut self, call: StreamedCall) -> Result<(), Malformed> {
        let StreamedCall { key, item, call_id, function, arguments } = call;
        let place = self.add_call(item, call_id, function, Some(key), arguments)?;
        self.end_arguments(place)
    }
}

impl CallItem {
    /// The id of the item at `index`. For a call that the client must approve, the id includes the
    /// proof.
    pub(super) fn id(&self, identity: &Identity, index: usize, arguments: &str) -> String {
        let Some(asks) = &self.asks else { return identity.item_id(&self.id_prefix, index) };
        let digits = identity.hex.len().saturating_sub(DIGITS);
        let begin =
            format!("{}_{}{index:04x}", self.id_prefix, identity.hex.get(digits..).unwrap_or_default());
        let name = self.members.get("name").and_then(serde_json::Value::as_str).unwrap_or_default();
        asks.id(&begin, name, arguments)
    }
}
