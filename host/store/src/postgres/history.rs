//! Reading the audit log and the usage rows, those of all chains in one order.

use std::iter::Peekable;
use std::rc::Rc;
use std::sync::Arc;

use tokio_postgres::types::Type;

use super::failure::Failure;
use super::readers::{Moment, Readers, unread};
use super::statement::Statement;
use super::write::COPIED;
use crate::audit::AuditRecord;
use crate::error::Error;
use crate::log::{self, ChainEnd, ChainKey, ImportedPlace};
use crate::rows::{self, LOG};
use crate::seal::StoreKeys;
use crate::state::{KeyedRow, Rows};
use crate::usage::{UsageRow, block};

/// The most bytes of the log that are read at once.
const BYTES_MAX: usize = 256 * 1024 * 1024;
/// Rows of the log that are read at once from all of them, at most.
const PAGE_ROWS: i64 = if cfg!(test) { 3 } else { 512 };
/// A page has no more rows from this many bytes on.
const PAGE_BYTES: i64 = 4 * 1024 * 1024;

const UNEXPECTED: Failure = Failure::Unexpected("the question for the log");

/// Audit records after the position `since`, oldest first, at most `limit`. A position is the number
/// of a transaction, after the numbers of copied commits. Commits that others in progress may come before are not listed yet.
pub(super) fn audit_records(
    readers: &Arc<Readers>,
    since: u64,
    limit: usize,
) -> Result<Vec<(u64, AuditRecord)>, Error> {
    placed_records(readers, "position > $1", "ASC", since, limit)
}

/// The newest audit records before the position `before`, oldest first, at most `limit`, as for [`audit_records`].
pub(super) fn audit_records_before(
    readers: &Arc<Readers>,
    before: u64,
    limit: usize,
) -> Result<Vec<(u64, AuditRecord)>, Error> {
    let mut records = placed_records(readers, "position < $1", "DESC", before, limit)?;
    records.reverse();
    Ok(records)
}

fn placed_records(
    readers: &Arc<Readers>,
    wanted: &str,
    order: &str,
    from: u64,
    limit: usize,
) -> Result<Vec<(u64, AuditRecord)>, Error> {
    let sql = format!(
        "SELECT body, position FROM audit WHERE {wanted} \
         AND position < pg_snapshot_xmin(pg_current_snapshot())::text::bigint + {COPIED} \
         ORDER BY position {order} LIMIT $2"
    );
    let asks = Statement::new(sql).with(number(from), Type::INT8).with(count(limit), Type::INT8);
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

const CHAINS: &str = "SELECT id, host, seq, head FROM chain WHERE seq > 0 AND id > $1 ORDER BY id LIMIT $2";
const AUDIT: &str = "SELECT position, chain, seq, 0, body FROM (\
      SELECT *, sum(octet_length(body)) OVER (ORDER BY position, chain) - octet_length(body) AS before FROM (\
        SELECT position, chain, seq, body FROM audit \
        WHERE (position, chain) > ($1, $2) ORDER BY position, chain LIMIT $3\
      ) AS page\
    ) AS page WHERE before < $4 ORDER BY position, chain";
const USAGE: &str = "SELECT position, chain, seq, part + 1, body FROM (\
      SELECT *, sum(octet_length(body)) OVER (ORDER BY position, chain, part) - octet_length(body) AS before FROM (\
        SELECT position, chain, seq, part, body FROM usage \
        WHERE (position, chain, part) > ($1, $2, $5) ORDER BY position, chain, part LIMIT $3\
      ) AS page\
    ) AS page WHERE before < $4 ORDER BY position, chain, part";

/// All rows of the log, in the form of [`crate::log`]: the ends of the chains in this moment, then the rows of
/// all of them in the order of their positions.
pub(super) fn log_rows(moment: &Rc<Moment>) -> Rows {
    let chains = Pages::new(moment, chains_after, chain);
    let audit = Pages::new(moment, audit_after, logged).peekable();
    let usage = Pages::new(moment, usage_after, logged).peekable();
    Box::new(chains.map(|row| Ok(row?.1)).chain(Merged { audit, usage }))
}

/// Takes a row of an answer with its place.
type ReadRow<K> = fn(&StoreKeys, &tokio_postgres::Row) -> Result<(K, KeyedRow), Failure>;

/// The rows of a long answer, read page by page: each page begins after the last row of the one before.
struct Pages<K> {
    moment: Rc<Moment>,
    asks: fn(Option<K>) -> Statement,
    read: ReadRow<K>,
    page: std::vec::IntoIter<tokio_postgres::Row>,
    last: Option<K>,
    is_over: bool,
}

impl<K: Copy> Pages<K> {
    fn new(moment: &Rc<Moment>, asks: fn(Option<K>) -> Statement, read: ReadRow<K>) -> Pages<K> {
        let page = Vec::new().into_iter();
        Pages { moment: Rc::clone(moment), asks, read, page, last: None, is_over: false }
    }

    fn row(&mut self) -> Result<Option<(K, KeyedRow)>, Failure> {
        if self.page.len() == 0 {
            self.page = self.moment.rows((self.asks)(self.last), usize::MAX, |_| Ok(0))?.into_iter();
        }
        let Some(row) = self.page.next() else { return Ok(None) };
        let (place, row) = (self.read)(self.moment.keys(), &row)?;
        self.last = Some(place);
        Ok(Some((place, row)))
    }
}

impl<K: Copy> Iterator for Pages<K> {
    type Item = Result<(K, KeyedRow), Error>;

    fn next(&mut self) -> Option<Result<(K, KeyedRow), Error>> {
        if self.is_over {
            return None;
        }
        let row = self.row().map_err(unread).transpose();
        self.is_over = !matches!(row, Some(Ok(_)));
        row
    }
}

/// Audit records and usage rows in the order of their keys.
struct Merged {
    audit: Peekable<Pages<ImportedPlace>>,
    usage: Peekable<Pages<ImportedPlace>>,
}

impl Iterator for Merged {
    type Item = Result<KeyedRow, Error>;

    fn next(&mut self) -> Option<Result<KeyedRow, Error>> {
        let is_usage = match (self.audit.peek(), self.usage.peek()) {
            (Some(Ok((audit, _))), Some(Ok((usage, _)))) => usage < audit,
            // An error ends the rows.
            (None | Some(Ok(_)), Some(Err(_))) | (None, Some(Ok(_))) => true,
            (Some(_), _) | (None, None) => false,
        };
        let next = if is_usage { self.usage.next() } else { self.audit.next() };
        next.map(|row| Ok(row?.1))
    }
}

fn chains_after(last: Option<ChainKey>) -> Statement {
    let last = last.map(|chain| chain.to_vec()).unwrap_or_default();
    Statement::new(CHAINS).with(last, Type::BYTEA).with(PAGE_ROWS, Type::INT8)
}

fn audit_after(last: Option<ImportedPlace>) -> Statement {
    log_after(AUDIT, last)
}

fn usage_after(last: Option<ImportedPlace>) -> Statement {
    let part = last.and_then(|last| i32::try_from(last.index).ok()).map_or(-1, |index| index - 1);
    log_after(USAGE, last).with(part, Type::INT4)
}

fn log_after(sql: &'static str, last: Option<ImportedPlace>) -> Statement {
    let (position, chain) = last.map_or((-1, Vec::new()), |it| (number(it.position), it.chain.to_vec()));
    Statement::new(sql)
        .with(position, Type::INT8)
        .with(chain, Type::BYTEA)
        .with(PAGE_ROWS, Type::INT8)
        .with(PAGE_BYTES, Type::INT8)
}

/// Where a chain ends.
fn chain(keys: &StoreKeys, row: &tokio_postgres::Row) -> Result<(ChainKey, KeyedRow), Failure> {
    let chain = chain_in(row, 0)?;
    let host = row.try_get(1).map_err(|_| UNEXPECTED)?;
    let head: &[u8] = row.try_get(3).map_err(|_| UNEXPECTED)?;
    let end = ChainEnd { host, seq: unsigned(row, 2)?, head: head.try_into().map_err(|_| UNEXPECTED)? };
    let key = log::chain_key(&chain);
    let row = rows::encode(keys, LOG, &key, &end);
    Ok((chain, (key.into(), row.into())))
}

/// An audit record or a value of usage rows.
fn logged(_: &StoreKeys, row: &tokio_postgres::Row) -> Result<(ImportedPlace, KeyedRow), Failure> {
    let index: i32 = row.try_get(3).map_err(|_| UNEXPECTED)?;
    let place = ImportedPlace {
        position: unsigned(row, 0)?,
        chain: chain_in(row, 1)?,
        seq: unsigned(row, 2)?,
        index: u32::try_from(index).map_err(|_| UNEXPECTED)?,
    };
    let body: &[u8] = row.try_get(4).map_err(|_| UNEXPECTED)?;
    Ok((place, (place.key().into(), body.into())))
}

fn chain_in(row: &tokio_postgres::Row, at: usize) -> Result<ChainKey, Failure> {
    let chain: &[u8] = row.try_get(at).map_err(|_| UNEXPECTED)?;
    chain.try_into().map_err(|_| UNEXPECTED)
}

fn unsigned(row: &tokio_postgres::Row, at: usize) -> Result<u64, Failure> {
    let number: i64 = row.try_get(at).map_err(|_| UNEXPECTED)?;
    u64::try_from(number).map_err(|_| UNEXPECTED)
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
