//! Test helpers: a data directory for one test, with a clock that stands still; and the end of the load of a test.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::LazyLock;
#[cfg(feature = "postgres")]
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::audit::Actor;
use crate::changes::{KeyOwner, NewKey, NewWorkspace};
use crate::clock::Clock;
#[cfg(feature = "postgres")]
use crate::database::Database;
use crate::error::{Error, OpenError};
use crate::fjall::DirectoryLock;
use crate::ids::VaultId;
use crate::name::Name;
use crate::records::Workspace;
use crate::root_key::RootKeySource;
use crate::secret::{Hosts, SecretMetadata, SecretValue};
use crate::spend::SpendLimits;
use crate::store::{IssuedKey, OpenOptions, Store};
use crate::vault::NewSecret;

/// With the value `postgres`, the stores of tests are in databases of a PostgreSQL server.
#[cfg(feature = "postgres")]
const STORE: &str = "COFFERDAM_STORE";

/// Says that the load of a test is over when this is dropped: also when an assertion fails, because the scope of the load's
/// threads waits for them.
pub(crate) struct Over<'a>(pub(crate) &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

pub(crate) struct ScratchDirectory {
    folder: TempDir,
    pub(crate) clock: Clock,
    #[cfg(feature = "postgres")]
    database: Option<Database>,
}

impl ScratchDirectory {
    pub(crate) fn new() -> ScratchDirectory {
        ScratchDirectory {
            folder: tempfile::tempdir().unwrap(),
            clock: Clock::manual(),
            #[cfg(feature = "postgres")]
            database: database(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn lock(&self) -> DirectoryLock {
        DirectoryLock::acquire(self.folder.path()).unwrap()
    }

    pub(crate) fn options(&self) -> OpenOptions {
        let root_key = RootKeySource::File(self.path("root.key"));
        OpenOptions { root_key, previous_root_key: None, accept_rollback: None, clock: self.clock.clone() }
    }

    pub(crate) fn try_open(&self) -> Result<Store, OpenError> {
        #[cfg(feature = "postgres")]
        if let Some(database) = &self.database {
            return match Store::open_in(database, &self.options()) {
                Err(OpenError::NoStore) => {
                    drop(Store::create_in(database, &self.options())?);
                    Store::open_in(database, &self.options())
                }
                opened => opened,
            };
        }
        Store::open(self.lock(), self.options())
    }

    pub(crate) fn open(&self) -> Store {
        self.try_open().unwrap()
    }

    pub(crate) fn accept(&self, seq: u64) -> Result<Store, OpenError> {
        Store::open(self.lock(), OpenOptions { accept_rollback: Some(seq), ..self.options() })
    }
}

/// A new database, where the stores of tests are in databases.
#[cfg(feature = "postgres")]
fn database() -> Option<Database> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let is_wanted = std::env::var(STORE).is_ok_and(|value| value == "postgres");
    is_wanted.then(|| {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("scratch_{}_{number}", std::process::id());
        Database::of_test(&cofferdam_test_postgres::Server::shared().unwrap().database(&name).unwrap())
    })
}

/// Waits for a read of the store on a thread without a runtime.
pub(crate) trait Now: Future + Sized {
    fn now(self) -> Self::Output {
        static RUNTIME: LazyLock<Runtime> =
            LazyLock::new(|| Builder::new_current_thread().enable_time().build().unwrap());
        RUNTIME.block_on(self)
    }
}

impl<F: Future> Now for F {}

pub(crate) fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

pub(crate) fn create_workspace(store: &Store, text: &str) -> Workspace {
    let new = NewWorkspace { name: name(text), programme: false, vault_writes: false };
    store.create_workspace(Actor::Operator, new).unwrap()
}

/// Issues a key for the owner of the workspace `default`.
pub(crate) fn issue_key(store: &Store) -> IssuedKey {
    let workspace = store.directory().find_workspace("default").unwrap().id;
    let owner = KeyOwner::Member { workspace, member: None };
    let new = NewKey { owner, name: None, expires_at_ms: None, limits: SpendLimits::default() };
    store.issue_key(Actor::Operator, new).unwrap()
}

pub(crate) fn token(issued: &IssuedKey) -> String {
    String::from_utf8(issued.token.expose().to_vec()).unwrap()
}

/// A secret for two hosts.
pub(crate) fn new_secret(vault: VaultId, name: &str, value: &str) -> NewSecret {
    let value = SecretValue::new(value.to_owned().into()).unwrap();
    let hosts = Hosts::parse(&["api.example.com", "b.example"]).unwrap();
    NewSecret { vault, name: name.parse().unwrap(), hosts, value }
}

/// Stores a secret for two hosts.
pub(crate) fn try_put(
    store: &Store,
    vault: VaultId,
    name: &str,
    value: &str,
) -> Result<SecretMetadata, Error> {
    let patience = Duration::from_secs(60);
    let new = new_secret(vault, name, value);
    store.put_secret(store.queue_permit_within(patience)?, Actor::Operator, new).wait(patience)
}

pub(crate) fn put(store: &Store, vault: VaultId, name: &str, value: &str) -> SecretMetadata {
    try_put(store, vault, name, value).unwrap()
}

/// What the check of the store says about the audit log: `None` when its chain holds.
pub(crate) fn broken_audit(store: &Store) -> Option<String> {
    let problems = store.verify(&mut go_on).unwrap().problems;
    problems.into_iter().find(|problem| problem.starts_with("the audit log breaks"))
}

/// A progress callback that never cancels.
pub(crate) fn go_on(_: &str, _: u64, _: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// A progress callback that cancels after `step` calls.
pub(crate) fn stop_at(step: usize) -> impl FnMut(&str, u64, u64) -> ControlFlow<()> {
    let mut seen = 0;
    move |_, _, _| {
        seen += 1;
        if seen > step { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
