//! One request in the ledger, from before its first dispatch to its usage row.

use super::{Funds, Held, Ledger, Refused, Spender};
use crate::error::Error;
use crate::store::Store;
use crate::usage::{UsageOutcome, UsageRow};

/// A request that may spend, and its usage row.
///
/// It ends in one of three ways: settled, when its row is charged and written; released, when nothing was done
/// and there is nothing to write; or dropped, which settles it as cancelled. What it holds is free again after
/// each.
#[derive(Debug)]
#[must_use = "dropping it settles the request as cancelled"]
pub struct Reservation {
    store: Store,
    /// Gone once it has ended.
    row: Option<UsageRow>,
    /// What is held for it, where its workspace or its key has a limit.
    funds: Option<Funds>,
}

impl Reservation {
    pub(crate) fn open(store: &Store, row: UsageRow, estimate_pico: u64) -> Result<Reservation, Refused> {
        let held = store.ledger().hold(Spender::of(&row), Held::default(), estimate_pico)?;
        let funds = held.map(|held| Funds::new(store, &row, held));
        Ok(Reservation { store: store.clone(), row: Some(row), funds })
    }

    fn ledger(&self) -> &Ledger {
        self.store.ledger()
    }

    /// Changes the row to come. Its date and outcome are set when it ends.
    pub fn note(&mut self, change: impl FnOnce(&mut UsageRow)) {
        let Some(row) = &mut self.row else { return };
        change(row);
        if let Some(funds) = &self.funds {
            funds.note_spent(row.cost_pico);
        }
    }

    /// Whether anything was spent so far by what the row says, here or at providers that the caller pays itself.
    pub fn has_spent(&self) -> bool {
        self.row.as_ref().is_some_and(|row| row.cost_pico > 0 || row.byok_pico > 0)
    }

    /// What is held for it; `None` where neither workspace nor key had a limit when it began.
    pub fn funds(&self) -> Option<&Funds> {
        self.funds.as_ref()
    }

    /// Has an intent cover what is held, named as the row is by now; see [`Funds::commit_intent`].
    ///
    /// # Errors
    /// [`Error::NotWritable`], [`Error::Closed`], [`Error::WriteFailed`]: then nothing may be dispatched.
    pub async fn commit_intent(&self) -> Result<(), Error> {
        match &self.funds {
            Some(funds) => funds.commit(self.row.as_ref()).await,
            None => Ok(()),
        }
    }

    /// Ends the request: its row is charged at once and handed to the writer.
    pub fn settle(mut self, outcome: UsageOutcome) {
        self.finish(outcome);
    }

    /// Ends a request that was refused before anything was done: there is no row. One that has spent, or has an
    /// intent, is settled as failed.
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
            // Only a store that was closed or failed takes no row; an intent is charged by the next start.
            tracing::error!(%error, "a usage row was lost");
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.finish(UsageOutcome::Cancelled);
    }
}
