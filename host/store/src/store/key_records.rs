//! Changes of the keys that open the store: rotation of the root key, and recovery keys.
//!
//! Both work in the same way, in several commits, while the store stays in service: announce the
//! new key, wrap every key record under it too, check that it opens all of them, put it in force,
//! remove the wrappings of the key it replaced. If the process is killed in between, the old key
//! opens the store, or the new one if it was in force already. The next start that has both keys
//! continues where the operation stopped.
//!
//! The hosts of a store in a database take each header over before a change of it is answered. A new
//! root key is announced and put in force only while every one of them has it, and a start does not
//! continue its rotation: the command is run again.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use super::{IMPLIED_KEY_NEXT, Store};
use crate::changes::guarded;
use crate::error::Error;
use crate::header::Header;
use crate::operation::{Progress, VaultError, tell};
use crate::root_key::{
    RootKey, RootKeyError, RootKeyId, RootKeyMaterial, RootKeyRecord, RootKeySource, WrapKey, write_file,
};
use crate::rows::{self, Keyspace};
use crate::seal::KeyRecord;
use crate::secret::Secret;
use crate::state::{Guard, RowRange};

/// Number of key records in one commit. Small in tests, so that a few vaults take several commits.
const BATCH: usize = if cfg!(test) { 2 } else { 256 };

/// Result of a rotation of the root key.
#[derive(Clone, Debug)]
pub struct RootRotation {
    /// Id of the root key in use.
    pub root_key: RootKeyId,
    /// Id of the previous root key.
    pub previous: RootKeyId,
    /// Number of key records that were rewrapped.
    pub records: u64,
    /// The key file of the data directory, if it now holds the new key. Then no configuration has
    /// to be changed.
    pub replaced_file: Option<PathBuf>,
    /// The file that has the previous key now.
    pub kept_file: Option<PathBuf>,
}

/// A new recovery key. It is stored nowhere: show it to the operator once.
#[derive(Debug)]
pub struct RecoveryKey {
    /// Its id.
    pub id: RootKeyId,
    /// The key, in hexadecimal digits.
    pub key: Secret,
}

impl Store {
    /// Replaces the root key, while the store stays in service. Continues an earlier rotation to
    /// the same key.
    ///
    /// If the key in use is `root.key` in the data directory, which is the default, the new key
    /// replaces that file and the old key is kept beside it, in a file with its id in the name.
    /// Otherwise the configuration has to be changed before the next start.
    ///
    /// Of a store in a database, every host must have the new key in its configuration.
    ///
    /// # Errors
    /// [`VaultError::Passphrase`], [`VaultError::NotConfigured`] and [`VaultError::HostsLackKey`] of a
    /// store in a database; [`VaultError::SameKey`], [`VaultError::Busy`], [`VaultError::Stopped`],
    /// [`VaultError::RootKey`], [`VaultError::File`], and those of every mutation.
    pub fn rotate_root(
        &self,
        to: RootKeyMaterial,
        progress: &mut Progress<'_>,
    ) -> Result<RootRotation, VaultError> {
        let (_alone, header) = self.alone()?;
        if to.key_of(&header.root)?.is_some() {
            // The rotation was finished before, perhaps by a process that was killed: only finish
            // its last steps.
            let (replaced_file, kept_file) = self.install_successor(&header)?.unzip();
            self.drop_old_wrappings(header.clone(), progress)?;
            let root_key = header.root.id;
            let previous = header.previous_root.ok_or(VaultError::SameKey { id: root_key, what: "root" })?;
            let kept_file = kept_file.flatten();
            return Ok(RootRotation { root_key, previous, records: 0, replaced_file, kept_file });
        }
        // Must come before `place_successor`, which overwrites the next key file: that file may be
        // the only copy of the key in use.
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
        let (records, header) = self.introduce_root(&key, record, progress)?;
        let kept_file = implied.map(|file| install(file, previous)).transpose()?.flatten();
        self.drop_old_wrappings(header, progress)?;
        let replaced_file = implied.cloned();
        Ok(RootRotation { root_key: key.id(), previous, records, replaced_file, kept_file })
    }

    /// Finishes an earlier rotation that did not get to replace the key file. Returns that file,
    /// and the file with the previous key.
    fn install_successor(&self, header: &Header) -> Result<Option<(PathBuf, Option<PathBuf>)>, VaultError> {
        let (Some(file), Some(previous)) = (&self.0.implied_key, header.previous_root) else {
            return Ok(None);
        };
        match successor(file).read() {
            Ok(key) if key.id() == Some(header.root.id) => Ok(Some((file.clone(), install(file, previous)?))),
            _ => Ok(None),
        }
    }

    /// Returns the number of key records, and the header after it.
    fn introduce_root(
        &self,
        key: &RootKey,
        record: RootKeyRecord,
        progress: &mut Progress<'_>,
    ) -> Result<(u64, Header), VaultError> {
        let (id, wrap_key) = (key.id(), key.wrap_key());
        self.check_hosts(&record)?;
        self.0.keys.change_ring(|ring| ring.add(wrap_key.clone()));
        let begin = record.clone();
        let header = self.submit(guarded([Guard::Store], move |batch| batch.begin_root_rotation(&begin)))?;
        self.set_header(header);
        tell(progress, "key records", 0, 0)?;
        let records = self.rewrap_all(progress)?;
        self.check_all(&wrap_key, progress)?;
        // A host that started before the first check could not read that a key is announced.
        self.check_hosts(&record)?;
        let header = self.submit(guarded([Guard::Store], move |batch| batch.end_root_rotation(id)))?;
        let header = header.ok_or(VaultError::Busy)?;
        tracing::info!(root_key.id = %header.root.id, "the root key was replaced");
        self.set_header(header.clone());
        tell(progress, "key records", records, records)?;
        Ok((records, header))
    }

    /// Makes a recovery key, which opens the store when the root key is lost. It replaces an
    /// earlier recovery key.
    ///
    /// # Errors
    /// [`VaultError::Busy`], [`VaultError::Stopped`], [`Error::NoRootKey`], and those of every mutation.
    pub fn new_recovery_key(&self, progress: &mut Progress<'_>) -> Result<RecoveryKey, VaultError> {
        let _alone = self.alone()?;
        let key = RootKey::random()?;
        let made = self.introduce_recovery(&key, progress);
        self.0.keys.change_ring(|ring| ring.introducing = None);
        // The new key is in force. It must be returned even if old wrappings could not be removed.
        if let Err(error) = self.drop_old_wrappings(made?, progress) {
            tracing::warn!(%error, "wrappings by an earlier recovery key are dropped at the next start");
        }
        Ok(RecoveryKey { id: key.id(), key: Secret::new(key.to_hex().as_bytes().to_vec()) })
    }

    fn introduce_recovery(&self, key: &RootKey, progress: &mut Progress<'_>) -> Result<Header, VaultError> {
        let (id, wrap_key) = (key.id(), key.wrap_key());
        let header = self.submit(guarded([Guard::Store], move |batch| batch.begin_recovery_key(id)))?;
        self.set_header(header);
        self.0.keys.change_ring(|ring| {
            ring.add(wrap_key.clone());
            ring.introducing = Some(id);
        });
        tell(progress, "key records", 0, 0)?;
        self.rewrap_all(progress)?;
        self.check_all(&wrap_key, progress)?;
        let record = key.record(None);
        let header = self.submit(guarded([Guard::Store], move |batch| batch.end_recovery_key(&record)))?;
        let header = header.ok_or(VaultError::Busy)?;
        self.set_header(header.clone());
        Ok(header)
    }

    /// Rewraps every vault's key record under exactly the keys in force at present. Returns the
    /// number of records.
    fn rewrap_all(&self, progress: &mut Progress<'_>) -> Result<u64, VaultError> {
        let mut last: Option<Vec<u8>> = None;
        let mut done = 0;
        loop {
            // Records made after this read are already wrapped under the right keys.
            let records = self.view()?.vault_records(last.as_deref(), BATCH)?;
            let Some(end) = records.last().cloned() else { return Ok(done) };
            done += records.len() as u64;
            let vaults = records.iter().filter_map(|row| rows::vault_of_keys(row)).map(Guard::Vault);
            let guards: Vec<Guard> = vaults.chain([Guard::Header]).collect();
            self.submit(guarded(guards, move |batch| batch.rewrap(&records)))?;
            tell(progress, "key records", done, 0)?;
            last = Some(end);
        }
    }

    /// Checks that this key alone opens every vault's key record that is wrapped under it. Those that
    /// another process has written meanwhile without it are wrapped when it is put in force.
    fn check_all(&self, by: &WrapKey, progress: &mut Progress<'_>) -> Result<(), VaultError> {
        let view = self.view()?;
        let (first, last) = rows::vault_keys_range();
        let range = RowRange::all(Keyspace::Keys).from(first).through(last);
        for (done, found) in (1..).zip(view.range(&range)?) {
            let (row, value) = found?;
            let record: Option<KeyRecord> = rows::decode(view.keys(), rows::KEYS, &row, &value);
            let record = record.ok_or(Error::Damaged)?;
            let is_wrapped = record.wrapped_by().any(|id| id == by.id());
            if is_wrapped && !view.keys().opens_with(&row, &record, by) {
                return Err(Error::Damaged.into());
            }
            if done % BATCH as u64 == 0 {
                tell(progress, "key records checked", done, 0)?;
            }
        }
        Ok(())
    }

    /// Removes from every key record the wrappings by keys that are no longer in force. `header` says
    /// which are, unless another process changes that meanwhile. A recovery key that was announced before
    /// and is not in force is given up.
    fn drop_old_wrappings(&self, header: Header, progress: &mut Progress<'_>) -> Result<(), VaultError> {
        if !header.untidy {
            return Ok(());
        }
        let header = match header.next_recovery {
            Some(_) => self.submit(guarded([Guard::Store], |batch| batch.forget_next_recovery()))?,
            None => header,
        };
        self.set_header(header.clone());
        self.rewrap_all(progress)?;
        let header = self.submit(guarded([Guard::Store], move |batch| batch.end_tidying(&header)))?;
        self.set_header(header);
        Ok(())
    }

    /// Continues the operations of an earlier process, as far as the available keys allow.
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
        let (_alone, header) = self.alone()?;
        // Wrappings must stay in three cases: those by the next root key while its rotation is
        // unfinished, those by the root key when the recovery key opened the store, and, in a store that
        // other hosts serve too, those by the next recovery key while one of them may be making it.
        let may_be_made = header.next_recovery.is_some() && self.0.database_hosts.is_some();
        if header.next_root.is_none() && self.has_root_key() && !may_be_made {
            self.drop_old_wrappings(header, unseen)?;
        }
        self.delete_due(unseen)
    }

    pub(super) fn header(&self) -> Arc<Header> {
        self.0.header.load_full()
    }

    /// Whether the root key in force is among the keys of this process, as it is unless the recovery key
    /// opened the store.
    pub(super) fn has_root_key(&self) -> bool {
        self.0.keys.ring().find(self.header().root.id).is_some()
    }

    /// Publishes a header that this process has committed. Of a store in a database, the task that follows
    /// the changes of all hosts does it, before the commit is answered.
    pub(super) fn set_header(&self, header: Header) {
        if self.0.database_hosts.is_none() {
            self.0.header.store(Arc::new(header));
        }
    }

    /// Permits one operation on keys at a time in this process, and returns the header. An earlier
    /// operation may have stopped waiting for a change that was committed later, so the header is read
    /// again on the writer's thread.
    pub(super) fn alone(&self) -> Result<(MutexGuard<'_, ()>, Header), VaultError> {
        let guard = only_one(&self.0.operation)?;
        let header = self.submit(guarded([Guard::Store], |batch| batch.header()))?;
        self.set_header(header.clone());
        Ok((guard, header))
    }
}

/// Takes a lock without waiting; [`VaultError::Busy`] when it is held.
pub(super) fn only_one(operation: &Mutex<()>) -> Result<MutexGuard<'_, ()>, VaultError> {
    match operation.try_lock() {
        Ok(guard) => Ok(guard),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => Err(VaultError::Busy),
    }
}

/// The new root key and its record. If a rotation to this key was begun before, it is the record in
/// the header.
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

/// Writes the new key to a file beside the key file, so that the next start finds the key it needs
/// in one of the two.
fn place_successor(file: &Path, key: &RootKey) -> Result<(), VaultError> {
    let path = file.with_file_name(IMPLIED_KEY_NEXT);
    match successor(file).read() {
        Ok(found) if found.id() == Some(key.id()) => return Ok(()),
        Err(RootKeyError::Missing(_)) => {}
        // A key of a rotation that was abandoned.
        _ => std::fs::remove_file(&path).map_err(VaultError::file(&path))?,
    }
    write_file(&path, key).map_err(VaultError::file(&path))
}

/// Replaces the key file with its successor. Returns the file that the previous key is kept in, if
/// there was one.
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
