//! Waits for changes of the store, with a time limit for each step.

use std::time::Duration;

use cofferdam_store::{Error, Pending};
use tokio::time::timeout;

/// The maximum wait for a permit of the writer's queue.
const PERMIT_TIME: Duration = Duration::from_secs(15);
/// From the permit until the commit is durable.
const COMMIT_TIME: Duration = Duration::from_secs(5);

/// Waits for a permit.
///
/// # Errors
///
/// [`Error::Busy`] without a permit in time: nothing was changed. Otherwise the error of the store.
pub(super) async fn permit<P>(waiting: impl Future<Output = Result<P, Error>>) -> Result<P, Error> {
    timeout(PERMIT_TIME, waiting).await.map_err(|_| Error::Busy)?
}

/// Waits until a change is durable.
///
/// # Errors
///
/// [`Error::Busy`] if the writer has not begun the change in time: nothing was changed.
/// [`Error::TimedOut`] without a commit in time: the outcome is unknown. Otherwise the error of the
/// store.
pub(super) async fn durable<T>(change: Pending<T>) -> Result<T, Error> {
    change.within(COMMIT_TIME).await
}
