//! The arithmetic of limits: what is spent, what is reserved for requests in progress, and what is
//! left.

use super::{KeySpent, UsageRow, WorkspaceSpent};
use crate::records::{ApiKey, Credit};
use crate::spend::{SpendLimits, SpendWindow};

/// Why nothing was reserved.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ReservationRefused {
    /// The workspace is prepaid and its credit does not cover the request.
    #[error("the workspace has not enough credit left")]
    Credit {
        /// True when some credit is left but requests in progress hold it: after they end, the
        /// request may be allowed.
        is_busy: bool,
    },
    /// A spend limit of the key does not cover the request.
    #[error("the key has reached its limit: {window}")]
    KeyLimit {
        /// The window of the limit.
        window: SpendWindow,
        /// The limit, pico-dollars.
        limit_pico: u64,
        /// When the window ends, Unix milliseconds; `None` for the limit of all time.
        resets_at_ms: Option<u64>,
        /// As for [`ReservationRefused::Credit`].
        is_busy: bool,
    },
    /// The writer's queue has no room for another usage row, the store no longer writes, or this host has
    /// no contact with the database of the store.
    #[error("the store takes no more usage rows")]
    NoRoom,
    /// Another host that shares the store took this one for dead and has charged the request.
    #[error("another host has charged the request, because this one did not answer")]
    Interrupted,
}

impl ReservationRefused {
    /// Whether the request may be allowed once other requests have ended.
    #[cfg(feature = "postgres")]
    pub(crate) fn is_busy(self) -> bool {
        match self {
            ReservationRefused::Credit { is_busy } | ReservationRefused::KeyLimit { is_busy, .. } => is_busy,
            ReservationRefused::NoRoom | ReservationRefused::Interrupted => false,
        }
    }
}

/// The limits of a workspace and a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// For a prepaid workspace: the credit paid in, and the spend before it became prepaid,
    /// pico-dollars.
    pub(crate) credit: Option<(u64, u64)>,
    pub(crate) limits: SpendLimits,
}

impl Terms {
    /// The limits of a workspace with this credit, which pays, and of a key; `None` when they have none.
    /// A deleted workspace has no credit.
    pub(crate) fn of(credit: Option<Credit>, key: Option<&ApiKey>) -> Option<Terms> {
        let limits = key.map_or_else(SpendLimits::default, |key| key.limits);
        let credit = match credit {
            Some(Credit::Prepaid { credited_pico, spent_before_pico }) => {
                Some((credited_pico, spent_before_pico))
            }
            Some(Credit::Unlimited) => None,
            None => Some((0, 0)),
        };
        (credit.is_some() || !limits.is_empty()).then_some(Terms { credit, limits })
    }
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
    pub(crate) fn missing(self, row: &UsageRow) -> u64 {
        self.used(row).saturating_sub(self.all)
    }

    /// The whole reservation once a part has this pledge.
    #[cfg(feature = "postgres")]
    pub(crate) fn all_with(self, row: &UsageRow, pledged: u64) -> u64 {
        self.all.max(self.used(row).saturating_add(pledged))
    }
}

/// What a workspace and one of its keys have spent, and the sums of what requests in progress have
/// reserved there, pico-dollars.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Standing {
    pub(crate) workspace: (WorkspaceSpent, u64),
    pub(crate) key: (KeySpent, u64),
}

impl Standing {
    /// What is pledged for a part of a request, whose reservation so far is part of the sums. An
    /// estimate above what a limit leaves is allowed only while nothing else runs on the account: one
    /// request may overdraw an account, several at once may not. It is pledged up to the most that any
    /// of its limits leaves: a key with little left must not make the workspace reserve little.
    pub(crate) fn pledge(
        &self,
        row: &UsageRow,
        terms: &Terms,
        request: HeldAmount,
        estimate: u64,
        now_ms: u64,
    ) -> Result<u64, ReservationRefused> {
        // The most that one of the limits leaves beyond what the request has used.
        let mut left = 0;
        let rest = |limit, spent, held| rest(limit, spent, held, row, request, estimate);
        if let Some((credited, spent_before)) = terms.credit {
            let (spent, held) = self.workspace;
            let spent = spent.charged_pico.saturating_sub(spent_before);
            left = rest(credited, spent, held).map_err(|is_busy| ReservationRefused::Credit { is_busy })?;
        }
        for window in SpendWindow::ALL {
            let Some(limit_pico) = terms.limits.of(window) else { continue };
            let (spent, held) = self.key;
            let resets_at_ms = window.resets_at_ms(now_ms);
            let refused =
                |is_busy| ReservationRefused::KeyLimit { window, limit_pico, resets_at_ms, is_busy };
            let spent = spent.charged.at(now_ms).of(window);
            left = left.max(rest(limit_pico, spent, held).map_err(refused)?);
        }
        // What the request has reserved already and not used is still its own.
        let unused = request.all.saturating_sub(request.used(row));
        Ok(estimate.min(left.max(unused)))
    }
}

#[cfg(feature = "postgres")]
impl Standing {
    /// What all limits leave beside what is spent and reserved, pico-dollars; 0 when it is less than nothing.
    pub(crate) fn left(&self, terms: &Terms, now_ms: u64) -> u64 {
        let (workspace, held) = self.workspace;
        let of_credit = terms.credit.map(|(credited, spent_before)| {
            let spent = workspace.charged_pico.saturating_sub(spent_before);
            credited.saturating_sub(spent).saturating_sub(held)
        });
        let (key, held) = self.key;
        let of_window = |window: SpendWindow| {
            let spent = key.charged.at(now_ms).of(window);
            Some(terms.limits.of(window)?.saturating_sub(spent).saturating_sub(held))
        };
        let windows = SpendWindow::ALL.into_iter().filter_map(of_window);
        windows.chain(of_credit).min().unwrap_or_default()
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
