//! What authenticates requests to providers and to export destinations.

use cofferdam_egress::{Credential, Placement};
use cofferdam_store::{
    Actor, Error as StoreError, HostName, Purpose, ReleaseError, ReleaseScope, SecretName, Store,
};
use std::time::Duration;

/// How long reading a secret may take; usually it takes microseconds.
const STORE_PATIENCE: Duration = Duration::from_secs(5);

/// What authenticates requests to a provider.
#[derive(Debug)]
pub struct Authentication {
    /// Where the credential stands in a request.
    pub placement: Placement,
    /// The operator's.
    pub own: Option<OwnKey>,
    /// The caller's, which wins when it is bound to the origin's host.
    pub byok: Option<BoundSecret>,
}

/// The operator's credential for a provider.
#[derive(Debug)]
pub enum OwnKey {
    /// Read once, from the environment; it belongs to the origin.
    Fixed(Credential),
    /// A secret of the operator's vault.
    Vault(BoundSecret),
}

/// A secret, and the host it is wanted for: the one of the provider's origin.
#[derive(Clone, Debug)]
pub struct BoundSecret {
    /// Its name.
    pub name: SecretName,
    /// Where it would go.
    pub host: HostName,
}

/// The credential of one attempt.
pub(crate) struct Used {
    pub(crate) credential: Credential,
    /// It is the caller's own.
    pub(crate) is_byok: bool,
}

/// The operator's credential for a broadcast destination with this name.
///
/// # Errors
/// Why there is none, for the operator; it says nothing about the value.
pub(crate) async fn operators(
    store: &Store,
    key: &OwnKey,
    placement: &Placement,
    destination: &str,
) -> Result<Credential, String> {
    let secret = match key {
        OwnKey::Fixed(credential) => return Ok(credential.clone()),
        OwnKey::Vault(secret) => secret.clone(),
    };
    let store = store.clone();
    let purpose = Purpose { used_by: format!("broadcast {destination}"), request_id: String::new() };
    let release = aside(move || {
        store.release(Actor::System, ReleaseScope::Operator, &secret.name, &secret.host, &purpose)
    });
    let release = release.await.map_err(|error| error.to_string())?;
    placement.fill(release.expose()).map_err(|error| error.to_string())
}

/// The store reads its files on the calling thread; requests must not wait for a slow disk, and for one that hangs
/// not for ever.
pub(crate) async fn aside<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, ReleaseError> + Send + 'static,
) -> Result<T, ReleaseError> {
    let read = tokio::task::spawn_blocking(read);
    match tokio::time::timeout(STORE_PATIENCE, read).await {
        // It only fails to finish when the program ends.
        Ok(finished) => finished.unwrap_or(Err(ReleaseError::Store(StoreError::Closed))),
        Err(_elapsed) => Err(ReleaseError::Store(StoreError::TimedOut)),
    }
}
