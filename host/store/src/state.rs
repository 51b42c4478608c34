//! What rules look at: the rows of the store at one moment, whichever engine keeps them.
//!
//! A rule never waits. It asks a [`State`], which answers from memory or from the local disk, or
//! says which rows it lacks. The caller of the rule then gets these rows and runs the rule again from
//! its beginning. So a rule changes nothing but its write batch.

use std::ops::Bound;

use fjall::Slice;

use crate::directory::{Directory, NameKey, RecordId};
use crate::error::Error;
use crate::ids::{VaultId, WorkspaceId};
use crate::lookup::{LookupError, RecordKind};
use crate::quota::QuotaExceeded;
use crate::rows::Keyspace;

/// The bytes of row keys and rows. Clones share them.
pub(crate) type RowBytes = Slice;
/// A row key and its row. The row is empty where only keys were asked for.
pub(crate) type KeyedRow = (RowBytes, RowBytes);
/// Rows in ascending order of their keys.
pub(crate) type Rows = Box<dyn Iterator<Item = Result<KeyedRow, Error>>>;

/// The state of the store at one moment.
pub(crate) trait State {
    /// A row, not checked.
    fn row(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<RowBytes>, Gap>;

    /// The length of a row in bytes, without reading it.
    fn length(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<usize>, Gap>;

    /// The rows of a range, not checked.
    fn range(&self, range: &RowRange) -> Result<Rows, Gap>;

    /// The record of this name.
    fn named(&self, name: &NameKey) -> Result<Option<RecordId>, Gap>;

    /// The records of one kind that belong to an owner, in ascending order of their ids.
    fn owned_by(&self, kind: RecordKind, owner: RecordId) -> Result<Vec<RecordId>, Gap>;

    /// All records, where the engine has them decoded in memory: then no rule decodes their rows.
    fn directory(&self) -> Option<&Directory>;
}

/// Rows of one keyspace.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct RowRange {
    pub(crate) keyspace: Keyspace,
    /// The first key, and whether it belongs to the range.
    start: (Vec<u8>, bool),
    /// The last key, and whether it belongs to the range.
    end: Option<(Vec<u8>, bool)>,
    /// Whether only the row keys are needed.
    pub(crate) keys_only: bool,
    /// The first of these rows, at most so many.
    pub(crate) limit: usize,
}

impl RowRange {
    /// All rows of a keyspace.
    pub(crate) fn all(keyspace: Keyspace) -> RowRange {
        RowRange { keyspace, start: (Vec::new(), true), end: None, keys_only: false, limit: usize::MAX }
    }

    /// The rows from this key on.
    pub(crate) fn from(self, start: impl Into<Vec<u8>>) -> RowRange {
        RowRange { start: (start.into(), true), ..self }
    }

    /// The rows after this key.
    pub(crate) fn after(self, start: impl Into<Vec<u8>>) -> RowRange {
        RowRange { start: (start.into(), false), ..self }
    }

    /// The rows up to this key, including it.
    pub(crate) fn through(self, end: impl Into<Vec<u8>>) -> RowRange {
        RowRange { end: Some((end.into(), true)), ..self }
    }

    /// The rows before this key.
    pub(crate) fn before(self, end: impl Into<Vec<u8>>) -> RowRange {
        RowRange { end: Some((end.into(), false)), ..self }
    }

    pub(crate) fn keys(self) -> RowRange {
        RowRange { keys_only: true, ..self }
    }

    pub(crate) fn limit(self, limit: usize) -> RowRange {
        RowRange { limit, ..self }
    }

    /// The row keys of the range.
    pub(crate) fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        let (key, is_included) = &self.start;
        let start = if *is_included { Bound::Included(key) } else { Bound::Excluded(key) };
        let end = match &self.end {
            Some((key, true)) => Bound::Included(key),
            Some((key, false)) => Bound::Excluded(key),
            None => Bound::Unbounded,
        };
        (start.map(Vec::as_slice), end.map(Vec::as_slice))
    }
}

/// A question that a state could not answer.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[cfg_attr(
    not(any(test, feature = "postgres")),
    expect(dead_code, reason = "the embedded engine has an answer to everything")
)]
pub(crate) enum Need {
    /// See [`State::row`].
    Row(Keyspace, Vec<u8>),
    /// See [`State::length`].
    Length(Keyspace, Vec<u8>),
    /// See [`State::range`].
    Range(RowRange),
    /// See [`State::named`].
    Named(NameKey),
    /// See [`State::owned_by`].
    Owned(RecordKind, RecordId),
}

/// What a change locks: no two transactions that hold the same guard run at the same time.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Guard {
    /// The header, the store's own keys, names of workspaces, unscoped keys, totals.
    Store,
    /// The records of a workspace.
    Workspace(WorkspaceId),
    /// The secrets, the head and the keys of a vault.
    Vault(VaultId),
    /// The requests in progress of a prepaid workspace.
    Account(WorkspaceId),
}

impl Guard {
    /// The guard of an API key: that of its workspace.
    pub(crate) fn of_key(workspace: Option<WorkspaceId>) -> Guard {
        workspace.map_or(Guard::Store, Guard::Workspace)
    }
}

/// Why a rule did not end.
#[derive(Debug)]
pub(crate) enum Gap {
    /// The state has no answer to this. With it, the rule can run again.
    #[cfg_attr(
        not(any(test, feature = "postgres")),
        expect(dead_code, reason = "the embedded engine has an answer to everything")
    )]
    Missing(Need),
    /// A write needs a guard that is not held. With it, the rule can run again.
    Unguarded(Guard),
    /// The rule refuses, or reading failed.
    Failed(Error),
}

impl From<Error> for Gap {
    fn from(error: Error) -> Gap {
        Gap::Failed(error)
    }
}

impl From<LookupError> for Gap {
    fn from(error: LookupError) -> Gap {
        Gap::Failed(error.into())
    }
}

impl From<QuotaExceeded> for Gap {
    fn from(error: QuotaExceeded) -> Gap {
        Gap::Failed(error.into())
    }
}

impl From<getrandom::Error> for Gap {
    fn from(error: getrandom::Error) -> Gap {
        Gap::Failed(error.into())
    }
}

impl From<fjall::Error> for Gap {
    fn from(error: fjall::Error) -> Gap {
        Gap::Failed(error.into())
    }
}

/// For callers whose state has every row and who hold every guard.
impl From<Gap> for Error {
    fn from(gap: Gap) -> Error {
        match gap {
            Gap::Failed(error) => error,
            Gap::Missing(need) => {
                tracing::error!(?need, "a rule asked for rows that were not loaded");
                Error::Damaged
            }
            Gap::Unguarded(guard) => {
                tracing::error!(?guard, "a rule wrote without a guard");
                Error::Damaged
            }
        }
    }
}
