//! `shared-store`: what a store in PostgreSQL costs beside the embedded one.
//!
//! All servers are up and are loaded in turn. The database is a primary whose commits wait for a standby, on the same
//! machine. What it does without load is measured first and subtracted.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use cofferdam_test_postgres::{Options, Pair};
use serde_json::Value;
use tokio::time::sleep;

use crate::client::LoadRequest;
use crate::load::{Burst, OpenConnections, percentile};
use crate::process::ThreadTimes;
use crate::scene::{prompt, responses};
use crate::site::{Build, ModelScript, Program, Site, run_command};
use crate::table::{Against, Table, TableRow};

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
/// Until usage rows are committed and the server has counted what it did.
const SETTLING: Duration = Duration::from_millis(1500);
/// Rates without a limit that a load could meet.
pub(crate) const LIMITS: &str = "[limits]\nconcurrent_per_key = 0\nrequests_per_minute = 0\n";
const ACCOUNTS: [&str; 2] = ["unlimited", "prepaid"];

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
    for ledger in ["exact", "leased"] {
        all.push(in_database(options, &site, &pair, ledger).await.context(ledger)?);
    }
    let during = Duration::from_secs_f64(options.secs);
    let meter = Meter::new(&pair, during + SETTLING).await?;
    let mut rows = Rows::of(all.len());
    rows.add_idle(&all, &meter);
    for round in 0..options.rounds {
        for (server, hosts) in all.iter().enumerate() {
            let mut measured = Measured { rows: &mut rows, server, meter: &meter, during };
            measured.alone(hosts).await?;
            measured.together(hosts, usize::from(options.connections)).await?;
        }
        eprintln!("round {} of {} done", round + 1, options.rounds);
    }
    let servers = ["embedded", "database, exact", "database, leased"].map(str::to_owned).to_vec();
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
    ledger: &str,
) -> anyhow::Result<Hosts> {
    let store = CreatedStore::new(&options.program, site, pair, ledger, ledger).await?;
    let mut programs = Vec::new();
    for number in 0..HOSTS {
        programs.push(store.host(&options.program, number).await?);
    }
    let first = programs.first().context("no host")?;
    let keys = [store.key.clone(), prepaid(first).await?];
    Ok(Hosts { programs, database: Some(store.database), keys })
}

/// A new store in a database.
pub(crate) struct CreatedStore {
    /// The name of its database.
    database: String,
    /// Its first key.
    key: String,
    config: String,
    /// Where the folders of its hosts are, without their numbers.
    folders: PathBuf,
}

impl CreatedStore {
    /// Creates it. `name` is that of its database and of the folders of its hosts.
    pub(crate) async fn new(
        build: &Build,
        site: &Site,
        pair: &Pair,
        name: &str,
        ledger: &str,
    ) -> anyhow::Result<Self> {
        let database = pair.primary.database(name)?;
        let secrets = site.folder.path().join(format!("{name}-secrets"));
        std::fs::create_dir(&secrets)?;
        let (password, root_key) = (secrets.join("password"), secrets.join("root.key"));
        write_secret(&password, &database.password)?;
        let tables = format!(
            "{LIMITS}[store]\nurl = \"postgres://{}@127.0.0.1:{}/{}\"\npassword = \"file:{}\"\n\
             ledger = \"{ledger}\"\n[vault]\nroot_key = \"file:{}\"\n",
            database.user,
            database.port,
            database.name,
            password.display(),
            root_key.display()
        );
        let config = site.config(&tables, &[ModelScript::new("whole")]);
        let folders = site.folder.path().join(name);
        let mut store = Self { database: database.name, key: String::new(), config, folders };
        let folder = store.folder(0)?;
        store.key = key_of(&run_command(&build.path, &folder, &["store", "create"], "").await?)?;
        Ok(store)
    }

    /// The folder of a host, with its configuration.
    fn folder(&self, number: usize) -> anyhow::Result<PathBuf> {
        let mut folder = self.folders.clone().into_os_string();
        folder.push(format!("-{number}"));
        let folder = PathBuf::from(folder);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("cofferdam.toml"), &self.config)?;
        Ok(folder)
    }

    /// Starts a host.
    pub(crate) async fn host(&self, build: &Build, number: usize) -> anyhow::Result<Program> {
        let program = Program::start_on(build, &self.folder(number)?, &self.key, &[]).await?;
        program.until_compiled().await?;
        Ok(program)
    }
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

fn key_of(answer: &Value) -> anyhow::Result<String> {
    let key = answer.get("key").and_then(Value::as_str);
    key.map(str::to_owned).ok_or_else(|| anyhow!("no key in {answer}"))
}

fn write_secret(file: &Path, content: &str) -> anyhow::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = std::fs::File::options();
    let mut file = options.write(true).create_new(true).mode(0o600).open(file)?;
    Ok(std::io::Write::write_all(&mut file, content.as_bytes())?)
}

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
    fn connections(&self, database: &str) -> anyhow::Result<f64> {
        self.figure(&format!("SELECT numbackends FROM pg_stat_database WHERE datname = '{database}'"))
    }

    fn figure(&self, sql: &str) -> anyhow::Result<f64> {
        let rows = self.pair.primary.query(sql)?;
        let text = rows.first().and_then(|row| row.first()?.as_deref()).context("no figure")?;
        Ok(text.parse()?)
    }

    /// What it did beyond what it does without load.
    fn since(&self, before: &Reading) -> anyhow::Result<Work> {
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

/// The table, row by row.
pub(crate) struct Rows {
    servers: usize,
    pub(crate) rows: Vec<TableRow>,
}

impl Rows {
    /// An empty table of so many servers.
    pub(crate) fn of(servers: usize) -> Self {
        Self { servers, rows: Vec::new() }
    }

    /// What each host takes of the primary without load.
    fn add_idle(&mut self, all: &[Hosts], meter: &Meter<'_>) {
        let hosts: usize = all.iter().filter(|it| it.database.is_some()).map(|it| it.programs.len()).sum();
        let each = |sum: f64| sum / hosts as f64;
        let Work { wal_bytes, transactions, cpu_nanoseconds, .. } = meter.idle;
        for (server, _) in all.iter().enumerate().filter(|(_, it)| it.database.is_some()) {
            for (name, unit, value) in [
                ("processor time of the primary", "us a second", each(cpu_nanoseconds) / 1e3),
                ("transactions", "a second", each(transactions)),
                ("WAL", "bytes a second", each(wal_bytes)),
            ] {
                self.add(format!("one host without load, {name}"), unit, server, value);
            }
        }
    }

    pub(crate) fn add(&mut self, title: String, unit: &'static str, server: usize, value: f64) {
        let place = self.rows.iter().position(|row| row.title == title && row.unit == unit);
        let place = place.unwrap_or_else(|| {
            let samples = vec![Vec::new(); self.servers];
            self.rows.push(TableRow { title, unit, against: Against::Nothing, target: None, samples });
            self.rows.len() - 1
        });
        if let Some(samples) = self.rows.get_mut(place).and_then(|row| row.samples.get_mut(server)) {
            samples.push(value);
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
