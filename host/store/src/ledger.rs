//! The ledger: who may spend how much, at this moment.
//!
//! Accounts are held in memory: what is spent comes from the store when it is opened and grows with each request
//! that is settled; what is reserved dies with the process. A request that is settled is charged and handed to
//! the writer in one step under one lock, so that accounts and rows see the same order and add up to the same.

mod accounts;
mod funds;
mod reservation;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock::Clock;
use crate::commit::Shared;
use crate::error::QueueFull;
use crate::ids::WorkspaceId;
use crate::queue::{Queue, Settled};
use crate::records::{ApiKey, Credit};
use crate::spend::{SpendLimits, Window, WindowSpend};
use crate::token::KeyId;
use crate::usage::UsageRow;

use accounts::Held;
pub(crate) use accounts::{Accounts, KeySpent, Terms, WorkspaceSpent};
pub use funds::{Funds, Pledge};
pub use reservation::Reservation;

/// Who spends: the workspace pays, the key may be limited.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Spender {
    workspace: WorkspaceId,
    key: KeyId,
}

impl Spender {
    fn of(row: &UsageRow) -> Spender {
        Spender { workspace: row.workspace, key: row.key }
    }
}

/// Why nothing was reserved.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refused {
    /// The workspace is prepaid, and its credit does not allow the request.
    #[error("the workspace has not enough credit left")]
    Credit {
        /// Some is left, but it does not cover the request beside the requests that run: once these have ended, the
        /// request may be allowed.
        is_busy: bool,
    },
    /// A limit of the key does not allow the request.
    #[error("the key has reached its limit: {window}")]
    KeyLimit {
        /// Of which window.
        window: Window,
        /// The limit, pico-dollars.
        limit_pico: u64,
        /// When the window is over, Unix milliseconds; `None` for all time.
        resets_at_ms: Option<u64>,
        /// As for [`Refused::Credit`].
        is_busy: bool,
    },
    /// The writer is so far behind that a row would find no place, or the store no longer writes.
    #[error("the store takes no more usage rows")]
    NoRoom,
}

/// What a workspace has paid in and used up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Balance {
    /// All that was paid in since it is prepaid, pico-dollars; `None` for an unlimited workspace.
    pub credited_pico: Option<u64>,
    /// What was spent since it is prepaid, or ever in an unlimited one, pico-dollars.
    pub spent_pico: u64,
    /// What is reserved for requests under way, pico-dollars.
    pub reserved_pico: u64,
}

impl Balance {
    /// What is left of the credit, reserved or not, pico-dollars: below zero once a request cost more than was
    /// left. `None` for an unlimited workspace.
    pub fn left_pico(&self) -> Option<i128> {
        self.credited_pico.map(|credited| i128::from(credited) - i128::from(self.spent_pico))
    }
}

/// What a key has spent, in the windows of this moment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct KeySpend {
    /// What was charged.
    pub charged: WindowSpend,
    /// What inference with the workspace's own credentials cost at the providers.
    pub byok: WindowSpend,
    /// What is reserved for requests under way, pico-dollars; 0 where neither key nor workspace has a limit.
    pub reserved_pico: u64,
}

impl KeySpend {
    /// The limit of which least is left, and how much that is, pico-dollars; `None` without limits. What is
    /// reserved counts as left.
    pub fn tightest(&self, limits: &SpendLimits) -> Option<(Window, u64)> {
        let left =
            |window: Window| Some((window, limits.of(window)?.saturating_sub(self.charged.of(window))));
        Window::ALL.into_iter().filter_map(left).min_by_key(|(_, left)| *left)
    }
}

/// All accounts, and where rows go.
pub(crate) struct Ledger {
    accounts: Mutex<Accounts>,
    queue: Arc<Queue>,
    shared: Arc<Shared>,
    clock: Clock,
}

impl Ledger {
    pub(crate) fn new(accounts: Accounts, queue: Arc<Queue>, shared: Arc<Shared>, clock: Clock) -> Ledger {
        Ledger { accounts: Mutex::new(accounts), queue, shared, clock }
    }

    fn accounts(&self) -> MutexGuard<'_, Accounts> {
        // A panic elsewhere leaves sums that are still sums.
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the spender may spend; `None` without any limit. Looks at memory only and takes no lock.
    fn terms(&self, spender: Spender) -> Option<Terms> {
        let directory = self.shared.directory.load();
        let workspace = directory.workspace(spender.workspace);
        let limits = directory.key(spender.key).map_or_else(SpendLimits::default, |key| key.limits);
        let credit = match workspace.map(|workspace| workspace.credit) {
            Some(Credit::Prepaid { credited_pico, spent_before_pico }) => {
                Some((credited_pico, spent_before_pico))
            }
            Some(Credit::Unlimited) => None,
            // It was deleted: nothing more may be spent for it.
            None => Some((0, 0)),
        };
        (credit.is_some() || !limits.is_empty()).then_some(Terms { credit, limits })
    }

    /// Makes what is held for a request at least `estimate_pico` beyond what is used up of it; where that is more than
    /// is left and nothing else runs on the account, as much as is left. `None` for a spender without limits.
    fn hold(&self, spender: Spender, held: Held, estimate_pico: u64) -> Result<Option<u64>, Refused> {
        if !self.shared.is_running() || !self.queue.has_room() {
            return Err(Refused::NoRoom);
        }
        let Some(terms) = self.terms(spender) else { return Ok(None) };
        let now_ms = self.clock.now_ms();
        self.accounts().hold(spender, &terms, held, estimate_pico, now_ms).map(Some)
    }

    /// Holds more without asking: what was spent is spent.
    fn hold_more(&self, spender: Spender, pico: u64) {
        self.accounts().hold_more(spender, pico);
    }

    fn release(&self, spender: Spender, held: u64) {
        if held > 0 {
            self.accounts().release(spender, held);
        }
    }

    /// Charges a row that ends now, and hands it to the writer.
    fn settle(&self, mut row: UsageRow, held: u64, has_intent: bool) -> Result<(), QueueFull> {
        let mut accounts = self.accounts();
        row.at_ms = self.clock.now_ms();
        accounts.release(Spender::of(&row), held);
        self.charge(&mut accounts, row, has_intent)
    }

    /// Charges a row with its date as it is, and hands it to the writer.
    pub(crate) fn record(&self, row: UsageRow, has_intent: bool) -> Result<(), QueueFull> {
        self.charge(&mut self.accounts(), row, has_intent)
    }

    fn charge(&self, accounts: &mut Accounts, row: UsageRow, has_intent: bool) -> Result<(), QueueFull> {
        accounts.charge(&row);
        self.queue.push_usage(Settled { row, has_intent })
    }

    /// Closes the accounts of keys that are not there any more.
    pub(crate) fn forget(&self, keys: &[KeyId]) {
        let mut accounts = self.accounts();
        keys.iter().for_each(|key| accounts.forget_key(*key));
    }

    pub(crate) fn balance(&self, workspace: WorkspaceId, credit: Credit) -> Balance {
        let (spent, reserved_pico) = self.accounts().workspace(workspace);
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

    pub(crate) fn key_spend(&self, key: &ApiKey) -> KeySpend {
        let now_ms = self.clock.now_ms();
        let (spent, reserved_pico) = self.accounts().key(key.id);
        KeySpend { charged: spent.charged.at(now_ms), byok: spent.byok.at(now_ms), reserved_pico }
    }
}

#[cfg(test)]
mod tests;
