//! `shared-store`: what a store in PostgreSQL costs beside the embedded one.
//!
//! All servers are up and are loaded in turn. The database is a primary whose commits wait for a standby, on the same
//! machine. What it does without load is measured first and subtracted.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use cofferdam_test_postgres::{Options, Pair};
use tokio::time::sleep;

use crate::client::LoadRequest;
use crate::created::{CreatedStore, Kind, LIMITS, key_of};
use crate::load::{Burst, OpenConnections, percentile};
use crate::primary::{Meter, SETTLING, Work};
use crate::scene::{prompt, responses};
use crate::site::{Build, ModelScript, Program, Site};
use crate::table::{Rows, Table};

#[derive(clap::Args)]
pub(crate) struct SharedStoreOptions {
    /// The build of the program as NAME=PATH
    #[arg(long, default_value = "dist=target/dist/cofferdam")]
    program: Build,
    /// How often all servers are loaded in turn
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    rounds: u16,
    /// How long each load lasts, in seconds
    #[arg(long, default_value_t = 3.0)]
    secs: f64,
    /// Connections of the load on several hosts
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    connections: u16,
    /// Also write the figures to this file
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Hosts of a store in a database.
const HOSTS: usize = 3;
const ACCOUNTS: [&str; 2] = ["unlimited", "prepaid"];

/// Limits that hosts share, and that the load does not meet.
const SHARED_LIMITS: &str = "[limits]\nconcurrent_per_key = 1000\nrequests_per_minute = 10000000\n";
/// The stores in databases.
const KINDS: [Kind<'_>; 3] = [
    Kind { name: "exact", ledger: "exact", limits: LIMITS },
    Kind { name: "leased", ledger: "leased", limits: LIMITS },
    Kind { name: "limited", ledger: "leased", limits: SHARED_LIMITS },
];

/// The hosts of a store.
struct Hosts {
    programs: Vec<Program>,
    /// Its database; `None` for the embedded store.
    database: Option<String>,
    /// A key for each of the accounts.
    keys: [String; 2],
}

pub(crate) async fn run(options: &SharedStoreOptions) -> anyhow::Result<()> {
    if !(0.05..=600.0).contains(&options.secs) {
        bail!("--secs: {} is not between 0.05 and 600", options.secs);
    }
    if !cofferdam_test_postgres::installed() {
        bail!("PostgreSQL is not installed");
    }
    let site = Site::start().await?;
    let pair = Options::new().start_pair()?;
    let mut all = vec![embedded(options, &site).await.context("the embedded store")?];
    for kind in KINDS {
        all.push(in_database(options, &site, &pair, &kind).await.context(kind.name)?);
    }
    let during = Duration::from_secs_f64(options.secs);
    let meter = Meter::new(&pair, during + SETTLING).await?;
    let mut rows = Rows::of(all.len());
    add_idle(&mut rows, &all, &meter);
    for round in 0..options.rounds {
        for (server, hosts) in all.iter().enumerate() {
            let mut measured = Measured { rows: &mut rows, server, meter: &meter, during };
            measured.alone(hosts).await?;
            measured.together(hosts, usize::from(options.connections)).await?;
        }
        eprintln!("round {} of {} done", round + 1, options.rounds);
    }
    let servers = ["embedded", "database, exact", "database, leased", "database, leased, with limits"]
        .map(str::to_owned)
        .to_vec();
    Table { servers, has_proxy: false, rows: rows.rows }.publish(options.json.as_deref())
}

async fn embedded(options: &SharedStoreOptions, site: &Site) -> anyhow::Result<Hosts> {
    let config = site.config(LIMITS, &[ModelScript::new("whole")]);
    let program =
        Program::start(&Build { name: "embedded".to_owned(), ..options.program.clone() }, site, &config)
            .await?;
    let keys = [program.key.clone(), prepaid(&program).await?];
    Ok(Hosts { programs: vec![program], database: None, keys })
}

async fn in_database(
    options: &SharedStoreOptions,
    site: &Site,
    pair: &Pair,
    kind: &Kind<'_>,
) -> anyhow::Result<Hosts> {
    let store = CreatedStore::new(&options.program, site, pair, kind).await?;
    let mut programs = Vec::new();
    for number in 0..HOSTS {
        programs.push(store.host(&options.program, number).await?);
    }
    let first = programs.first().context("no host")?;
    let keys = [store.key.clone(), prepaid(first).await?];
    Ok(Hosts { programs, database: Some(store.database), keys })
}

fn hosts_text(count: usize) -> String {
    if count == 1 { "one host".to_owned() } else { format!("{count} hosts") }
}

/// A key of a new workspace with much credit.
async fn prepaid(program: &Program) -> anyhow::Result<String> {
    program.command(&["workspace", "create", "prepaid"]).await?;
    program.command(&["credits", "add", "prepaid", "1000000"]).await?;
    key_of(&program.command(&["key", "create", "--workspace", "prepaid"]).await?)
}

/// What each host takes of the primary without load.
fn add_idle(rows: &mut Rows, all: &[Hosts], meter: &Meter<'_>) {
    let hosts: usize = all.iter().filter(|it| it.database.is_some()).map(|it| it.programs.len()).sum();
    let each = |sum: f64| sum / hosts as f64;
    let Work { wal_bytes, transactions, cpu_nanoseconds, .. } = meter.idle();
    for (server, _) in all.iter().enumerate().filter(|(_, it)| it.database.is_some()) {
        for (name, unit, value) in [
            ("processor time of the primary", "us a second", each(cpu_nanoseconds) / 1e3),
            ("transactions", "a second", each(transactions)),
            ("WAL", "bytes a second", each(wal_bytes)),
        ] {
            rows.add(format!("one host without load, {name}"), unit, server, value);
        }
    }
}

/// Measures one server of the table.
struct Measured<'a> {
    rows: &'a mut Rows,
    server: usize,
    meter: &'a Meter<'a>,
    during: Duration,
}

impl Measured<'_> {
    /// One client at one host.
    async fn alone(&mut self, hosts: &Hosts) -> anyhow::Result<()> {
        let first = hosts.programs.first().context("no host")?.address;
        for (account, key) in ACCOUNTS.into_iter().zip(&hosts.keys) {
            let (burst, work) = self.load(hosts, &[first], key, 1).await?;
            let title = format!("one client, {account}");
            for (share, name) in [(0.5, "p50"), (0.99, "p99")] {
                let value = percentile(&burst.wholes, share).as_secs_f64() * 1e6;
                self.rows.add(format!("{title}, {name}"), "us", self.server, value);
            }
            self.work(&title, hosts, &burst, work);
        }
        Ok(())
    }

    /// Several clients, spread over one to three hosts.
    async fn together(&mut self, hosts: &Hosts, connections: usize) -> anyhow::Result<()> {
        let addresses: Vec<SocketAddr> = hosts.programs.iter().map(|program| program.address).collect();
        for (account, key) in ACCOUNTS.into_iter().zip(&hosts.keys) {
            for count in 1..=addresses.len() {
                let used = addresses.get(..count).unwrap_or_default();
                let (burst, work) = self.load(hosts, used, key, connections).await?;
                let title = format!("{connections} clients on {}, {account}", hosts_text(count));
                let rate = burst.succeeded() as f64 / burst.elapsed.as_secs_f64();
                self.rows.add(title.clone(), "requests/s", self.server, rate);
                self.work(&title, hosts, &burst, work);
            }
        }
        let Some(database) = &hosts.database else { return Ok(()) };
        let each = self.meter.connections(database)? / addresses.len() as f64;
        self.rows.add("one host, open".to_owned(), "connections", self.server, each);
        Ok(())
    }

    /// What one request took of the primary.
    fn work(&mut self, title: &str, hosts: &Hosts, burst: &Burst, work: Work) {
        if hosts.database.is_none() {
            return;
        }
        let each = |sum: f64| sum / burst.succeeded() as f64;
        for (name, unit, value) in [
            ("processor time of the primary", "us", each(work.cpu_nanoseconds) / 1e3),
            ("transactions", "a request", each(work.transactions)),
            ("WAL", "bytes a request", each(work.wal_bytes)),
        ] {
            self.rows.add(format!("{title}, {name}"), unit, self.server, value);
        }
    }

    async fn load(
        &self,
        hosts: &Hosts,
        addresses: &[SocketAddr],
        key: &str,
        connections: usize,
    ) -> anyhow::Result<(Burst, Work)> {
        let request = LoadRequest::post("/v1/responses", key, responses("whole", prompt()).to_string());
        let mut all = Vec::new();
        for (number, address) in addresses.iter().enumerate() {
            // The rest of a division goes to the first hosts.
            let share = (connections + addresses.len() - 1 - number) / addresses.len();
            all.push(OpenConnections::open(*address, share, &request).await?);
        }
        let all = OpenConnections::joined(all);
        let before = hosts.database.is_some().then(|| self.meter.read()).transpose()?;
        let burst = all.load(&request, self.during).await?.checked()?;
        let Some(before) = before else { return Ok((burst, Work::default())) };
        sleep(SETTLING).await;
        Ok((burst, self.meter.since(&before)?))
    }
}
