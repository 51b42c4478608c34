//! The bounded queue before the writer: mutations that somebody waits for, usage rows that nobody waits for.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::changes::Draft;
use crate::error::{Error, QueueFull};
use crate::usage::UsageRow;

/// Mutations waiting at most; past this a caller waits for a place.
const JOBS_MAX: usize = 256;
/// Mutations in one commit at most.
const GROUP_JOBS_MAX: usize = 64;
/// Usage rows waiting at most.
const USAGE_ROWS_MAX: usize = 4096;
/// So many usage rows are written at once without waiting for more.
const USAGE_ROWS_ENOUGH: usize = 512;
/// How long usage rows wait for company. Part of the second that a kill may cost.
const USAGE_DELAY: Duration = Duration::from_millis(250);

/// A mutation: changes the draft or refuses, and gives what tells its caller once the commit is decided.
pub(crate) type Job = Box<dyn FnOnce(&mut Draft) -> Settle + Send>;
/// Answers the caller: true after the commit became durable, false after it failed.
pub(crate) type Settle = Box<dyn FnOnce(bool) + Send>;

/// What goes into one commit.
#[derive(Default)]
pub(crate) struct Group {
    pub(crate) jobs: Vec<Job>,
    pub(crate) usage: Vec<UsageRow>,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    usage: Vec<UsageRow>,
    closed: bool,
}

#[derive(Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
    taken: Condvar,
}

impl Queue {
    /// Adds a mutation, waiting for a place at most as long as given.
    pub(crate) fn push(&self, job: Job, patience: Duration) -> Result<(), Error> {
        let full = |waiting: &mut Waiting| waiting.jobs.len() >= JOBS_MAX && !waiting.closed;
        let waited = self.taken.wait_timeout_while(self.lock(), patience, full);
        let (mut waiting, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        if waiting.closed {
            return Err(Error::Closed);
        }
        if timeout.timed_out() {
            return Err(Error::Busy);
        }
        waiting.jobs.push_back(job);
        drop(waiting);
        self.arrived.notify_one();
        Ok(())
    }

    /// Adds a usage row without ever waiting.
    pub(crate) fn push_usage(&self, row: UsageRow) -> Result<(), QueueFull> {
        let mut waiting = self.lock();
        if waiting.closed || waiting.usage.len() >= USAGE_ROWS_MAX {
            return Err(QueueFull);
        }
        waiting.usage.push(row);
        let rows = waiting.usage.len();
        drop(waiting);
        // In between the writer is asleep on purpose, waiting for more.
        if rows == 1 || rows == USAGE_ROWS_ENOUGH {
            self.arrived.notify_one();
        }
        Ok(())
    }

    /// The next group, waiting for one; `None` once the queue is closed and empty. For the writer alone.
    pub(crate) fn next(&self) -> Option<Group> {
        let nothing =
            |waiting: &mut Waiting| waiting.jobs.is_empty() && waiting.usage.is_empty() && !waiting.closed;
        let waiting = self.arrived.wait_while(self.lock(), nothing).unwrap_or_else(PoisonError::into_inner);
        let few = |waiting: &mut Waiting| {
            waiting.jobs.is_empty() && waiting.usage.len() < USAGE_ROWS_ENOUGH && !waiting.closed
        };
        let waited = self.arrived.wait_timeout_while(waiting, USAGE_DELAY, few);
        let (mut waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let count = waiting.jobs.len().min(GROUP_JOBS_MAX);
        let group =
            Group { jobs: waiting.jobs.drain(..count).collect(), usage: std::mem::take(&mut waiting.usage) };
        drop(waiting);
        self.taken.notify_all();
        if group.jobs.is_empty() && group.usage.is_empty() { None } else { Some(group) }
    }

    /// Takes nothing more; what waits is still handed to the writer.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_all();
        self.taken.notify_all();
    }

    /// Takes nothing more and drops what waits. Dropping a job tells its caller.
    pub(crate) fn abandon(&self) {
        let mut waiting = self.lock();
        waiting.closed = true;
        let dropped = (std::mem::take(&mut waiting.jobs), std::mem::take(&mut waiting.usage));
        drop(waiting);
        drop(dropped);
        self.taken.notify_all();
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
