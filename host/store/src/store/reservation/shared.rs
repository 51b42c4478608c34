//! Reservations where several hosts share the store.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::{Pledge, Reservation, lock};
use crate::changes::{Change, Held, WriteBatch, guarded, needs_of_reservation};
use crate::error::Error;
use crate::postgres::HostId;
use crate::state::Guard;
use crate::usage::ReservationRefused;

/// How long one question to the database may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// After so long, what had ended on other hosts when the question was asked first is committed: usage
/// rows wait at most 250 ms for others.
const OTHERS_COMMIT: Duration = Duration::from_millis(300);

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
    /// other hosts a moment later. So such a refusal is asked again two times.
    pub(super) async fn pledge_shared(
        &self,
        host: HostId,
        estimate_pico: u64,
    ) -> Result<Pledge, ReservationRefused> {
        let pledge = |pico| Pledge { state: Arc::clone(&self.state), pico };
        if estimate_pico == 0 {
            return Ok(pledge(0));
        }
        let _asking = self.asking.lock().await;
        for pause in [Duration::ZERO, OTHERS_COMMIT] {
            match self.ask(host, Asked::Pledge(estimate_pico)).await {
                Err(refused) if refused.is_busy() => sleep(pause).await,
                ended => return ended.map(pledge),
            }
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
        let place = timeout(PATIENCE, self.store.place()).await.unwrap_or(Err(Error::Busy));
        let place = place.map_err(no_room)?;
        let had_intent = std::mem::replace(&mut self.state().has_intent, true);
        let change = self.shared_change(host, asked);
        let made = timeout(PATIENCE, self.store.enqueue(place, change)).await;
        let made = made.unwrap_or(Err(Error::TimedOut));
        let mut state = self.state();
        let state = &mut *state;
        let held = match made {
            Ok(Ok(held)) => held,
            // Certainly nothing was written.
            Ok(Err(refused)) => {
                state.has_intent = had_intent;
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
    fn shared_change(
        &self,
        host: HostId,
        asked: Asked,
    ) -> impl Change<Done = Result<Held, ReservationRefused>> + use<> {
        let request = self.state().row.as_ref().map(|row| (row.workspace, row.key));
        let guards: Vec<Guard> = request.iter().map(|(workspace, _)| Guard::Account(*workspace)).collect();
        let (state, host) = (Arc::clone(&self.state), host.to_string());
        let apply = move |draft: &mut WriteBatch| {
            let mut state = lock(&state);
            // The request has ended: nothing is reserved for it any more.
            let Some(row) = &state.row else { return Ok(Ok(Held { pledged: 0, covered: None })) };
            let had_intent = state.covered.is_some();
            let held = match asked {
                Asked::Pledge(estimate) => {
                    draft.reserve_shared(&host, row, state.held, had_intent, estimate)?
                }
                Asked::Cover => draft.cover_shared(&host, row, state.held, had_intent)?,
            };
            state.is_named = state.row.as_ref().is_some_and(|row| !row.model.is_empty());
            Ok(held)
        };
        guarded(guards, apply).reading(move || {
            request.map(|(workspace, key)| needs_of_reservation(workspace, key)).unwrap_or_default()
        })
    }
}
