//! Restores a store from a backup: builds it in `store.new`, checks all of it, and only then moves
//! it to its place.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;

use super::first_start::{discard, install};
use super::unlock::{Given, Sources};
use super::{Paths, exists, load, sync_folder};
use crate::audit::{Actor, AuditAction};
use crate::backup::{RestoreSummary, Sealed};
use crate::changes::WriteBatch;
use crate::check::{Verification, check};
use crate::clock::Clock;
use crate::commit::CommitHead;
use crate::digest::{DIGEST_BYTES, Digest};
use crate::error::OpenError;
use crate::fjall::{AnchorSlot, Database};
use crate::operation::{Progress, VaultError, tell};
use crate::seal::StoreKeys;
use crate::vault::VaultReader;

/// Bytes of rows in one batch.
const BATCH_BYTES: usize = 4 * 1024 * 1024;
/// Number of rows between two progress reports.
const STEP: u64 = 1000;

pub(crate) fn restore(
    dir: &Path,
    sources: &Sources<'_>,
    backup: &Path,
    clock: &Clock,
    progress: &mut Progress<'_>,
) -> Result<RestoreSummary, VaultError> {
    let paths = Paths::new(dir);
    if exists(&paths.store_new)? {
        discard(&paths)?;
    }
    let sealed = Sealed::open(backup, |header| Ok(Given::read(sources).choose(header)?.0))?;
    let origin = Origin {
        keys: &sealed.keys,
        end: (sealed.preamble.seq, sealed.preamble.head),
        rows: sealed.rows,
        action: AuditAction::Restored { made_at_ms: sealed.preamble.made_at_ms, seq: sealed.preamble.seq },
    };
    let built = build(&paths, &origin, |take| sealed.rows(take), clock, progress)?;
    let checked = built.map_err(|problem| sealed.unusable(problem))?;
    let summary = sealed.summary(clock.now_ms(), &checked);
    tracing::info!(store.id = %summary.store, seq = summary.seq, "restored a store from a backup");
    Ok(summary)
}

/// Where the rows of a new store come from.
pub(super) struct Origin<'o> {
    pub(super) keys: &'o Arc<StoreKeys>,
    /// Number of the last commit, and the head of the store's own chain after it, see [`StoreContent`].
    ///
    /// [`StoreContent`]: crate::backup::StoreContent
    pub(super) end: (u64, Digest),
    /// Number of rows; 0 if unknown.
    pub(super) rows: u64,
    /// What the audit log says about it.
    pub(super) action: AuditAction,
}

/// What takes rows: the number of a keyspace, the row key and the row.
pub(super) type TakeRow<'t> = dyn FnMut(usize, Vec<u8>, Vec<u8>) -> Result<(), VaultError> + 't;

/// Builds a store in `store.new`, checks all of it, and moves it to its place. The inner error is what is wrong
/// with the rows; nothing is left then.
pub(super) fn build(
    paths: &Paths,
    origin: &Origin<'_>,
    rows: impl FnOnce(&mut TakeRow<'_>) -> Result<(), VaultError>,
    clock: &Clock,
    progress: &mut Progress<'_>,
) -> Result<Result<Verification, String>, VaultError> {
    let built = fill_and_check(paths, origin, rows, clock, progress);
    if !matches!(built, Ok(Ok(_))) && exists(&paths.store_new)? {
        discard(paths)?;
    }
    let (checked, slot) = match built? {
        Ok(built) => built,
        Err(problem) => return Ok(Err(problem)),
    };
    install(paths, origin.keys, slot)?;
    Ok(Ok(checked))
}

fn fill_and_check(
    paths: &Paths,
    origin: &Origin<'_>,
    rows: impl FnOnce(&mut TakeRow<'_>) -> Result<(), VaultError>,
    clock: &Clock,
    progress: &mut Progress<'_>,
) -> Result<Result<(Verification, AnchorSlot), String>, VaultError> {
    DirBuilder::new().mode(0o700).create(&paths.store_new).map_err(OpenError::io(&paths.store_new))?;
    sync_folder(&paths.dir)?;
    let database = Database::create(&paths.store_new)?;
    fill(&database, origin.rows, rows, progress)?;
    complete(database, origin, clock, progress)
}

fn fill(
    database: &Database,
    of: u64,
    source: impl FnOnce(&mut TakeRow<'_>) -> Result<(), VaultError>,
    progress: &mut Progress<'_>,
) -> Result<(), VaultError> {
    let keyspaces = database.keyspaces();
    let mut batch = database.batch();
    let (mut bytes, mut rows) = (0, 0);
    source(&mut |keyspace, key, value| {
        let Some((_, keyspace)) = keyspaces.get(keyspace) else { return Ok(()) };
        bytes += key.len() + value.len();
        rows += 1;
        batch.insert(keyspace, key, value);
        if bytes >= BATCH_BYTES {
            bytes = 0;
            std::mem::replace(&mut batch, database.batch()).commit()?;
        }
        if rows % STEP == 0 {
            tell(progress, "rows", rows, of)?;
        }
        Ok(())
    })?;
    Ok(batch.commit()?)
}

/// Checks the whole store and commits an audit record of where it comes from, which also shows that the
/// store accepts commits.
fn complete(
    database: Database,
    origin: &Origin<'_>,
    clock: &Clock,
    progress: &mut Progress<'_>,
) -> Result<Result<(Verification, AnchorSlot), String>, VaultError> {
    let Origin { keys, end: (seq, head), action, .. } = origin;
    let access = VaultReader::new(Arc::clone(keys));
    let view = |directory| access.view(database.state(directory));
    let checked = check(&view(Arc::default()), (*seq, *head), progress)?;
    if let Some(problem) = checked.problems.first() {
        return Ok(Err(problem.clone()));
    }
    let markers = database.markers(keys)?;
    if !markers.iter().all(|marker| marker.is_some_and(|marker| marker.seq == *seq)) {
        return Ok(Err("its keyspaces are not of one commit".to_owned()));
    }
    let loaded = load(&database, keys)?;
    let mut batch = WriteBatch::new(view(loaded.directory), clock.now_ms());
    let (chains, ends) = checked.content.chains;
    // In a backup of a directory, its own chain names them.
    if *head == [0; DIGEST_BYTES] && chains > 0 {
        batch.audit(Actor::Operator, AuditAction::ChainsImported { chains, ends: *ends.as_bytes() });
    }
    batch.audit(Actor::Operator, action.clone());
    let (commit, _unseen) = batch.finish();
    let before = CommitHead { seq: *seq, head: *head, set: loaded.set, heads: loaded.heads };
    let last_commit = database.apply(keys, &before, seq + 1, commit)?;
    Ok(Ok((checked, AnchorSlot { seq: last_commit.seq, head: last_commit.head })))
}
