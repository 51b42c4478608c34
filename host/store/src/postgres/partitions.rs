//! Partitions of the log, the tables `audit` and `usage`, by the days of their rows.
//!
//! Usage rows are deleted by whole partitions. Every read of the log opens all partitions of its table, and
//! locks them and their indexes: with one for each day of a year a page takes 45 ms in place of one, and 1,100
//! locks. So a partition of `usage` has a week, and one of `audit`, from which nothing is deleted, four.
//!
//! Rows of days that have no partition are in the default one. The server makes a partition only while the
//! default one has no rows for it, which it looks for while nothing can be read or written there. So partitions
//! are made before their days begin, with a limit of time, and rows of earlier days have a partition of their own.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_postgres::error::SqlState;

use super::connect::DatabaseSession;
use super::failure::Failure;
use super::transaction::{bounded, rollback};

/// The tables, and how many days each of their partitions has.
const TABLES: [(&str, i32); 2] = [("audit", 28), ("usage", 7)];
/// Partitions are there for at least so many days from today on.
const DAYS_AHEAD: i32 = 7;

/// Readers that are under way must end within a second, and the look for rows too. Until then others wait.
pub(super) const BEGIN: &str = "BEGIN;
    SET LOCAL lock_timeout = 1000;
    SET LOCAL statement_timeout = 1000;
    SET LOCAL synchronous_commit = on";

/// Another host has made the same partition.
const IS_THERE: [SqlState; 4] = [
    SqlState::DUPLICATE_TABLE,
    SqlState::DUPLICATE_OBJECT,
    SqlState::UNIQUE_VIOLATION,
    SqlState::INVALID_OBJECT_DEFINITION,
];
/// Something is in the way that passes.
const IN_THE_WAY: [SqlState; 3] =
    [SqlState::LOCK_NOT_AVAILABLE, SqlState::QUERY_CANCELED, SqlState::T_R_DEADLOCK_DETECTED];

/// A partition.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Partition {
    pub(super) name: String,
    /// The first day after its days; `None` for the default partition.
    pub(super) end: Option<i32>,
}

/// Makes the partitions that are missing for today, by the clock of the server, and the days after it.
///
/// # Errors
/// Those of the connection. What only passes is no error: the next call makes the partition.
pub(super) async fn make(session: &DatabaseSession) -> Result<(), Failure> {
    const UNEXPECTED: Failure = Failure::Unexpected("the question for the day");
    let sql = "SELECT floor(extract(epoch FROM now()) / 86400)::integer";
    let rows = bounded(session.script(sql)).await?;
    let today = rows.first().and_then(|row| row.first()?.as_deref()?.parse().ok()).ok_or(UNEXPECTED)?;
    make_from(session, today).await
}

/// The same from this day on, counted from 1970-01-01.
pub(super) async fn make_from(session: &DatabaseSession, today: i32) -> Result<(), Failure> {
    for (table, days) in TABLES {
        let there = all(session, table).await?;
        let first = today - today.rem_euclid(days);
        let mut wanted = Vec::new();
        // Only once: afterwards the default partition may have rows of earlier days.
        if there.iter().all(|partition| partition.end.is_none()) {
            wanted.push((format!("{table}_before"), "MINVALUE".to_owned(), first));
        }
        let starts = (0..).map(|step| first + step * days).take_while(|start| *start <= today + DAYS_AHEAD);
        wanted.extend(starts.map(|start| (format!("{table}_{start}"), start.to_string(), start + days)));
        for (name, from, end) in wanted {
            let is_there = there.iter().any(|partition| partition.name == name);
            if !is_there && !attach(session, table, &name, &from, end).await? {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Makes a partition. False if something is in the way for now.
async fn attach(
    session: &DatabaseSession,
    table: &str,
    name: &str,
    from: &str,
    end: i32,
) -> Result<bool, Failure> {
    // Locks the default partition alone. `CREATE TABLE ... PARTITION OF` would lock the whole table.
    let script = format!(
        "{BEGIN}; CREATE TABLE {name} (LIKE {table} INCLUDING DEFAULTS); \
         ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ({from}) TO ({end}); COMMIT"
    );
    let Err(failure) = bounded(session.script(&script)).await else { return Ok(true) };
    let Failure::Refused { code, message } = &failure else { return Err(failure) };
    let (code, message) = (code.clone(), message.clone());
    rollback(session).await?;
    if code == SqlState::CHECK_VIOLATION {
        tracing::info!(partition = name, "rows of these days are there already, and stay where they are");
        Ok(true)
    } else if IS_THERE.contains(&code) {
        Ok(true)
    } else if IN_THE_WAY.contains(&code) {
        tracing::info!(
            partition = name,
            message,
            "a partition could not be made, because something else held the table; the next attempt is in a day"
        );
        Ok(false)
    } else {
        Err(failure)
    }
}

/// The partitions of a table, in the order of their days.
pub(super) async fn all(session: &DatabaseSession, table: &str) -> Result<Vec<Partition>, Failure> {
    const UNEXPECTED: Failure = Failure::Unexpected("the question for partitions");
    let sql = format!(
        "SELECT c.relname, substring(pg_get_expr(c.relpartbound, c.oid) FROM 'TO \\((-?[0-9]+)\\)')::integer \
         FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid \
         WHERE i.inhparent = '{table}'::regclass ORDER BY 2 NULLS LAST, 1"
    );
    let partition = |row: &Vec<Option<String>>| match row.as_slice() {
        [Some(name), end] => {
            let end = end.as_deref().map(str::parse).transpose().ok()?;
            Some(Partition { name: name.clone(), end })
        }
        _ => None,
    };
    let rows = bounded(session.script(&sql)).await?;
    rows.iter().map(|row| partition(row).ok_or(UNEXPECTED)).collect()
}

/// How often a partition is tried that readers are in the way of.
const DROP_TRIES: usize = if cfg!(test) { 2 } else { 30 };
/// Commits whose rows one statement deletes, about.
const BATCH_COMMITS: i64 = 2000;
/// How long one statement of a drop may take.
const DROP_PATIENCE: Duration = Duration::from_secs(600);

/// Number of usage rows of commits before this day. A value begins with its version and the number of its
/// rows, which has seven bits per byte.
pub(super) async fn usage_before(session: &DatabaseSession, day: i32) -> Result<u64, Failure> {
    const UNEXPECTED: Failure = Failure::Unexpected("the number of usage rows");
    let sql = format!(
        "SELECT coalesce(sum(CASE WHEN get_byte(start, 1) < 128 THEN get_byte(start, 1) \
         ELSE get_byte(start, 1) - 128 + 128 * get_byte(start, 2) END), 0) \
         FROM (SELECT substring(body FROM 1 FOR 3) AS start FROM usage WHERE day < {day}) AS found"
    );
    let rows = patiently(session.script(&sql)).await?;
    rows.first().and_then(|row| row.first()?.as_deref()?.parse().ok()).ok_or(UNEXPECTED)
}

/// Deletes the usage rows of commits before this day: whole partitions, and the other rows in batches. False
/// if readers were in the way; then some rows are left. All rows of a commit are deleted together.
pub(super) async fn drop_usage_before(session: &DatabaseSession, day: i32) -> Result<bool, Failure> {
    for Partition { name, end } in all(session, "usage").await? {
        if end.is_none_or(|end| end > day) {
            delete_before(session, &name, day).await?;
        } else if !drop_whole(session, &name).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn drop_whole(session: &DatabaseSession, name: &str) -> Result<bool, Failure> {
    for attempt in 1..=DROP_TRIES {
        let script = format!(
            "BEGIN; SET LOCAL lock_timeout = 100; SET LOCAL synchronous_commit = on; \
             DROP TABLE IF EXISTS {name}; COMMIT"
        );
        match patiently(session.script(&script)).await {
            Ok(_) => return Ok(true),
            Err(Failure::Refused { code, .. }) if IN_THE_WAY.contains(&code) => rollback(session).await?,
            Err(failure) => return Err(failure),
        }
        // Commits of hosts wait behind this lock, so the next try comes later.
        if attempt < DROP_TRIES {
            sleep(Duration::from_secs(1)).await;
        }
    }
    Ok(false)
}

async fn delete_before(session: &DatabaseSession, name: &str, day: i32) -> Result<(), Failure> {
    const UNEXPECTED: Failure = Failure::Unexpected("a deletion of usage rows");
    let mut last = -1_i64;
    loop {
        let sql = format!(
            "WITH page AS (SELECT max(position) AS last FROM ( \
               SELECT position FROM {name} WHERE day < {day} AND position > {last} ORDER BY position \
               LIMIT {BATCH_COMMITS}) AS commits), \
             gone AS (DELETE FROM {name} AS old USING page WHERE old.day < {day} \
               AND old.position > {last} AND old.position <= page.last) \
             SELECT last FROM page"
        );
        let rows = patiently(session.script(&sql)).await?;
        let [row] = rows.as_slice() else { return Err(UNEXPECTED) };
        let Some(reached) = row.first().and_then(Option::as_deref) else { return Ok(()) };
        last = reached.parse().map_err(|_| UNEXPECTED)?;
    }
}

async fn patiently<T>(trip: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    timeout(DROP_PATIENCE, trip).await.unwrap_or(Err(Failure::Silent(DROP_PATIENCE)))
}
