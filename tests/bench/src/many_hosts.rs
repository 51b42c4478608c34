//! `many-hosts`: what one database does for many hosts. The hosts are stores in this process: they settle requests that
//! no provider was asked for, so a small machine shows the work of the database for more requests than it could serve.
//!
//! The database is a primary whose commits wait for a standby. What it does for the hosts without load is measured
//! first.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use cofferdam_store::{
    Actor, Clock, Database, DatabaseUrl, KeyId, KeyOwner, LedgerMode, NewKey, NewWorkspace, OpenOptions,
    RootKeySource, Secret, SpendLimits, Store, UsageKind, UsageOutcome, UsageRow, WorkspaceId,
};
use cofferdam_test_postgres::{Options, Pair};

use crate::primary::{Meter, Work};
use crate::table::{Rows, Table};

#[derive(clap::Args)]
pub(crate) struct ManyHostsOptions {
    /// Hosts of the store
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=200))]
    hosts: u16,
    /// Requests a second of all hosts together; several times for several loads
    #[arg(long = "requests", default_values_t = [1_000, 5_000, 20_000], value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    loads: Vec<u32>,
    /// How long each load lasts, in seconds
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..=600))]
    secs: u16,
    /// Workspaces that the requests are of
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    workspaces: u16,
}

/// How often each host settles what has come since.
const TICK: Duration = Duration::from_millis(10);

/// The hosts of a store, and whose requests they settle.
struct Hosts {
    stores: Vec<Store>,
    keys: Vec<(WorkspaceId, KeyId)>,
}

pub(crate) async fn run(options: &ManyHostsOptions) -> anyhow::Result<()> {
    if !cofferdam_test_postgres::installed() {
        bail!("PostgreSQL is not installed");
    }
    let connections = (u32::from(options.hosts) * 14 + 20).to_string();
    let pair = Options::new().setting("max_connections", &connections).start_pair()?;
    let folder = tempfile::Builder::new().prefix("cofferdam-bench-").tempdir()?;
    // Stores block the thread of their caller, which is not to be one of the runtime.
    let hosts = std::thread::scope(|scope| {
        let opened = scope.spawn(|| Hosts::open(options, &pair, folder.path()));
        opened.join().unwrap_or_else(|_| Err(anyhow!("opening the stores failed")))
    })?;
    let during = Duration::from_secs(u64::from(options.secs));
    let meter = Meter::new(&pair, during).await?;
    let mut rows = Rows::of(1);
    let mut add = |load: u32, name: &str, unit: &'static str, value: f64| {
        rows.add(format!("{load} requests a second: {name}"), unit, 0, value);
    };
    add(0, "processor time of the primary", "ms a second", meter.idle().cpu_nanoseconds / 1e6);
    add(0, "transactions", "a second", meter.idle().transactions);
    for load in &options.loads {
        let before = meter.read()?;
        let settled = hosts.settle(*load, during)?;
        // Usage rows are committed within a quarter of a second.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let Work { cpu_nanoseconds, transactions, wal_bytes, seconds } = meter.all_since(&before)?;
        add(*load, "settled", "a second", settled as f64 / seconds);
        add(*load, "processor time of the primary", "ms a second", cpu_nanoseconds / 1e6 / seconds);
        add(*load, "transactions", "a second", transactions / seconds);
        add(*load, "WAL", "MB a second", wal_bytes / 1e6 / seconds);
        add(*load, "processor time of the primary", "us a request", cpu_nanoseconds / 1e3 / settled as f64);
        eprintln!("{load} requests a second done");
    }
    let servers = vec![format!("{} hosts", options.hosts)];
    Table { servers, has_proxy: false, rows: rows.rows }.publish(None)?;
    std::thread::scope(|scope| scope.spawn(|| drop(hosts)).join()).map_err(|_| anyhow!("closing failed"))
}

impl Hosts {
    fn open(options: &ManyHostsOptions, pair: &Pair, folder: &Path) -> anyhow::Result<Self> {
        let database = pair.primary.database("many")?;
        let url = format!("postgres://{}@127.0.0.1:{}/{}", database.user, database.port, database.name);
        let url: DatabaseUrl = url.parse()?;
        let password = Secret::new(database.password.into_bytes());
        let opening = OpenOptions {
            root_key: RootKeySource::File(folder.join("root.key")),
            previous_root_key: None,
            accept_rollback: None,
            clock: Clock::system(),
        };
        let database = Database::new(&url, Some(&password), &[])?.with_ledger(LedgerMode::Leased);
        drop(Store::create_in(&database, &opening)?);
        let mut stores = Vec::new();
        for number in 0..options.hosts {
            let witness = folder.join(format!("witness-{number}"));
            stores.push(Store::open_in(&database.clone().with_witness(witness), &opening)?);
        }
        let first = stores.first().context("no host")?;
        let mut keys = Vec::new();
        for number in 0..options.workspaces {
            let name = format!("w{number}").parse()?;
            let new = NewWorkspace { name, programme: true, vault_writes: true };
            let workspace = first.create_workspace(Actor::Operator, new)?.id;
            let owner = KeyOwner::Member { workspace, member: None };
            let new = NewKey { owner, name: None, expires_at_ms: None, limits: SpendLimits::default() };
            keys.push((workspace, first.issue_key(Actor::Operator, new)?.key.id));
        }
        Ok(Self { stores, keys })
    }

    /// Settles so many requests a second, evenly on all hosts and of all workspaces, for so long. Returns how many.
    fn settle(&self, load: u32, during: Duration) -> anyhow::Result<u64> {
        let settled = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let working = scope.spawn(|| self.settle_here(load, during, &settled));
            working.join().unwrap_or_else(|_| Err(anyhow!("settling failed")))
        })?;
        Ok(settled.into_inner())
    }

    fn settle_here(&self, load: u32, during: Duration, settled: &AtomicU64) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let begun = Instant::now();
        let turns = self.stores.iter().cycle().zip(self.keys.iter().cycle());
        let mut turns = turns.enumerate();
        while begun.elapsed() < during {
            let due = begun.elapsed().as_secs_f64() * f64::from(load);
            while (settled.load(Ordering::Relaxed) as f64) < due {
                let (number, (store, (workspace, key))) = turns.next().context("no host")?;
                runtime.block_on(settle_one(store, *workspace, *key, number))?;
                settled.fetch_add(1, Ordering::Relaxed);
            }
            runtime.block_on(async { tokio::time::sleep(TICK).await });
        }
        Ok(())
    }
}

async fn settle_one(store: &Store, workspace: WorkspaceId, key: KeyId, number: usize) -> anyhow::Result<()> {
    let id = format!("resp_{number:032x}");
    let request = store.reserve(UsageRow::begun(id, workspace, key, UsageKind::Responses, false)).await?;
    request.note(|row| {
        "bench/whole".clone_into(&mut row.model);
        "whole-0".clone_into(&mut row.provider);
        (row.input_tokens, row.output_tokens, row.cost_pico, row.attempts) = (300, 200, 700_000_000, 1);
    });
    request.settle(UsageOutcome::Completed);
    Ok(())
}
