//! How much somebody may use in a minute: of requests, of tokens. One number per
//! somebody: the moment at which all that was used so far is used up at the even
//! pace of its quota (the generic cell rate algorithm). Times come from the
//! injected monotonic clock, so setting the machine's clock neither locks anybody
//! out nor lets anybody in. Memory is bounded: who has nothing used up is not
//! remembered.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cofferdam_store::Clock;

/// Somebodies remembered at most, per limit.
const REMEMBERED_MAX: usize = 65_536;
const MINUTE_NS: u64 = 60_000_000_000;
/// How long what was used at most keeps somebody waiting: a provider that reports
/// nonsense must not lock a key for good.
const OVERDRAFT_NS_MAX: u64 = 24 * 60 * MINUTE_NS;

/// A pace, and how far ahead of it anybody may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    per_minute: u64,
    at_once: u64,
}

impl Quota {
    /// So many units a minute, of which `at_once` may be used together. `None` for 0 a
    /// minute, which is no limit.
    #[must_use]
    pub fn new(per_minute: u64, at_once: u64) -> Option<Self> {
        (per_minute > 0).then_some(Self { per_minute, at_once })
    }

    /// So many units a minute, all of which may be used together. `None` for 0, which is
    /// no limit.
    #[must_use]
    pub fn of_minute(per_minute: u64) -> Option<Self> {
        Self::new(per_minute, per_minute)
    }

    /// How long this many units last at the pace.
    fn time_of(self, units: u64) -> u64 {
        // Rounded down, so that what may be used at once never costs more than is there.
        scaled(units, MINUTE_NS, self.per_minute)
    }

    /// How far ahead of the pace anybody can get at most.
    fn ahead_ns_max(self) -> u64 {
        self.time_of(self.at_once).saturating_add(OVERDRAFT_NS_MAX)
    }

    /// Where somebody stands who is so far ahead of the pace.
    fn standing(self, ahead_ns: u64) -> Standing {
        let room_ns = self.time_of(self.at_once).saturating_sub(ahead_ns);
        Standing {
            limit: self.per_minute,
            remaining: scaled(room_ns, self.per_minute, MINUTE_NS),
            whole_in: Duration::from_nanos(ahead_ns),
        }
    }
}

/// `number * by / of`, rounded down, at most the greatest number there is.
fn scaled(number: u64, by: u64, of: u64) -> u64 {
    let scaled = u128::from(number) * u128::from(by) / u128::from(of.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// How much of a quota is left to somebody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Units a minute.
    pub limit: u64,
    /// Units that could be used at this moment.
    pub remaining: u64,
    /// Until nothing is used up any more, if nothing else is used.
    pub whole_in: Duration,
}

/// Too often, or too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooOften {
    /// How many whole seconds to wait for the next unit, at least 1.
    pub wait_s: u64,
    /// What is left: less than one unit.
    pub standing: Standing,
}

/// What somebody has used up.
#[derive(Debug, Clone, Copy)]
struct Used {
    /// When it is used up.
    until_ns: u64,
    /// At this pace, which a configuration may change.
    per_minute: u64,
}

impl Used {
    /// How far ahead of the pace of a quota that is. With another pace the units stay,
    /// and the time they last changes.
    fn ahead_ns(self, quota: Quota, now_ns: u64) -> u64 {
        let ahead_ns = self.until_ns.saturating_sub(now_ns);
        if self.per_minute == quota.per_minute {
            return ahead_ns;
        }
        scaled(ahead_ns, self.per_minute, quota.per_minute).min(quota.ahead_ns_max())
    }
}

/// What each of them has used up.
pub struct Limit<K> {
    clock: Clock,
    remembered_max: usize,
    used: Mutex<HashMap<K, Used>>,
}

impl<K: Eq + Hash + Copy> Limit<K> {
    /// Nobody has used anything yet.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self { clock, remembered_max: REMEMBERED_MAX, used: Mutex::default() }
    }

    /// Uses one unit up, unless it is too often. Who is refused has used nothing up.
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

    /// Looks whether one more unit would be too often.
    ///
    /// # Errors
    /// [`TooOften`].
    pub fn check(&self, who: K, quota: Quota) -> Result<Standing, TooOften> {
        let now_ns = self.now_ns();
        check(ahead_ns(&self.lock(), who, quota, now_ns), quota)
    }

    /// Where somebody stands; asking uses nothing up and is never refused.
    #[must_use]
    pub fn standing(&self, who: K, quota: Quota) -> Standing {
        let now_ns = self.now_ns();
        quota.standing(ahead_ns(&self.lock(), who, quota, now_ns))
    }

    /// Uses up what was used in fact, whether it was there or not: at worst somebody
    /// waits for a day.
    pub fn debit(&self, who: K, quota: Quota, units: u64) {
        if units == 0 {
            return;
        }
        let now_ns = self.now_ns();
        let mut used = self.lock();
        let ahead_ns = ahead_ns(&used, who, quota, now_ns).saturating_add(quota.time_of(units));
        self.remember(&mut used, who, quota, ahead_ns.min(quota.ahead_ns_max()), now_ns);
    }

    /// Gives back the unit that [`Limit::take`] has just taken.
    pub fn give_back(&self, who: K, quota: Quota) {
        let now_ns = self.now_ns();
        let mut used = self.lock();
        let ahead_ns = ahead_ns(&used, who, quota, now_ns).saturating_sub(quota.time_of(1));
        self.remember(&mut used, who, quota, ahead_ns, now_ns);
    }

    fn now_ns(&self) -> u64 {
        self.clock.monotonic_ms().saturating_mul(1_000_000)
    }

    fn remember(&self, used: &mut HashMap<K, Used>, who: K, quota: Quota, ahead_ns: u64, now_ns: u64) {
        if used.len() >= self.remembered_max && !used.contains_key(&who) {
            used.retain(|_, used| used.until_ns > now_ns);
            if used.len() >= self.remembered_max {
                // So many at a time: the half that has used least gets off.
                let mut all: Vec<u64> = used.values().map(|used| used.until_ns).collect();
                let middle = all.len() / 2;
                let (_, median, _) = all.select_nth_unstable(middle);
                let median = *median;
                used.retain(|_, used| used.until_ns > median);
            }
        }
        let until_ns = now_ns.saturating_add(ahead_ns);
        used.insert(who, Used { until_ns, per_minute: quota.per_minute });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, Used>> {
        // A panic elsewhere leaves a map that is still a map.
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ahead_ns<K: Eq + Hash>(used: &HashMap<K, Used>, who: K, quota: Quota, now_ns: u64) -> u64 {
    used.get(&who).map_or(0, |used| used.ahead_ns(quota, now_ns))
}

/// Whether somebody who is so far ahead may use one more.
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
