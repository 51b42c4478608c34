//! Rate limits: how many requests or tokens a key, workspace or address may use in a minute. One
//! number is kept for each of them: the time at which its use so far is paid off at the rate of its
//! quota (the generic cell rate algorithm). Times come from the injected monotonic clock, so a
//! change of the system clock has no effect. Memory is bounded, and a key that has nothing left to
//! pay off takes none.

mod share;
mod shared;

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cofferdam_store::Clock;

pub use shared::{Rate, RateKey, Taken};

/// The most keys that are remembered by one limit.
const REMEMBERED_MAX: usize = 65_536;
const MINUTE_NS: u64 = 60_000_000_000;
/// The longest time that use beyond the quota can block a key: a provider that reports absurd usage
/// must not lock the key out permanently.
const OVERDRAFT_NS_MAX: u64 = 24 * 60 * MINUTE_NS;

/// A rate, and how many units may be used at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    per_minute: u64,
    at_once: u64,
}

impl Quota {
    /// A quota of `per_minute` units, of which `at_once` may be used together. `None` for a rate of
    /// 0, which means no limit.
    #[must_use]
    pub fn new(per_minute: u64, at_once: u64) -> Option<Self> {
        (per_minute > 0).then_some(Self { per_minute, at_once })
    }

    /// A quota of `per_minute` units, all of which may be used together. `None` for 0, which means
    /// no limit.
    #[must_use]
    pub fn of_minute(per_minute: u64) -> Option<Self> {
        Self::new(per_minute, per_minute)
    }

    /// How long this many units last at the rate.
    fn time_of(self, units: u64) -> u64 {
        // Rounded down, so that a whole `at_once` never takes more time than it allows.
        scaled(units, MINUTE_NS, self.per_minute)
    }

    /// The most time by which use can be ahead of the rate.
    fn ahead_ns_max(self) -> u64 {
        self.time_of(self.at_once).saturating_add(OVERDRAFT_NS_MAX)
    }

    /// The standing of a key whose use is this far ahead of the rate.
    fn standing(self, ahead_ns: u64) -> Standing {
        let room_ns = self.time_of(self.at_once).saturating_sub(ahead_ns);
        Standing {
            limit: self.per_minute,
            remaining: scaled(room_ns, self.per_minute, MINUTE_NS),
            whole_in: Duration::from_nanos(ahead_ns),
        }
    }
}

/// `number * by / of`, rounded down, at most `u64::MAX`.
fn scaled(number: u64, by: u64, of: u64) -> u64 {
    let scaled = u128::from(number) * u128::from(by) / u128::from(of.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// How much of a quota is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Units a minute.
    pub limit: u64,
    /// Units that could be used now.
    pub remaining: u64,
    /// The time until the whole quota is available again, without further use.
    pub whole_in: Duration,
}

/// The error when the rate limit is exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooOften {
    /// Whole seconds to wait for the next unit, at least 1.
    pub wait_s: u64,
    /// What is left: less than one unit.
    pub standing: Standing,
}

/// The use of one key.
#[derive(Debug, Clone, Copy, Default)]
struct RateUsage {
    /// When it is paid off.
    until_ns: u64,
    /// The rate for which `until_ns` was computed. A reload may change the quota.
    per_minute: u64,
}

impl RateUsage {
    /// How far the use is ahead of the rate of `quota`. If the rate has changed, the units stay the
    /// same and their time changes.
    fn ahead_ns(self, quota: Quota, now_ns: u64) -> u64 {
        let ahead_ns = self.until_ns.saturating_sub(now_ns);
        if self.per_minute == quota.per_minute {
            return ahead_ns;
        }
        scaled(ahead_ns, self.per_minute, quota.per_minute).min(quota.ahead_ns_max())
    }
}

/// The use of all keys under one limit.
pub struct RateLimit<K> {
    clock: Clock,
    remembered_max: usize,
    used: Mutex<HashMap<K, RateUsage>>,
}

impl<K: Eq + Hash + Copy> RateLimit<K> {
    /// A limit of which nothing is used yet.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self { clock, remembered_max: REMEMBERED_MAX, used: Mutex::default() }
    }

    /// Uses one unit, if the limit allows it. A refused call uses nothing.
    ///
    /// # Errors
    /// [`TooOften`].
    pub fn take(&self, who: K, quota: Quota) -> Result<Standing, TooOften> {
        let now_ns = self.now_ns();
        let mut used = self.lock();
        let ahead_ns = ahead_ns(&used, who, quota, now_ns);
        check(ahead_ns, quota)?;
        let ahead_ns = ahead_ns.saturating_add(quota.time_of(1));
        self.remember(&mut used, who, quota, ahead_ns, now_ns);
        Ok(quota.standing(ahead_ns))
    }

    /// Checks whether one more unit is available, without using it.
    ///
    /// # Errors
    /// [`TooOften`].
    pub fn check(&self, who: K, quota: Quota) -> Result<Standing, TooOften> {
        let now_ns = self.now_ns();
        check(ahead_ns(&self.lock(), who, quota, now_ns), quota)
    }

    /// How much is left. This uses nothing and is never refused.
    #[must_use]
    pub fn standing(&self, who: K, quota: Quota) -> Standing {
        let now_ns = self.now_ns();
        quota.standing(ahead_ns(&self.lock(), who, quota, now_ns))
    }

    /// Adds use that has already happened, even beyond the quota. At worst the key has to wait for
    /// a day.
    pub fn debit(&self, who: K, quota: Quota, units: u64) {
        if units == 0 {
            return;
        }
        let now_ns = self.now_ns();
        let mut used = self.lock();
        let ahead_ns = ahead_ns(&used, who, quota, now_ns).saturating_add(quota.time_of(units));
        self.remember(&mut used, who, quota, ahead_ns.min(quota.ahead_ns_max()), now_ns);
    }

    /// Returns the unit that [`RateLimit::take`] has just taken.
    pub fn give_back(&self, who: K, quota: Quota) {
        let now_ns = self.now_ns();
        let mut used = self.lock();
        let ahead_ns = ahead_ns(&used, who, quota, now_ns).saturating_sub(quota.time_of(1));
        self.remember(&mut used, who, quota, ahead_ns, now_ns);
    }

    fn now_ns(&self) -> u64 {
        self.clock.monotonic_ms().saturating_mul(1_000_000)
    }

    fn remember(&self, used: &mut HashMap<K, RateUsage>, who: K, quota: Quota, ahead_ns: u64, now_ns: u64) {
        if used.len() >= self.remembered_max && !used.contains_key(&who) {
            used.retain(|_, used| used.until_ns > now_ns);
            if used.len() >= self.remembered_max {
                // The table is full: the half with the least use is forgotten, many at a time to
                // keep this rare.
                let mut all: Vec<u64> = used.values().map(|used| used.until_ns).collect();
                let middle = all.len() / 2;
                let (_, median, _) = all.select_nth_unstable(middle);
                let median = *median;
                used.retain(|_, used| used.until_ns > median);
            }
        }
        let until_ns = now_ns.saturating_add(ahead_ns);
        used.insert(who, RateUsage { until_ns, per_minute: quota.per_minute });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, RateUsage>> {
        // The map is usable even if another thread panicked while it held the lock.
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ahead_ns<K: Eq + Hash>(used: &HashMap<K, RateUsage>, who: K, quota: Quota, now_ns: u64) -> u64 {
    used.get(&who).map_or(0, |used| used.ahead_ns(quota, now_ns))
}

/// Whether one more unit may be used by a key that is this far ahead of the rate.
fn check(ahead_ns: u64, quota: Quota) -> Result<Standing, TooOften> {
    let standing = quota.standing(ahead_ns);
    let after_ns = ahead_ns.saturating_add(quota.time_of(1));
    match after_ns.saturating_sub(quota.time_of(quota.at_once)) {
        0 => Ok(standing),
        too_soon_ns => Err(TooOften { wait_s: too_soon_ns.div_ceil(1_000_000_000), standing }),
    }
}

#[cfg(test)]
mod tests;
