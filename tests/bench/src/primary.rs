//! What the primary of a store does: processor time, transactions and WAL.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use cofferdam_test_postgres::Pair;
use tokio::time::sleep;

use crate::process::ThreadTimes;

/// Until usage rows are committed and the server has counted what it did.
pub(crate) const SETTLING: Duration = Duration::from_millis(1500);

/// What the primary has done since its start.
pub(crate) struct Reading {
    wal_bytes: f64,
    transactions: f64,
    times: ThreadTimes,
    at: Instant,
}

/// What the primary did in some time.
#[derive(Clone, Copy, Default)]
pub(crate) struct Work {
    pub(crate) wal_bytes: f64,
    pub(crate) transactions: f64,
    pub(crate) cpu_nanoseconds: f64,
    pub(crate) seconds: f64,
}

pub(crate) struct Meter<'p> {
    pair: &'p Pair,
    /// In one second without load.
    idle: Work,
}

impl<'p> Meter<'p> {
    pub(crate) async fn new(pair: &'p Pair, during: Duration) -> anyhow::Result<Self> {
        let mut meter = Meter { pair, idle: Work::default() };
        sleep(SETTLING).await;
        let before = meter.read()?;
        sleep(during).await;
        let work = meter.all_since(&before)?;
        let each = |sum: f64| sum / work.seconds;
        meter.idle = Work {
            wal_bytes: each(work.wal_bytes),
            transactions: each(work.transactions),
            cpu_nanoseconds: each(work.cpu_nanoseconds),
            seconds: 1.0,
        };
        Ok(meter)
    }

    /// What it does for the hosts without load, in one second.
    pub(crate) fn idle(&self) -> Work {
        self.idle
    }

    pub(crate) fn read(&self) -> anyhow::Result<Reading> {
        let wal = self.figure("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint")?;
        let transactions =
            self.figure("SELECT sum(xact_commit + xact_rollback)::bigint FROM pg_stat_database")?;
        let times = ThreadTimes::of_children(self.pair.primary.pid()?)?;
        Ok(Reading { wal_bytes: wal, transactions, times, at: Instant::now() })
    }

    /// Connections that a database has now.
    pub(crate) fn connections(&self, database: &str) -> anyhow::Result<f64> {
        self.figure(&format!("SELECT numbackends FROM pg_stat_database WHERE datname = '{database}'"))
    }

    fn figure(&self, sql: &str) -> anyhow::Result<f64> {
        let rows = self.pair.primary.query(sql)?;
        let text = rows.first().and_then(|row| row.first()?.as_deref()).context("no figure")?;
        Ok(text.parse()?)
    }

    /// What it did beyond what it does without load.
    pub(crate) fn since(&self, before: &Reading) -> anyhow::Result<Work> {
        let Work { wal_bytes, transactions, cpu_nanoseconds, seconds } = self.all_since(before)?;
        let beyond = |sum: f64, idle: f64| (sum - idle * seconds).max(0.0);
        Ok(Work {
            wal_bytes: beyond(wal_bytes, self.idle.wal_bytes),
            transactions: beyond(transactions, self.idle.transactions),
            cpu_nanoseconds: beyond(cpu_nanoseconds, self.idle.cpu_nanoseconds),
            seconds,
        })
    }

    /// All that it did.
    pub(crate) fn all_since(&self, before: &Reading) -> anyhow::Result<Work> {
        let now = self.read()?;
        Ok(Work {
            wal_bytes: now.wal_bytes - before.wal_bytes,
            transactions: now.transactions - before.transactions,
            cpu_nanoseconds: now.times.since(&before.times) as f64,
            seconds: now.at.duration_since(before.at).as_secs_f64(),
        })
    }
}
