//! What authenticates requests to providers and to export destinations.

use cofferdam_egress::{Credential, Placement};
use cofferdam_store::{
    Actor, Error as StoreError, HostName, Purpose, ReleaseError, ReleaseScope, SecretName, Store,
};
use std::time::Duration;

/// The longest time for reading a secret, which usually takes microseconds.
const STORE_PATIENCE: Duration = Duration::from_secs(5);

/// How requests to a provider are authenticated.
#[derive(Debug)]
pub struct Authentication {
    /// The header in which the credential is sent.
    pub placement: Placement,
    /// The operator's credential.
    pub own: Option<OperatorKey>,
    /// The caller's own credential. It is used instead of `own` when the caller's vault has a
    /// secret of this name that is bound to the origin's host.
    pub byok: Option<BoundSecret>,
}

/// The operator's credential for a provider or an export destination.
#[derive(Debug)]
pub enum OperatorKey {
    /// Read once from the environment. It is sent to the provider's origin only.
    Fixed(Credential),
    /// A secret of the operator's vault.
    Vault(BoundSecret),
}

/// The name of a secret, and the host of the provider's origin to which it must be bound.
#[derive(Clone, Debug)]
pub struct BoundSecret {
    /// The name in the vault.
    pub name: SecretName,
    /// The host it is sent to.
    pub host: HostName,
}

/// The credential of one attempt.
pub(crate) struct UsedCredential {
    pub(crate) credential: Credential,
    /// Whether it is the caller's own.
    pub(crate) is_byok: bool,
}

/// The operator's credential for the request export destination of this name.
///
/// # Errors
/// A text for the operator's log, without anything of the value.
pub(crate) async fn operators(
    store: &Store,
    key: &OperatorKey,
    placement: &Placement,
    destination: &str,
) -> Result<Credential, String> {
    let secret = match key {
        OperatorKey::Fixed(credential) => return Ok(credential.clone()),
        OperatorKey::Vault(secret) => secret.clone(),
    };
    let store = store.clone();
    let purpose = Purpose { used_by: format!("broadcast {destination}"), request_id: String::new() };
    let release = read_with_time_limit(move || {
        store.release(Actor::System, ReleaseScope::Operator, &secret.name, &secret.host, &purpose)
    });
    let release = release.await.map_err(|error| error.to_string())?;
    Credential::new(placement, release.expose()).map_err(|error| error.to_string())
}

/// The store reads its files on the calling thread. A blocking thread and a time limit keep
/// requests from waiting for a slow disk, or for ever for one that hangs.
pub(crate) async fn read_with_time_limit<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, ReleaseError> + Send + 'static,
) -> Result<T, ReleaseError> {
    let read = tokio::task::spawn_blocking(read);
    match tokio::time::timeout(STORE_PATIENCE, read).await {
        // The task is cancelled only when the program ends.
        Ok(finished) => finished.unwrap_or(Err(ReleaseError::Store(StoreError::Closed))),
        Err(_elapsed) => Err(ReleaseError::Store(StoreError::TimedOut)),
    }
}
