//! Free space on the disk: what is refused when little is left, and a reserve file that is deleted
//! then.
//!
//! A failed write ends the store, so the host must not run into a full disk. Below
//! `store.free_bytes_min`, new data of tenants is refused; the space left is for requests in
//! progress and their usage rows. When even that is nearly used up, the reserve file is deleted: 32
//! MiB of allocated blocks in a file of length 0.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FallocateFlags, OFlags, fallocate, statvfs};

/// Size of the reserve: enough for the tables and the journal that a start writes, and for the
/// usage rows of all requests in progress.
const RESERVE_BYTES: u64 = 32 * 1024 * 1024;
/// With less free space than this, not counting the reserve, the reserve is deleted.
const NEED_BYTES: u64 = 32 * 1024 * 1024;
/// Unit of a file's block count in its metadata.
const BLOCK_BYTES: u64 = 512;

/// The disk that holds the store.
pub(crate) struct DiskSpace {
    dir: PathBuf,
    state: Mutex<DiskState>,
}

struct DiskState {
    /// Below this the disk counts as short of space. With 0 it never does, and no reserve is made.
    free_bytes_min: u64,
    is_short: bool,
    has_reserve: bool,
    /// A failure to make the reserve or to read the free space was logged: it is not retried or
    /// logged again until the disk was short of space once.
    is_told: bool,
}

impl DiskSpace {
    pub(crate) fn new(dir: &Path) -> DiskSpace {
        let has_reserve = is_reserve(&reserve(dir));
        let state = DiskState { free_bytes_min: 0, is_short: false, has_reserve, is_told: false };
        DiskSpace { dir: dir.to_owned(), state: Mutex::new(state) }
    }

    /// Sets the threshold and checks the disk.
    pub(crate) fn set_free_bytes_min(&self, bytes: u64) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).free_bytes_min = bytes;
        self.look();
    }

    /// Checks the disk: true when it is short of space. Also deletes the reserve when needed, and
    /// creates it when there is enough space again.
    pub(crate) fn look(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.free_bytes_min == 0 {
            state.is_short = false;
            return false;
        }
        match free_bytes(&self.dir) {
            Ok(free) => state.update(free, &self.dir),
            Err(error) if !state.is_told => {
                state.is_told = true;
                tracing::warn!(%error, data = %self.dir.display(), "the system does not tell how much disk is free");
            }
            Err(_) => {}
        }
        state.is_short
    }
}

impl DiskState {
    fn update(&mut self, free: u64, dir: &Path) {
        let is_short = free < self.free_bytes_min;
        if is_short != self.is_short {
            self.is_short = is_short;
            self.tell(free);
        }
        if self.has_reserve && free < NEED_BYTES {
            self.has_reserve = !give_up(dir);
        } else if !self.has_reserve
            && !self.is_told
            && free >= self.free_bytes_min.saturating_add(RESERVE_BYTES)
        {
            self.make(dir);
        }
    }

    fn tell(&mut self, free: u64) {
        let min = self.free_bytes_min;
        if self.is_short {
            self.is_told = false;
            tracing::error!(
                free,
                min,
                "the disk is nearly full (store.free_bytes_min): changes by tenants and requests of prepaid \
                 workspaces are refused until there is room"
            );
        } else {
            tracing::info!(free, min, "the disk has room again");
        }
    }

    fn make(&mut self, dir: &Path) {
        let path = reserve(dir);
        match make(&path) {
            Ok(()) => self.has_reserve = true,
            Err(error) => {
                self.is_told = true;
                tracing::warn!(%error, file = %path.display(), "no reserve could be made for a disk that is full");
                remove(&path);
            }
        }
    }
}

/// Deletes the reserve if the disk is nearly full. To be called at a start before anything is
/// written.
pub(crate) fn make_room(dir: &Path) {
    if free_bytes(dir).is_ok_and(|free| free < NEED_BYTES) && is_reserve(&reserve(dir)) {
        give_up(dir);
    }
}

fn reserve(dir: &Path) -> PathBuf {
    dir.join("reserve")
}

fn is_reserve(path: &Path) -> bool {
    let held = path.symlink_metadata().map_or(0, |metadata| metadata.blocks().saturating_mul(BLOCK_BYTES));
    held >= RESERVE_BYTES
}

/// Allocates the blocks. The length of the file stays 0, so that a copy of the directory does not
/// grow by it.
fn make(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .mode(0o600)
        .open(path)?;
    Ok(fallocate(&file, FallocateFlags::KEEP_SIZE, 0, RESERVE_BYTES)?)
}

/// True when the reserve is deleted or was not there.
fn give_up(dir: &Path) -> bool {
    let path = reserve(dir);
    let is_gone = remove(&path);
    if is_gone {
        tracing::warn!(file = %path.display(), "the disk is full: the reserve was given up");
    }
    is_gone
}

fn remove(path: &Path) -> bool {
    match std::fs::remove_file(path) {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => {
            tracing::error!(%error, file = %path.display(), "the reserve cannot be removed");
            false
        }
    }
}

/// Bytes that a process without privileges may still use.
fn free_bytes(dir: &Path) -> io::Result<u64> {
    let found = statvfs(dir)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(test)]
mod tests;
