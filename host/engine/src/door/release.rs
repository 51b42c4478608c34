//! Taking secrets out of the vault for one request, each with its audit record on the disk first.

use crate::ledger::Caller;
use cofferdam_store::{
    Actor, Error, HostName, Purpose, Release, ReleaseError, ReleaseScope, SecretName, Store,
};
use std::time::Duration;

/// How long the store may take for one step.
const PATIENCE: Duration = Duration::from_secs(5);

/// The vault as one caller has it.
pub(crate) struct Vault {
    pub(crate) store: Store,
    pub(crate) actor: Actor,
    pub(crate) scope: ReleaseScope,
}

impl Vault {
    pub(crate) fn of(store: &Store, caller: &Caller) -> Self {
        Self { store: store.clone(), actor: Actor::Key(caller.key), scope: caller.release_scope() }
    }

    /// Those of the names that would be released to this host.
    pub(crate) async fn releasable(
        &self,
        names: Vec<SecretName>,
        host: HostName,
    ) -> Result<Vec<SecretName>, ReleaseError> {
        let (store, scope) = (self.store.clone(), self.scope);
        let look = move || {
            let mut found = Vec::new();
            for name in names {
                if store.is_releasable(scope, &name, &host)? {
                    found.push(name);
                }
            }
            Ok(found)
        };
        within(tokio::task::spawn_blocking(look))
            .await?
            .unwrap_or(Err(Error::Closed))
            .map_err(ReleaseError::from)
    }

    /// Releases one, once its audit record is durable (R23).
    pub(crate) async fn release(
        &self,
        name: &SecretName,
        host: &HostName,
        purpose: &Purpose,
    ) -> Result<Release, ReleaseError> {
        let place = within(self.store.place()).await??;
        let (store, actor, scope) = (self.store.clone(), self.actor, self.scope);
        let (name, host, purpose) = (name.clone(), host.clone(), purpose.clone());
        // It reads the row and decrypts on the calling thread.
        let read = move || store.release_recorded(place, actor, scope, &name, &host, &purpose);
        let pending = within(tokio::task::spawn_blocking(read)).await?.map_err(|_| Error::Closed)?;
        within(pending).await?
    }
}

async fn within<F: Future>(step: F) -> Result<F::Output, Error> {
    tokio::time::timeout(PATIENCE, step).await.map_err(|_elapsed| Error::TimedOut)
}
