//! The limits that hosts share, in the database.
//!
//! One task for each host asks all buckets that wait, about each 20 ms, in one transaction. Rows are locked in
//! the order of their names, so that hosts do not wait for each other in a circle. The tables are unlogged: a
//! commit waits for no disk and no standby.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::connect::{Database, DatabaseSession};
use super::contact::{CONTACT_MS, Hosts};
use super::failure::Failure;
use super::host::{HostId, ThisHost};
use super::statement::{InFlight, Statement, flight};
use super::transaction::bounded;
use crate::shared_limits::{LimitsQueue, PATIENCE, SeatWrite, SharedLimits, WaitingBucket};

/// Least time between two transactions. What is asked meanwhile is asked together.
const ASKED_EVERY: Duration = Duration::from_millis(20);
/// The most buckets of one transaction, and the most keys with seats.
const BUCKETS_MAX: usize = 512;
/// Pause between two attempts to connect to a database that is away.
const PAUSE: Duration = Duration::from_millis(500);
/// Pause where the tables are missing, because the schema is older.
const NO_TABLE_PAUSE: Duration = Duration::from_secs(10);
/// Time between two warnings.
const WARNED_EVERY: Duration = Duration::from_secs(30);
/// The most rows of buckets that one sweep deletes.
const SWEPT_MAX: usize = 5000;

/// The server ends what takes longer, so that attempts which were given up do not pile up there.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = 500; SET LOCAL synchronous_commit = off";

const MAKE: &str = "INSERT INTO bucket (id, until_ns) SELECT id, 0 FROM unnest($1) AS ask (id) ORDER BY id \
                    ON CONFLICT (id) DO NOTHING";

/// The rule of a bucket: how far use is ahead of the rate after what was used and returned, the units that fit
/// then, and how far it is ahead with these.
const ASK: &str = "
    WITH held AS (
      SELECT id, until_ns FROM bucket WHERE id = ANY($1) ORDER BY id FOR UPDATE
    ), before AS (
      SELECT ask.id, ask.units, ask.unit_ns, ask.burst_ns, moment.now_ns, least(greatest(
          greatest(held.until_ns - moment.now_ns, 0) + ask.used_ns - ask.unused_ns, 0), ask.most_ns) AS ahead_ns
      FROM unnest($1, $2, $3, $4, $5, $6, $7)
        AS ask (id, used_ns, unused_ns, units, unit_ns, burst_ns, most_ns)
      JOIN held ON held.id = ask.id
      CROSS JOIN (SELECT (extract(epoch FROM statement_timestamp()) * 1000000)::bigint * 1000) AS moment (now_ns)
    ), after AS (
      SELECT id, unit_ns, now_ns, ahead_ns, least(units, greatest((burst_ns - ahead_ns) / unit_ns, 0)) AS granted
      FROM before
    )
    UPDATE bucket SET until_ns = now_ns + ahead_ns + granted * unit_ns
    FROM after WHERE bucket.id = after.id
    RETURNING bucket.id, granted, ahead_ns + granted * unit_ns";

/// Hosts that write seats of the same key do so one after the other, so that each sees what the others hold.
/// Each statement sees what was committed before it began.
const LOCK_SEATS: &str = "
    SELECT pg_advisory_xact_lock(number) FROM (
      SELECT DISTINCT hashtextextended(key, 7) AS number FROM unnest($1) AS ask (key) ORDER BY number
    ) AS ordered";

const WRITE_SEATS: &str = "
    INSERT INTO seat (key, host, taken)
    SELECT ask.key, $2, ask.held + least(ask.units, greatest(ask.most - ask.held - coalesce(others.taken, 0), 0))
    FROM unnest($1, $3, $4, $5) AS ask (key, held, units, most)
    LEFT JOIN LATERAL (
      SELECT sum(seat.taken)::bigint AS taken FROM seat WHERE seat.key = ask.key AND seat.host <> $2
    ) AS others ON true
    ON CONFLICT (key, host) DO UPDATE SET taken = excluded.taken
    RETURNING key, taken, 0::bigint";

/// Starts the task that asks, and the one that counts hosts.
pub(super) fn start(
    runtime: &Handle,
    database: &Arc<Database>,
    host: &Arc<ThisHost>,
    hosts: &watch::Receiver<Hosts>,
) -> SharedLimits {
    let (limits, queue) = SharedLimits::new(runtime.clone());
    runtime.spawn(count_hosts(hosts.clone(), Arc::clone(host), Arc::clone(&queue)));
    let (database, host) = (Arc::clone(database), Arc::clone(host));
    runtime.spawn(LimitsTask { database, host, queue, session: None, wrote_as: None, warned: None }.run());
    limits
}

/// The task that asks.
struct LimitsTask {
    database: Arc<Database>,
    host: Arc<ThisHost>,
    queue: Arc<LimitsQueue>,
    session: Option<DatabaseSession>,
    /// The host under which seats were written last.
    wrote_as: Option<HostId>,
    warned: Option<Instant>,
}

impl LimitsTask {
    /// Runs until the runtime ends.
    async fn run(mut self) {
        loop {
            self.queue.until_any().await;
            let began = Instant::now();
            if let Err(failure) = self.ask().await {
                self.queue.set_away(true);
                self.session = None;
                self.warn(&failure);
                self.come_back(&failure).await;
                self.queue.set_away(false);
            }
            sleep_until(began + ASKED_EVERY).await;
        }
    }

    /// Asks what waits, and gives the answers.
    async fn ask(&mut self) -> Result<(), Failure> {
        let is_usable =
            |session: &DatabaseSession| self.database.is_current(session) && !session.client.is_closed();
        let session = match self.session.take().filter(is_usable) {
            Some(session) => session,
            None => within(PATIENCE, self.connect()).await?,
        };
        let session = self.session.insert(session);
        let id = self.host.id();
        if self.wrote_as.replace(id).is_some_and(|was| was != id) {
            // The seats of the host that was taken for dead are free.
            self.queue.seats.write_again();
        }
        let (mut buckets, seats) = (self.queue.take(BUCKETS_MAX), self.queue.seats.writes(BUCKETS_MAX));
        let Answers { of_buckets, of_seats } = within(PATIENCE, ask(session, id, &buckets, &seats)).await?;
        for row in of_buckets {
            let (name, granted, ahead_ns) = columns(&row)?;
            let bucket = buckets.remove(&name).ok_or(UNEXPECTED)?;
            self.queue.answer(name, bucket, granted, ahead_ns);
        }
        for row in of_seats {
            let (key, taken, _) = columns(&row)?;
            self.queue.seats.written(&key, *seats.get(&key).ok_or(UNEXPECTED)?, taken);
        }
        Ok(())
    }

    /// Connects, perhaps to a server that has lost what is not in the log.
    async fn connect(&self) -> Result<DatabaseSession, Failure> {
        let session = self.database.connect().await?;
        self.queue.seats.write_again();
        Ok(session)
    }

    /// Waits until the database answers again.
    async fn come_back(&mut self, failure: &Failure) {
        if matches!(failure, Failure::Refused { code, .. } if *code == SqlState::UNDEFINED_TABLE) {
            sleep(NO_TABLE_PAUSE).await;
            return;
        }
        loop {
            sleep(PAUSE).await;
            let Ok(session) = self.connect().await else { continue };
            // A server that takes connections and is slow is away. One that refuses, because its schema is older,
            // has answered.
            let answer = within(PATIENCE, session.script("SELECT FROM bucket LIMIT 1")).await;
            if matches!(answer, Ok(_) | Err(Failure::Refused { .. })) {
                self.session = Some(session);
                return;
            }
        }
    }

    fn warn(&mut self, failure: &Failure) {
        if self.warned.is_none_or(|warned| warned.elapsed() >= WARNED_EVERY) {
            self.warned = Some(Instant::now());
            tracing::warn!(
                %failure,
                "the limits that hosts share are out of reach; this host admits its part of each until the database \
                 answers. If a table is missing, run `cofferdam store upgrade`"
            );
        }
    }
}

async fn within<T>(patience: Duration, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    timeout(patience, work).await.unwrap_or(Err(Failure::Silent(patience)))
}

const UNEXPECTED: Failure = Failure::Unexpected("the question for limits");

/// The columns of an answer: the name, and two numbers.
fn columns(row: &Row) -> Result<(String, u64, u64), Failure> {
    let number = |at| row.try_get::<_, i64>(at).map(i64::unsigned_abs).map_err(|_| UNEXPECTED);
    Ok((row.try_get(0).map_err(|_| UNEXPECTED)?, number(1)?, number(2)?))
}

/// Rows that a transaction returned.
#[derive(Default)]
struct Answers {
    of_buckets: Vec<Row>,
    of_seats: Vec<Row>,
}

/// Numbers for the database, far below the maximum, so that it can add them.
fn numbers(numbers: impl Iterator<Item = u64>) -> Vec<i64> {
    numbers.map(|number| i64::try_from(number).unwrap_or(i64::MAX).min(i64::MAX / 8)).collect()
}

/// Asks for buckets and seats in one transaction and one round trip.
async fn ask(
    session: &DatabaseSession,
    host: HostId,
    buckets: &BTreeMap<String, WaitingBucket>,
    seats: &BTreeMap<String, SeatWrite>,
) -> Result<Answers, Failure> {
    let ids: Vec<String> = buckets.keys().cloned().collect();
    let column = |number: fn(&WaitingBucket) -> u64| numbers(buckets.values().map(number));
    let make = Statement::new(MAKE).with(ids.clone(), Type::TEXT_ARRAY);
    let ask = Statement::new(ASK)
        .with(ids, Type::TEXT_ARRAY)
        .with(column(|bucket| bucket.used_ns), Type::INT8_ARRAY)
        .with(column(|bucket| bucket.unused.saturating_mul(bucket.rate.unit_ns)), Type::INT8_ARRAY)
        .with(column(WaitingBucket::units), Type::INT8_ARRAY)
        .with(column(|bucket| bucket.rate.unit_ns.max(1)), Type::INT8_ARRAY)
        .with(column(|bucket| bucket.rate.burst_ns), Type::INT8_ARRAY)
        .with(column(|bucket| bucket.rate.ahead_ns_max), Type::INT8_ARRAY);
    let keys: Vec<String> = seats.keys().cloned().collect();
    let column = |number: fn(&SeatWrite) -> u64| numbers(seats.values().map(number));
    let lock = Statement::new(LOCK_SEATS).with(keys.clone(), Type::TEXT_ARRAY);
    let write = Statement::new(WRITE_SEATS)
        .with(keys, Type::TEXT_ARRAY)
        .with(host.0.to_vec(), Type::BYTEA)
        .with(column(|seats| seats.held), Type::INT8_ARRAY)
        .with(column(|seats| seats.units), Type::INT8_ARRAY)
        .with(column(|seats| seats.most), Type::INT8_ARRAY);
    let script = async |sql: &'static str| session.script(sql).await.map(|_| Answers::default());
    let rows = async |statement: &Statement| statement.rows(&session.client, usize::MAX, |_| Ok(0)).await;
    let mut statements: Vec<InFlight<'_, Result<Answers, Failure>>> = vec![Box::pin(script(BEGIN))];
    if !buckets.is_empty() {
        statements.push(Box::pin(async { make.execute(&session.client).await.map(|_| Answers::default()) }));
        let asked = async { Ok(Answers { of_buckets: rows(&ask).await?, ..Answers::default() }) };
        statements.push(Box::pin(asked));
    }
    if !seats.is_empty() {
        statements.push(Box::pin(async { rows(&lock).await.map(|_| Answers::default()) }));
        let written = async { Ok(Answers { of_seats: rows(&write).await?, ..Answers::default() }) };
        statements.push(Box::pin(written));
    }
    statements.push(Box::pin(script("COMMIT")));
    let mut found = Answers::default();
    for answers in flight(statements).await {
        let Answers { of_buckets, of_seats } = answers?;
        found.of_buckets.extend(of_buckets);
        found.of_seats.extend(of_seats);
    }
    Ok(found)
}

/// Counts the hosts that serve, whenever they are known anew.
async fn count_hosts(mut hosts: watch::Receiver<Hosts>, host: Arc<ThisHost>, queue: Arc<LimitsQueue>) {
    loop {
        let own = host.id();
        let counts = |known: &&super::contact::KnownHost| {
            // One without contact refuses requests.
            let is_alive = known.since.elapsed() < Duration::from_millis(CONTACT_MS);
            known.row.id == own || (known.row.serves && is_alive)
        };
        let count = hosts.borrow_and_update().rows.iter().filter(counts).count();
        queue.set_hosts(count as u64);
        if hosts.changed().await.is_err() {
            return;
        }
    }
}

/// Deletes buckets whose use is paid off, and seats of hosts that ended.
pub(super) async fn sweep(session: &DatabaseSession) -> Result<(), Failure> {
    let sql = format!(
        "DELETE FROM bucket WHERE id IN ( \
           SELECT id FROM bucket WHERE until_ns < (extract(epoch FROM now()) * 1000000)::bigint * 1000 \
           LIMIT {SWEPT_MAX} FOR UPDATE SKIP LOCKED); \
         DELETE FROM seat WHERE (key, host) IN ( \
           SELECT key, host FROM seat WHERE taken = 0 OR NOT EXISTS (SELECT FROM host WHERE id = seat.host) \
           LIMIT {SWEPT_MAX} FOR UPDATE SKIP LOCKED)"
    );
    // The schema may be older.
    let has_table = bounded(session.script("SELECT WHERE to_regclass('bucket') IS NOT NULL")).await?;
    if !has_table.is_empty() {
        bounded(session.script(&sql)).await?;
    }
    Ok(())
}
