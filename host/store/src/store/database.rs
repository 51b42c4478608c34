//! A store in a database, for several hosts.

use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use tokio::sync::Semaphore;

use super::engine::Engine;
use super::{COMMIT_PATIENCE, Inner, OpenOptions, QUEUE_PATIENCE, Store, secrets};
use crate::changes::{WriteBatch, guarded};
use crate::commit::CommitHead;
use crate::directory::Directory;
use crate::error::{Error, OpenError};
use crate::header::Header;
use crate::ids::StoreId;
use crate::ledger::Ledger;
use crate::open::{Given, OpenedDatabase, Sources, first_changes, open_database};
use crate::pending::{self, Pending};
use crate::postgres::{self, Database};
use crate::published::PublishedState;
use crate::queue::{LaneQueues, job};
use crate::root_key::WrapKeys;
use crate::rows::SetHash;
use crate::seal::StoreKeys;
use crate::state::Guard;
use crate::vault::VaultReader;

/// Where this host is named in the list of chains, for people who look at the table.
const HOST: &str = "host";

impl Store {
    /// Makes a store in an empty database. The root key is made too, where its source makes keys.
    ///
    /// # Errors
    /// [`OpenError::StoreExists`], [`OpenError::NewRootKey`], [`OpenError::Database`].
    pub(crate) fn create_in(database: &Arc<Database>, options: &OpenOptions) -> Result<(), OpenError> {
        let runtime = postgres::ReadingRuntime::new().map_err(OpenError::Thread)?;
        postgres::prepare(database, runtime.handle())?;
        if postgres::has_store(database, runtime.handle())? {
            return Err(OpenError::StoreExists);
        }
        let material = options.root_key.read_or_make().map_err(OpenError::NewRootKey)?;
        let (root, stretching) = material.to_new_key().map_err(OpenError::NewRootKey)?;
        let keys = Arc::new(StoreKeys::random(StoreId::random()?)?);
        let header = Header::new(keys.store_id(), root.record(stretching), options.clock.now_ms());
        keys.set_wrap_keys(WrapKeys { root: Some(root.wrap_key()), ..WrapKeys::default() });
        let record = keys.seal(&keys.wrap_keys())?;
        let (id, root_key) = (header.store, header.root.id);
        let shared = published(Arc::default(), options);
        let queues = Arc::new(LaneQueues::new(1));
        let engine = postgres::Engine::start(postgres::Start {
            database: Arc::clone(database),
            access: VaultReader::new(keys),
            queues: Arc::clone(&queues),
            shared: Arc::clone(&shared),
            clock: options.clock.clone(),
            host: HOST.to_owned(),
            seen: postgres::Seen::new(),
            runtime,
        });
        let engine = engine.map_err(OpenError::Thread)?;
        // Another host may make a store at the same time.
        let first = guarded([Guard::Store], move |draft: &mut WriteBatch| {
            let is_first = draft.is_new_store()?;
            if is_first {
                first_changes(draft, &header, &record)?;
            }
            Ok(is_first)
        });
        let (answer, pending) = Pending::new(shared);
        let place = pending::wait(queues.place(), QUEUE_PATIENCE).unwrap_or(Err(Error::Busy));
        let made = place.and_then(|place| {
            queues.push(None, place, job(first, answer));
            pending.wait(COMMIT_PATIENCE)
        });
        engine.close();
        match made {
            Ok(true) => {
                tracing::info!(store.id = %id, root_key.id = %root_key, "made a new store");
                Ok(())
            }
            Ok(false) => Err(OpenError::StoreExists),
            Err(error) => Err(OpenError::Database { what: error.to_string() }),
        }
    }

    /// Opens the store that is in a database.
    ///
    /// # Errors
    /// [`OpenError::NoStore`], [`OpenError::Database`], and those of a wrong root key and of damage.
    pub(crate) fn open_in(database: &Arc<Database>, options: &OpenOptions) -> Result<Store, OpenError> {
        let runtime = postgres::ReadingRuntime::new().map_err(OpenError::Thread)?;
        let sources = Sources {
            configured: &options.root_key,
            previous: options.previous_root_key.as_ref(),
            next: None,
        };
        let opened = open_database(database, runtime.handle(), Given::read(&sources))?;
        let OpenedDatabase { access, header, rotate_to, directory, money, seen } = opened;
        let queues = Arc::new(LaneQueues::new(postgres::LANES));
        let shared = published(directory, options);
        let clock = options.clock.clone();
        let ledger = Ledger::new(money.accounts, Arc::clone(&queues), Arc::clone(&shared), clock.clone());
        let engine = postgres::Engine::start(postgres::Start {
            database: Arc::clone(database),
            access: access.clone(),
            queues: Arc::clone(&queues),
            shared: Arc::clone(&shared),
            clock: clock.clone(),
            host: HOST.to_owned(),
            seen,
            runtime,
        });
        let store = Store(Arc::new(Inner {
            engine: Engine::Postgres(engine.map_err(OpenError::Thread)?),
            keys: Arc::clone(&access.keys),
            queues,
            shared,
            ledger,
            clock,
            header: ArcSwap::from_pointee(header),
            implied_key: None,
            operation: Mutex::default(),
            backup: Mutex::default(),
            access,
            page_reads: Arc::new(Semaphore::new(secrets::PAGE_READS_MAX)),
        }));
        store.begin(money.intents, rotate_to);
        Ok(store)
    }
}

/// What a host publishes that has made no commit yet.
fn published(directory: Arc<Directory>, options: &OpenOptions) -> Arc<PublishedState> {
    let nothing = CommitHead { seq: 0, head: [0; 32], set: SetHash::default(), heads: SetHash::default() };
    Arc::new(PublishedState::new(directory, nothing, options.clock.clone()))
}
