//! The ledger entry of one request, from before its first dispatch to its usage row.

use super::{Funds, Store};
use crate::error::Error;
use crate::ledger::{HeldAmount, Ledger, ReservationRefused, Spender};
use crate::usage::{UsageOutcome, UsageRow};

/// A request that may spend, and its usage row.
///
/// It ends in one of three ways: settled, then its row is charged and written; released, when
/// nothing was done and no row is needed; or dropped, which settles it as cancelled. Each of them
/// frees what it reserved.
#[derive(Debug)]
#[must_use = "dropping it settles the request as cancelled"]
pub struct Reservation {
    store: Store,
    /// `None` after it has ended.
    row: Option<UsageRow>,
    /// The reservation, if its workspace or its key has a limit.
    funds: Option<Funds>,
}

impl Reservation {
    pub(crate) fn open(
        store: &Store,
        row: UsageRow,
        estimate_pico: u64,
    ) -> Result<Reservation, ReservationRefused> {
        let held = store.ledger().hold(Spender::of(&row), HeldAmount::default(), estimate_pico)?;
        let funds = held.map(|held| Funds::new(store, &row, held));
        Ok(Reservation { store: store.clone(), row: Some(row), funds })
    }

    fn ledger(&self) -> &Ledger {
        self.store.ledger()
    }

    /// Changes the usage row. Its date and outcome are set at the end.
    pub fn note(&mut self, change: impl FnOnce(&mut UsageRow)) {
        let Some(row) = &mut self.row else { return };
        change(row);
        if let Some(funds) = &self.funds {
            funds.note_spent(row.cost_pico);
        }
    }

    /// Whether the row has any cost so far, charged here or paid by the caller to the provider.
    pub fn has_spent(&self) -> bool {
        self.row.as_ref().is_some_and(|row| row.cost_pico > 0 || row.byok_pico > 0)
    }

    /// The reservation; `None` when neither the workspace nor the key had a limit at the beginning.
    pub fn funds(&self) -> Option<&Funds> {
        self.funds.as_ref()
    }

    /// Writes an intent with the model and the provider of the row, see [`Funds::commit_intent`].
    ///
    /// # Errors
    /// [`Error::NotWritable`], [`Error::Closed`], [`Error::WriteFailed`], [`Error::NoSpace`]: then
    /// nothing may be dispatched.
    pub async fn commit_intent(&self) -> Result<(), Error> {
        match &self.funds {
            Some(funds) => funds.commit(self.row.as_ref()).await,
            None => Ok(()),
        }
    }

    /// Ends the request: charges its row at once and hands it to the writer.
    pub fn settle(mut self, outcome: UsageOutcome) {
        self.finish(outcome);
    }

    /// Ends a request that was refused before anything was done, without a row. If it has spent
    /// something or has an intent, it is settled as failed.
    pub fn release(mut self) {
        if self.has_spent() || self.funds.as_ref().is_some_and(Funds::has_intent) {
            return self.finish(UsageOutcome::Failed);
        }
        if let (Some(row), Some(funds)) = (self.row.take(), &self.funds) {
            let (held, _) = funds.end();
            self.ledger().release(Spender::of(&row), held);
        }
    }

    fn finish(&mut self, outcome: UsageOutcome) {
        let Some(row) = self.row.take() else { return };
        let (held, has_intent) = self.funds.as_ref().map(Funds::end).unwrap_or_default();
        let row = UsageRow { outcome, ..row };
        if let Err(error) = self.ledger().settle(row, held, has_intent) {
            // Only a closed or failed store accepts no row. If there is an intent, the next start
            // charges it.
            tracing::error!(%error, "a usage row was lost");
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.finish(UsageOutcome::Cancelled);
    }
}
