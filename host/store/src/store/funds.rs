//! The reservation of one request with a limit, shared by all parts of the request that spend.
//!
//! Each part (a turn of the request itself, or a question to another model) pledges what it may
//! cost before it is sent. The reservation is what was spent plus what is pledged, and only grows
//! until the request ends. In a prepaid workspace an intent row makes this amount durable; no part
//! is sent before the intent covers it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Store;
use crate::changes::{Intent, WriteBatch};
use crate::error::Error;
use crate::ledger::{HeldAmount, ReservationRefused, Spender};
use crate::records::Credit;
use crate::usage::UsageRow;

/// The reservation of a request with a limit. Clones share one reservation.
#[derive(Clone, Debug)]
pub struct Funds {
    store: Store,
    spender: Spender,
    // Jobs in the writer's queue hold this state and not the store: dropping the last store waits
    // for the writer, and would wait for itself on the writer's thread.
    state: Arc<Mutex<FundsState>>,
}

#[derive(Debug)]
struct FundsState {
    /// The reservation, pico-dollars.
    held: u64,
    /// What parts in progress may still spend beyond what they have spent so far, pico-dollars.
    pledged: u64,
    /// What the next start charges if the process dies. Its amount is set when it is written.
    intent: Intent,
    /// Amount of the intent on the disk, pico-dollars; `None` as long as there is certainly none.
    covered: Option<u64>,
    /// Whether an intent may be on the disk or in the writer's queue.
    has_intent: bool,
    /// The request has ended: nothing is reserved any more, and no intent is written.
    is_over: bool,
}

impl Funds {
    pub(super) fn new(store: &Store, row: &UsageRow, held: u64) -> Funds {
        let intent = Intent::of(row, store.0.clock.now_ms());
        let state = FundsState { held, pledged: 0, intent, covered: None, has_intent: false, is_over: false };
        Funds { store: store.clone(), spender: Spender::of(row), state: Arc::new(Mutex::new(state)) }
    }

    /// Reserves what a part of the request may cost. If less is left and nothing else runs on the
    /// account, neither another request nor another part of this one, reserves what is left. A part
    /// that costs nothing is never refused.
    ///
    /// `spent_pico` returns what all parts have spent so far. It is called under the lock, so that
    /// no part can reduce its pledge by what it spent between the call and the reservation.
    ///
    /// # Errors
    /// [`ReservationRefused`] when too little is left beside what this request and others have
    /// spent and reserved.
    pub fn pledge(
        &self,
        spent_pico: impl FnOnce() -> u64,
        estimate_pico: u64,
    ) -> Result<Pledge, ReservationRefused> {
        let mut state = lock(&self.state);
        let mut pledged = 0;
        if estimate_pico > 0 && !state.is_over {
            let used = spent_pico().saturating_add(state.pledged);
            let holds = HeldAmount { own: state.held, used, has_parts: state.pledged > 0 };
            let held = self.store.ledger().hold(self.spender, holds, estimate_pico)?;
            // The reservation made before stays until the request ends, even if the limit was
            // removed since.
            if let Some(held) = held {
                state.held = held;
                pledged = estimate_pico.min(held.saturating_sub(used));
            }
        }
        state.pledged = state.pledged.saturating_add(pledged);
        Ok(Pledge { state: Arc::clone(&self.state), pico: pledged })
    }

    /// Sets what all parts have spent so far. The reservation grows to this amount plus the
    /// pledges, if it is smaller.
    pub fn note_spent(&self, spent_pico: u64) {
        let mut state = lock(&self.state);
        let needed = spent_pico.saturating_add(state.pledged);
        if needed > state.held && !state.is_over {
            self.store.ledger().hold_more(self.spender, needed - state.held);
            state.held = needed;
        }
    }

    /// In a prepaid workspace, writes an intent that covers the reservation and waits until it is
    /// durable. If the process dies, the next start charges that amount. Returns at once when the
    /// intent covers it already.
    ///
    /// If the future is dropped, the intent may still be written. The usage row removes it.
    ///
    /// # Errors
    /// [`Error::NotWritable`], [`Error::Closed`], [`Error::WriteFailed`], [`Error::NoSpace`]: then
    /// nothing may be sent.
    pub async fn commit_intent(&self) -> Result<(), Error> {
        self.commit(None).await
    }

    /// The same for the request itself. Its row may meanwhile have a model and a provider, which
    /// the intent takes over.
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

    /// Whether the intent has to be written, because of its amount or because of the row's model
    /// and provider.
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

    /// Ends the reservation. Returns its amount, and whether there may be an intent.
    pub(super) fn end(&self) -> (u64, bool) {
        let mut state = self.state();
        state.is_over = true;
        (std::mem::take(&mut state.held), state.has_intent)
    }

    /// Whether there may be an intent, which only a usage row removes.
    pub(super) fn has_intent(&self) -> bool {
        self.state().has_intent
    }

    fn state(&self) -> MutexGuard<'_, FundsState> {
        lock(&self.state)
    }
}

fn lock(state: &Mutex<FundsState>) -> MutexGuard<'_, FundsState> {
    // A panic in another thread cannot leave a sum half updated.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes the intent with the current reservation, not the one at the time of the call: intents of
/// one request can overtake each other in the queue. Returns the amount.
fn put(state: &Mutex<FundsState>, draft: &mut WriteBatch) -> Result<u64, Error> {
    let state = lock(state);
    if state.covered.is_none() {
        draft.has_space_for_request()?;
    }
    // The usage row is handed over only after `is_over` was set, and the writer takes rows after
    // mutations. So either the row removes this intent, or this intent is not written.
    if !state.is_over {
        draft.put_intent(&state.intent, state.held);
    }
    Ok(state.held)
}

/// The part of a request's reservation that one of its parts may spend. Given back when dropped.
#[derive(Debug)]
#[must_use = "dropping it gives back what was pledged"]
pub struct Pledge {
    state: Arc<Mutex<FundsState>>,
    pico: u64,
}

impl Pledge {
    /// What is not spent of it, pico-dollars.
    pub fn left_pico(&self) -> u64 {
        self.pico
    }

    /// Reduces it by what the part has spent now.
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
