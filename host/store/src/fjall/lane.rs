//! The writer: the only thread that changes the store.
//!
//! It takes the waiting mutations as one group, until the group has 512 mutations or 8 MiB of
//! values, applies them to a write batch, commits the batch, writes the anchor, publishes what
//! follows from the commit, and then answers. Only one group is in progress at a time, so this
//! thread holds every guard. The first error stops the writer until the store is opened again: after a failed write or
//! fsync the state of the disk is unknown, and a retry could acknowledge a change that is lost.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::{Anchor, AnchorSlot, Database};
use crate::audit::AuditEntry;
use crate::changes::{Effects, WriteBatch};
use crate::clock::Clock;
use crate::commit::{Commit, CommitHead};
use crate::error::Error;
use crate::published::{FAILED, PublishedState};
use crate::queue::{Ended, Job, Rows, WriteQueue, WriterGuard};
use crate::space::DiskSpace;
use crate::vault::VaultReader;

/// Largest number of mutations in one commit.
const GROUP_JOBS_MAX: usize = 512;
/// Bytes of values after which a commit accepts no further mutation. A single copy of 100 secrets
/// can have 26 MB.
const GROUP_VALUE_BYTES: usize = 8 * 1024 * 1024;

/// The state of the writer's thread.
pub(crate) struct CommitWriter {
    pub(crate) database: Database,
    pub(crate) access: VaultReader,
    pub(crate) anchor: Anchor,
    pub(crate) last_commit: CommitHead,
    pub(crate) queue: Arc<WriteQueue>,
    pub(crate) shared: Arc<PublishedState>,
    pub(crate) clock: Clock,
    pub(crate) space: Arc<DiskSpace>,
    #[cfg(test)]
    pub(crate) trial: Option<crate::loaded::Trial>,
}

/// The commit failed. The cause was logged.
struct CommitFailed;

impl CommitWriter {
    /// Runs until the queue is closed and empty, or until the first failure.
    pub(crate) fn run(mut self) {
        // If the thread panics, the store must still be marked as failed.
        let guard = WriterGuard::new(&self.queue, &self.shared);
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
        guard.close();
    }

    /// Commits the waiting mutations, and those that arrive while the group is applied. Returns the
    /// number of mutations.
    fn commit(&mut self) -> Result<usize, CommitFailed> {
        let mut batch = self.batch();
        let mut group: Vec<Box<dyn Job>> = Vec::new();
        while group.len() < GROUP_JOBS_MAX && batch.value_bytes() < GROUP_VALUE_BYTES {
            let Some(mut job) = self.queue.take_job() else { break };
            if let Err(gap) = job.apply(&mut batch) {
                self.fail();
                tracing::error!(?gap, "a change lacks what the store has; the store takes no more writes");
                return Err(CommitFailed);
            }
            group.push(job);
        }
        #[cfg(test)]
        if let Some(trial) = &mut self.trial {
            let whole = || self.database.state(self.shared.directory.load_full());
            batch = trial.again(&mut group, &batch, &*whole(), &self.access).over(self.access.view(whole()));
        }
        let Rows { usage, audit } = self.queue.take_rows();
        let damage = self.access.damage.take_unreported();
        batch.record(audit.into_iter().chain(damage.into_iter().map(AuditEntry::of_damage)));
        let summed = batch.add_usage(usage).map_err(|gap| {
            self.fail();
            let error = Error::from(gap);
            tracing::error!(%error, "what was spent cannot be summed up; the store takes no more writes");
            CommitFailed
        });
        let (commit, effects) = batch.finish();
        let written = summed.and_then(|()| self.write(commit, effects));
        let changes = group.len();
        let ended = if written.is_ok() { Ended::Durable } else { Ended::Unknown };
        for job in group {
            job.answer(ended);
        }
        written.map(|()| changes)
    }

    /// A write batch on top of the last commit.
    fn batch(&self) -> WriteBatch {
        let state = self.database.state(self.shared.directory.load_full());
        WriteBatch::new(self.access.view(state), self.clock.now_ms())
            .on_disk(self.space.look())
            .placed(self.last_commit.seq + 1)
    }

    fn write(&mut self, commit: Commit, effects: Effects) -> Result<(), CommitFailed> {
        // A group of refused mutations, or of a flush request alone, has nothing to write.
        if commit.entries.is_empty() && commit.usage.is_empty() && commit.rows.is_empty() {
            effects.publish(&self.access);
            return Ok(());
        }
        let started = Instant::now();
        let keys = &self.access.keys;
        let last_commit = self
            .database
            .apply(keys, &self.last_commit, self.last_commit.seq + 1, commit)
            .map_err(|error| {
                self.fail();
                tracing::error!(%error, "the store cannot write; it takes no more writes");
                CommitFailed
            })?;
        self.anchor.write(keys, AnchorSlot { seq: last_commit.seq, head: last_commit.head }).map_err(
            |error| {
                self.fail();
                tracing::error!(%error, "the anchor cannot be written; the store takes no more writes");
                CommitFailed
            },
        )?;
        self.shared.commits.observe(u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX));
        self.measure_disk();
        self.last_commit = last_commit;
        self.shared.change(effects.publish(&self.access));
        self.shared.last_commit.store(Arc::new(last_commit));
        Ok(())
    }

    fn measure_disk(&self) {
        if let Ok(bytes) = self.database.disk_bytes() {
            self.shared.disk_bytes.store(bytes, Ordering::Relaxed);
        }
    }

    /// Called before any answer is sent: a caller that gets "failed" must find the store failed.
    fn fail(&self) {
        self.shared.state.store(FAILED, Ordering::Release);
    }
}
