//! The first start: creates a store, completely or not at all.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;

use super::{Paths, exists, sync_folder};
use crate::audit::{Actor, AuditAction};
use crate::changes::{NewWorkspace, WriteBatch};
use crate::clock::Clock;
use crate::commit::{Commit, CommitHead};
use crate::error::{Error, OpenError};
use crate::fjall::{Anchor, AnchorSlot, Database};
use crate::header::Header;
use crate::ids::StoreId;
use crate::name::Name;
use crate::root_key::{RootKeyMaterial, RootKeySource, WrapKeys};
use crate::rows::{self, SetHash};
use crate::seal::{KeyRecord, STORE_KEYS, StoreKeys};
use crate::state::{Gap, Guard};
use crate::vault::{VaultReader, VaultSnapshot};

/// Builds a store in `store.new` and renames it at the end, so that an interrupted start leaves no
/// half store. Returns the root key, because a pipe can be read only once.
pub(super) fn first_start(
    paths: &Paths,
    source: &RootKeySource,
    clock: &Clock,
) -> Result<RootKeyMaterial, OpenError> {
    if exists(&paths.store_new)? {
        discard(paths)?;
    } else if exists(&paths.anchor)? {
        return Err(OpenError::StoreMissing { anchor: paths.anchor.clone(), store: paths.store.clone() });
    }
    let material = source.read_or_make().map_err(OpenError::NewRootKey)?;
    let (root, stretching) = material.to_new_key().map_err(OpenError::NewRootKey)?;
    DirBuilder::new().mode(0o700).create(&paths.store_new).map_err(OpenError::io(&paths.store_new))?;
    sync_folder(&paths.dir)?;
    let store = StoreId::random()?;
    let keys = Arc::new(StoreKeys::random(store)?);
    let header = Header::new(store, root.record(stretching), clock.now_ms());
    let database = Database::create(&paths.store_new)?;
    keys.change_ring(|ring| ring.add_configured(root.wrap_key()));
    let record = keys.seal(&WrapKeys { root: Some(root.wrap_key()), ..WrapKeys::default() })?;
    let view = VaultReader::new(Arc::clone(&keys)).view(database.state(Arc::default()));
    let commit = first_commit(view, &header, &record).map_err(|gap| match Error::from(gap) {
        Error::Random(error) => OpenError::Random(error),
        other => OpenError::damaged(other.to_string()),
    })?;
    let nothing = CommitHead { seq: 0, head: [0; 32], set: SetHash::default(), heads: SetHash::default() };
    let last_commit = database.apply(&keys, &nothing, 1, commit)?;
    // The engine must have closed its files before the folder is synced and renamed.
    drop(database);
    install(paths, &keys, AnchorSlot { seq: last_commit.seq, head: last_commit.head })?;
    tracing::info!(store.id = %store, root_key.id = %header.root.id, "made a new store");
    Ok(material)
}

/// Removes what an interrupted attempt to make a store has left behind. The anchor is removed
/// first: an anchor without `store.new` would look as if a store had been deleted.
pub(super) fn discard(paths: &Paths) -> Result<(), OpenError> {
    match std::fs::remove_file(&paths.anchor) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(OpenError::Io { path: paths.anchor.clone(), source: error });
        }
        _ => sync_folder(&paths.dir)?,
    }
    std::fs::remove_dir_all(&paths.store_new).map_err(OpenError::io(&paths.store_new))
}

/// Writes the anchor and moves the finished store to its place. Its database must be closed.
pub(super) fn install(paths: &Paths, keys: &StoreKeys, slot: AnchorSlot) -> Result<(), OpenError> {
    sync_tree(&paths.store_new).map_err(OpenError::io(&paths.store_new))?;
    Anchor::create(&paths.anchor)
        .and_then(|anchor| anchor.write(keys, slot))
        .map_err(OpenError::io(&paths.anchor))?;
    sync_folder(&paths.dir)?;
    std::fs::rename(&paths.store_new, &paths.store).map_err(OpenError::io(&paths.store))?;
    sync_folder(&paths.dir)
}

fn first_commit(view: VaultSnapshot, header: &Header, record: &KeyRecord) -> Result<Commit, Gap> {
    let mut batch = WriteBatch::new(view, header.created_at_ms);
    first_changes(&mut batch, header, record)?;
    Ok(batch.finish().0)
}

/// The first changes of every store: its header, its keys and a workspace.
pub(crate) fn first_changes(batch: &mut WriteBatch, header: &Header, record: &KeyRecord) -> Result<(), Gap> {
    batch.put_row(Guard::Store, rows::HEADER.to_vec(), header)?;
    batch.put_row(Guard::Store, STORE_KEYS.to_vec(), record)?;
    batch.audit(Actor::System, AuditAction::StoreCreated { store: header.store, root_key: header.root.id });
    #[expect(clippy::expect_used, reason = "a fixed word that follows the rules for names")]
    let name = Name::parse("default").expect("`default` is a name");
    let workspace = NewWorkspace { name, programme: true, vault_writes: true };
    batch.create_workspace(Actor::System, &workspace)?;
    Ok(())
}

/// The engine syncs its own files; this also syncs the folders above them.
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
