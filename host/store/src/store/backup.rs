//! Verifying, backing up and restoring as the rest of the program sees them.

use std::path::Path;

use super::key_records::only_one;
use super::{IMPLIED_KEY, OpenOptions, Store, sources};
use crate::anchor::{Anchor, Found};
use crate::backup::{self, BackupSummary, RestoreSummary};
use crate::check::{Verification, check, check_sums};
use crate::lock::DirectoryLock;
use crate::open;
use crate::operation::{Progress, VaultError};

/// What may lie in a directory that a backup is restored into, besides the key file and its relatives.
const ALLOWED: [&str; 4] = ["lock", "cofferdam.toml", "cache", "reserve"];

impl Store {
    /// Checks every secret, every vault's head, all other rows, the audit chain with its usage rows, the sums of
    /// these, and the anchor, while the store serves.
    ///
    /// # Errors
    /// [`VaultError::Stopped`], and errors of reading. What does not hold is an answer, not an error.
    pub fn verify(&self, progress: &mut Progress<'_>) -> Result<Verification, VaultError> {
        // In this order: the view has the tip's commit, and the anchor was written before the tip was told.
        let tip = self.0.shared.tip();
        let view = self.access()?.view();
        let mut found = check(&view, (tip.seq, tip.head), progress)?;
        // No part of the check before a backup: a store whose sums are off can be restored all the same.
        check_sums(&view, self.first_usage_day().0, &mut found.problems, progress)?;
        let anchored = Anchor::open(&self.0.anchor).and_then(|anchor| anchor.read(&self.0.keys));
        let holds = match anchored {
            Ok(Found::Slot(slot)) if slot.seq == tip.seq => slot.head == tip.head,
            Ok(Found::Slot(slot)) => slot.seq > tip.seq,
            Ok(Found::OtherStore | Found::Nothing) | Err(_) => false,
        };
        if !holds {
            found.problems.push("the anchor is not that of this state".to_owned());
        }
        Ok(found)
    }

    /// Writes everything but the root key into a file that must not exist, as of one moment, while the store
    /// serves. The whole store is checked on the way: a damaged one is not backed up.
    ///
    /// # Errors
    /// [`VaultError::Busy`] while another is written, [`VaultError::Exists`], [`VaultError::Unusable`] for a
    /// damaged store, [`VaultError::File`], [`VaultError::Stopped`], and errors of reading.
    pub fn backup(&self, path: &Path, progress: &mut Progress<'_>) -> Result<BackupSummary, VaultError> {
        // One backup at a time: each reads the whole store.
        let _alone = only_one(&self.0.backup)?;
        backup::write(&self.access()?.view(), self.0.clock.now_ms(), path, progress)
    }

    /// Makes a store out of a backup, in a directory that holds the root key and nothing else. Either the whole
    /// backup is in order and the store is there, or nothing is. Nothing is open when this returns.
    ///
    /// # Errors
    /// [`VaultError::NotEmpty`], [`VaultError::Unusable`], [`VaultError::File`], and the errors of opening a store
    /// with the wrong root key.
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
        // What an attempt that was cut short has left is taken away.
        let leftover = name == "store.new" || (name == "anchor" && dir.join("store.new").exists());
        if !(leftover || name.starts_with(IMPLIED_KEY) || ALLOWED.contains(&&*name)) {
            return Err(VaultError::NotEmpty { directory: dir.to_owned(), entry: name.into_owned() });
        }
    }
    Ok(())
}
