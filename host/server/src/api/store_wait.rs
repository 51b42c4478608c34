//! Waits for changes of the store, with a time limit for each step.

use std::time::Duration;

use cofferdam_store::{Error, Pending};
use tokio::time::timeout;

/// The maximum wait for a permit of the writer's queue.
const PERMIT_TIME: Duration = Duration::from_secs(15);
/// From the permit until the commit is durable.
const COMMIT_TIME: Duration = Duration::from_secs(5);

/// Makes a change with the permit that `place` waits for, and waits until it is durable.
///
/// # Errors
///
/// [`Error::Busy`] without a permit in time, or if the writer has not begun the change in time:
/// nothing was changed. [`Error::TimedOut`] without a commit in time: the outcome is unknown.
/// Otherwise the error of the store.
pub(super) async fn commit<P, T>(
    place: impl Future<Output = Result<P, Error>>,
    change: impl FnOnce(P) -> Pending<T>,
) -> Result<T, Error> {
    let place = timeout(PERMIT_TIME, place).await.map_err(|_| Error::Busy)??;
    change(place).within(COMMIT_TIME).await
}
