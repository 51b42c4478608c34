//! The engine on a real server. Tests are skipped where PostgreSQL is not installed.

mod backups;
mod buckets;
mod chains;
mod connections;
mod contact;
mod copies;
mod dead_hosts;
mod doubt;
mod faults;
mod groups;
mod host_rows;
mod hosts;
mod kept;
mod leased;
mod limits;
mod moves_back;
mod partitions;
mod places;
mod prepared;
mod retention;
mod rotation;
mod same_rows;
mod schemas;
mod seats;
mod secrecy;
mod set_back;
mod stores;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use cofferdam_test_postgres::{self as kit, Server};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use super::about::About;
use super::begin;
use super::connect::{Database, DatabaseSession};
use super::engine::{Engine, LANES, ReadingRuntime, Start};
use super::feed::DirectoryPoint;
use super::load::load;
use super::schema;
use super::url::DatabaseUrl;
use crate::audit::{Actor, AuditAction, AuditRecord};
use crate::changes::{Change, NewWorkspace, WriteBatch, guarded};
use crate::check::chain::verify as verify_chain;
use crate::clock::Clock;
use crate::commit::CommitHead;
use crate::digest::Digest;
use crate::error::Error;
use crate::header::Header;
use crate::ids::{StoreId, VaultId, WorkspaceId};
use crate::loaded::Loaded;
use crate::open::{LoadedDirectory, read_directory};
use crate::pending::{self, Pending};
use crate::published::PublishedState;
use crate::queue::{LaneQueues, job};
use crate::records::Workspace;
use crate::root_key::{RootKey, WrapKeys};
use crate::rows::{self, Keyspace, SetHash};
use crate::scratch::{go_on, name, new_secret};
use crate::seal::{STORE_KEYS, StoreKeys};
use crate::state::{Gap, Guard, KeyedRow, Missing, RowRange};
use crate::usage::{UsageRow, block};
use crate::vault::{VaultReader, VaultSnapshot};

const OPERATOR: Actor = Actor::Operator;
/// Longer than everything that a test waits for takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// With `all`, tests of faults run many rounds.
const FAULTS: &str = "COFFERDAM_FAULTS";

/// How often a test of faults tries each kind.
fn rounds(few: usize, all: usize) -> usize {
    if std::env::var(FAULTS).is_ok_and(|value| value == "all") { all } else { few }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A store in a database of its own.
struct World {
    address: kit::Database,
    keys: Arc<StoreKeys>,
    header: Arc<ArcSwap<Header>>,
    runtime: Runtime,
    session: DatabaseSession,
}

/// One host of the store.
struct Host {
    engine: Engine,
    queues: Arc<LaneQueues>,
    shared: Arc<PublishedState>,
    database: Arc<Database>,
}

impl World {
    /// An empty store in a new database of the shared server.
    fn new(name: &str) -> Option<World> {
        kit::installed().then(|| World::on(Server::shared().unwrap().database(name).unwrap()))
    }

    fn on(address: kit::Database) -> World {
        World::prepared(address, schema::migrate)
    }

    /// A store with an older schema, made as the version of that time did.
    fn with_schema(address: kit::Database, number: u32) -> World {
        World::prepared(address, async |session| {
            session.script(schema::FIRST).await?;
            schema::make_up_to(session, number).await
        })
    }

    fn prepared(
        address: kit::Database,
        prepare: impl AsyncFnOnce(&DatabaseSession) -> Result<(), super::failure::Failure>,
    ) -> World {
        let runtime = runtime();
        let session = runtime.block_on(async {
            let session = database(&address.url()).connect().await.unwrap();
            prepare(&session).await.unwrap();
            session
        });
        let keys = StoreKeys::random(StoreId::random().unwrap()).unwrap();
        let root = RootKey::random().unwrap();
        keys.change_ring(|ring| ring.add_configured(root.wrap_key()));
        let header = Header::new(keys.store_id(), root.record(None), 1);
        let known = Arc::new(ArcSwap::from_pointee(header.clone()));
        let world = World { address, keys: Arc::new(keys), header: known, runtime, session };
        let keys = Arc::clone(&world.keys);
        let first = guarded([Guard::Store], move |batch: &mut WriteBatch| {
            batch.put_row(Guard::Store, rows::HEADER.to_vec(), &header)?;
            batch.put_row(
                Guard::Store,
                STORE_KEYS.to_vec(),
                &keys.seal(&WrapKeys { root: Some(root.wrap_key()), ..WrapKeys::default() })?,
            )?;
            batch.audit(
                Actor::System,
                AuditAction::StoreCreated { store: header.store, root_key: header.root.id },
            );
            Ok(())
        });
        world.host().make(None, first).unwrap();
        world
    }

    fn about(&self) -> About {
        About::new(Arc::clone(&self.keys), Clock::system(), true)
    }

    /// A host that connects to the server itself.
    fn host(&self) -> Host {
        self.host_at(&self.address.url())
    }

    fn host_at(&self, url: &str) -> Host {
        let clock = Clock::system();
        let nothing =
            CommitHead { seq: 0, head: [0; 32], set: SetHash::default(), heads: SetHash::default() };
        let shared = Arc::new(PublishedState::new(Arc::default(), nothing, clock.clone()));
        let queues = Arc::new(LaneQueues::new(LANES));
        let (database, runtime) = (Arc::new(database(url)), ReadingRuntime::new().unwrap());
        let host = begin::enter(&database, runtime.handle(), &clock, self.about()).unwrap();
        let access = VaultReader::new(Arc::clone(&self.keys));
        let reading = (Arc::clone(&database), runtime.handle().clone(), access.clone());
        let reload = move || {
            let (database, runtime, access) = &reading;
            let LoadedDirectory { directory, point, .. } = read_directory(database, runtime, access)?;
            Ok((directory, point))
        };
        let start = Start {
            database: Arc::clone(&database),
            access,
            reload: Arc::new(reload),
            header: Arc::clone(&self.header),
            queues: Arc::clone(&queues),
            shared: Arc::clone(&shared),
            clock,
            host,
            witness: Arc::new(super::Witness::new(Arc::clone(&self.keys), None, 0)),
            point: DirectoryPoint::default(),
            kept_bytes_max: 1 << 20,
            runtime,
            is_leased: false,
        };
        Host { engine: Engine::start(start).unwrap(), queues, shared, database }
    }

    /// Reads until nothing is missing.
    fn read<T>(&self, read: impl Fn(&VaultSnapshot) -> Result<T, Gap>) -> T {
        let access = VaultReader::new(Arc::clone(&self.keys));
        let mut loaded: Arc<Loaded> = Arc::default();
        loop {
            match read(&access.view(Box::new(Arc::clone(&loaded)))) {
                Ok(found) => return found,
                Err(Gap::Missing(Missing { needs, .. })) => {
                    let loaded = Arc::make_mut(&mut loaded);
                    self.runtime.block_on(load(&self.session, &self.keys, &needs, loaded)).unwrap();
                }
                Err(gap) => panic!("{gap:?}"),
            }
        }
    }

    /// All rows of a keyspace.
    fn rows(&self, keyspace: Keyspace) -> Vec<KeyedRow> {
        let all = RowRange::all(keyspace);
        self.read(|view| Ok(view.range(&all)?.collect::<Result<_, _>>()?))
    }

    fn sql(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        self.runtime.block_on(self.session.script(sql)).unwrap()
    }

    /// Checks every chain, and returns the records of all of them.
    fn audit(&self) -> Vec<AuditRecord> {
        let mut records = Vec::new();
        for chain in self.sql("SELECT encode(id, 'hex'), encode(head, 'hex'), seq FROM chain") {
            let [Some(id), Some(head), Some(seq)] = &chain[..] else { panic!("{chain:?}") };
            let head: Digest = crate::hex::decode(head).unwrap().try_into().unwrap();
            let sql = format!(
                "SELECT seq, 0, encode(body, 'hex') FROM audit WHERE chain = '\\x{id}' UNION ALL \
                 SELECT seq, part + 1, encode(body, 'hex') FROM usage WHERE chain = '\\x{id}' ORDER BY 1, 2"
            );
            let row = |row: Vec<Option<String>>| {
                let number = |at: usize| row[at].as_deref().unwrap().parse::<u64>().unwrap();
                let body = crate::hex::decode(row[2].as_deref().unwrap()).unwrap();
                ((number(0), number(1) as u32), body)
            };
            let log: Vec<_> = self.sql(&sql).into_iter().map(row).collect();
            let whole = verify_chain::<Error>(&self.keys, &head, log.iter().cloned().map(Ok)).unwrap();
            assert_eq!(whole.broken_at, None, "chain {id}");
            assert_eq!(whole.records.to_string(), *seq, "no number of chain {id} is left out");
            let audits = log.iter().filter(|((_, index), _)| *index == 0);
            let audits = audits.map(|(_, body)| rows::decode_body::<AuditRecord>(body).unwrap());
            // Hosts write these from time to time.
            records.extend(audits.filter(|record| record.witnessed_chains().next().is_none()));
        }
        records
    }

    /// All usage rows.
    fn usage(&self) -> Vec<UsageRow> {
        let block = |row: Vec<Option<String>>| crate::hex::decode(row[0].as_deref().unwrap()).unwrap();
        let blocks = self.sql("SELECT encode(body, 'hex') FROM usage").into_iter().map(block);
        blocks.flat_map(|block| block::decode(&block).unwrap()).collect()
    }

    /// Checks all vaults, with their rows in an embedded database. Returns the number of secrets.
    fn verify(&self) -> u64 {
        let (_folder, database) = self.embedded();
        let view = VaultReader::new(Arc::clone(&self.keys)).view(database.state(Arc::default()));
        let report = crate::vault::verify::verify(&view, &mut go_on).unwrap();
        assert_eq!((report.findings, report.orphans), (Vec::new(), 0));
        report.secrets
    }

    /// An embedded database with the rows of this store.
    fn embedded(&self) -> (TempDir, crate::fjall::Database) {
        let folder = tempfile::tempdir().unwrap();
        let database = crate::fjall::Database::create(&folder.path().join("store")).unwrap();
        let mut batch = database.batch();
        for (keyspace, handle) in [
            (Keyspace::Keys, &database.keys),
            (Keyspace::Meta, &database.meta),
            (Keyspace::Values, &database.values),
        ] {
            for (key, row) in self.rows(keyspace) {
                batch.insert(handle, key, row);
            }
        }
        batch.commit().unwrap();
        (folder, database)
    }
}

fn database(url: &str) -> Database {
    Database::new(&DatabaseUrl::parse(url).unwrap(), &[]).unwrap()
}

impl Host {
    /// Makes a change and waits for its answer.
    fn make<C: Change>(&self, workspace: Option<WorkspaceId>, change: C) -> Result<C::Done, Error> {
        self.begin(workspace, change).wait(PATIENCE)
    }

    /// Hands a change to its lane.
    fn begin<C: Change>(&self, workspace: Option<WorkspaceId>, change: C) -> Pending<C::Done> {
        let queue = self.queues.of(workspace);
        let permit = pending::wait(queue.queue_permit(), PATIENCE).unwrap().unwrap();
        let (answer, pending) = Pending::new(Arc::clone(&self.shared));
        queue.push(permit, job(change, answer));
        pending
    }

    fn create_workspace(&self, text: &str) -> Result<Workspace, Error> {
        let new = NewWorkspace { name: name(text), programme: true, vault_writes: true };
        self.make(None, guarded([Guard::Store], move |batch| batch.create_workspace(OPERATOR, &new)))
    }

    fn put(&self, workspace: WorkspaceId, name: &str, value: &str) -> Result<(), Error> {
        let vault = VaultId::Workspace(workspace);
        let new = new_secret(vault, name, value);
        let guards = [Guard::Vault(vault), Guard::Quota(workspace)];
        let put = guarded(guards, move |batch| batch.put_secret(OPERATOR, &new).map(drop));
        self.make(Some(workspace), put)
    }

    fn delete(&self, workspace: WorkspaceId, name: &str) -> Result<(), Error> {
        let vault = VaultId::Workspace(workspace);
        let name = name.parse().unwrap();
        let delete = guarded([Guard::Vault(vault)], move |batch| batch.delete_secret(OPERATOR, vault, &name));
        self.make(Some(workspace), delete)
    }
}

/// Whether a change was not made, and its caller knows.
fn is_undone(ended: &Result<(), Error>) -> bool {
    matches!(ended, Err(Error::Busy))
}
