//! Releases of secrets from a real store: only a store can create a `Release`.

use std::time::Duration;

use cofferdam_egress::{Egress, Error, GuestReply, GuestRequest, PlacedSecret, Placement, SentSecrets};
use cofferdam_store::{
    Actor, BoundSecret, Clock, DirectoryLock, Hosts, NewSecret, OpenOptions, Purpose, Release,
    ReleaseRequest, ReleaseScope, RootKeySource, SecretValue, Store, VaultId,
};
use tempfile::TempDir;
use tokio::runtime::Builder;

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Vault {
    store: Store,
    _folder: TempDir,
}

impl Vault {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let lock = DirectoryLock::acquire(folder.path()).unwrap();
        let options = OpenOptions {
            root_key: RootKeySource::File(folder.path().join("root.key")),
            previous_root_key: None,
            accept_rollback: None,
            clock: Clock::system(),
        };
        Self { store: Store::open(lock, options).unwrap(), _folder: folder }
    }

    /// Stores a value and releases it to its host.
    pub(crate) fn release(&self, name: &str, value: &str, host: &str) -> Release {
        let new = NewSecret {
            vault: VaultId::Operator,
            name: name.parse().unwrap(),
            hosts: Hosts::parse(&[host]).unwrap(),
            value: SecretValue::new(value.to_owned().into()).unwrap(),
        };
        let permit = self.store.queue_permit_within(PATIENCE).unwrap();
        self.store.put_secret(permit, Actor::Operator, new).wait(PATIENCE).unwrap();
        let purpose = Purpose { used_by: "test".to_owned(), request_id: "resp_test".to_owned() };
        let secret = BoundSecret { name: name.parse().unwrap(), host: host.parse().unwrap() };
        let (actor, scope) = (Actor::Operator, ReleaseScope::Operator);
        let released = now(self.store.release(ReleaseRequest { actor, scope, secret, purpose }));
        released.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Stores and releases a value, with its place in a request.
    pub(crate) fn injection(&self, slot: Placement, name: &str, value: &str, host: &str) -> Injection {
        Injection { slot, secret: self.release(name, value, host) }
    }
}

/// Waits for the store on a thread of its own, because tests with a runtime call it too.
fn now<F: Future<Output: Send> + Send>(future: F) -> F::Output {
    let waiting = || Builder::new_current_thread().enable_time().build().unwrap().block_on(future);
    std::thread::scope(|scope| scope.spawn(waiting).join().unwrap())
}

/// A released secret and its place in a request.
pub(crate) struct Injection {
    pub(crate) slot: Placement,
    pub(crate) secret: Release,
}

/// Checks and sends a request with these secrets.
pub(crate) async fn fetch(
    egress: &Egress,
    request: GuestRequest,
    injections: Vec<Injection>,
) -> Result<GuestReply, Error> {
    let (secrets, releases) = injections
        .into_iter()
        .map(|Injection { slot, secret }| {
            (PlacedSecret { secret: secret.name().clone(), placement: slot }, secret)
        })
        .unzip();
    egress.fetch(&egress.check(request, secrets)?, SentSecrets::new(releases)).await
}
