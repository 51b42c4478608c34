//! Requests whose host ended before it settled them.

use std::collections::BTreeSet;

use crate::changes::{Intent, RowIntent, shared_intents};
use crate::error::Error;
use crate::queue::LaneQueues;
use crate::rows::{self, KEYS, SHARED_INTENTS};
use crate::seal::StoreKeys;
use crate::state::State;

#[cfg(test)]
impl super::engine::Engine {
    /// See [`charge_interrupted`].
    pub(crate) fn charge_interrupted(
        &self,
        keys: &StoreKeys,
        live: impl FnOnce() -> Result<BTreeSet<String>, Error>,
    ) -> Result<usize, Error> {
        charge_interrupted(&*self.state()?, &self.queues, keys, live)
    }
}

/// Charges the requests of hosts that are gone what was reserved for them. Each request is charged once,
/// however many hosts do this and even if its host goes on: the usage row counts only as long as the intent
/// is there, and deletes it. Of a slice, what its requests had reserved when it was last written is charged in one
/// row, and the rest given back. Returns the number of rows.
///
/// `live` names the hosts that are not gone. It is asked after the intents were read, so a host that appears
/// there before it writes its first intent is never taken for one that is gone.
///
/// # Errors
/// [`Error::Engine`], [`Error::Damaged`], [`Error::Closed`].
pub(super) fn charge_interrupted(
    state: &dyn State,
    queues: &LaneQueues,
    keys: &StoreKeys,
    live: impl FnOnce() -> Result<BTreeSet<String>, Error>,
) -> Result<usize, Error> {
    let intents = intents(state, keys)?;
    if intents.is_empty() {
        return Ok(0);
    }
    let live = live()?;
    let mut charged = 0;
    for intent in intents.into_iter().filter(|intent| !intent.host().is_some_and(|host| live.contains(host)))
    {
        let settled = intent.settled(RowIntent::Shared);
        // A slice that nothing ran in is only given back.
        charged += usize::from(settled.intent != RowIntent::Freed);
        queues.push_usage(settled).map_err(|_| Error::Closed)?;
    }
    if charged > 0 {
        tracing::warn!(rows = charged, "requests of hosts that ended are charged what was reserved for them");
    }
    Ok(charged)
}

/// The intents of all hosts. A damaged one is left out.
fn intents(state: &dyn State, keys: &StoreKeys) -> Result<Vec<Intent>, Error> {
    let mut intents = Vec::new();
    for row in state.range(&shared_intents(&SHARED_INTENTS)).map_err(Error::from)? {
        let (key, row) = row?;
        match rows::decode(keys, KEYS, &key, &row) {
            Some(intent) => intents.push(intent),
            None => tracing::error!("the intent of a request is damaged; it is left out"),
        }
    }
    Ok(intents)
}
