//! What keys spend and may spend, by windows of the calendar.
//!
//! Days, weeks and months are those of UTC; a week begins on Monday. All amounts are pico-dollars.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

/// Milliseconds of a day.
pub(crate) const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// 1970-01-01 was a Thursday: so many days after a Monday.
const FIRST_WEEKDAY: u32 = 3;

/// A span of time that spending is limited and told by.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Window {
    /// A day of UTC.
    Day,
    /// A week of UTC, Monday to Sunday.
    Week,
    /// A month of UTC.
    Month,
    /// All time.
    Total,
}

impl Window {
    /// The shortest first.
    pub const ALL: [Window; 4] = [Window::Day, Window::Week, Window::Month, Window::Total];

    /// The word used in commands, JSON and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Window::Day => "day",
            Window::Week => "week",
            Window::Month => "month",
            Window::Total => "total",
        }
    }

    /// The first day of the window that this day is in.
    fn first_day(self, day: u32) -> u32 {
        match self {
            Window::Day => day,
            Window::Week => day.saturating_sub(day.saturating_add(FIRST_WEEKDAY) % 7),
            Window::Month => day.saturating_sub(date(day).day().unsigned_abs().into()).saturating_add(1),
            Window::Total => 0,
        }
    }

    /// When the window that this moment is in is over, Unix milliseconds; `None` for all time.
    pub fn resets_at_ms(self, now_ms: u64) -> Option<u64> {
        let first = self.first_day(day_of(now_ms));
        let days = match self {
            Window::Day => 1,
            Window::Week => 7,
            Window::Month => u32::from(date(first).days_in_month().unsigned_abs()),
            Window::Total => return None,
        };
        Some(u64::from(first.saturating_add(days)).saturating_mul(DAY_MS))
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A day of UTC, counted from 1970-01-01.
pub(crate) fn day_of(ms: u64) -> u32 {
    u32::try_from(ms / DAY_MS).unwrap_or(u32::MAX)
}

fn date(day: u32) -> Date {
    let ms = i64::try_from(u64::from(day).saturating_mul(DAY_MS)).unwrap_or(i64::MAX);
    // Beyond the year 9999 every day is the last one known.
    Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX).to_zoned(TimeZone::UTC).date()
}

/// A day of UTC in reports. Written `2026-01-31`.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct UsageDay(pub(crate) u32);

/// Text that is no day from 1970 on.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a day is written like 2026-01-31")]
pub struct UsageDayError;

impl UsageDay {
    /// The day that this moment is in.
    pub fn of_ms(ms: u64) -> UsageDay {
        UsageDay(day_of(ms))
    }

    /// So many days earlier.
    #[must_use]
    pub fn minus(self, days: u32) -> UsageDay {
        UsageDay(self.0.saturating_sub(days))
    }
}

impl fmt::Display for UsageDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", date(self.0))
    }
}

impl FromStr for UsageDay {
    type Err = UsageDayError;

    fn from_str(text: &str) -> Result<UsageDay, UsageDayError> {
        let date: Date = text.parse().map_err(|_| UsageDayError)?;
        let start = date.to_zoned(TimeZone::UTC).map_err(|_| UsageDayError)?.timestamp().as_millisecond();
        let day = UsageDay(day_of(u64::try_from(start).map_err(|_| UsageDayError)?));
        // The parser of dates also takes dates with times.
        if day.to_string() == text { Ok(day) } else { Err(UsageDayError) }
    }
}

/// What a key may spend, pico-dollars; `None` is no limit. Zero allows nothing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct SpendLimits {
    /// In a day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub day_pico: Option<u64>,
    /// In a week.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub week_pico: Option<u64>,
    /// In a month.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub month_pico: Option<u64>,
    /// Ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_pico: Option<u64>,
}

impl SpendLimits {
    /// The limit of a window.
    pub fn of(&self, window: Window) -> Option<u64> {
        match window {
            Window::Day => self.day_pico,
            Window::Week => self.week_pico,
            Window::Month => self.month_pico,
            Window::Total => self.total_pico,
        }
    }

    /// Sets the limit of a window.
    #[must_use]
    pub fn with(mut self, window: Window, pico: Option<u64>) -> SpendLimits {
        match window {
            Window::Day => self.day_pico = pico,
            Window::Week => self.week_pico = pico,
            Window::Month => self.month_pico = pico,
            Window::Total => self.total_pico = pico,
        }
        self
    }

    /// Whether there is no limit at all.
    pub fn is_empty(&self) -> bool {
        *self == SpendLimits::default()
    }
}

/// What was spent in the windows of one moment, pico-dollars.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct WindowSpend {
    /// Since the day began.
    pub day_pico: u64,
    /// Since Monday.
    pub week_pico: u64,
    /// Since the month began.
    pub month_pico: u64,
    /// Ever.
    pub total_pico: u64,
}

impl WindowSpend {
    /// What was spent in a window.
    pub fn of(&self, window: Window) -> u64 {
        match window {
            Window::Day => self.day_pico,
            Window::Week => self.week_pico,
            Window::Month => self.month_pico,
            Window::Total => self.total_pico,
        }
    }
}

/// What was spent, window by window, as it is kept.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Deserialize, Serialize)]
pub(crate) struct Spent {
    total: u64,
    day: Current,
    week: Current,
    month: Current,
}

/// The sum of the newest window that anything was spent in.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Deserialize, Serialize)]
struct Current {
    /// Its first day.
    since: u32,
    pico: u64,
}

impl Current {
    /// A moment before the window, which is one of a clock that was set back, counts in the window: a sum that
    /// was begun is never begun again.
    fn add(&mut self, first_day: u32, pico: u64) {
        if first_day > self.since {
            *self = Current { since: first_day, pico: 0 };
        }
        self.pico = self.pico.saturating_add(pico);
    }

    fn at(&self, first_day: u32) -> u64 {
        if first_day > self.since { 0 } else { self.pico }
    }
}

impl Spent {
    /// Adds what was spent at a moment.
    pub(crate) fn add(&mut self, at_ms: u64, pico: u64) {
        if pico == 0 {
            return;
        }
        let day = day_of(at_ms);
        self.total = self.total.saturating_add(pico);
        self.day.add(day, pico);
        self.week.add(Window::Week.first_day(day), pico);
        self.month.add(Window::Month.first_day(day), pico);
    }

    /// What was ever spent.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// What it comes to in the windows that a moment is in.
    pub(crate) fn at(&self, now_ms: u64) -> WindowSpend {
        let day = day_of(now_ms);
        WindowSpend {
            day_pico: self.day.at(day),
            week_pico: self.week.at(Window::Week.first_day(day)),
            month_pico: self.month.at(Window::Month.first_day(day)),
            total_pico: self.total,
        }
    }
}

#[cfg(test)]
mod tests;
