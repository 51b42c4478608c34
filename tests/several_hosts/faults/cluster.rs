//! Three hosts on a primary and its synchronous standby. Each host has two ways to the database, one to each server.
//!
//! Besides the models of the load there is one whose provider takes the secret `own_key` of the caller's workspace.

use super::check::Sums;
use super::doors::Doors;
use super::load::{Keys, Load};
use super::told::{CANARY, Told};
use crate::kit::config::provider;
use crate::kit::database;
use crate::kit::host::{Host, Setup};
use crate::kit::program::EXECUTABLE;
use crate::kit::script;
use crate::kit::upstream::Upstream;
use cofferdam_test_postgres::{Database, Options, Pair, Proxy, Server, installed};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub const HOSTS: usize = 3;
const DATABASE: &str = "cluster";
const PROVIDER: &str = "provider.test";
/// How many answers of each kind arrive at least before a fault, and after it.
const LEAST: usize = 5;

pub struct Cluster {
    // Fields are dropped in this order: hosts before their database.
    pub hosts: Vec<Host>,
    /// For each host, its ways to both servers.
    pub ways: Vec<[Proxy; 2]>,
    /// Which way leads to the primary.
    lead: usize,
    pub pair: Pair,
    pub upstream: Upstream,
    pub doors: Arc<Doors>,
    pub told: Arc<Told>,
    pub keys: Arc<Keys>,
    pub sums: Sums,
    /// How long after each fault until every host that runs acknowledged a change.
    pub unavailable: Vec<Duration>,
    /// The logs of hosts that have ended.
    pub past_logs: Vec<String>,
    /// The file with the root key in force.
    pub root_key: PathBuf,
    database: Database,
    folder: TempDir,
    rounds: usize,
    faults: usize,
}

/// A server that runs in memory where the machine permits it: the fault is the death of processes, not of the machine.
fn options() -> Options {
    Options::new().without_sync()
}

/// Runs what blocks beside the tasks of this runtime.
pub fn blocking<T>(work: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(work)
}

fn command(setup: &Setup, line: &str) -> Value {
    let words: Vec<&str> = line.split(' ').collect();
    let output = setup.command_output(&words);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn text(made: &Value, member: &str) -> String {
    made[member].as_str().unwrap_or_else(|| panic!("no {member} in {made}")).to_owned()
}

/// The configuration of a host whose ways to the database are these.
fn setup(upstream: &Upstream, database: &Database, ways: &[Proxy; 2], folder: &TempDir) -> Setup {
    let section = database::section(&database.at(ways[0].port()), folder.path());
    let first = format!("127.0.0.1:{}", ways[0].port());
    let store = section.replace(&first, &format!("{first},127.0.0.1:{}", ways[1].port()));
    let model = |name: &str| {
        format!(
            "[[models]]\nid = \"test/{name}\"\n\
             endpoints = [{{ provider = \"p\", model = \"{name}\", input = 1000000, output = 1000000 }}]\n"
        )
    };
    let vault = format!(
        "[vault]\nroot_key = \"file:{}\"\nsecrets_max = 100000\n\
         rate_limit = {{ reads_per_minute = 0, writes_per_minute = 0 }}\n",
        folder.path().join("root.key").display()
    );
    let egress = format!(
        "[egress]\nallow_plaintext_loopback = true\nresolve = {{ \"{PROVIDER}\" = [\"127.0.0.1\"] }}\n"
    );
    let base = upstream.base.replace("127.0.0.1", PROVIDER);
    let own = provider("own", "openai-chat", &base) + "byok = \"own_key\"\n";
    let own_model = "[[models]]\nid = \"test/own\"\nendpoints = [{ provider = \"own\", model = \"own\" }]\n";
    let provider = provider("p", "openai-chat", &upstream.base);
    let models = model("paid") + &model("open") + own_model;
    Setup::new().config(&(egress + &provider + &own + &models + &vault + &store))
}

impl Cluster {
    /// `None` where PostgreSQL is not installed.
    pub async fn start() -> Option<Self> {
        Self::start_with(Path::new(EXECUTABLE)).await
    }

    /// The same with hosts of this program, which also makes the store.
    pub async fn start_with(executable: &Path) -> Option<Self> {
        if !installed() {
            return None;
        }
        let upstream = Upstream::start().await;
        upstream.always(|_| script::chat("fine"));
        Some(blocking(|| Self::on(upstream, executable)))
    }

    fn on(upstream: Upstream, executable: &Path) -> Self {
        let pair = options().start_pair().unwrap();
        let database = pair.primary.database(DATABASE).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let way = |server: &Server| Proxy::start(server.port()).unwrap();
        let ways: Vec<[Proxy; 2]> = (0..HOSTS).map(|_| [way(&pair.primary), way(&pair.standby)]).collect();
        let first = setup(&upstream, &database, &ways[0], &folder).executable(executable);
        let workspace = text(&command(&first, "store create"), "key");
        command(&first, "workspace create paid");
        command(&first, "credits add paid 10000000");
        let paid = text(&command(&first, "key create --workspace paid"), "key");
        let provisioning = text(&command(&first, "key create --provisioning --workspace default"), "key");
        let intern = |name: &str, workspace: &str| {
            text(&command(&first, &format!("intern create {name} --workspace {workspace}")), "id")
        };
        let (copies, read) = (intern("copies", "default"), intern("read", "default"));
        let linear = intern("linear", "paid");
        let doors = Arc::new(Doors::new());
        let mut hosts = Vec::new();
        for (number, ways) in ways.iter().enumerate() {
            let setup = setup(&upstream, &database, ways, &folder).executable(executable);
            let host = setup.key(&workspace).start();
            doors.set(number, Some(&host.base));
            hosts.push(host);
        }
        Self {
            hosts,
            ways,
            lead: 0,
            pair,
            upstream,
            doors,
            told: Arc::default(),
            keys: Arc::new(Keys { workspace, paid, provisioning, copies, read, linear }),
            sums: Sums::default(),
            unavailable: Vec::new(),
            past_logs: Vec::new(),
            root_key: folder.path().join("root.key"),
            database,
            folder,
            rounds: 0,
            faults: 0,
        }
    }

    /// The database at the primary, without a proxy between.
    pub fn place(&self) -> Database {
        self.database.at(self.pair.primary.port())
    }

    /// A folder that all hosts can read.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts the clients, and waits until some of each kind have their answers.
    pub async fn load(&mut self) -> Load {
        self.rounds += 1;
        let load = Load::start(&self.doors, &self.told, &self.keys, self.rounds);
        self.until_more().await;
        load
    }

    /// Waits until some more requests of each kind have their answers.
    pub async fn until_more(&self) {
        let than = self.told.counts().map(|count| count + LEAST);
        let waited = tokio::time::timeout(super::super::PATIENCE, self.told.until_more(than)).await;
        waited
            .unwrap_or_else(|_| panic!("{:?} answers, which are not more than {than:?}", self.told.counts()));
    }

    /// Waits until all hosts that clients can reach have acknowledged a change that was sent after this moment.
    pub async fn until_served(&mut self, fault: Instant) {
        let open = self.doors.open();
        let first = self.told.first_after(fault, &open);
        let first = tokio::time::timeout(super::super::PATIENCE, first).await;
        let first = first.unwrap_or_else(|_| panic!("not all of {open:?} acknowledge changes again"));
        let longest = first.into_iter().map(|answered| answered - fault).max();
        self.unavailable.extend(longest);
    }

    /// Ends a round: compares what clients were told with what is there.
    pub async fn end_round(&mut self, load: Load) {
        self.until_more().await;
        load.stop().await;
        self.check().await;
    }

    /// Makes the standby the primary.
    pub fn promote(&self) {
        blocking(|| self.pair.promote()).unwrap();
    }

    /// Replaces the old primary by a new standby, after [`Cluster::promote`].
    pub fn replace_old_primary(&mut self) {
        blocking(|| {
            let standby = options().start_standby_of(&self.pair.standby, "b").unwrap();
            let primary = std::mem::replace(&mut self.pair.standby, standby);
            let old = std::mem::replace(&mut self.pair.primary, primary);
            self.pair.wait_for_standby(true).unwrap();
            for ways in &self.ways {
                ways[self.lead].lead_to(self.pair.standby.port());
            }
            self.lead = 1 - self.lead;
            let found = old.files_containing(CANARY.as_bytes()).unwrap();
            assert!(found.is_empty(), "a value is in {found:?}");
        });
    }

    /// The ways of a host to the primary and to the standby.
    pub fn ways_of(&self, host: usize) -> [&Proxy; 2] {
        let ways = &self.ways[host];
        [&ways[self.lead], &ways[1 - self.lead]]
    }

    /// Kills a host.
    pub fn kill_host(&mut self, host: usize) {
        self.doors.set(host, None);
        blocking(|| self.hosts[host].kill());
    }

    /// Ends a host in order.
    pub fn end_host(&mut self, host: usize) {
        self.doors.set(host, None);
        blocking(|| self.hosts[host].end());
    }

    /// Notes that a host was killed at this moment or a little later, and is started again.
    pub fn note_kill(&self, host: usize, killed_at: Instant) {
        self.told.killed.lock().unwrap().push((host, killed_at, Instant::now()));
    }

    /// Starts a host that has ended, perhaps with another program or configuration.
    pub fn start_host(&mut self, host: usize, change: impl FnOnce(Setup) -> Setup) {
        let ended = self.hosts.remove(host);
        self.past_logs.push(ended.log());
        self.hosts.insert(host, blocking(|| change(Setup::after(&ended)).start()));
        self.doors.set(host, Some(&self.hosts[host].base));
    }

    /// One more host.
    pub fn another(&self) -> Setup {
        setup(&self.upstream, &self.database, &self.ways[0], &self.folder)
    }

    /// Counts a fault, which begins now.
    pub fn begin_fault(&mut self) -> Instant {
        self.faults += 1;
        Instant::now()
    }

    /// Leaves one host with the old primary only, and all others with the new one only; or mends all ways.
    pub fn divide(&self, left: Option<usize>) {
        for host in 0..self.hosts.len() {
            let [old, new] = self.ways_of(host);
            let closed = [old, new][usize::from(left == Some(host))];
            [old, new].iter().for_each(|way| way.refuse(false));
            if left.is_some() {
                closed.refuse(true);
                closed.cut();
            }
        }
    }

    /// Whether a host says that it is ready.
    pub async fn is_ready(&self, host: usize) -> bool {
        let asked = crate::kit::client::http().build().unwrap();
        let asked = asked.get(format!("{}/readyz", self.hosts[host].admin)).send().await;
        asked.unwrap().status() == 200
    }

    /// Waits until a host says that it is ready, or is not.
    pub async fn until_ready(&self, host: usize, is_ready: bool) {
        let end = Instant::now() + super::super::PATIENCE;
        while self.is_ready(host).await != is_ready {
            assert!(Instant::now() < end, "host {host} is not: ready {is_ready}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub fn faults(&self) -> usize {
        self.faults
    }

    pub fn data_dirs(&self) -> Vec<PathBuf> {
        self.hosts.iter().map(|host| host.directory().to_owned()).collect()
    }
}
