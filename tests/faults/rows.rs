//! Rows are secrets that a test writes over HTTP: which writes were acknowledged, and whether the
//! store has them.

use crate::kit::client::Client;
use crate::kit::host::{Host, Setup, program};
use crate::kit::store::now;
use cofferdam_store::{
    Actor, BoundSecret, Clock, DirectoryLock, LockError, OpenOptions, Purpose, Release, ReleaseError,
    ReleaseRequest, ReleaseScope, RootKeySource, Store, VaultId,
};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Output;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const SIGABRT: i32 = 6;
const HOST: &str = "api.example.com";
/// The status of a commit that takes longer than 5 s; its outcome is unknown.
pub const TOO_LATE: u16 = 504;
/// The status of a write that the store did not begin in time.
pub const NOT_BEGUN: u16 = 408;
/// Stores that are opened at the same time.
const AT_A_TIME: usize = 4;
/// Names of one writer, written again and again.
const NAMES_OF_ONE: usize = 4;

/// A host without rate limits for vault writes.
pub fn setup() -> Setup {
    Setup::new().config("[vault]\nrate_limit = { reads_per_minute = 0, writes_per_minute = 0 }")
}

/// Secrets, each written by one writer at a time, with values that contain name and version.
pub struct Rows {
    /// The number of bytes added to each value.
    filler: usize,
    known: Mutex<Known>,
    grown: Condvar,
}

#[derive(Default)]
struct Known {
    rows: BTreeMap<String, Versions>,
    acknowledged: usize,
    statuses: BTreeMap<u16, usize>,
    /// The version for each fingerprint.
    fingerprints: BTreeMap<String, usize>,
}

#[derive(Clone, Copy, Default)]
struct Versions {
    acknowledged: Option<usize>,
    /// The number of versions that were sent.
    sent: usize,
}

struct KilledOnPanic<'h>(&'h Host);

impl Drop for KilledOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.signal("KILL");
        }
    }
}

impl Rows {
    pub fn new() -> Self {
        Self::of(0)
    }

    pub fn of(filler: usize) -> Self {
        Self { filler, known: Mutex::default(), grown: Condvar::new() }
    }

    fn value(&self, name: &str, version: usize) -> String {
        format!("value of {name} in version {version} {}", "x".repeat(self.filler))
    }

    /// Starts this many writers. Each writes until a write fails; a 504 of a slow disk does not
    /// count as a failure.
    pub fn write(self: &Arc<Self>, host: &Host, writers: usize) {
        self.run(host, writers, usize::MAX);
    }

    /// The same while `meanwhile` runs, which ends the host. If it panics, the host is killed, so that the writers end.
    pub fn write_during<T>(
        self: &Arc<Self>,
        host: &Host,
        writers: usize,
        meanwhile: impl FnOnce() -> T,
    ) -> T {
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| self.write(host, writers));
            let killed_on_panic = KilledOnPanic(host);
            let ended = meanwhile();
            drop(killed_on_panic);
            writing.join().unwrap();
            ended
        })
    }

    /// Makes this many writes, each of which must be acknowledged.
    pub fn write_exactly(self: &Arc<Self>, host: &Host, count: usize) {
        let before = self.acknowledged();
        self.run(host, count.min(16), count);
        assert_eq!(self.acknowledged() - before, count, "{:?}", self.statuses());
    }

    fn run(self: &Arc<Self>, host: &Host, writers: usize, most: usize) {
        let workers =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let client = Arc::new(Client::new(host));
        workers.block_on(async {
            let mut writing = tokio::task::JoinSet::new();
            for writer in 0..writers {
                let share = most / writers + usize::from(writer < most % writers);
                writing.spawn(Arc::clone(self).write_as(Arc::clone(&client), writer, share));
            }
            while let Some(ended) = writing.join_next().await {
                ended.unwrap();
            }
        });
    }

    async fn write_as(self: Arc<Self>, client: Arc<Client>, writer: usize, most: usize) {
        let mut stored = 0;
        for number in 0.. {
            if stored == most {
                return;
            }
            let name = format!("row{writer}_{}", number % NAMES_OF_ONE);
            match self.put(&client, &name).await {
                Some(200) => stored += 1,
                // The disk is slow; the write was not begun, or its outcome is unknown.
                Some(NOT_BEGUN | TOO_LATE) => {}
                // Without a response the write is not acknowledged.
                _ => return,
            }
        }
    }

    /// Writes the next version of a row; returns the status of the response.
    pub async fn put(&self, client: &Client, name: &str) -> Option<u16> {
        let version = self.begin(name);
        let body = json!({"hosts": [HOST], "value": self.value(name, version)}).to_string();
        let request = client.request(Method::PUT, &format!("/vault/secrets/{name}"));
        let request = request.header("content-type", "application/json").body(body);
        let response = request.send().await.ok()?;
        let status = response.status().as_u16();
        if status != 200 {
            *self.known.lock().unwrap().statuses.entry(status).or_default() += 1;
            return Some(status);
        }
        let answer: Value = serde_json::from_slice(&response.bytes().await.ok()?).unwrap();
        self.note(name, version, answer["data"]["fingerprint"].as_str().unwrap());
        Some(status)
    }

    fn begin(&self, name: &str) -> usize {
        let mut known = self.known.lock().unwrap();
        let row = known.rows.entry(name.to_owned()).or_default();
        row.sent += 1;
        row.sent - 1
    }

    fn note(&self, name: &str, version: usize, fingerprint: &str) {
        let mut known = self.known.lock().unwrap();
        *known.statuses.entry(200).or_default() += 1;
        known.rows.get_mut(name).unwrap().acknowledged = Some(version);
        known.fingerprints.insert(fingerprint.to_owned(), version);
        known.acknowledged += 1;
        self.grown.notify_all();
    }

    /// The version of a row with this fingerprint.
    pub fn version_of(&self, fingerprint: &str) -> usize {
        self.known.lock().unwrap().fingerprints[fingerprint]
    }

    pub fn acknowledged(&self) -> usize {
        self.known.lock().unwrap().acknowledged
    }

    pub fn names(&self) -> Vec<String> {
        self.known.lock().unwrap().rows.keys().cloned().collect()
    }

    /// Whether this is the last acknowledged value.
    pub fn is_last(&self, name: &str, value: &[u8]) -> bool {
        let version = self.known.lock().unwrap().rows[name].acknowledged;
        version.is_some_and(|version| self.value(name, version).as_bytes() == value)
    }

    /// The statuses of all responses, except those caused by a slow disk.
    pub fn statuses(&self) -> Vec<u16> {
        let known = self.known.lock().unwrap();
        known.statuses.keys().copied().filter(|status| ![NOT_BEGUN, TOO_LATE].contains(status)).collect()
    }

    /// Waits until this many writes are acknowledged.
    pub fn until(&self, count: usize) {
        let known = self.known.lock().unwrap();
        let waited = self.grown.wait_timeout_while(known, PATIENCE, |known| known.acknowledged < count);
        assert!(!waited.unwrap().1.timed_out(), "fewer than {count} writes are acknowledged");
    }

    /// Opens a data directory that no process has open with the program, and checks every row.
    pub fn check(&self, data: &Path) -> Result<(), Failed> {
        opens(data)?;
        let rows = self.known.lock().unwrap().rows.clone();
        self.check_rows(data, &rows)
    }

    /// Like [`Self::check`], if only these versions were acknowledged.
    pub fn check_only(&self, data: &Path, acknowledged: &BTreeMap<String, usize>) -> Result<(), Failed> {
        opens(data)?;
        let mut rows = self.known.lock().unwrap().rows.clone();
        for (name, row) in &mut rows {
            row.acknowledged = acknowledged.get(name).copied();
        }
        self.check_rows(data, &rows)
    }

    fn check_rows(&self, data: &Path, rows: &BTreeMap<String, Versions>) -> Result<(), Failed> {
        let stored = Stored::open(data);
        let listed = stored.names()?;
        if let Some(stranger) = listed.iter().find(|name| !rows.contains_key(*name)) {
            return Err(Failed::Silent(format!("nobody ever wrote {stranger}")));
        }
        for (name, row) in rows {
            let value = stored.value(name)?;
            if value.is_some() != listed.contains(name) {
                return Err(Failed::Silent(format!("{name} is listed or released, not both")));
            }
            if !self.fits(name, *row, value.as_ref()) {
                let found = value.map_or("is gone", |_| "has another value");
                let told = row.acknowledged;
                return Err(Failed::Silent(format!("{name}, acknowledged in version {told:?}, {found}")));
            }
        }
        stored.verify()
    }
}

impl Rows {
    /// Whether the value is the acknowledged version or one sent after it, whose outcome is
    /// unknown.
    fn fits(&self, name: &str, row: Versions, value: Option<&Release>) -> bool {
        let Some(value) = value else { return row.acknowledged.is_none() };
        let mut possible = (row.acknowledged.unwrap_or(0)..row.sent).rev();
        possible.any(|version| self.value(name, version).as_bytes() == value.expose())
    }
}

#[derive(Debug)]
pub enum Failed {
    /// The program refused to open the store, with this error.
    Refused(String),
    /// The store opened, and damage was reported.
    Reported(String),
    /// The store opened with wrong data and without an error.
    Silent(String),
}

/// Applies `act` to all items, several at a time: opening a store mostly waits for the disk.
pub fn each<T: Send>(items: impl Iterator<Item = T> + Send, act: impl Fn(T) + Sync) {
    let items = Mutex::new(items);
    let next = || items.lock().unwrap().next();
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| std::iter::from_fn(next).for_each(&act));
        }
    });
}

pub fn command(data: &Path, line: &str) -> Output {
    program().arg("--json").arg("--data").arg(data).args(line.split(' ')).output().unwrap()
}

/// Opens the store with the program and verifies everything in it.
pub fn opens(data: &Path) -> Result<(), Failed> {
    let mut output = command(data, "vault verify");
    let mut complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    if complaint.contains("no store in ") {
        // The disk was lost before the first start had created the store; the next change creates
        // it.
        let made = command(data, "workspace set default --vault-writes on");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        output = command(data, "vault verify");
        complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    }
    if output.status.success() {
        return Ok(());
    }
    // The database engine may abort the process when it reads files it cannot interpret.
    if output.status.signal() == Some(SIGABRT) {
        return Err(Failed::Refused(format!("{complaint}\naborted")));
    }
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    if complaint.contains("problem") || !output.stdout.is_empty() {
        return Err(Failed::Reported(complaint));
    }
    Err(Failed::Refused(complaint))
}

/// Locks a directory that no host has open. A child process that another test starts inherits all
/// open files of this process until its `exec`, so the lock may be held for a moment.
fn lock(data: &Path) -> DirectoryLock {
    let end = Instant::now() + PATIENCE;
    loop {
        match DirectoryLock::acquire(data) {
            Err(LockError::Held { .. }) if Instant::now() < end => std::thread::yield_now(),
            result => return result.unwrap(),
        }
    }
}

/// The store opened in the test process, because the program never shows values.
pub struct Stored {
    store: Store,
    vault: VaultId,
    scope: ReleaseScope,
}

impl Stored {
    pub fn of_intern(data: &Path, name: &str) -> Self {
        let opened = Self::open(data);
        let id = now(opened.store.find_intern(None, name)).unwrap().id;
        Self { vault: VaultId::Intern(id), scope: ReleaseScope::Intern(id), ..opened }
    }

    pub fn open(data: &Path) -> Self {
        let lock = lock(data);
        let root_key = RootKeySource::File(data.join("root.key"));
        let options =
            OpenOptions { root_key, previous_root_key: None, accept_rollback: None, clock: Clock::system() };
        let store = Store::open(lock, options).expect("the program opened it a moment ago");
        let id = now(store.find_workspace("default")).unwrap().id;
        Self { store, vault: VaultId::Workspace(id), scope: ReleaseScope::Workspace(id) }
    }

    pub fn names(&self) -> Result<BTreeSet<String>, Failed> {
        let mut names = BTreeSet::new();
        loop {
            let page = now(self.store.list_secrets(self.vault, names.len(), 100));
            let page = page.map_err(|error| Failed::Reported(format!("list: {error}")))?;
            names.extend(page.entries.iter().map(|entry| entry.name.as_str().to_owned()));
            if !page.has_more {
                return Ok(names);
            }
        }
    }

    pub fn value(&self, name: &str) -> Result<Option<Release>, Failed> {
        let secret = BoundSecret { name: name.parse().unwrap(), host: HOST.parse().unwrap() };
        let purpose = Purpose { used_by: "test".to_owned(), request_id: "test".to_owned() };
        let request = ReleaseRequest { actor: Actor::Operator, scope: self.scope, secret, purpose };
        loop {
            match now(self.store.release(request.clone())) {
                Ok(release) => return Ok(Some(release)),
                Err(ReleaseError::Unavailable) => return Ok(None),
                Err(ReleaseError::Busy) => self.store.flush().unwrap(),
                Err(error) => return Err(Failed::Reported(format!("{:?}: {error}", request.secret.name))),
            }
        }
    }

    fn verify(&self) -> Result<(), Failed> {
        // A store that can only be read loses nothing, because writes to it fail with an error.
        self.store.flush().map_err(|error| Failed::Reported(format!("it does not write: {error}")))?;
        match self.store.verify(&mut |_, _, _| ControlFlow::Continue(())) {
            Ok(found) if !found.problems.iter().any(|problem| problem.contains("audit log")) => Ok(()),
            other => Err(Failed::Reported(format!("audit: {other:?}"))),
        }
    }
}
