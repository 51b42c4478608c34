//! The bounded queue before the writer: mutations that somebody waits for, rows that nobody waits for.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::audit::AuditEntry;
use crate::changes::Draft;
use crate::error::{Error, QueueFull};
use crate::pending::Place;
use crate::usage::UsageRow;

/// Mutations waiting at most; past this a caller waits for a place. Each may hold a value of 262,144 bytes.
const JOBS_MAX: usize = 512;
/// Usage rows waiting when no request is begun any more: some megabytes, and what a busy host leaves while its disk
/// takes a second or two for a sync. Requests under way still leave theirs.
const USAGE_ROWS_MAX: usize = 16_384;
/// Audit entries of releases waiting at most.
pub(crate) const AUDIT_ENTRIES_MAX: usize = 4096;
/// So many rows or entries are written at once without waiting for more.
const ENOUGH: usize = 512;
/// How long rows and entries wait for company. Part of the second that a kill may cost.
const COMPANY_DELAY: Duration = Duration::from_millis(250);
/// How long a group waits for as many mutations as the one before it had: their callers have just been answered
/// and many come back at once, which without this would make every other group a small one.
const GATHER_DELAY: Duration = Duration::from_millis(1);

/// A mutation: changes the draft or refuses, and gives what tells its caller once the commit is decided.
pub(crate) type Job = Box<dyn FnOnce(&mut Draft) -> Settle + Send>;
/// Answers the caller: true after the commit became durable, false after it failed.
pub(crate) type Settle = Box<dyn FnOnce(bool) + Send>;

/// A usage row on its way to the writer.
pub(crate) struct Settled {
    pub(crate) row: UsageRow,
    /// Whether an intent of the request may lie in the store, which goes when the row comes.
    pub(crate) has_intent: bool,
}

/// What nobody waits for: usage rows, and audit entries of releases.
#[derive(Default)]
pub(crate) struct Rows {
    pub(crate) usage: Vec<Settled>,
    pub(crate) audit: Vec<AuditEntry>,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<(Place, Job)>,
    usage: Vec<Settled>,
    audit: Vec<AuditEntry>,
    /// So many mutations end the writer's waiting for more.
    wanted: usize,
    closed: bool,
}

impl Waiting {
    fn rows(&self) -> usize {
        self.usage.len() + self.audit.len()
    }
}

pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
    places: Arc<Semaphore>,
    /// How many usage rows wait: can be looked at without the lock.
    usage_rows: AtomicUsize,
}

impl Default for Queue {
    fn default() -> Queue {
        let places = Arc::new(Semaphore::new(JOBS_MAX));
        let usage_rows = AtomicUsize::new(0);
        Queue { waiting: Mutex::default(), arrived: Condvar::new(), places, usage_rows }
    }
}

impl Queue {
    /// Waits for a place, in the order of asking.
    pub(crate) async fn place(&self) -> Result<Place, Error> {
        let permit = Arc::clone(&self.places).acquire_owned().await;
        permit.map(Place::new).map_err(|_| Error::Closed)
    }

    /// Adds a mutation. On a closed queue it is dropped, which tells its caller.
    pub(crate) fn push(&self, place: Place, job: Job) {
        let mut waiting = self.lock();
        if waiting.closed {
            drop(waiting);
            return;
        }
        waiting.jobs.push_back((place, job));
        let jobs = waiting.jobs.len();
        let wakes = jobs == 1 || jobs == waiting.wanted;
        drop(waiting);
        if wakes {
            self.arrived.notify_one();
        }
    }

    /// Whether requests may be begun that will leave a usage row.
    pub(crate) fn has_room(&self) -> bool {
        self.usage_rows.load(Ordering::Relaxed) < USAGE_ROWS_MAX
    }

    /// Adds a usage row without ever waiting, whether or not there is room: the request is over, and how many
    /// there are is limited where they begin.
    pub(crate) fn push_usage(&self, settled: Settled) -> Result<(), QueueFull> {
        let mut waiting = self.lock();
        if waiting.closed {
            return Err(QueueFull);
        }
        waiting.usage.push(settled);
        self.usage_rows.store(waiting.usage.len(), Ordering::Relaxed);
        self.announce(waiting);
        Ok(())
    }

    /// Adds an audit entry without ever waiting.
    pub(crate) fn push_audit(&self, entry: AuditEntry) -> Result<(), QueueFull> {
        let mut waiting = self.lock();
        if waiting.closed || waiting.audit.len() >= AUDIT_ENTRIES_MAX {
            return Err(QueueFull);
        }
        waiting.audit.push(entry);
        self.announce(waiting);
        Ok(())
    }

    /// Wakes the writer for the first of them and when it is time; in between it sleeps on purpose.
    fn announce(&self, waiting: MutexGuard<'_, Waiting>) {
        let rows = waiting.rows();
        drop(waiting);
        if rows == 1 || rows == ENOUGH {
            self.arrived.notify_one();
        }
    }

    /// Waits until there is something to commit, and a moment for as many mutations as are wanted; false once the
    /// queue is closed and empty. For the writer alone.
    pub(crate) fn wait(&self, wanted: usize) -> bool {
        let nothing =
            |waiting: &mut Waiting| waiting.jobs.is_empty() && waiting.rows() == 0 && !waiting.closed;
        let waiting = self.arrived.wait_while(self.lock(), nothing).unwrap_or_else(PoisonError::into_inner);
        let few =
            |waiting: &mut Waiting| waiting.jobs.is_empty() && waiting.rows() < ENOUGH && !waiting.closed;
        let waited = self.arrived.wait_timeout_while(waiting, COMPANY_DELAY, few);
        let (mut waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        waiting.wanted = wanted;
        let gathers = |waiting: &mut Waiting| {
            !waiting.jobs.is_empty() && waiting.jobs.len() < waiting.wanted && !waiting.closed
        };
        let waited = self.arrived.wait_timeout_while(waiting, GATHER_DELAY, gathers);
        let (waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !(waiting.jobs.is_empty() && waiting.rows() == 0)
    }

    /// The mutation that waits longest, if any. Its place is free again.
    pub(crate) fn take_job(&self) -> Option<Job> {
        self.lock().jobs.pop_front().map(|(_, job)| job)
    }

    /// Every row that waits. Taken after the mutations of a group, so that a row handed over before a mutation
    /// is never committed after it.
    pub(crate) fn take_rows(&self) -> Rows {
        let mut waiting = self.lock();
        self.usage_rows.store(0, Ordering::Relaxed);
        Rows { usage: std::mem::take(&mut waiting.usage), audit: std::mem::take(&mut waiting.audit) }
    }

    /// Takes nothing more; what waits is still handed to the writer.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.places.close();
        self.arrived.notify_all();
    }

    /// Takes nothing more and drops what waits. Dropping a job tells its caller.
    pub(crate) fn abandon(&self) {
        let mut waiting = self.lock();
        waiting.closed = true;
        let dropped = std::mem::take(&mut waiting.jobs);
        (waiting.usage, waiting.audit) = (Vec::new(), Vec::new());
        drop(waiting);
        self.places.close();
        drop(dropped);
    }

    /// Mutations and usage rows waiting.
    pub(crate) fn lengths(&self) -> (usize, usize) {
        let waiting = self.lock();
        (waiting.jobs.len(), waiting.usage.len())
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // A panic elsewhere leaves a queue that is still a queue.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
