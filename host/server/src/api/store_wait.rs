//! Waits for changes of the store, with a time limit for each step.

use std::time::Duration;

use cofferdam_store::{Error, Pending, QueuePermit, Store};
use tokio::time::timeout;

/// The maximum wait for a permit of the writer's queue.
const PERMIT_TIME: Duration = Duration::from_secs(15);
/// From the permit until the commit is durable.
const COMMIT_TIME: Duration = Duration::from_secs(5);

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
    timeout(COMMIT_TIME, change(place)).await.map_err(|_| Error::TimedOut)?
}
