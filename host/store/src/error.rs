//! Errors of a running store and of opening one. They carry data, never content, and know no HTTP.

use std::io;
use std::path::PathBuf;

use crate::directory::LookupError;
use crate::name::Name;
use crate::root_key::{RootKeyError, RootKeyId};
use crate::vault::QuotaExceeded;

/// Why a mutation or a read of a running store failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The thing named does not exist, or the name means more than one.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// The name is in use in its scope.
    #[error("the name `{name}` is taken")]
    NameTaken {
        /// The name asked for.
        name: Name,
    },
    /// A member or intern of another workspace was named.
    #[error("the {owner} does not belong to this workspace")]
    OtherWorkspace {
        /// `member` or `intern`.
        owner: &'static str,
    },
    /// The member `owner` goes only with its workspace: keys and interns are made for it by default.
    #[error("the member `owner` is deleted with its workspace only")]
    OwnerStays,
    /// A key was asked for that would have expired already.
    #[error("the expiry lies in the past")]
    AlreadyExpired,
    /// A revoked key stays revoked.
    #[error("the key is revoked")]
    KeyRevoked,
    /// A workspace's credit would be more than fits.
    #[error("a workspace's credit is at most 18446744 dollars in all")]
    TooMuchCredit,
    /// The vault has no secret of this name, or one that is not the caller's to delete.
    #[error("no such secret")]
    NoSuchSecret,
    /// A vault, or a workspace with its interns, would hold more than it may.
    #[error("{0}; delete secrets first")]
    Quota(#[from] QuotaExceeded),
    /// The disk has less free space than the operator wants to be left.
    #[error("the disk is nearly full (`store.free_bytes_min`); nothing was changed, try again later")]
    NoSpace,
    /// A secret without hosts, kept from before they were required, was to be copied.
    #[error("the secret has no hosts")]
    Unbound,
    /// The queue of the writer stayed full. Nothing was written; try again.
    #[error("the store is busy")]
    Busy,
    /// The writer took the change and has not answered in time. Whether it became durable is not known.
    #[error("the store did not answer in time, outcome unknown")]
    TimedOut,
    /// The commit that carried this change failed. Whether it became durable is known at the next start.
    #[error("the store failed while writing, outcome unknown")]
    WriteFailed,
    /// An earlier write failed; the store takes no more until it is opened again.
    #[error("the store takes no writes since an earlier failure")]
    NotWritable,
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// The store was opened with its recovery key: what is made now could not be opened with the root key.
    #[error("the store was opened with its recovery key; give it a root key first with `vault rotate-root`")]
    NoRootKey,
    /// A row could not be read or does not prove to be ours.
    #[error("a row of the store is damaged")]
    Damaged,
    /// The system's random source failed.
    #[error("no random numbers from the system")]
    Random(#[from] getrandom::Error),
    /// The storage engine failed while reading.
    #[error("the storage engine failed: {0}")]
    Engine(#[from] fjall::Error),
}

impl Error {
    /// True when the caller cannot know whether the change was made.
    pub fn outcome_unknown(&self) -> bool {
        matches!(self, Error::TimedOut | Error::WriteFailed)
    }
}

/// The bounded queue of usage rows is full, or the store no longer writes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the usage queue takes no more rows")]
pub struct QueueFull;

const REPLACED: &str = ", which a rotation put in its place: point `root_key` in `[vault]` at the new one";

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The root key is missing or not usable, and the store that exists needs one.
    #[error("the store needs the root key {needs}: {source}")]
    RootKey {
        /// The key the store was made with.
        needs: RootKeyId,
        /// What is wrong with the one configured.
        source: RootKeyError,
    },
    /// The root key for a new store is not usable.
    #[error("no root key for a new store: {0}")]
    NewRootKey(#[source] RootKeyError),
    /// A good key, but another one.
    #[error("root key {given} given, the store needs {needs}{}", if *.replaced { REPLACED } else { "" })]
    WrongRootKey {
        /// The key configured.
        given: RootKeyId,
        /// The key the store is wrapped under.
        needs: RootKeyId,
        /// Whether the key given is the one before it.
        replaced: bool,
    },
    /// The anchor and the markers of the four keyspaces do not belong together.
    #[error("{0}")]
    OutOfStep(Box<OutOfStep>),
    /// `accept_rollback` names another state than the one found, or the store needs no acceptance.
    #[error("cannot accept sequence {given}: {found}")]
    NothingToAccept {
        /// The number given.
        given: u64,
        /// What was found instead.
        found: String,
    },
    /// There is an anchor but no store: somebody took the store away.
    #[error("{} exists but {} does not; move the anchor away to start a new store", anchor.display(), store.display())]
    StoreMissing {
        /// The anchor found.
        anchor: PathBuf,
        /// The folder that should be beside it.
        store: PathBuf,
    },
    /// The store was written by a later version.
    #[error("the store has format {found}, this program reads up to {known}")]
    TooNew {
        /// Its format.
        found: u32,
        /// The newest one known here.
        known: u32,
    },
    /// A part without which nothing can be trusted is missing or does not prove to be ours.
    #[error("the store is damaged: {what}; restore a backup into an empty directory with `vault restore`")]
    Damaged {
        /// Which part.
        what: String,
    },
    /// The storage engine refused the store, also after the last journal was cut.
    #[error("the storage engine refused the store: {0}; {cure}", cure = cure(.0))]
    Engine(#[from] fjall::Error),
    /// The storage engine panicked over the store's files.
    #[error(
        "the storage engine could not read the store's files; restore a backup into an empty directory with `vault restore`"
    )]
    EnginePanicked,
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system's random source failed.
    #[error("no random numbers from the system")]
    Random(#[from] getrandom::Error),
    /// The writer's thread could not be started.
    #[error("cannot start the writer: {0}")]
    Thread(#[source] io::Error),
}

impl OpenError {
    /// True when the cure is another configuration (exit 78), not another store.
    pub fn is_configuration(&self) -> bool {
        matches!(self, OpenError::RootKey { .. } | OpenError::NewRootKey(_) | OpenError::WrongRootKey { .. })
    }

    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> OpenError {
        let path = path.into();
        move |source| OpenError::Io { path, source }
    }

    pub(crate) fn damaged(what: impl Into<String>) -> OpenError {
        OpenError::Damaged { what: what.into() }
    }
}

/// What an operator does about a store that the engine does not open.
fn cure(error: &fjall::Error) -> &'static str {
    match error {
        fjall::Error::Io(_) | fjall::Error::Storage(fjall::LsmError::Io(_)) => {
            "the disk failed or is full: see to it and start again"
        }
        fjall::Error::Locked => "another program has its files open: end that program and start again",
        _ => "restore a backup into an empty directory with `vault restore`",
    }
}

/// What was found when anchor and markers disagree; printed in full, because a person decides on it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OutOfStep {
    /// Sequence number of the newest valid anchor slot.
    pub anchor: Option<u64>,
    /// The marker of each keyspace, in the order keys, meta, values, log.
    pub markers: [(&'static str, Option<u64>); 4],
    /// What does not fit, in one sentence.
    pub reason: &'static str,
}

impl std::fmt::Display for OutOfStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the store is not in the state it was left in: {}; anchor ", self.reason)?;
        write_seq(f, self.anchor)?;
        for (keyspace, marker) in self.markers {
            write!(f, ", {keyspace} ")?;
            write_seq(f, marker)?;
        }
        write!(f, "; `serve --accept-rollback SEQ` with the highest of these markers accepts what is there")
    }
}

fn write_seq(f: &mut std::fmt::Formatter<'_>, seq: Option<u64>) -> std::fmt::Result {
    match seq {
        Some(seq) => write!(f, "{seq}"),
        None => f.write_str("none"),
    }
}
