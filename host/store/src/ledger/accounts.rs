//! The arithmetic of accounts: what is spent, what is reserved for requests in progress, and what
//! is left.

use std::collections::HashMap;

use super::{ReservationRefused, Spender};
use crate::ids::WorkspaceId;
use crate::spend::{SpendLimits, SpendWindow};
use crate::token::KeyId;
use crate::usage::{KeySpent, UsageRow, WorkspaceSpent};

/// The limits of a spender.
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
    /// The whole reservation.
    pub(crate) own: u64,
    /// What the request has spent, plus what its parts in progress may still spend.
    pub(crate) used: u64,
    /// Whether a part of the request is in progress and may spend less than it reserved.
    pub(crate) has_parts: bool,
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

    /// Raises a request's reservation to at least what it has used plus the estimate, and returns
    /// the whole reservation. An estimate above what is left reserves what is left, but only while
    /// nothing else runs on the account: one request may overdraw an account, several at once may
    /// not.
    pub(super) fn hold(
        &mut self,
        spender: Spender,
        terms: &Terms,
        held: HeldAmount,
        estimate: u64,
        now_ms: u64,
    ) -> Result<u64, ReservationRefused> {
        let left = self.left(spender, terms, held, estimate, now_ms)?;
        // A reservation never shrinks before the request ends.
        let amount = held.used.saturating_add(estimate.min(left)).max(held.own);
        self.hold_more(spender, amount.saturating_sub(held.own));
        Ok(amount)
    }

    /// How much the request may still spend beyond what it has used, over all limits, if the
    /// estimate is allowed.
    fn left(
        &self,
        spender: Spender,
        terms: &Terms,
        request: HeldAmount,
        estimate: u64,
        now_ms: u64,
    ) -> Result<u64, ReservationRefused> {
        let mut least = u64::MAX;
        if let Some((credited, spent_before)) = terms.credit {
            let (spent, held) = self.workspace(spender.workspace);
            let spent = spent.charged_pico.saturating_sub(spent_before);
            let rest = rest(credited, spent, held, request, estimate);
            least = rest.map_err(|is_busy| ReservationRefused::Credit { is_busy })?;
        }
        if terms.limits.is_empty() {
            return Ok(least);
        }
        let (spent, held) = self.key(spender.key);
        let spent = spent.charged.at(now_ms);
        for window in SpendWindow::ALL {
            let Some(limit_pico) = terms.limits.of(window) else { continue };
            let resets_at_ms = window.resets_at_ms(now_ms);
            let refused =
                |is_busy| ReservationRefused::KeyLimit { window, limit_pico, resets_at_ms, is_busy };
            least = least.min(rest(limit_pico, spent.of(window), held, request, estimate).map_err(refused)?);
        }
        Ok(least)
    }

    pub(super) fn hold_more(&mut self, spender: Spender, pico: u64) {
        let workspace = &mut self.workspaces.entry(spender.workspace).or_default().held;
        *workspace = workspace.saturating_add(pico);
        let key = &mut self.keys.entry(spender.key).or_default().held;
        *key = key.saturating_add(pico);
    }

    pub(super) fn release(&mut self, spender: Spender, pico: u64) {
        if pico == 0 {
            return;
        }
        if let Some(account) = self.workspaces.get_mut(&spender.workspace) {
            account.held = account.held.saturating_sub(pico);
        }
        if let Some(account) = self.keys.get_mut(&spender.key) {
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
fn rest(limit: u64, spent: u64, held: u64, request: HeldAmount, estimate: u64) -> Result<u64, bool> {
    let unspent = i128::from(limit) - i128::from(spent);
    // Without parts in progress, `used` is what the request has spent. With parts, some of `used`
    // may be given back.
    let spent_by_request = if request.has_parts { 0 } else { request.used };
    if unspent <= i128::from(spent_by_request) {
        return Err(false);
    }
    let others = i128::from(held) - i128::from(request.own);
    let left = u64::try_from(unspent - others - i128::from(request.used)).unwrap_or_default();
    let is_alone = others <= 0 && !request.has_parts;
    if estimate <= left || is_alone { Ok(left) } else { Err(true) }
}
