//! Waiting for the store to change a key, each wait with its end.

use std::time::Duration;

use cofferdam_store::{Error, Pending, Place, Store};
use tokio::time::timeout;

use crate::reply::{Fault, Flaw};

/// For a place in the writer's queue: after that nothing was done.
const PLACE_TIME: Duration = Duration::from_secs(15);
/// For the commit: after that nobody knows.
const COMMIT_TIME: Duration = Duration::from_secs(5);

/// Has a change made, and waits until it is durable.
///
/// # Errors
///
/// It was refused, there was no place in time, or nobody knows what became of it.
pub(super) async fn carry_out<T>(
    store: &Store,
    change: impl FnOnce(Place) -> Pending<T>,
) -> Result<T, Fault> {
    let place = timeout(PLACE_TIME, store.place()).await.map_err(|_| Fault::Busy)?.map_err(refused)?;
    timeout(COMMIT_TIME, change(place)).await.map_err(|_| Fault::OutcomeUnknown)?.map_err(refused)
}

/// What a client is told of an error of the store; the log gets the error.
fn refused(error: Error) -> Fault {
    let fault = match error {
        // It has gone since it was looked up.
        Error::Lookup(_) | Error::KeyRevoked => return Fault::NotFound,
        Error::NoSpace => return Fault::Busy,
        Error::AlreadyExpired => return Fault::Flawed(Flaw::at("expires_at", "must lie in the future")),
        Error::Busy => Fault::Busy,
        Error::TimedOut | Error::WriteFailed => Fault::OutcomeUnknown,
        _ => Fault::Internal,
    };
    tracing::error!(%error, "a key could not be changed");
    fault
}
