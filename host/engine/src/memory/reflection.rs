//! Counts the answers in which a host sent a secret back (egress rule R19). A guest could use a
//! host that echoes its input to guess a value: a right guess is masked in the answer and so
//! confirmed. After too many such answers the plugin loses the secret for a while. A reload of the
//! configuration does not reset the counts.

use cofferdam_store::{SecretName, VaultId};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Reflections within [`WINDOW`] that are tolerated. The next one suspends the use.
const REFLECTIONS_MAX: u32 = 3;
const WINDOW: Duration = Duration::from_secs(60);
const SUSPENSION: Duration = Duration::from_secs(3_600);
/// The most entries. When the table is full, the entry that ends first is removed.
const ENTRIES_MAX: usize = 4_096;

/// A secret as one plugin uses it for one workspace or intern. The count is kept apart for each, so
/// that one does not lose a secret through the requests of another.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct SecretUse {
    pub(crate) scope: VaultId,
    pub(crate) plugin: String,
    pub(crate) secret: SecretName,
}

/// The uses with recent reflections.
#[derive(Default)]
pub(crate) struct Reflections(Mutex<BTreeMap<SecretUse, ReflectionCount>>);

#[derive(Clone, Copy)]
struct ReflectionCount {
    count: u32,
    /// When the window, or the suspension, ends.
    until: Instant,
}

impl ReflectionCount {
    fn is_suspended(&self) -> bool {
        self.count > REFLECTIONS_MAX
    }
}

impl Reflections {
    /// Counts one reflection. Returns true when it suspends the use.
    pub(crate) fn count(&self, used: SecretUse, now: Instant) -> bool {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !entries.contains_key(&used) {
            make_room(&mut entries, now);
        }
        let fresh = ReflectionCount { count: 0, until: now + WINDOW };
        let entry = entries.entry(used).or_insert(fresh);
        if entry.until <= now {
            *entry = fresh;
        }
        if entry.is_suspended() {
            // From a request that was sent before the suspension began.
            return false;
        }
        entry.count += 1;
        if entry.is_suspended() {
            entry.until = now + SUSPENSION;
        }
        entry.is_suspended()
    }

    pub(crate) fn is_suspended(&self, used: &SecretUse, now: Instant) -> bool {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(used).is_some_and(|entry| entry.is_suspended() && entry.until > now)
    }
}

fn make_room(entries: &mut BTreeMap<SecretUse, ReflectionCount>, now: Instant) {
    if entries.len() < ENTRIES_MAX {
        return;
    }
    entries.retain(|_, entry| entry.until > now);
    while entries.len() >= ENTRIES_MAX {
        // A suspension ends later than an open window, so suspensions are kept longest.
        let first = entries.iter().min_by_key(|(_, entry)| entry.until).map(|(used, _)| used.clone());
        let Some(first) = first else { return };
        entries.remove(&first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(plugin: &str) -> SecretUse {
        SecretUse { scope: VaultId::Operator, plugin: plugin.to_owned(), secret: "key".parse().unwrap() }
    }

    #[test]
    fn the_fourth_reflection_in_a_minute_suspends_for_an_hour() {
        let (reflections, start) = (Reflections::default(), Instant::now());
        for second in 0..3 {
            assert!(!reflections.count(used("a"), start + Duration::from_secs(second)));
        }
        assert!(!reflections.is_suspended(&used("a"), start));
        let fourth = start + Duration::from_secs(59);
        assert!(reflections.count(used("a"), fourth));
        assert!(!reflections.count(used("a"), fourth), "told once");
        assert!(reflections.is_suspended(&used("a"), fourth + Duration::from_secs(3_599)));
        assert!(!reflections.is_suspended(&used("b"), fourth));
        let later = fourth + Duration::from_secs(3_600);
        assert!(!reflections.is_suspended(&used("a"), later));
        assert!(!reflections.count(used("a"), later));
    }

    #[test]
    fn reflections_far_apart_do_not_suspend() {
        let (reflections, start) = (Reflections::default(), Instant::now());
        for minute in 0..20 {
            assert!(!reflections.count(used("a"), start + Duration::from_secs(minute * 30)));
        }
    }

    #[test]
    fn the_table_is_bounded_and_keeps_suspensions_longest() {
        let (reflections, now) = (Reflections::default(), Instant::now());
        for _ in 0..4 {
            reflections.count(used("bad"), now);
        }
        for index in 0..2 * ENTRIES_MAX {
            reflections.count(used(&index.to_string()), now);
        }
        assert_eq!(reflections.0.lock().unwrap().len(), ENTRIES_MAX);
        assert!(reflections.is_suspended(&used("bad"), now));
    }
}
