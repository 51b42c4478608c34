//! The ledger: how much each workspace and API key may spend at this moment.
//!
//! Accounts are in memory. Their spend is read from the store when it is opened and grows with each
//! settled request; reservations are not stored. Settling charges the accounts and hands the usage
//! row to the writer under one lock, so that accounts and rows are in the same order and have the
//! same sums.

mod accounts;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::changes::{RowIntent, SettledUsage};
use crate::clock::Clock;
use crate::error::QueueFull;
use crate::ids::WorkspaceId;
use crate::published::PublishedState;
use crate::queue::LaneQueues;
use crate::records::{ApiKey, Credit};
use crate::spend::{SpendLimits, SpendWindow, WindowSpend};
use crate::token::KeyId;
use crate::usage::{HeldAmount, KeySpent, ReservationRefused, Terms, UsageRow, WorkspaceSpent};

pub(crate) use accounts::Accounts;

/// Credit and spend of a workspace.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Balance {
    /// Sum of the payments since the workspace became prepaid, pico-dollars; `None` for an
    /// unlimited workspace.
    pub credited_pico: Option<u64>,
    /// Spend since the workspace became prepaid, or of all time for an unlimited workspace,
    /// pico-dollars.
    pub spent_pico: u64,
    /// Reserved for requests in progress, pico-dollars.
    pub reserved_pico: u64,
}

impl Balance {
    /// The balance of a workspace with this credit, which has spent so much in all.
    pub(crate) fn of(credit: Credit, spent: WorkspaceSpent, reserved_pico: u64) -> Balance {
        match credit {
            Credit::Unlimited => {
                Balance { credited_pico: None, spent_pico: spent.charged_pico, reserved_pico }
            }
            Credit::Prepaid { credited_pico, spent_before_pico } => {
                let spent_pico = spent.charged_pico.saturating_sub(spent_before_pico);
                Balance { credited_pico: Some(credited_pico), spent_pico, reserved_pico }
            }
        }
    }

    /// What is left of the credit, including what is reserved, pico-dollars. Negative after a
    /// request that cost more than was left. `None` for an unlimited workspace.
    pub fn left_pico(&self) -> Option<i128> {
        self.credited_pico.map(|credited| i128::from(credited) - i128::from(self.spent_pico))
    }
}

/// Spend of a key in the current windows.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct KeySpend {
    /// What was charged to the workspace.
    pub charged: WindowSpend,
    /// What inference with the workspace's own credentials cost at the providers.
    pub byok: WindowSpend,
    /// Reserved for requests in progress, pico-dollars; 0 when neither the key nor its workspace
    /// has a limit.
    pub reserved_pico: u64,
}

impl KeySpend {
    /// The sums of a key in the windows of this moment.
    pub(crate) fn of(spent: &KeySpent, reserved_pico: u64, now_ms: u64) -> KeySpend {
        KeySpend { charged: spent.charged.at(now_ms), byok: spent.byok.at(now_ms), reserved_pico }
    }

    /// The limit of which the least is left, and how much is left of it, pico-dollars; `None`
    /// without limits. Reservations are not subtracted.
    pub fn tightest(&self, limits: &SpendLimits) -> Option<(SpendWindow, u64)> {
        let left =
            |window: SpendWindow| Some((window, limits.of(window)?.saturating_sub(self.charged.of(window))));
        SpendWindow::ALL.into_iter().filter_map(left).min_by_key(|(_, left)| *left)
    }
}

/// All accounts, and the queues that usage rows go to.
pub(crate) struct Ledger {
    accounts: Mutex<Accounts>,
    queues: Arc<LaneQueues>,
    shared: Arc<PublishedState>,
    clock: Clock,
}

impl Ledger {
    pub(crate) fn new(
        accounts: Accounts,
        queues: Arc<LaneQueues>,
        shared: Arc<PublishedState>,
        clock: Clock,
    ) -> Ledger {
        Ledger { accounts: Mutex::new(accounts), queues, shared, clock }
    }

    fn accounts(&self) -> MutexGuard<'_, Accounts> {
        // A panic in another thread cannot leave a sum half updated.
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The limits of the workspace, which pays, and of the key; `None` when they have none. Reads
    /// memory only and takes no lock on accounts.
    fn terms(&self, row: &UsageRow) -> Option<Terms> {
        let directory = self.shared.directory.load();
        let credit = directory.workspaces.get(&row.workspace).map(|workspace| workspace.credit);
        Terms::of(credit, directory.keys.get(&row.key).map(|stored| &stored.key))
    }

    /// Raises a request's reservation to `estimate_pico` more than it has used, and pledges that to
    /// a part of it. If less is left and nothing else runs on the account, pledges what is left.
    /// Returns what is pledged; `None` where there are no limits.
    pub(crate) fn pledge(
        &self,
        row: &UsageRow,
        held: &mut HeldAmount,
        estimate_pico: u64,
    ) -> Result<Option<u64>, ReservationRefused> {
        if !self.shared.is_running() || !self.queues.has_room(row.workspace) {
            return Err(ReservationRefused::NoRoom);
        }
        let Some(terms) = self.terms(row) else { return Ok(None) };
        let now_ms = self.clock.now_ms();
        self.accounts().pledge(row, &terms, held, estimate_pico, now_ms).map(Some)
    }

    /// Adds a pledge that was checked elsewhere.
    #[cfg(feature = "postgres")]
    pub(crate) fn add_pledge(&self, row: &UsageRow, held: &mut HeldAmount, pledged: u64) {
        self.accounts().add_pledge(row, held, pledged);
    }

    /// Raises a reservation without a check, for money that is spent already.
    pub(crate) fn cover(&self, row: &UsageRow, held: &mut HeldAmount) {
        if held.missing(row) > 0 {
            self.accounts().cover(row, held);
        }
    }

    pub(crate) fn release(&self, row: &UsageRow, held: u64) {
        if held > 0 {
            self.accounts().release(row, held);
        }
    }

    /// Charges a row with the current time as its date and hands it to the writer.
    pub(crate) fn settle(&self, mut row: UsageRow, held: u64, intent: RowIntent) -> Result<(), QueueFull> {
        let mut accounts = self.accounts();
        // The date is set under the lock, so that rows are queued in the order of their dates.
        row.at_ms = self.clock.now_ms();
        accounts.release(&row, held);
        self.charge(&mut accounts, SettledUsage { row, intent })
    }

    /// Charges a row with the date it has and hands it to the writer.
    pub(crate) fn record(&self, settled: SettledUsage) -> Result<(), QueueFull> {
        self.charge(&mut self.accounts(), settled)
    }

    fn charge(&self, accounts: &mut Accounts, settled: SettledUsage) -> Result<(), QueueFull> {
        if settled.intent != RowIntent::Freed {
            accounts.charge(&settled.row);
        }
        self.queues.push_usage(settled)
    }

    /// Removes the accounts of deleted keys.
    pub(crate) fn forget(&self, keys: &[KeyId]) {
        let mut accounts = self.accounts();
        keys.iter().for_each(|key| accounts.forget_key(*key));
    }

    pub(crate) fn balance(&self, workspace: WorkspaceId, credit: Credit) -> Balance {
        let (spent, reserved_pico) = self.accounts().workspace(workspace);
        Balance::of(credit, spent, reserved_pico)
    }

    pub(crate) fn key_spend(&self, key: &ApiKey) -> KeySpend {
        let now_ms = self.clock.now_ms();
        let (spent, reserved_pico) = self.accounts().key(key.id);
        KeySpend::of(&spent, reserved_pico, now_ms)
    }
}

#[cfg(test)]
mod tests;
