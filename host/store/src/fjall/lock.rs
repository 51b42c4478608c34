//! The data directory and its lock: one process at a time, and no access for other users.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::space;

/// Longest process id read from the lock file, in bytes.
const PID_BYTES_MAX: u64 = 16;

/// Why a data directory could not be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds the lock.
    #[error("the data directory is in use by process {}", pid.map_or_else(|| "(unknown)".to_owned(), |pid| pid.to_string()))]
    Held {
        /// Id of that process, if the lock file contains one.
        pid: Option<u32>,
    },
    /// The directory is owned by another user.
    #[error("{} belongs to user {owner}: run the command as that user, or while the host runs", path.display())]
    WrongOwner {
        /// Path of the directory.
        path: PathBuf,
        /// Numeric id of its owner.
        owner: u32,
    },
    /// There is a file where the directory should be.
    #[error("{} is not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// The operating system refused an operation.
    #[error("{}: {source}", path.display())]
    Io {
        /// Path of the file or directory.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
}

/// Proof that this process alone uses the data directory. Dropping it releases the lock.
#[derive(Debug)]
pub struct DirectoryLock {
    dir: PathBuf,
    file: File,
}

impl DirectoryLock {
    /// Creates the directory if it is missing (mode 0700), removes the permissions of other users
    /// from an existing one, and locks it. Never waits.
    ///
    /// # Errors
    /// [`LockError::Held`] when another process holds the lock; the other variants name what is
    /// wrong with the directory.
    pub fn acquire(dir: &Path) -> Result<DirectoryLock, LockError> {
        let failed = |source| LockError::Io { path: dir.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => LockError::NotADirectory(dir.to_owned()),
            _ => failed(error),
        })?;
        let metadata = std::fs::metadata(dir).map_err(failed)?;
        if !metadata.is_dir() {
            return Err(LockError::NotADirectory(dir.to_owned()));
        }
        is_own(dir, &metadata)?;
        if metadata.permissions().mode() & 0o077 != 0 {
            tracing::info!(data = %dir.display(), "closing the data directory to other users");
            std::fs::set_permissions(dir, Permissions::from_mode(0o700)).map_err(failed)?;
        }
        let file = lock(&dir.join("lock"))?;
        Ok(DirectoryLock { dir: dir.to_owned(), file })
    }

    /// Checks that the directory belongs to the user of this process, if it exists. Changes nothing.
    ///
    /// # Errors
    /// [`LockError::WrongOwner`].
    pub fn check_owner(dir: &Path) -> Result<(), LockError> {
        // One that cannot be looked at is found when it is used.
        std::fs::metadata(dir).map_or(Ok(()), |metadata| is_own(dir, &metadata))
    }

    /// The locked directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // Clears the process id, which must not stay behind after this process.
        if let Err(error) = self.file.set_len(0) {
            tracing::warn!(%error, "the lock file keeps an old process id");
        }
        // Closing the descriptor would not be enough: a process that another thread is starting has a
        // copy of it until it runs its own program, and keeps the lock that long.
        if let Err(error) = self.file.unlock() {
            tracing::warn!(%error, "the data directory stays locked until this process has ended");
        }
    }
}

/// Whether a directory belongs to the user of this process.
fn is_own(dir: &Path, metadata: &Metadata) -> Result<(), LockError> {
    match metadata.uid() {
        owner if owner == rustix::process::geteuid().as_raw() => Ok(()),
        owner => Err(LockError::WrongOwner { path: dir.to_owned(), owner }),
    }
}

fn lock(path: &Path) -> Result<File, LockError> {
    let failed = |source| LockError::Io { path: path.to_owned(), source };
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(path)
        .map_err(failed)?;
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => LockError::Held { pid: read_pid(&file) },
        TryLockError::Error(error) => failed(error),
    })?;
    if let Some(dir) = path.parent() {
        // On a full disk the process id below could not be written.
        space::make_room(dir);
    }
    let pid = format!("{}\n", std::process::id());
    file.set_len(0).and_then(|()| file.write_all(pid.as_bytes())).map_err(failed)?;
    Ok(file)
}

fn read_pid(file: &File) -> Option<u32> {
    let mut text = String::new();
    file.take(PID_BYTES_MAX).read_to_string(&mut text).ok()?;
    text.trim_end().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_directory_is_created_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("a/data");
        let _lock = DirectoryLock::acquire(&dir).unwrap();
        assert_eq!(std::fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(std::fs::metadata(dir.join("lock")).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_dropped_lock_is_released_while_a_process_that_starts_has_a_copy_of_its_descriptor() {
        let folder = tempfile::tempdir().unwrap();
        let lock = DirectoryLock::acquire(folder.path()).unwrap();
        let _copy = lock.file.try_clone().unwrap();
        drop(lock);
        DirectoryLock::acquire(folder.path()).unwrap();
    }

    #[test]
    fn a_link_in_the_place_of_the_lock_file_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (data, other) = (folder.path().join("data"), folder.path().join("other"));
        std::fs::create_dir(&data).unwrap();
        std::fs::write(&other, "kept").unwrap();
        std::os::unix::fs::symlink(&other, data.join("lock")).unwrap();
        assert!(matches!(DirectoryLock::acquire(&data), Err(LockError::Io { .. })));
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "kept");
    }

    #[test]
    fn permissions_of_other_users_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let _lock = DirectoryLock::acquire(folder.path()).unwrap();
        assert_eq!(std::fs::metadata(folder.path()).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_second_lock_names_the_holder_until_the_first_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let lock = DirectoryLock::acquire(folder.path()).unwrap();
        let refused = DirectoryLock::acquire(folder.path()).unwrap_err();
        assert!(matches!(refused, LockError::Held { pid: Some(pid) } if pid == std::process::id()));
        drop(lock);
        assert!(DirectoryLock::acquire(folder.path()).is_ok());
    }

    #[test]
    fn a_file_in_the_place_of_the_directory_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        std::fs::write(&path, "").unwrap();
        assert!(matches!(DirectoryLock::acquire(&path), Err(LockError::NotADirectory(_))));
    }
}
