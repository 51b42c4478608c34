//! Reading the keyspace `log`.

use std::ops::Bound;

use fjall::Keyspace;

use crate::audit::AuditRecord;
use crate::error::Error;
use crate::log::{ImportedPlace, LogKey, audit_key, imported_after, imported_end, key, place};
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

/// Audit records after the position `since`, oldest first, at most `limit`, each with its position: the number
/// of its commit, or the position that it had in the database which it comes from.
pub(crate) fn audit_records(
    log: &Keyspace,
    since: u64,
    limit: usize,
) -> Result<Vec<(u64, AuditRecord)>, Error> {
    let mut records = imported_records(log, since, limit)?;
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

/// The newest audit records before the position `before`, oldest first, at most `limit`, as for [`audit_records`].
pub(crate) fn audit_records_before(
    log: &Keyspace,
    before: u64,
    limit: usize,
) -> Result<Vec<(u64, AuditRecord)>, Error> {
    let mut records = Vec::new();
    let mut end = audit_key(before);
    while records.len() < limit {
        // The last row of a commit may be one of usage. Its record is asked for by its key, past the other ones.
        let Some(row) = log.range(key(0, 0)..end).next_back() else { break };
        let (seq, _) = place(&row.key()?).ok_or(Error::Damaged)?;
        end = audit_key(seq);
        if let Some(value) = log.get(&end)? {
            records.push((seq, rows::decode_body(&value).ok_or(Error::Damaged)?));
        }
    }
    let first = imported_after(0).map_or_else(Vec::new, |(first, _)| first);
    let mut end = ImportedPlace { position: before, chain: [0; 16], seq: 0, index: 0 }.key();
    while records.len() < limit && first < end {
        let Some(row) = log.range(first.clone()..end).next_back() else { break };
        let Some(LogKey::Imported(found)) = LogKey::parse(&row.key()?) else { return Err(Error::Damaged) };
        end = ImportedPlace { index: 0, ..found }.key();
        if let Some(value) = log.get(&end)? {
            records.push((found.position, rows::decode_body(&value).ok_or(Error::Damaged)?));
        }
    }
    records.reverse();
    Ok(records)
}

fn imported_records(log: &Keyspace, since: u64, limit: usize) -> Result<Vec<(u64, AuditRecord)>, Error> {
    let mut records = Vec::new();
    let Some((first, end)) = imported_after(since) else { return Ok(records) };
    let mut next = Bound::Included(first);
    while records.len() < limit {
        let Some(row) = log.range((next, Bound::Included(end.clone()))).next() else { break };
        let (key, value) = row.into_inner()?;
        let Some(LogKey::Imported(found)) = LogKey::parse(&key) else { return Err(Error::Damaged) };
        if found.index == 0 {
            records.push((found.position, rows::decode_body(&value).ok_or(Error::Damaged)?));
        }
        next = Bound::Excluded(ImportedPlace { index: u32::MAX, ..found }.key());
    }
    Ok(records)
}

/// The newest usage rows, newest first, at most `limit`.
pub(crate) fn usage_rows(log: &Keyspace, limit: usize) -> Result<Vec<UsageRow>, Error> {
    let mut found = Vec::new();
    let imported = imported_after(0).map_or_else(Vec::new, |(first, _)| first)..=imported_end();
    for row in log.range(key(0, 0)..=key(u64::MAX, u32::MAX)).rev().chain(log.range(imported).rev()) {
        if found.len() >= limit {
            break;
        }
        let (key, value) = row.into_inner()?;
        if LogKey::parse(&key).is_some_and(|key| key.is_usage()) {
            let rows = block::decode(&value).ok_or(Error::Damaged)?;
            found.extend(rows.into_iter().rev().take(limit - found.len()));
        }
    }
    Ok(found)
}
