//! `records`: what a store with many interns and keys costs: to make one more, to answer a request, to start, and in
//! memory.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use cofferdam_test_postgres::{Options, Pair};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::client::{Connection, LoadRequest};
use crate::created::{CreatedStore, Kind, LIMITS};
use crate::load::{OpenConnections, percentile};
use crate::scene::{prompt, responses};
use crate::site::{Build, ModelScript, Program, Site};
use crate::table::{Rows, Table};

#[derive(clap::Args)]
pub(crate) struct RecordsOptions {
    /// Builds of the program as NAME=PATH, each with a store of its own
    #[arg(long = "program", default_values = ["dist=target/dist/cofferdam"])]
    programs: Vec<Build>,
    /// Up to how many interns are made, each with a key
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1_000..=2_000_000))]
    interns: u32,
    /// Also measure each build with its store in PostgreSQL
    #[arg(long)]
    database: bool,
    /// How long each burst of requests lasts, in seconds
    #[arg(long, default_value_t = 2.0)]
    secs: f64,
    /// Also write the figures to this file
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Numbers of interns at which the figures are taken.
const STEPS: [u32; 5] = [100, 1_000, 10_000, 100_000, 1_000_000];
const WORKSPACES: u32 = 100;
/// Connections that make interns at the same time.
const WRITERS: u32 = 32;
/// Interns that are made one after the other for a figure.
const ALONE: u32 = 50;
/// Keys that take part in a burst of requests.
const KEYS: usize = 256;
const CONNECTIONS: usize = 16;

/// A host and its store.
struct Filled {
    program: Program,
    build: Build,
    /// The operator token.
    token: String,
    /// Some of the interns' keys, from all times.
    keys: Vec<String>,
    interns: u32,
}

pub(crate) async fn run(options: &RecordsOptions) -> anyhow::Result<()> {
    if !(0.05..=600.0).contains(&options.secs) {
        bail!("--secs: {} is not between 0.05 and 600", options.secs);
    }
    if options.database && !cofferdam_test_postgres::installed() {
        bail!("PostgreSQL is not installed");
    }
    let site = Site::start().await?;
    let pair = options.database.then(|| Options::new().start_pair()).transpose()?;
    let (mut servers, mut all) = (Vec::new(), Vec::new());
    for (number, build) in options.programs.iter().enumerate() {
        servers.push(build.name.clone());
        all.push(Filled::embedded(build, &site).await.context(build.name.clone())?);
        if let Some(pair) = &pair {
            let name = format!("{}, database", build.name);
            let filled = Filled::in_database(build, &site, pair, number).await;
            all.push(filled.context(name.clone())?);
            servers.push(name);
        }
    }
    let during = Duration::from_secs_f64(options.secs);
    let mut rows = Rows::of(servers.len());
    for step in STEPS.into_iter().chain([options.interns]).filter(|step| *step <= options.interns) {
        for (server, filled) in all.iter_mut().enumerate().filter(|(_, filled)| filled.interns < step) {
            for (title, unit, value) in filled.measure(step, during).await? {
                rows.add(format!("{step} interns: {title}"), unit, server, value);
            }
        }
        eprintln!("{step} interns done");
    }
    Table { servers, has_proxy: false, rows: rows.rows }.publish(options.json.as_deref())
}

impl Filled {
    async fn embedded(build: &Build, site: &Site) -> anyhow::Result<Self> {
        let config = site.config(LIMITS, &[ModelScript::new("whole")]);
        Self::new(Program::start(build, site, &config).await?, build).await
    }

    async fn in_database(build: &Build, site: &Site, pair: &Pair, number: usize) -> anyhow::Result<Self> {
        let name = format!("records_{number}");
        let kind = Kind { name: &name, ledger: "exact", limits: LIMITS };
        let store = CreatedStore::new(build, site, pair, &kind).await?;
        Self::new(store.host(build, 0).await?, build).await
    }

    async fn new(program: Program, build: &Build) -> anyhow::Result<Self> {
        let token = std::fs::read_to_string(program.folder().join("data/operator.token"))?;
        let token = token.trim_end().to_owned();
        let mut connection = Connection::open(program.admin).await?;
        for number in 0..WORKSPACES {
            let request = command(&token, "workspace/create", &json!({"name": workspace(number)}));
            connection.ask_well(&request).await?;
        }
        Ok(Self { program, build: build.clone(), token, keys: Vec::new(), interns: 0 })
    }

    /// Makes interns up to this number, and takes all figures.
    async fn measure(
        &mut self,
        interns: u32,
        during: Duration,
    ) -> anyhow::Result<Vec<(&'static str, &'static str, f64)>> {
        let begun = Instant::now();
        let made = f64::from(interns - ALONE - self.interns);
        self.fill(interns - ALONE).await?;
        let rate = made / begun.elapsed().as_secs_f64();

        let mut connection = Connection::open(self.program.admin).await?;
        let (mut creations, mut issues) = (Vec::new(), Vec::new());
        for number in self.interns..interns {
            let (creation, issue, key) = make(&mut connection, &self.token, number).await?;
            creations.push(creation);
            issues.push(issue);
            self.keys.push(key);
        }
        self.interns = interns;
        [&mut creations, &mut issues].into_iter().for_each(|times| times.sort_unstable());

        let answer = self.answer(during).await?;
        let resident = self.program.processes.resident()?;
        let start = self.start_again().await?;
        let started = self.program.processes.resident()?;
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        Ok(vec![
            ("made with their keys by 32 clients", "a second", rate),
            ("one more is made, p50", "ms", ms(percentile(&creations, 0.5))),
            ("one more key is made, p50", "ms", ms(percentile(&issues, 0.5))),
            ("whole answer with one of 256 keys, processor time", "us", answer),
            ("resident", "MiB", resident as f64 / 1024.0),
            ("start", "ms", ms(start)),
            ("resident after the start", "MiB", started as f64 / 1024.0),
        ])
    }

    async fn fill(&mut self, interns: u32) -> anyhow::Result<()> {
        let mut tasks = JoinSet::new();
        for writer in 0..WRITERS {
            let (admin, token) = (self.program.admin, self.token.clone());
            let numbers = self.interns..interns;
            tasks.spawn(make_all(admin, token, numbers.filter(move |number| number % WRITERS == writer)));
        }
        while let Some(ended) = tasks.join_next().await {
            self.keys.extend(ended??);
        }
        self.interns = interns;
        Ok(())
    }

    /// Microseconds of processor time for a request, with keys of all times.
    async fn answer(&self, during: Duration) -> anyhow::Result<f64> {
        let body = responses("whole", prompt()).to_string();
        let every = (self.keys.len() / KEYS).max(1);
        let requests: Vec<LoadRequest> = self
            .keys
            .iter()
            .step_by(every)
            .map(|key| LoadRequest::post("/v1/responses", key, body.clone()))
            .collect();
        let first = requests.first().context("no key")?;
        let connections = OpenConnections::open(self.program.address, CONNECTIONS, first).await?;
        let times = self.program.processes.times()?;
        let burst = connections.load_with(&requests, during).await?.checked()?;
        let spent = self.program.processes.spent_since(&times)?;
        Ok(spent as f64 / 1e3 / burst.succeeded() as f64)
    }

    /// Ends the host and starts it. Returns how long it took until it listened.
    async fn start_again(&mut self) -> anyhow::Result<Duration> {
        let (folder, key) = (self.program.folder().to_owned(), self.program.key.clone());
        self.program.end_here().await?;
        let begun = Instant::now();
        self.program = Program::start_on(&self.build, &folder, &key, &[]).await?;
        Ok(begun.elapsed())
    }
}

fn workspace(number: u32) -> String {
    format!("w{:03}", number % WORKSPACES)
}

fn command(token: &str, path: &str, body: &Value) -> LoadRequest {
    LoadRequest::post(&format!("/admin/v1/{path}"), token, body.to_string())
}

/// Makes these interns, each with a key. Returns some of the keys.
async fn make_all(
    admin: SocketAddr,
    token: String,
    numbers: impl Iterator<Item = u32> + Send,
) -> anyhow::Result<Vec<String>> {
    let mut connection = Connection::open(admin).await?;
    let mut keys = Vec::new();
    for number in numbers {
        let (_, _, key) = make(&mut connection, &token, number).await?;
        if number % 64 < WRITERS {
            keys.push(key);
        }
    }
    Ok(keys)
}

/// Makes an intern and its key. Returns how long each took, and the key.
async fn make(
    connection: &mut Connection,
    token: &str,
    number: u32,
) -> anyhow::Result<(Duration, Duration, String)> {
    let (workspace, name) = (workspace(number), format!("intern {number:07}"));
    let intern = json!({"workspace": workspace, "name": name});
    let created = connection.ask_well(&command(token, "intern/create", &intern)).await?;
    let key = json!({"workspace": workspace, "intern": name});
    let issued = connection.ask_well(&command(token, "key/create", &key)).await?;
    let answer: Value = serde_json::from_slice(&issued.body)?;
    let key = answer.get("key").and_then(Value::as_str).context("no key was made")?;
    Ok((created.whole, issued.whole, key.to_owned()))
}
