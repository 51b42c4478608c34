//! Check of the audit chain: every record follows the one before it, and the last head is the
//! anchored one.

use crate::audit::AuditRecord;
use crate::digest::Digest;
use crate::log::LogRow;
use crate::rows;
use crate::seal::StoreKeys;
use crate::usage::UsageDigest;

/// The result of checking the whole chain.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct AuditSummary {
    /// Number of records that are valid.
    pub(crate) records: u64,
    /// Number of usage rows that these records cover.
    pub(crate) usage_rows: u64,
    /// Sequence number of the first record that is not valid, if any.
    pub(crate) broken_at: Option<u64>,
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
        let Some(record) = rows::decode_body::<AuditRecord>(bytes) else { return false };
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
