//! The tables, and the migrations that make them.
//!
//! Each migration adds to the schema and is one transaction, under the lock of the row that has the
//! number of the last one. Any number of hosts may run them at the same time.

use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::error::SqlState;

use super::connect::Session;
use super::failure::Failure;
use super::transaction::{bounded, rollback};

/// The migrations, the first one first. A migration that was released is never changed.
const MIGRATIONS: [&str; 2] = [include_str!("schema/1.sql"), include_str!("schema/2.sql")];
/// How long one migration may take.
const MIGRATION_PATIENCE: Duration = Duration::from_secs(600);
/// How often a migration that another one is in the way of is tried.
const TRIES: usize = 10;

/// What hosts that create the same things at the same time get, besides conflicts of transactions.
const IN_THE_WAY: [SqlState; 3] =
    [SqlState::LOCK_NOT_AVAILABLE, SqlState::DUPLICATE_TABLE, SqlState::DUPLICATE_OBJECT];

/// The table that the number of the schema is in. Of two hosts that create it at the same time, one can
/// get a violation of uniqueness in spite of `IF NOT EXISTS`; it tries again.
const FIRST: &str = "CREATE TABLE IF NOT EXISTS store (k bytea PRIMARY KEY, body bytea NOT NULL)";
/// The row with the number, as text. It is no row of the store.
pub(super) const SCHEMA_ROW: &str = "'schema'::bytea";

/// Locks the row of the number and returns it.
const LOCK: &str = "BEGIN;
    SET LOCAL lock_timeout = 2000;
    SET LOCAL synchronous_commit = on;
    INSERT INTO store (k, body) VALUES ('schema'::bytea, '0'::bytea) ON CONFLICT (k) DO NOTHING;
    SELECT convert_from(body, 'UTF8') FROM store WHERE k = 'schema'::bytea FOR UPDATE";

/// Brings the schema to the newest number.
pub(crate) async fn migrate(session: &Session) -> Result<(), Failure> {
    repeatedly(session, async || session.script(FIRST).await.map(drop)).await?;
    for (number, migration) in (1..).zip(MIGRATIONS) {
        repeatedly(session, async || step(session, number, migration).await).await?;
    }
    check(session).await
}

/// Makes a migration, unless it was made before.
async fn step(session: &Session, number: u32, migration: &str) -> Result<(), Failure> {
    let is_made = number_in(&session.script(LOCK).await?)? >= number;
    if is_made {
        session.script("ROLLBACK").await?;
    } else {
        let number = format!("UPDATE store SET body = '{number}'::bytea WHERE k = {SCHEMA_ROW}");
        session.script(&format!("{migration};{number};COMMIT")).await?;
    }
    Ok(())
}

/// The number in the answer of the server; 0 where it has none.
fn number_in(rows: &[Vec<Option<String>>]) -> Result<u32, Failure> {
    let Some(number) = rows.first().and_then(|row| row.first()?.as_deref()) else { return Ok(0) };
    number.parse().map_err(|_| Failure::Unexpected("the number of the schema"))
}

async fn repeatedly(session: &Session, run: impl AsyncFn() -> Result<(), Failure>) -> Result<(), Failure> {
    let mut tries = 1;
    loop {
        let ended = timeout(MIGRATION_PATIENCE, run()).await;
        let failure = match ended.unwrap_or(Err(Failure::Silent(MIGRATION_PATIENCE))) {
            Ok(()) => return Ok(()),
            Err(failure) => failure,
        };
        let is_in_the_way = match &failure {
            Failure::Refused { code, .. } => failure.is_conflict() || IN_THE_WAY.contains(code),
            _ => false,
        };
        if !is_in_the_way || tries == TRIES {
            return Err(failure);
        }
        tries += 1;
        rollback(session).await?;
    }
}

/// Checks that the schema is the newest that this program knows.
///
/// # Errors
/// [`Failure::OtherSchema`], and those of the connection.
pub(crate) async fn check(session: &Session) -> Result<(), Failure> {
    let known = MIGRATIONS.len() as u32;
    let sql = format!("SELECT convert_from(body, 'UTF8') FROM store WHERE k = {SCHEMA_ROW}");
    let rows = match bounded(session.script(&sql)).await {
        Err(Failure::Refused { code, .. }) if code == SqlState::UNDEFINED_TABLE => Vec::new(),
        rows => rows?,
    };
    match number_in(&rows)? {
        found if found == known => Ok(()),
        found => Err(Failure::OtherSchema { found, known }),
    }
}
