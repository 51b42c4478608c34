//! A store in a database, for several hosts.

use std::sync::{Arc, Mutex, OnceLock};

use arc_swap::ArcSwap;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::copies::CopyTurns;
use super::engine::Engine;
use super::{COMMIT_PATIENCE, Inner, OpenOptions, QUEUE_PATIENCE, Store, secrets};
use crate::audit::AuditAction;
use crate::changes::{WriteBatch, guarded};
use crate::commit::CommitHead;
use crate::database::{Database, LedgerMode};
use crate::directory::Directory;
use crate::error::{Error, OpenError};
use crate::header::Header;
use crate::ids::StoreId;
use crate::ledger::Ledger;
use crate::open::{
    AcceptedLoss, Given, LoadedDirectory, OpenedDatabase, Sources, WitnessFile, first_changes, open_database,
    read_directory,
};
use crate::pending::{self, Pending};
use crate::postgres;
use crate::published::PublishedState;
use crate::queue::{LaneQueues, job};
use crate::root_key::{RootKeyMaterial, WrapKeys};
use crate::rows::SetHash;
use crate::seal::StoreKeys;
use crate::shared_flush::SharedFlush;
use crate::state::Guard;
use crate::vault::VaultReader;

impl Store {
    /// Makes a store in an empty database and opens it for one command. The root key is made too, where
    /// its source makes keys.
    ///
    /// # Errors
    /// [`OpenError::StoreExists`], [`OpenError::NewRootKey`], [`OpenError::Database`].
    pub fn create_in(target: &Database, options: &OpenOptions) -> Result<Store, OpenError> {
        let database = &target.connector;
        let runtime = postgres::ReadingRuntime::new().map_err(OpenError::Thread)?;
        postgres::prepare(database, runtime.handle())?;
        if postgres::has_store(database, runtime.handle())? {
            return Err(OpenError::StoreExists);
        }
        let material = options.root_key.read_or_make().map_err(OpenError::NewRootKey)?;
        let (root, stretching) = material.to_new_key().map_err(OpenError::NewRootKey)?;
        let keys = Arc::new(StoreKeys::random(StoreId::random()?)?);
        let header = Header::new(keys.store_id(), root.record(stretching), options.clock.now_ms());
        keys.change_ring(|ring| ring.add_configured(root.wrap_key()));
        let record = keys.seal(&WrapKeys { root: Some(root.wrap_key()), ..WrapKeys::default() })?;
        let (id, root_key) = (header.store, header.root.id);
        let known = Arc::new(ArcSwap::from_pointee(header.clone()));
        let shared = published(Arc::default(), options);
        let queues = Arc::new(LaneQueues::new(1));
        let about = postgres::About::new(Arc::clone(&keys), options.clock.clone(), false);
        let host = postgres::enter(database, runtime.handle(), &options.clock, about)?;
        let access = VaultReader::new(Arc::clone(&keys));
        let engine = postgres::Engine::start(postgres::Start {
            database: Arc::clone(database),
            reload: reload(database, runtime.handle(), &access, &known),
            header: known,
            access,
            queues: Arc::clone(&queues),
            shared: Arc::clone(&shared),
            clock: options.clock.clone(),
            host,
            witness: Arc::new(postgres::Witness::new(Arc::clone(&keys), None, 0)),
            point: postgres::DirectoryPoint::default(),
            kept_bytes_max: 0,
            runtime,
            is_leased: false,
        });
        let engine = engine.map_err(OpenError::Thread)?;
        // Another host may make a store at the same time.
        let first = guarded([Guard::Store], move |batch: &mut WriteBatch| {
            let is_first = batch.is_new_store()?;
            if is_first {
                first_changes(batch, &header, &record)?;
            }
            Ok(is_first)
        });
        let (answer, pending) = Pending::new(shared);
        let permit = pending::wait(queues.queue_permit(), QUEUE_PATIENCE).unwrap_or(Err(Error::Busy));
        let made = permit.and_then(|permit| {
            queues.push(None, permit, job(first, answer));
            pending.wait(COMMIT_PATIENCE)
        });
        engine.close();
        match made {
            Ok(true) => {
                tracing::info!(store.id = %id, root_key.id = %root_key, "made a new store");
                Ok(connect(target, Given::only(material), options, FOR_A_COMMAND, false)?.0)
            }
            Ok(false) => Err(OpenError::StoreExists),
            Err(error) => Err(OpenError::Database { what: error.to_string() }),
        }
    }

    /// Opens the store that is in a database, to serve it. Requests that an earlier process of a host
    /// has left unfinished are charged. The root key is not rotated, whatever sources are given: the hosts
    /// serve with the one in force until [`Store::rotate_root`].
    ///
    /// # Errors
    /// [`OpenError::NoStore`], [`OpenError::Database`], [`OpenError::SetBack`],
    /// [`OpenError::NothingToAccept`], [`OpenError::NoNextRootKey`], and those of a wrong root key and of damage.
    pub fn open_in(database: &Database, options: &OpenOptions) -> Result<Store, OpenError> {
        let witness = WitnessFile { path: database.witness.as_deref(), accepted: options.accept_rollback };
        let (store, loss) = connect(database, given(options), options, witness, true)?;
        if let Some(loss) = loss {
            store.accept_loss(loss).map_err(|error| OpenError::Database { what: error.to_string() })?;
        }
        // Requests of hosts that have ended are charged by the host that finds these dead.
        store.begin(Vec::new(), None);
        Ok(store)
    }

    /// Opens the store that is in a database for one command, beside hosts that serve it. Nothing that
    /// is unfinished is ended: it may be under way in another process. The next root key of a rotation is
    /// not needed.
    ///
    /// # Errors
    /// Those of [`Store::open_in`].
    pub fn open_for_command(database: &Database, options: &OpenOptions) -> Result<Store, OpenError> {
        Ok(connect(database, given(options), options, FOR_A_COMMAND, false)?.0)
    }

    /// Notes in the header that the database lost commits. Other hosts that know of them go on with what is
    /// there.
    fn accept_loss(&self, AcceptedLoss { newest, chains, commits }: AcceptedLoss) -> Result<(), Error> {
        let action = AuditAction::LossAccepted { newest, chains, commits };
        let header = self.submit(guarded([Guard::Store], move |batch: &mut WriteBatch| {
            batch.change_header(action.clone(), |header| header.accepted_losses += 1)
        }))?;
        if let Engine::Postgres(engine) = &self.0.engine {
            engine.witness().begin_anew(header.accepted_losses);
            engine.witness().write().map_err(|_| Error::WriteFailed)?;
        }
        self.set_header(header);
        Ok(())
    }
}

/// A command knows nothing from before.
const FOR_A_COMMAND: WitnessFile<'static> = WitnessFile { path: None, accepted: None };

/// The root keys of the configured sources.
pub(super) fn given(options: &OpenOptions) -> Given {
    let OpenOptions { root_key, previous_root_key, .. } = options;
    Given::read(&Sources { configured: root_key, previous: previous_root_key.as_ref(), next: None })
}

fn connect(
    database: &Database,
    given: Given,
    options: &OpenOptions,
    witness: WitnessFile<'_>,
    serves: bool,
) -> Result<(Store, Option<AcceptedLoss>), OpenError> {
    let Database { connector, hosts, ledger: mode, .. } = database;
    let runtime = postgres::ReadingRuntime::new().map_err(OpenError::Thread)?;
    let opened = open_database(connector, runtime.handle(), given, &options.clock, serves, witness)?;
    let OpenedDatabase { access, header, rotate_to, directory, money, point, host, witness, loss } = opened;
    if let Some(next) = rotate_to.as_ref().and_then(RootKeyMaterial::id)
        && serves
    {
        tracing::info!(
            root_key.id = %header.root.id, next.id = %next,
            "the store has the root key of `root_key_previous`; `vault rotate-root` puts that of `root_key` in its \
             place once every host has both"
        );
    }
    let header = Arc::new(ArcSwap::from_pointee(header));
    let queues = Arc::new(LaneQueues::new(postgres::LANES));
    let shared = published(directory, options);
    let clock = options.clock.clone();
    let ledger = Ledger::new(money.accounts, Arc::clone(&queues), Arc::clone(&shared), clock.clone());
    let engine = postgres::Engine::start(postgres::Start {
        database: Arc::clone(connector),
        reload: reload(connector, runtime.handle(), &access, &header),
        header: Arc::clone(&header),
        access: access.clone(),
        queues: Arc::clone(&queues),
        shared: Arc::clone(&shared),
        clock: clock.clone(),
        host,
        witness,
        point,
        kept_bytes_max: if serves { database.kept_bytes_max } else { 0 },
        runtime,
        is_leased: serves && *mode == LedgerMode::Leased,
    });
    let store = Store(Arc::new(Inner {
        engine: Engine::Postgres(engine.map_err(OpenError::Thread)?),
        keys: Arc::clone(&access.keys),
        queues,
        shared,
        ledger,
        clock,
        header,
        database_hosts: Some(hosts.clone()),
        implied_key: None,
        operation: Mutex::default(),
        backup: Mutex::default(),
        notes: OnceLock::new(),
        access,
        page_reads: Arc::new(Semaphore::new(secrets::PAGE_READS_MAX)),
        copies: CopyTurns::default(),
        flushes: SharedFlush::default(),
    }));
    Ok((store, loss))
}

/// Reads the header and the whole directory, when changes of them may have been missed.
fn reload(
    database: &Arc<postgres::Database>,
    runtime: &Handle,
    access: &VaultReader,
    header: &Arc<ArcSwap<Header>>,
) -> postgres::Reload {
    let (database, runtime) = (Arc::clone(database), runtime.clone());
    let (access, known) = (access.clone(), Arc::clone(header));
    Arc::new(move || {
        let LoadedDirectory { header, directory, point, .. } = read_directory(&database, &runtime, &access)?;
        header.into_iter().for_each(|header| known.store(Arc::new(header)));
        Ok((directory, point))
    })
}

/// What a host publishes that has made no commit yet.
fn published(directory: Arc<Directory>, options: &OpenOptions) -> Arc<PublishedState> {
    let nothing = CommitHead { seq: 0, head: [0; 32], set: SetHash::default(), heads: SetHash::default() };
    Arc::new(PublishedState::new(directory, nothing, options.clock.clone()))
}
