//! One commit: what it changes, and the state it builds on.

use std::collections::BTreeMap;

use crate::audit::{AuditEntry, AuditRecord};
#[cfg(debug_assertions)]
use crate::canaries;
use crate::digest::Digest;
use crate::rows::{self, SetHash};
use crate::seal::StoreKeys;
use crate::usage::{UsageDigest, UsageRow, block};

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

/// What a commit adds to the log: its audit record, and its usage rows in blocks.
pub(crate) struct LogRows {
    pub(crate) audit: Vec<u8>,
    pub(crate) usage: Vec<Vec<u8>>,
    /// The head of the chain after the audit record.
    pub(crate) head: Digest,
}

impl LogRows {
    /// Takes entries and usage rows out of a commit. `seq` is the number of the commit in its chain,
    /// and `previous` the head before it.
    pub(crate) fn of(commit: &mut Commit, keys: &StoreKeys, seq: u64, previous: Digest) -> LogRows {
        let usage = std::mem::take(&mut commit.usage);
        let usage: Vec<Vec<u8>> = usage.chunks(block::ROWS_MAX).map(block::encode).collect();
        // The audit record covers the usage rows with this digest, so that they cannot be changed
        // unnoticed.
        let mut digest = UsageDigest::default();
        usage.iter().for_each(|block| digest.add(block));
        let (usage_rows, usage_digest) = digest.finish();
        let entries = std::mem::take(&mut commit.entries);
        let record = AuditRecord { seq, at_ms: commit.at_ms, previous, entries, usage_rows, usage_digest };
        let audit = rows::encode_body(&record);
        let head = keys.audit_head(&previous, &audit);
        LogRows { audit, usage, head }
    }
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
