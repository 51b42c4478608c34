//! Collects refused tokens for the audit log: counted by address and written once a minute, so that
//! guessing tokens cannot fill the log.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cofferdam_store::{AuthenticationError, Clock, RefusedTokens};

use super::rate::ClientNetwork;

/// How long refusals are collected before they are written.
const PERIOD_MS: u64 = 60_000;
/// Addresses that are counted separately in one period; all others share one record.
const ADDRESSES_MAX: usize = 32;
/// Keys that are named for one address in one period.
const KEYS_MAX: usize = 8;

/// Refusals that are not written yet.
pub(crate) struct Refusals {
    clock: Clock,
    gathered: Mutex<Gathered>,
}

#[derive(Default)]
struct Gathered {
    /// When the first of them came; `None` while there are none.
    since_ms: Option<u64>,
    by_source: BTreeMap<ClientNetwork, RefusedTokens>,
    others: RefusedTokens,
}

impl Refusals {
    pub(crate) fn new(clock: &Clock) -> Self {
        Self { clock: clock.clone(), gathered: Mutex::default() }
    }

    pub(crate) fn count(&self, source: ClientNetwork, error: &AuthenticationError) {
        let mut gathered = self.lock();
        gathered.since_ms.get_or_insert_with(|| self.clock.monotonic_ms());
        let refused = gathered.of(source);
        refused.tokens = refused.tokens.saturating_add(1);
        if let Some(key) = error.key()
            && refused.keys.len() < KEYS_MAX
            && !refused.keys.contains(&key)
        {
            refused.keys.push(key);
        }
    }

    /// Takes what was collected if at least a minute has passed since the first refusal.
    pub(crate) fn take_due(&self) -> Vec<RefusedTokens> {
        let mut gathered = self.lock();
        let due_ms = gathered.since_ms.map(|since_ms| since_ms.saturating_add(PERIOD_MS));
        if due_ms.is_some_and(|due_ms| due_ms <= self.clock.monotonic_ms()) {
            std::mem::take(&mut *gathered).into_records()
        } else {
            Vec::new()
        }
    }

    /// Takes what was collected so far, at shutdown.
    pub(crate) fn take(&self) -> Vec<RefusedTokens> {
        std::mem::take(&mut *self.lock()).into_records()
    }

    fn lock(&self) -> MutexGuard<'_, Gathered> {
        // The counts stay valid when another thread has panicked.
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gathered {
    fn of(&mut self, source: ClientNetwork) -> &mut RefusedTokens {
        if self.by_source.len() >= ADDRESSES_MAX && !self.by_source.contains_key(&source) {
            return &mut self.others;
        }
        let new = || RefusedTokens { address: Some(source.address()), ..RefusedTokens::default() };
        self.by_source.entry(source).or_insert_with(new)
    }

    fn into_records(self) -> Vec<RefusedTokens> {
        let others = (self.others.tokens > 0).then_some(self.others);
        self.by_source.into_values().chain(others).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use super::*;

    fn source(text: &str) -> ClientNetwork {
        text.parse::<IpAddr>().unwrap().into()
    }

    #[test]
    fn refusals_of_a_minute_become_one_record_per_address() {
        let clock = Clock::manual();
        let refusals = Refusals::new(&clock);
        assert!(refusals.take_due().is_empty());
        let key = "abcdefghijkl".parse().unwrap();
        for error in [
            AuthenticationError::Unknown,
            AuthenticationError::Revoked(key),
            AuthenticationError::Revoked(key),
            AuthenticationError::Malformed,
        ] {
            refusals.count(source("192.0.2.1"), &error);
        }
        refusals.count(source("2001:db8::7"), &AuthenticationError::Unknown);
        clock.advance(Duration::from_millis(PERIOD_MS - 1));
        assert!(refusals.take_due().is_empty());
        clock.advance(Duration::from_millis(1));
        let first = RefusedTokens { address: Some("192.0.2.1".parse().unwrap()), tokens: 4, keys: vec![key] };
        let second =
            RefusedTokens { address: Some("2001:db8::".parse().unwrap()), tokens: 1, keys: Vec::new() };
        assert_eq!(refusals.take_due(), [first, second]);
        // The next period begins with the next refusal.
        clock.advance(Duration::from_millis(10 * PERIOD_MS));
        assert!(refusals.take_due().is_empty() && refusals.take().is_empty());
    }

    #[test]
    fn memory_is_bounded_with_many_addresses_and_keys() {
        let refusals = Refusals::new(&Clock::manual());
        for number in 0..1_000_u16 {
            let key = format!("abcdefgh{number:04}").parse().unwrap();
            let address = format!("192.0.{}.{}", number / 256, number % 256);
            refusals.count(source(&address), &AuthenticationError::Expired(key));
        }
        let records = refusals.take();
        assert_eq!(records.len(), ADDRESSES_MAX + 1);
        assert_eq!(records.iter().map(|record| record.tokens).sum::<u64>(), 1_000);
        let others = records.last().unwrap();
        assert_eq!((others.address, others.keys.len()), (None, KEYS_MAX));
    }
}
