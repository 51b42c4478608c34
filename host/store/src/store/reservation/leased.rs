//! Reservations out of slices of this host, see [`crate::changes::Slices`].

use std::sync::{Arc, Mutex, Weak};

use tokio::time::timeout;

use super::shared::PATIENCE;
use super::{Reservation, ReservationState, lock};
use crate::changes::{Intent, SliceHost, SliceRequest, WriteBatch, guarded, needs_of_reservation};
use crate::postgres::HostId;
use crate::rows;
use crate::state::{Gap, Guard, Need};

impl Reservation {
    /// Pledges the estimate out of the slice of the account. `false` if too little is free there: then the
    /// database is asked.
    pub(super) fn pledge_slice(&self, host: HostId, estimate_pico: u64) -> bool {
        let Some(slices) = self.store.0.engine.slices() else { return false };
        // Without contact, other hosts may have charged the slice.
        if !self.store.0.shared.has_contact() {
            return false;
        }
        let mut state = self.state();
        let ReservationState { row: Some(row), held, covered: None, has_intent: false, slice, .. } =
            &mut *state
        else {
            return false;
        };
        let request: Weak<Mutex<ReservationState>> = Arc::downgrade(&self.state);
        let pico = held.all_with(row, estimate_pico);
        let is_taken = slices.take(SliceHost(host.0), row, slice, pico, request);
        if is_taken {
            self.store.ledger().add_pledge(row, held, estimate_pico);
        }
        is_taken
    }

    /// Gives back what is free of this host's slices of the workspace, and asks other hosts to do so.
    pub(super) async fn recall(&self) {
        let Some(slices) = self.store.0.engine.slices() else { return };
        let Some(workspace) = self.state().row.as_ref().map(|row| row.workspace) else { return };
        slices.recall(|id| id.workspace == workspace);
        let keys = slices.keys_of(workspace);
        let needs: Vec<Need> = keys.iter().flat_map(|key| needs_of_reservation(workspace, *key)).collect();
        let change = guarded([Guard::Account(workspace)], move |batch: &mut WriteBatch| {
            batch.recall_slices(workspace);
            keys.iter().for_each(|key| batch.touch_slice(workspace, *key));
            Ok(())
        });
        let Ok(Ok(permit)) = timeout(PATIENCE, self.store.queue_permit()).await else { return };
        let made = timeout(PATIENCE, self.store.enqueue(permit, change.reading(move || needs.clone()))).await;
        if !matches!(made, Ok(Ok(()))) {
            tracing::debug!("slices could not be asked back");
        }
    }
}

#[cfg(test)]
impl super::Store {
    /// What has to be committed now for the slices of this host.
    pub(crate) fn due_slices(&self) -> Vec<crate::changes::DueSlices> {
        let (slices, host) = (self.0.engine.slices().unwrap(), self.host_id().unwrap());
        slices.due(SliceHost(host.0))
    }
}

impl SliceRequest for Mutex<ReservationState> {
    fn own_intent(self: Arc<Self>, batch: &mut WriteBatch) -> Result<(), Gap> {
        let request: Arc<dyn SliceRequest> = Arc::<Self>::clone(&self);
        // It may be asked for again while an earlier attempt waits, and be part of the same commit twice.
        if batch.leaves_slice(&request) {
            return Ok(());
        }
        let mut guard = lock(&self);
        let state = &mut *guard;
        let (Some(row), Some(slice), Some(host)) = (&state.row, &state.slice, batch.slice_host()) else {
            return Ok(());
        };
        let (id, pico, amount) = (slice.id(), slice.pico(), state.held.all);
        // Without the slice, another host has charged the request.
        if !batch.has_slice(&id)? {
            return Ok(());
        }
        let key = rows::shared_intent_key(row.workspace, &row.request_id);
        let intent = Intent::of(row, amount).on(&host.to_string());
        batch.put_row(Guard::Account(row.workspace), key, &intent)?;
        (state.has_intent, state.leaves_slice) = (true, true);
        state.is_named = !row.model.is_empty();
        drop(guard);
        batch.leave_slice(id, pico, request, amount);
        Ok(())
    }

    fn moved(&self, amount_pico: u64) {
        let mut state = lock(self);
        if let Some(slice) = state.slice.take() {
            state.covered = state.covered.max(Some(amount_pico));
            slice.leave();
        }
    }
}
