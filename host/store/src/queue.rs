//! The bounded queue to the writer. Callers wait for mutations; usage rows and audit entries are
//! handed over without waiting.

mod lanes;

pub(crate) use lanes::LaneQueues;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::audit::AuditEntry;
use crate::changes::{AnswerAfter, Change, SettledUsage, WriteBatch};
use crate::error::{Error, QueueFull};
use crate::pending::{PendingSender, QueuePermit};
use crate::published::{CLOSED, FAILED, PublishedState, RUNNING};
use crate::state::{Gap, Guard, Need};

/// Largest number of waiting mutations. Further callers wait for a permit. Each mutation may hold a
/// value of 262,144 bytes.
const JOBS_MAX: usize = 512;
/// Number of waiting usage rows from which on no new request with a row may begin: some megabytes,
/// enough for a busy host whose disk takes a second or two for a sync. Requests in progress still
/// add their rows.
const USAGE_ROWS_MAX: usize = 16_384;
/// Largest number of waiting audit entries.
pub(crate) const AUDIT_ENTRIES_MAX: usize = 4096;
/// With this many usage rows waiting, the writer does not wait for more.
const USAGE_ROWS_ENOUGH: usize = 4096;
/// The same of audit entries. Far fewer, because entries beyond [`AUDIT_ENTRIES_MAX`] are refused.
const AUDIT_ENTRIES_ENOUGH: usize = 512;
/// How long rows and entries wait for others to be committed with them. This is part of the second
/// of rows that a kill of the process may lose.
const COMPANY_DELAY: Duration = Duration::from_millis(250);
/// How long a group waits until it has as many mutations as the previous one. The callers of the
/// previous group were just answered and many send the next mutation at once; without this delay
/// every other group would be small.
const GATHER_DELAY: Duration = Duration::from_millis(1);

/// A change and the caller that waits for it.
pub(crate) trait Job: Send {
    /// See [`Change::guards`].
    #[cfg_attr(
        not(any(test, feature = "postgres")),
        expect(dead_code, reason = "the lane of the embedded engine holds every guard")
    )]
    fn guards(&self) -> Vec<Guard>;

    /// See [`Change::needs`].
    #[cfg_attr(
        not(any(test, feature = "postgres")),
        expect(dead_code, reason = "the embedded engine has every row")
    )]
    fn needs(&self) -> Vec<Need>;

    /// See [`Change::answer_after`].
    #[cfg_attr(
        not(any(test, feature = "postgres")),
        expect(dead_code, reason = "the embedded engine has one host")
    )]
    fn answer_after(&self) -> AnswerAfter;

    /// Whether the change is to be made. `false` if its caller has withdrawn it. Must be called once,
    /// by the queue; afterwards it cannot be withdrawn.
    fn take(&self) -> bool;

    /// Applies the change to the write batch of its group. Its result replaces that of an earlier
    /// batch.
    ///
    /// # Errors
    /// What the change lacks. If it is not applied again, its caller gets an error.
    fn apply(&mut self, batch: &mut WriteBatch) -> Result<(), Gap>;

    /// Answers the caller.
    fn answer(self: Box<Self>, ended: Ended);
}

/// How the commit of a group ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ended {
    /// It is durable.
    Durable,
    /// It failed, and whether it is durable is not known.
    Unknown,
    /// Nothing of it was made.
    #[cfg(feature = "postgres")]
    Undone,
    /// It is durable, and whether other hosts have seen it is not known.
    #[cfg(feature = "postgres")]
    Unseen,
}

/// A change of any kind with the result of its last application.
struct Submission<C: Change> {
    change: C,
    answer: PendingSender<C::Done>,
    result: Option<Result<C::Done, Error>>,
}

/// Makes a change a job.
pub(crate) fn job<C: Change>(change: C, answer: PendingSender<C::Done>) -> Box<dyn Job> {
    Box::new(Submission { change, answer, result: None })
}

impl<C: Change> Job for Submission<C> {
    fn guards(&self) -> Vec<Guard> {
        self.change.guards()
    }

    fn needs(&self) -> Vec<Need> {
        self.change.needs()
    }

    fn answer_after(&self) -> AnswerAfter {
        self.change.answer_after()
    }

    fn take(&self) -> bool {
        self.answer.take()
    }

    fn apply(&mut self, batch: &mut WriteBatch) -> Result<(), Gap> {
        self.answer.begin();
        let (result, lacks) = match self.change.apply(batch) {
            Ok(done) => (Some(Ok(done)), Ok(())),
            Err(Gap::Failed(error)) => (Some(Err(error)), Ok(())),
            Err(gap) => (None, Err(gap)),
        };
        self.result = result;
        lacks
    }

    fn answer(self: Box<Self>, ended: Ended) {
        let Submission { answer, result, .. } = *self;
        answer.send(match (result, ended) {
            // A refusal may rest on a change of the same group that was not made either.
            #[cfg(feature = "postgres")]
            (_, Ended::Undone) => Err(Error::Busy),
            #[cfg(feature = "postgres")]
            (Some(Ok(_)), Ended::Unseen) => Err(Error::TimedOut),
            // A refusal is returned even if the commit of its group failed.
            (Some(Err(refused)), _) => Err(refused),
            (Some(Ok(done)), Ended::Durable) => Ok(done),
            (Some(Ok(_)) | None, _) => Err(Error::WriteFailed),
        });
    }
}

/// Everything that is committed without a waiting caller: usage rows and audit entries of releases.
#[derive(Default)]
pub(crate) struct Rows {
    pub(crate) usage: Vec<SettledUsage>,
    pub(crate) audit: Vec<AuditEntry>,
}

#[cfg(feature = "postgres")]
impl Rows {
    pub(crate) fn is_empty(&self) -> bool {
        self.usage.is_empty() && self.audit.is_empty()
    }
}

/// One part of the writer's queue.
#[derive(Clone, Copy, Debug)]
pub struct QueuePart {
    /// `changes`, `usage` or `audit`.
    pub name: &'static str,
    /// What waits now.
    pub length: usize,
    /// With this many waiting, callers wait or are refused.
    pub max: usize,
}

impl QueuePart {
    /// Of two queues with the same room the fuller one, because a request is refused when its own queue is full.
    fn fuller(self, other: QueuePart) -> QueuePart {
        if other.length > self.length { other } else { self }
    }
}

#[derive(Default)]
struct WaitingWrites {
    jobs: VecDeque<(QueuePermit, Box<dyn Job>)>,
    usage: Vec<SettledUsage>,
    audit: Vec<AuditEntry>,
    /// Numbers of usage rows and audit entries that the writer has taken and still has to commit.
    kept: (usize, usize),
    /// The writer stops waiting for more when this many mutations are queued.
    wanted: usize,
    closed: bool,
}

impl WaitingWrites {
    fn rows(&self) -> usize {
        self.usage.len() + self.audit.len()
    }

    /// Number of usage rows that are not committed.
    fn usage_rows(&self) -> usize {
        self.kept.0 + self.usage.len()
    }

    /// Number of audit entries that are not committed.
    fn audit_entries(&self) -> usize {
        self.kept.1 + self.audit.len()
    }
}

pub(crate) struct WriteQueue {
    waiting: Mutex<WaitingWrites>,
    arrived: Condvar,
    permits: Arc<Semaphore>,
    /// Number of waiting usage rows, readable without the lock.
    usage_rows: AtomicUsize,
}

impl Default for WriteQueue {
    fn default() -> WriteQueue {
        WriteQueue::with(Arc::new(Semaphore::new(JOBS_MAX)))
    }
}

impl WriteQueue {
    /// A queue whose permits are also those of other queues.
    fn with(permits: Arc<Semaphore>) -> WriteQueue {
        let usage_rows = AtomicUsize::new(0);
        WriteQueue { waiting: Mutex::default(), arrived: Condvar::new(), permits, usage_rows }
    }

    /// Waits for a permit, first come first served.
    pub(crate) async fn queue_permit(&self) -> Result<QueuePermit, Error> {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        permit.map(QueuePermit::new).map_err(|_| Error::Closed)
    }

    /// Adds a mutation. If the queue is closed, the job is dropped, which answers its caller with
    /// an error.
    pub(crate) fn push(&self, permit: QueuePermit, job: Box<dyn Job>) {
        let mut waiting = self.lock();
        if waiting.closed {
            drop(waiting);
            return;
        }
        waiting.jobs.push_back((permit, job));
        let jobs = waiting.jobs.len();
        let wakes = jobs == 1 || jobs == waiting.wanted;
        drop(waiting);
        if wakes {
            self.arrived.notify_one();
        }
    }

    /// Whether a request that will leave a usage row may begin.
    pub(crate) fn has_room(&self) -> bool {
        self.usage_rows.load(Ordering::Relaxed) < USAGE_ROWS_MAX
    }

    /// Adds a usage row without waiting, even beyond the limit: the request is over, and the number
    /// of rows is limited by [`WriteQueue::has_room`] where requests begin.
    pub(crate) fn push_usage(&self, settled: SettledUsage) -> Result<(), QueueFull> {
        let mut waiting = self.lock();
        if waiting.closed {
            return Err(QueueFull);
        }
        waiting.usage.push(settled);
        self.usage_rows.store(waiting.usage_rows(), Ordering::Relaxed);
        self.announce(waiting);
        Ok(())
    }

    /// Adds an audit entry without waiting.
    pub(crate) fn push_audit(&self, entry: AuditEntry) -> Result<(), QueueFull> {
        let mut waiting = self.lock();
        if waiting.closed || waiting.audit_entries() >= AUDIT_ENTRIES_MAX {
            return Err(QueueFull);
        }
        waiting.audit.push(entry);
        self.announce(waiting);
        Ok(())
    }

    /// Wakes the writer for the first row and when enough rows wait; in between it sleeps, to
    /// collect rows.
    fn announce(&self, waiting: MutexGuard<'_, WaitingWrites>) {
        let is_first = waiting.rows() == 1;
        let is_enough =
            waiting.usage.len() == USAGE_ROWS_ENOUGH || waiting.audit.len() == AUDIT_ENTRIES_ENOUGH;
        drop(waiting);
        if is_first || is_enough {
            self.arrived.notify_one();
        }
    }

    /// Waits until there is something to commit, and then briefly for `wanted` mutations. `false`
    /// once the queue is closed and empty. Must be called by the writer only.
    pub(crate) fn wait(&self, wanted: usize) -> bool {
        let nothing =
            |waiting: &mut WaitingWrites| waiting.jobs.is_empty() && waiting.rows() == 0 && !waiting.closed;
        let waiting = self.arrived.wait_while(self.lock(), nothing).unwrap_or_else(PoisonError::into_inner);
        let few = |waiting: &mut WaitingWrites| {
            waiting.jobs.is_empty()
                && waiting.usage.len() < USAGE_ROWS_ENOUGH
                && waiting.audit.len() < AUDIT_ENTRIES_ENOUGH
                && !waiting.closed
        };
        let waited = self.arrived.wait_timeout_while(waiting, COMPANY_DELAY, few);
        let (mut waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        waiting.wanted = wanted;
        let gathers = |waiting: &mut WaitingWrites| {
            !waiting.jobs.is_empty() && waiting.jobs.len() < waiting.wanted && !waiting.closed
        };
        let waited = self.arrived.wait_timeout_while(waiting, GATHER_DELAY, gathers);
        let (waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !(waiting.jobs.is_empty() && waiting.rows() == 0)
    }

    /// The oldest waiting mutation that was not withdrawn. Its permit is released.
    pub(crate) fn take_job(&self) -> Option<Box<dyn Job>> {
        loop {
            let (_, job) = self.lock().jobs.pop_front()?;
            if job.take() {
                return Some(job);
            }
        }
    }

    /// All waiting rows. Must be taken after the mutations of a group, so that a row handed over
    /// before a mutation is never committed after it.
    pub(crate) fn take_rows(&self) -> Rows {
        let mut waiting = self.lock();
        self.usage_rows.store(0, Ordering::Relaxed);
        Rows { usage: std::mem::take(&mut waiting.usage), audit: std::mem::take(&mut waiting.audit) }
    }

    /// Adds all waiting rows to those that the writer has not committed yet. All of them count against
    /// the limits until [`WriteQueue::rows_committed`]. Like [`WriteQueue::take_rows`], it must be called
    /// after the mutations of a group are taken.
    #[cfg(feature = "postgres")]
    pub(crate) fn take_more_rows(&self, rows: &mut Rows) {
        let mut waiting = self.lock();
        rows.usage.append(&mut waiting.usage);
        rows.audit.append(&mut waiting.audit);
        waiting.kept = (rows.usage.len(), rows.audit.len());
    }

    /// The writer has committed all rows that it took.
    #[cfg(feature = "postgres")]
    pub(crate) fn rows_committed(&self) {
        let mut waiting = self.lock();
        waiting.kept = (0, 0);
        self.usage_rows.store(waiting.usage.len(), Ordering::Relaxed);
    }

    /// Whether the queue accepts nothing more.
    #[cfg(feature = "postgres")]
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Accepts nothing more. What is waiting is still handed to the writer.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.permits.close();
        self.arrived.notify_all();
    }

    /// Accepts nothing more and drops waiting mutations. Dropping a job answers its caller with an
    /// error. Waiting rows are still handed to the writer.
    pub(crate) fn refuse(&self) {
        let mut waiting = self.lock();
        waiting.closed = true;
        let dropped = std::mem::take(&mut waiting.jobs);
        drop(waiting);
        self.permits.close();
        drop(dropped);
    }

    /// Accepts nothing more and drops what is waiting.
    pub(crate) fn abandon(&self) {
        self.refuse();
        let mut waiting = self.lock();
        (waiting.usage, waiting.audit) = (Vec::new(), Vec::new());
    }

    /// What waits in each of the three parts, and the most that it takes before it refuses.
    pub(crate) fn parts(&self) -> [QueuePart; 3] {
        let waiting = self.lock();
        let part = |name, length, max| QueuePart { name, length, max };
        [
            part("changes", waiting.jobs.len(), JOBS_MAX),
            part("usage", waiting.usage_rows(), USAGE_ROWS_MAX),
            part("audit", waiting.audit_entries(), AUDIT_ENTRIES_MAX),
        ]
    }

    /// Numbers of waiting mutations and usage rows.
    pub(crate) fn lengths(&self) -> (usize, usize) {
        let waiting = self.lock();
        (waiting.jobs.len(), waiting.usage_rows())
    }

    fn lock(&self) -> MutexGuard<'_, WaitingWrites> {
        // A panic in another thread cannot leave the queue half changed.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Held by the thread that writes. If the thread ends in another way than by closing the store, the store has
/// failed and takes nothing more.
pub(crate) struct WriterGuard {
    queue: Arc<WriteQueue>,
    shared: Arc<PublishedState>,
}

impl WriterGuard {
    pub(crate) fn new(queue: &Arc<WriteQueue>, shared: &Arc<PublishedState>) -> Self {
        Self { queue: Arc::clone(queue), shared: Arc::clone(shared) }
    }

    /// Ends the writer because the store is closed. Another writer of the store may have failed, or have ended
    /// before; the state stays then.
    pub(crate) fn close(self) {
        let state = &self.shared.state;
        let (Ok(_) | Err(_)) = state.compare_exchange(RUNNING, CLOSED, Ordering::AcqRel, Ordering::Acquire);
    }
}

impl Drop for WriterGuard {
    fn drop(&mut self) {
        // Only a regular end has changed the state before.
        let running =
            self.shared.state.compare_exchange(RUNNING, FAILED, Ordering::AcqRel, Ordering::Acquire);
        if running.is_ok() {
            tracing::error!("a writer of the store ended unexpectedly; the store takes no more writes");
        }
        self.queue.abandon();
    }
}

#[cfg(test)]
mod tests;
