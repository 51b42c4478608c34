//! One commit: what it changes, and the state it builds on.

use std::collections::BTreeMap;

use crate::audit::AuditEntry;
#[cfg(debug_assertions)]
use crate::canaries;
use crate::digest::Digest;
use crate::rows::SetHash;
use crate::usage::UsageRow;

/// The state after the last commit that the next commit builds on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct CommitHead {
    pub(crate) seq: u64,
    pub(crate) head: Digest,
    /// Set hash of the rows of `keys`, kept in its marker.
    pub(crate) set: SetHash,
    /// Set hash of the vaults' heads, kept in the marker of `meta`.
    pub(crate) heads: SetHash,
}

/// Changes of rows by row key; `None` removes the row.
pub(crate) type RowChanges = BTreeMap<Vec<u8>, Option<Vec<u8>>>;
/// One such change.
pub(crate) type RowChange = (Vec<u8>, Option<Vec<u8>>);

/// The rows of vaults that a commit changes.
#[derive(Default)]
pub(crate) struct VaultRows {
    /// Metadata of secrets in `meta`, each row at most once.
    pub(crate) meta: Vec<RowChange>,
    /// Heads of vaults in `meta`.
    pub(crate) heads: RowChanges,
    /// Encrypted values of secrets, each row at most once.
    pub(crate) values: Vec<RowChange>,
}

/// The content of one commit.
#[derive(Default)]
pub(crate) struct Commit {
    pub(crate) at_ms: u64,
    /// Changed rows of the keyspace `keys`.
    pub(crate) rows: RowChanges,
    pub(crate) vaults: VaultRows,
    pub(crate) entries: Vec<AuditEntry>,
    pub(crate) usage: Vec<UsageRow>,
}

#[cfg(debug_assertions)]
impl Commit {
    /// Searches all rows for released secrets, in tests that ask for it.
    pub(crate) fn search(&self) {
        let VaultRows { meta, heads, values } = &self.vaults;
        let rows =
            self.rows.iter().chain(heads).chain(meta.iter().chain(values).map(|(key, row)| (key, row)));
        for (key, row) in rows {
            canaries::search("the key of a row", key);
            canaries::search("a row", row.as_deref().unwrap_or_default());
        }
        canaries::search("the audit log", format!("{:?}", self.entries).as_bytes());
        canaries::search("rows of usage", format!("{:?}", self.usage).as_bytes());
    }
}
