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
use crate::digest::DIGEST_BYTES;
use crate::error::OpenError;
use crate::fjall::{AnchorSlot, Database};
use crate::operation::{Progress, VaultError, tell};
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
    let built = build(&paths, sealed, clock, progress);
    if built.is_err() && exists(&paths.store_new)? {
        discard(&paths)?;
    }
    built
}

fn build(
    paths: &Paths,
    sealed: Sealed,
    clock: &Clock,
    progress: &mut Progress<'_>,
) -> Result<RestoreSummary, VaultError> {
    DirBuilder::new().mode(0o700).create(&paths.store_new).map_err(OpenError::io(&paths.store_new))?;
    sync_folder(&paths.dir)?;
    let database = Database::create(&paths.store_new)?;
    fill(&database, &sealed, progress)?;
    let (checked, sealed, slot) = complete(database, sealed, clock, progress)?;
    install(paths, &sealed.keys, slot)?;
    let summary = sealed.summary(clock.now_ms(), &checked);
    tracing::info!(store.id = %summary.store, seq = summary.seq, "restored a store from a backup");
    Ok(summary)
}

fn fill(database: &Database, sealed: &Sealed, progress: &mut Progress<'_>) -> Result<(), VaultError> {
    let keyspaces = database.keyspaces();
    let mut batch = database.batch();
    let (mut bytes, mut rows) = (0, 0);
    sealed.rows(|keyspace, key, value| {
        let Some((_, keyspace)) = keyspaces.get(keyspace) else { return Ok(()) };
        bytes += key.len() + value.len();
        rows += 1;
        batch.insert(keyspace, key, value);
        if bytes >= BATCH_BYTES {
            bytes = 0;
            std::mem::replace(&mut batch, database.batch()).commit()?;
        }
        if rows % STEP == 0 {
            tell(progress, "rows", rows, sealed.rows)?;
        }
        Ok(())
    })?;
    Ok(batch.commit()?)
}

/// Checks the whole store and commits an audit record of the restore, which also shows that the
/// store accepts commits.
fn complete(
    database: Database,
    sealed: Sealed,
    clock: &Clock,
    progress: &mut Progress<'_>,
) -> Result<(Verification, Sealed, AnchorSlot), VaultError> {
    let keys = Arc::clone(&sealed.keys);
    let access = VaultReader::new(Arc::clone(&keys));
    let view = |directory| access.view(database.state(directory));
    let (seq, head) = (sealed.preamble.seq, sealed.preamble.head);
    let checked = check(&view(Arc::default()), (seq, head), progress)?;
    if let Some(problem) = checked.problems.first() {
        return Err(sealed.unusable(problem.as_str()));
    }
    let markers = database.markers(&keys)?;
    if !markers.iter().all(|marker| marker.is_some_and(|marker| marker.seq == seq)) {
        return Err(sealed.unusable("its keyspaces are not of one commit"));
    }
    let loaded = load(&database, &keys)?;
    let mut draft = WriteBatch::new(view(loaded.directory), clock.now_ms());
    let made_at_ms = sealed.preamble.made_at_ms;
    let (chains, ends) = checked.content.chains;
    // In a backup of a directory, its own chain names them.
    if head == [0; DIGEST_BYTES] && chains > 0 {
        draft.audit(Actor::Operator, AuditAction::ChainsImported { chains, ends: *ends.as_bytes() });
    }
    draft.audit(Actor::Operator, AuditAction::Restored { made_at_ms, seq });
    let (commit, _unseen) = draft.finish();
    let before = CommitHead { seq, head, set: loaded.set, heads: loaded.heads };
    let tip = database.apply(&keys, &before, seq + 1, commit)?;
    Ok((checked, sealed, AnchorSlot { seq: tip.seq, head: tip.head }))
}
