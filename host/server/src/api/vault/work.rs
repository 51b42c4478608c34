//! Waiting for the store, each wait with its end: for a place in the queue of the
//! writer until the request's time has passed, for a commit or a page a while.

use std::sync::Arc;
use std::time::Duration;

use cofferdam_store::{Error, Pending, Place, Store};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};

use crate::reply::{Fault, VaultFault};

/// From the end of the body to a place in the writer's queue.
const ROUTE_TIME: Duration = Duration::from_secs(15);
/// From there to the end of the commit; also for reading a page.
const STORE_TIME: Duration = Duration::from_secs(5);

/// When the time of a request is over.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline(Instant);

impl Deadline {
    /// To be called when the whole request has arrived.
    pub(super) fn begin() -> Self {
        Self(Instant::now() + ROUTE_TIME)
    }
}

/// Waits for a place in the queue of the writer.
///
/// # Errors
///
/// The time is over, or the writer takes nothing.
pub(super) async fn place(store: &Store, deadline: Deadline) -> Result<Place, Fault> {
    if store.is_stalled() {
        // Nobody knows whether the commit in front will ever end.
        return Err(Fault::Vault(VaultFault::TimedOut));
    }
    let place = timeout_at(deadline.0, store.place()).await;
    place.map_err(|_| Fault::Vault(VaultFault::TooLate))?.map_err(failed)
}

/// Waits for a change to become durable.
///
/// # Errors
///
/// It was refused, it failed, or nobody knows yet.
pub(super) async fn commit<T>(pending: Pending<T>) -> Result<T, Fault> {
    let committed = timeout(STORE_TIME, pending).await;
    committed.map_err(|_| Fault::Vault(VaultFault::TimedOut))?.map_err(failed)
}

/// Reads from the disk beside the threads that answer requests. A read that nobody
/// waits for any more goes on and keeps its place, so that a disk that hangs holds a
/// bounded number of threads.
///
/// # Errors
///
/// It failed or takes too long.
pub(super) async fn read<T: Send + 'static>(
    places: &Arc<Semaphore>,
    read: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Fault> {
    let reading = async {
        // The places are never closed.
        let place = Arc::clone(places).acquire_owned().await.map_err(|_| Fault::Internal)?;
        let read = tokio::task::spawn_blocking(move || {
            let _place = place;
            read()
        });
        // A panic there is a mistake of ours like any other.
        read.await.map_err(|_| Fault::Internal)?.map_err(failed)
    };
    timeout(STORE_TIME, reading).await.map_err(|_| Fault::Vault(VaultFault::TimedOut))?
}

/// What a client is told of an error of the store; the log gets the error.
fn failed(error: Error) -> Fault {
    let fault = match error {
        // The workspace or the intern has gone since the gates were passed.
        Error::NoSuchSecret | Error::Lookup(_) => return Fault::NotFound,
        Error::NoSpace => return Fault::Vault(VaultFault::Unavailable),
        Error::Unbound => return Fault::Vault(VaultFault::Unbound),
        Error::Quota(exceeded) => return Fault::Vault(VaultFault::Full(exceeded)),
        Error::Busy => Fault::Vault(VaultFault::TooLate),
        Error::TimedOut => Fault::Vault(VaultFault::TimedOut),
        Error::Damaged => Fault::Vault(VaultFault::InvalidResponse),
        _ => Fault::Vault(VaultFault::Failed),
    };
    tracing::error!(%error, "the vault failed");
    fault
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    /// What a read comes to by the time that nobody waits for it any more.
    async fn in_the_end<T: Send + 'static>(
        places: &Arc<Semaphore>,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Fault> {
        // By hand: a paused clock stands still while a thread works.
        tokio::join!(read(places, work), tokio::time::advance(STORE_TIME)).0
    }

    #[tokio::test(start_paused = true)]
    async fn reads_that_hang_keep_their_places_until_they_end() {
        let places = Arc::new(Semaphore::new(1));
        let (go_on, wait) = sync_channel(1);
        let hung = in_the_end(&places, move || wait.recv().map_err(|_| Error::Closed)).await;
        assert!(matches!(hung, Err(Fault::Vault(VaultFault::TimedOut))));
        let second = in_the_end(&places, || Ok(())).await;
        assert!(matches!(second, Err(Fault::Vault(VaultFault::TimedOut))), "it has found a place");
        go_on.send(()).unwrap();
        drop(places.acquire().await.unwrap());
        assert!(read(&places, || Ok(())).await.is_ok());
    }
}
