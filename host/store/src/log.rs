//! The keyspace `log`: the audit record and the usage rows of each commit, in ascending order.
//!
//! A key is `L | seq (8) | index (4)`. Index 0 is the audit record of the commit; from index 1 on
//! are its usage rows, many in one value, see [`block`]. Because keys only ever ascend, the
//! engine's compaction moves whole tables and never rewrites one.

use std::ops::Bound;

use fjall::Keyspace;

use crate::audit::AuditRecord;
use crate::error::Error;
use crate::rows;
use crate::usage::{UsageRow, block};

const COMMIT: u8 = b'L';

/// Key of the audit record of a commit.
pub(crate) fn audit_key(seq: u64) -> Vec<u8> {
    key(seq, 0)
}

/// Key of a value of usage rows. `place` is its index in the commit, counted from 0.
pub(crate) fn usage_key(seq: u64, place: u32) -> Vec<u8> {
    key(seq, place.saturating_add(1))
}

fn key(seq: u64, index: u32) -> Vec<u8> {
    [[COMMIT].as_slice(), &seq.to_be_bytes(), &index.to_be_bytes()].concat()
}

/// Commit number and index of a row; `None` for keys of another kind.
pub(crate) fn place(key: &[u8]) -> Option<(u64, u32)> {
    let (seq, index) = key.strip_prefix(&[COMMIT])?.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*seq), u32::from_be_bytes(index.try_into().ok()?)))
}

/// Whether this is the key of a row of a commit with this number or a lower one.
pub(crate) fn is_until(key: &[u8], seq: u64) -> bool {
    place(key).is_some_and(|(found, _)| found <= seq)
}

/// A row of the log: commit number and index, and the value.
pub(crate) type LogRow = ((u64, u32), Vec<u8>);

/// The newest audit record, with its commit number.
pub(crate) fn last_audit_row(log: &Keyspace) -> Result<Option<(u64, Vec<u8>)>, fjall::Error> {
    let mut end = Bound::Included(key(u64::MAX, u32::MAX));
    loop {
        let Some(last) = log.range((Bound::Included(key(0, 0)), end)).next_back() else { return Ok(None) };
        let last = last.key()?;
        let Some((seq, _)) = place(&last) else { return Ok(None) };
        if let Some(record) = log.get(audit_key(seq))? {
            return Ok(Some((seq, record.to_vec())));
        }
        end = Bound::Excluded(audit_key(seq));
    }
}

/// Audit records of commits after `since`, oldest first, at most `limit`.
pub(crate) fn audit_records(log: &Keyspace, since: u64, limit: usize) -> Result<Vec<AuditRecord>, Error> {
    let mut records = Vec::new();
    let mut next = since.checked_add(1);
    while let Some(seq) = next.filter(|_| records.len() < limit) {
        // A range query per record skips the usage rows between the records.
        let Some(row) = log.range(audit_key(seq)..=key(u64::MAX, u32::MAX)).next() else { break };
        let (key, value) = row.into_inner()?;
        let (found, index) = place(&key).ok_or(Error::Damaged)?;
        if index == 0 {
            records.push(rows::decode_body(&value).ok_or(Error::Damaged)?);
        }
        next = found.checked_add(1);
    }
    Ok(records)
}

/// The newest usage rows, newest first, at most `limit`.
pub(crate) fn usage_rows(log: &Keyspace, limit: usize) -> Result<Vec<UsageRow>, Error> {
    let mut found = Vec::new();
    for row in log.range(key(0, 0)..=key(u64::MAX, u32::MAX)).rev() {
        if found.len() >= limit {
            break;
        }
        let (key, value) = row.into_inner()?;
        if place(&key).is_some_and(|(_, index)| index > 0) {
            let rows = block::decode(&value).ok_or(Error::Damaged)?;
            found.extend(rows.into_iter().rev().take(limit - found.len()));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_ascend_with_the_commits() {
        let keys = [audit_key(1), usage_key(1, 0), usage_key(1, 300), audit_key(2), audit_key(256)];
        assert!(keys.is_sorted());
        assert_eq!(
            keys.each_ref().map(|key| place(key).unwrap()),
            [(1, 0), (1, 1), (1, 301), (2, 0), (256, 0)]
        );
        assert_eq!(place(rows::MARKER), None);
        assert_eq!(place(&keys[0][1..]), None);
        assert_eq!(place(&[keys[0].as_slice(), &[0]].concat()), None);
    }
}
