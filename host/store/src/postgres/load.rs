//! Loading what rules look at: one statement for all questions of a group.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use tokio_postgres::types::Type;

use super::connect::DatabaseSession;
use super::failure::Failure;
use super::place::{self, Table};
use super::statement::Statement;
use crate::directory::{NameKey, Record, RecordId};
use crate::loaded::{Answer, Loaded};
use crate::lookup::RecordKind;
use crate::rows::{KEYSPACES, Keyspace};
use crate::seal::StoreKeys;
use crate::state::{KeyedRow, Need, RowRange};

/// Most questions in one statement. Further ones are asked with the next statement.
pub(super) const NEEDS_MAX: usize = 256;
/// Most bytes that the answers to one statement may have.
const BYTES_MAX: usize = 256 * 1024 * 1024;

/// Loads the answers to these questions.
pub(super) async fn load(
    session: &DatabaseSession,
    keys: &StoreKeys,
    needs: &BTreeSet<Need>,
    loaded: &mut Loaded,
) -> Result<(), Failure> {
    let needs: Vec<&Need> = needs.iter().collect();
    for needs in needs.chunks(NEEDS_MAX) {
        let question = Question::of(needs)?;
        let rows = question.statement.rows_prepared(session, BYTES_MAX, length_of).await?;
        question.answer(keys, rows, loaded)?;
    }
    Ok(())
}

fn length_of(row: &tokio_postgres::Row) -> Result<usize, Failure> {
    let lengths = [
        row.try_get::<_, &[u8]>(1).map(<[u8]>::len),
        row.try_get(2).map(|body: Option<&[u8]>| body.map_or(0, <[u8]>::len)),
    ];
    lengths.into_iter().sum::<Result<usize, _>>().map_err(|_| UNEXPECTED)
}

const UNEXPECTED: Failure = Failure::Unexpected("a question for rows");

/// A statement, and what its parts ask.
struct Question {
    statement: Statement,
    parts: Vec<Part>,
}

/// One part of the statement. Its rows have its place in the list as their first column.
enum Part {
    /// Rows or lengths of one table, with the keys that were asked for.
    Rows(Keyspace, BTreeSet<Vec<u8>>),
    Lengths(Keyspace, BTreeSet<Vec<u8>>),
    Range(RowRange),
    /// Names. Each row has the place of the name that it was found by as its third column.
    Named(Vec<NameKey>),
    Owned(RecordKind, RecordId),
}

/// What the rows of a part say: row key, row, and length.
type Found = Vec<(Vec<u8>, Option<Vec<u8>>, Option<i64>)>;

impl Question {
    fn of(needs: &[&Need]) -> Result<Question, Failure> {
        let (mut rows, mut lengths) = (KeysByTable::new(), KeysByTable::new());
        let mut names = BTreeSet::new();
        let mut question = Question { statement: Statement::new(""), parts: Vec::new() };
        for need in needs {
            match need {
                Need::Row(keyspace, key) => add(&mut rows, *keyspace, key)?,
                Need::Length(keyspace, key) => add(&mut lengths, *keyspace, key)?,
                Need::Range(range) => question.range(range)?,
                Need::Named(name) => drop(names.insert(name.clone())),
                Need::Owned(kind, owner) => question.owned(*kind, *owner),
            }
        }
        for (table, (keyspace, keys)) in rows {
            question.keys(table, table.body(), "NULL", &keys);
            question.parts.push(Part::Rows(keyspace, keys));
        }
        for (table, (keyspace, keys)) in lengths {
            question.keys(table, "NULL", &format!("octet_length({})", table.body()), &keys);
            question.parts.push(Part::Lengths(keyspace, keys));
        }
        if !names.is_empty() {
            question.names(names.into_iter().collect());
        }
        Ok(question)
    }

    /// Begins a part.
    fn begin(&mut self, key: &str, body: &str, length: &str) {
        let number = self.parts.len();
        if number > 0 {
            self.statement.push(" UNION ALL ");
        }
        self.statement.push(&format!("(SELECT {number}, {key}, {body}::bytea, {length}::bigint "));
    }

    fn keys(&mut self, table: Table, body: &str, length: &str, keys: &BTreeSet<Vec<u8>>) {
        self.begin("k", body, length);
        let keys: Vec<Vec<u8>> = keys.iter().cloned().collect();
        let keys = self.statement.parameter(keys, Type::BYTEA_ARRAY);
        let (table, is_row) = (table.name(), table.is_row());
        self.statement.push(&format!("FROM {table} WHERE k = ANY(${keys}) AND {is_row})"));
    }

    fn range(&mut self, range: &RowRange) -> Result<(), Failure> {
        let tables = Table::all_of(range.keyspace);
        if tables.is_empty() {
            return Err(no_table(range.keyspace));
        }
        let (start, end) = range.bounds();
        let bound =
            |statement: &mut Statement, bound: Bound<&[u8]>, included: &str, excluded: &str| match bound {
                Bound::Included(key) => {
                    format!(" AND k {included} ${}", statement.parameter(key.to_vec(), Type::BYTEA))
                }
                Bound::Excluded(key) => {
                    format!(" AND k {excluded} ${}", statement.parameter(key.to_vec(), Type::BYTEA))
                }
                Bound::Unbounded => String::new(),
            };
        let mut inside = bound(&mut self.statement, start, ">=", ">");
        inside.push_str(&bound(&mut self.statement, end, "<=", "<"));
        let mut order = " ORDER BY k".to_owned();
        if let Ok(limit) = i64::try_from(range.limit) {
            order.push_str(&format!(" LIMIT ${}", self.statement.parameter(limit, Type::INT8)));
        }
        // Each table has the order and the limit of the whole: else the server reads and sorts all rows of the
        // tables for each page.
        let of_table = |table: &Table| {
            let body = if range.keys_only { "NULL" } else { table.body() };
            let (name, is_row) = (table.name(), table.is_row());
            format!("(SELECT k, {body}::bytea AS body FROM {name} WHERE {is_row}{inside}{order})")
        };
        let tables: Vec<String> = tables.iter().map(of_table).collect();
        self.begin("k", "body", "NULL");
        self.statement.push(&format!("FROM ({}) AS rows{order})", tables.join(" UNION ALL ")));
        self.parts.push(Part::Range(range.clone()));
        Ok(())
    }

    fn names(&mut self, names: Vec<NameKey>) {
        let (mut scopes, mut kinds, mut texts) = (Vec::new(), Vec::new(), Vec::new());
        for (scope, kind, text) in names.iter().map(place::named) {
            scopes.push(scope);
            kinds.push(kind);
            texts.push(text);
        }
        self.begin("d.k", "d.body", "n.place");
        let scopes = self.statement.parameter(scopes, Type::BYTEA_ARRAY);
        let kinds = self.statement.parameter(kinds, Type::INT2_ARRAY);
        let texts = self.statement.parameter(texts, Type::TEXT_ARRAY);
        self.statement.push(&format!(
            "FROM unnest(${scopes}, ${kinds}, ${texts}) WITH ORDINALITY AS n (ws, kind, name, place) \
             JOIN directory d ON d.ws = n.ws AND d.kind = n.kind AND d.name = n.name)"
        ));
        self.parts.push(Part::Named(names));
    }

    fn owned(&mut self, kind: RecordKind, owner: RecordId) {
        self.begin("k", "body", "NULL");
        let (column, value) = match owner {
            RecordId::Workspace(id) => ("ws", place::scope(Some(id))),
            RecordId::Member(_) | RecordId::Intern(_) | RecordId::Key(_) => ("owner", owner.row_key()),
        };
        let value = self.statement.parameter(value, Type::BYTEA);
        let kind_of = match kind {
            RecordKind::Workspace => b'w',
            RecordKind::Member => b'm',
            RecordKind::Intern => b'i',
            RecordKind::Key => b'a',
        };
        let kind_of = self.statement.parameter(i16::from(kind_of), Type::INT2);
        self.statement.push(&format!("FROM directory WHERE {column} = ${value} AND kind = ${kind_of})"));
        self.parts.push(Part::Owned(kind, owner));
    }

    /// Takes the rows of the server as answers.
    fn answer(
        self,
        keys: &StoreKeys,
        rows: Vec<tokio_postgres::Row>,
        loaded: &mut Loaded,
    ) -> Result<(), Failure> {
        let mut found: Vec<Found> = self.parts.iter().map(|_| Vec::new()).collect();
        for row in rows {
            let part: i32 = row.try_get(0).map_err(|_| UNEXPECTED)?;
            let part = usize::try_from(part).ok().and_then(|part| found.get_mut(part)).ok_or(UNEXPECTED)?;
            let key = row.try_get(1).map_err(|_| UNEXPECTED)?;
            let (body, length) = (row.try_get(2), row.try_get(3));
            part.push((key, body.map_err(|_| UNEXPECTED)?, length.map_err(|_| UNEXPECTED)?));
        }
        for (part, found) in self.parts.into_iter().zip(found) {
            part.answer(keys, found, loaded);
        }
        Ok(())
    }
}

/// Keys of rows, with their keyspace, by table.
type KeysByTable = BTreeMap<Table, (Keyspace, BTreeSet<Vec<u8>>)>;

fn add(to: &mut KeysByTable, keyspace: Keyspace, key: &[u8]) -> Result<(), Failure> {
    let table = Table::of(keyspace, key).ok_or_else(|| no_table(keyspace))?;
    to.entry(table).or_insert_with(|| (keyspace, BTreeSet::new())).1.insert(key.to_vec());
    Ok(())
}

fn no_table(keyspace: Keyspace) -> Failure {
    Failure::NoTable(KEYSPACES.get(keyspace as usize).copied().unwrap_or_default())
}

impl Part {
    fn answer(self, keys: &StoreKeys, found: Found, loaded: &mut Loaded) {
        match self {
            Part::Rows(keyspace, asked) => {
                let mut found: BTreeMap<Vec<u8>, Vec<u8>> =
                    found.into_iter().filter_map(|(key, body, _)| Some((key, body?))).collect();
                for key in asked {
                    let row = found.remove(&key).map(Into::into);
                    loaded.put(Need::Row(keyspace, key), Answer::Row(row));
                }
            }
            Part::Lengths(keyspace, asked) => {
                let found: BTreeMap<Vec<u8>, usize> = found
                    .into_iter()
                    .filter_map(|(key, _, length)| Some((key, usize::try_from(length?).ok()?)))
                    .collect();
                for key in asked {
                    let length = found.get(&key).copied();
                    loaded.put(Need::Length(keyspace, key), Answer::Length(length));
                }
            }
            Part::Range(range) => {
                let mut rows: Vec<KeyedRow> = found
                    .into_iter()
                    .map(|(key, body, _)| (key.into(), body.unwrap_or_default().into()))
                    .collect();
                rows.sort_unstable();
                loaded.put(Need::Range(range), Answer::Rows(rows));
            }
            Part::Named(asked) => answer_names(keys, asked, found, loaded),
            Part::Owned(kind, owner) => {
                let ids = found.into_iter().map(|(key, body, _)| {
                    let record = record(keys, &key, body.as_deref(), loaded)?;
                    record.is_owned(kind, owner).then(|| record.id())
                });
                let ids: Option<BTreeSet<RecordId>> = ids.collect();
                let ids = ids.map(|ids| Answer::Ids(ids.into_iter().collect()));
                loaded.put(Need::Owned(kind, owner), ids.unwrap_or_else(damaged));
            }
        }
    }
}

/// The columns that the records were found by must be those of the records. Where they are not, neither
/// the name of the columns nor that of the record has an answer. Other names are not concerned.
fn answer_names(keys: &StoreKeys, asked: Vec<NameKey>, found: Found, loaded: &mut Loaded) {
    let (mut ids, mut is_damaged) = (BTreeMap::new(), BTreeSet::new());
    for (key, body, place) in found {
        // Places begin with 1.
        let place = place.and_then(|place| usize::try_from(place).ok()?.checked_sub(1));
        let by = place.and_then(|place| asked.get(place));
        let record = record(keys, &key, body.as_deref(), loaded);
        let of = record.as_ref().and_then(place::name_of);
        match (by, record) {
            (Some(name), Some(record)) if of.as_ref() == Some(name) => {
                ids.insert(name.clone(), record.id());
            }
            _ => is_damaged.extend(by.cloned().into_iter().chain(of)),
        }
    }
    for name in asked {
        let answer = if is_damaged.contains(&name) { damaged() } else { Answer::Id(ids.get(&name).copied()) };
        loaded.put(Need::Named(name), answer);
    }
}

/// The record of a row of `directory`, which is kept as an answer too; `None` for a row whose MAC
/// does not match.
fn record(keys: &StoreKeys, key: &[u8], body: Option<&[u8]>, loaded: &mut Loaded) -> Option<Record> {
    let record = RecordId::of_row_key(key)?.decode(keys, body?)?;
    loaded.put(Need::Row(Keyspace::Keys, key.to_vec()), Answer::Row(body.map(Into::into)));
    Some(record)
}

fn damaged() -> Answer {
    tracing::error!("a row of the table `directory` is damaged");
    Answer::Damaged
}
