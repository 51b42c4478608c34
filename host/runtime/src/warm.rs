//! Idle instances between two calls. Creating an instance and freeing its memory costs more than
//! the calls themselves, so an instance whose call succeeded waits here for the next call of the
//! same plugin by the same owner.
//!
//! The isolation between owners depends on the comparison in [`Warm::take`]. The rest of this file
//! limits the cost of idle instances: their number, their idle time, and that they are ended when
//! room is needed.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::owner::Owner;
use crate::schedule::PerThread;

/// Longest idle time. Content of the last call stays in the instance's memory for that long.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// Idle instances of one plugin for one owner. Each thread keeps an equal part of them, rounded up.
const PER_OWNER_MAX: usize = 160;
/// One instance in this many may be idle.
const PART_OF_ALL: usize = 4;
/// Expired instances that are ended per tick.
const EXPIRED_PER_TICK: usize = 8;

/// The idle instances of each thread. A thread takes those that it kept itself first, because they
/// are in the caches of its processor.
pub(crate) struct Warm<T> {
    kept: PerThread<Mutex<IdleInstances<T>>>,
    idle: AtomicUsize,
    room: usize,
    per_owner: usize,
}

/// Ordered by idle time, the longest idle first.
type IdleInstances<T> = VecDeque<IdleInstance<T>>;

struct IdleInstance<T> {
    plugin: u64,
    owner: Owner,
    since: Instant,
    instance: T,
}

impl<T> Warm<T> {
    /// Creates storage for a part of this many instances, used by this many threads.
    pub(crate) fn new(instances: usize, threads: usize) -> Self {
        Self {
            kept: PerThread::new(threads, Mutex::default),
            idle: AtomicUsize::new(0),
            room: (instances / PART_OF_ALL).max(1),
            per_owner: PER_OWNER_MAX.div_ceil(threads.max(1)),
        }
    }

    /// Takes the instance of this plugin that this thread kept last for the owner, else one of
    /// another thread.
    pub(crate) fn take(&self, plugin: u64, owner: &Owner) -> Option<T> {
        self.kept.all().find_map(|kept| {
            let mut kept = lock(kept);
            let index = kept.iter().rposition(|kept| kept.plugin == plugin && kept.owner == *owner)?;
            let taken = kept.remove(index)?;
            self.idle.fetch_sub(1, Ordering::Relaxed);
            Some(taken.instance)
        })
    }

    /// Keeps an instance for its owner. Without room the longest idle one of this thread is ended. If
    /// the owner has too many, this one is ended.
    pub(crate) fn keep(&self, plugin: u64, owner: Owner, instance: T) {
        let mut kept = lock(self.kept.here());
        let own = kept.iter().filter(|kept| kept.plugin == plugin && kept.owner == owner).count();
        if own >= self.per_owner {
            return;
        }
        kept.push_back(IdleInstance { plugin, owner, since: Instant::now(), instance });
        let idle = self.idle.fetch_add(1, Ordering::Relaxed);
        let oldest = if idle < self.room { None } else { kept.pop_front() };
        // Ending an instance takes time, so it happens after the lock is released.
        drop(kept);
        self.end(oldest);
    }

    /// Ends the longest idle instance of a thread that has any, this thread first. False if there is
    /// none.
    pub(crate) fn evict(&self) -> bool {
        let oldest = self.kept.all().find_map(|kept| lock(kept).pop_front());
        self.end(oldest) > 0
    }

    /// Ends the instances of a plugin that was unloaded.
    pub(crate) fn forget(&self, plugin: u64) {
        for kept in self.kept.all() {
            let mut kept = lock(kept);
            let (gone, stay): (IdleInstances<T>, _) = kept.drain(..).partition(|kept| kept.plugin == plugin);
            *kept = stay;
            drop(kept);
            self.end(gone);
        }
    }

    /// Ends a few instances that have been idle for too long.
    pub(crate) fn expire(&self, now: Instant) {
        let is_overdue = |kept: &mut IdleInstance<T>| now.saturating_duration_since(kept.since) >= IDLE_MAX;
        // This runs on the epoch thread, which must not wait for a lock: all guests depend on its ticks.
        let next = |kept: &Mutex<IdleInstances<T>>| kept.try_lock().ok()?.pop_front_if(is_overdue);
        let overdue = self.kept.all().flat_map(|kept| std::iter::from_fn(move || next(kept)));
        self.end(overdue.take(EXPIRED_PER_TICK));
    }

    /// Number of idle instances.
    pub(crate) fn len(&self) -> usize {
        self.idle.load(Ordering::Relaxed)
    }

    /// Ends instances that were taken out of the lists. Returns how many.
    fn end(&self, instances: impl IntoIterator<Item = IdleInstance<T>>) -> usize {
        let ended = instances.into_iter().map(drop).count();
        self.idle.fetch_sub(ended, Ordering::Relaxed);
        ended
    }
}

fn lock<T>(kept: &Mutex<IdleInstances<T>>) -> MutexGuard<'_, IdleInstances<T>> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(id: &str) -> Owner {
        Owner::new(id)
    }

    #[test]
    fn an_instance_goes_once_to_the_same_owner_and_plugin() {
        let warm = Warm::new(1_000, 1);
        warm.keep(1, owner("a"), "a's");
        assert_eq!(warm.take(1, &owner("b")), None);
        assert_eq!(warm.take(2, &owner("a")), None);
        assert_eq!(warm.take(1, &owner("a")), Some("a's"));
        assert_eq!(warm.take(1, &owner("a")), None);
    }

    #[test]
    fn the_last_kept_instance_is_taken_first() {
        let warm = Warm::new(1_000, 1);
        for instance in 1..=3 {
            warm.keep(1, owner("a"), instance);
        }
        assert_eq!(warm.take(1, &owner("a")), Some(3));
        assert_eq!(warm.take(1, &owner("a")), Some(2));
    }

    #[test]
    fn an_instance_of_another_thread_is_taken_where_this_thread_has_none() {
        let warm = Warm::new(1_000, 4096);
        std::thread::scope(|scope| {
            scope.spawn(|| warm.keep(1, owner("a"), "theirs"));
        });
        warm.keep(1, owner("a"), "ours");
        assert_eq!(warm.take(1, &owner("a")), Some("ours"));
        assert_eq!(warm.take(1, &owner("a")), Some("theirs"));
        assert_eq!((warm.take(1, &owner("a")), warm.len()), (None, 0));
    }

    #[test]
    fn instances_of_all_threads_together_expire_a_few_at_a_time() {
        let warm = Warm::new(1_000, 4096);
        let keep = || {
            for instance in 0..EXPIRED_PER_TICK {
                warm.keep(1, owner(&instance.to_string()), instance);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(keep);
            scope.spawn(keep);
        });
        assert_eq!(warm.len(), 2 * EXPIRED_PER_TICK);
        let late = Instant::now() + IDLE_MAX;
        warm.expire(late);
        assert_eq!(warm.len(), EXPIRED_PER_TICK);
        warm.expire(late);
        assert_eq!(warm.len(), 0);
    }

    #[test]
    fn idle_instances_are_limited_in_total_and_per_owner() {
        let warm = Warm::new(PART_OF_ALL * PER_OWNER_MAX * 2, 1);
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
        let warm = Warm::new(1_000, 1);
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
