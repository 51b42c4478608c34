//! The audit log: one chained record per commit, in the same batch as what it records.
//!
//! Each record names the head of the chain before it; the head after it is a MAC over both. The newest head
//! stands in the anchor. Records hold names, ids and choices, never a value, a token or a request.

mod action;

use serde::{Deserialize, Serialize};

use crate::hex;
use crate::log::{Row, UsageDigest};
use crate::seal::{Digest, StoreKeys};
use crate::token::KeyId;
use crate::vault::VaultFinding;

pub use action::{AuditAction, CopiedSecret};

/// Who asked for a change.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Actor {
    /// Somebody at the machine: the command line or the admin socket.
    Operator,
    /// A client with this key.
    Key(KeyId),
    /// The program itself, at the first start or while opening.
    System,
}

impl AuditEntry {
    pub(crate) fn of_damage(finding: VaultFinding) -> AuditEntry {
        let VaultFinding { vault, name, part } = finding;
        AuditEntry { actor: Actor::System, action: AuditAction::DamageFound { vault, name, part } }
    }
}

/// One mutation.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub struct AuditEntry {
    /// Who asked for it.
    pub actor: Actor,
    /// What was done.
    #[serde(flatten)]
    pub action: AuditAction,
}

/// What one commit did.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub struct AuditRecord {
    /// The commit's number.
    pub seq: u64,
    /// When it was made, Unix milliseconds.
    pub at_ms: u64,
    /// The head of the chain before this record.
    #[serde(with = "hex")]
    pub(crate) previous: Digest,
    /// The mutations, in the order they were applied.
    pub entries: Vec<AuditEntry>,
    /// How many usage rows the commit carried.
    pub usage_rows: usize,
    /// Digest over those rows, so that they cannot be edited either.
    #[serde(with = "hex")]
    pub(crate) usage_digest: Digest,
}

impl AuditRecord {
    /// Whether the chain may skip numbers before this record.
    pub(crate) fn accepts_rollback(&self) -> bool {
        self.entries.iter().any(|entry| matches!(entry.action, AuditAction::RollbackAccepted { .. }))
    }
}

/// The result of checking the whole chain.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AuditSummary {
    /// How many records hold.
    pub records: u64,
    /// How many usage rows they vouch for.
    pub usage_rows: u64,
    /// Number of the first record that does not, if any.
    pub broken_at: Option<u64>,
}

/// Walks the chain from its beginning; `rows` are the stored bytes, each record before its usage rows.
pub(crate) fn verify<E>(
    keys: &StoreKeys,
    expected_head: &Digest,
    rows: impl Iterator<Item = Result<Row, E>>,
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

/// How far the walk has come.
#[derive(Default)]
struct Chain {
    head: Digest,
    last: u64,
    records: u64,
    usage_rows: u64,
    /// The last record, until its usage rows are known to be all there.
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
        // The engine gives values in the order of their keys, so that a gap is a value that is gone.
        digest.values() == index as usize && digest.rows() <= record.usage_rows
    }

    /// Whether the usage rows of the last record are all there and the ones it vouched for.
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
