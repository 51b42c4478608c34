//! Reading the audit log and the usage rows, those of all chains in one order.

use std::sync::Arc;

use tokio_postgres::types::Type;

use super::failure::Failure;
use super::readers::{Readers, unread};
use super::statement::Statement;
use crate::audit::AuditRecord;
use crate::error::Error;
use crate::rows;
use crate::usage::{UsageRow, block};

/// The most bytes of the log that are read at once.
const BYTES_MAX: usize = 256 * 1024 * 1024;

/// Audit records after the position `since`, oldest first, at most `limit`. A position is the number
/// of a transaction. Commits that others in progress may come before are not listed yet.
pub(super) fn audit_records(
    readers: &Arc<Readers>,
    since: u64,
    limit: usize,
) -> Result<Vec<AuditRecord>, Error> {
    let sql = "SELECT body FROM audit WHERE position > $1 \
               AND position < pg_snapshot_xmin(pg_current_snapshot())::text::bigint ORDER BY position LIMIT $2";
    let asks = Statement::new(sql).with(number(since), Type::INT8).with(count(limit), Type::INT8);
    let bodies = bodies(readers, asks)?;
    bodies.iter().map(|body| rows::decode_body(body).ok_or(Error::Damaged)).collect()
}

/// The newest usage rows, newest first, at most `limit`.
pub(super) fn usage_rows(readers: &Arc<Readers>, limit: usize) -> Result<Vec<UsageRow>, Error> {
    // A block has one row at least.
    let sql = "SELECT body FROM usage ORDER BY position DESC, part DESC LIMIT $1";
    let bodies = bodies(readers, Statement::new(sql).with(count(limit), Type::INT8))?;
    let mut found = Vec::new();
    for body in bodies {
        let rows = block::decode(&body).ok_or(Error::Damaged)?;
        found.extend(rows.into_iter().rev().take(limit - found.len()));
    }
    Ok(found)
}

fn bodies(readers: &Arc<Readers>, asks: Statement) -> Result<Vec<Vec<u8>>, Error> {
    const UNEXPECTED: Failure = Failure::Unexpected("the question for the log");
    let length =
        |row: &tokio_postgres::Row| row.try_get::<_, &[u8]>(0).map(<[u8]>::len).map_err(|_| UNEXPECTED);
    let rows = readers.moment().rows(asks, BYTES_MAX, length).map_err(unread)?;
    rows.iter().map(|row| row.try_get(0).map_err(|_| unread(UNEXPECTED))).collect()
}

fn number(position: u64) -> i64 {
    i64::try_from(position).unwrap_or(i64::MAX)
}

fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
