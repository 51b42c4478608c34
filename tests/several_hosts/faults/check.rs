//! What holds after each fault.

use super::cluster::{Cluster, blocking};
use super::doors::Verdict;
use super::load::{PAGE, path_of, put_body};
use super::told::{Answered, CANARY, Has, Name, Vault};
use crate::kit::store::now;
use cofferdam_store::{Clock, Database, OpenOptions, RootKeySource, Secret, Store, UsageRow};
use cofferdam_test_postgres::files_containing;
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A host that was killed loses at most the rows of its last moment where nothing is prepaid; twice the quarter of a
/// second after which rows are committed, because machines of tests are busy.
const LOST_MAX: Duration = Duration::from_millis(500);
/// A host that is dead shows no sign of life for 30 s; what it had reserved is charged after that.
const CHARGE_PATIENCE: Duration = Duration::from_secs(90);
/// The cost of an answer, in pico-dollars: 7 tokens in, 3 out. An interrupted request costs what it reserved, which is
/// more.
const ANSWER_PICO: u64 = 10_000_000_000_000;

/// What the checks found, all rounds together.
#[derive(Debug, Default)]
pub struct Sums {
    /// What was acknowledged and is not there, or is there and was refused.
    pub lost: Vec<String>,
    /// What is there more often than it was made.
    pub doubled: Vec<String>,
    /// Of the answers that left the outcome open: what was made, and what was not.
    pub made: usize,
    pub not_made: usize,
    /// Rows of unlimited workspaces that were lost in the last moment before a host was killed.
    pub last_moment: usize,
}

type Listing = BTreeMap<String, String>;

impl Cluster {
    /// Compares what clients were told with what is there. No client asks meanwhile.
    pub async fn check(&mut self) {
        for host in self.doors.open() {
            // A lane answers this after everything that it had in doubt.
            let path = format!("{}/fence_{host}", path_of(&self.keys, Vault::Workspace));
            self.put_surely(host, &self.keys.workspace, &path, &put_body("fence", host)).await;
        }
        self.check_names().await;
        self.check_copies().await;
        self.check_usage().await;
        blocking(|| self.check_files());
        let locks = format!(
            "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE a.datname = '{}' \
             AND a.pid <> pg_backend_pid() AND a.xact_start < clock_timestamp() - interval '5 s'",
            self.place().name
        );
        let locks = blocking(|| self.pair.primary.query(&locks)).unwrap();
        assert_eq!(locks[0][0].as_deref(), Some("0"), "locks are held for more than 5 s");
    }

    /// Puts a secret until that is acknowledged by some host. Its fingerprint.
    pub async fn fingerprint_of_put(&self, key: &str, path: &str, body: &Value) -> String {
        self.put_surely(self.doors.next(), key, path, body).await
    }

    async fn put_surely(&self, host: usize, key: &str, path: &str, body: &Value) -> String {
        let end = Instant::now() + super::super::PATIENCE;
        loop {
            let sent = self.doors.send(host, key, Method::PUT, path, body).await;
            if sent.verdict() == Verdict::Done {
                return sent.body["data"]["fingerprint"].as_str().unwrap().to_owned();
            }
            assert!(Instant::now() < end, "{path} by host {host}: {:?} {}", sent.status, sent.body);
        }
    }

    /// All secrets of a vault, by name.
    async fn listing(&self, vault: Vault) -> Listing {
        let (mut listing, host) = (Listing::new(), self.doors.next());
        loop {
            let path = format!("{}?limit={PAGE}&offset={}", path_of(&self.keys, vault), listing.len());
            let page = self.doors.get(host, &self.keys.workspace, &path).await;
            assert_eq!(page.status, Some(200), "host {host}: {}", page.body);
            for secret in page.body["data"].as_array().unwrap() {
                let [name, fingerprint] = ["name", "fingerprint"].map(|it| secret[it].as_str().unwrap());
                listing.insert(name.to_owned(), fingerprint.to_owned());
            }
            if page.body["has_more"] == false {
                return listing;
            }
        }
    }

    async fn check_names(&mut self) {
        for vault in [Vault::Workspace, Vault::Read] {
            let listing = self.listing(vault).await;
            let names: Vec<(String, Name)> = {
                let names = self.told.names.lock().unwrap();
                names
                    .iter()
                    .filter(|((of, _), _)| *of == vault)
                    .map(|((_, name), it)| (name.clone(), it.clone()))
                    .collect()
            };
            for (name, told) in &names {
                self.check_name(vault, name, told, listing.get(name)).await;
            }
            let is_own = |name: &str| name.starts_with("fence_") || name == "probe";
            let is_known = |name: &str| is_own(name) || names.iter().any(|(known, _)| known == name);
            let strange = listing.keys().filter(|name| !is_known(name));
            self.sums
                .doubled
                .extend(strange.map(|name| format!("{name} was written by none of the clients")));
        }
    }

    /// Compares one name, and notes what became of changes in doubt.
    async fn check_name(&mut self, vault: Vault, name: &str, told: &Name, found: Option<&String>) {
        let expected = match told.known {
            Has::Nothing => None,
            Has::Version(_) => told.fingerprint.as_ref(),
        };
        let mut has = (expected == found).then(|| told.known.clone());
        for doubt in &told.doubts {
            if has.is_none() && self.is_this(vault, name, doubt, found).await {
                has = Some(doubt.clone());
            }
        }
        let Some(has) = has else {
            let what = format!("{vault:?} {name}: {told:?}, found {found:?}");
            self.sums.lost.push(what);
            return;
        };
        if told.doubts.is_empty() {
            return;
        }
        let made = usize::from(has != told.known);
        self.sums.made += made;
        self.sums.not_made += told.doubts.len() - made;
        let mut names = self.told.names.lock().unwrap();
        let entry = names.get_mut(&(vault, name.to_owned())).unwrap();
        entry.puts += usize::from(made == 1 && has != Has::Nothing);
        entry.known = has;
        entry.fingerprint = found.cloned();
        entry.doubts.clear();
    }

    /// Whether what was found is what a change in doubt was to make. Equal values of one vault have equal fingerprints.
    async fn is_this(&self, vault: Vault, name: &str, doubt: &Has, found: Option<&String>) -> bool {
        let (Has::Version(version), Some(found)) = (doubt, found) else {
            return *doubt == Has::Nothing && found.is_none();
        };
        let path = format!("{}/probe", path_of(&self.keys, vault));
        self.fingerprint_of_put(&self.keys.workspace, &path, &put_body(name, *version)).await == *found
    }

    /// Names that were copied together are there together.
    async fn check_copies(&mut self) {
        let listing = self.listing(Vault::Copies).await;
        let mut copies = self.told.copies.lock().unwrap();
        for copy in copies.iter_mut() {
            let there = copy.names.iter().filter(|name| listing.contains_key(*name)).count();
            let is_whole = there == copy.names.len();
            let is_right = match copy.verdict {
                Verdict::Done => is_whole,
                Verdict::Refused => there == 0,
                Verdict::Doubt => is_whole || there == 0,
            };
            if !is_right {
                self.sums.lost.push(format!("{copy:?}: {there} are there"));
            } else if copy.verdict == Verdict::Doubt {
                self.sums.made += usize::from(is_whole);
                self.sums.not_made += usize::from(!is_whole);
                copy.verdict = [Verdict::Refused, Verdict::Done][usize::from(is_whole)];
            }
        }
    }

    /// A command by some host.
    fn command(&self, line: &str) -> Value {
        let words: Vec<&str> = line.split(' ').collect();
        blocking(|| self.hosts[self.doors.next()].command(&words))
    }

    /// Usage rows, read by a host of this process's own.
    pub fn rows(&self) -> Vec<UsageRow> {
        let cofferdam_test_postgres::Database { name, user, password, port } = self.place();
        let url = format!("postgres://{user}@127.0.0.1:{port}/{name}").parse().unwrap();
        let database = Database::new(&url, Some(&Secret::from(password)), &[]).unwrap();
        let root_key = RootKeySource::File(self.root_key.clone());
        let clock = Clock::system();
        let options = OpenOptions { root_key, previous_root_key: None, accept_rollback: None, clock };
        blocking(|| {
            let store = Store::open_in(&database, &options).unwrap();
            let rows = now(store.usage_rows(10_000_000)).unwrap();
            store.close();
            rows
        })
    }

    async fn check_usage(&mut self) {
        // Reservations of requests that have ended are settled with the next commit of their host, those of a host that
        // was killed when it is dead.
        let end = Instant::now() + CHARGE_PATIENCE;
        let credit = loop {
            let credit = self.command("credits show paid");
            if credit["reserved"].as_f64() == Some(0.0) {
                break credit;
            }
            assert!(Instant::now() < end, "{credit}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        let rows = loop {
            let rows = self.rows();
            let missing = self.missing(&rows);
            if missing.is_empty() || Instant::now() > end {
                self.sums.lost.extend(missing);
                break rows;
            }
        };
        let mut by_id: BTreeMap<&str, usize> = BTreeMap::new();
        for row in &rows {
            *by_id.entry(&row.request_id).or_default() += 1;
        }
        let twice = by_id.iter().filter(|(_, count)| **count > 1);
        self.sums.doubled.extend(twice.map(|(id, count)| format!("{id} has {count} rows of usage")));
        let is_in = |id: &str| by_id.contains_key(id);
        let open = self.told.open.lock().unwrap();
        self.sums.last_moment = open.iter().filter(|answered| !is_in(&answered.id)).count();
        drop(open);
        let charged: u64 = rows.iter().filter(|row| row.model == "test/paid").map(|row| row.cost_pico).sum();
        let spent = credit["spent"].as_f64().unwrap();
        assert_eq!(spent, (charged / 1_000_000_000_000) as f64, "what is spent is the sum of the rows");
        let asked = self.upstream.asked();
        let turns = asked.iter().filter(|asked| asked.body["model"] == "paid").count() as u64;
        assert!(turns > 0 && charged >= turns * ANSWER_PICO, "{turns} turns, {charged} charged");
        let report = self.command("usage");
        assert_eq!(report["total"]["requests"], rows.len(), "the report counts the rows");
        let verified = self.command("vault verify");
        assert_eq!((&verified["ok"], &verified["problems"]), (&json!(true), &json!([])), "{verified}");
    }

    /// Answers that have no row of usage and must have one.
    fn missing(&self, rows: &[UsageRow]) -> Vec<String> {
        let ids: BTreeMap<&str, ()> = rows.iter().map(|row| (row.request_id.as_str(), ())).collect();
        let killed = self.told.killed.lock().unwrap();
        let may_be_lost = |answered: &Answered| {
            killed.iter().any(|(host, killed_at, started_at)| {
                let last_moment = answered.at + LOST_MAX > *killed_at && answered.at < *started_at;
                *host == answered.host && last_moment
            })
        };
        let has_row = |answered: &&Answered| ids.contains_key(answered.id.as_str());
        let paid = self.told.paid.lock().unwrap();
        let open = self.told.open.lock().unwrap();
        let paid = paid.iter().filter(|it| !has_row(it)).map(|it| format!("{it:?}, prepaid, has no row"));
        let open = open.iter().filter(|it| !has_row(it) && !may_be_lost(it));
        paid.chain(open.map(|it| format!("{it:?} has no row; killed: {killed:?}"))).collect()
    }

    /// No value is in a file or a log, of hosts or of servers.
    fn check_files(&self) {
        let mut found = Vec::new();
        for server in [&self.pair.primary, &self.pair.standby] {
            found.extend(server.files_containing(CANARY.as_bytes()).unwrap());
        }
        for folder in self.data_dirs() {
            found.extend(files_containing(&folder, CANARY.as_bytes()).unwrap());
        }
        assert!(found.is_empty(), "a value is in {found:?}");
        let logs = self.hosts.iter().map(|host| host.log());
        for log in logs.chain(self.past_logs.iter().cloned()) {
            assert!(!log.contains(CANARY), "a value is in a log:\n{log}");
        }
    }

    /// Puts that the audit log has, compared with those that were acknowledged or may have been made.
    pub fn check_audit(&mut self) {
        let mut stored: BTreeMap<String, usize> = BTreeMap::new();
        let audit = self.command("vault audit");
        let positions = audit.as_array().unwrap().iter().map(|record| record["position"].as_u64().unwrap());
        assert!(positions.is_sorted_by(|one, next| one < next), "the audit log is not in its order");
        let entries = audit.as_array().unwrap().iter().flat_map(|it| it["entries"].as_array().unwrap());
        for entry in entries.filter(|entry| entry["action"] == "secret_stored") {
            *stored.entry(entry["name"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        let names = self.told.names.lock().unwrap();
        assert!(!names.is_empty());
        for ((vault, name), told) in names.iter() {
            let count = stored.get(name).copied().unwrap_or(0);
            let what = || format!("{vault:?} {name} is {count} times in the audit log: {told:?}");
            if count < told.puts {
                self.sums.lost.push(what());
            } else if count > told.possible_puts {
                self.sums.doubled.push(what());
            }
        }
    }
}
