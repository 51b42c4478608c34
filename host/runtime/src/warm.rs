//! Idle instances between two calls. Creating an instance and freeing its memory costs more than
//! the calls themselves, so an instance whose call succeeded waits here for the next call of the
//! same plugin by the same owner.
//!
//! The isolation between owners depends on the comparison in [`Warm::take`]. The rest of this file
//! limits the cost of idle instances: their number, their idle time, and that they are ended when
//! room is needed.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::owner::Owner;

/// Longest idle time. Content of the last call stays in the instance's memory for that long.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// Idle instances of one plugin for one owner.
const PER_OWNER_MAX: usize = 160;
/// One instance in this many may be idle.
const PART_OF_ALL: usize = 4;
/// Expired instances that are ended per tick.
const EXPIRED_PER_TICK: usize = 8;

/// The idle instances, the longest idle first.
pub(crate) struct Warm<T> {
    kept: Mutex<VecDeque<IdleInstance<T>>>,
    room: usize,
}

struct IdleInstance<T> {
    plugin: u64,
    owner: Owner,
    since: Instant,
    instance: T,
}

impl<T> Warm<T> {
    /// Creates storage for a part of this many instances.
    pub(crate) fn new(instances: usize) -> Self {
        Self { kept: Mutex::new(VecDeque::new()), room: (instances / PART_OF_ALL).max(1) }
    }

    /// Takes the instance that this owner used last of this plugin.
    pub(crate) fn take(&self, plugin: u64, owner: &Owner) -> Option<T> {
        let mut kept = self.lock();
        let index = kept.iter().rposition(|kept| kept.plugin == plugin && kept.owner == *owner)?;
        kept.remove(index).map(|kept| kept.instance)
    }

    /// Keeps an instance for its owner. Without room the longest idle one is ended. If the owner
    /// has too many, this one is ended.
    pub(crate) fn keep(&self, plugin: u64, owner: Owner, instance: T) {
        let mut kept = self.lock();
        let own = kept.iter().filter(|kept| kept.plugin == plugin && kept.owner == owner).count();
        let (surplus, oldest);
        if own < PER_OWNER_MAX {
            (surplus, oldest) = (None, if kept.len() < self.room { None } else { kept.pop_front() });
            kept.push_back(IdleInstance { plugin, owner, since: Instant::now(), instance });
        } else {
            (surplus, oldest) = (Some(instance), None);
        }
        // Ending an instance takes time, so it happens after the lock is released.
        drop(kept);
        drop((surplus, oldest));
    }

    /// Ends the longest idle instance. False if there is none.
    pub(crate) fn evict(&self) -> bool {
        let oldest = self.lock().pop_front();
        oldest.is_some()
    }

    /// Ends the instances of a plugin that was unloaded.
    pub(crate) fn forget(&self, plugin: u64) {
        let mut kept = self.lock();
        let (gone, stay) = kept.drain(..).partition(|kept| kept.plugin == plugin);
        *kept = stay;
        drop(kept);
        drop::<VecDeque<_>>(gone);
    }

    /// Ends a few instances that have been idle for too long.
    pub(crate) fn expire(&self, now: Instant) {
        for _ in 0..EXPIRED_PER_TICK {
            // This runs on the epoch thread, which must not wait for a lock: all guests depend on
            // its ticks.
            let Ok(mut kept) = self.kept.try_lock() else { return };
            let overdue = |kept: &IdleInstance<T>| now.saturating_duration_since(kept.since) >= IDLE_MAX;
            let expired = kept.pop_front_if(|kept| overdue(kept));
            drop(kept);
            if expired.is_none() {
                return;
            }
        }
    }

    /// Number of idle instances.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<IdleInstance<T>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(id: &str) -> Owner {
        Owner::new(id)
    }

    #[test]
    fn an_instance_goes_once_to_the_same_owner_and_plugin() {
        let warm = Warm::new(1_000);
        warm.keep(1, owner("a"), "a's");
        assert_eq!(warm.take(1, &owner("b")), None);
        assert_eq!(warm.take(2, &owner("a")), None);
        assert_eq!(warm.take(1, &owner("a")), Some("a's"));
        assert_eq!(warm.take(1, &owner("a")), None);
    }

    #[test]
    fn the_last_kept_instance_is_taken_first() {
        let warm = Warm::new(1_000);
        for instance in 1..=3 {
            warm.keep(1, owner("a"), instance);
        }
        assert_eq!(warm.take(1, &owner("a")), Some(3));
        assert_eq!(warm.take(1, &owner("a")), Some(2));
    }

    #[test]
    fn idle_instances_are_limited_in_total_and_per_owner() {
        let warm = Warm::new(PART_OF_ALL * PER_OWNER_MAX * 2);
        for instance in 0..PER_OWNER_MAX * 2 {
            warm.keep(1, owner("a"), instance);
        }
        assert_eq!(warm.len(), PER_OWNER_MAX);
        for instance in 0..PER_OWNER_MAX * 2 {
            warm.keep(1, owner(&instance.to_string()), instance);
        }
        assert_eq!(warm.len(), PER_OWNER_MAX * 2);
        assert_eq!(warm.take(1, &owner("a")), None, "the longest waiting made way");
        assert!(warm.take(1, &owner("0")).is_some());
    }

    #[test]
    fn idle_instances_end_by_time_by_eviction_and_with_their_plugin() {
        let warm = Warm::new(1_000);
        let now = Instant::now();
        for instance in 0..EXPIRED_PER_TICK + 1 {
            warm.keep(1, owner("a"), instance);
        }
        warm.expire(now);
        assert_eq!(warm.len(), EXPIRED_PER_TICK + 1);
        let late = Instant::now() + IDLE_MAX;
        warm.expire(late);
        assert_eq!(warm.len(), 1, "a few at a time");
        warm.expire(late);
        assert_eq!(warm.len(), 0);
        warm.keep(1, owner("a"), 0);
        warm.keep(2, owner("a"), 1);
        warm.forget(1);
        assert_eq!(warm.take(1, &owner("a")), None);
        assert!(warm.evict());
        assert!(!warm.evict());
    }
}
