//! What a key may spend and has spent, with OpenRouter's field names, which allow one limit with
//! one reset period. For a key with several limits, `limit` shows the one with the least amount
//! left, and `limits` shows all.

use cofferdam_engine::cost::Amount;
use cofferdam_store::{ApiKey, KeySpend, SpendLimits, SpendWindow, WindowSpend};
use serde::Serialize;

/// Money fields of a key, in dollars.
#[derive(Serialize)]
pub(super) struct SpendingMembers {
    limit: Option<Amount>,
    limit_remaining: Option<Amount>,
    limit_reset: Option<&'static str>,
    include_byok_in_limit: bool,
    limits: SpendingLimits,
    usage: Amount,
    usage_daily: Amount,
    usage_weekly: Amount,
    usage_monthly: Amount,
    byok_usage: Amount,
    byok_usage_daily: Amount,
    byok_usage_weekly: Amount,
    byok_usage_monthly: Amount,
}

#[derive(Serialize)]
struct SpendingLimits {
    day: Option<Amount>,
    week: Option<Amount>,
    month: Option<Amount>,
    total: Option<Amount>,
}

impl SpendingMembers {
    pub(super) fn of(key: &ApiKey, spend: &KeySpend) -> Self {
        let KeySpend { charged, byok, .. } = *spend;
        // Reservations of running requests are left out, so that `limit_remaining` is the limit
        // minus `usage`.
        let spend = KeySpend { charged, byok, reserved_pico: 0 };
        let shown = spend.tightest(&key.limits);
        let limit = shown.and_then(|(window, _)| key.limits.of(window));
        let used = |spend: &WindowSpend, window| Amount(spend.of(window));
        Self {
            limit: limit.map(Amount),
            limit_remaining: shown.map(|(_, left)| Amount(left)),
            limit_reset: shown.and_then(|(window, _)| reset_name(window)),
            include_byok_in_limit: false,
            limits: SpendingLimits::of(&key.limits),
            usage: used(&charged, SpendWindow::Total),
            usage_daily: used(&charged, SpendWindow::Day),
            usage_weekly: used(&charged, SpendWindow::Week),
            usage_monthly: used(&charged, SpendWindow::Month),
            byok_usage: used(&byok, SpendWindow::Total),
            byok_usage_daily: used(&byok, SpendWindow::Day),
            byok_usage_weekly: used(&byok, SpendWindow::Week),
            byok_usage_monthly: used(&byok, SpendWindow::Month),
        }
    }
}

impl SpendingLimits {
    fn of(limits: &SpendLimits) -> Self {
        let of = |window| limits.of(window).map(Amount);
        Self {
            day: of(SpendWindow::Day),
            week: of(SpendWindow::Week),
            month: of(SpendWindow::Month),
            total: of(SpendWindow::Total),
        }
    }
}

/// The `limit_reset` name of a window. The total window has none.
fn reset_name(window: SpendWindow) -> Option<&'static str> {
    match window {
        SpendWindow::Day => Some("daily"),
        SpendWindow::Week => Some("weekly"),
        SpendWindow::Month => Some("monthly"),
        SpendWindow::Total => None,
    }
}

/// The window that `limit_reset` names.
pub(super) fn reset_of(name: &str) -> Option<SpendWindow> {
    SpendWindow::ALL.into_iter().find(|window| reset_name(*window) == Some(name))
}

/// The public part of a key's token, for people to recognise it.
pub(super) fn label(key: &ApiKey) -> String {
    format!("cfd_{}_...", key.id)
}
