//! Opening a store: the first start, and the rule that decides whether an existing one may be served.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::anchor::{Anchor, Found, Slot};
use crate::audit::{Actor, AuditAction, AuditRecord};
use crate::changes::{Draft, NewWorkspace};
use crate::clock::Clock;
use crate::database::{Commit, Database, KEYS, KEYSPACES, Tip};
use crate::directory::Directory;
use crate::error::{Error, OpenError, OutOfStep};
use crate::ids::StoreId;
use crate::journal;
use crate::name::Name;
use crate::root_key::{RootKey, RootKeyId, RootKeySource};
use crate::rows::{self, Header, RowKind, SCHEMA, SetHash};
use crate::seal::{KeyRecord, StoreKeys};

/// Where things lie in the data directory.
struct Paths {
    dir: PathBuf,
    store: PathBuf,
    store_new: PathBuf,
    anchor: PathBuf,
    torn_journals: PathBuf,
}

impl Paths {
    fn new(dir: &Path) -> Paths {
        Paths {
            dir: dir.to_owned(),
            store: dir.join("store"),
            store_new: dir.join("store.new"),
            anchor: dir.join("anchor"),
            torn_journals: dir.join("torn-journals"),
        }
    }
}

/// A store that may be served.
pub(crate) struct Opened {
    pub(crate) database: Database,
    pub(crate) anchor: Anchor,
    pub(crate) keys: Arc<StoreKeys>,
    pub(crate) root_key: RootKeyId,
    pub(crate) has_recovery_key: bool,
    pub(crate) directory: Directory,
    pub(crate) tip: Tip,
    pub(crate) journal_cut: bool,
}

pub(crate) fn open(
    dir: &Path,
    source: &RootKeySource,
    accept_rollback: Option<u64>,
    clock: &Clock,
) -> Result<Opened, OpenError> {
    let paths = Paths::new(dir);
    if !exists(&paths.store)? {
        first_start(&paths, source, clock)?;
    }
    let (database, journal_cut) = journal::open(&paths.store, &paths.torn_journals)?;
    let (header, keys) = unlock(&database, source)?;
    let keys = Arc::new(keys);
    let loaded = load(&database, &keys)?;
    let anchor = open_anchor(&paths)?;
    let evidence = gather(&database, &keys, anchor.as_ref(), &loaded, &paths)?;
    let (anchor, tip, loaded) = match (judge(&keys, &evidence), anchor) {
        (Ok(verdict), Some(anchor)) => {
            if verdict.anchor_is_behind {
                let slot = Slot { seq: verdict.tip.seq, head: verdict.tip.head };
                anchor.write(&keys, slot).map_err(OpenError::io(&paths.anchor))?;
            }
            if accept_rollback.is_some() {
                tracing::warn!("the store is in the state it was left in; there is no rollback to accept");
            }
            (anchor, verdict.tip, loaded)
        }
        (judged, anchor) => {
            let reason = judged.err().unwrap_or(NO_ANCHOR);
            let found =
                OutOfStep { anchor: evidence.anchor_seq(), markers: evidence.named_markers(), reason };
            let Some(seq) = accept_rollback else { return Err(OpenError::OutOfStep(Box::new(found))) };
            let accepted = Acceptance { paths: &paths, database: &database, keys: &keys, found, seq };
            accepted.carry_out(anchor, loaded, clock)?
        }
    };
    Ok(Opened {
        database,
        anchor,
        keys,
        root_key: header.root.id,
        has_recovery_key: header.recovery.is_some(),
        directory: loaded.directory,
        tip,
        journal_cut,
    })
}

fn exists(path: &Path) -> Result<bool, OpenError> {
    path.try_exists().map_err(OpenError::io(path))
}

fn sync_folder(path: &Path) -> Result<(), OpenError> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(OpenError::io(path))
}

/// Builds a store in `store.new` and renames it last, so that a store is either whole or not there.
fn first_start(paths: &Paths, source: &RootKeySource, clock: &Clock) -> Result<(), OpenError> {
    if exists(&paths.store_new)? {
        // An earlier first start did not come to its end. Its anchor goes first: left alone, it would look as
        // if a store had been taken away.
        match std::fs::remove_file(&paths.anchor) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(OpenError::Io { path: paths.anchor.clone(), source: error });
            }
            _ => sync_folder(&paths.dir)?,
        }
        std::fs::remove_dir_all(&paths.store_new).map_err(OpenError::io(&paths.store_new))?;
    } else if exists(&paths.anchor)? {
        return Err(OpenError::StoreMissing { anchor: paths.anchor.clone(), store: paths.store.clone() });
    }
    let (root, stretching) = source.load_or_make().map_err(OpenError::NewRootKey)?;
    DirBuilder::new().mode(0o700).create(&paths.store_new).map_err(OpenError::io(&paths.store_new))?;
    sync_folder(&paths.dir)?;
    let store = StoreId::random()?;
    let keys = Arc::new(StoreKeys::random(store)?);
    let header = Header::new(store, root.record(stretching), clock.now_ms());
    let commit = first_commit(&keys, &root, &header)?;
    let database = Database::create(&paths.store_new)?;
    let nothing = Tip { seq: 0, head: [0; 32], set: SetHash::default() };
    let tip = database.apply(&keys, &nothing, 1, commit)?;
    drop(database);
    sync_tree(&paths.store_new).map_err(OpenError::io(&paths.store_new))?;
    Anchor::create(&paths.anchor)
        .and_then(|anchor| anchor.write(&keys, Slot { seq: tip.seq, head: tip.head }))
        .map_err(OpenError::io(&paths.anchor))?;
    sync_folder(&paths.dir)?;
    std::fs::rename(&paths.store_new, &paths.store).map_err(OpenError::io(&paths.store))?;
    sync_folder(&paths.dir)?;
    tracing::info!(store.id = %store, root_key.id = %header.root.id, "made a new store");
    Ok(())
}

fn first_commit(keys: &Arc<StoreKeys>, root: &RootKey, header: &Header) -> Result<Commit, OpenError> {
    let mut draft = Draft::new(Arc::clone(keys), Directory::default(), header.created_at_ms);
    draft.put_row(rows::HEADER.to_vec(), header);
    draft.put_row(rows::STORE_KEYS.to_vec(), &keys.seal(root)?);
    draft.audit(Actor::System, AuditAction::StoreCreated { store: header.store, root_key: header.root.id });
    #[expect(clippy::expect_used, reason = "a fixed word that follows the rules for names")]
    let name = Name::parse("default").expect("`default` is a name");
    let workspace = NewWorkspace { name, programme: true, vault_writes: true };
    draft.create_workspace(Actor::System, workspace).map_err(|error| match error {
        Error::Random(error) => OpenError::Random(error),
        other => OpenError::damaged(other.to_string()),
    })?;
    Ok(draft.finish().0)
}

/// The engine syncs what it must; the folders above its files are ours to be sure of.
fn sync_tree(path: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => sync_tree(&entry.path())?,
            false => File::open(entry.path())?.sync_all()?,
        }
    }
    File::open(path)?.sync_all()
}

/// Reads the header, takes the root key and opens the store's keys with it.
fn unlock(database: &Database, source: &RootKeySource) -> Result<(Header, StoreKeys), OpenError> {
    let header_row =
        database.keys.get(rows::HEADER)?.ok_or_else(|| OpenError::damaged("it has no header"))?;
    let header: Header = rows::decode_unchecked(&header_row)
        .filter(Header::is_ours)
        .ok_or_else(|| OpenError::damaged("its header cannot be read"))?;
    if header.min_reader > SCHEMA {
        return Err(OpenError::TooNew { found: header.schema_major, known: SCHEMA });
    }
    let needs = header.root.id;
    let root = source
        .load(header.root.stretching.as_ref())
        .map_err(|source| OpenError::RootKey { needs, source })?;
    if !root.matches(&header.root) {
        return Err(OpenError::WrongRootKey { given: root.id(), needs });
    }
    let record = database.keys.get(rows::STORE_KEYS)?;
    let keys = record
        .and_then(|row| rows::decode_unchecked::<KeyRecord>(&row))
        .and_then(|record| StoreKeys::open(header.store, &record, &root))
        .ok_or_else(|| OpenError::damaged("its key record does not open"))?;
    // The header was believed so far because nothing could check it.
    if rows::checked(&keys, KEYS, rows::HEADER, &header_row).is_none() {
        return Err(OpenError::damaged("its header was changed"));
    }
    Ok((header, keys))
}

/// The keyspace `keys` in memory.
struct Loaded {
    directory: Directory,
    set: SetHash,
    /// Keys of rows that do not prove to be ours.
    damaged: Vec<Vec<u8>>,
}

fn load(database: &Database, keys: &StoreKeys) -> Result<Loaded, OpenError> {
    let mut loaded = Loaded { directory: Directory::default(), set: SetHash::default(), damaged: Vec::new() };
    for row in database.keys.iter() {
        let (key, value) = row.into_inner()?;
        if RowKind::of(&key) == Some(RowKind::Marker) {
            continue;
        }
        loaded.set.add(&keys.element(&key, &value));
        if load_row(keys, &mut loaded.directory, &key, &value).is_none() {
            loaded.damaged.push(key.to_vec());
        }
    }
    Ok(loaded)
}

/// `None` for a row whose MAC fails, whose kind is unknown or that lies under another record's key.
fn load_row(keys: &StoreKeys, directory: &mut Directory, key: &[u8], value: &[u8]) -> Option<()> {
    match RowKind::of(key)? {
        RowKind::Workspace => directory.put_workspace(rows::decode(keys, KEYS, key, value)?),
        RowKind::Member => directory.put_member(rows::decode(keys, KEYS, key, value)?),
        RowKind::Intern => directory.put_intern(rows::decode(keys, KEYS, key, value)?),
        RowKind::ApiKey => directory.put_key(rows::decode(keys, KEYS, key, value)?),
        RowKind::Marker | RowKind::Header | RowKind::KeyRecord => {
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

/// All that the rule looks at.
#[derive(Clone)]
struct Evidence {
    anchor: Found,
    markers: [Option<u64>; 4],
    /// The newest audit record and its stored bytes.
    record: Option<(AuditRecord, Vec<u8>)>,
    set: SetHash,
    /// Whether the rows of `keys` are the set its marker speaks of, each with a good MAC.
    rows_hold: bool,
}

impl Evidence {
    fn anchor_seq(&self) -> Option<u64> {
        match self.anchor {
            Found::Slot(slot) => Some(slot.seq),
            Found::OtherStore | Found::Nothing => None,
        }
    }

    fn named_markers(&self) -> [(&'static str, Option<u64>); 4] {
        let [keys, meta, values, log] = KEYSPACES;
        let [m0, m1, m2, m3] = self.markers;
        [(keys, m0), (meta, m1), (values, m2), (log, m3)]
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
        None => Found::Nothing,
    };
    let record = database.last_audit_row()?.and_then(|(seq, bytes)| {
        let record: AuditRecord = rows::decode_body(&bytes)?;
        (record.seq == seq).then_some((record, bytes))
    });
    let [keys_marker, ..] = markers;
    let rows_hold = loaded.damaged.is_empty() && keys_marker.is_some_and(|marker| marker.set == loaded.set);
    let markers = markers.map(|marker| marker.map(|marker| marker.seq));
    Ok(Evidence { anchor, markers, record, set: loaded.set, rows_hold })
}

const NO_ANCHOR: &str = "there is no valid anchor";

#[derive(Debug, Eq, PartialEq)]
struct Verdict {
    tip: Tip,
    anchor_is_behind: bool,
}

/// The rule: everything as anchored, or exactly one commit further whose record follows the anchored one (the
/// power went between batch and anchor). Nothing else is served.
fn judge(keys: &StoreKeys, evidence: &Evidence) -> Result<Verdict, &'static str> {
    let slot = match evidence.anchor {
        Found::Slot(slot) => slot,
        Found::OtherStore => return Err("the anchor belongs to another store"),
        Found::Nothing => return Err(NO_ANCHOR),
    };
    let [Some(seq), Some(meta), Some(values), Some(log)] = evidence.markers else {
        return Err("a keyspace has no valid marker");
    };
    if [meta, values, log] != [seq; 3] {
        return Err("the keyspaces are not in step");
    }
    if seq < slot.seq {
        return Err("the store is older than its anchor");
    }
    if seq > slot.seq.saturating_add(1) {
        return Err("the store is newer than its anchor");
    }
    let Some((record, bytes)) = evidence.record.as_ref().filter(|(record, _)| record.seq == seq) else {
        return Err("the last audit record is missing");
    };
    let head = keys.audit_head(&record.previous, bytes);
    let anchor_is_behind = seq != slot.seq;
    if anchor_is_behind && record.previous != slot.head {
        return Err("the last audit record does not follow the anchored one");
    }
    if !anchor_is_behind && head != slot.head {
        return Err("the last audit record is not the anchored one");
    }
    if !evidence.rows_hold {
        return Err("rows of the keyspace `keys` were changed from outside");
    }
    Ok(Verdict { tip: Tip { seq, head, set: evidence.set }, anchor_is_behind })
}

/// The deliberate way past a refusal: an audited commit on top of what is there.
struct Acceptance<'a> {
    paths: &'a Paths,
    database: &'a Database,
    keys: &'a Arc<StoreKeys>,
    found: OutOfStep,
    seq: u64,
}

impl Acceptance<'_> {
    fn carry_out(
        self,
        anchor: Option<Anchor>,
        loaded: Loaded,
        clock: &Clock,
    ) -> Result<(Anchor, Tip, Loaded), OpenError> {
        let markers = self.found.markers.map(|(_, seq)| seq);
        let highest = markers.into_iter().flatten().max();
        let Some(highest) = highest.filter(|highest| *highest == self.seq) else {
            return Err(OpenError::NothingToAccept { given: self.seq, found: self.found.to_string() });
        };
        let (last, head) = match self.database.last_audit_row()? {
            Some((seq, bytes)) => {
                let record: AuditRecord = rows::decode_body(&bytes)
                    .ok_or_else(|| OpenError::damaged("its last audit record cannot be read"))?;
                (seq, self.keys.audit_head(&record.previous, &bytes))
            }
            None => (0, [0; 32]),
        };
        let mut draft = Draft::new(Arc::clone(self.keys), loaded.directory, clock.now_ms());
        let rows_dropped = loaded.damaged.len();
        for key in loaded.damaged {
            draft.drop_row(key);
        }
        let action = AuditAction::RollbackAccepted { anchor: self.found.anchor, markers, rows_dropped };
        draft.audit(Actor::Operator, action);
        let (commit, directory) = draft.finish();
        // Above everything seen, so that no number is ever used twice.
        let seq = highest.max(last).max(self.found.anchor.unwrap_or(0)) + 1;
        let before = Tip { seq: highest, head, set: loaded.set };
        let tip = self.database.apply(self.keys, &before, seq, commit)?;
        let anchor = match anchor {
            Some(anchor) => anchor,
            None => Anchor::create(&self.paths.anchor).map_err(OpenError::io(&self.paths.anchor))?,
        };
        anchor
            .write(self.keys, Slot { seq: tip.seq, head: tip.head })
            .map_err(OpenError::io(&self.paths.anchor))?;
        sync_folder(&self.paths.dir)?;
        tracing::warn!(found = %self.found, rows_dropped, seq, "accepted the state of the store as it is");
        Ok((anchor, tip, Loaded { directory, set: tip.set, damaged: Vec::new() }))
    }
}

#[cfg(test)]
mod tests;
