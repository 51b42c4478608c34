//! The writer: the only thread that changes the store.
//!
//! It takes the waiting mutations as one group, until the group has 512 mutations or 8 MiB of
//! values, applies them to a write batch, commits the batch, writes the anchor, replaces the
//! directory, and then answers. Only one group is in progress at a
//! time. The first error stops the writer until the store is opened again: after a failed write or
//! fsync the state of the disk is unknown, and a retry could acknowledge a change that is lost.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::audit::AuditEntry;
use crate::changes::WriteBatch;
use crate::clock::Clock;
use crate::commit::{Commit, CommitHead};
use crate::directory::Directory;
use crate::fjall::{Anchor, AnchorSlot};
use crate::published::{CLOSED, FAILED, PublishedState, RUNNING};
use crate::queue::{Rows, Settle, WriteQueue};
use crate::space::DiskSpace;
use crate::vault::VaultReader;

/// Largest number of mutations in one commit.
const GROUP_JOBS_MAX: usize = 512;
/// Bytes of values after which a commit accepts no further mutation. A single copy of 100 secrets
/// can have 26 MB.
const GROUP_VALUE_BYTES: usize = 8 * 1024 * 1024;

/// The state of the writer's thread.
pub(crate) struct CommitWriter {
    pub(crate) access: VaultReader,
    pub(crate) anchor: Anchor,
    pub(crate) tip: CommitHead,
    pub(crate) queue: Arc<WriteQueue>,
    pub(crate) shared: Arc<PublishedState>,
    pub(crate) clock: Clock,
    pub(crate) space: Arc<DiskSpace>,
}

/// The commit failed. The cause was logged.
struct CommitFailed;

impl CommitWriter {
    /// Runs until the queue is closed and empty, or until the first failure.
    pub(crate) fn run(mut self) {
        // If the thread panics, the store must still be marked as failed.
        let guard = FailOnDrop { queue: Arc::clone(&self.queue), shared: Arc::clone(&self.shared) };
        self.measure_disk();
        let mut wanted = 1;
        while self.queue.wait(wanted) {
            self.shared.busy();
            let committed = self.commit();
            self.shared.idle();
            match committed {
                Ok(changes) => wanted = changes,
                Err(CommitFailed) => return,
            }
        }
        guard.shared.state.store(CLOSED, Ordering::Release);
    }

    /// Commits the waiting mutations, and those that arrive while the group is applied. Returns the
    /// number of mutations.
    fn commit(&mut self) -> Result<usize, CommitFailed> {
        let directory = self.shared.directory.load_full();
        let mut draft =
            WriteBatch::new(self.access.view(), directory, self.clock.now_ms()).on_disk(self.space.look());
        let mut answers: Vec<Settle> = Vec::new();
        while answers.len() < GROUP_JOBS_MAX && draft.value_bytes() < GROUP_VALUE_BYTES {
            let Some(job) = self.queue.take_job() else { break };
            answers.push(job(&mut draft));
        }
        let Rows { usage, audit } = self.queue.take_rows();
        let damage = self.access.damage.take_unreported();
        draft.record(audit.into_iter().chain(damage.into_iter().map(AuditEntry::of_damage)));
        let summed = draft.add_usage(usage).map_err(|error| {
            self.fail();
            tracing::error!(%error, "what was spent cannot be summed up; the store takes no more writes");
            CommitFailed
        });
        let (commit, directory) = draft.finish();
        let written = summed.and_then(|()| self.write(commit, directory));
        let changes = answers.len();
        for answer in answers {
            answer(written.is_ok());
        }
        written.map(|()| changes)
    }

    fn write(&mut self, commit: Commit, directory: Arc<Directory>) -> Result<(), CommitFailed> {
        // A group of refused mutations, or of a flush request alone, has nothing to write.
        if commit.entries.is_empty() && commit.usage.is_empty() && commit.rows.is_empty() {
            return Ok(());
        }
        let VaultReader { database, keys, .. } = &self.access;
        let started = Instant::now();
        let tip = database.apply(keys, &self.tip, self.tip.seq + 1, commit).map_err(|error| {
            self.fail();
            tracing::error!(%error, "the store cannot write; it takes no more writes");
            CommitFailed
        })?;
        self.anchor.write(keys, AnchorSlot { seq: tip.seq, head: tip.head }).map_err(|error| {
            self.fail();
            tracing::error!(%error, "the anchor cannot be written; the store takes no more writes");
            CommitFailed
        })?;
        self.shared.commits.observe(u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX));
        self.measure_disk();
        self.tip = tip;
        self.shared.directory.store(directory);
        self.shared.tip.store(Arc::new(tip));
        Ok(())
    }

    fn measure_disk(&self) {
        if let Ok(bytes) = self.access.database.disk_bytes() {
            self.shared.disk_bytes.store(bytes, Ordering::Relaxed);
        }
    }

    /// Called before any answer is sent: a caller that gets "failed" must find the store failed.
    fn fail(&self) {
        self.shared.state.store(FAILED, Ordering::Release);
    }
}

struct FailOnDrop {
    queue: Arc<WriteQueue>,
    shared: Arc<PublishedState>,
}

impl Drop for FailOnDrop {
    fn drop(&mut self) {
        // Only a regular end has changed the state before.
        let running =
            self.shared.state.compare_exchange(RUNNING, FAILED, Ordering::AcqRel, Ordering::Acquire);
        if running.is_ok() {
            tracing::error!("the writer ended unexpectedly; the store takes no more writes");
        }
        self.queue.abandon();
    }
}
