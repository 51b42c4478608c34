//! The note about the last backup: a file in the data directory that says when it was made and
//! where it was written. It is not authenticated: it only serves advice to the operator.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::BackupSummary;

/// The longest note that is read, in bytes: a path has at most 4 KiB, and each byte may be escaped.
const NOTE_BYTES_MAX: u64 = 32 * 1024;

/// When the last backup was made, and where it was written.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct LastBackup {
    /// The file, which may be elsewhere by now.
    pub path: PathBuf,
    /// Unix milliseconds.
    pub made_at_ms: u64,
    /// Sequence number of its last commit.
    pub seq: u64,
}

impl LastBackup {
    /// The name of the note in the data directory.
    pub(crate) const FILE_NAME: &str = "last-backup";

    /// Writes the note. The backup itself is complete, so a failure is only logged.
    pub(crate) fn note(dir: &Path, path: &Path, made: &BackupSummary) {
        let note = LastBackup { path: path.to_owned(), made_at_ms: made.made_at_ms, seq: made.seq };
        if let Err(error) = note.write(dir) {
            tracing::warn!(%error, "the backup is made, but its date could not be noted in the data directory");
        }
    }

    /// Removes the note, because its backup is lost.
    ///
    /// # Errors
    /// The note cannot be removed.
    pub fn forget(dir: &Path) -> io::Result<()> {
        match fs::remove_file(dir.join(Self::FILE_NAME)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn write(&self, dir: &Path) -> io::Result<()> {
        let draft = dir.join("last-backup.new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        drop(file);
        fs::rename(draft, dir.join(Self::FILE_NAME))
    }

    /// Reads the note of a data directory. `None` if no backup was made.
    ///
    /// # Errors
    /// The file cannot be read or is not a note.
    pub fn read(dir: &Path) -> io::Result<Option<LastBackup>> {
        let file = match fs::File::open(dir.join(Self::FILE_NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut note = Vec::new();
        file.take(NOTE_BYTES_MAX).read_to_end(&mut note)?;
        Ok(Some(serde_json::from_slice(&note)?))
    }
}

#[cfg(test)]
mod tests {
    use super::LastBackup;

    #[test]
    fn a_note_is_read_back_and_a_missing_one_is_none() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(LastBackup::read(dir.path()).unwrap(), None);
        let note = LastBackup { path: "/backups/monday".into(), made_at_ms: 7, seq: 3 };
        note.write(dir.path()).unwrap();
        note.write(dir.path()).unwrap();
        assert_eq!(LastBackup::read(dir.path()).unwrap(), Some(note));
        for _ in 0..2 {
            LastBackup::forget(dir.path()).unwrap();
            assert_eq!(LastBackup::read(dir.path()).unwrap(), None);
        }
        std::fs::write(dir.path().join("last-backup"), "no note").unwrap();
        LastBackup::read(dir.path()).unwrap_err();
    }
}
