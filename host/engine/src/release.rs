//! Takes secrets out of the vault, for plugins and for requests to providers.
//!
//! The store reads its files on the calling thread. A blocking thread and a time limit keep requests
//! from waiting for a slow disk, or for ever for one that hangs.

use crate::authentication::{BoundSecret, OperatorKey};
use cofferdam_egress::{Credential, Placement};
use cofferdam_store::{Actor, Error, Purpose, Release, ReleaseError, ReleaseScope, SecretName, Store};
use std::time::Duration;

/// The longest time for one step of the store, which usually takes microseconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// Releases secrets on behalf of one actor, for one purpose.
#[derive(Clone)]
pub(crate) struct Releaser {
    pub(crate) store: Store,
    pub(crate) actor: Actor,
    pub(crate) purpose: Purpose,
}

impl Releaser {
    /// The names of those secrets that would be released.
    pub(crate) async fn releasable(
        &self,
        secrets: Vec<(ReleaseScope, BoundSecret)>,
    ) -> Result<Vec<SecretName>, ReleaseError> {
        self.read(move |Self { store, .. }| {
            let look = |(scope, secret): (ReleaseScope, BoundSecret)| {
                let is_bound = store.is_releasable(scope, &secret.name, &secret.host)?;
                Ok(is_bound.then_some(secret.name))
            };
            secrets.into_iter().map(look).filter_map(Result::transpose).collect()
        })
        .await
    }

    /// Releases a secret. Its audit record reaches the disk soon after.
    pub(crate) async fn release(
        &self,
        scope: ReleaseScope,
        secret: BoundSecret,
    ) -> Result<Release, ReleaseError> {
        self.read(move |Self { store, actor, purpose }| {
            store.release(actor, scope, &secret.name, &secret.host, &purpose)
        })
        .await
    }

    /// Same as [`Self::release`] if there is such a secret that is bound to the host. Lookup and
    /// release are one step: a missing secret leaves no refusal in the audit log.
    pub(crate) async fn release_if_bound(
        &self,
        scope: ReleaseScope,
        secret: BoundSecret,
    ) -> Result<Option<Release>, ReleaseError> {
        self.read(move |Self { store, actor, purpose }| {
            store.release_if_bound(actor, scope, &secret.name, &secret.host, &purpose)
        })
        .await
    }

    /// Releases a secret after its audit record is on the disk (egress rule R23).
    pub(crate) async fn release_recorded(
        &self,
        scope: ReleaseScope,
        secret: BoundSecret,
    ) -> Result<Release, ReleaseError> {
        let place = within(self.store.place()).await??;
        let pending = self.read(move |Self { store, actor, purpose }| {
            Ok(store.release_recorded(place, actor, scope, &secret.name, &secret.host, &purpose))
        });
        within(pending.await?).await?
    }

    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(Self) -> Result<T, ReleaseError> + Send + 'static,
    ) -> Result<T, ReleaseError> {
        let releaser = self.clone();
        let read = tokio::task::spawn_blocking(move || read(releaser));
        // The task is cancelled only when the program ends.
        within(read).await?.unwrap_or(Err(ReleaseError::Store(Error::Closed)))
    }
}

async fn within<F: Future>(step: F) -> Result<F::Output, Error> {
    tokio::time::timeout(PATIENCE, step).await.map_err(|_elapsed| Error::TimedOut)
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
    let purpose = Purpose { used_by: format!("broadcast {destination}"), request_id: String::new() };
    let releaser = Releaser { store: store.clone(), actor: Actor::System, purpose };
    let release = releaser.release(ReleaseScope::Operator, secret).await;
    let release = release.map_err(|error| error.to_string())?;
    Credential::new(placement, release.expose()).map_err(|error| error.to_string())
}
