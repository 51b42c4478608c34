//! Reservations where several hosts share the store.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::{Pledge, Reservation, lock};
use crate::changes::{Change, Held, SliceHost, WriteBatch, guarded, needs_of_reservation};
use crate::error::Error;
use crate::postgres::HostId;
use crate::state::Guard;
use crate::usage::ReservationRefused;

/// How long one question to the database may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// After so long, what had ended on other hosts when the question was asked first is committed: usage
/// rows wait at most 250 ms for others.
const OTHERS_COMMIT: Duration = Duration::from_millis(300);
/// The pauses after which is asked again, once slices were asked back: a second in all.
const AFTER_RECALL: &[Duration] = &[Duration::ZERO, OTHERS_COMMIT, OTHERS_COMMIT, Duration::from_millis(400)];

/// What is asked for.
#[derive(Clone, Copy)]
enum Asked {
    /// A pledge of this estimate, pico-dollars.
    Pledge(u64),
    /// That the intent covers what is reserved already.
    Cover,
}

impl Reservation {
    /// Pledges the estimate, and covers it by the intent.
    ///
    /// A refusal because of other requests may be due to requests that have ended, but whose usage rows
    /// are not committed. Those of this host are committed together with the first question, those of
    /// other hosts a moment later. So such a refusal is asked again two times. Where hosts have slices, what is
    /// free of these is asked back too, and waited for up to a second.
    pub(super) async fn pledge_shared(
        &self,
        host: HostId,
        estimate_pico: u64,
    ) -> Result<Pledge, ReservationRefused> {
        let pledge = |pico| Pledge { state: Arc::clone(&self.state), pico, spent: 0 };
        if estimate_pico == 0 {
            return Ok(pledge(0));
        }
        let _asking = self.asking.lock().await;
        if self.pledge_slice(host, estimate_pico) {
            return Ok(pledge(estimate_pico));
        }
        let has_slices = self.store.0.engine.slices().is_some();
        let pauses = if has_slices { AFTER_RECALL } else { &[Duration::ZERO, OTHERS_COMMIT] };
        for (tried, pause) in pauses.iter().enumerate() {
            let ended = self.ask(host, Asked::Pledge(estimate_pico)).await;
            if !ended.is_err_and(ReservationRefused::is_busy) {
                return ended.map(pledge);
            }
            if tried == 0 {
                self.recall().await;
            }
            sleep(*pause).await;
        }
        self.ask(host, Asked::Pledge(estimate_pico)).await.map(pledge)
    }

    /// Raises the intent to what is reserved.
    pub(super) async fn cover_shared(&self, host: HostId) -> Result<(), Error> {
        let _asking = self.asking.lock().await;
        self.ask(host, Asked::Cover).await.map(drop).map_err(|_| Error::Busy)
    }

    /// Asks once. Returns what is pledged, pico-dollars.
    async fn ask(&self, host: HostId, asked: Asked) -> Result<u64, ReservationRefused> {
        let no_room = |error: Error| {
            tracing::warn!(%error, "what a request may spend could not be reserved");
            ReservationRefused::NoRoom
        };
        let permit = timeout(PATIENCE, self.store.queue_permit()).await.unwrap_or(Err(Error::Busy));
        let permit = permit.map_err(no_room)?;
        let had_intent = {
            let mut state = self.state();
            state.asked_by.get_or_insert(SliceHost(host.0));
            std::mem::replace(&mut state.has_intent, true)
        };
        let change = self.shared_change(asked);
        let made = timeout(PATIENCE, self.store.enqueue(permit, change)).await;
        let made = made.unwrap_or(Err(Error::TimedOut));
        let mut state = self.state();
        let state = &mut *state;
        let had_intent = had_intent || state.leaves_slice;
        let held = match made {
            Ok(Ok(held)) => held,
            // Certainly nothing was written.
            Ok(Err(refused)) => {
                state.has_intent = had_intent;
                state.asked_by = state.asked_by.filter(|_| had_intent);
                return Err(refused);
            }
            Err(error) => {
                state.has_intent = had_intent || !matches!(error, Error::Busy);
                return Err(no_room(error));
            }
        };
        state.has_intent = had_intent || held.covered.is_some();
        state.covered = state.covered.max(held.covered);
        if let Some(row) = &state.row {
            self.store.ledger().add_pledge(row, &mut state.held, held.pledged);
        }
        Ok(held.pledged)
    }

    /// The change that asks. It uses the reservation as it is when the change is applied.
    fn shared_change(&self, asked: Asked) -> impl Change<Done = Result<Held, ReservationRefused>> + use<> {
        let request = self.state().row.as_ref().map(|row| (row.workspace, row.key));
        let guards: Vec<Guard> = request.iter().map(|(workspace, _)| Guard::Account(*workspace)).collect();
        let shared = Arc::clone(&self.state);
        let apply = move |batch: &mut WriteBatch| {
            let mut state = lock(&shared);
            // The request has ended: nothing is reserved for it any more.
            let Some(row) = &state.row else { return Ok(Ok(Held { pledged: 0, covered: None })) };
            let had_intent = state.covered.is_some();
            let slice = state.slice.as_ref().map(|slice| (slice.id(), slice.pico()));
            if let Some((id, _)) = &slice
                && !batch.has_slice(id)?
            {
                return Ok(Err(ReservationRefused::Interrupted));
            }
            let in_slice = slice.map_or(0, |(_, pico)| pico);
            let held = match asked {
                Asked::Pledge(estimate) => {
                    batch.reserve_shared(row, state.held, had_intent, in_slice, estimate)?
                }
                Asked::Cover => batch.cover_shared(row, state.held, had_intent)?,
            };
            if let Ok(Held { covered: Some(covered), .. }) = held {
                let request = Arc::clone(&shared);
                slice
                    .into_iter()
                    .for_each(|(id, pico)| batch.leave_slice(id, pico, Arc::clone(&request) as _, covered));
                // So that the next request finds enough in it.
                batch.touch_slice(row.workspace, row.key);
            }
            state.is_named = state.row.as_ref().is_some_and(|row| !row.model.is_empty());
            Ok(held)
        };
        guarded(guards, apply).reading(move || {
            request.map(|(workspace, key)| needs_of_reservation(workspace, key)).unwrap_or_default()
        })
    }
}
