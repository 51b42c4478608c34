//! Spend and spend limits of API keys, by calendar windows.
//!
//! Days, weeks and months are in UTC; a week begins on Monday. All amounts are in pico-dollars.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Milliseconds per day.
pub(crate) const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// Weekday of 1970-01-01, a Thursday: days since Monday.
const FIRST_WEEKDAY: u32 = 3;

/// A span of time that spend is limited and reported by.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SpendWindow {
    /// A day in UTC.
    Day,
    /// A week in UTC, Monday to Sunday.
    Week,
    /// A calendar month in UTC.
    Month,
    /// All time.
    Total,
}

impl SpendWindow {
    /// All windows, the shortest first.
    pub const ALL: [SpendWindow; 4] =
        [SpendWindow::Day, SpendWindow::Week, SpendWindow::Month, SpendWindow::Total];

    /// The word used in commands, JSON and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            SpendWindow::Day => "day",
            SpendWindow::Week => "week",
            SpendWindow::Month => "month",
            SpendWindow::Total => "total",
        }
    }

    /// The first day of the window that contains this day.
    fn first_day(self, day: u32) -> u32 {
        match self {
            SpendWindow::Day => day,
            SpendWindow::Week => day.saturating_sub(day.saturating_add(FIRST_WEEKDAY) % 7),
            SpendWindow::Month => day.saturating_sub(date(day).day().unsigned_abs().into()).saturating_add(1),
            SpendWindow::Total => 0,
        }
    }

    /// End of the window that contains this moment, Unix milliseconds; `None` for all time.
    pub fn resets_at_ms(self, now_ms: u64) -> Option<u64> {
        let first = self.first_day(day_of(now_ms));
        let days = match self {
            SpendWindow::Day => 1,
            SpendWindow::Week => 7,
            SpendWindow::Month => u32::from(date(first).days_in_month().unsigned_abs()),
            SpendWindow::Total => return None,
        };
        Some(u64::from(first.saturating_add(days)).saturating_mul(DAY_MS))
    }
}

impl fmt::Display for SpendWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Number of the day in UTC, counted from 1970-01-01.
pub(crate) fn day_of(ms: u64) -> u32 {
    u32::try_from(ms / DAY_MS).unwrap_or(u32::MAX)
}

fn date(day: u32) -> Date {
    let ms = i64::try_from(u64::from(day).saturating_mul(DAY_MS)).unwrap_or(i64::MAX);
    // Days after the year 9999 become the last day that can be represented.
    Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX).to_zoned(TimeZone::UTC).date()
}

/// A day in UTC, in reports. Written `2026-01-31`.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct UsageDay(pub(crate) u32);

/// Text that is not a day from 1970-01-01 on.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a day is written like 2026-01-31")]
pub struct UsageDayError;

impl UsageDay {
    /// The day that contains this moment, given in Unix milliseconds.
    pub fn of_ms(ms: u64) -> UsageDay {
        UsageDay(day_of(ms))
    }

    /// The day `days` earlier, but not before 1970-01-01.
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
        // The date parser also accepts dates with a time.
        if day.to_string() == text { Ok(day) } else { Err(UsageDayError) }
    }
}

impl Serialize for UsageDay {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for UsageDay {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<UsageDay, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Spend limits of a key, pico-dollars. `None` is no limit, zero allows nothing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct SpendLimits {
    /// Limit per day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub day_pico: Option<u64>,
    /// Limit per week.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub week_pico: Option<u64>,
    /// Limit per month.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub month_pico: Option<u64>,
    /// Limit for all time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_pico: Option<u64>,
}

impl SpendLimits {
    /// The limit of a window.
    pub fn of(&self, window: SpendWindow) -> Option<u64> {
        match window {
            SpendWindow::Day => self.day_pico,
            SpendWindow::Week => self.week_pico,
            SpendWindow::Month => self.month_pico,
            SpendWindow::Total => self.total_pico,
        }
    }

    /// The same limits with another one for this window.
    #[must_use]
    pub fn with(mut self, window: SpendWindow, pico: Option<u64>) -> SpendLimits {
        match window {
            SpendWindow::Day => self.day_pico = pico,
            SpendWindow::Week => self.week_pico = pico,
            SpendWindow::Month => self.month_pico = pico,
            SpendWindow::Total => self.total_pico = pico,
        }
        self
    }

    /// Whether no window has a limit.
    pub fn is_empty(&self) -> bool {
        *self == SpendLimits::default()
    }
}

/// Spend in the windows that contain one moment, pico-dollars.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct WindowSpend {
    /// Since the day began.
    pub day_pico: u64,
    /// Since Monday.
    pub week_pico: u64,
    /// Since the month began.
    pub month_pico: u64,
    /// All time.
    pub total_pico: u64,
}

impl WindowSpend {
    /// Spend in one window, pico-dollars.
    pub fn of(&self, window: SpendWindow) -> u64 {
        match window {
            SpendWindow::Day => self.day_pico,
            SpendWindow::Week => self.week_pico,
            SpendWindow::Month => self.month_pico,
            SpendWindow::Total => self.total_pico,
        }
    }
}

/// Stored spend of all windows.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Deserialize, Serialize)]
pub(crate) struct Spent {
    total: u64,
    day: Current,
    week: Current,
    month: Current,
}

/// By how many days a clock is set back at most without having been ahead.
const DAYS_SET_BACK_MAX: u32 = 2;

/// Spend in the two latest windows that have any. A clock that was ahead has begun a window that does
/// not end in time. Until then the other one is the current window.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Deserialize, Serialize)]
struct Current {
    /// First day of the later window.
    since: u32,
    pico: u64,
    /// First day of the window before.
    #[serde(default, skip_serializing_if = "is_zero")]
    before: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    before_pico: u64,
}

fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}

impl Current {
    /// Adds to the window of `day`, which begins on `first_day`.
    fn add(&mut self, day: u32, first_day: u32, pico: u64) {
        if first_day > self.since {
            let (before, before_pico) = (self.since, self.pico);
            *self = Current { since: first_day, pico, before, before_pico };
        } else if counts(self.since, day, first_day) {
            self.pico = self.pico.saturating_add(pico);
        } else if counts(self.before, day, first_day) {
            self.before_pico = self.before_pico.saturating_add(pico);
        } else {
            (self.before, self.before_pico) = (first_day, pico);
        }
    }

    /// Spend in the window of `day`, which begins on `first_day`.
    fn at(&self, day: u32, first_day: u32) -> u64 {
        if counts(self.since, day, first_day) {
            self.pico
        } else if counts(self.before, day, first_day) {
            self.before_pico
        } else {
            0
        }
    }
}

/// Whether `day`, whose window begins on `first_day`, counts in the window that begins on `since`. A
/// day before that window does, because the clock was set back and a sum is never reset twice for the
/// same window. It does not if the window begins more than [`DAYS_SET_BACK_MAX`] days later.
fn counts(since: u32, day: u32, first_day: u32) -> bool {
    first_day <= since && since <= day.saturating_add(DAYS_SET_BACK_MAX)
}

impl Spent {
    /// Adds an amount that was spent at this moment.
    pub(crate) fn add(&mut self, at_ms: u64, pico: u64) {
        if pico == 0 {
            return;
        }
        let day = day_of(at_ms);
        self.total = self.total.saturating_add(pico);
        self.day.add(day, day, pico);
        self.week.add(day, SpendWindow::Week.first_day(day), pico);
        self.month.add(day, SpendWindow::Month.first_day(day), pico);
    }

    /// Whether both have the same total and the same latest windows. The windows before those are not
    /// compared: sums that an earlier version has stored do not have them.
    pub(crate) fn agrees_with(&self, other: &Spent) -> bool {
        let is_same = |one: &Current, other: &Current| (one.since, one.pico) == (other.since, other.pico);
        self.total == other.total
            && is_same(&self.day, &other.day)
            && is_same(&self.week, &other.week)
            && is_same(&self.month, &other.month)
    }

    /// Spend of all time, pico-dollars.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Spend in the windows that contain this moment.
    pub(crate) fn at(&self, now_ms: u64) -> WindowSpend {
        let day = day_of(now_ms);
        WindowSpend {
            day_pico: self.day.at(day, day),
            week_pico: self.week.at(day, SpendWindow::Week.first_day(day)),
            month_pico: self.month.at(day, SpendWindow::Month.first_day(day)),
            total_pico: self.total,
        }
    }
}

#[cfg(test)]
mod tests;
