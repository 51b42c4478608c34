//! The writer: the one thread that changes the store.
//!
//! It takes whatever waits as one group, applies it to a draft, writes one batch, then the anchor, then replaces
//! the directory and answers. One group is in flight at a time. The first error ends it for good: after a failed
//! write or fsync nobody knows what the disk holds, and trying again could acknowledge what is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use arc_swap::ArcSwap;

use crate::anchor::{Anchor, Slot};
use crate::changes::Draft;
use crate::clock::Clock;
use crate::database::{Commit, Database, Tip};
use crate::directory::Directory;
use crate::queue::{Group, Queue, Settle};
use crate::seal::StoreKeys;

/// A commit that takes longer than this is reported as stalled.
const STALL_MS: u64 = 10_000;

const RUNNING: u8 = 0;
const FAILED: u8 = 1;
const CLOSED: u8 = 2;

/// What the writer shows to everybody else.
pub(crate) struct Shared {
    pub(crate) directory: ArcSwap<Directory>,
    tip: ArcSwap<Tip>,
    state: AtomicU8,
    /// Monotonic time at which the commit in flight began; 0 between commits.
    busy_since_ms: AtomicU64,
    clock: Clock,
}

impl Shared {
    pub(crate) fn new(directory: Directory, tip: Tip, clock: Clock) -> Shared {
        Shared {
            directory: ArcSwap::from_pointee(directory),
            tip: ArcSwap::from_pointee(tip),
            state: AtomicU8::new(RUNNING),
            busy_since_ms: AtomicU64::new(0),
            clock,
        }
    }

    pub(crate) fn tip(&self) -> Tip {
        **self.tip.load()
    }

    pub(crate) fn is_running(&self) -> bool {
        self.state.load(Ordering::Acquire) == RUNNING
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.state.load(Ordering::Acquire) == FAILED
    }

    /// The watchdog: true while one commit has been on its way for ten seconds.
    pub(crate) fn is_stalled(&self) -> bool {
        let since_ms = self.busy_since_ms.load(Ordering::Acquire);
        since_ms != 0 && self.clock.monotonic_ms().saturating_sub(since_ms) >= STALL_MS
    }

    fn busy(&self) {
        self.busy_since_ms.store(self.clock.monotonic_ms().max(1), Ordering::Release);
    }

    fn idle(&self) {
        self.busy_since_ms.store(0, Ordering::Release);
    }
}

/// Everything the thread owns.
pub(crate) struct Writer {
    pub(crate) database: Database,
    pub(crate) anchor: Anchor,
    pub(crate) keys: Arc<StoreKeys>,
    pub(crate) tip: Tip,
    pub(crate) queue: Arc<Queue>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) clock: Clock,
}

/// The commit failed; the reason is in the log.
struct Failed;

impl Writer {
    /// Runs until the queue is closed and empty, or until the first failure.
    pub(crate) fn run(mut self) {
        // Also when a panic ends the thread, nobody may go on believing that the store writes.
        let guard = FailOnDrop { queue: Arc::clone(&self.queue), shared: Arc::clone(&self.shared) };
        while let Some(group) = self.queue.next() {
            self.shared.busy();
            let committed = self.commit(group);
            self.shared.idle();
            if let Err(Failed) = committed {
                return;
            }
        }
        guard.shared.state.store(CLOSED, Ordering::Release);
    }

    fn commit(&mut self, group: Group) -> Result<(), Failed> {
        let before = self.shared.directory.load_full();
        let mut draft = Draft::new(Arc::clone(&self.keys), Directory::clone(&before), self.clock.now_ms());
        let answers: Vec<Settle> = group.jobs.into_iter().map(|job| job(&mut draft)).collect();
        let (commit, directory) = draft.finish();
        let commit = Commit { usage: group.usage, ..commit };
        let written = self.write(commit, directory);
        for answer in answers {
            answer(written.is_ok());
        }
        written
    }

    fn write(&mut self, commit: Commit, directory: Directory) -> Result<(), Failed> {
        // A group of refusals or of nothing but a request to flush leaves nothing to write.
        if commit.entries.is_empty() && commit.usage.is_empty() {
            return Ok(());
        }
        let changed = !commit.entries.is_empty();
        let tip = self.database.apply(&self.keys, &self.tip, self.tip.seq + 1, commit).map_err(|error| {
            self.fail();
            tracing::error!(%error, "the store cannot write; it takes no more writes");
            Failed
        })?;
        self.anchor.write(&self.keys, Slot { seq: tip.seq, head: tip.head }).map_err(|error| {
            self.fail();
            tracing::error!(%error, "the anchor cannot be written; the store takes no more writes");
            Failed
        })?;
        self.tip = tip;
        if changed {
            self.shared.directory.store(Arc::new(directory));
        }
        self.shared.tip.store(Arc::new(tip));
        Ok(())
    }

    /// Before any answer leaves: whoever reads "failed" must find the store failed.
    fn fail(&self) {
        self.shared.state.store(FAILED, Ordering::Release);
    }
}

struct FailOnDrop {
    queue: Arc<Queue>,
    shared: Arc<Shared>,
}

impl Drop for FailOnDrop {
    fn drop(&mut self) {
        // Only a clean end has left another state than running behind.
        let running =
            self.shared.state.compare_exchange(RUNNING, FAILED, Ordering::AcqRel, Ordering::Acquire);
        if running.is_ok() {
            tracing::error!("the writer ended unexpectedly; the store takes no more writes");
        }
        self.queue.abandon();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::rows::SetHash;

    #[test]
    fn a_commit_under_way_for_ten_seconds_is_a_stall() {
        let clock = Clock::manual();
        let tip = Tip { seq: 1, head: [0; 32], set: SetHash::default() };
        let shared = Shared::new(Directory::default(), tip, clock.clone());
        assert!(!shared.is_stalled());
        shared.busy();
        clock.advance(Duration::from_millis(STALL_MS - 1));
        assert!(!shared.is_stalled());
        clock.advance(Duration::from_millis(1));
        assert!(shared.is_stalled());
        shared.idle();
        assert!(!shared.is_stalled());
    }
}
