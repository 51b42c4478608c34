//! Two stages of asking the writer: wait for a permit for its queue, then for the answer, which
//! comes with the commit.
//!
//! Both can be awaited on any runtime, or waited for on a plain thread. Giving up the wait for a
//! permit has no effect. A wait for an answer that ends after its time withdraws the change, unless
//! the writer has taken it. Dropping a [`Pending`] does not withdraw the change.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::task::unconstrained;
use tokio::time::timeout;

use crate::error::Error;
use crate::published::PublishedState;

/// A permit for one mutation in the writer's queue. If it is dropped unused, the next waiting
/// caller gets it.
#[must_use = "a permit is given back when it is dropped"]
#[derive(Debug)]
pub struct QueuePermit {
    _permit: OwnedSemaphorePermit,
}

impl QueuePermit {
    pub(crate) fn new(permit: OwnedSemaphorePermit) -> QueuePermit {
        QueuePermit { _permit: permit }
    }
}

/// The answer to a change that was handed to the writer. It comes once the change is durable or
/// refused.
///
/// Dropping it does not withdraw the change.
#[must_use = "the change is made either way; only the answer tells whether it is durable"]
#[derive(Debug)]
pub struct Pending<T> {
    receiver: oneshot::Receiver<Result<T, Error>>,
    /// Set once, by the writer that takes the change or by the caller that withdraws it.
    decided: Arc<AtomicBool>,
}

impl<T> Pending<T> {
    pub(crate) fn new(shared: Arc<PublishedState>) -> (PendingSender<T>, Pending<T>) {
        let (sender, receiver) = oneshot::channel();
        let decided = Arc::new(AtomicBool::new(false));
        let sender =
            PendingSender { sender: Some(sender), decided: Arc::clone(&decided), begun: false, shared };
        (sender, Pending { receiver, decided })
    }

    /// Waits until the answer comes, at most for the given time.
    ///
    /// # Errors
    /// Without an answer in time, [`Error::Busy`] if the writer had not taken the change: it is
    /// withdrawn, and nothing is changed. Otherwise [`Error::TimedOut`]: the change may still be
    /// made. Or the error of the answer.
    pub async fn within(mut self, patience: Duration) -> Result<T, Error> {
        let answer = timeout(patience, &mut self).await;
        answer.unwrap_or_else(|_elapsed| Err(self.withdraw()))
    }

    /// Like [`Pending::within`], but blocks this thread.
    ///
    /// # Errors
    /// Those of [`Pending::within`].
    pub fn wait(mut self, patience: Duration) -> Result<T, Error> {
        wait(&mut self, patience).unwrap_or_else(|| Err(self.withdraw()))
    }

    /// Withdraws the change, unless the writer has taken it. Returns the error for the caller.
    fn withdraw(self) -> Error {
        if self.decided.swap(true, Ordering::AcqRel) { Error::TimedOut } else { Error::Busy }
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T, Error>> {
        let answer = Pin::new(&mut self.receiver).poll(context);
        // The sender always answers: its `drop` sends an error.
        answer.map(|answer| answer.unwrap_or(Err(Error::WriteFailed)))
    }
}

/// The sending side of a [`Pending`], owned by the writer's job.
pub(crate) struct PendingSender<T> {
    sender: Option<oneshot::Sender<Result<T, Error>>>,
    decided: Arc<AtomicBool>,
    begun: bool,
    shared: Arc<PublishedState>,
}

impl<T> PendingSender<T> {
    /// Takes the change. `false` if its caller has withdrawn it. Must be called once.
    pub(crate) fn take(&self) -> bool {
        !self.decided.swap(true, Ordering::AcqRel)
    }

    /// Marks that the change may be part of a commit from now on.
    pub(crate) fn begin(&mut self) {
        self.begun = true;
    }

    pub(crate) fn send(mut self, result: Result<T, Error>) {
        self.answer(result);
    }

    fn answer(&mut self, result: Result<T, Error>) {
        if let Some(sender) = self.sender.take() {
            // A caller whose wait timed out has dropped the receiver; the result is then discarded.
            drop(sender.send(result));
        }
    }
}

impl<T> Drop for PendingSender<T> {
    /// The writer ended while this change was in its commit, or before it took the change.
    fn drop(&mut self) {
        let error = if self.begun { Error::WriteFailed } else { self.shared.refusal() };
        self.answer(Err(error));
    }
}

/// Blocks this thread on a future; `None` when it made no progress for the given time.
pub(crate) fn wait<F: Future>(future: F, patience: Duration) -> Option<F::Output> {
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(Arc::clone(&bell));
    let mut context = Context::from_waker(&waker);
    // A task of tokio has a budget of polls. A wait inside of a task would use it up, and further
    // polls would then be pending and wake at once until the task yields, which it cannot do here.
    let mut future = pin!(unconstrained(future));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        let rung = bell.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = bell.rings.wait_timeout_while(rung, patience, |rung| !*rung);
        let (mut rung, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() {
            return None;
        }
        *rung = false;
    }
}

/// Wakes the thread that waits for a future.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    rings: Condvar,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.rings.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::runtime::Builder;
    use tokio::sync::Semaphore;

    use super::wait;

    #[test]
    fn a_task_may_wait_any_number_of_times() {
        let scheduler = Builder::new_current_thread().build().unwrap();
        scheduler.block_on(async {
            let places = Arc::new(Semaphore::new(1));
            for _ in 0..1000 {
                let place = wait(Arc::clone(&places).acquire_owned(), Duration::from_secs(60));
                assert!(place.is_some_and(|place| place.is_ok()));
            }
        });
    }
}
