//! The tables, and the migrations that make them.
//!
//! Each migration adds to the schema and is one transaction, under the lock of the row that has the
//! number of the last one. Any number of hosts may run them at the same time.
//!
//! A program serves stores with schemas from [`OLDEST`] to its newest one, and with a later one whose row
//! says that it may. So hosts of two versions serve one store while they are replaced one after the other,
//! and the schema is upgraded afterwards.

use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::error::SqlState;

use super::begin::row;
use super::connect::DatabaseSession;
use super::failure::Failure;
use super::host;
use super::partitions;
use super::transaction::{bounded, rollback};
use crate::hosts::HostFacts;
use crate::rows;
use crate::seal::StoreKeys;

/// The migrations, the first one first. A migration that was released is never changed.
const MIGRATIONS: [&str; 3] =
    [include_str!("schema/1.sql"), include_str!("schema/2.sql"), include_str!("schema/3.sql")];
/// The newest schema that this program knows.
pub(crate) const NEWEST: u32 = MIGRATIONS.len() as u32;
/// The oldest schema that this program can serve a store with.
pub(super) const OLDEST: u32 = 2;
/// The newest schema. Its `min_reader` grows only with a migration that takes something away or gives it
/// another meaning, and where hosts rely on what programs of an earlier schema do not do.
pub(super) const CURRENT: Schema<'static> = Schema { migrations: &MIGRATIONS, min_reader: 3 };
/// From this schema on, every program that serves the store tells other hosts which vaults it changed.
pub(super) const VAULTS_TOLD: u32 = 3;
/// How long one migration may take.
const MIGRATION_PATIENCE: Duration = Duration::from_secs(600);
/// How often a migration that another one is in the way of is tried.
const TRIES: usize = 10;

/// What hosts that create the same things at the same time get, besides conflicts of transactions.
const IN_THE_WAY: [SqlState; 3] =
    [SqlState::LOCK_NOT_AVAILABLE, SqlState::DUPLICATE_TABLE, SqlState::DUPLICATE_OBJECT];

/// The table that the number of the schema is in. Of two hosts that create it at the same time, one can
/// get a violation of uniqueness in spite of `IF NOT EXISTS`; it tries again.
pub(super) const FIRST: &str = "CREATE TABLE IF NOT EXISTS store (k bytea PRIMARY KEY, body bytea NOT NULL)";
/// The row with the number, as text, and after a space [`Schema::min_reader`], where it is a smaller number.
/// It is no row of the store.
pub(super) const SCHEMA_ROW: &str = "'schema'::bytea";

/// Locks the row of the number and returns it.
const LOCK: &str = "BEGIN;
    SET LOCAL lock_timeout = 2000;
    SET LOCAL synchronous_commit = on;
    INSERT INTO store (k, body) VALUES ('schema'::bytea, '0'::bytea) ON CONFLICT (k) DO NOTHING;
    SELECT convert_from(body, 'UTF8') FROM store WHERE k = 'schema'::bytea FOR UPDATE";

/// A schema.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schema<'m> {
    /// The migrations that make it, the first one first.
    pub(super) migrations: &'m [&'m str],
    /// The least [`NEWEST`] of a program that can serve a store with it.
    pub(super) min_reader: u32,
}

/// What the row of the schema says.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct SchemaRow {
    /// Number of the last migration made; 0 for a database without a schema.
    made: u32,
    /// The least [`NEWEST`] of a program that can serve a store with it.
    min_reader: u32,
}

/// The number in the text of the row of the schema.
///
/// # Errors
/// [`Failure::Unexpected`] for another text.
pub(super) fn number_in(text: &str) -> Result<u32, Failure> {
    SchemaRow::read(text).map(|row| row.made)
}

impl SchemaRow {
    /// Reads the answer of the server; zeros where it has no row.
    fn of(rows: &[Vec<Option<String>>]) -> Result<SchemaRow, Failure> {
        match rows.first().and_then(|row| row.first()?.as_deref()) {
            Some(text) => SchemaRow::read(text),
            None => Ok(SchemaRow::default()),
        }
    }

    fn read(text: &str) -> Result<SchemaRow, Failure> {
        const UNEXPECTED: Failure = Failure::Unexpected("the number of the schema");
        let (made, min_reader) = text.split_once(' ').unwrap_or((text, text));
        let number = |text: &str| text.parse().map_err(|_| UNEXPECTED);
        Ok(SchemaRow { made: number(made)?, min_reader: number(min_reader)? })
    }

    fn text(self) -> String {
        let SchemaRow { made, min_reader } = self;
        if min_reader < made { format!("{made} {min_reader}") } else { made.to_string() }
    }

    /// Whether this program can serve a store with it.
    ///
    /// # Errors
    /// [`Failure::OtherSchema`].
    fn check(self) -> Result<u32, Failure> {
        let SchemaRow { made, min_reader } = self;
        if (OLDEST..=NEWEST).contains(&made) || made > NEWEST && min_reader <= NEWEST {
            Ok(made)
        } else {
            Err(Failure::OtherSchema { found: made, known: NEWEST })
        }
    }
}

/// Brings the schema of a database without a store to the newest number, and makes the first partitions. Where there is a store, hosts of
/// an earlier version may serve it, and its schema is left as it is: see [`upgrade`].
///
/// # Errors
/// [`Failure::OtherSchema`], and those of the connection.
pub(crate) async fn migrate(session: &DatabaseSession) -> Result<(), Failure> {
    repeatedly(session, async || session.script(FIRST).await.map(drop)).await?;
    if row(session, rows::HEADER).await?.is_none() {
        repeatedly(session, async || make_up_to(session, NEWEST).await).await?;
        partitions::make(session).await?;
    }
    check(session).await.map(drop)
}

/// Makes the migrations up to this number that were not made before.
pub(super) async fn make_up_to(session: &DatabaseSession, last: u32) -> Result<(), Failure> {
    for (number, migration) in (1..=last).zip(MIGRATIONS) {
        if SchemaRow::of(&session.script(LOCK).await?)?.made < number {
            make(session, number, migration, CURRENT.min_reader).await?;
        } else {
            session.script("ROLLBACK").await?;
        }
    }
    Ok(())
}

/// Makes a migration within the transaction that has locked the row of the schema, and commits it.
async fn make(session: &DatabaseSession, made: u32, migration: &str, min_reader: u32) -> Result<(), Failure> {
    let text = SchemaRow { made, min_reader }.text();
    let number = format!("UPDATE store SET body = '{text}'::bytea WHERE k = {SCHEMA_ROW}");
    session.script(&format!("{migration};{number};COMMIT")).await.map(drop)
}

async fn repeatedly<T>(
    session: &DatabaseSession,
    run: impl AsyncFn() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut tries = 1;
    loop {
        let ended = timeout(MIGRATION_PATIENCE, run()).await;
        let failure = match ended.unwrap_or(Err(Failure::Silent(MIGRATION_PATIENCE))) {
            Ok(done) => return Ok(done),
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

/// Checks that this program can serve a store with the schema of the database. Returns its number.
///
/// # Errors
/// [`Failure::OtherSchema`], and those of the connection.
pub(crate) async fn check(session: &DatabaseSession) -> Result<u32, Failure> {
    found(session).await?.check()
}

async fn found(session: &DatabaseSession) -> Result<SchemaRow, Failure> {
    let sql = format!("SELECT convert_from(body, 'UTF8') FROM store WHERE k = {SCHEMA_ROW}");
    match bounded(session.script(&sql)).await {
        Err(Failure::Refused { code, .. }) if code == SqlState::UNDEFINED_TABLE => Ok(SchemaRow::default()),
        rows => SchemaRow::of(&rows?),
    }
}

/// The same within a transaction, which keeps the schema from being upgraded until its end.
///
/// # Errors
/// Those of [`check`].
pub(super) async fn check_and_hold(session: &DatabaseSession) -> Result<u32, Failure> {
    let sql = format!("SELECT convert_from(body, 'UTF8') FROM store WHERE k = {SCHEMA_ROW} FOR SHARE");
    SchemaRow::of(&bounded(session.script(&sql)).await?)?.check()
}

/// How an upgrade ended.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Upgrade {
    /// The schema has the newest number; it had the first one before.
    Done { from: u32, to: u32 },
    /// These hosts cannot serve a store with the newest schema. Migrations before the first that they
    /// cannot do without were not made either.
    OlderHosts(Vec<String>),
}

/// Makes the migrations that the schema of a store lacks, each in one transaction, unless there is a host
/// that could not serve the store after it. A host that begins waits for the transaction.
///
/// # Errors
/// [`Failure::OtherSchema`], and those of the connection.
pub(crate) async fn upgrade(
    session: &DatabaseSession,
    keys: &StoreKeys,
    to: &Schema<'_>,
) -> Result<Upgrade, Failure> {
    let from = check(session).await?;
    for (number, migration) in (1..).zip(to.migrations) {
        let older = repeatedly(session, async || {
            let is_made = SchemaRow::of(&session.script(LOCK).await?)?.made >= number;
            let older = if is_made { Vec::new() } else { older_hosts(session, keys, to.min_reader).await? };
            if is_made || !older.is_empty() {
                session.script("ROLLBACK").await?;
            } else {
                make(session, number, migration, to.min_reader).await?;
            }
            Ok(older)
        });
        let older = older.await?;
        if !older.is_empty() {
            return Ok(Upgrade::OlderHosts(older));
        }
    }
    Ok(Upgrade::Done { from, to: found(session).await?.made })
}

/// The hosts that know no schema from this number on: machine, process and version of each.
async fn older_hosts(
    session: &DatabaseSession,
    keys: &StoreKeys,
    min_reader: u32,
) -> Result<Vec<String>, Failure> {
    let hosts = bounded(host::facts(session, keys, 0)).await?;
    Ok(hosts.iter().filter(|host| host.schema < min_reader).map(HostFacts::place).collect())
}
