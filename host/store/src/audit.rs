//! The audit log: one chained record per commit, in the same batch as the changes it records.
//!
//! Each record contains the head of the chain before it; the head after it is a MAC over both. The
//! newest head is in the anchor. Records contain names, ids and decisions, never a value, a token
//! or the content of a request.

mod action;

use serde::{Deserialize, Serialize};

use crate::hex;
use crate::log::{LogRow, UsageDigest};
use crate::seal::{Digest, StoreKeys};
use crate::token::KeyId;
use crate::vault::VaultFinding;

pub use action::{AuditAction, CopiedSecret};

/// The origin of a change.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Actor {
    /// The operator: the command line or the admin socket.
    Operator,
    /// A client that authenticated with this API key.
    Key(KeyId),
    /// The host itself, at the first start or while opening.
    System,
}

impl AuditEntry {
    pub(crate) fn of_damage(finding: VaultFinding) -> AuditEntry {
        let VaultFinding { vault, name, part } = finding;
        AuditEntry { actor: Actor::System, action: AuditAction::DamageFound { vault, name, part } }
    }
}

/// One mutation, or another event that is recorded.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub struct AuditEntry {
    /// Origin of the change.
    pub actor: Actor,
    /// What was done.
    #[serde(flatten)]
    pub action: AuditAction,
}

/// The audit record of one commit.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub struct AuditRecord {
    /// Sequence number of the commit.
    pub seq: u64,
    /// Time of the commit, Unix milliseconds.
    pub at_ms: u64,
    /// The head of the chain before this record.
    #[serde(with = "hex")]
    pub(crate) previous: Digest,
    /// The mutations, in the order they were applied.
    pub entries: Vec<AuditEntry>,
    /// Number of usage rows in the commit.
    pub usage_rows: usize,
    /// Digest over those rows, so that they cannot be edited either.
    #[serde(with = "hex")]
    pub(crate) usage_digest: Digest,
}

impl AuditRecord {
    /// Whether sequence numbers may be missing before this record.
    pub(crate) fn accepts_rollback(&self) -> bool {
        self.entries.iter().any(|entry| matches!(entry.action, AuditAction::RollbackAccepted { .. }))
    }
}

/// The result of checking the whole chain.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AuditSummary {
    /// Number of records that are valid.
    pub records: u64,
    /// Number of usage rows that these records cover.
    pub usage_rows: u64,
    /// Sequence number of the first record that is not valid, if any.
    pub broken_at: Option<u64>,
}

/// Checks the chain from its beginning. `rows` are the stored bytes, each record before its usage
/// rows.
pub(crate) fn verify<E>(
    keys: &StoreKeys,
    expected_head: &Digest,
    rows: impl Iterator<Item = Result<LogRow, E>>,
) -> Result<AuditSummary, E> {
    let mut chain = Chain::default();
    let mut holds = true;
    for row in rows {
        let ((seq, index), bytes) = row?;
        holds = if index == 0 { chain.record(keys, seq, &bytes) } else { chain.usage(seq, index, &bytes) };
        if !holds {
            break;
        }
    }
    holds = holds && chain.settle();
    let broken_at = match holds {
        true => (chain.head != *expected_head).then_some(chain.last + 1),
        false => Some(chain.broken_at),
    };
    Ok(AuditSummary { records: chain.records, usage_rows: chain.usage_rows, broken_at })
}

/// State of the check.
#[derive(Default)]
struct Chain {
    head: Digest,
    last: u64,
    records: u64,
    usage_rows: u64,
    /// The last record, until all its usage rows were seen.
    open: Option<(AuditRecord, UsageDigest)>,
    broken_at: u64,
}

impl Chain {
    fn record(&mut self, keys: &StoreKeys, seq: u64, bytes: &[u8]) -> bool {
        if !self.settle() {
            return false;
        }
        self.broken_at = seq;
        let Some(record) = crate::rows::decode_body::<AuditRecord>(bytes) else { return false };
        let follows = seq == self.last + 1 || (seq > self.last && record.accepts_rollback());
        if record.seq != seq || record.previous != self.head || !follows {
            return false;
        }
        self.head = keys.audit_head(&self.head, bytes);
        self.last = seq;
        self.open = Some((record, UsageDigest::default()));
        true
    }

    fn usage(&mut self, seq: u64, index: u32, bytes: &[u8]) -> bool {
        self.broken_at = seq;
        let Some((record, digest)) = self.open.as_mut().filter(|(record, _)| record.seq == seq) else {
            return false;
        };
        digest.add(bytes);
        // Values come in the order of their keys, so a gap in the index means that a value is
        // missing.
        digest.values() == index as usize && digest.rows() <= record.usage_rows
    }

    /// Whether the usage rows of the last record are complete and match its digest.
    fn settle(&mut self) -> bool {
        let Some((record, digest)) = self.open.take() else { return true };
        self.broken_at = record.seq;
        let found = digest.finish();
        let holds = found == (record.usage_rows, record.usage_digest);
        if holds {
            self.records += 1;
            self.usage_rows += record.usage_rows as u64;
        }
        holds
    }
}
