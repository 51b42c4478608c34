//! What rules look at: the rows of the store at one moment, whichever engine keeps them.
//!
//! A rule never waits. It asks a [`State`], which answers from memory or from the local disk, or
//! says which rows it lacks. The caller of the rule then gets these rows and runs the rule again from
//! its beginning. So a rule changes nothing but its write batch.
//!
//! Each time costs a round trip where the rows are elsewhere. So a rule asks questions that do not
//! depend on each other together, with [`all`] and [`both`].

use std::collections::BTreeSet;
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

    /// The length of a row in bytes, without reading it. No MAC covers it, which is harmless because only
    /// the quotas of a vault depend on it: an attacker who can change rows can fill the database anyway.
    fn length(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<usize>, Gap>;

    /// The rows of a range, not checked. Rules do not read those of the log; an engine may read only all of
    /// them, in the form of [`crate::log`].
    fn range(&self, range: &RowRange) -> Result<Rows, Gap>;

    /// The record of this name.
    fn named(&self, name: &NameKey) -> Result<Option<RecordId>, Gap>;

    /// The records of one kind that belong to an owner, in ascending order of their ids.
    fn owned_by(&self, kind: RecordKind, owner: RecordId) -> Result<Vec<RecordId>, Gap>;

    /// Reads the answers to these questions together, where each would take a round trip of its own.
    #[cfg(feature = "postgres")]
    fn read_ahead(&self, _needs: BTreeSet<Need>) -> Result<(), Gap> {
        Ok(())
    }

    /// Whether each keyspace has a marker with the hash of its rows, and the log a chain of its own, which
    /// ends with the last commit of the store. Otherwise the log has chains of several hosts only.
    fn has_markers(&self) -> bool;

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
    /// Whether only the row keys are needed. No MAC covers those, which is harmless because rules delete
    /// the rows of such keys or read them again, with their MAC: who can add a key to the range can
    /// delete the row itself.
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
    /// That the header stays as it is. Any number of transactions hold it at the same time, and none of
    /// them together with one that holds [`Guard::Store`], which includes it.
    Header,
    /// The records of a workspace.
    Workspace(WorkspaceId),
    /// The secrets, the head and the keys of a vault.
    Vault(VaultId),
    /// The requests in progress of a prepaid workspace.
    Account(WorkspaceId),
    /// What all vaults of a workspace hold together: nothing is added to two of them at the same time.
    Quota(WorkspaceId),
}

impl Guard {
    /// The guard of an API key: that of its workspace.
    pub(crate) fn of_key(workspace: Option<WorkspaceId>) -> Guard {
        workspace.map_or(Guard::Store, Guard::Workspace)
    }
}

/// What a rule lacks, as far as it is known before the rule has it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Missing {
    /// Questions that the state has no answer to.
    pub(crate) needs: BTreeSet<Need>,
    /// Guards of its writes that are not held.
    pub(crate) guards: BTreeSet<Guard>,
}

impl Missing {
    pub(crate) fn is_empty(&self) -> bool {
        self.needs.is_empty() && self.guards.is_empty()
    }

    pub(crate) fn add(&mut self, mut more: Missing) {
        self.needs.append(&mut more.needs);
        self.guards.append(&mut more.guards);
    }
}

/// Why a rule did not end.
#[derive(Debug)]
pub(crate) enum Gap {
    /// With this, the rule can run again.
    Missing(Missing),
    /// The rule refuses, or reading failed.
    Failed(Error),
}

impl Gap {
    /// The state has no answer to this.
    #[cfg(any(test, feature = "postgres"))]
    pub(crate) fn unanswered(need: Need) -> Gap {
        Gap::Missing(Missing { needs: [need].into(), guards: BTreeSet::new() })
    }

    /// A write needs a guard that is not held.
    pub(crate) fn unguarded(guard: Guard) -> Gap {
        Gap::Missing(Missing { needs: BTreeSet::new(), guards: [guard].into() })
    }
}

/// The results of questions that do not depend on each other, or everything that they lack.
///
/// A failure ends the list. It counts if nothing was missing before it; otherwise an earlier question
/// may fail once it has what it lacks.
pub(crate) fn all<T>(results: impl IntoIterator<Item = Result<T, Gap>>) -> Result<Vec<T>, Gap> {
    let (mut found, mut missing) = (Vec::new(), Missing::default());
    for result in results {
        match result {
            Ok(it) => found.push(it),
            Err(Gap::Missing(more)) => missing.add(more),
            Err(failed) if missing.is_empty() => return Err(failed),
            Err(_) => break,
        }
    }
    if missing.is_empty() { Ok(found) } else { Err(Gap::Missing(missing)) }
}

/// Like [`all`], of two results.
pub(crate) fn both<A, B>(first: Result<A, Gap>, second: Result<B, Gap>) -> Result<(A, B), Gap> {
    match (first, second) {
        (Ok(first), Ok(second)) => Ok((first, second)),
        (Err(Gap::Missing(mut missing)), Err(Gap::Missing(more))) => {
            missing.add(more);
            Err(Gap::Missing(missing))
        }
        (Err(gap), _) | (Ok(_), Err(gap)) => Err(gap),
    }
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
            Gap::Missing(Missing { needs, guards }) => {
                tracing::error!(?needs, ?guards, "a rule lacked rows or guards where it must have all");
                Error::Damaged
            }
        }
    }
}
