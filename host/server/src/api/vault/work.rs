//! Waits for the store, with a time limit for each step: for a permit of the writer's queue until
//! the request's deadline, for a commit or a page for a fixed time.

use std::sync::Arc;
use std::time::Duration;

use cofferdam_store::{Error, Pending, QueuePermit, Store};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};

use crate::fault::Fault;

/// From the end of the request body until the writer's queue gives a permit.
const ROUTE_TIME: Duration = Duration::from_secs(15);
/// From the permit until the commit is durable; also for reading a page.
const STORE_TIME: Duration = Duration::from_secs(5);

/// The time by which a request needs its permit.
#[derive(Debug, Clone, Copy)]
pub(super) struct CommitDeadline(Instant);

impl CommitDeadline {
    /// Starts the deadline. Called when the whole request has arrived.
    pub(super) fn begin() -> Self {
        Self(Instant::now() + ROUTE_TIME)
    }
}

/// Waits for a permit of the writer's queue.
///
/// # Errors
///
/// The deadline passes, or the writer hangs.
pub(super) async fn place(store: &Store, deadline: CommitDeadline) -> Result<QueuePermit, Fault> {
    if store.is_stalled() {
        // The commit that is being written may never end.
        return Err(Fault::VaultTimedOut);
    }
    let place = timeout_at(deadline.0, store.place()).await;
    place.map_err(|_| Fault::VaultTooLate)?.map_err(failed)
}

/// Waits until a change is durable.
///
/// # Errors
///
/// The change is refused or fails, or its outcome is not known in time.
pub(super) async fn commit<T>(pending: Pending<T>) -> Result<T, Fault> {
    let committed = timeout(STORE_TIME, pending).await;
    committed.map_err(|_| Fault::VaultTimedOut)?.map_err(failed)
}

/// Reads from disk on a blocking thread, so that request threads do not wait. A read whose caller
/// has given up goes on and keeps its permit: a disk that hangs blocks a bounded number of threads.
///
/// # Errors
///
/// The read fails or takes too long.
pub(super) async fn read<T: Send + 'static>(
    places: &Arc<Semaphore>,
    read: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Fault> {
    let reading = async {
        // The semaphore is never closed.
        let place = Arc::clone(places).acquire_owned().await.map_err(|_| Fault::Internal)?;
        let read = tokio::task::spawn_blocking(move || {
            let _place = place;
            read()
        });
        // The read panicked.
        read.await.map_err(|_| Fault::Internal)?.map_err(failed)
    };
    timeout(STORE_TIME, reading).await.map_err(|_| Fault::VaultTimedOut)?
}

/// The fault for an error of the store. The error itself is logged unless the request caused it.
fn failed(error: Error) -> Fault {
    let fault = match error {
        // The secret, the workspace or the intern was deleted after the gates were passed.
        Error::NoSuchSecret | Error::Lookup(_) => return Fault::NotFound,
        Error::NoSpace => return Fault::VaultUnavailable,
        Error::Unbound => return Fault::UnboundSecret,
        Error::Quota(exceeded) => return Fault::VaultFull(exceeded),
        Error::Busy => Fault::VaultTooLate,
        Error::TimedOut => Fault::VaultTimedOut,
        Error::Damaged => Fault::VaultDamaged,
        _ => Fault::VaultFailed,
    };
    tracing::error!(%error, "the vault failed");
    fault
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    /// The result of a read whose time limit expires.
    async fn in_the_end<T: Send + 'static>(
        places: &Arc<Semaphore>,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Fault> {
        // Advanced by hand: a paused clock does not advance by itself while a blocking thread runs.
        tokio::join!(read(places, work), tokio::time::advance(STORE_TIME)).0
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_reads_keep_their_permits_until_they_end() {
        let places = Arc::new(Semaphore::new(1));
        let (go_on, wait) = sync_channel(1);
        let hung = in_the_end(&places, move || wait.recv().map_err(|_| Error::Closed)).await;
        assert!(matches!(hung, Err(Fault::VaultTimedOut)));
        let second = in_the_end(&places, || Ok(())).await;
        assert!(matches!(second, Err(Fault::VaultTimedOut)), "it has found a place");
        go_on.send(()).unwrap();
        drop(places.acquire().await.unwrap());
        assert!(read(&places, || Ok(())).await.is_ok());
    }
}
