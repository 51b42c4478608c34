//! Waits for the store, with a time limit for each step.

use std::sync::Arc;
use std::time::Duration;

use cofferdam_store::{Error, Pending, QueuePermit, Store};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// The maximum wait for a permit of the writer's queue.
const PERMIT_TIME: Duration = Duration::from_secs(15);
/// From the permit until the commit is durable; also for reading a page.
const STORE_TIME: Duration = Duration::from_secs(5);

/// Makes a change and waits until it is durable.
///
/// # Errors
///
/// [`Error::Busy`] without a permit in time: nothing was changed. [`Error::TimedOut`] without a
/// commit in time: the outcome is unknown. Otherwise the error of the store.
pub(super) async fn commit<T>(
    store: &Store,
    change: impl FnOnce(QueuePermit) -> Pending<T>,
) -> Result<T, Error> {
    let place = timeout(PERMIT_TIME, store.place()).await.map_err(|_| Error::Busy)??;
    timeout(STORE_TIME, change(place)).await.map_err(|_| Error::TimedOut)?
}

/// Reads from disk on a blocking thread, so that request threads do not wait. A read whose caller
/// has given up goes on and keeps its permit: a disk that hangs blocks a bounded number of threads.
///
/// # Errors
///
/// [`Error::TimedOut`] when the read takes too long, or the error of the store.
pub(super) async fn read<T: Send + 'static>(
    places: &Arc<Semaphore>,
    read: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let reading = async {
        // The semaphore is never closed.
        let place = Arc::clone(places).acquire_owned().await.map_err(|_| Error::Closed)?;
        let read = tokio::task::spawn_blocking(move || {
            let _place = place;
            read()
        });
        // The other error is a panic of the read.
        read.await.unwrap_or(Err(Error::Closed))
    };
    timeout(STORE_TIME, reading).await.map_err(|_| Error::TimedOut)?
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    /// The result of a read whose time limit expires.
    async fn in_the_end<T: Send + 'static>(
        places: &Arc<Semaphore>,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        // Advanced by hand: a paused clock does not advance by itself while a blocking thread runs.
        tokio::join!(read(places, work), tokio::time::advance(STORE_TIME)).0
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_reads_keep_their_permits_until_they_end() {
        let places = Arc::new(Semaphore::new(1));
        let (go_on, wait) = sync_channel(1);
        let hung = in_the_end(&places, move || wait.recv().map_err(|_| Error::Closed)).await;
        assert!(matches!(hung, Err(Error::TimedOut)));
        let second = in_the_end(&places, || Ok(())).await;
        assert!(matches!(second, Err(Error::TimedOut)), "it has found a place");
        go_on.send(()).unwrap();
        drop(places.acquire().await.unwrap());
        assert!(read(&places, || Ok(())).await.is_ok());
    }
}
