//! Common parts of long operations on the whole vault: progress reports, a way to stop, and their
//! errors.

use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;

use crate::error::{Error, OpenError};
use crate::root_key::{RootKeyError, RootKeyId};
use crate::spend::UsageDay;
use crate::state::Gap;

/// Progress callback: what is counted, how many so far, and how many in total, or 0 if unknown.
/// Returning `Break` stops the operation between two steps with [`VaultError::Stopped`].
pub type Progress<'p> = dyn FnMut(&str, u64, u64) -> ControlFlow<()> + 'p;

/// Why an operation on the vault did not finish.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// The store refused a change or failed.
    #[error(transparent)]
    Store(#[from] Error),
    /// The store could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A new root key cannot be used.
    #[error("no new root key: {0}")]
    RootKey(#[from] RootKeyError),
    /// The new root key is a key of this store already.
    #[error("the new key {id} is the {what} key of this store already")]
    SameKey {
        /// Id of the key.
        id: RootKeyId,
        /// `root` or `recovery`.
        what: &'static str,
    },
    /// A store in a database was to be given a passphrase as its next root key.
    #[error(
        "the root key of a store in a database is replaced by a key, not by a passphrase: its hosts could not show that they have it"
    )]
    Passphrase,
    /// The configuration of the process that was to replace the root key of a store in a database does not
    /// name the new one.
    #[error(
        "the root key {id} is not in the configuration here: point `root_key` in `[vault]` at it and `root_key_previous` at the one in use, on every host, and start each anew; then run this again"
    )]
    NotConfigured {
        /// Id of the new key.
        id: RootKeyId,
    },
    /// Hosts of a store in a database do not have the next root key.
    #[error("these hosts do not have the root key {id}: {}; on each, point `root_key` in `[vault]` at it and `root_key_previous` at the one in use, and start it anew; one that was killed counts for 30 s", .hosts.join("; "))]
    HostsLackKey {
        /// Id of the new key.
        id: RootKeyId,
        /// The hosts: machine, process and version of each.
        hosts: Vec<String>,
    },
    /// Hosts of a store in a database could not serve it after an upgrade of its schema.
    #[error("these hosts cannot serve a store with the schema {schema}: {}; replace the program of each by this version and start it anew; one that was killed counts for 30 s", .hosts.join("; "))]
    HostsTooOld {
        /// Number of the schema.
        schema: u32,
        /// The hosts: machine, process and version of each.
        hosts: Vec<String>,
    },
    /// Another operation on keys, or another backup, is in progress.
    #[error("another operation of this kind on the vault is under way")]
    Busy,
    /// The standby that backups are read from does not have all commits of the primary.
    #[error(
        "the standby of `store.backup_url` lacks {commits} commits, and the last transaction that it applied is {behind_s} s old: nothing was backed up; run it again when the standby has caught up, or take `store.backup_url` out of the configuration and restart the host"
    )]
    StandbyLags {
        /// Number of commits.
        commits: u64,
        /// Age of the last transaction that it has applied, in seconds.
        behind_s: u64,
    },
    /// Something that reads usage rows, such as a backup, kept them from being deleted.
    #[error(
        "usage rows were being read, by a backup for instance, so not all were dropped; run it again for the rest"
    )]
    ReadersInTheWay,
    /// Usage rows were to be dropped of a day that is not over.
    #[error("only the usage of days that are over can be dropped: today is {today} in UTC")]
    NotOver {
        /// The day in UTC.
        today: UsageDay,
    },
    /// Usage rows were to be dropped of a store in a data directory.
    #[error(
        "usage rows can be dropped from a store in a database only; this one is in a data directory, and its usage rows are kept"
    )]
    UsageKept,
    /// The progress callback stopped the operation.
    #[error("stopped before the end; run it again for the rest")]
    Stopped,
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file exists; a backup never overwrites one.
    #[error("{} exists already", .0.display())]
    Exists(PathBuf),
    /// The data directory of a restore has something else than the root key in it.
    #[error("{} holds `{entry}`: a backup is restored into a directory with the root key and nothing else", directory.display())]
    NotEmpty {
        /// The data directory.
        directory: PathBuf,
        /// Name of one of the other entries.
        entry: String,
    },
    /// A store is to be moved into a data directory that has one.
    #[error("{} exists: a store is moved into a directory without one; move that away first", .0.display())]
    HasStore(PathBuf),
    /// The file is not a backup, was changed, or is not a backup of a whole store.
    #[error("{} cannot be restored: {what}", path.display())]
    Unusable {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
}

impl VaultError {
    /// True when another configuration is the cure (exit status 78).
    pub fn is_configuration(&self) -> bool {
        matches!(self, VaultError::Open(error) if error.is_configuration())
    }

    /// True when the database could not be used, which may pass (exit status 69).
    pub fn is_unavailable(&self) -> bool {
        matches!(self, VaultError::Open(error) if error.is_unavailable())
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

impl From<Gap> for VaultError {
    fn from(gap: Gap) -> VaultError {
        VaultError::Store(gap.into())
    }
}

/// Reports a step; [`VaultError::Stopped`] when the callback breaks.
pub(crate) fn tell(progress: &mut Progress<'_>, what: &str, done: u64, of: u64) -> Result<(), VaultError> {
    match progress(what, done, of) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(VaultError::Stopped),
    }
}
