//! The storage engine as this crate uses it: four keyspaces with their settings, and one function
//! that commits.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use fjall::compaction::Leveled;
use fjall::{Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode};

use super::versions;
use crate::commit::{Commit, CommitHead, LogRows, RowChange, RowChanges};
use crate::error::OpenError;
use crate::log;
use crate::rows::{self, KEYS, KEYSPACES, META, Marker, SetHash};
use crate::seal::StoreKeys;

const MEMTABLE_BYTES: u64 = 1024 * 1024;
const JOURNAL_BYTES_MAX: u64 = 64 * 1024 * 1024;
const CACHE_BYTES: u64 = 8 * 1024 * 1024;
/// The size of a table of usage rows and audit records. Each new table has the marker of its last commit besides
/// newer rows, so it overlaps all tables of the first level and is merged with all of them. That level has four
/// times this size, and further rows wait in memory meanwhile: with the engine's 64 MiB, memory and written bytes
/// grew with the store.
const LOG_TABLE_BYTES: u64 = 8 * 1024 * 1024;
/// Values of this size and more are stored outside the tree, so that compaction does not copy them
/// repeatedly.
const SEPARATED_BYTES_MIN: u32 = 4 * 1024;
/// One worker. With two, an idle worker of the engine resends a message to itself as long as the
/// other one compacts.
const WORKER_THREADS: usize = 1;

/// Handles to the open database. Cheap to clone; dropping the last one closes the database.
#[derive(Clone)]
pub(crate) struct Database {
    engine: fjall::Database,
    pub(crate) keys: Keyspace,
    pub(crate) meta: Keyspace,
    pub(crate) values: Keyspace,
    pub(crate) log: Keyspace,
}

impl Database {
    /// Creates a database with its four keyspaces in a folder that does not exist yet.
    pub(crate) fn create(path: &Path) -> Result<Database, fjall::Error> {
        Database::with_keyspaces(builder(path).open()?)
    }

    /// Opens a database that exists.
    pub(crate) fn open(path: &Path) -> Result<Database, OpenError> {
        versions::check(path)?;
        // The engine panics on some kinds of damage to its files; a panic must not end the process.
        let engine = catch_unwind(AssertUnwindSafe(|| builder(path).open()));
        let engine = engine.map_err(|_| OpenError::EnginePanicked)??;
        if let Some(missing) = KEYSPACES.iter().find(|name| !engine.keyspace_exists(name)) {
            return Err(OpenError::damaged(format!("the keyspace {missing} is missing")));
        }
        Ok(Database::with_keyspaces(engine)?)
    }

    fn with_keyspaces(engine: fjall::Database) -> Result<Database, fjall::Error> {
        let small = || KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES);
        let separated = || {
            let options = KvSeparationOptions::default().separation_threshold(SEPARATED_BYTES_MIN);
            small().with_kv_separation(Some(options))
        };
        let keys = engine.keyspace(KEYS, small)?;
        let meta = engine.keyspace(META, small)?;
        let values = engine.keyspace("values", separated)?;
        let leveled = Leveled::default().with_table_target_size(LOG_TABLE_BYTES);
        let log = engine.keyspace("log", || small().compaction_strategy(Arc::new(leveled)))?;
        Ok(Database { engine, keys, meta, values, log })
    }

    /// A batch without a sync per write: for building a new store, which is synced at the end.
    pub(crate) fn batch(&self) -> fjall::OwnedWriteBatch {
        self.engine.batch()
    }

    /// A consistent view of all keyspaces after the last commit.
    pub(crate) fn snapshot(&self) -> fjall::Snapshot {
        self.engine.snapshot()
    }

    /// Size of all files in bytes, by the engine's own records.
    pub(crate) fn disk_bytes(&self) -> Result<u64, fjall::Error> {
        self.engine.disk_space()
    }

    /// The four keyspaces with their names, in the order of [`KEYSPACES`].
    pub(crate) fn keyspaces(&self) -> [(&'static str, &Keyspace); 4] {
        let [keys, meta, values, log] = KEYSPACES;
        [(keys, &self.keys), (meta, &self.meta), (values, &self.values), (log, &self.log)]
    }

    /// The marker of each keyspace; `None` when its MAC does not match or it is missing.
    pub(crate) fn markers(&self, keys: &StoreKeys) -> Result<[Option<Marker>; 4], fjall::Error> {
        let mut markers = [None; 4];
        for (marker, (name, keyspace)) in markers.iter_mut().zip(self.keyspaces()) {
            *marker = keyspace.get(rows::MARKER)?.and_then(|row| Marker::decode(keys, name, &row));
        }
        Ok(markers)
    }

    /// Writes one commit under the number `seq`: rows, usage, audit record and markers in a single
    /// batch, which is on the disk when this returns. Any error is fatal for the store, see
    /// `lane`.
    pub(crate) fn apply(
        &self,
        keys: &StoreKeys,
        last_commit: &CommitHead,
        seq: u64,
        mut commit: Commit,
    ) -> Result<CommitHead, fjall::Error> {
        #[cfg(debug_assertions)]
        commit.search();
        let log = LogRows::of(&mut commit, keys, seq, last_commit.head);
        let head = log.head;
        let mut batch = self.engine.batch().durability(Some(PersistMode::SyncAll));
        // The set hashes are updated from the stored rows, which the batch has not replaced yet.
        let mut set = last_commit.set;
        recount(keys, &self.keys, &mut set, &commit.rows)?;
        stage(&mut batch, &self.keys, commit.rows);
        let mut heads = last_commit.heads;
        recount(keys, &self.meta, &mut heads, &commit.vaults.heads)?;
        stage(&mut batch, &self.meta, commit.vaults.heads);
        stage(&mut batch, &self.meta, commit.vaults.meta);
        stage(&mut batch, &self.values, commit.vaults.values);
        for (place, block) in (0_u32..).zip(log.usage) {
            batch.insert(&self.log, log::usage_key(seq, place), block);
        }
        batch.insert(&self.log, log::audit_key(seq), log.audit);
        // Every keyspace gets the same number, so that the next start notices if one of them lost
        // this commit.
        for (name, keyspace) in self.keyspaces() {
            let set = match name {
                KEYS => set,
                META => heads,
                _ => SetHash::default(),
            };
            batch.insert(keyspace, rows::MARKER, Marker { seq, set }.encode(keys, name));
        }
        batch.commit()?;
        Ok(CommitHead { seq, head, set, heads })
    }
}

/// Updates a set hash for changes of rows: removes the stored rows, adds the new ones.
fn recount(
    keys: &StoreKeys,
    keyspace: &Keyspace,
    set: &mut SetHash,
    changes: &RowChanges,
) -> Result<(), fjall::Error> {
    for (key, value) in changes {
        if let Some(old) = keyspace.get(key)? {
            set.remove(&keys.element(key, &old));
        }
        if let Some(value) = value {
            set.add(&keys.element(key, value));
        }
    }
    Ok(())
}

fn stage(
    batch: &mut fjall::OwnedWriteBatch,
    keyspace: &Keyspace,
    changes: impl IntoIterator<Item = RowChange>,
) {
    for (key, value) in changes {
        match value {
            Some(value) => batch.insert(keyspace, key, value),
            None => batch.remove(keyspace, key),
        }
    }
}

fn builder(path: &Path) -> fjall::DatabaseBuilder<fjall::Database> {
    fjall::Database::builder(path)
        .cache_size(CACHE_BYTES)
        .max_journaling_size(JOURNAL_BYTES_MAX)
        .worker_threads(WORKER_THREADS)
}
