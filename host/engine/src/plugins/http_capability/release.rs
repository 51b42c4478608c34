//! Takes secrets out of the vault for one request, each after its audit record is on the disk.

use crate::caller::Caller;
use cofferdam_runtime::{Grant, SecretSource};
use cofferdam_store::{
    Actor, Error, HostName, Purpose, Release, ReleaseError, ReleaseScope, SecretName, Store, WorkspaceId,
};
use std::time::Duration;

/// The longest time for one step of the store.
const PATIENCE: Duration = Duration::from_secs(5);

/// The vault as one caller may use it.
pub(crate) struct CallerVault {
    pub(crate) store: Store,
    pub(crate) actor: Actor,
    scope: ReleaseScope,
    workspace: WorkspaceId,
}

impl CallerVault {
    pub(crate) fn of(store: &Store, caller: &Caller) -> Self {
        Self {
            store: store.clone(),
            actor: Actor::Key(caller.key),
            scope: caller.release_scope(),
            workspace: caller.workspace,
        }
    }

    /// The scope that a plugin gets the secret of this name from.
    fn scope(&self, grant: &Grant, name: &SecretName) -> ReleaseScope {
        match grant.source(name) {
            SecretSource::Caller => self.scope,
            SecretSource::Workspace => ReleaseScope::Workspace(self.workspace),
            SecretSource::Operator => ReleaseScope::Operator,
        }
    }

    /// Those of the names that would be released to this host for a plugin with this grant.
    pub(crate) async fn releasable(
        &self,
        grant: &Grant,
        names: Vec<SecretName>,
        host: HostName,
    ) -> Result<Vec<SecretName>, ReleaseError> {
        let store = self.store.clone();
        let names: Vec<(ReleaseScope, SecretName)> =
            names.into_iter().map(|name| (self.scope(grant, &name), name)).collect();
        let look = move || {
            let bound =
                names.into_iter().map(|(scope, name)| Ok((store.is_releasable(scope, &name, &host)?, name)));
            let bound: Result<Vec<(bool, SecretName)>, Error> = bound.collect();
            Ok(bound?.into_iter().filter(|(is_bound, _)| *is_bound).map(|(_, name)| name).collect())
        };
        within(tokio::task::spawn_blocking(look))
            .await?
            .unwrap_or(Err(Error::Closed))
            .map_err(ReleaseError::from)
    }

    /// Releases one secret, after its audit record is durable (egress rule R23).
    pub(crate) async fn release(
        &self,
        grant: &Grant,
        name: &SecretName,
        host: &HostName,
        purpose: &Purpose,
    ) -> Result<Release, ReleaseError> {
        let place = within(self.store.place()).await??;
        let (store, actor, scope) = (self.store.clone(), self.actor, self.scope(grant, name));
        let (name, host, purpose) = (name.clone(), host.clone(), purpose.clone());
        // It reads the row and decrypts on the calling thread, so it must not run on an async
        // worker.
        let read = move || store.release_recorded(place, actor, scope, &name, &host, &purpose);
        let pending = within(tokio::task::spawn_blocking(read)).await?.map_err(|_| Error::Closed)?;
        within(pending).await?
    }
}

async fn within<F: Future>(step: F) -> Result<F::Output, Error> {
    tokio::time::timeout(PATIENCE, step).await.map_err(|_elapsed| Error::TimedOut)
}
