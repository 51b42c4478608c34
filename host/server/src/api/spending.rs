//! What a key may spend and has spent, with OpenRouter's field names, which allow one limit with
//! one reset period. For a key with several limits, `limit` shows the one with the least amount
//! left, and `limits` shows all.

use cofferdam_engine::cost::Amount;
use cofferdam_store::{ApiKey, KeySpend, SpendLimits, Store, Window, WindowSpend};
use serde::Serialize;

/// Money fields of a key, in dollars.
#[derive(Serialize)]
pub(super) struct Spending {
    limit: Option<Amount>,
    limit_remaining: Option<Amount>,
    limit_reset: Option<&'static str>,
    include_byok_in_limit: bool,
    limits: Limits,
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
struct Limits {
    day: Option<Amount>,
    week: Option<Amount>,
    month: Option<Amount>,
    total: Option<Amount>,
}

impl Spending {
    pub(super) fn of(store: &Store, key: &ApiKey) -> Self {
        // A key that was deleted a moment ago has spent nothing.
        let KeySpend { charged, byok, .. } = store.key_spend(key.id).unwrap_or_default();
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
            limits: Limits::of(&key.limits),
            usage: used(&charged, Window::Total),
            usage_daily: used(&charged, Window::Day),
            usage_weekly: used(&charged, Window::Week),
            usage_monthly: used(&charged, Window::Month),
            byok_usage: used(&byok, Window::Total),
            byok_usage_daily: used(&byok, Window::Day),
            byok_usage_weekly: used(&byok, Window::Week),
            byok_usage_monthly: used(&byok, Window::Month),
        }
    }
}

impl Limits {
    fn of(limits: &SpendLimits) -> Self {
        let of = |window| limits.of(window).map(Amount);
        Self {
            day: of(Window::Day),
            week: of(Window::Week),
            month: of(Window::Month),
            total: of(Window::Total),
        }
    }
}

/// The `limit_reset` name of a window. The total window has none.
fn reset_name(window: Window) -> Option<&'static str> {
    match window {
        Window::Day => Some("daily"),
        Window::Week => Some("weekly"),
        Window::Month => Some("monthly"),
        Window::Total => None,
    }
}

/// The window that `limit_reset` names.
pub(super) fn reset_of(name: &str) -> Option<Window> {
    Window::ALL.into_iter().find(|window| reset_name(*window) == Some(name))
}

/// The public part of a key's token, for people to recognise it.
pub(super) fn label(key: &ApiKey) -> String {
    format!("cfd_{}_...", key.id)
}
