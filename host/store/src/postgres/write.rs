//! What a commit amounts to, as statements.

use std::collections::BTreeMap;

use tokio_postgres::types::Type;

use super::place::{self, ChainEnd, ChainId, Columns, Table};
use super::statement::Statement;
use crate::commit::{Commit, LogRows, RowChange, VaultRows};
use crate::directory::RecordId;
use crate::error::Error;
use crate::rows::{self, Keyspace};
use crate::seal::StoreKeys;
use crate::vault::{head_key, vaults_of};

const DAY_MS: u64 = 86_400_000;

/// The number of copied commits, see [`super::copy`]. The positions of all others come after theirs.
pub(super) const COPIED: &str = "coalesce((SELECT convert_from(body, 'UTF8')::bigint FROM store \
    WHERE k = 'positions'::bytea), 0)";

/// The position of what this transaction adds to the log.
pub(super) fn position() -> String {
    format!("pg_current_xact_id()::text::bigint + {COPIED}")
}

/// The statements of a commit, and where its chain ends after it.
pub(super) struct Written {
    pub(super) statements: Vec<Statement>,
    pub(super) end: ChainEnd,
    /// Whether other hosts have to learn of it.
    pub(super) changes_kept: bool,
}

/// Rows of one table to write, and keys of rows to delete.
#[derive(Default)]
pub(super) struct TableChanges {
    pub(super) put: Vec<(Vec<u8>, Vec<u8>)>,
    delete: Vec<Vec<u8>>,
}

/// Makes the statements of a commit on the end of a chain. `more` is what other hosts have to see besides its rows.
///
/// # Errors
/// [`Error::Damaged`] for a row that has no place in the schema, or whose columns cannot be derived.
pub(super) fn statements(
    keys: &StoreKeys,
    chain: ChainId,
    before: ChainEnd,
    mut commit: Commit,
    more: Vec<Vec<u8>>,
) -> Result<Written, Error> {
    #[cfg(debug_assertions)]
    commit.search();
    let seq = before.seq + 1;
    let log = LogRows::of(&mut commit, keys, seq, before.head);
    let vaults = vaults_of(&commit.vaults);
    let Commit { at_ms, rows, vaults: VaultRows { meta, heads, values }, .. } = commit;
    // What other hosts keep in memory: the header, records, and rows of vaults, which have the key of the
    // head as their topic.
    let is_kept = |key: &&Vec<u8>| *key == rows::HEADER || RecordId::of_row_key(key).is_some();
    let vaults = vaults.into_iter().map(head_key);
    let topics: Vec<Vec<u8>> = rows.keys().filter(is_kept).cloned().chain(vaults).chain(more).collect();
    let changes_kept = !topics.is_empty();
    let mut tables: BTreeMap<Table, TableChanges> = BTreeMap::new();
    let rows = rows.into_iter().map(|change| (Keyspace::Keys, change));
    for (keyspace, (key, row)) in rows.chain(heads.into_iter().map(|change| (Keyspace::Meta, change))) {
        let changes = tables.entry(Table::of(keyspace, &key).ok_or(Error::Damaged)?).or_default();
        match row {
            Some(row) => changes.put.push((key, row)),
            None => changes.delete.push(key),
        }
    }
    let mut statements = Vec::new();
    // Records come first: the slots of vaults are those of their owners.
    if let Some(changes) = tables.remove(&Table::Directory) {
        put_records(&mut statements, keys, changes)?;
    }
    for (table, changes) in tables {
        put_rows(&mut statements, table, changes);
    }
    put_secrets(&mut statements, meta, values)?;
    put_log(&mut statements, chain, seq, day(at_ms), log.audit, log.usage);
    let end = ChainEnd { seq, head: log.head };
    advance(&mut statements, chain, end, topics);
    Ok(Written { statements, end, changes_kept })
}

pub(super) fn put_records(
    statements: &mut Vec<Statement>,
    keys: &StoreKeys,
    changes: TableChanges,
) -> Result<(), Error> {
    let TableChanges { put, delete } = changes;
    // Deleted first: another record may take the name in the same commit.
    delete_rows(statements, "directory", delete);
    if put.is_empty() {
        return Ok(());
    }
    let mut all = Vec::new();
    for (key, row) in &put {
        let record = RecordId::of_row_key(key).and_then(|id| id.decode(keys, row));
        all.push(Columns::of(&record.ok_or(Error::Damaged)?));
    }
    let (row_keys, bodies): (Vec<_>, Vec<_>) = put.into_iter().unzip();
    let sql = "INSERT INTO directory (k, slot, ws, kind, name, owner, made_ms, body) \
               SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8) \
               ON CONFLICT (k) DO UPDATE SET slot = excluded.slot, ws = excluded.ws, kind = excluded.kind, \
               name = excluded.name, owner = excluded.owner, made_ms = excluded.made_ms, body = excluded.body";
    statements.push(
        Statement::new(sql)
            .with(row_keys, Type::BYTEA_ARRAY)
            .with(all.iter().map(|it| it.slot).collect::<Vec<i16>>(), Type::INT2_ARRAY)
            .with(all.iter().map(|it| it.workspace.clone()).collect::<Vec<_>>(), Type::BYTEA_ARRAY)
            .with(all.iter().map(|it| it.kind).collect::<Vec<i16>>(), Type::INT2_ARRAY)
            .with(all.iter().map(|it| it.name.clone()).collect::<Vec<_>>(), Type::TEXT_ARRAY)
            .with(all.iter().map(|it| it.owner.clone()).collect::<Vec<_>>(), Type::BYTEA_ARRAY)
            .with(all.iter().map(|it| it.made_ms).collect::<Vec<i64>>(), Type::INT8_ARRAY)
            .with(bodies, Type::BYTEA_ARRAY),
    );
    Ok(())
}

pub(super) fn put_rows(statements: &mut Vec<Statement>, table: Table, changes: TableChanges) {
    let TableChanges { put, delete } = changes;
    delete_rows(statements, table.name(), delete);
    if put.is_empty() {
        return;
    }
    let (keys, bodies): (Vec<_>, Vec<_>) = put.into_iter().unzip();
    let name = table.name();
    statements.push(match table {
        Table::Head | Table::KeyRecord => {
            let owners: Vec<Vec<u8>> = keys.iter().map(|key| place::vault_owner(key)).collect();
            Statement::new(format!(
                "INSERT INTO {name} (k, slot, body) SELECT u.k, coalesce(d.slot, 0), u.body \
                 FROM unnest($1, $2, $3) AS u (k, body, owner) LEFT JOIN directory d ON d.k = u.owner \
                 ON CONFLICT (k) DO UPDATE SET slot = excluded.slot, body = excluded.body"
            ))
            .with(keys, Type::BYTEA_ARRAY)
            .with(bodies, Type::BYTEA_ARRAY)
            .with(owners, Type::BYTEA_ARRAY)
        }
        _ => Statement::new(format!(
            "INSERT INTO {name} (k, body) SELECT * FROM unnest($1, $2) \
             ON CONFLICT (k) DO UPDATE SET body = excluded.body"
        ))
        .with(keys, Type::BYTEA_ARRAY)
        .with(bodies, Type::BYTEA_ARRAY),
    });
}

fn delete_rows(statements: &mut Vec<Statement>, table: &str, keys: Vec<Vec<u8>>) {
    if !keys.is_empty() {
        let sql = format!("DELETE FROM {table} WHERE k = ANY($1)");
        statements.push(Statement::new(sql).with(keys, Type::BYTEA_ARRAY));
    }
}

/// A change of each of the two rows of a secret; `None` leaves the row as it is.
type SecretChange = (Option<Option<Vec<u8>>>, Option<Option<Vec<u8>>>);

pub(super) fn put_secrets(
    statements: &mut Vec<Statement>,
    meta: Vec<RowChange>,
    values: Vec<RowChange>,
) -> Result<(), Error> {
    let mut changes: BTreeMap<Vec<u8>, SecretChange> = BTreeMap::new();
    for (key, row) in meta {
        Table::of(Keyspace::Meta, &key).ok_or(Error::Damaged)?;
        changes.entry(key).or_default().0 = Some(row);
    }
    for (key, value) in values {
        Table::of(Keyspace::Values, &key).ok_or(Error::Damaged)?;
        changes.entry(key).or_default().1 = Some(value);
    }
    let (mut deleted, mut whole) = (Vec::new(), Vec::new());
    let (mut rows_only, mut values_only) = (Vec::new(), Vec::new());
    for (key, change) in changes {
        match change {
            (Some(None), Some(None)) => deleted.push(key),
            (Some(row), Some(value)) => whole.push((key, row, value)),
            (Some(row), None) => rows_only.push((key, row, None)),
            (None, value) => values_only.push((key, None, value.flatten())),
        }
    }
    let all = whole.iter().chain(&rows_only).chain(&values_only);
    let halves = all.filter(|(_, row, value)| row.is_none() || value.is_none());
    let halves: Vec<Vec<u8>> = halves.map(|(key, ..)| key.clone()).collect();
    delete_rows(statements, "secret", deleted);
    upsert_secrets(statements, whole, "meta = excluded.meta, value = excluded.value");
    upsert_secrets(statements, rows_only, "meta = excluded.meta");
    upsert_secrets(statements, values_only, "value = excluded.value");
    drop_empty(statements, halves);
    Ok(())
}

/// Row key, row and encrypted value of secrets.
type SecretRows = Vec<(Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>)>;

fn upsert_secrets(statements: &mut Vec<Statement>, secrets: SecretRows, changes: &str) {
    if secrets.is_empty() {
        return;
    }
    let owners: Vec<Vec<u8>> = secrets.iter().map(|(key, ..)| place::vault_owner(key)).collect();
    let (mut keys, mut rows, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for (key, row, value) in secrets {
        keys.push(key);
        rows.push(row);
        values.push(value);
    }
    let sql = format!(
        "INSERT INTO secret (k, slot, meta, value) SELECT u.k, coalesce(d.slot, 0), u.meta, u.value \
         FROM unnest($1, $2, $3, $4) AS u (k, owner, meta, value) LEFT JOIN directory d ON d.k = u.owner \
         ON CONFLICT (k) DO UPDATE SET slot = excluded.slot, {changes}"
    );
    statements.push(
        Statement::new(sql)
            .with(keys, Type::BYTEA_ARRAY)
            .with(owners, Type::BYTEA_ARRAY)
            .with(rows, Type::BYTEA_ARRAY)
            .with(values, Type::BYTEA_ARRAY),
    );
}

/// Deletes the rows that have neither of their two parts any more.
fn drop_empty(statements: &mut Vec<Statement>, keys: Vec<Vec<u8>>) {
    if !keys.is_empty() {
        let sql = "DELETE FROM secret WHERE k = ANY($1) AND meta IS NULL AND value IS NULL";
        statements.push(Statement::new(sql).with(keys, Type::BYTEA_ARRAY));
    }
}

fn put_log(
    statements: &mut Vec<Statement>,
    chain: ChainId,
    seq: u64,
    day: i32,
    audit: Vec<u8>,
    usage: Vec<Vec<u8>>,
) {
    let position = position();
    let sql =
        format!("INSERT INTO audit (day, chain, seq, position, body) VALUES ($1, $2, $3, {position}, $4)");
    statements.push(of_commit(sql, chain, seq, day).with(audit, Type::BYTEA));
    if !usage.is_empty() {
        let sql = format!(
            "INSERT INTO usage (day, chain, seq, part, position, body) \
             SELECT $1, $2, $3, (part - 1)::integer, {position}, body \
             FROM unnest($4) WITH ORDINALITY AS u (body, part)"
        );
        statements.push(of_commit(sql, chain, seq, day).with(usage, Type::BYTEA_ARRAY));
    }
}

/// A statement whose first parameters are the day, the chain and the number of a commit.
fn of_commit(sql: String, chain: ChainId, seq: u64, day: i32) -> Statement {
    let statement = Statement::new(sql).with(day, Type::INT4).with(chain.0.to_vec(), Type::BYTEA);
    statement.with(number(seq), Type::INT8)
}

/// Moves the chain to its new end and lists what changed.
fn advance(statements: &mut Vec<Statement>, chain: ChainId, end: ChainEnd, topics: Vec<Vec<u8>>) {
    let changed = !topics.is_empty();
    if changed {
        let sql = "INSERT INTO change (chain, seq, n, topic) \
                   SELECT $1, $2, (n - 1)::integer, topic FROM unnest($3) WITH ORDINALITY AS u (topic, n)";
        statements.push(
            Statement::new(sql)
                .with(chain.0.to_vec(), Type::BYTEA)
                .with(number(end.seq), Type::INT8)
                .with(topics, Type::BYTEA_ARRAY),
        );
    }
    let sql =
        "UPDATE chain SET seq = $2, head = $3, changed = CASE WHEN $4 THEN $2 ELSE changed END WHERE id = $1";
    statements.push(
        Statement::new(sql)
            .with(chain.0.to_vec(), Type::BYTEA)
            .with(number(end.seq), Type::INT8)
            .with(end.head.to_vec(), Type::BYTEA)
            .with(changed, Type::BOOL),
    );
}

/// The day of a commit, counted from 1970-01-01.
pub(super) fn day(at_ms: u64) -> i32 {
    i32::try_from(at_ms / DAY_MS).unwrap_or(i32::MAX)
}

/// A number of a commit as the database has it.
pub(super) fn number(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}
