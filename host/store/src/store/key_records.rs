//! Changes of what opens the store: another root key, a recovery key.
//!
//! Both go the same way, one commit after another, beside everything else that is written: announce the new key,
//! put it on every key record, check that it alone opens all of them, make it count, take off what it replaced.
//! A kill in between leaves a store that the key of before opens, or from the commit on that makes the new one
//! count, that one; the next start that has both goes on where this ended.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use super::{IMPLIED_KEY_NEXT, Store};
use crate::error::Error;
use crate::operation::{Progress, VaultError, tell};
use crate::root_key::{
    RootKey, RootKeyError, RootKeyId, RootKeyMaterial, RootKeyRecord, RootKeySource, write_file,
};
use crate::rows::{self, Header};
use crate::seal::{KeyRecord, WrapKey};
use crate::secret::Secret;

/// Key records in one commit. Tests have several with a few vaults.
const BATCH: usize = if cfg!(test) { 2 } else { 256 };

/// A root key was replaced.
#[derive(Clone, Debug)]
pub struct RootRotation {
    /// The root key in use.
    pub root_key: RootKeyId,
    /// The one before.
    pub previous: RootKeyId,
    /// How many key records were wrapped again.
    pub records: u64,
    /// The key file of the data directory, if it holds the new key now: then nothing is left to configure.
    pub replaced_file: Option<PathBuf>,
    /// Where the key that was in it is kept.
    pub kept_file: Option<PathBuf>,
}

/// A new recovery key. It exists nowhere else: show it once.
#[derive(Debug)]
pub struct RecoveryKey {
    /// Its id.
    pub id: RootKeyId,
    /// The key, in hexadecimal digits.
    pub key: Secret,
}

impl Store {
    /// Puts another root key in the place of the one in use, while the store serves. Goes on with an earlier
    /// rotation to the same key.
    ///
    /// When the key in use is `root.key` of the data directory, as it is without configuration, the new one takes
    /// its place there and the old one is kept beside it under its id. Otherwise the configuration has to be
    /// changed before the next start.
    ///
    /// # Errors
    /// [`VaultError::SameKey`], [`VaultError::Busy`], [`VaultError::Stopped`], [`VaultError::RootKey`],
    /// [`VaultError::File`], and those of every mutation.
    pub fn rotate_root(
        &self,
        to: RootKeyMaterial,
        progress: &mut Progress<'_>,
    ) -> Result<RootRotation, VaultError> {
        let _alone = self.alone()?;
        let header = self.header();
        if to.key_of(&header.root)?.is_some() {
            // Asked for once more, perhaps after a kill: what was wanted is so.
            let (replaced_file, kept_file) = self.install_successor(&header)?.unzip();
            self.drop_old_wrappings(progress)?;
            let root_key = header.root.id;
            let previous = header.previous_root.ok_or(VaultError::SameKey { id: root_key, what: "root" })?;
            let kept_file = kept_file.flatten();
            return Ok(RootRotation { root_key, previous, records: 0, replaced_file, kept_file });
        }
        // Before the place beside the key file is used again: it may be the only one with the key in use.
        self.install_successor(&header)?;
        if let Some(recovery) = &header.recovery
            && to.key_of(recovery)?.is_some()
        {
            return Err(VaultError::SameKey { id: recovery.id, what: "recovery" });
        }
        let (key, record) = next_root(&to, header.next_root.as_ref())?;
        let implied = self.0.implied_key.as_ref().filter(|_| record.is_plain());
        if let Some(file) = implied {
            place_successor(file, &key)?;
        }
        let previous = header.root.id;
        let records = self.introduce_root(&key, record, progress)?;
        let kept_file = implied.map(|file| install(file, previous)).transpose()?.flatten();
        self.drop_old_wrappings(progress)?;
        let replaced_file = implied.cloned();
        Ok(RootRotation { root_key: key.id(), previous, records, replaced_file, kept_file })
    }

    /// Ends an earlier rotation that could not put the key file in its place. Gives that file, and where the one
    /// before is kept.
    fn install_successor(&self, header: &Header) -> Result<Option<(PathBuf, Option<PathBuf>)>, VaultError> {
        let (Some(file), Some(previous)) = (&self.0.implied_key, header.previous_root) else {
            return Ok(None);
        };
        match successor(file).read() {
            Ok(key) if key.id() == Some(header.root.id) => Ok(Some((file.clone(), install(file, previous)?))),
            _ => Ok(None),
        }
    }

    fn introduce_root(
        &self,
        key: &RootKey,
        record: RootKeyRecord,
        progress: &mut Progress<'_>,
    ) -> Result<u64, VaultError> {
        let wrap_key = key.wrap_key();
        let begin = wrap_key.clone();
        let header = self.submit(move |draft| draft.begin_root_rotation(record, begin))?;
        self.set_header(header);
        tell(progress, "key records", 0, 0)?;
        let records = self.rewrap_all(progress)?;
        self.check_all(&wrap_key, progress)?;
        let header = self.submit(|draft| draft.end_root_rotation())?;
        tracing::info!(root_key.id = %header.root.id, "the root key was replaced");
        self.set_header(header);
        tell(progress, "key records", records, records)?;
        Ok(records)
    }

    /// Makes a recovery key, with which the store opens when its root key is lost. One made before is of no use
    /// any more.
    ///
    /// # Errors
    /// [`VaultError::Busy`], [`VaultError::Stopped`], [`Error::NoRootKey`], and those of every mutation.
    pub fn new_recovery_key(&self, progress: &mut Progress<'_>) -> Result<RecoveryKey, VaultError> {
        let _alone = self.alone()?;
        let key = RootKey::random()?;
        let made = self.introduce_recovery(&key, progress);
        if made.is_err() {
            self.forget_next_recovery();
        }
        made?;
        // The key counts; what is left over must not keep it from being shown.
        if let Err(error) = self.drop_old_wrappings(progress) {
            tracing::warn!(%error, "wrappings by an earlier recovery key are dropped at the next start");
        }
        Ok(RecoveryKey { id: key.id(), key: Secret::new(key.to_hex().as_bytes().to_vec()) })
    }

    fn introduce_recovery(&self, key: &RootKey, progress: &mut Progress<'_>) -> Result<(), VaultError> {
        let wrap_key = key.wrap_key();
        let begin = wrap_key.clone();
        let header = self.submit(move |draft| draft.begin_recovery_key(begin))?;
        self.set_header(header);
        tell(progress, "key records", 0, 0)?;
        self.rewrap_all(progress)?;
        self.check_all(&wrap_key, progress)?;
        let record = key.record(None);
        let header = self.submit(move |draft| draft.end_recovery_key(record))?;
        self.set_header(header);
        Ok(())
    }

    fn forget_next_recovery(&self) {
        let mut keys = (*self.0.keys.wrap_keys()).clone();
        keys.next_recovery = None;
        self.0.keys.set_wrap_keys(keys);
    }

    /// Wraps every vault's key record under what counts at this moment and nothing else. Tells how many there
    /// are.
    fn rewrap_all(&self, progress: &mut Progress<'_>) -> Result<u64, VaultError> {
        let mut last: Option<Vec<u8>> = None;
        let mut done = 0;
        loop {
            // Records made from here on are wrapped rightly by whoever makes them.
            let records = self.access()?.view().vault_records(last.as_deref(), BATCH)?;
            let Some(end) = records.last().cloned() else { return Ok(done) };
            done += records.len() as u64;
            self.submit(move |draft| draft.rewrap(&records))?;
            tell(progress, "key records", done, 0)?;
            last = Some(end);
        }
    }

    /// Opens every vault's key record with this key alone.
    fn check_all(&self, by: &WrapKey, progress: &mut Progress<'_>) -> Result<(), VaultError> {
        let view = self.access()?.view();
        let records = view.vault_records(None, usize::MAX)?;
        let of = records.len() as u64;
        for (done, row) in (1..).zip(records) {
            let Some(value) = view.key_row(&row)? else { continue };
            let record: Option<KeyRecord> = rows::decode(view.keys(), crate::database::KEYS, &row, &value);
            if !record.is_some_and(|record| view.keys().opens_with(&row, &record, by)) {
                return Err(Error::Damaged.into());
            }
            if done % BATCH as u64 == 0 {
                tell(progress, "key records checked", done, of)?;
            }
        }
        Ok(())
    }

    /// Takes off every key record what no longer counts.
    fn drop_old_wrappings(&self, progress: &mut Progress<'_>) -> Result<(), VaultError> {
        if !self.header().untidy {
            return Ok(());
        }
        self.rewrap_all(progress)?;
        let header = self.submit(|draft| {
            draft
                .change_header(crate::audit::AuditAction::OldWrappingsDropped, |header| header.untidy = false)
        })?;
        self.set_header(header);
        Ok(())
    }

    /// Goes on with what an earlier process began, as far as the keys at hand allow.
    pub(super) fn go_on(&self, rotate_to: Option<RootKeyMaterial>) -> Result<(), VaultError> {
        let unseen: &mut Progress<'_> = &mut |_, _, _| std::ops::ControlFlow::Continue(());
        self.install_successor(&self.header())?;
        if let Some(to) = rotate_to {
            let done = self.rotate_root(to, unseen)?;
            tracing::warn!(
                root_key.id = %done.root_key, previous.id = %done.previous,
                "replaced the root key as configured; `root_key_previous` can be taken out of the configuration"
            );
        }
        let _alone = self.alone()?;
        // What an unfinished rotation has wrapped is still wanted when its key is not at hand, and so is what opens
        // with the root key when the recovery key has opened the store.
        if self.header().next_root.is_none() && self.0.keys.wrap_keys().root.is_some() {
            self.drop_old_wrappings(unseen)?;
        }
        self.delete_due(unseen)
    }

    pub(super) fn header(&self) -> Arc<Header> {
        self.0.header.load_full()
    }

    pub(super) fn set_header(&self, header: Header) {
        self.0.header.store(Arc::new(header));
    }

    /// One operation on keys at a time. The one before may have stopped waiting for a change that was made later:
    /// the header is taken from where that change would be.
    pub(super) fn alone(&self) -> Result<MutexGuard<'_, ()>, VaultError> {
        let guard = only_one(&self.0.operation)?;
        self.set_header(self.submit(|draft| draft.header())?);
        Ok(guard)
    }
}

/// The right to do what is done once at a time.
pub(super) fn only_one(operation: &Mutex<()>) -> Result<MutexGuard<'_, ()>, VaultError> {
    match operation.try_lock() {
        Ok(guard) => Ok(guard),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => Err(VaultError::Busy),
    }
}

/// The key to come and its record, which is the one in the header when that was begun with this key.
fn next_root(
    to: &RootKeyMaterial,
    begun: Option<&RootKeyRecord>,
) -> Result<(RootKey, RootKeyRecord), RootKeyError> {
    if let Some(record) = begun
        && let Some(key) = to.key_of(record)?
    {
        return Ok((key, record.clone()));
    }
    let (key, stretching) = to.to_new_key()?;
    let record = key.record(stretching);
    Ok((key, record))
}

fn successor(file: &Path) -> RootKeySource {
    RootKeySource::File(file.with_file_name(IMPLIED_KEY_NEXT))
}

/// Puts the new key beside the key file, so that the next start finds whichever of the two it needs.
fn place_successor(file: &Path, key: &RootKey) -> Result<(), VaultError> {
    let path = file.with_file_name(IMPLIED_KEY_NEXT);
    match successor(file).read() {
        Ok(found) if found.id() == Some(key.id()) => return Ok(()),
        Err(RootKeyError::Missing(_)) => {}
        // Of a rotation that was given up.
        _ => std::fs::remove_file(&path).map_err(VaultError::file(&path))?,
    }
    write_file(&path, key).map_err(VaultError::file(&path))
}

/// Puts the successor in the place of the key file. Tells where that file is kept, if there was one.
fn install(file: &Path, previous: RootKeyId) -> Result<Option<PathBuf>, VaultError> {
    let next = file.with_file_name(IMPLIED_KEY_NEXT);
    let kept = file.with_added_extension(previous.to_string());
    let folder = file.parent().unwrap_or_else(|| Path::new("."));
    let is_kept = match std::fs::hard_link(file, &kept) {
        Ok(()) => true,
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => true,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(source) => return Err(VaultError::File { path: kept, source }),
    };
    let sync = || std::fs::File::open(folder).and_then(|folder| folder.sync_all());
    sync().map_err(VaultError::file(folder))?;
    std::fs::rename(&next, file).map_err(VaultError::file(&next))?;
    sync().map_err(VaultError::file(folder))?;
    Ok(is_kept.then_some(kept))
}

#[cfg(test)]
mod tests;
