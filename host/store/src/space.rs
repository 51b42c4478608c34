//! Room on the disk: what happens when little is left, and a file that is given up then.
//!
//! A write that fails for lack of room ends the store. Long before that, what tenants ask to be kept is refused, so
//! that the rest is for the requests under way and their usage rows. When even that is nearly used up, the reserve
//! goes: blocks of the disk that belong to an otherwise empty file.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FallocateFlags, OFlags, fallocate, statvfs};

/// Blocks held by the reserve: room for the tables and the journal that a start writes, and for the rows of all
/// requests that can be under way.
const RESERVE_BYTES: u64 = 32 * 1024 * 1024;
/// With less than this left beside it, the reserve is given up.
const NEED_BYTES: u64 = 32 * 1024 * 1024;
/// Size of the blocks in which the system counts what a file occupies.
const BLOCK_BYTES: u64 = 512;

/// The disk that the store lies on.
pub(crate) struct Space {
    dir: PathBuf,
    state: Mutex<State>,
}

struct State {
    /// Less than this is short; 0 never is, and there is no reserve then.
    free_bytes_min: u64,
    is_short: bool,
    has_reserve: bool,
    /// The system made no reserve, or could not say how much is free: not tried, or told, again.
    is_told: bool,
}

impl Space {
    pub(crate) fn new(dir: &Path) -> Space {
        let has_reserve = is_reserve(&reserve(dir));
        let state = State { free_bytes_min: 0, is_short: false, has_reserve, is_told: false };
        Space { dir: dir.to_owned(), state: Mutex::new(state) }
    }

    /// Sets what is short from now on, and looks.
    pub(crate) fn set_free_bytes_min(&self, bytes: u64) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).free_bytes_min = bytes;
        self.look();
    }

    /// Whether the disk is short of room, as it is now. Gives the reserve up in need, and makes it once there is room.
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

impl State {
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

/// Gives the reserve up when the disk is as good as full: to be called before anything is written at a start.
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

/// Takes the blocks. The length of the file stays 0: a copy of the directory is not longer for it.
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

/// True when it is gone.
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

/// What a process without privileges may still fill.
fn free_bytes(dir: &Path) -> io::Result<u64> {
    let found = statvfs(dir)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(test)]
mod tests;
