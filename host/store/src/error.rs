//! Errors of a running store and of opening one. They carry no secret content and no HTTP status.

use std::io;
use std::path::PathBuf;

use crate::lookup::LookupError;
use crate::name::Name;
use crate::quota::QuotaExceeded;
use crate::root_key::{RootKeyError, RootKeyId};

/// Why a mutation or a read of a running store failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No entity has this name or id, or several entities have this name.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// The name is in use in its scope.
    #[error("the name `{name}` is taken")]
    NameTaken {
        /// The name that was asked for.
        name: Name,
    },
    /// A member or intern of another workspace was named.
    #[error("the {owner} does not belong to this workspace")]
    OtherWorkspace {
        /// `member` or `intern`.
        owner: &'static str,
    },
    /// The member `owner` is deleted only together with its workspace: keys and interns without an
    /// explicit owner belong to it.
    #[error("the member `owner` is deleted with its workspace only")]
    OwnerStays,
    /// The expiry given for a new key is not in the future.
    #[error("the expiry lies in the past")]
    AlreadyExpired,
    /// The key was revoked, which cannot be undone.
    #[error("the key is revoked")]
    KeyRevoked,
    /// The key's limits are not those that new ones were made from: another change came first. Nothing was
    /// changed; the caller may read the key and retry.
    #[error("the key's limits were changed at the same time; nothing was changed, try again")]
    LimitsChanged,
    /// The workspace's credit would exceed what 64 bits of pico-dollars can hold.
    #[error("a workspace's credit is at most 18446744 dollars in all")]
    TooMuchCredit,
    /// The vault has no secret of this name, or the caller may not delete it.
    #[error("no such secret")]
    NoSuchSecret,
    /// A vault, or a workspace with its interns, would hold more than it may.
    #[error("{0}; delete secrets first")]
    Quota(#[from] QuotaExceeded),
    /// The disk has less free space than `store.free_bytes_min`.
    #[error("the disk is nearly full (`store.free_bytes_min`); nothing was changed, try again later")]
    NoSpace,
    /// A secret to be copied has no hosts: it was stored before hosts were required.
    #[error("the secret has no hosts")]
    Unbound,
    /// The writer's queue stayed full until the deadline. Nothing was written; the caller may
    /// retry.
    #[error("the store is busy")]
    Busy,
    /// This host has no contact with the database of the store, so it does not know what other hosts have
    /// changed. Nothing was changed; another host, or this one later, may answer.
    #[error("this host has no contact with the database of the store; try again later")]
    NoContact,
    /// The writer accepted the change and did not answer in time. The change may or may not be
    /// durable.
    #[error("the store did not answer in time, outcome unknown")]
    TimedOut,
    /// The commit with this change failed. Whether the change is durable is decided at the next
    /// start.
    #[error("the store failed while writing, outcome unknown")]
    WriteFailed,
    /// An earlier write failed. The store accepts no writes until it is opened again.
    #[error("the store takes no writes since an earlier failure")]
    NotWritable,
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// The store was opened with its recovery key: keys made now could not be opened with the root
    /// key.
    #[error("the store was opened with its recovery key; give it a root key first with `vault rotate-root`")]
    NoRootKey,
    /// Another host has put a root key in force that this process does not have.
    #[error("the store needs the root key {needs} since a rotation, and this process does not have it")]
    OtherRootKey {
        /// Id of the root key in force.
        needs: RootKeyId,
    },
    /// A row could not be read, or its MAC does not match.
    #[error("a row of the store is damaged")]
    Damaged,
    /// The system's random source failed.
    #[error("no random numbers from the system")]
    Random(#[from] getrandom::Error),
    /// The storage engine failed while reading.
    #[error("the storage engine failed: {0}")]
    Engine(#[from] fjall::Error),
}

/// The bounded queue of usage rows is full, or the store no longer writes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the usage queue takes no more rows")]
pub struct QueueFull;

const REPLACED: &str = ", which a rotation put in its place: point `root_key` in `[vault]` at the new one";

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The root key is missing or not usable, and an existing store needs one.
    #[error("the store needs the root key {needs}: {source}")]
    RootKey {
        /// Id of the key the store is wrapped under.
        needs: RootKeyId,
        /// Why the configured source gave no usable key.
        source: RootKeyError,
    },
    /// The root key for a new store is not usable.
    #[error("no root key for a new store: {0}")]
    NewRootKey(#[source] RootKeyError),
    /// The configured root key is well formed, but it is not the key of this store.
    #[error("root key {given} given, the store needs {needs}{}", if *.replaced { REPLACED } else { "" })]
    WrongRootKey {
        /// Id of the configured key.
        given: RootKeyId,
        /// Id of the key the store is wrapped under.
        needs: RootKeyId,
        /// Whether the configured key is the store's previous root key.
        replaced: bool,
    },
    /// A rotation to another root key is under way, and a host of the store's database was not given that
    /// key.
    #[error(
        "the root key of the store is being replaced: it needs {needs} beside {given}, and only {given} is given; \
         point `root_key` in `[vault]` at the new one and `root_key_previous` at the other"
    )]
    NoNextRootKey {
        /// Id of the root key in force, which was given.
        given: RootKeyId,
        /// Id of the next root key.
        needs: RootKeyId,
    },
    /// The anchor and the markers of the four keyspaces are not from the same commit.
    #[error("{0}")]
    OutOfStep(Box<OutOfStep>),
    /// `accept_rollback` names a sequence number that was not found, or the store needs no
    /// acceptance.
    #[error("cannot accept sequence {given}: {found}")]
    NothingToAccept {
        /// The sequence number given.
        given: u64,
        /// What was found instead.
        found: String,
    },
    /// There is an anchor but no store: the store's folder was moved or deleted.
    #[error("{} exists but {} does not; move the anchor away to start a new store", anchor.display(), store.display())]
    StoreMissing {
        /// Path of the anchor.
        anchor: PathBuf,
        /// Path where the store's folder should be.
        store: PathBuf,
    },
    /// The store of this data directory was moved into a database.
    #[error(
        "the store of this directory is in a database now, see {}: set `[store] url`, or move that file away to \
         serve the store as it was then",
        .0.display()
    )]
    Moved(PathBuf),
    /// The store of this database was moved into a data directory.
    #[error(
        "the store of this database was moved into a data directory: remove `[store] url` where that directory is"
    )]
    MovedAway,
    /// A move from a database into this data directory was cut short.
    #[error(
        "the move of a store into this directory was cut short, see {}: run `store migrate --to-directory` again",
        .0.display()
    )]
    Moving(PathBuf),
    /// Hosts have the store open that is to be moved.
    #[error("hosts have the store open, end them first: {}", .0.join(", "))]
    InUse(Vec<String>),
    /// The store was written by a newer version of this program.
    #[error("the store has format {found}, this program reads up to {known}")]
    TooNew {
        /// Format of the store.
        found: u32,
        /// Newest format this program can read.
        known: u32,
    },
    /// A part that everything else depends on is missing, or its MAC does not match.
    #[error("the store is damaged: {what}; restore a backup into an empty directory with `vault restore`")]
    Damaged {
        /// Which part, for the error text.
        what: String,
    },
    /// The storage engine refused the store, even after an incomplete end of its last journal was
    /// cut off.
    #[error("the storage engine refused the store: {0}; {cure}", cure = cure(.0))]
    Engine(#[from] fjall::Error),
    /// The storage engine panicked while reading the store's files.
    #[error(
        "the storage engine could not read the store's files; restore a backup into an empty directory with `vault restore`"
    )]
    EnginePanicked,
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// Path of the file or folder.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The system's random source failed.
    #[error("no random numbers from the system")]
    Random(#[from] getrandom::Error),
    /// The database of a store on PostgreSQL cannot be used.
    #[error("the database of the store: {what}")]
    Database {
        /// What failed, without passwords and rows.
        what: String,
    },
    /// The database lacks commits that it had acknowledged to this host.
    #[error(
        "the database has lost commits that it had acknowledged to this host: {lost}; connect to a database that has \
         them, or accept the loss with `serve --accept-rollback {newest}`, the position of its newest audit record"
    )]
    SetBack {
        /// Which chains lack commits.
        lost: String,
        /// Position of the newest audit record that is there.
        newest: u64,
    },
    /// The database is there and has no store in it.
    #[error("the database has no store; make it once with `cofferdam store create`")]
    NoStore,
    /// A new store was to be made in a database that has one.
    #[error("the database has a store already")]
    StoreExists,
    /// The writer's thread could not be started.
    #[error("cannot start the writer: {0}")]
    Thread(#[source] io::Error),
}

impl OpenError {
    /// True when another configuration is the cure (exit status 78), not another store.
    pub fn is_configuration(&self) -> bool {
        matches!(
            self,
            OpenError::RootKey { .. }
                | OpenError::NewRootKey(_)
                | OpenError::WrongRootKey { .. }
                | OpenError::NoNextRootKey { .. }
                | OpenError::NoStore
                | OpenError::Moved(_)
                | OpenError::MovedAway
                | OpenError::Moving(_)
        )
    }

    /// True when the database could not be used, which may pass (exit status 69).
    pub fn is_unavailable(&self) -> bool {
        matches!(self, OpenError::Database { .. })
    }

    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> OpenError {
        let path = path.into();
        move |source| OpenError::Io { path, source }
    }

    pub(crate) fn damaged(what: impl Into<String>) -> OpenError {
        OpenError::Damaged { what: what.into() }
    }
}

/// What the operator can do about an engine error.
fn cure(error: &fjall::Error) -> &'static str {
    match error {
        fjall::Error::Io(_) | fjall::Error::Storage(fjall::LsmError::Io(_)) => {
            "the disk failed or is full: see to it and start again"
        }
        fjall::Error::Locked => "another program has its files open: end that program and start again",
        _ => "restore a backup into an empty directory with `vault restore`",
    }
}

/// What was found when anchor and markers disagree. The error text prints all of it, because an
/// operator decides on it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OutOfStep {
    /// Sequence number of the newest valid slot of the anchor.
    pub anchor: Option<u64>,
    /// The marker of each keyspace, in the order keys, meta, values, log.
    pub markers: [(&'static str, Option<u64>); 4],
    /// What does not match, as a clause of the error text.
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
