//! Reading the audit log and the usage rows, those of all chains in one order.

use std::rc::Rc;
use std::sync::Arc;

use tokio_postgres::types::Type;

use super::failure::Failure;
use super::readers::{Moment, Readers, unread};
use super::statement::Statement;
use super::write::COPIED;
use crate::audit::AuditRecord;
use crate::error::Error;
use crate::log::LogRow;
use crate::rows;
use crate::state::{AuditChains, Blocks, ChainEnd};
use crate::usage::{UsageRow, block};

/// The most bytes of the log that are read at once.
const BYTES_MAX: usize = 256 * 1024 * 1024;
/// Rows of the log that are fetched at once from a longer answer.
const ROWS_AT_ONCE: usize = 256;

const UNEXPECTED: Failure = Failure::Unexpected("the question for the log");

/// Audit records after the position `since`, oldest first, at most `limit`. A position is the number
/// of a transaction, after the numbers of copied commits. Commits that others in progress may come before are not listed yet.
pub(super) fn audit_records(
    readers: &Arc<Readers>,
    since: u64,
    limit: usize,
) -> Result<Vec<(u64, AuditRecord)>, Error> {
    let sql = format!(
        "SELECT body, position FROM audit WHERE position > $1 \
         AND position < pg_snapshot_xmin(pg_current_snapshot())::text::bigint + {COPIED} ORDER BY position LIMIT $2"
    );
    let asks = Statement::new(sql).with(number(since), Type::INT8).with(count(limit), Type::INT8);
    let record = |row: &tokio_postgres::Row| {
        let unexpected = |_| unread(UNEXPECTED);
        let (body, position): (&[u8], i64) =
            (row.try_get(0).map_err(unexpected)?, row.try_get(1).map_err(unexpected)?);
        let position = u64::try_from(position).map_err(|_| unread(UNEXPECTED))?;
        Ok((position, rows::decode_body(body).ok_or(Error::Damaged)?))
    };
    found(readers, asks)?.iter().map(record).collect()
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

/// All chains, with the ends that they have in this moment.
pub(super) fn audit_chains(moment: &Rc<Moment>) -> Result<AuditChains, Failure> {
    let asks = Statement::new("SELECT id, host, seq, head FROM chain ORDER BY id");
    let found = moment.rows(asks, usize::MAX, |_| Ok(0))?;
    let (mut ids, mut ends) = (Vec::new(), Vec::new());
    for row in &found {
        let id: Vec<u8> = row.try_get(0).map_err(|_| UNEXPECTED)?;
        let host: &str = row.try_get(1).map_err(|_| UNEXPECTED)?;
        let seq: i64 = row.try_get(2).map_err(|_| UNEXPECTED)?;
        let head: &[u8] = row.try_get(3).map_err(|_| UNEXPECTED)?;
        let (seq, head) = (u64::try_from(seq), head.try_into());
        let name = format!("{} of {host}", crate::hex::encode(&id));
        ends.push(ChainEnd { name, seq: seq.map_err(|_| UNEXPECTED)?, head: head.map_err(|_| UNEXPECTED)? });
        ids.push(id);
    }
    let sql = "SELECT chain, seq, at, body FROM (SELECT chain, seq, 0 AS at, body FROM audit UNION ALL \
               SELECT chain, seq, part + 1, body FROM usage) AS log ORDER BY chain, seq, at";
    let rows = Cursor::open(moment, "chains", sql)?.map(move |row| place(&ids, &row?));
    Ok(AuditChains { ends, rows: Box::new(rows) })
}

/// A row of the log with the place of its chain.
fn place(ids: &[Vec<u8>], row: &tokio_postgres::Row) -> Result<(usize, LogRow), Error> {
    let unexpected = |_| unread(UNEXPECTED);
    let chain: Vec<u8> = row.try_get(0).map_err(unexpected)?;
    let (seq, index): (i64, i32) = (row.try_get(1).map_err(unexpected)?, row.try_get(2).map_err(unexpected)?);
    // Rows of a chain that is not listed belong to no end.
    let chain = ids.binary_search(&chain).unwrap_or(usize::MAX);
    let number = (u64::try_from(seq), u32::try_from(index));
    let (Ok(seq), Ok(index)) = number else { return Err(unread(UNEXPECTED)) };
    Ok((chain, ((seq, index), row.try_get(3).map_err(unexpected)?)))
}

/// The blocks of usage rows in the order of their transactions.
pub(super) fn usage_blocks(moment: &Rc<Moment>) -> Result<Blocks, Failure> {
    let blocks = Cursor::open(moment, "blocks", "SELECT body FROM usage ORDER BY position, part")?;
    let block = |row: Result<tokio_postgres::Row, Error>| {
        let body: Vec<u8> = row?.try_get(0).map_err(|_| unread(UNEXPECTED))?;
        Ok(body.into())
    };
    Ok(Box::new(blocks.map(block)))
}

/// The rows of a long answer, some at a time.
struct Cursor {
    moment: Rc<Moment>,
    name: &'static str,
    rows: std::vec::IntoIter<tokio_postgres::Row>,
    is_over: bool,
}

impl Cursor {
    fn open(moment: &Rc<Moment>, name: &'static str, sql: &str) -> Result<Cursor, Failure> {
        moment.script(format!("DECLARE {name} NO SCROLL CURSOR FOR {sql}"))?;
        Ok(Cursor { moment: Rc::clone(moment), name, rows: Vec::new().into_iter(), is_over: false })
    }

    fn fetch(&mut self) -> Result<(), Error> {
        let fetch = Statement::new(format!("FETCH {ROWS_AT_ONCE} FROM {}", self.name));
        let rows = self.moment.rows(fetch, usize::MAX, |_| Ok(0)).map_err(unread)?;
        self.is_over = rows.len() < ROWS_AT_ONCE;
        self.rows = rows.into_iter();
        Ok(())
    }
}

impl Iterator for Cursor {
    type Item = Result<tokio_postgres::Row, Error>;

    fn next(&mut self) -> Option<Result<tokio_postgres::Row, Error>> {
        loop {
            if let Some(row) = self.rows.next() {
                return Some(Ok(row));
            }
            if self.is_over {
                return None;
            }
            if let Err(error) = self.fetch() {
                self.is_over = true;
                return Some(Err(error));
            }
        }
    }
}

/// Rows whose first column is a body.
fn found(readers: &Arc<Readers>, asks: Statement) -> Result<Vec<tokio_postgres::Row>, Error> {
    let length =
        |row: &tokio_postgres::Row| row.try_get::<_, &[u8]>(0).map(<[u8]>::len).map_err(|_| UNEXPECTED);
    readers.moment().rows(asks, BYTES_MAX, length).map_err(unread)
}

fn bodies(readers: &Arc<Readers>, asks: Statement) -> Result<Vec<Vec<u8>>, Error> {
    found(readers, asks)?.iter().map(|row| row.try_get(0).map_err(|_| unread(UNEXPECTED))).collect()
}

fn number(position: u64) -> i64 {
    i64::try_from(position).unwrap_or(i64::MAX)
}

fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
