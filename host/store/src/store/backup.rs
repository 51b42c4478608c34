//! Verify, backup and restore, as the rest of the program uses them.

use std::path::{Path, PathBuf};

use super::key_records::only_one;
use super::{IMPLIED_KEY, OpenOptions, Store, sources};
use crate::backup::{self, BackupSummary, LastBackup, RestoreSummary};
use crate::check::{Verification, check, check_sums};
use crate::fjall::DirectoryLock;
use crate::open;
use crate::operation::{Progress, VaultError};

/// Entries that a directory may have before a restore, besides the key file and files named after
/// it.
const ALLOWED: [&str; 5] = ["lock", "cofferdam.toml", "cache", "reserve", LastBackup::FILE_NAME];

impl Store {
    /// Checks every secret, the head of every vault, all other rows, the audit chain with its usage
    /// rows, the sums of these, and the anchor. The store stays in service meanwhile.
    ///
    /// # Errors
    /// [`VaultError::Stopped`], and errors of reading. What is wrong with the store is in the
    /// result, not an error.
    pub fn verify(&self, progress: &mut Progress<'_>) -> Result<Verification, VaultError> {
        // The order matters: the view must have the commit of `last_commit`, and the anchor was written
        // before `last_commit` was published.
        let last_commit = self.0.shared.last_commit();
        let view = self.view()?;
        let mut found = check(&view, (last_commit.seq, last_commit.head), progress)?;
        // Not part of the check before a backup: a store with wrong sums can still be restored.
        let (first_day, dropped_before) = (self.first_usage_day(), found.usage_dropped_before);
        check_sums(&view, first_day, dropped_before, &mut found.problems, progress)?;
        if !self.0.engine.is_anchored(&self.0.keys, last_commit) {
            found.problems.push("the anchor is not that of this state".to_owned());
        }
        Ok(found)
    }

    /// Writes everything but the root key, as of one moment, to the new file `path`, while the
    /// store stays in service. The whole store is checked first: a damaged one is not backed up. With a
    /// database that names a standby, all of it is read there: see [`Database::with_standby`](crate::Database::with_standby).
    ///
    /// # Errors
    /// [`VaultError::Busy`] while another backup is written, [`VaultError::Exists`], [`VaultError::StandbyLags`],
    /// [`VaultError::Unusable`] for a damaged store, [`VaultError::File`], [`VaultError::Stopped`],
    /// and errors of reading.
    pub fn backup(&self, path: &Path, progress: &mut Progress<'_>) -> Result<BackupSummary, VaultError> {
        // One backup at a time: each one reads the whole store.
        let _alone = only_one(&self.0.backup)?;
        let view = self.0.access.view(self.0.engine.backup_state(progress)?);
        let made = backup::write(&view, self.0.clock.now_ms(), path, progress)?;
        if let Some(dir) = self.0.engine.folder().or_else(|| self.0.notes.get().map(PathBuf::as_path)) {
            LastBackup::note(dir, path, &made);
        }
        Ok(made)
    }

    /// Notes backups of a store in a database in this data directory of the host. That of a store in a data
    /// directory is there already.
    pub fn note_backups_in(&self, dir: &Path) {
        // A second directory is not taken.
        drop(self.0.notes.set(dir.to_owned()));
    }

    /// Restores a backup into a directory that holds the root key and nothing else. Either the
    /// whole backup is valid and the store is created, or nothing is. The store is not open
    /// afterwards.
    ///
    /// # Errors
    /// [`VaultError::NotEmpty`], [`VaultError::Unusable`], [`VaultError::File`], and the errors of
    /// opening a store with a wrong root key.
    pub fn restore(
        lock: &DirectoryLock,
        options: &OpenOptions,
        path: &Path,
        progress: &mut Progress<'_>,
    ) -> Result<RestoreSummary, VaultError> {
        check_empty(lock.dir())?;
        sources(lock, options, |sources| open::restore(lock.dir(), sources, path, &options.clock, progress))
    }
}

fn check_empty(dir: &Path) -> Result<(), VaultError> {
    for entry in std::fs::read_dir(dir).map_err(VaultError::file(dir))? {
        let name = entry.map_err(VaultError::file(dir))?.file_name();
        let name = name.to_string_lossy();
        // Remains of an interrupted restore or first start, which `restore` removes.
        let leftover = name == "store.new" || (name == "anchor" && dir.join("store.new").exists());
        if !(leftover || name.starts_with(IMPLIED_KEY) || ALLOWED.contains(&&*name)) {
            return Err(VaultError::NotEmpty { directory: dir.to_owned(), entry: name.into_owned() });
        }
    }
    Ok(())
}
