//! Opening a store: makes a new one at the first start, unlocks the keys, loads the rows, and
//! decides whether the store may be served.

#[cfg(feature = "postgres")]
mod database;
mod first_start;
#[cfg(feature = "postgres")]
mod moving;
mod restore;
mod unlock;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use first_start::first_start;
pub(crate) use unlock::{Given, Unlocked, unlock};

#[cfg(feature = "postgres")]
pub(crate) use database::{
    AcceptedLoss, LoadedDirectory, OpenedDatabase, WitnessFile, open_database, read_directory,
};
#[cfg(feature = "postgres")]
pub(crate) use first_start::first_changes;
#[cfg(feature = "postgres")]
pub(crate) use moving::{Arrival, mark_moved};
pub(crate) use restore::restore;
pub(crate) use unlock::Sources;

use crate::audit::{Actor, AuditAction, AuditRecord};
use crate::changes::{Intent, WriteBatch};
use crate::clock::Clock;
use crate::commit::CommitHead;
use crate::directory::{Directory, Record};
use crate::error::{Error, OpenError, OutOfStep};
use crate::fjall::{self, Anchor, AnchorContent, AnchorSlot, Database, Evidence, NO_ANCHOR, judge};
use crate::header::Header;
use crate::ledger::Accounts;
use crate::root_key::RootKeyMaterial;
use crate::rows::{self, KEYS, RowKind, SetHash};
use crate::seal::{STORE_KEYS, StoreKeys};
use crate::state::{Gap, Guard};
use crate::vault::{self, VaultHead, VaultReader};

/// Paths in the data directory.
struct Paths {
    dir: PathBuf,
    store: PathBuf,
    store_new: PathBuf,
    anchor: PathBuf,
    torn_journals: PathBuf,
    moved: PathBuf,
    moving: PathBuf,
}

impl Paths {
    fn new(dir: &Path) -> Paths {
        Paths {
            dir: dir.to_owned(),
            store: dir.join("store"),
            store_new: dir.join("store.new"),
            anchor: dir.join("anchor"),
            torn_journals: dir.join("torn-journals"),
            moved: dir.join("store.moved"),
            moving: dir.join("store.moving"),
        }
    }
}

/// Path of the anchor file in this data directory.
pub(crate) fn anchor_file(dir: &Path) -> PathBuf {
    Paths::new(dir).anchor
}

/// A store that passed all checks of opening.
pub(crate) struct OpenedStore {
    pub(crate) database: Database,
    pub(crate) access: VaultReader,
    pub(crate) anchor: Anchor,
    pub(crate) header: Header,
    /// The root key to rotate to, if the configuration names a new one.
    pub(crate) rotate_to: Option<RootKeyMaterial>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) money: Money,
    pub(crate) last_commit: CommitHead,
    pub(crate) journal_cut: bool,
}

/// Spend, and intents of unfinished requests, as stored when the store was opened.
#[derive(Default)]
pub(crate) struct Money {
    pub(crate) accounts: Accounts,
    pub(crate) intents: Vec<Intent>,
}

pub(crate) fn open(
    dir: &Path,
    sources: &Sources<'_>,
    accept_rollback: Option<u64>,
    clock: &Clock,
) -> Result<OpenedStore, OpenError> {
    let paths = Paths::new(dir);
    if exists(&paths.moved)? {
        return Err(OpenError::Moved(paths.moved));
    }
    if exists(&paths.moving)? {
        return Err(OpenError::Moving(paths.moving));
    }
    let made_with = match exists(&paths.store)? {
        true => None,
        false => Some(first_start(&paths, sources.configured, clock)?),
    };
    let (database, journal_cut) = fjall::open(&paths.store, &paths.torn_journals)?;
    let given = made_with.map_or_else(|| Given::read(sources), Given::only);
    let (header, record) = (database.keys.get(rows::HEADER)?, database.keys.get(STORE_KEYS)?);
    let Unlocked { header, keys, rotate_to } = unlock(header.as_deref(), record.as_deref(), given)?;
    let access = VaultReader::new(Arc::new(keys));
    let keys = &access.keys;
    let loaded = load(&database, keys)?;
    let anchor = open_anchor(&paths)?;
    let evidence = gather(&database, keys, anchor.as_ref(), &loaded, &paths)?;
    let (anchor, last_commit, loaded) = match (judge(keys, &evidence), anchor) {
        (Ok(verdict), Some(anchor)) => {
            // One commit ahead: the process ended between the batch and the anchor.
            if verdict.anchor_is_behind {
                let slot = AnchorSlot { seq: verdict.last_commit.seq, head: verdict.last_commit.head };
                anchor.write(keys, slot).map_err(OpenError::io(&paths.anchor))?;
            }
            if accept_rollback.is_some() {
                tracing::warn!("the store is in the state it was left in; there is no rollback to accept");
            }
            (anchor, verdict.last_commit, loaded)
        }
        (judged, anchor) => {
            let reason = judged.err().unwrap_or(NO_ANCHOR);
            let found =
                OutOfStep { anchor: evidence.anchor_seq(), markers: evidence.named_markers(), reason };
            let Some(seq) = accept_rollback else { return Err(OpenError::OutOfStep(Box::new(found))) };
            let accepted = Acceptance { paths: &paths, database: &database, access: &access, found, seq };
            accepted.carry_out(anchor, loaded, clock)?
        }
    };
    let Loaded { directory, money, .. } = loaded;
    Ok(OpenedStore {
        database,
        access,
        anchor,
        header,
        rotate_to,
        directory,
        money,
        last_commit,
        journal_cut,
    })
}

/// Whether there is a store in this directory. The remains of an interrupted first start do not
/// count.
pub(crate) fn store_exists(dir: &Path) -> Result<bool, OpenError> {
    let Paths { store, store_new, anchor, .. } = Paths::new(dir);
    if exists(&store)? {
        return Ok(true);
    }
    if exists(&anchor)? && !exists(&store_new)? {
        return Err(OpenError::StoreMissing { anchor, store });
    }
    Ok(false)
}

fn exists(path: &Path) -> Result<bool, OpenError> {
    path.try_exists().map_err(OpenError::io(path))
}

fn sync_folder(path: &Path) -> Result<(), OpenError> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(OpenError::io(path))
}

/// The keyspace `keys` in memory, and the set hash of the vaults' heads.
struct Loaded {
    directory: Arc<Directory>,
    money: Money,
    set: SetHash,
    heads: SetHash,
    /// Row keys of rows whose MAC does not match.
    damaged: Vec<Vec<u8>>,
    /// Whether the MAC of every head matches.
    heads_hold: bool,
}

fn load(database: &Database, keys: &StoreKeys) -> Result<Loaded, OpenError> {
    let (mut records, mut money) = (Vec::new(), Money::default());
    let (mut set, mut damaged) = (SetHash::default(), Vec::new());
    for row in database.keys.iter() {
        let (key, value) = row.into_inner()?;
        if RowKind::of(&key) == Some(RowKind::Marker) {
            continue;
        }
        set.add(&keys.element(&key, &value));
        if load_row(keys, &mut records, &mut money, &key, &value).is_none() {
            damaged.push(key.to_vec());
        }
    }
    let (heads, heads_hold) = load_heads(database, keys)?;
    let directory = Arc::new(Directory::of(records));
    Ok(Loaded { directory, money, set, heads, damaged, heads_hold })
}

/// The set hash of all vaults' heads, and whether every MAC matches.
fn load_heads(database: &Database, keys: &StoreKeys) -> Result<(SetHash, bool), ::fjall::Error> {
    let (mut set, mut hold) = (SetHash::default(), true);
    for row in database.meta.range(vault::head_range()) {
        let (key, value) = row.into_inner()?;
        set.add(&keys.element(&key, &value));
        let head = vault::vault_of_head(&key).and_then(|vault| VaultHead::decode(keys, vault, &value));
        hold &= head.is_some();
    }
    Ok((set, hold))
}

/// Puts a row of the keyspace `keys` where it belongs. `None` for a row whose MAC does not match or
/// whose kind is unknown.
pub(crate) fn load_row(
    keys: &StoreKeys,
    records: &mut Vec<Record>,
    money: &mut Money,
    key: &[u8],
    value: &[u8],
) -> Option<()> {
    match RowKind::of(key)? {
        RowKind::Workspace => records.push(Record::Workspace(rows::decode(keys, KEYS, key, value)?)),
        RowKind::Member => records.push(Record::Member(rows::decode(keys, KEYS, key, value)?)),
        RowKind::Intern => records.push(Record::Intern(rows::decode(keys, KEYS, key, value)?)),
        RowKind::ApiKey => records.push(Record::Key(rows::decode(keys, KEYS, key, value)?)),
        RowKind::KeySpend => {
            money.accounts.put_key(rows::key_of_spend(key)?, rows::decode(keys, KEYS, key, value)?);
        }
        RowKind::WorkspaceSpend => {
            let workspace = rows::workspace_of_spend(key)?;
            money.accounts.put_workspace(workspace, rows::decode(keys, KEYS, key, value)?);
        }
        RowKind::Intent => money.intents.push(rows::decode(keys, KEYS, key, value)?),
        RowKind::Marker | RowKind::Header | RowKind::KeyRecord | RowKind::DayTotals => {
            rows::checked(keys, KEYS, key, value)?;
        }
    }
    Some(())
}

fn open_anchor(paths: &Paths) -> Result<Option<Anchor>, OpenError> {
    match Anchor::open(&paths.anchor) {
        Ok(anchor) => Ok(Some(anchor)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(OpenError::Io { path: paths.anchor.clone(), source }),
    }
}

fn gather(
    database: &Database,
    keys: &StoreKeys,
    anchor: Option<&Anchor>,
    loaded: &Loaded,
    paths: &Paths,
) -> Result<Evidence, OpenError> {
    let markers = database.markers(keys)?;
    let anchor = match anchor {
        Some(anchor) => anchor.read(keys).map_err(OpenError::io(&paths.anchor))?,
        None => AnchorContent::Nothing,
    };
    let record = fjall::last_audit_row(&database.log)?.and_then(|(seq, bytes)| {
        let record: AuditRecord = rows::decode_body(&bytes)?;
        (record.seq == seq).then_some((record, bytes))
    });
    let [keys_marker, meta_marker, ..] = markers;
    let rows_hold = loaded.damaged.is_empty() && keys_marker.is_some_and(|marker| marker.set == loaded.set);
    let heads_hold = loaded.heads_hold && meta_marker.is_some_and(|marker| marker.set == loaded.heads);
    let markers = markers.map(|marker| marker.map(|marker| marker.seq));
    Ok(Evidence { anchor, markers, record, set: loaded.set, heads: loaded.heads, rows_hold, heads_hold })
}

/// Accepts a state that is not the anchored one: repairs the store and commits an audit record on
/// top of what is there.
struct Acceptance<'a> {
    paths: &'a Paths,
    database: &'a Database,
    access: &'a VaultReader,
    found: OutOfStep,
    seq: u64,
}

impl Acceptance<'_> {
    fn carry_out(
        self,
        anchor: Option<Anchor>,
        loaded: Loaded,
        clock: &Clock,
    ) -> Result<(Anchor, CommitHead, Loaded), OpenError> {
        let (database, keys) = (self.database, &self.access.keys);
        let markers = self.found.markers.map(|(_, seq)| seq);
        let highest = markers.into_iter().flatten().max();
        // The operator must name the highest marker found, so that a flag left over from an earlier
        // acceptance does not apply to another state.
        let Some(highest) = highest.filter(|highest| *highest == self.seq) else {
            return Err(OpenError::NothingToAccept { given: self.seq, found: self.found.to_string() });
        };
        let (last, head) = match fjall::last_audit_row(&database.log)? {
            Some((seq, bytes)) => {
                let record: AuditRecord = rows::decode_body(&bytes)
                    .ok_or_else(|| OpenError::damaged("its last audit record cannot be read"))?;
                (seq, keys.audit_head(&record.previous, &bytes))
            }
            None => (0, [0; 32]),
        };
        let state = database.state(Arc::clone(&loaded.directory));
        let mut batch = WriteBatch::new(self.access.view(state), clock.now_ms());
        let vault_rows_dropped = batch.mend_vaults().map_err(damaged)?;
        let rows_dropped = loaded.damaged.len() + vault_rows_dropped;
        for key in &loaded.damaged {
            batch.drop_row(Guard::Store, key.clone()).map_err(damaged)?;
        }
        let action = AuditAction::RollbackAccepted { anchor: self.found.anchor, markers, rows_dropped };
        batch.audit(Actor::Operator, action);
        let (commit, effects) = batch.finish();
        // Above every number seen, so that no number is ever used twice.
        let seq = highest.max(last).max(self.found.anchor.unwrap_or(0)).checked_add(1);
        let seq = seq.ok_or_else(|| OpenError::damaged("its audit log has no numbers left"))?;
        let before = CommitHead { seq: highest, head, set: loaded.set, heads: loaded.heads };
        let last_commit = database.apply(keys, &before, seq, commit)?;
        let anchor = match anchor {
            Some(anchor) => anchor,
            None => Anchor::create(&self.paths.anchor).map_err(OpenError::io(&self.paths.anchor))?,
        };
        anchor
            .write(keys, AnchorSlot { seq: last_commit.seq, head: last_commit.head })
            .map_err(OpenError::io(&self.paths.anchor))?;
        sync_folder(&self.paths.dir)?;
        tracing::warn!(found = %self.found, rows_dropped, seq, "accepted the state of the store as it is");
        let mut directory = loaded.directory;
        Arc::make_mut(&mut directory).change(effects.publish(self.access));
        Ok((anchor, last_commit, Loaded { directory, ..loaded }))
    }
}

/// A rule that fails while a store is opened has found damage.
fn damaged(gap: Gap) -> OpenError {
    OpenError::damaged(Error::from(gap).to_string())
}

#[cfg(test)]
mod tests;
