//! How often somebody may do something. One number per somebody: the moment at
//! which all that was granted so far is used up at the even pace of its quota
//! (the generic cell rate algorithm). Times come from the injected monotonic
//! clock, so setting the machine's clock neither locks anybody out nor lets
//! anybody in. Memory is bounded: who has nothing used up is not remembered.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cofferdam_store::{Clock, KeyId};

/// Somebodies remembered at most, per limit.
const REMEMBERED_MAX: usize = 65_536;
/// What may be used at once, however small the quota.
const BURST_MIN: u64 = 20;
/// Failed authentications from one address in a minute, and at once.
const FAILURES_PER_MINUTE: u64 = 60;
const MINUTE_US: u64 = 60_000_000;

/// The limits of this host.
pub(crate) struct Limits {
    /// Vault requests that read, by key.
    pub(crate) vault_reads: Limit<KeyId>,
    /// Vault requests that change something, by key.
    pub(crate) vault_writes: Limit<KeyId>,
    /// Tokens that were refused, by address.
    pub(crate) failures: Limit<Source>,
}

impl Limits {
    /// Nobody has used anything up yet.
    #[must_use]
    pub(crate) fn new(clock: &Clock) -> Self {
        Self {
            vault_reads: Limit::new(clock.clone()),
            vault_writes: Limit::new(clock.clone()),
            failures: Limit::new(clock.clone()),
        }
    }
}

/// A pace, and how far ahead of it anybody may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quota {
    interval_us: u64,
    ahead_us: u64,
}

impl Quota {
    /// The quota of a key: a third of the minute's figure at once, but at least 20.
    /// `None` for 0, which is no limit, and for more than the clock can tell apart.
    #[must_use]
    pub(crate) fn of_key(per_minute: u64) -> Option<Self> {
        Self::new(per_minute, (per_minute / 3).max(BURST_MIN))
    }

    /// The quota of an address that shows tokens which are refused.
    #[must_use]
    pub(crate) fn of_failures() -> Option<Self> {
        Self::new(FAILURES_PER_MINUTE, FAILURES_PER_MINUTE)
    }

    fn new(per_minute: u64, burst: u64) -> Option<Self> {
        let interval_us = MINUTE_US.checked_div(per_minute).filter(|interval_us| *interval_us > 0)?;
        Some(Self { interval_us, ahead_us: interval_us.saturating_mul(burst) })
    }
}

/// A client's address as far as one client can be told from the next: the whole
/// of an IPv4 address, the network half of an IPv6 one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Source(IpAddr);

impl Source {
    /// The address, or the first one of the network.
    pub(crate) fn address(self) -> IpAddr {
        self.0
    }
}

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        })
    }
}

/// Too often; how many whole seconds to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooOften {
    pub(crate) wait_s: u64,
}

/// What each of them has used up.
pub(crate) struct Limit<K> {
    clock: Clock,
    remembered_max: usize,
    used_until_us: Mutex<HashMap<K, u64>>,
}

impl<K: Eq + Hash + Copy> Limit<K> {
    fn new(clock: Clock) -> Self {
        Self { clock, remembered_max: REMEMBERED_MAX, used_until_us: Mutex::default() }
    }

    /// Uses one up, unless it is too often. Who is refused has used nothing up.
    ///
    /// # Errors
    ///
    /// Too often.
    pub(crate) fn take(&self, who: K, quota: Quota) -> Result<(), TooOften> {
        let now_us = self.now_us();
        let mut used = self.lock();
        let until_us = allowed(used.get(&who), quota, now_us)?;
        self.remember(&mut used, who, until_us, now_us);
        Ok(())
    }

    /// Looks whether one more would be too often.
    ///
    /// # Errors
    ///
    /// Too often.
    pub(crate) fn check(&self, who: K, quota: Quota) -> Result<(), TooOften> {
        allowed(self.lock().get(&who), quota, self.now_us()).map(|_| ())
    }

    fn now_us(&self) -> u64 {
        self.clock.monotonic_ms().saturating_mul(1000)
    }

    fn remember(&self, used: &mut HashMap<K, u64>, who: K, until_us: u64, now_us: u64) {
        if used.len() >= self.remembered_max && !used.contains_key(&who) {
            used.retain(|_, until_us| *until_us > now_us);
            if used.len() >= self.remembered_max {
                // So many at a time: the half that has used least gets off.
                let mut all: Vec<u64> = used.values().copied().collect();
                let middle = all.len() / 2;
                let (_, median, _) = all.select_nth_unstable(middle);
                let median = *median;
                used.retain(|_, until_us| *until_us > median);
            }
        }
        used.insert(who, until_us);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, u64>> {
        // A panic elsewhere leaves a map that is still a map.
        self.used_until_us.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Until when all is used up after one more.
fn allowed(used_until_us: Option<&u64>, quota: Quota, now_us: u64) -> Result<u64, TooOften> {
    let used_until_us = used_until_us.map_or(now_us, |until_us| now_us.max(*until_us));
    let until_us = used_until_us.saturating_add(quota.interval_us);
    let too_soon_us = until_us.saturating_sub(now_us.saturating_add(quota.ahead_us));
    if too_soon_us == 0 { Ok(until_us) } else { Err(TooOften { wait_s: too_soon_us.div_ceil(1_000_000) }) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cofferdam_store::Clock;
    use proptest::prelude::*;

    use super::{Limit, Quota, Source, TooOften};

    fn limit(clock: &Clock) -> Limit<u32> {
        Limit::new(clock.clone())
    }

    fn taken(limit: &Limit<u32>, who: u32, quota: Quota) -> usize {
        (0..10_000).take_while(|_| limit.take(who, quota).is_ok()).count()
    }

    #[test]
    fn a_third_of_the_minute_and_at_least_twenty_may_come_at_once() {
        for (per_minute, burst) in [(1, 20), (60, 20), (61, 20), (600, 200), (6_000, 2_000)] {
            let clock = Clock::manual();
            assert_eq!(taken(&limit(&clock), 1, Quota::of_key(per_minute).unwrap()), burst, "{per_minute}");
        }
        assert_eq!(taken(&limit(&Clock::manual()), 1, Quota::of_failures().unwrap()), 60);
        assert_eq!(Quota::of_key(0), None);
        assert_eq!(Quota::of_key(u64::from(u32::MAX)), None);
    }

    #[test]
    fn waiting_gives_back_at_the_pace_of_the_quota_and_never_more_than_the_burst() {
        let clock = Clock::manual();
        let limit = limit(&clock);
        let quota = Quota::of_key(60).unwrap();
        assert_eq!(taken(&limit, 1, quota), 20);
        assert_eq!(limit.take(1, quota), Err(TooOften { wait_s: 1 }));
        clock.advance(Duration::from_millis(999));
        assert_eq!(taken(&limit, 1, quota), 0);
        clock.advance(Duration::from_millis(1));
        assert_eq!(taken(&limit, 1, quota), 1);
        clock.advance(Duration::from_secs(5));
        assert_eq!(taken(&limit, 1, quota), 5);
        clock.advance(Duration::from_secs(86_400));
        assert_eq!(taken(&limit, 1, quota), 20);
    }

    #[test]
    fn the_wait_that_is_told_is_enough_and_not_a_second_too_long() {
        let clock = Clock::manual();
        let limit = limit(&clock);
        let quota = Quota::of_key(7).unwrap();
        taken(&limit, 1, quota);
        let TooOften { wait_s } = limit.check(1, quota).unwrap_err();
        clock.advance(Duration::from_secs(wait_s - 1));
        assert!(limit.check(1, quota).is_err());
        clock.advance(Duration::from_secs(1));
        assert!(limit.check(1, quota).is_ok());
    }

    #[test]
    fn nobody_uses_up_what_is_anothers() {
        let clock = Clock::manual();
        let limit = limit(&clock);
        let quota = Quota::of_key(60).unwrap();
        assert_eq!(taken(&limit, 1, quota), 20);
        assert_eq!(taken(&limit, 2, quota), 20);
    }

    #[test]
    fn looking_uses_nothing_up() {
        let clock = Clock::manual();
        let limit = limit(&clock);
        let quota = Quota::of_key(60).unwrap();
        for _ in 0..100 {
            assert!(limit.check(1, quota).is_ok());
        }
        assert_eq!(taken(&limit, 1, quota), 20);
    }

    #[test]
    fn memory_is_bounded_and_those_who_use_most_are_remembered() {
        let clock = Clock::manual();
        let limit = Limit { remembered_max: 100, ..limit(&clock) };
        let quota = Quota::of_key(60).unwrap();
        assert_eq!(taken(&limit, 0, quota), 20);
        for who in 1..1_000 {
            limit.take(who, quota).unwrap();
        }
        assert!(limit.lock().len() <= 100);
        assert!(limit.check(0, quota).is_err());
        // Whoever has nothing used up any more is forgotten first.
        clock.advance(Duration::from_secs(60));
        for who in 1_000..1_100 {
            limit.take(who, quota).unwrap();
        }
        assert!(limit.lock().len() <= 100 && !limit.lock().contains_key(&0));
    }

    #[test]
    fn clients_are_told_apart_by_address_and_ipv6_networks() {
        let source = |text: &str| Source::from(text.parse::<std::net::IpAddr>().unwrap());
        assert_eq!(source("192.0.2.1"), source("::ffff:192.0.2.1"));
        assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:2"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
    }

    proptest! {
        /// Over any stretch of time no more is granted than the burst and what the pace gives.
        #[test]
        fn no_pattern_of_requests_beats_the_quota(
            per_minute in 1_u64..5_000,
            pauses in proptest::collection::vec(0_u64..3_000, 1..300),
        ) {
            let clock = Clock::manual();
            let limit = limit(&clock);
            let quota = Quota::of_key(per_minute).unwrap();
            let mut granted: Vec<u64> = Vec::new();
            for pause in pauses {
                clock.advance(Duration::from_millis(pause));
                if limit.take(1, quota).is_ok() {
                    granted.push(clock.monotonic_ms());
                }
            }
            let burst = (per_minute / 3).max(20);
            for (index, end) in granted.iter().enumerate() {
                for (earlier, start) in granted.iter().enumerate().take(index) {
                    let most = burst + (end - start) * per_minute / 60_000 + 1;
                    prop_assert!((index - earlier + 1) as u64 <= most);
                }
            }
        }
    }
}
