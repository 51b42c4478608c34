//! Reading the keyspace `log`.

use std::ops::Bound;

use fjall::Keyspace;

use crate::audit::AuditRecord;
use crate::error::Error;
use crate::log::{audit_key, key, place};
use crate::rows;
use crate::usage::{UsageRow, block};

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

/// Audit records of commits after `since`, oldest first, at most `limit`, each with the number of its
/// commit.
pub(crate) fn audit_records(
    log: &Keyspace,
    since: u64,
    limit: usize,
) -> Result<Vec<(u64, AuditRecord)>, Error> {
    let mut records = Vec::new();
    let mut next = since.checked_add(1);
    while let Some(seq) = next.filter(|_| records.len() < limit) {
        // A range query per record skips the usage rows between the records.
        let Some(row) = log.range(audit_key(seq)..=key(u64::MAX, u32::MAX)).next() else { break };
        let (key, value) = row.into_inner()?;
        let (found, index) = place(&key).ok_or(Error::Damaged)?;
        if index == 0 {
            records.push((found, rows::decode_body(&value).ok_or(Error::Damaged)?));
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
