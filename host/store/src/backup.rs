//! Backups: a sealed copy of all rows at one moment, and stores restored from it.
//!
//! A backup has no root key in it, and its values stay encrypted as in the store. The store is
//! checked before a backup is written. The restored store is checked in the same way before it is
//! put in place. So a store that could not be restored is found when the backup is made.
//!
//! A backup of a store in a database has the rows of a data directory: its chains in the form of
//! [`crate::log`], and the markers that the engine of a database does not need.

mod content;
pub(crate) mod format;
mod last;

use std::fs::{File, OpenOptions as FileOptions};
use std::io::{BufReader, BufWriter};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use format::{BackupEnd, BackupPart, BackupWriter, FormatError, Preamble};
use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::check::Verification;
use crate::digest::Digest;
use crate::digest::same;
use crate::error::OpenError;
use crate::header::{self, Header};
use crate::hex;
use crate::ids::StoreId;
use crate::operation::{Progress, VaultError, tell};
use crate::root_key::{RootKeyId, WrapKey};
use crate::rows::{self, KEYS};
use crate::seal::{KeyRecord, STORE_KEYS, StoreKeys};
use crate::vault::VaultSnapshot;

pub(crate) use content::StoreContent;
pub use last::LastBackup;

/// Number of the keyspace `keys` in a backup: its place in
/// [`Keyspace::ALL`](rows::Keyspace::ALL).
const IN_KEYS: usize = 0;
/// Number of rows between two progress reports.
const STEP: u64 = 1000;

/// What a backup that was written contains.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BackupSummary {
    /// Id of the store.
    pub store: StoreId,
    /// Id of the root key that is needed to restore it.
    pub root_key: RootKeyId,
    /// Whether it can also be restored with the store's recovery key.
    pub has_recovery_key: bool,
    /// Creation time, Unix milliseconds.
    pub made_at_ms: u64,
    /// Sequence number of the last commit in it; of a store in a database, the position of the last one.
    pub seq: u64,
    /// Number of rows.
    pub rows: u64,
    /// Length of the file in bytes.
    pub bytes: u64,
}

/// What a restored store contains.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RestoreSummary {
    /// Id of the store.
    pub store: StoreId,
    /// Id of the root key it is wrapped under.
    pub root_key: RootKeyId,
    /// When the backup was made, Unix milliseconds.
    pub made_at_ms: u64,
    /// Age of the backup, milliseconds.
    pub age_ms: u64,
    /// Sequence number of the last commit in the backup.
    pub seq: u64,
    /// Number of rows.
    pub rows: u64,
    /// Number of vaults that have keys.
    pub vaults: u64,
    /// Number of secrets. Each was decrypted during the check.
    pub secrets: u64,
    /// Number of audit records. Each was verified.
    pub audit_records: u64,
    /// Number of API keys, including revoked ones.
    pub keys: u64,
}

/// Writes all rows of the view to the new file `path`. The content is written to a draft file in
/// the same folder first and renamed at the end.
pub(crate) fn write(
    view: &VaultSnapshot,
    now_ms: u64,
    path: &Path,
    progress: &mut Progress<'_>,
) -> Result<BackupSummary, VaultError> {
    if path.try_exists().map_err(VaultError::file(path))? {
        return Err(VaultError::Exists(path.to_owned()));
    }
    let content = StoreContent::read(view, progress)?;
    if let Some(problem) = content.checked.problems.first() {
        let what = format!("{problem}; `vault verify` tells all");
        return Err(VaultError::Unusable { path: path.to_owned(), what });
    }
    let header = &content.header;
    let (seq, head) = content.end;
    let preamble =
        Preamble { store: view.keys().store_id(), made_at_ms: now_ms, root_key: header.root.id, seq, head };
    let draft = BackupFile::create(path)?;
    let rows = draft.fill(&content, &preamble, progress)?;
    let bytes = draft.publish(path)?;
    Ok(BackupSummary {
        store: preamble.store,
        root_key: header.root.id,
        has_recovery_key: header.recovery.is_some(),
        made_at_ms: now_ms,
        seq: preamble.seq,
        rows,
        bytes,
    })
}

/// The unfinished file of a backup. Deleted when dropped before [`BackupFile::publish`].
struct BackupFile {
    path: PathBuf,
    file: Option<File>,
}

impl BackupFile {
    fn create(path: &Path) -> Result<BackupFile, VaultError> {
        // A random name, so that a file left behind by a killed process is never in the way.
        let mut id = [0; 8];
        getrandom::fill(&mut id)?;
        let draft = path.with_added_extension(hex::encode(&id)).with_added_extension("part");
        // Does not follow a symbolic link that another user created, and does not overwrite a file.
        let file = FileOptions::new()
            .write(true)
            .create_new(true)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .mode(0o600)
            .open(&draft);
        let file = file.map_err(VaultError::file(&draft))?;
        Ok(BackupFile { path: draft, file: Some(file) })
    }

    fn fill(
        &self,
        content: &StoreContent<'_>,
        preamble: &Preamble,
        progress: &mut Progress<'_>,
    ) -> Result<u64, VaultError> {
        let failed = || VaultError::file(&self.path);
        let Some(file) = &self.file else { return Ok(0) };
        let mut writer = BackupWriter::begin(BufWriter::new(file), preamble).map_err(failed())?;
        let mut rows = 0_u64;
        content.rows(|keyspace, key, row| {
            writer.row(keyspace as usize, key, row).map_err(failed())?;
            rows += 1;
            if rows.is_multiple_of(STEP) {
                tell(progress, "rows", rows, 0)?;
            }
            Ok(())
        })?;
        let mac = |rows, digest: &Digest| content.view.keys().backup_mac(rows, digest);
        let out = writer.end(mac).map_err(failed())?;
        out.into_inner().map_err(|error| failed()(error.into_error()))?.sync_all().map_err(failed())?;
        Ok(rows)
    }

    /// Renames the file to `path` without overwriting a file there. Returns its length in bytes.
    fn publish(mut self, path: &Path) -> Result<u64, VaultError> {
        let bytes = std::fs::metadata(&self.path).map_err(VaultError::file(&self.path))?.len();
        match renameat_with(CWD, &self.path, CWD, path, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Err(VaultError::Exists(path.to_owned())),
            // Some file systems have no rename without overwriting. `write` has checked that `path`
            // is free.
            Err(Errno::INVAL | Errno::NOSYS) => {
                std::fs::rename(&self.path, path).map_err(VaultError::file(path))?;
            }
            Err(error) => return Err(VaultError::File { path: path.to_owned(), source: error.into() }),
        }
        self.file = None;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or_else(|| Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(VaultError::file(folder))?;
        Ok(bytes)
    }
}

impl Drop for BackupFile {
    fn drop(&mut self) {
        if self.file.is_some()
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(%error, file = %self.path.display(), "a backup that was not finished is left behind");
        }
    }
}

/// A backup whose seal was verified.
pub(crate) struct Sealed {
    path: PathBuf,
    pub(crate) preamble: Preamble,
    pub(crate) header: Header,
    pub(crate) rows: u64,
    digest: Digest,
    pub(crate) keys: Arc<StoreKeys>,
}

impl Sealed {
    /// Reads the whole file once and verifies its seal with the wrapping key that `choose` finds
    /// for its header. Nothing in the file is trusted before that.
    pub(crate) fn open(
        path: &Path,
        choose: impl FnOnce(&Header) -> Result<WrapKey, OpenError>,
    ) -> Result<Sealed, VaultError> {
        let mut preamble = None;
        let (mut header, mut record) = (None, None);
        let mut end: Option<BackupEnd> = None;
        // Collects the rows that the keys are made from. Their MAC can only be checked at the end.
        read(path, |part| {
            match part {
                BackupPart::Preamble(found) => preamble = Some(found),
                BackupPart::Row { keyspace: IN_KEYS, key, value } if key == rows::HEADER => {
                    header = Some(value)
                }
                BackupPart::Row { keyspace: IN_KEYS, key, value } if key == STORE_KEYS => {
                    record = Some(value)
                }
                BackupPart::Row { .. } => {}
                BackupPart::End(found) => end = Some(found),
            }
            Ok(())
        })?;
        let unusable = |what: &str| VaultError::Unusable { path: path.to_owned(), what: what.to_owned() };
        let (Some(preamble), Some(header_row), Some(record), Some(end)) = (preamble, header, record, end)
        else {
            return Err(unusable("a part without which nothing can be read is missing"));
        };
        let header = header::read_header(&header_row)?;
        let by = choose(&header)?;
        let recovery = header.recovery.as_ref().map(|recovery| recovery.id);
        let record: Option<KeyRecord> = rows::decode_unchecked(&record);
        let keys = record.and_then(|record| StoreKeys::open(header.store, &record, &by, recovery));
        let keys = Arc::new(keys.ok_or_else(|| unusable("its key record does not open"))?);
        let sealed = same(&end.mac, &keys.backup_mac(end.rows, &end.digest));
        let is_one = preamble.store == header.store && preamble.root_key == header.root.id;
        if !sealed || !is_one || rows::checked(&keys, KEYS, rows::HEADER, &header_row).is_none() {
            return Err(unusable("it was changed since it was written"));
        }
        let (rows, digest) = (end.rows, end.digest);
        Ok(Sealed { path: path.to_owned(), preamble, header, rows, digest, keys })
    }

    /// Passes every row to `take`. Fails when the file's digest is no longer the one that was
    /// verified.
    pub(crate) fn rows(
        &self,
        mut take: impl FnMut(usize, Vec<u8>, Vec<u8>) -> Result<(), VaultError>,
    ) -> Result<(), VaultError> {
        read(&self.path, |part| match part {
            BackupPart::Row { keyspace, key, value } => take(keyspace, key, value),
            BackupPart::End(end) if end.digest != self.digest => {
                let what = "it was changed while it was read".to_owned();
                Err(VaultError::Unusable { path: self.path.clone(), what })
            }
            _ => Ok(()),
        })
    }

    pub(crate) fn summary(&self, now_ms: u64, checked: &Verification) -> RestoreSummary {
        RestoreSummary {
            store: self.preamble.store,
            root_key: self.header.root.id,
            made_at_ms: self.preamble.made_at_ms,
            age_ms: now_ms.saturating_sub(self.preamble.made_at_ms),
            seq: self.preamble.seq,
            rows: self.rows,
            vaults: checked.vaults,
            secrets: checked.secrets,
            audit_records: checked.audit_records,
            keys: checked.keys,
        }
    }

    /// An error about a backup whose seal is valid but whose content cannot be restored.
    pub(crate) fn unusable(&self, what: impl Into<String>) -> VaultError {
        VaultError::Unusable { path: self.path.clone(), what: what.into() }
    }
}

/// A failure of the file's format, or of the callback.
enum BackupReadError {
    Format(FormatError),
    Vault(VaultError),
}

impl From<FormatError> for BackupReadError {
    fn from(error: FormatError) -> BackupReadError {
        BackupReadError::Format(error)
    }
}

fn read(path: &Path, mut take: impl FnMut(BackupPart) -> Result<(), VaultError>) -> Result<(), VaultError> {
    let file = File::open(path).map_err(VaultError::file(path))?;
    let parts = format::read(BufReader::new(file), |part| take(part).map_err(BackupReadError::Vault));
    parts.map_err(|error| match error {
        BackupReadError::Vault(error) => error,
        BackupReadError::Format(FormatError::Io(source)) => {
            VaultError::File { path: path.to_owned(), source }
        }
        BackupReadError::Format(FormatError::Magic) => {
            VaultError::Unusable { path: path.to_owned(), what: "it is no backup".to_owned() }
        }
        BackupReadError::Format(error) => {
            VaultError::Unusable { path: path.to_owned(), what: format!("it is damaged: {error}") }
        }
    })
}

#[cfg(test)]
mod tests;
