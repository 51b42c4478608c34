//! A request in the ledger, from before its first dispatch to its usage row, and what it reserves
//! if its workspace or key has a limit.
//!
//! Each part of the request (one of its own turns, or a question to another model) pledges what it
//! may cost before it is sent. The reservation is the highest sum so far of what was spent
//! and what is pledged. In a prepaid workspace an intent row makes this amount durable; no
//! part is sent before the intent covers it.
//!
//! Where several hosts share the store, a pledge is made where the intent is: in the database, which
//! knows what all hosts have spent and reserved (`shared`). Where the host has a slice of the account, a pledge
//! is made out of it, in memory (`leased`).

#[cfg(feature = "postgres")]
mod leased;
#[cfg(feature = "postgres")]
mod shared;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Store;
use crate::changes::{Change, Intent, RowIntent, WriteBatch, guarded};
#[cfg(feature = "postgres")]
use crate::changes::{SliceHost, SlicePart};
use crate::error::Error;
use crate::knowledge::{Knowledge, RequestPurpose};
use crate::records::Credit;
use crate::state::{Gap, Guard};
use crate::usage::{HeldAmount, ReservationRefused, UsageOutcome, UsageRow};

/// A request that may spend, and its usage row.
///
/// It ends in one of three ways: settled, then its row is charged and written; released, when
/// nothing was done and no row is needed; or dropped, which settles it as cancelled. Each way
/// frees what the request reserved. After its end, nothing changes it any more.
#[derive(Debug)]
#[must_use = "dropping it settles the request as cancelled"]
pub struct Reservation {
    store: Store,
    /// Whether its workspace or its key had a limit at the beginning. Without one, nothing is
    /// reserved.
    is_limited: bool,
    // Jobs in the writer's queue hold this state and not the store: dropping the last store waits
    // for the writer, and would wait for itself on the writer's thread.
    state: Arc<Mutex<ReservationState>>,
    /// Held while a pledge is asked for where several hosts share the store: parts of a request ask one
    /// after the other.
    #[cfg(feature = "postgres")]
    asking: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct ReservationState {
    /// `None` after the request has ended: nothing is reserved any more, and no intent is written.
    row: Option<UsageRow>,
    held: HeldAmount,
    /// Amount of the intent on the disk, pico-dollars; `None` as long as there is certainly none.
    covered: Option<u64>,
    /// Whether the intent has the model and the provider of the row.
    is_named: bool,
    /// Whether an intent may be on the disk or in the writer's queue.
    has_intent: bool,
    /// The id that this host had when an intent was asked for first.
    #[cfg(feature = "postgres")]
    asked_by: Option<SliceHost>,
    /// What it holds of a slice of this host; as much as is reserved, and without an intent.
    #[cfg(feature = "postgres")]
    slice: Option<SlicePart>,
    /// Whether a commit for its slice may have written an intent, whatever becomes of what the request asks for.
    #[cfg(feature = "postgres")]
    leaves_slice: bool,
}

impl Store {
    /// Opens a request in the ledger, with nothing reserved yet. Its workspace's credit and its
    /// key's limits must not be used up. `row` is the beginning of the request's usage row, see
    /// [`Reservation`]. Reads memory only.
    ///
    /// # Errors
    /// [`ReservationRefused`]: the limit that does not allow the request.
    pub async fn reserve(&self, row: UsageRow) -> Result<Reservation, ReservationRefused> {
        let knowledge = self.0.shared.knowledge();
        if !RequestPurpose::Model.allows(knowledge) {
            return Err(ReservationRefused::NoRoom);
        }
        let row = UsageRow { at_ms: self.0.clock.now_ms(), ..row };
        let mut held = HeldAmount::default();
        let is_limited = self.ledger().pledge(&row, &mut held, 0)?.is_some();
        if is_limited && knowledge != Knowledge::Current {
            return Err(ReservationRefused::NoRoom);
        }
        let state = ReservationState {
            row: Some(row),
            held,
            covered: None,
            is_named: false,
            has_intent: false,
            #[cfg(feature = "postgres")]
            asked_by: None,
            #[cfg(feature = "postgres")]
            slice: None,
            #[cfg(feature = "postgres")]
            leaves_slice: false,
        };
        Ok(Reservation {
            store: self.clone(),
            is_limited,
            state: Arc::new(Mutex::new(state)),
            #[cfg(feature = "postgres")]
            asking: tokio::sync::Mutex::default(),
        })
    }
}

impl Reservation {
    /// Changes the usage row. Its date and outcome are set at the end. The reservation grows to the
    /// row's cost plus the pledges, if it is smaller.
    pub fn note(&self, change: impl FnOnce(&mut UsageRow)) {
        self.spend(None, change);
    }

    /// Like [`Self::note`], but also reduces the pledge of the part that spent by the increase of the
    /// row's cost, and raises it when the cost falls. Both happen at once: no other part can pledge
    /// what is counted in neither of them.
    pub fn spend(&self, part: Option<&mut Pledge>, change: impl FnOnce(&mut UsageRow)) {
        let mut state = self.state();
        let ReservationState { row: Some(row), held, .. } = &mut *state else { return };
        let before = row.cost_pico;
        change(row);
        if let Some(part) = part {
            let spent = row.cost_pico.saturating_sub(before).min(part.pico);
            let returned = before.saturating_sub(row.cost_pico).min(part.spent);
            part.pico = part.pico - spent + returned;
            part.spent = part.spent + spent - returned;
            held.pledged = held.pledged.saturating_sub(spent).saturating_add(returned);
        }
        if self.is_limited {
            self.store.ledger().cover(row, held);
            #[cfg(feature = "postgres")]
            {
                let all = held.all;
                state.slice.iter_mut().for_each(|slice| slice.cover(all));
            }
        }
    }

    /// Reserves what a part of the request may cost beyond what the request has spent so far. If
    /// less is left and nothing else runs on the account, neither another request nor another part
    /// of this one, reserves what is left. A part that costs nothing is never refused. `None` for a
    /// request without limits.
    ///
    /// # Errors
    /// [`ReservationRefused`] when too little is left beside what this request and others have
    /// spent and reserved.
    pub async fn pledge(&self, estimate_pico: u64) -> Result<Option<Pledge>, ReservationRefused> {
        if !self.is_limited {
            return Ok(None);
        }
        #[cfg(feature = "postgres")]
        if let Some(host) = self.store.0.engine.host_id() {
            return Box::pin(self.pledge_shared(host, estimate_pico)).await.map(Some);
        }
        let mut pico = 0;
        if let ReservationState { row: Some(row), held, .. } = &mut *self.state()
            && estimate_pico > 0
        {
            // The reservation made before stays until the request ends, even if the limit was
            // removed since.
            pico = self.store.ledger().pledge(row, held, estimate_pico)?.unwrap_or_default();
        }
        Ok(Some(Pledge { state: Arc::clone(&self.state), pico, spent: 0 }))
    }

    /// In a prepaid workspace, writes an intent that covers the reservation, with the model and the
    /// provider of the row, and waits until it is durable. If the process dies, the next start
    /// charges that amount. Returns at once when the intent covers it already.
    ///
    /// If the future is dropped, the intent may still be written. The usage row removes it.
    ///
    /// # Errors
    /// [`Error::NotWritable`], [`Error::Closed`], [`Error::WriteFailed`], [`Error::NoSpace`]: then
    /// nothing may be dispatched.
    pub async fn commit_intent(&self) -> Result<(), Error> {
        if !self.is_limited || !self.is_intent_due() {
            return Ok(());
        }
        #[cfg(feature = "postgres")]
        if let Some(host) = self.store.0.engine.host_id() {
            return Box::pin(self.cover_shared(host)).await;
        }
        let permit = self.store.queue_permit().await?;
        self.state().has_intent = true;
        let covered = self.store.enqueue(permit, self.intent()).await?;
        let mut state = self.state();
        state.covered = state.covered.max(Some(covered));
        Ok(())
    }

    /// The change that writes the intent.
    fn intent(&self) -> impl Change<Done = u64> + use<> {
        let workspace = self.state().row.as_ref().map(|row| row.workspace);
        let guards: Vec<Guard> = workspace.into_iter().map(Guard::Account).collect();
        let state = Arc::clone(&self.state);
        guarded(guards, move |batch| lock(&state).put_intent(batch))
    }

    /// Whether the intent has to be written, because of its amount or because of the row's model
    /// and provider.
    fn is_intent_due(&self) -> bool {
        let mut state = self.state();
        #[cfg(feature = "postgres")]
        if state.slice.is_some() {
            return false;
        }
        let ReservationState { row: Some(row), held, covered, is_named, .. } = &mut *state else {
            return false;
        };
        let was_named = std::mem::replace(is_named, !row.model.is_empty());
        let is_due = *is_named && !was_named || covered.is_none_or(|covered| covered < held.all);
        #[cfg(feature = "postgres")]
        if self.store.0.engine.host_id().is_some() {
            return is_due;
        }
        let directory = self.store.directory();
        let workspace = directory.workspaces.get(&row.workspace);
        is_due && workspace.is_some_and(|workspace| matches!(workspace.credit, Credit::Prepaid { .. }))
    }

    /// Whether its workspace or its key had a limit at the beginning. Without one, nothing is reserved.
    pub fn is_limited(&self) -> bool {
        self.is_limited
    }

    /// Whether the request has not ended yet.
    pub fn is_open(&self) -> bool {
        self.state().row.is_some()
    }

    /// Whether the row has any cost so far, charged here or paid by the caller to the provider.
    pub fn has_spent(&self) -> bool {
        self.state().has_spent()
    }

    /// Ends the request: charges its row at once and hands it to the writer.
    pub fn settle(&self, outcome: UsageOutcome) {
        let mut state = self.state();
        let intent = self.row_intent(&state);
        let Some((row, held)) = state.end() else { return };
        #[cfg(feature = "postgres")]
        if let Some(slice) = state.slice.take() {
            slice.settle(row.cost_pico);
        }
        drop(state);
        let row = UsageRow { outcome, ..row };
        if let Err(error) = self.store.ledger().settle(row, held, intent) {
            // Only a closed or failed store accepts no row. If there is an intent, the next start
            // charges it.
            tracing::error!(%error, "a usage row was lost");
        }
    }

    /// Ends a request that was refused before anything was done, without a row. If it has spent
    /// something or has an intent, which only a usage row removes, it is settled as failed.
    pub fn release(&self) {
        let mut state = self.state();
        if state.has_spent() || state.has_intent {
            drop(state);
            return self.settle(UsageOutcome::Failed);
        }
        if let Some((row, held)) = state.end() {
            #[cfg(feature = "postgres")]
            if let Some(slice) = state.slice.take() {
                slice.leave();
            }
            self.store.ledger().release(&row, held);
        }
    }

    /// The intent that the usage row ends.
    fn row_intent(&self, state: &ReservationState) -> RowIntent {
        #[cfg(feature = "postgres")]
        if let Some(slice) = &state.slice {
            return RowIntent::Slice(slice.id().host);
        }
        #[cfg(feature = "postgres")]
        if self.store.0.engine.host_id().is_some() {
            return match (state.covered, state.asked_by.filter(|_| state.has_intent)) {
                (Some(_), _) => RowIntent::Shared,
                (None, Some(asked_by)) => RowIntent::PossibleShared(asked_by),
                (None, None) => RowIntent::None,
            };
        }
        if state.has_intent { RowIntent::Possible } else { RowIntent::None }
    }

    fn state(&self) -> MutexGuard<'_, ReservationState> {
        lock(&self.state)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.settle(UsageOutcome::Cancelled);
    }
}

impl ReservationState {
    fn has_spent(&self) -> bool {
        self.row.as_ref().is_some_and(|row| row.cost_pico > 0 || row.byok_pico > 0)
    }

    /// Ends the reservation. Returns the row and the amount reserved.
    fn end(&mut self) -> Option<(UsageRow, u64)> {
        Some((self.row.take()?, std::mem::take(&mut self.held).all))
    }

    /// Writes the intent with the current reservation, not the one at the time of the call: intents
    /// of one request can overtake each other in the queue. Returns the amount.
    fn put_intent(&self, batch: &mut WriteBatch) -> Result<u64, Gap> {
        if self.covered.is_none() {
            batch.has_space_for_request()?;
        }
        // The usage row is handed over only after it was taken from here, and the writer takes rows
        // after mutations. So either the row removes this intent, or this intent is not written.
        if let Some(row) = &self.row {
            batch.put_intent(&Intent::of(row, self.held.all))?;
        }
        Ok(self.held.all)
    }
}

fn lock(state: &Mutex<ReservationState>) -> MutexGuard<'_, ReservationState> {
    // A panic in another thread cannot leave a sum half updated.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The part of a request's reservation that one of its parts may spend. Given back when dropped.
#[derive(Debug)]
#[must_use = "dropping it gives back what was pledged"]
pub struct Pledge {
    state: Arc<Mutex<ReservationState>>,
    /// What is not spent of it.
    pico: u64,
    /// What was spent of it.
    spent: u64,
}

impl Pledge {
    /// What is not spent of it, pico-dollars.
    pub fn left_pico(&self) -> u64 {
        self.pico
    }
}

impl Drop for Pledge {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        state.held.pledged = state.held.pledged.saturating_sub(self.pico);
    }
}
