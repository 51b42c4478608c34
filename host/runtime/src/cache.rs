//! The compile cache: compiled components, kept between starts. Loading native code from a file
//! requires complete trust in the file. So the host accepts only entries that it wrote itself: the
//! directory is writable for its user only, every entry is sealed with a MAC under a key that never
//! leaves the directory, and the entry's name includes the digests of the component and of the
//! engine's settings. Anything else is compiled again.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use cofferdam_store::hex;
use hmac::{Hmac, KeyInit, Mac};
use rustix::fs::OFlags;
use sha2::{Digest, Sha256};
use wasmtime::Engine;

use crate::code::Code;

/// A temporary file older than this was left by a killed process.
const TEMPORARY_AGE_MAX: Duration = Duration::from_secs(60 * 60);
/// Length limit of an entry that is read, in bytes: compiled code of the largest component.
const ENTRY_BYTES_MAX: u64 = 512 * 1024 * 1024;
const KEY_FILE: &str = "key";
/// Extension of files that are not complete.
const TEMPORARY: &str = "new";
const KEY_BYTES: usize = 32;
const SEAL_BYTES: usize = 32;
/// Block size of SHA-256.
const BLOCK_BYTES: usize = 64;
/// Part of every seal. Must change when the format of entries or the contract checks change; the
/// host's version is part of it.
const FORM: &str = concat!("cofferdam cache 2 ", env!("CARGO_PKG_VERSION"));

/// Limits of the cache. Entries that were not used for the longest time are removed first.
#[derive(Clone, Copy)]
pub(crate) struct CacheLimits {
    entries: usize,
    bytes: u64,
    unused: Duration,
}

impl CacheLimits {
    /// For all plugins of a host.
    pub(crate) const HOST: Self =
        Self { entries: 256, bytes: 1 << 30, unused: Duration::from_secs(30 * 24 * 60 * 60) };
    /// For the last builds of one plugin.
    pub(crate) const PROJECT: Self = Self { entries: 8, bytes: 128 << 20, ..Self::HOST };
}

/// The checked cache directory and its key.
pub(crate) struct Cache {
    directory: PathBuf,
    bounds: CacheLimits,
    key: [u8; KEY_BYTES],
    engine: String,
    temporaries: AtomicU64,
}

/// Why the cache cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CacheError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("belongs to user {0}")]
    ForeignOwner(u32),
    #[error("others can write to it (mode {0:o})")]
    Writable(u32),
    #[error("is not a directory")]
    NotADirectory,
    #[error("no random numbers: {0}")]
    Random(getrandom::Error),
}

impl Cache {
    /// Opens the cache for this engine. Creates the directory if it does not exist.
    pub(crate) fn open(directory: &Path, engine: &Engine, bounds: CacheLimits) -> Result<Self, CacheError> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        // Checks the path itself, not the target of a link: a user who can change the link could
        // point it elsewhere.
        let metadata = fs::symlink_metadata(directory)?;
        if !metadata.is_dir() {
            return Err(CacheError::NotADirectory);
        }
        check_owner(&metadata)?;
        let mut hasher = Sha256Hasher(Sha256::new());
        engine.precompile_compatibility_hash().hash(&mut hasher);
        let engine = hex(&hasher.0.finalize());
        let cache = Self {
            directory: directory.to_owned(),
            bounds,
            key: key(directory)?,
            engine,
            temporaries: AtomicU64::new(0),
        };
        // Entries of removed plugins and of other versions of this host are pruned here, because no
        // later write may do it.
        cache.prune(SystemTime::now());
        Ok(cache)
    }

    /// The code of the component with this digest, if the cache has it and it is intact.
    pub(crate) fn code(&self, digest: &str) -> Option<Code> {
        // The seal was verified over these bytes, with a key that only this user can read. The name
        // under the seal includes the digest and the engine's settings.
        self.read(&self.code_name(digest)).map(Code::trusted)
    }

    /// Whether there is an entry for the component with this digest. It is marked as used and not
    /// read: a damaged one is found when it is loaded, and compiled then.
    pub(crate) fn has_code(&self, digest: &str) -> bool {
        let Some(file) = self.open_entry(&self.code_name(digest)) else { return false };
        mark_used(&file);
        true
    }

    /// Stores the code of a component. A failure is logged and only costs time at the next start.
    pub(crate) fn keep_code(&self, digest: &str, code: &Code) {
        self.keep(&self.code_name(digest), code.bytes());
    }

    /// The stored result of an earlier contract check of the component with this digest.
    pub(crate) fn finding(&self, digest: &str) -> Option<Vec<u8>> {
        self.read(&finding_name(digest))
    }

    /// Stores the result of a contract check.
    pub(crate) fn keep_finding(&self, digest: &str, finding: &[u8]) {
        self.keep(&finding_name(digest), finding);
    }

    fn code_name(&self, digest: &str) -> String {
        format!("{digest}-{}.code", self.engine)
    }

    /// Opens an entry that this user wrote and that is not too large.
    fn open_entry(&self, name: &str) -> Option<File> {
        let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK).bits()).ok()?;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(self.directory.join(name)).ok()?;
        let metadata = file.metadata().ok()?;
        let is_ours =
            metadata.is_file() && metadata.len() <= ENTRY_BYTES_MAX && check_owner(&metadata).is_ok();
        is_ours.then_some(file)
    }

    fn read(&self, name: &str) -> Option<Vec<u8>> {
        let mut file = self.open_entry(name)?;
        let mut entry = Vec::with_capacity(usize::try_from(file.metadata().ok()?.len()).ok()?);
        file.read_to_end(&mut entry).ok()?;
        let (seal, content) = entry.split_at_checked(SEAL_BYTES)?;
        if self.seal(name, content).verify_slice(seal).is_err() {
            tracing::warn!(entry = name, "a cache entry is damaged and is made again");
            return None;
        }
        entry.drain(..SEAL_BYTES);
        mark_used(&file);
        Some(entry)
    }

    fn keep(&self, name: &str, content: &[u8]) {
        if let Err(error) = self.try_keep(name, content) {
            tracing::warn!(%error, "the compile cache cannot be written");
        }
        self.prune(SystemTime::now());
    }

    /// Writes an entry atomically: a temporary file, renamed when it is complete.
    fn try_keep(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let number = self.temporaries.fetch_add(1, Ordering::Relaxed);
        let temporary = self.directory.join(format!(".{}-{number}.{TEMPORARY}", std::process::id()));
        let seal = self.seal(name, content).finalize().into_bytes();
        let written = write_new(&temporary, &[&seal, content]);
        let kept = written.and_then(|()| fs::rename(&temporary, self.directory.join(name)));
        if kept.is_err() {
            // A temporary file that cannot be removed now is pruned later.
            drop(fs::remove_file(&temporary));
        }
        kept
    }

    fn seal(&self, name: &str, content: &[u8]) -> Hmac<Sha256> {
        // HMAC pads a key shorter than a block with zeros (RFC 2104).
        let mut block = [0; BLOCK_BYTES];
        for (target, byte) in block.iter_mut().zip(self.key) {
            *target = byte;
        }
        let mut seal = Hmac::<Sha256>::new(&block.into());
        // Each part is preceded by its length, so that different parts never give the same input.
        for part in [FORM.as_bytes(), name.as_bytes()] {
            seal.update(&(part.len() as u64).to_le_bytes());
            seal.update(part);
        }
        seal.update(content);
        seal
    }

    /// Removes entries beyond the limits, and temporary files of killed processes.
    fn prune(&self, now: SystemTime) {
        let Ok(entries) = fs::read_dir(&self.directory) else { return };
        let entries = entries.flatten().filter(|entry| entry.file_name() != KEY_FILE);
        let mut used: Vec<(SystemTime, u64, PathBuf)> = entries
            .filter_map(|entry| {
                let metadata = entry.metadata().ok()?;
                Some((metadata.modified().ok()?, metadata.len(), entry.path()))
            })
            .collect();
        used.sort_unstable_by(|a, b| b.cmp(a));
        let (mut entries, mut bytes) = (0, 0_u64);
        for (modified, length, path) in used {
            let age = now.duration_since(modified).unwrap_or_default();
            let is_temporary = path.extension().is_some_and(|extension| extension == TEMPORARY);
            let keep = if is_temporary {
                age <= TEMPORARY_AGE_MAX
            } else {
                (entries, bytes) = (entries + 1, bytes.saturating_add(length));
                let CacheLimits { entries: entries_max, bytes: bytes_max, unused } = self.bounds;
                entries <= entries_max && bytes <= bytes_max && age <= unused
            };
            if !keep {
                // Another process may already have removed it.
                drop(fs::remove_file(path));
            }
        }
    }
}

/// Sets the modification time, which records the last use. If it cannot be set, the entry may be
/// pruned too early.
fn mark_used(file: &File) {
    file.set_modified(SystemTime::now()).unwrap_or_default();
}

fn finding_name(digest: &str) -> String {
    format!("{digest}.checked")
}

/// Reads the key or creates one. If two processes start at the same time, linking fails for the
/// second one, which then reads the key of the first.
fn key(directory: &Path) -> Result<[u8; KEY_BYTES], CacheError> {
    let path = directory.join(KEY_FILE);
    if let Some(key) = read_key(&path) {
        return Ok(key);
    }
    let mut key = [0; KEY_BYTES];
    getrandom::fill(&mut key).map_err(CacheError::Random)?;
    let temporary = directory.join(format!(".{}-key.{TEMPORARY}", std::process::id()));
    write_new(&temporary, &[&key])?;
    let linked = fs::hard_link(&temporary, &path);
    let existing = if linked.is_err() { read_key(&path) } else { None };
    let placed = match (linked, existing) {
        (Ok(()), _) => Ok(key),
        (Err(_), Some(existing)) => Ok(existing),
        // The existing file is not a valid key: replace it.
        (Err(_), None) => fs::rename(&temporary, &path).map(|()| key).map_err(CacheError::Io),
    };
    drop(fs::remove_file(&temporary));
    placed
}

fn read_key(path: &Path) -> Option<[u8; KEY_BYTES]> {
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::CLOEXEC).bits()).ok()?;
    let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let metadata = file.metadata().ok()?;
    let private = metadata.is_file() && metadata.mode() & 0o077 == 0 && check_owner(&metadata).is_ok();
    let mut key = [0; KEY_BYTES];
    (private && metadata.len() == KEY_BYTES as u64 && file.read_exact(&mut key).is_ok()).then_some(key)
}

fn write_new(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let mut file: File = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    for part in parts {
        file.write_all(part)?;
    }
    Ok(())
}

fn check_owner(metadata: &fs::Metadata) -> Result<(), CacheError> {
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(CacheError::ForeignOwner(metadata.uid()));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(CacheError::Writable(metadata.mode() & 0o7777));
    }
    Ok(())
}

/// A [`Hasher`] over SHA-256, for the hash of the engine's settings: unlike the default hasher, it
/// has no collisions in practice.
struct Sha256Hasher(Sha256);

impl Hasher for Sha256Hasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let digest = self.0.clone().finalize();
        digest.first_chunk().map_or(0, |first| u64::from_le_bytes(*first))
    }
}

#[cfg(test)]
mod tests;
