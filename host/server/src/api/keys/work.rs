//! Waits for the store to change a key, with a time limit for each step.

use std::time::Duration;

use cofferdam_store::{Error, Pending, QueuePermit, Store};
use tokio::time::timeout;

use crate::fault::{Fault, FieldError};

/// The maximum wait for a permit of the writer's queue. When it expires, nothing was changed.
const PLACE_TIME: Duration = Duration::from_secs(15);
/// The maximum wait for the commit. When it expires, the outcome is unknown.
const COMMIT_TIME: Duration = Duration::from_secs(5);

/// Makes a change and waits until it is durable.
///
/// # Errors
///
/// The store refuses the change, its queue is full for too long, or the outcome is unknown.
pub(super) async fn carry_out<T>(
    store: &Store,
    change: impl FnOnce(QueuePermit) -> Pending<T>,
) -> Result<T, Fault> {
    let place = timeout(PLACE_TIME, store.place()).await.map_err(|_| Fault::Busy)?.map_err(refused)?;
    timeout(COMMIT_TIME, change(place)).await.map_err(|_| Fault::OutcomeUnknown)?.map_err(refused)
}

/// The fault for an error of the store. The error itself is logged unless the request caused it.
fn refused(error: Error) -> Fault {
    let fault = match error {
        // The key, or its owner, was deleted after it was looked up.
        Error::Lookup(_) | Error::KeyRevoked => return Fault::NotFound,
        Error::NoSpace => return Fault::Busy,
        Error::AlreadyExpired => {
            return Fault::Flawed(FieldError::at("expires_at", "must lie in the future"));
        }
        Error::Busy => Fault::Busy,
        Error::TimedOut | Error::WriteFailed => Fault::OutcomeUnknown,
        _ => Fault::Internal,
    };
    tracing::error!(%error, "a key could not be changed");
    fault
}
