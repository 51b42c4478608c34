//! Check of an audit chain: every record follows the one before it, and the last head is the expected one.
//! A record may lack all of its usage rows if a later record, of any chain, says that those of its day were dropped.

use std::collections::BTreeMap;

use crate::audit::AuditRecord;
use crate::digest::Digest;
use crate::log::ChainKey;
#[cfg(all(test, feature = "postgres"))]
use crate::log::LogRow;
use crate::rows;
use crate::seal::StoreKeys;
use crate::spend::UsageDay;
use crate::usage::UsageDigest;

/// The result of checking a whole chain.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct AuditSummary {
    /// Number of records that are valid.
    pub(crate) records: u64,
    /// Number of usage rows that these records cover, without those that were dropped.
    pub(crate) usage_rows: u64,
    /// Sequence number of the first record that is not valid, if any.
    pub(crate) broken_at: Option<u64>,
    /// Whether each number up to the end has a record, besides gaps that records accept.
    pub(crate) is_complete: bool,
    /// The chains that the chain says were there before it.
    pub(crate) imported: Option<(u64, Digest)>,
}

/// The check of one chain, which is given the rows from its beginning: the stored bytes, each record before
/// its usage rows.
pub(crate) struct ChainCheck {
    /// The name of the chain, for people.
    pub(crate) name: String,
    /// Rows after this number are not part of the check.
    seq: u64,
    /// The head after that commit.
    head: Digest,
    chain: Chain,
    holds: bool,
}

impl ChainCheck {
    pub(crate) fn new(name: String, seq: u64, head: Digest) -> ChainCheck {
        ChainCheck { name, seq, head, chain: Chain::default(), holds: true }
    }

    /// The number of its last commit.
    pub(crate) fn seq(&self) -> u64 {
        self.seq
    }

    pub(crate) fn row(&mut self, keys: &StoreKeys, (seq, index): (u64, u32), bytes: &[u8]) {
        if self.holds && seq <= self.seq {
            self.holds = match index {
                0 => self.chain.record(keys, seq, bytes),
                _ => self.chain.usage(seq, index, bytes),
            };
        }
    }

    /// The first day whose usage rows were kept, as records of this chain say.
    pub(crate) fn dropped_before(&self) -> Option<UsageDay> {
        self.chain.dropped_before
    }

    /// How far other chains were at least, as records of this chain say.
    pub(crate) fn witnessed(&self) -> impl Iterator<Item = (&ChainKey, &u64)> {
        self.chain.witnessed.iter()
    }

    /// Ends the check. Usage rows of days before `dropped_before` may be missing.
    pub(crate) fn finish(mut self, dropped_before: Option<UsageDay>) -> AuditSummary {
        let holds = self.holds && self.chain.settle();
        let broken_at = match holds {
            true => (self.chain.head != self.head).then_some(self.chain.last + 1),
            false => Some(self.chain.broken_at),
        };
        let missing = self.chain.missing.filter(|(day, _)| Some(*day) >= dropped_before).map(|(_, seq)| seq);
        let broken_at = missing.into_iter().chain(broken_at).min();
        let Chain { records, usage_rows, skipped, imported, .. } = self.chain;
        let is_complete = records.checked_add(skipped) == Some(self.seq);
        AuditSummary { records, usage_rows, broken_at, is_complete, imported }
    }
}

/// Checks a chain that ends with its last row.
#[cfg(all(test, feature = "postgres"))]
pub(crate) fn verify<E>(
    keys: &StoreKeys,
    expected_head: &Digest,
    rows: impl Iterator<Item = Result<LogRow, E>>,
) -> Result<AuditSummary, E> {
    let mut check = ChainCheck::new(String::new(), u64::MAX, *expected_head);
    for row in rows {
        let (place, bytes) = row?;
        check.row(keys, place, &bytes);
    }
    let dropped_before = check.dropped_before();
    Ok(check.finish(dropped_before))
}

/// State of the check.
#[derive(Default)]
struct Chain {
    head: Digest,
    last: u64,
    records: u64,
    usage_rows: u64,
    /// How many numbers records accept as missing.
    skipped: u64,
    imported: Option<(u64, Digest)>,
    /// How far other chains were at least.
    witnessed: BTreeMap<ChainKey, u64>,
    /// The latest day of which a record has none of its usage rows, and the number of the first such record.
    missing: Option<(UsageDay, u64)>,
    /// The first day whose usage rows were kept.
    dropped_before: Option<UsageDay>,
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
        let follows = seq == self.last + 1 || (seq > self.last && record.accepts_gap());
        if record.seq != seq || record.previous != self.head || !follows {
            return false;
        }
        self.skipped += seq - self.last - 1;
        self.imported = self.imported.or_else(|| record.imported_chains());
        for (chain, seq) in record.witnessed_chains() {
            let known = self.witnessed.entry(chain).or_default();
            *known = seq.max(*known);
        }
        self.dropped_before = self.dropped_before.max(record.dropped_before());
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
        if digest.values() == 0 && record.usage_rows > 0 {
            let day = UsageDay::of_ms(record.at_ms);
            if self.missing.is_none_or(|(latest, _)| latest < day) {
                self.missing = Some((day, record.seq));
            }
            self.records += 1;
            return true;
        }
        let found = digest.finish();
        let holds = found == (record.usage_rows, record.usage_digest);
        if holds {
            self.records += 1;
            self.usage_rows += record.usage_rows as u64;
        }
        holds
    }
}
