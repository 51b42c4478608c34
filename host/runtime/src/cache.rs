//! Compiled components, kept between starts. Loading native code from a file
//! means trusting that file completely, so the host believes only what it wrote
//! itself: a directory that nobody else can write to, every entry sealed with a
//! key that never leaves it, names bound to the component's digest and the
//! engine's settings. Anything else is compiled again; nothing is ever taken
//! from outside.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use hmac::{Hmac, KeyInit, Mac};
use rustix::fs::OFlags;
use sha2::{Digest, Sha256};
use wasmtime::Engine;
use wasmtime::component::Component;

/// What is kept between starts.
const BOUNDS: Bounds =
    Bounds { entries: 256, bytes: 1 << 30, unused: Duration::from_secs(30 * 24 * 60 * 60) };
/// A temporary file this old was left by a process that was killed.
const TEMPORARY_AGE_MAX: Duration = Duration::from_secs(60 * 60);
/// Longest entry that is read back: compiled code of the largest component.
const ENTRY_BYTES_MAX: u64 = 512 * 1024 * 1024;
const KEY_FILE: &str = "key";
/// How names of files end that are not whole yet.
const TEMPORARY: &str = "new";
const KEY_BYTES: usize = 32;
const SEAL_BYTES: usize = 32;
/// A block of SHA-256.
const BLOCK_BYTES: usize = 64;
/// Changes when the form of entries or the checks behind them change.
const FORM: &str = concat!("cofferdam cache 1 ", env!("CARGO_PKG_VERSION"));

/// How much is kept. What was not used for the longest time goes first.
#[derive(Clone, Copy)]
struct Bounds {
    entries: usize,
    bytes: u64,
    unused: Duration,
}

/// The cache directory, checked and with its key.
pub(crate) struct Cache {
    directory: PathBuf,
    bounds: Bounds,
    key: [u8; KEY_BYTES],
    engine: String,
    temporaries: AtomicU64,
}

/// Why there is no cache.
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
    /// Opens the cache for this engine, makes the directory if it is absent.
    pub(crate) fn open(directory: &Path, engine: &Engine) -> Result<Self, CacheError> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        // Not the target of a link: whoever can change the link could change it.
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
            bounds: BOUNDS,
            key: key(directory)?,
            engine,
            temporaries: AtomicU64::new(0),
        };
        // Also what no plugin of now would push out: code of other plugins and of other versions of this host.
        cache.prune(SystemTime::now());
        Ok(cache)
    }

    /// The compiled form of the component with this digest, if it is here and intact.
    pub(crate) fn component(&self, engine: &Engine, digest: &str) -> Option<Component> {
        let code = self.read(&self.code_name(digest))?;
        // The seal says that this host wrote these bytes for these settings.
        #[expect(unsafe_code, reason = "loading native code that this host compiled and sealed itself")]
        // SAFETY: `deserialize` is sound for bytes that `serialize` produced. The
        // seal was checked over the very bytes handed over, with a key only this
        // user can read; the entry's name binds digest and engine settings.
        let component = unsafe { Component::deserialize(engine, code) };
        component.inspect_err(|error| tracing::debug!(%error, "a cached component does not load")).ok()
    }

    /// Keeps the compiled form of a component. A failure only costs time later.
    pub(crate) fn keep_component(&self, digest: &str, component: &Component) {
        match component.serialize() {
            Ok(code) => self.keep(&self.code_name(digest), &code),
            Err(error) => tracing::warn!(%error, "a compiled component cannot be kept"),
        }
    }

    /// What an earlier check of the component with this digest found.
    pub(crate) fn finding(&self, digest: &str) -> Option<Vec<u8>> {
        self.read(&finding_name(digest))
    }

    /// Keeps what the check of a component found.
    pub(crate) fn keep_finding(&self, digest: &str, finding: &[u8]) {
        self.keep(&finding_name(digest), finding);
    }

    fn code_name(&self, digest: &str) -> String {
        format!("{digest}-{}.code", self.engine)
    }

    fn read(&self, name: &str) -> Option<Vec<u8>> {
        let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK).bits()).ok()?;
        let mut file =
            OpenOptions::new().read(true).custom_flags(flags).open(self.directory.join(name)).ok()?;
        let metadata = file.metadata().ok()?;
        if !metadata.is_file() || metadata.len() > ENTRY_BYTES_MAX || check_owner(&metadata).is_err() {
            return None;
        }
        let mut entry = Vec::with_capacity(usize::try_from(metadata.len()).ok()?);
        file.read_to_end(&mut entry).ok()?;
        let (seal, content) = entry.split_at_checked(SEAL_BYTES)?;
        if self.seal(name, content).verify_slice(seal).is_err() {
            tracing::warn!(entry = name, "a cache entry is damaged and is made again");
            return None;
        }
        entry.drain(..SEAL_BYTES);
        // Says when it was used last. Without it the entry is only made again too soon.
        file.set_modified(SystemTime::now()).unwrap_or_default();
        Some(entry)
    }

    fn keep(&self, name: &str, content: &[u8]) {
        if let Err(error) = self.try_keep(name, content) {
            tracing::warn!(%error, "the compile cache cannot be written");
        }
        self.prune(SystemTime::now());
    }

    /// Whole or not at all: a temporary file, renamed once it is complete.
    fn try_keep(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let number = self.temporaries.fetch_add(1, Ordering::Relaxed);
        let temporary = self.directory.join(format!(".{}-{number}.{TEMPORARY}", std::process::id()));
        let seal = self.seal(name, content).finalize().into_bytes();
        let written = write_new(&temporary, &[&seal, content]);
        let kept = written.and_then(|()| fs::rename(&temporary, self.directory.join(name)));
        if kept.is_err() {
            // Nothing to do about a file that cannot be removed either.
            drop(fs::remove_file(&temporary));
        }
        kept
    }

    fn seal(&self, name: &str, content: &[u8]) -> Hmac<Sha256> {
        // HMAC fills a key shorter than a block up with zeros.
        let mut block = [0; BLOCK_BYTES];
        for (place, byte) in block.iter_mut().zip(self.key) {
            *place = byte;
        }
        let mut seal = Hmac::<Sha256>::new(&block.into());
        for part in [FORM.as_bytes(), name.as_bytes()] {
            seal.update(&(part.len() as u64).to_le_bytes());
            seal.update(part);
        }
        seal.update(content);
        seal
    }

    /// Removes what is beyond the bounds, and temporary files that nothing writes any more.
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
                let Bounds { entries: entries_max, bytes: bytes_max, unused } = self.bounds;
                entries <= entries_max && bytes <= bytes_max && age <= unused
            };
            if !keep {
                // Another process may have removed it first.
                drop(fs::remove_file(path));
            }
        }
    }
}

fn finding_name(digest: &str) -> String {
    format!("{digest}.checked")
}

/// Reads the key, or makes one. Two processes may start at once: linking fails
/// for the second, which then reads the key of the first.
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
        // There is something that is no key of ours: put ours in its place.
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

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}

/// The engine hashes its settings with any hasher; this one does not collide.
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
