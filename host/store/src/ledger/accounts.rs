//! The arithmetic of accounts: what is spent, what is reserved for requests in progress, and what
//! is left.

use std::collections::HashMap;

use super::ReservationRefused;
use crate::ids::WorkspaceId;
use crate::spend::{SpendLimits, SpendWindow};
use crate::token::KeyId;
use crate::usage::{KeySpent, UsageRow, WorkspaceSpent};

/// The limits of a workspace and a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// For a prepaid workspace: the credit paid in, and the spend before it became prepaid,
    /// pico-dollars.
    pub(crate) credit: Option<(u64, u64)>,
    pub(crate) limits: SpendLimits,
}

/// The reservation of one request, pico-dollars.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeldAmount {
    /// The whole reservation. It never shrinks before the request ends.
    pub(crate) all: u64,
    /// What parts in progress may still spend beyond what they have spent so far. They may spend
    /// less.
    pub(crate) pledged: u64,
}

impl HeldAmount {
    /// What the request has spent, plus what its parts in progress may still spend.
    fn used(self, row: &UsageRow) -> u64 {
        row.cost_pico.saturating_add(self.pledged)
    }

    /// By how much the request has used more than it reserved.
    pub(super) fn missing(self, row: &UsageRow) -> u64 {
        self.used(row).saturating_sub(self.all)
    }
}

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

    /// Pledges the estimate for a part of the request, and returns what is pledged. An estimate
    /// above what is left gets what is left, but only while nothing else runs on the account: one
    /// request may overdraw an account, several at once may not.
    pub(super) fn pledge(
        &mut self,
        row: &UsageRow,
        terms: &Terms,
        held: &mut HeldAmount,
        estimate: u64,
        now_ms: u64,
    ) -> Result<u64, ReservationRefused> {
        let left = self.left(row, terms, *held, estimate, now_ms)?;
        // What the request has reserved already and not used is still its own.
        let unused = held.all.saturating_sub(held.used(row));
        let pledged = estimate.min(left.max(unused));
        held.pledged = held.pledged.saturating_add(pledged);
        self.cover(row, held);
        Ok(pledged)
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

    /// How much the request may still spend beyond what it has used, over all limits, if the
    /// estimate is allowed.
    fn left(
        &self,
        row: &UsageRow,
        terms: &Terms,
        request: HeldAmount,
        estimate: u64,
        now_ms: u64,
    ) -> Result<u64, ReservationRefused> {
        let mut least = u64::MAX;
        let rest = |limit, spent, held| rest(limit, spent, held, row, request, estimate);
        if let Some((credited, spent_before)) = terms.credit {
            let (spent, held) = self.workspace(row.workspace);
            let spent = spent.charged_pico.saturating_sub(spent_before);
            least = rest(credited, spent, held).map_err(|is_busy| ReservationRefused::Credit { is_busy })?;
        }
        if terms.limits.is_empty() {
            return Ok(least);
        }
        let (spent, held) = self.key(row.key);
        let spent = spent.charged.at(now_ms);
        for window in SpendWindow::ALL {
            let Some(limit_pico) = terms.limits.of(window) else { continue };
            let resets_at_ms = window.resets_at_ms(now_ms);
            let refused =
                |is_busy| ReservationRefused::KeyLimit { window, limit_pico, resets_at_ms, is_busy };
            least = least.min(rest(limit_pico, spent.of(window), held).map_err(refused)?);
        }
        Ok(least)
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

/// What is left of one limit after the reservations of others and what the request has used. The
/// estimate is allowed if it fits, or if nothing else runs and something is left.
///
/// # Errors
/// The estimate is not allowed. `true` when other requests, or other parts of this one, are the
/// reason.
fn rest(
    limit: u64,
    spent: u64,
    held: u64,
    row: &UsageRow,
    request: HeldAmount,
    estimate: u64,
) -> Result<u64, bool> {
    let unspent = i128::from(limit) - i128::from(spent);
    let has_parts = request.pledged > 0;
    // With parts in progress, what the request has reserved may be given back, and then be enough.
    let spent_by_request = if has_parts { 0 } else { row.cost_pico };
    if unspent <= i128::from(spent_by_request) {
        return Err(false);
    }
    let others = i128::from(held) - i128::from(request.all);
    let left = u64::try_from(unspent - others - i128::from(request.used(row))).unwrap_or_default();
    let is_alone = others <= 0 && !has_parts;
    if estimate <= left || is_alone { Ok(left) } else { Err(true) }
}
