//! The store as the rest of the program uses it.

mod approvals;
mod backup;
mod conversations;
mod copies;
#[cfg(feature = "postgres")]
mod database;
mod engine;
mod guests;
mod hosts;
mod key_records;
mod keys;
mod log;
mod money;
#[cfg(feature = "postgres")]
mod moving;
#[cfg(not(feature = "postgres"))]
mod no_database;
mod orphans;
mod records;
mod reservation;
mod retention;
mod secrets;
mod status;
mod vault_keys;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use copies::CopyTurns;
use engine::Engine;
use tokio::sync::Semaphore;

use crate::audit::Actor;
use crate::changes::{
    Change, Intent, MemberDeleted, NewIntern, NewMember, NewWorkspace, WorkspaceChange, WorkspaceDeleted,
    guarded,
};
use crate::clock::Clock;
use crate::directory::Directory;
use crate::error::{Error, OpenError};
#[cfg(test)]
use crate::fjall::Anchor;
use crate::fjall::{self, DirectoryLock};
use crate::header::Header;
use crate::ids::{InternId, MemberId, VaultId, WorkspaceId};
use crate::ledger::Ledger;
use crate::open::{self, OpenedStore, Sources};
use crate::pending::{self, Pending, QueuePermit};
use crate::published::PublishedState;
use crate::queue::{LaneQueues, job};
use crate::quota::VaultQuota;
use crate::records::{Intern, Member, MemberRole, Workspace};
use crate::root_key::{RootKeyMaterial, RootKeySource};
use crate::seal::StoreKeys;
#[cfg(feature = "postgres")]
use crate::shared_flush::SharedFlush;
use crate::state::Guard;
use crate::vault::{VaultReader, VaultSnapshot};

pub use approvals::APPROVAL_PROOF_DIGITS;
pub use copies::CopyPermit;
pub use key_records::{RecoveryKey, RootRotation};
pub use keys::IssuedKey;
pub use log::RefusedTokens;
pub use orphans::OrphansRemoved;
pub use reservation::{Pledge, Reservation};
pub use status::StoreStatus;
pub use vault_keys::KeyRotation;

/// How long a mutation waits for a permit for the writer's queue.
const QUEUE_PATIENCE: Duration = Duration::from_secs(10);
/// How long a queued mutation waits for its commit.
const COMMIT_PATIENCE: Duration = Duration::from_secs(15);

/// Name of the key file in the data directory that is used when no key source is configured.
const IMPLIED_KEY: &str = "root.key";
/// Name of the next key file during a rotation.
const IMPLIED_KEY_NEXT: &str = "root.key.next";

/// Options for opening a store.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Source of the root key.
    pub root_key: RootKeySource,
    /// Source of the previous root key, so that a rotation can begin or finish.
    pub previous_root_key: Option<RootKeySource>,
    /// Accepts a store that does not match its anchor, if its last commit has at most this number.
    pub accept_rollback: Option<u64>,
    /// The clock for dates, expiry and the stall watchdog.
    pub clock: Clock,
}

/// What a database got from a data directory, see [`Store::move_to`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MoveSummary {
    /// Sequence number of the last commit.
    pub seq: u64,
    /// Number of rows.
    pub rows: u64,
    /// Number of secrets. Each was decrypted in the copy.
    pub secrets: u64,
    /// Number of API keys, including revoked ones.
    pub keys: u64,
}

/// An open store. Clones share it; dropping the last one closes it.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

struct Inner {
    engine: Engine,
    keys: Arc<StoreKeys>,
    queues: Arc<LaneQueues>,
    shared: Arc<PublishedState>,
    ledger: Ledger,
    clock: Clock,
    header: Arc<ArcSwap<Header>>,
    /// The hosts of the database that has the store; `None` for the embedded engine.
    database_hosts: Option<Vec<String>>,
    /// Path of `root.key` in the data directory, if the root key comes from there.
    implied_key: Option<PathBuf>,
    /// Held during an operation that changes keys or deletes vaults.
    operation: Mutex<()>,
    /// Held while a backup is written.
    backup: Mutex<()>,
    /// The data directory of this host, where the last backup is noted.
    notes: OnceLock<PathBuf>,
    access: VaultReader,
    /// Permits for reading pages of secrets.
    page_reads: Arc<Semaphore>,
    copies: CopyTurns,
    /// Commits that readers wait for.
    #[cfg(feature = "postgres")]
    flushes: SharedFlush,
}

impl Store {
    /// Whether the directory holds a store. Creates nothing.
    ///
    /// # Errors
    /// [`OpenError::Io`]; [`OpenError::StoreMissing`] when the directory has an anchor but its
    /// store was moved or deleted.
    pub fn exists(dir: &Path) -> Result<bool, OpenError> {
        open::store_exists(dir)
    }

    /// Opens the store in the locked directory. Creates it first if there is none.
    ///
    /// # Errors
    /// See [`OpenError`]; [`OpenError::is_configuration`] is true for errors of the root key.
    pub fn open(lock: DirectoryLock, options: OpenOptions) -> Result<Store, OpenError> {
        let opened = open_in(&lock, &options)?;
        Store::start(lock, opened, options)
    }

    fn start(lock: DirectoryLock, opened: OpenedStore, options: OpenOptions) -> Result<Store, OpenError> {
        let OpenOptions { root_key, clock, .. } = options;
        let implied_key = implied_key(&lock, &root_key);
        let anchor_file = open::anchor_file(lock.dir());
        let OpenedStore {
            database,
            access,
            anchor,
            header,
            rotate_to,
            directory,
            money,
            last_commit,
            journal_cut,
        } = opened;
        let queues = Arc::new(LaneQueues::new(1));
        let shared = Arc::new(PublishedState::new(directory, last_commit, clock.clone()));
        let ledger = Ledger::new(money.accounts, Arc::clone(&queues), Arc::clone(&shared), clock.clone());
        let start = fjall::Start { lock, database, anchor, anchor_file, journal_cut };
        let engine = fjall::Engine::start(
            start,
            access.clone(),
            Arc::clone(queues.first()),
            Arc::clone(&shared),
            clock.clone(),
        );
        let store = Store(Arc::new(Inner {
            engine: Engine::Fjall(engine.map_err(OpenError::Thread)?),
            keys: Arc::clone(&access.keys),
            queues,
            shared,
            ledger,
            clock,
            header: Arc::new(ArcSwap::from_pointee(header)),
            database_hosts: None,
            implied_key,
            operation: Mutex::default(),
            backup: Mutex::default(),
            notes: OnceLock::new(),
            access,
            page_reads: Arc::new(Semaphore::new(secrets::PAGE_READS_MAX)),
            copies: CopyTurns::default(),
            #[cfg(feature = "postgres")]
            flushes: SharedFlush::default(),
        }));
        store.begin(money.intents, rotate_to);
        Ok(store)
    }

    /// Ends what an earlier process has left: requests that were running are charged from their
    /// intents, and a change of keys goes on.
    fn begin(&self, intents: Vec<Intent>, rotate_to: Option<RootKeyMaterial>) {
        if let Err(error) = self.settle_interrupted(intents) {
            tracing::error!(%error, "requests that were interrupted could not be charged; the next start will");
        }
        if let Err(error) = self.go_on(rotate_to) {
            tracing::error!(%error, "a change of keys that was begun earlier could not be ended");
        }
    }

    /// The state after the last commit.
    pub(crate) fn directory(&self) -> arc_swap::Guard<Arc<Directory>> {
        self.0.shared.directory.load()
    }

    /// Creates a workspace and its member `owner`.
    ///
    /// # Errors
    /// [`Error::NameTaken`], and the errors of every mutation: [`Error::Busy`],
    /// [`Error::NotWritable`] and [`Error::Closed`] when the store does not accept it,
    /// [`Error::TimedOut`] and [`Error::WriteFailed`] when the outcome is unknown.
    pub fn create_workspace(&self, actor: Actor, new: NewWorkspace) -> Result<Workspace, Error> {
        self.submit(guarded([Guard::Store], move |batch| batch.create_workspace(actor, &new)).adding())
    }

    /// Changes the settings of a workspace.
    ///
    /// # Errors
    /// [`Error::Lookup`], and those of every mutation.
    pub fn set_workspace(
        &self,
        actor: Actor,
        id: WorkspaceId,
        change: WorkspaceChange,
    ) -> Result<Workspace, Error> {
        self.submit(guarded([Guard::Workspace(id)], move |batch| batch.set_workspace(actor, id, change)))
    }

    /// Creates a member.
    ///
    /// # Errors
    /// [`Error::Lookup`], [`Error::NameTaken`], and those of every mutation.
    pub fn create_member(&self, actor: Actor, new: NewMember) -> Result<Member, Error> {
        let guard = Guard::Workspace(new.workspace);
        self.submit(guarded([guard], move |batch| batch.create_member(actor, &new)).adding())
    }

    /// Sets a member's role. It applies to the next request.
    ///
    /// # Errors
    /// [`Error::Lookup`], and those of every mutation.
    pub fn set_member_role(&self, actor: Actor, id: MemberId, role: MemberRole) -> Result<Member, Error> {
        self.submit(guarded([], move |batch| batch.set_member_role(actor, id, role)))
    }

    /// Deletes a member and revokes its keys. The interns it created stay.
    ///
    /// # Errors
    /// [`Error::Lookup`], [`Error::OwnerStays`], and those of every mutation.
    pub fn delete_member(&self, actor: Actor, id: MemberId) -> Result<MemberDeleted, Error> {
        self.submit(guarded([], move |batch| batch.delete_member(actor, id)))
    }

    /// Deletes a workspace with its members, its interns and their vaults, and revokes its keys.
    ///
    /// # Errors
    /// [`Error::Lookup`], and those of every mutation.
    pub fn delete_workspace(&self, actor: Actor, id: WorkspaceId) -> Result<WorkspaceDeleted, Error> {
        let guards = [Guard::Store, Guard::Workspace(id), Guard::Vault(VaultId::Workspace(id))];
        self.submit(guarded(guards, move |batch| batch.delete_workspace(actor, id)))
    }

    /// Creates an intern.
    ///
    /// # Errors
    /// [`Error::Lookup`], [`Error::NameTaken`], [`Error::OtherWorkspace`], and those of every
    /// mutation.
    pub fn create_intern(&self, actor: Actor, new: NewIntern) -> Result<Intern, Error> {
        let guard = Guard::Workspace(new.workspace);
        self.submit(guarded([guard], move |batch| batch.create_intern(actor, &new)).adding())
    }

    /// Deletes an intern with its secrets and revokes its keys.
    ///
    /// # Errors
    /// [`Error::Lookup`], and those of every mutation.
    pub fn delete_intern(&self, actor: Actor, id: InternId) -> Result<Intern, Error> {
        let guard = Guard::Vault(VaultId::Intern(id));
        self.submit(guarded([guard], move |batch| batch.delete_intern(actor, id)))
    }

    /// Sets how much of the disk must stay free: with less, changes by clients and requests of
    /// prepaid workspaces are refused. With 0 nothing is refused, and there is no reserve file.
    pub fn set_free_bytes_min(&self, bytes: u64) {
        self.0.engine.set_free_bytes_min(bytes);
    }

    /// Sets for how many milliseconds after the end of its contact with the database this host serves requests
    /// of models by what it knows. With 0 it refuses them.
    pub fn set_stale_ms(&self, stale_ms: u64) {
        self.0.shared.set_stale_ms(stale_ms);
    }

    /// Sets the quota of vaults.
    pub fn set_vault_quota(&self, quota: VaultQuota) {
        self.0.access.quotas.set(quota);
    }

    /// Waits until everything handed over before, including usage rows, is on the disk.
    ///
    /// # Errors
    /// Those of every mutation.
    pub fn flush(&self) -> Result<(), Error> {
        let mut waiting = Vec::new();
        for queue in self.0.queues.all() {
            let permit = pending::wait(queue.queue_permit(), QUEUE_PATIENCE).ok_or(Error::Busy)?;
            let permit = permit.map_err(|_| self.0.shared.refusal())?;
            let (answer, pending) = Pending::new(Arc::clone(&self.0.shared));
            queue.push(permit, job(guarded([], |_| Ok(())), answer));
            waiting.push(pending);
        }
        waiting.into_iter().try_for_each(|pending| pending.wait(COMMIT_PATIENCE))
    }

    /// Writes what is queued, ends the writer, closes the database and releases the directory.
    /// Closing twice is harmless.
    pub fn close(&self) {
        self.0.close();
    }

    /// A view of the state after the last commit. Never waits for the writer.
    fn view(&self) -> Result<VaultSnapshot, Error> {
        Ok(self.0.access.view(self.0.engine.state()?))
    }

    /// Reads the disk on a blocking thread, so that the thread of the caller does not wait. The read
    /// goes on when its caller has given up.
    async fn aside<T: Send + 'static, E: From<Error> + Send + 'static>(
        &self,
        read: impl FnOnce(&Store) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        let store = self.clone();
        let read = tokio::task::spawn_blocking(move || read(&store));
        // The other error is a panic of the read, or the end of the program.
        read.await.unwrap_or_else(|_| Err(Error::Closed.into()))
    }

    /// Waits for a permit for the writer's queue, which has 512. Dropping the future gives the wait
    /// up.
    ///
    /// # Errors
    /// [`Error::NoContact`], [`Error::NotWritable`] and [`Error::Closed`].
    pub async fn queue_permit(&self) -> Result<QueuePermit, Error> {
        self.0.shared.check_contact()?;
        self.0.queues.queue_permit().await.map_err(|_| self.0.shared.refusal())
    }

    /// Like [`Store::queue_permit`], but blocks this thread for at most `patience`.
    ///
    /// # Errors
    /// [`Error::Busy`] when no permit was free in time; [`Error::NoContact`], [`Error::NotWritable`]
    /// and [`Error::Closed`].
    pub fn queue_permit_within(&self, patience: Duration) -> Result<QueuePermit, Error> {
        pending::wait(self.queue_permit(), patience).unwrap_or(Err(Error::Busy))
    }

    /// The workspace that a change belongs to, as far as its guards tell: that of the first guard which
    /// is not the store's.
    fn workspace_of(&self, change: &impl Change) -> Option<WorkspaceId> {
        if self.0.queues.is_one() {
            return None;
        }
        change.guards().into_iter().find_map(|guard| match guard {
            Guard::Store | Guard::Header => None,
            Guard::Workspace(id) | Guard::Account(id) | Guard::Quota(id) => Some(id),
            Guard::Vault(vault) => self.workspace_of_vault(vault),
        })
    }

    /// The workspace that a vault belongs to, as far as this process knows.
    fn workspace_of_vault(&self, vault: VaultId) -> Option<WorkspaceId> {
        match vault {
            VaultId::Workspace(id) => Some(id),
            VaultId::Intern(id) => self.directory().interns.get(&id).map(|intern| intern.workspace),
            VaultId::Operator => None,
        }
    }

    /// Hands a change to the writer.
    fn enqueue<C: Change>(&self, permit: QueuePermit, change: C) -> Pending<C::Done> {
        let (answer, pending) = Pending::new(Arc::clone(&self.0.shared));
        self.0.queues.push(self.workspace_of(&change), permit, job(change, answer));
        pending
    }

    /// Makes a change on the writer's thread and waits until it is durable.
    fn submit<C: Change>(&self, change: C) -> Result<C::Done, Error> {
        let permit = self.queue_permit_within(QUEUE_PATIENCE)?;
        self.enqueue(permit, change).wait(COMMIT_PATIENCE)
    }

    #[cfg(test)]
    pub(crate) fn make<C: Change>(&self, change: C) -> Result<C::Done, Error> {
        self.submit(change)
    }

    #[cfg(all(test, feature = "postgres"))]
    pub(crate) fn snapshot(&self) -> Result<VaultSnapshot, Error> {
        self.view()
    }

    #[cfg(test)]
    pub(crate) fn whole_state(&self) -> Box<dyn crate::state::State> {
        self.0.engine.state().unwrap()
    }

    /// Opens a store with another anchor, so that a test can make writes of the anchor fail.
    #[cfg(test)]
    fn open_with_anchor(lock: DirectoryLock, options: OpenOptions, anchor: Anchor) -> Store {
        let opened = open_in(&lock, &options).unwrap();
        Store::start(lock, OpenedStore { anchor, ..opened }, options).unwrap()
    }
}

/// The key file of the data directory, if this source is that file.
fn implied_key(lock: &DirectoryLock, source: &RootKeySource) -> Option<PathBuf> {
    let implied = lock.dir().join(IMPLIED_KEY);
    (*source == RootKeySource::File(implied.clone())).then_some(implied)
}

fn open_in(lock: &DirectoryLock, options: &OpenOptions) -> Result<OpenedStore, OpenError> {
    sources(lock, options, |sources| open::open(lock.dir(), sources, options.accept_rollback, &options.clock))
}

/// The sources of root keys for opening or restoring a store.
fn sources<T>(lock: &DirectoryLock, options: &OpenOptions, use_them: impl FnOnce(&Sources<'_>) -> T) -> T {
    // During a rotation of the implied key file, the next key is in a file beside it.
    let implied = implied_key(lock, &options.root_key);
    let next = RootKeySource::File(lock.dir().join(IMPLIED_KEY_NEXT));
    let sources = Sources {
        configured: &options.root_key,
        previous: options.previous_root_key.as_ref(),
        next: implied.is_some().then_some(&next),
    };
    use_them(&sources)
}

impl Inner {
    fn close(&self) {
        self.engine.give_back();
        self.queues.close();
        self.engine.close();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("id", &self.0.keys.store_id()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
