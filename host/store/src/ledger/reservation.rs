//! One request in the ledger, from before its first dispatch to its usage row.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Ledger, Refused, Spender};
use crate::changes::Intent;
use crate::error::Error;
use crate::records::Credit;
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
    /// Whether its workspace or its key has a limit: only then anything is held.
    is_limited: bool,
    /// What is held for it, pico-dollars.
    held: u64,
    /// Set before the row is handed over, where an intent was: an intent that has not been written by then must
    /// not be.
    withdrawn: Option<Arc<AtomicBool>>,
}

impl Reservation {
    pub(crate) fn open(store: &Store, row: UsageRow, estimate_pico: u64) -> Result<Reservation, Refused> {
        let held = store.ledger().hold(Spender::of(&row), 0, estimate_pico)?;
        let (is_limited, held) = (held.is_some(), held.unwrap_or_default());
        Ok(Reservation { store: store.clone(), row: Some(row), is_limited, held, withdrawn: None })
    }

    fn ledger(&self) -> &Ledger {
        self.store.ledger()
    }

    /// Changes the row to come. Its date and outcome are set when it ends.
    pub fn note(&mut self, change: impl FnOnce(&mut UsageRow)) {
        let Some(row) = &mut self.row else { return };
        change(row);
        let (spender, spent) = (Spender::of(row), row.cost_pico);
        if self.is_limited && spent > self.held {
            self.ledger().hold_more(spender, spent - self.held);
            self.held = spent;
        }
    }

    /// What the row says so far was spent, pico-dollars.
    pub fn spent_pico(&self) -> u64 {
        self.row.as_ref().map_or(0, |row| row.cost_pico)
    }

    /// What is held for it, pico-dollars: 0 where neither workspace nor key has a limit.
    pub fn held_pico(&self) -> u64 {
        self.held
    }

    /// Whether its workspace or its key has a limit.
    pub fn is_limited(&self) -> bool {
        self.is_limited
    }

    /// Holds `estimate_pico`, or as much as is left, once it is known what the request may cost.
    ///
    /// # Errors
    /// [`Refused`], when nothing is left beside what other requests hold. What was held stays so.
    pub fn raise(&mut self, estimate_pico: u64) -> Result<(), Refused> {
        let Some(row) = &self.row else { return Ok(()) };
        let held = self.ledger().hold(Spender::of(row), self.held, estimate_pico)?;
        self.is_limited = held.is_some();
        // What was held before stays so until the request ends, also if there is no limit any more.
        self.held = held.unwrap_or(self.held);
        Ok(())
    }

    /// Writes down what is held before anything is spent, if the workspace is prepaid, and waits until that is
    /// durable. Should the process die, the next start charges it. Done once; later calls do nothing.
    ///
    /// Dropping the future leaves the intent on its way; the row takes it back.
    ///
    /// # Errors
    /// [`Error::NotWritable`], [`Error::Closed`], [`Error::WriteFailed`]: then nothing may be dispatched.
    pub async fn commit_intent(&mut self) -> Result<(), Error> {
        let is_due = self.is_limited && self.withdrawn.is_none();
        let Some(row) = self.row.as_ref().filter(|_| is_due) else { return Ok(()) };
        let credit = self.store.directory().workspace(row.workspace).map(|workspace| workspace.credit);
        if !matches!(credit, Some(Credit::Prepaid { .. })) {
            return Ok(());
        }
        let (store, intent) = (self.store.clone(), Intent::of(row, self.held, self.ledger().clock.now_ms()));
        let place = store.place().await?;
        let withdrawn = Arc::new(AtomicBool::new(false));
        self.withdrawn = Some(Arc::clone(&withdrawn));
        store.write_intent(place, intent, withdrawn).await
    }

    /// Ends the request: its row is charged at once and handed to the writer.
    pub fn settle(mut self, outcome: UsageOutcome) {
        self.finish(outcome);
    }

    /// Ends a request that was refused before anything was done: there is no row. One that has spent, or has an
    /// intent, is settled as failed.
    pub fn release(mut self) {
        if self.withdrawn.is_some() || self.spent_pico() > 0 {
            return self.finish(UsageOutcome::Failed);
        }
        if let Some(row) = self.row.take() {
            self.ledger().release(Spender::of(&row), self.held);
        }
    }

    fn finish(&mut self, outcome: UsageOutcome) {
        let Some(row) = self.row.take() else { return };
        if let Some(withdrawn) = &self.withdrawn {
            withdrawn.store(true, Ordering::Release);
        }
        let row = UsageRow { outcome, ..row };
        if let Err(error) = self.ledger().settle(row, self.held, self.withdrawn.is_some()) {
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
