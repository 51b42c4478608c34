//! What one request with a limit may spend: shared by the request and by everything that spends on its behalf.
//!
//! Each part of it (a turn of its own, or a question to another model) pledges what it may cost before it is sent.
//! What is held for the request is what was spent and what is pledged, and it only grows until the request ends.
//! In a prepaid workspace an intent says durably how much that is: no part is sent before it is covered.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Held, Refused, Spender};
use crate::changes::{Draft, Intent};
use crate::error::Error;
use crate::records::Credit;
use crate::store::Store;
use crate::usage::UsageRow;

/// What a request with a limit holds. Clones are of the same request.
#[derive(Clone, Debug)]
pub struct Funds {
    store: Store,
    spender: Spender,
    // The writer's jobs have this and not the store: whoever drops the last store waits for the writer.
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    /// What is held, pico-dollars.
    held: u64,
    /// What parts under way may cost beyond what they have spent so far, pico-dollars.
    pledged: u64,
    /// What the next start charges if the process dies; its amount is set when it is written.
    intent: Intent,
    /// How much the intent on the disk is good for, pico-dollars; `None` as long as there surely is none.
    covered: Option<u64>,
    /// Whether there may be an intent on the disk, or one on its way.
    has_intent: bool,
    /// The row is on its way: nothing is held any more, and no intent is written.
    is_over: bool,
}

impl Funds {
    pub(super) fn new(store: &Store, row: &UsageRow, held: u64) -> Funds {
        let intent = Intent::of(row, store.ledger().clock.now_ms());
        let state = State { held, pledged: 0, intent, covered: None, has_intent: false, is_over: false };
        Funds { store: store.clone(), spender: Spender::of(row), state: Arc::new(Mutex::new(state)) }
    }

    /// Pledges what a part of the request may cost; where that is more than is left and nothing else runs on the
    /// account, neither another request nor another part of this one, as much as is left. `spent_pico` tells what all parts
    /// have spent so far, while no other part can give back of its pledge what it has spent. A part that costs nothing
    /// is never refused.
    ///
    /// # Errors
    /// [`Refused`], when what is left beside what the request and others have spent and may spend is too little.
    pub fn pledge(&self, spent_pico: impl FnOnce() -> u64, estimate_pico: u64) -> Result<Pledge, Refused> {
        let mut state = lock(&self.state);
        let mut pledged = 0;
        if estimate_pico > 0 && !state.is_over {
            let used = spent_pico().saturating_add(state.pledged);
            let holds = Held { own: state.held, used, has_parts: state.pledged > 0 };
            let held = self.store.ledger().hold(self.spender, holds, estimate_pico)?;
            // What was held before stays so until the request ends, also if there is no limit any more.
            if let Some(held) = held {
                state.held = held;
                pledged = estimate_pico.min(held.saturating_sub(used));
            }
        }
        state.pledged = state.pledged.saturating_add(pledged);
        Ok(Pledge { state: Arc::clone(&self.state), pico: pledged })
    }

    /// Notes what all parts have spent so far: that is held, and what is pledged beside it.
    pub fn note_spent(&self, spent_pico: u64) {
        let mut state = lock(&self.state);
        let needed = spent_pico.saturating_add(state.pledged);
        if needed > state.held && !state.is_over {
            self.store.ledger().hold_more(self.spender, needed - state.held);
            state.held = needed;
        }
    }

    /// Has the intent cover what is held, if the workspace is prepaid, and waits until that is durable. Should the
    /// process die, the next start charges it. Costs nothing where it is covered already.
    ///
    /// Dropping the future leaves the intent on its way; the row takes it back.
    ///
    /// # Errors
    /// [`Error::NotWritable`], [`Error::Closed`], [`Error::WriteFailed`], [`Error::NoSpace`]: then nothing may be
    /// dispatched.
    pub async fn commit_intent(&self) -> Result<(), Error> {
        self.commit(None).await
    }

    /// The same for the request itself, whose row knows more than the one it began with.
    pub(super) async fn commit(&self, row: Option<&UsageRow>) -> Result<(), Error> {
        if !self.is_due(row) || !self.is_prepaid() {
            return Ok(());
        }
        let place = self.store.place().await?;
        self.state().has_intent = true;
        let state = Arc::clone(&self.state);
        let covered = self.store.write_intent(place, move |draft| put(&state, draft)).await?;
        let mut state = self.state();
        state.covered = state.covered.max(Some(covered));
        Ok(())
    }

    /// Whether the intent has to be written, with the names of this row.
    fn is_due(&self, row: Option<&UsageRow>) -> bool {
        let mut state = self.state();
        let is_named = row.is_some_and(|row| state.intent.name(row));
        is_named || state.covered.is_none_or(|covered| covered < state.held)
    }

    fn is_prepaid(&self) -> bool {
        let directory = self.store.directory();
        let workspace = directory.workspace(self.spender.workspace);
        workspace.is_some_and(|workspace| matches!(workspace.credit, Credit::Prepaid { .. }))
    }

    /// Ends everything: how much is held, and whether there may be an intent.
    pub(super) fn end(&self) -> (u64, bool) {
        let mut state = self.state();
        state.is_over = true;
        (std::mem::take(&mut state.held), state.has_intent)
    }

    /// Whether there may be an intent, which only a row takes back.
    pub(super) fn has_intent(&self) -> bool {
        self.state().has_intent
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // A panic elsewhere leaves sums that are still sums.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes the intent as large as it has to be by now, whatever it was when it was asked for: intents of one
/// request may overtake each other. Tells for how much it is good.
fn put(state: &Mutex<State>, draft: &mut Draft) -> Result<u64, Error> {
    let state = lock(state);
    if state.covered.is_none() {
        draft.has_space_for_request()?;
    }
    // Its row is handed over only after this was set, and rows are taken after changes: either the row finds the
    // intent, or there is none.
    if !state.is_over {
        draft.put_intent(&state.intent, state.held);
    }
    Ok(state.held)
}

/// What a part of a request may still spend of what is held for the request. Given back when dropped.
#[derive(Debug)]
#[must_use = "dropping it gives back what was pledged"]
pub struct Pledge {
    state: Arc<Mutex<State>>,
    pico: u64,
}

impl Pledge {
    /// What of it is not spent, pico-dollars.
    pub fn left_pico(&self) -> u64 {
        self.pico
    }

    /// Notes that the part has spent so much more of it.
    pub fn spend(&mut self, pico: u64) {
        let spent = pico.min(self.pico);
        self.pico -= spent;
        let mut state = lock(&self.state);
        state.pledged = state.pledged.saturating_sub(spent);
    }
}

impl Drop for Pledge {
    fn drop(&mut self) {
        self.spend(self.pico);
    }
}
