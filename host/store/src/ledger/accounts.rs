//! What workspaces and keys have spent and reserved, in memory.

use std::collections::HashMap;

use crate::ids::WorkspaceId;
use crate::token::KeyId;
use crate::usage::{HeldAmount, KeySpent, ReservationRefused, Standing, Terms, UsageRow, WorkspaceSpent};

#[derive(Clone, Copy, Debug, Default)]
struct Account<S> {
    spent: S,
    held: u64,
}

/// The accounts of all workspaces and keys that have spent or reserved anything.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    workspaces: HashMap<WorkspaceId, Account<WorkspaceSpent>>,
    keys: HashMap<KeyId, Account<KeySpent>>,
}

impl Accounts {
    /// Sets what a workspace had spent when the store was opened.
    pub(crate) fn put_workspace(&mut self, id: WorkspaceId, spent: WorkspaceSpent) {
        self.workspaces.entry(id).or_default().spent = spent;
    }

    /// Sets what a key had spent when the store was opened.
    pub(crate) fn put_key(&mut self, id: KeyId, spent: KeySpent) {
        self.keys.entry(id).or_default().spent = spent;
    }

    pub(super) fn forget_key(&mut self, id: KeyId) {
        self.keys.remove(&id);
    }

    /// Spend and reservations of a workspace.
    pub(crate) fn workspace(&self, id: WorkspaceId) -> (WorkspaceSpent, u64) {
        self.workspaces.get(&id).map(|account| (account.spent, account.held)).unwrap_or_default()
    }

    /// Spend and reservations of a key.
    pub(crate) fn key(&self, id: KeyId) -> (KeySpent, u64) {
        self.keys.get(&id).map(|account| (account.spent, account.held)).unwrap_or_default()
    }

    /// Pledges the estimate for a part of the request, and returns what is pledged, see
    /// [`Standing::pledge`].
    pub(super) fn pledge(
        &mut self,
        row: &UsageRow,
        terms: &Terms,
        held: &mut HeldAmount,
        estimate: u64,
        now_ms: u64,
    ) -> Result<u64, ReservationRefused> {
        let standing = Standing { workspace: self.workspace(row.workspace), key: self.key(row.key) };
        let pledged = standing.pledge(row, terms, *held, estimate, now_ms)?;
        self.add_pledge(row, held, pledged);
        Ok(pledged)
    }

    /// Adds what is pledged to a part of the request, without a check.
    pub(super) fn add_pledge(&mut self, row: &UsageRow, held: &mut HeldAmount, pledged: u64) {
        held.pledged = held.pledged.saturating_add(pledged);
        self.cover(row, held);
    }

    /// Raises the reservation to what the request has used.
    pub(super) fn cover(&mut self, row: &UsageRow, held: &mut HeldAmount) {
        let more = held.missing(row);
        held.all = held.all.saturating_add(more);
        let workspace = &mut self.workspaces.entry(row.workspace).or_default().held;
        *workspace = workspace.saturating_add(more);
        let key = &mut self.keys.entry(row.key).or_default().held;
        *key = key.saturating_add(more);
    }

    pub(super) fn release(&mut self, row: &UsageRow, pico: u64) {
        if let Some(account) = self.workspaces.get_mut(&row.workspace) {
            account.held = account.held.saturating_sub(pico);
        }
        if let Some(account) = self.keys.get_mut(&row.key) {
            account.held = account.held.saturating_sub(pico);
        }
    }

    pub(super) fn charge(&mut self, row: &UsageRow) {
        if row.cost_pico == 0 && row.byok_pico == 0 {
            return;
        }
        self.workspaces.entry(row.workspace).or_default().spent.add(row);
        self.keys.entry(row.key).or_default().spent.add(row);
    }
}
