//! Sources of the root key: `file:`, `env:`, `fd:` and `passphrase:`, each read once and checked strictly.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use rustix::fs::OFlags;
use rustix::io::Errno;
use zeroize::Zeroizing;

use super::{ROOT_KEY_BYTES, RootKey, RootKeyMaterial, Stretching};
use crate::draft::Draft;
use crate::hex;
use crate::secret::Secret;

/// Longest text read from a source. A key needs 65 bytes at most, a passphrase rarely more.
const SOURCE_BYTES_MAX: u64 = 4096;
/// Shortest passphrase, in bytes. Stretching slows guessing down, but does not protect a word that
/// is in a dictionary.
const PASSPHRASE_BYTES_MIN: usize = 12;

/// Where the root key comes from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RootKeySource {
    /// A file of mode 0600 or 0400 owned by this user or root; the first start creates it when it
    /// is missing.
    File(PathBuf),
    /// An environment variable. Weaker: the kernel keeps a copy of the initial environment.
    Env(Variable),
    /// The number of an inherited file descriptor.
    Fd(i32),
    /// A passphrase, stretched with Argon2id; salt and cost parameters are in the store's header.
    Passphrase {
        /// Where the passphrase is read from.
        from: PassphraseSource,
    },
}

/// Source of a passphrase: `passphrase:file:…`, `passphrase:env:…`, `passphrase:fd:…`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PassphraseSource {
    /// A file under the same rules as a key file.
    File(PathBuf),
    /// An environment variable.
    Env(Variable),
    /// The number of an inherited file descriptor.
    Fd(i32),
}

/// An environment variable: its name, and its value after it was removed from the environment.
#[derive(Clone, Debug)]
pub struct Variable {
    name: String,
    taken: Option<Arc<Secret>>,
}

impl Variable {
    /// The variable of this name, still in the environment.
    pub fn named(name: impl Into<String>) -> Variable {
        Variable { name: name.into(), taken: None }
    }

    fn take(&mut self, take: impl FnOnce(&str) -> Option<String>) {
        if let Some(value) = take(&self.name) {
            self.taken = Some(Arc::new(Secret::from(value)));
        }
    }

    fn read(&self) -> Result<Secret, RootKeyError> {
        if let Some(value) = &self.taken {
            return Ok(Secret::new(value.expose().to_vec()));
        }
        let value = std::env::var(&self.name).map_err(|_| RootKeyError::NotSet(self.name.clone()))?;
        Ok(Secret::from(value))
    }
}

/// Two variables of the same name are the same source, whether or not their values were taken.
impl PartialEq for Variable {
    fn eq(&self, other: &Variable) -> bool {
        self.name == other.name
    }
}

impl Eq for Variable {}

/// Why a text is not a root key source.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SourceError {
    /// The text begins with no known scheme.
    #[error("a root key source begins with `file:`, `env:`, `fd:` or `passphrase:`")]
    UnknownScheme,
    /// Nothing follows the scheme.
    #[error("the source names nothing")]
    Empty,
    /// `fd:` needs 0 (standard input) or a number from 3 up.
    #[error("`fd:` takes the number of an inherited descriptor (0, or 3 and up)")]
    NotADescriptor,
    /// `passphrase:` is followed by something other than `file:`, `env:` or `fd:`.
    #[error("`passphrase:` takes one of `file:`, `env:` and `fd:`")]
    NoPassphraseSource,
}

/// Why a source gave no usable key. Contains places and lengths, never content.
#[derive(Debug, thiserror::Error)]
pub enum RootKeyError {
    /// No such file.
    #[error("{} does not exist", .0.display())]
    Missing(PathBuf),
    /// No such variable.
    #[error("the environment variable {0} is not set")]
    NotSet(String),
    /// The last part of the path is a symbolic link.
    #[error("{} is a symbolic link", .0.display())]
    Symlink(PathBuf),
    /// Not a plain file.
    #[error("{} is not a file", .0.display())]
    NotAFile(PathBuf),
    /// The group or others have a permission on the file.
    #[error("{} has mode {mode:04o}; it must be 0600 or 0400", path.display())]
    TooOpen {
        /// Path of the file.
        path: PathBuf,
        /// Permission bits of the file.
        mode: u32,
    },
    /// The file is owned by a user other than this one and root.
    #[error("{} belongs to user {owner}", path.display())]
    WrongOwner {
        /// Path of the file.
        path: PathBuf,
        /// Numeric id of the file's owner.
        owner: u32,
    },
    /// The source cannot be read, or the file cannot be created.
    #[error("{place}: {source}")]
    Unreadable {
        /// Path, variable or descriptor.
        place: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Neither hexadecimal nor base64.
    #[error("a root key is written as 64 hexadecimal digits or as base64")]
    NotAKey,
    /// The key does not have 32 bytes.
    #[error("a root key has 32 bytes, this one has {bytes}")]
    WrongLength {
        /// Number of bytes found.
        bytes: usize,
    },
    /// Fewer than eight different bytes.
    #[error("the root key is a pattern, not random bytes")]
    LowDiversity,
    /// All 32 bytes are printable characters, so this is probably a passphrase.
    #[error("the root key is text; for a passphrase use `passphrase:`")]
    LooksLikeText,
    /// The passphrase is shorter than 12 bytes.
    #[error("a passphrase has at least {PASSPHRASE_BYTES_MIN} bytes, this one has {bytes}")]
    PassphraseTooShort {
        /// Number of bytes found.
        bytes: usize,
    },
    /// The store was made with a passphrase and the source gives a key, or the reverse.
    #[error("the store was made with {}, the configuration gives {}", kind(*.store_has_passphrase), kind(!.store_has_passphrase))]
    OtherKind {
        /// True when the store was made with a passphrase.
        store_has_passphrase: bool,
    },
    /// Argon2id refused its parameters or ran out of memory.
    #[error("the passphrase could not be stretched")]
    Stretching,
    /// The system's random source failed.
    #[error("no random numbers from the system")]
    Random(#[from] getrandom::Error),
}

fn kind(passphrase: bool) -> &'static str {
    if passphrase { "a passphrase" } else { "a key" }
}

impl FromStr for RootKeySource {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<RootKeySource, SourceError> {
        let (scheme, rest) = text.split_once(':').ok_or(SourceError::UnknownScheme)?;
        match scheme {
            "passphrase" => {
                let from = rest.parse().map_err(|_| SourceError::NoPassphraseSource)?;
                Ok(RootKeySource::Passphrase { from })
            }
            _ => text.parse().map(|source| match source {
                PassphraseSource::File(path) => RootKeySource::File(path),
                PassphraseSource::Env(variable) => RootKeySource::Env(variable),
                PassphraseSource::Fd(fd) => RootKeySource::Fd(fd),
            }),
        }
    }
}

impl FromStr for PassphraseSource {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<PassphraseSource, SourceError> {
        let (scheme, rest) = text.split_once(':').ok_or(SourceError::UnknownScheme)?;
        if !matches!(scheme, "file" | "env" | "fd") {
            return Err(SourceError::UnknownScheme);
        }
        if rest.is_empty() {
            return Err(SourceError::Empty);
        }
        match scheme {
            "file" => Ok(PassphraseSource::File(PathBuf::from(rest))),
            "env" => Ok(PassphraseSource::Env(Variable::named(rest))),
            _ => match rest.parse() {
                Ok(fd) if fd == 0 || fd >= 3 => Ok(PassphraseSource::Fd(fd)),
                _ => Err(SourceError::NotADescriptor),
            },
        }
    }
}

impl fmt::Display for RootKeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RootKeySource::File(path) => write!(f, "file:{}", path.display()),
            RootKeySource::Env(variable) => write!(f, "env:{}", variable.name),
            RootKeySource::Fd(fd) => write!(f, "fd:{fd}"),
            RootKeySource::Passphrase { from } => write!(f, "passphrase:{}", from.as_key_source()),
        }
    }
}

impl PassphraseSource {
    fn as_key_source(&self) -> RootKeySource {
        match self.clone() {
            PassphraseSource::File(path) => RootKeySource::File(path),
            PassphraseSource::Env(variable) => RootKeySource::Env(variable),
            PassphraseSource::Fd(fd) => RootKeySource::Fd(fd),
        }
    }

    /// See [`RootKeySource::take_variable`].
    pub fn take_variable(&mut self, take: impl FnOnce(&str) -> Option<String>) {
        if let PassphraseSource::Env(variable) = self {
            variable.take(take);
        }
    }

    /// Reads the source: a text of at most 4,096 bytes, without a final line end.
    ///
    /// # Errors
    /// Those of [`RootKeyError`] about places and permissions.
    pub fn read(&self) -> Result<Secret, RootKeyError> {
        match self {
            PassphraseSource::File(path) => read_file(path),
            PassphraseSource::Env(variable) => variable.read(),
            PassphraseSource::Fd(fd) => read_descriptor(*fd),
        }
    }
}

impl fmt::Display for PassphraseSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_key_source().fmt(f)
    }
}

impl RootKeySource {
    /// Reads the source. Creates no file.
    ///
    /// # Errors
    /// See [`RootKeyError`].
    pub fn read(&self) -> Result<RootKeyMaterial, RootKeyError> {
        match self {
            RootKeySource::File(path) => decode_key(&read_file(path)?).map(RootKeyMaterial::of_key),
            RootKeySource::Env(variable) => decode_key(&variable.read()?).map(RootKeyMaterial::of_key),
            RootKeySource::Fd(fd) => decode_key(&read_descriptor(*fd)?).map(RootKeyMaterial::of_key),
            RootKeySource::Passphrase { from } => from.read().map(RootKeyMaterial::of_passphrase),
        }
    }

    /// Checks that a file or variable can be read and has a key, or a passphrase that is long enough. A descriptor is not read: it may be a pipe,
    /// which can be read once only, and it belongs to the process that serves.
    ///
    /// # Errors
    /// See [`RootKeyError`].
    pub fn check(&self) -> Result<(), RootKeyError> {
        match self {
            RootKeySource::Fd(_) | RootKeySource::Passphrase { from: PassphraseSource::Fd(_) } => Ok(()),
            RootKeySource::Passphrase { from } => check_length(&from.read()?),
            RootKeySource::File(_) | RootKeySource::Env(_) => self.read().map(drop),
        }
    }

    /// Removes the environment variable that this source names, if any, with `take`, which reads
    /// and removes it. The value is then held here and is wiped when the last clone is dropped.
    pub fn take_variable(&mut self, take: impl FnOnce(&str) -> Option<String>) {
        match self {
            RootKeySource::Env(variable) => variable.take(take),
            RootKeySource::Passphrase { from } => from.take_variable(take),
            RootKeySource::File(_) | RootKeySource::Fd(_) => {}
        }
    }

    /// Reads the source for a new store. A missing key file is created; every other source must
    /// have content.
    ///
    /// # Errors
    /// See [`RootKeyError`].
    pub fn read_or_make(&self) -> Result<RootKeyMaterial, RootKeyError> {
        match (self, self.read()) {
            (RootKeySource::File(path), Err(RootKeyError::Missing(_))) => {
                make_file(path).map(RootKeyMaterial::of_key)
            }
            (_, read) => read,
        }
    }
}

fn check_length(passphrase: &Secret) -> Result<(), RootKeyError> {
    match passphrase.len() {
        bytes if bytes < PASSPHRASE_BYTES_MIN => Err(RootKeyError::PassphraseTooShort { bytes }),
        _ => Ok(()),
    }
}

pub(super) fn stretch(passphrase: &Secret, how: &Stretching) -> Result<RootKey, RootKeyError> {
    check_length(passphrase)?;
    RootKey::from_passphrase(passphrase, how)
}

/// Decodes raw bytes, hexadecimal or base64 (either alphabet, padded or not).
pub(super) fn decode_key(text: &Secret) -> Result<RootKey, RootKeyError> {
    if text.len() == ROOT_KEY_BYTES {
        return RootKey::from_bytes(text.expose());
    }
    let text = std::str::from_utf8(text.expose()).map_err(|_| RootKeyError::NotAKey)?;
    if let Some(bytes) = hex::decode(text) {
        return RootKey::from_bytes(&Zeroizing::new(bytes));
    }
    let mut buffer = Zeroizing::new(vec![0; text.len() + 3]);
    for engine in [&STANDARD, &STANDARD_NO_PAD, &URL_SAFE, &URL_SAFE_NO_PAD] {
        if let Ok(length) = engine.decode_slice(text, &mut buffer) {
            return RootKey::from_bytes(buffer.get(..length).unwrap_or_default());
        }
    }
    Err(RootKeyError::NotAKey)
}

/// Opens the descriptor again through `/proc/self/fd`; taking over a raw descriptor number would
/// need unsafe code.
fn read_descriptor(fd: i32) -> Result<Secret, RootKeyError> {
    let place = format!("descriptor {fd}");
    let unreadable = |source| RootKeyError::Unreadable { place: place.clone(), source };
    let file = File::open(format!("/proc/self/fd/{fd}")).map_err(unreadable)?;
    read_bounded(file, &place)
}

fn read_file(path: &Path) -> Result<Secret, RootKeyError> {
    let place = path.display().to_string();
    // NONBLOCK: a FIFO at this path would block the start. The check below refuses it.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path);
    let file = opened.map_err(|source| match Errno::from_io_error(&source) {
        Some(Errno::NOENT) => RootKeyError::Missing(path.to_owned()),
        Some(Errno::LOOP) => RootKeyError::Symlink(path.to_owned()),
        _ => RootKeyError::Unreadable { place: place.clone(), source },
    })?;
    let metadata =
        file.metadata().map_err(|source| RootKeyError::Unreadable { place: place.clone(), source })?;
    if !metadata.is_file() {
        return Err(RootKeyError::NotAFile(path.to_owned()));
    }
    let owner = metadata.uid();
    if owner != rustix::process::geteuid().as_raw() && owner != 0 {
        return Err(RootKeyError::WrongOwner { path: path.to_owned(), owner });
    }
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & 0o7177 != 0 {
        return Err(RootKeyError::TooOpen { path: path.to_owned(), mode });
    }
    read_bounded(file, &place)
}

/// Reads up to the limit and removes one final line ending.
fn read_bounded(source: impl Read, place: &str) -> Result<Secret, RootKeyError> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(SOURCE_BYTES_MAX as usize));
    let read = source.take(SOURCE_BYTES_MAX).read_to_end(&mut bytes);
    read.map_err(|source| RootKeyError::Unreadable { place: place.to_owned(), source })?;
    // Raw keys keep it: the last byte of a key may happen to be a line feed.
    if bytes.len() != ROOT_KEY_BYTES && bytes.last() == Some(&b'\n') {
        bytes.pop();
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
    }
    Ok(Secret::new(std::mem::take(&mut *bytes)))
}

/// Makes a new key file. Does not overwrite an existing file.
fn make_file(path: &Path) -> Result<RootKey, RootKeyError> {
    let key = RootKey::random()?;
    write_file(path, &key)
        .map_err(|source| RootKeyError::Unreadable { place: path.display().to_string(), source })?;
    Ok(key)
}

/// Writes a key to a new file that only its owner can read. An existing file is never overwritten.
pub(crate) fn write_file(path: &Path, key: &RootKey) -> io::Result<()> {
    let line = Zeroizing::new([key.to_hex().as_bytes(), b"\n"].concat());
    Draft::write(path, &line, 0o600)?.create()
}
