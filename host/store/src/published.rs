//! What the writer's thread publishes for all other threads: the directory and the head of the last
//! commit, and whether it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use arc_swap::ArcSwap;

use crate::clock::Clock;
use crate::commit::CommitHead;
use crate::directory::{Directory, RecordChanges};
use crate::error::Error;
use crate::knowledge::Knowledge;
use crate::measure::{SECONDS, StripedHistogram};

/// A commit that takes longer than this counts as stalled.
const STALL_MS: u64 = 10_000;

pub(crate) const RUNNING: u8 = 0;
pub(crate) const FAILED: u8 = 1;
pub(crate) const CLOSED: u8 = 2;

/// The part of the writer's state that other threads read.
pub(crate) struct PublishedState {
    pub(crate) directory: ArcSwap<Directory>,
    pub(crate) last_commit: ArcSwap<CommitHead>,
    pub(crate) state: AtomicU8,
    /// How long commits took to write, in microseconds.
    pub(crate) commits: StripedHistogram,
    /// Size of the database after the last commit. The writer measures it, because that takes a
    /// lock which a commit holds.
    pub(crate) disk_bytes: AtomicU64,
    /// Monotonic time at which the commit in progress began; 0 between commits.
    busy_since_ms: AtomicU64,
    /// Time of [`Clock::boot_ms`] at which the contact with the database ends; the maximum without one.
    contact_until_ms: AtomicU64,
    /// How long after the end of the contact requests of models go by what was known, in milliseconds.
    stale_ms: AtomicU64,
    /// When what gave the contact was sent.
    contact_since_ms: AtomicU64,
    /// When all changes of other hosts were last known.
    polled_ms: AtomicU64,
    clock: Clock,
}

/// The contact of a moment. All changes that it stands for were published before.
pub(crate) struct HeldContact<'a> {
    of: &'a PublishedState,
    until_ms: u64,
}

impl HeldContact<'_> {
    /// How new what was looked at since then is. A contact that was given later does not count, and one that
    /// has ended does not either, so a process that was paused during the look does not rely on it.
    pub(crate) fn knowledge(&self) -> Knowledge {
        let HeldContact { of, until_ms } = *self;
        if until_ms == u64::MAX {
            return Knowledge::Current;
        }
        let now_ms = of.clock.boot_ms();
        if now_ms < until_ms {
            Knowledge::Current
        } else if until_ms > 0 && now_ms - until_ms < of.stale_ms.load(Ordering::Relaxed) {
            Knowledge::Stale
        } else {
            Knowledge::Outdated
        }
    }
}

impl PublishedState {
    pub(crate) fn new(directory: Arc<Directory>, last_commit: CommitHead, clock: Clock) -> PublishedState {
        PublishedState {
            directory: ArcSwap::new(directory),
            last_commit: ArcSwap::from_pointee(last_commit),
            state: AtomicU8::new(RUNNING),
            commits: StripedHistogram::new(&SECONDS),
            disk_bytes: AtomicU64::new(0),
            busy_since_ms: AtomicU64::new(0),
            contact_until_ms: AtomicU64::new(u64::MAX),
            stale_ms: AtomicU64::new(0),
            contact_since_ms: AtomicU64::new(0),
            polled_ms: AtomicU64::new(0),
            clock,
        }
    }

    pub(crate) fn last_commit(&self) -> CommitHead {
        **self.last_commit.load()
    }

    /// Publishes a directory with changed records. To be called by one thread only.
    pub(crate) fn change(&self, records: RecordChanges) {
        if !records.is_empty() {
            let mut directory = self.directory.load_full();
            Arc::make_mut(&mut directory).change(records);
            self.directory.store(directory);
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.state.load(Ordering::Acquire) == RUNNING
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.state.load(Ordering::Acquire) == FAILED
    }

    /// The error for a change when the writer does not run.
    pub(crate) fn refusal(&self) -> Error {
        if self.has_failed() { Error::NotWritable } else { Error::Closed }
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The contact of this moment. To be taken before a look at what this process knows, and asked after it.
    pub(crate) fn contact(&self) -> HeldContact<'_> {
        HeldContact { of: self, until_ms: self.contact_until_ms.load(Ordering::Acquire) }
    }

    /// How new what this process knows is.
    pub(crate) fn knowledge(&self) -> Knowledge {
        self.contact().knowledge()
    }

    /// Whether this process can vouch for what it knows.
    pub(crate) fn has_contact(&self) -> bool {
        self.knowledge() == Knowledge::Current
    }

    /// # Errors
    /// [`Error::NoContact`].
    pub(crate) fn check_contact(&self) -> Result<(), Error> {
        if self.has_contact() { Ok(()) } else { Err(Error::NoContact) }
    }

    pub(crate) fn set_stale_ms(&self, stale_ms: u64) {
        self.stale_ms.store(stale_ms, Ordering::Relaxed);
    }

    /// Gives contact for so long from a time of [`Clock::boot_ms`] on.
    #[cfg(feature = "postgres")]
    pub(crate) fn extend_contact(&self, sent_ms: u64, for_ms: u64) {
        self.contact_since_ms.store(sent_ms, Ordering::Release);
        self.contact_until_ms.store(sent_ms + for_ms, Ordering::Release);
    }

    /// Ends the contact.
    #[cfg(feature = "postgres")]
    pub(crate) fn end_contact(&self) {
        self.contact_until_ms.store(0, Ordering::Release);
    }

    /// Notes when all changes of other hosts that were committed before are known.
    #[cfg(feature = "postgres")]
    pub(crate) fn note_poll(&self, began_ms: u64) {
        self.polled_ms.store(began_ms, Ordering::Release);
    }

    /// How long ago, in milliseconds, the last contact was given and the last changes of other hosts were
    /// asked for; `None` without a database.
    pub(crate) fn contact_ages_ms(&self) -> Option<[u64; 2]> {
        if self.contact_until_ms.load(Ordering::Acquire) == u64::MAX {
            return None;
        }
        let now_ms = self.clock.boot_ms();
        let age = |at: &AtomicU64| now_ms.saturating_sub(at.load(Ordering::Acquire));
        Some([age(&self.contact_since_ms), age(&self.polled_ms)])
    }

    /// Duration of the commit in progress; `None` between commits.
    pub(crate) fn busy_for_ms(&self) -> Option<u64> {
        let since_ms = self.busy_since_ms.load(Ordering::Acquire);
        (since_ms != 0).then(|| self.clock.monotonic_ms().saturating_sub(since_ms))
    }

    /// Duration of the commit in progress, once it has taken ten seconds. For the watchdog.
    pub(crate) fn stalled_for_ms(&self) -> Option<u64> {
        self.busy_for_ms().filter(|busy_ms| *busy_ms >= STALL_MS)
    }

    pub(crate) fn busy(&self) {
        self.busy_since_ms.store(self.clock.monotonic_ms().max(1), Ordering::Release);
    }

    pub(crate) fn idle(&self) {
        self.busy_since_ms.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::rows::SetHash;

    #[test]
    fn a_commit_that_takes_ten_seconds_is_stalled() {
        let clock = Clock::manual();
        let last_commit =
            CommitHead { seq: 1, head: [0; 32], set: SetHash::default(), heads: SetHash::default() };
        let shared = PublishedState::new(Arc::default(), last_commit, clock.clone());
        assert_eq!(shared.busy_for_ms(), None);
        shared.busy();
        clock.advance(Duration::from_millis(STALL_MS - 1));
        assert_eq!((shared.busy_for_ms(), shared.stalled_for_ms()), (Some(STALL_MS - 1), None));
        clock.advance(Duration::from_millis(1));
        assert_eq!(shared.stalled_for_ms(), Some(STALL_MS));
        shared.idle();
        assert_eq!(shared.stalled_for_ms(), None);
    }
}
