//! What operations on the whole vault have in common: they are long, told of as they go, and can be stopped.

use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;

use crate::error::{Error, OpenError};
use crate::root_key::{RootKeyError, RootKeyId};

/// Told how far an operation has come: what is counted, how many so far, how many in the end or 0 if nobody knows.
/// Breaking off stops it between two steps with [`VaultError::Stopped`].
pub type Progress<'p> = dyn FnMut(&str, u64, u64) -> ControlFlow<()> + 'p;

/// Why an operation on the vault did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// The store refused or failed.
    #[error(transparent)]
    Store(#[from] Error),
    /// The store could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A new root key cannot be used.
    #[error("no new root key: {0}")]
    RootKey(#[from] RootKeyError),
    /// The new root key opens the store already.
    #[error("the new key {id} is the {what} key of this store already")]
    SameKey {
        /// Which key.
        id: RootKeyId,
        /// `root` or `recovery`.
        what: &'static str,
    },
    /// A second operation on keys, or a second backup.
    #[error("another operation of this kind on the vault is under way")]
    Busy,
    /// It was asked to stop.
    #[error("stopped before the end; run it again for the rest")]
    Stopped,
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A backup is never written over a file.
    #[error("{} exists already", .0.display())]
    Exists(PathBuf),
    /// A backup goes only into a directory that holds nothing but the root key.
    #[error("{} holds `{entry}`: a backup is restored into a directory with the root key and nothing else", directory.display())]
    NotEmpty {
        /// The data directory.
        directory: PathBuf,
        /// What is in the way.
        entry: String,
    },
    /// The file is no backup, or not as it was written, or not of a whole store.
    #[error("{} cannot be restored: {what}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
}

impl VaultError {
    /// True when the cure is another configuration (exit 78).
    pub fn is_configuration(&self) -> bool {
        matches!(self, VaultError::Open(error) if error.is_configuration())
    }

    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> VaultError {
        let path = path.into();
        move |source| VaultError::File { path, source }
    }
}

impl From<getrandom::Error> for VaultError {
    fn from(error: getrandom::Error) -> VaultError {
        VaultError::Store(error.into())
    }
}

impl From<fjall::Error> for VaultError {
    fn from(error: fjall::Error) -> VaultError {
        VaultError::Store(error.into())
    }
}

/// Tells of a step and stops where that is wished.
pub(crate) fn tell(progress: &mut Progress<'_>, what: &str, done: u64, of: u64) -> Result<(), VaultError> {
    match progress(what, done, of) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(VaultError::Stopped),
    }
}
