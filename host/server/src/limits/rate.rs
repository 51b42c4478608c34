//! Rate limits other than those of `[limits]`, and the units in which clients are counted.

use std::net::{IpAddr, Ipv6Addr};

use cofferdam_engine::limits::rate::{Quota, Rate, RateLimit};
use cofferdam_store::{Clock, KeyId, SharedLimits};

use super::admission::Admission;

/// The minimum burst of vault requests, however small the quota is.
const VAULT_AT_ONCE_MIN: u64 = 20;
/// Failed authentications from one address per minute; also the burst.
const FAILURES_PER_MINUTE: u64 = 60;
/// Changes of keys that one key may make per minute; also the burst. Deleted keys stay in the store
/// as revoked keys, so this also bounds its growth.
pub(crate) const KEY_CHANGES_PER_MINUTE: u64 = 60;

pub(crate) struct RateLimiters {
    /// Vault requests that read, by key.
    pub(crate) vault_reads: Rate<KeyId>,
    /// Vault requests that write, by key.
    pub(crate) vault_writes: Rate<KeyId>,
    /// Changes of keys, by the key that makes them.
    pub(crate) key_changes: RateLimit<KeyId>,
    /// Refused tokens, by address.
    pub(crate) failures: RateLimit<ClientNetwork>,
    pub(crate) inference: Admission,
}

impl RateLimiters {
    /// `shared` where several hosts have the limits together.
    #[must_use]
    pub(crate) fn new(clock: &Clock, shared: Option<&SharedLimits>) -> Self {
        Self {
            vault_reads: Rate::new(clock, "vault-reads", shared.cloned()),
            vault_writes: Rate::new(clock, "vault-writes", shared.cloned()),
            key_changes: RateLimit::new(clock.clone()),
            failures: RateLimit::new(clock.clone()),
            inference: Admission::new(clock, shared),
        }
    }
}

/// The vault quota of a key. The burst is a third of the quota, but at least 20. `None` for 0,
/// which means no limit.
#[must_use]
pub(crate) fn vault_quota(per_minute: u64) -> Option<Quota> {
    Quota::new(per_minute, (per_minute / 3).max(VAULT_AT_ONCE_MIN))
}

/// The quota of refused tokens for one address.
#[must_use]
pub(crate) fn failures_quota() -> Option<Quota> {
    Quota::of_minute(FAILURES_PER_MINUTE)
}

/// The quota of key changes for one key.
#[must_use]
pub(crate) fn key_changes_quota() -> Option<Quota> {
    Quota::of_minute(KEY_CHANGES_PER_MINUTE)
}

/// A client's address, reduced to what identifies one client: the whole IPv4 address, or the first
/// 64 bits of an IPv6 address, since one client usually has a whole /64 network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClientNetwork(IpAddr);

impl ClientNetwork {
    /// The address, or the first address of the network.
    pub(crate) fn address(self) -> IpAddr {
        self.0
    }
}

impl From<IpAddr> for ClientNetwork {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        })
    }
}

#[cfg(test)]
mod tests {
    use cofferdam_engine::limits::rate::RateLimit;
    use cofferdam_store::Clock;

    use super::{ClientNetwork, vault_quota};

    #[test]
    fn vault_burst_is_a_third_of_the_quota_and_at_least_twenty() {
        for (per_minute, at_once) in [(1, 20), (60, 20), (61, 20), (600, 200), (6_000, 2_000)] {
            let limit = RateLimit::new(Clock::manual());
            let quota = vault_quota(per_minute).unwrap();
            let taken = (0..10_000).take_while(|_| limit.take(1, quota).is_ok()).count();
            assert_eq!(taken, at_once, "{per_minute}");
        }
        assert_eq!(vault_quota(0), None);
    }

    #[test]
    fn clients_are_counted_by_ipv4_address_or_ipv6_network() {
        let source = |text: &str| ClientNetwork::from(text.parse::<std::net::IpAddr>().unwrap());
        assert_eq!(source("192.0.2.1"), source("::ffff:192.0.2.1"));
        assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:2"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
    }
}
