//! Clients of all kinds, which ask through all hosts until they are stopped.

use super::doors::{Doors, Verdict};
use super::told::{Has, Revoked, Told, Vault, value};
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::sleep;

const WRITERS: usize = 3;
const ASKERS: usize = 2;
/// Names of one writer, changed again and again.
const NAMES: usize = 4;
/// Each third change of a writer deletes.
const DELETE_EVERY: usize = 3;
const COPIED_TOGETHER: usize = 3;
/// Between two requests of a client, so that clients do not take the processors from hosts.
const PAUSE: Duration = Duration::from_millis(10);
/// How long a key is used after its revocation, if it is still served.
const KEY_PATIENCE: Duration = Duration::from_secs(2);
/// Tokens of output that a request may have.
const OUTPUT: u32 = 10;
/// How long a host may go on after its last contact with the database.
const CONTACT: Duration = Duration::from_millis(4500);
/// Secrets in one page of a list.
pub const PAGE: usize = 100;
const HOST: &str = "api.example.com";

/// What the clients need.
pub struct Keys {
    pub workspace: String,
    pub paid: String,
    pub provisioning: String,
    /// Ids of the interns.
    pub copies: String,
    pub read: String,
    /// Of the workspace with credit.
    pub linear: String,
}

/// A load that runs.
pub struct Load {
    clients: JoinSet<()>,
    is_over: Arc<AtomicBool>,
}

struct Client {
    doors: Arc<Doors>,
    told: Arc<Told>,
    keys: Arc<Keys>,
    is_over: Arc<AtomicBool>,
    /// Tells the clients of this load apart from those of earlier ones.
    name: String,
}

/// The path of the secrets of a vault.
pub fn path_of(keys: &Keys, vault: Vault) -> String {
    match vault {
        Vault::Workspace => "/vault/secrets".to_owned(),
        Vault::Copies => format!("/vault/interns/{}/secrets", keys.copies),
        Vault::Read => format!("/vault/interns/{}/secrets", keys.read),
    }
}

pub fn put_body(name: &str, version: usize) -> Value {
    json!({"hosts": [HOST], "value": value(name, version)})
}

impl Load {
    /// Starts all clients.
    pub fn start(doors: &Arc<Doors>, told: &Arc<Told>, keys: &Arc<Keys>, round: usize) -> Self {
        let mut clients = JoinSet::new();
        let is_over = Arc::new(AtomicBool::new(false));
        let client = |name: String| Client {
            doors: Arc::clone(doors),
            told: Arc::clone(told),
            keys: Arc::clone(keys),
            is_over: Arc::clone(&is_over),
            name,
        };
        for writer in 0..WRITERS {
            clients.spawn(client(format!("w{writer}_{round}")).write());
        }
        for asker in 0..2 * ASKERS {
            clients.spawn(client(format!("a{asker}_{round}")).ask(asker % 2 == 0));
        }
        clients.spawn(client(format!("r_{round}")).read_back());
        clients.spawn(client(format!("c_{round}")).copy());
        clients.spawn(client(format!("k_{round}")).revoke());
        Self { clients, is_over }
    }

    /// Waits until all clients have the answers to what they asked.
    pub async fn stop(mut self) {
        self.is_over.store(true, Ordering::Release);
        while let Some(ended) = self.clients.join_next().await {
            ended.unwrap();
        }
    }
}

impl Client {
    async fn goes_on(&self) -> bool {
        sleep(PAUSE).await;
        !self.is_over.load(Ordering::Acquire)
    }

    /// Puts a new version of a secret. `None`: the name is in doubt since an earlier change.
    async fn put(&self, vault: Vault, name: &str, host: usize) -> Option<(Verdict, Option<String>)> {
        let version = self.told.begin(vault, name)?.sent;
        let path = format!("{}/{name}", path_of(&self.keys, vault));
        let body = put_body(name, version);
        let sent = self.doors.send(host, &self.keys.workspace, Method::PUT, &path, &body).await;
        let verdict = self.told.end(vault, name, Has::Version(version), &sent);
        Some((verdict, sent.body["data"]["fingerprint"].as_str().map(str::to_owned)))
    }

    async fn delete(&self, vault: Vault, name: &str, host: usize) {
        let Some(known) = self.told.begin(vault, name) else { return };
        if known.known == Has::Nothing {
            return;
        }
        let path = format!("{}/{name}", path_of(&self.keys, vault));
        let sent = self.doors.send(host, &self.keys.workspace, Method::DELETE, &path, &Value::Null).await;
        self.told.end(vault, name, Has::Nothing, &sent);
    }

    /// Puts, replaces and deletes.
    async fn write(self) {
        let mut epochs = [0_usize; NAMES];
        for number in 0_usize.. {
            if !self.goes_on().await {
                return;
            }
            let at = number % NAMES;
            let name = format!("{}_{at}_{}", self.name, epochs[at]);
            let host = self.doors.next();
            if number % DELETE_EVERY == DELETE_EVERY - 1 {
                self.delete(Vault::Workspace, &name, host).await;
            } else if self.put(Vault::Workspace, &name, host).await.is_none() {
                // What has become of a name in doubt is looked at later; this client takes another one.
                epochs[at] += 1;
            }
        }
    }

    /// Puts through one host, and reads at once through another.
    async fn read_back(self) {
        let path = path_of(&self.keys, Vault::Read);
        for number in 0_usize.. {
            if !self.goes_on().await {
                return;
            }
            let name = format!("{}_{}", self.name, number % NAMES);
            let Some((Verdict::Done, Some(put))) = self.put(Vault::Read, &name, self.doors.next()).await
            else {
                continue;
            };
            self.until_listed(&path, &name, &put, Instant::now()).await;
        }
    }

    /// Reads a list until it has what was put. A host that is left with a primary that was replaced reads there as long
    /// as it is in contact.
    async fn until_listed(&self, path: &str, name: &str, put: &str, answered: Instant) {
        let mut host = self.doors.next();
        let mut offset = 0;
        loop {
            let page = format!("{path}?limit={PAGE}&offset={offset}");
            let listed = self.doors.get(host, &self.keys.workspace, &page).await;
            let Some(data) = listed.body["data"].as_array().filter(|_| listed.status == Some(200)) else {
                return;
            };
            let found = data.iter().find(|it| it["name"] == name);
            if found.is_some_and(|it| it["fingerprint"] == put) {
                return;
            }
            // Only this client changes the vault, so pages fit together.
            if found.is_none() && listed.body["has_more"] == true {
                offset += PAGE;
                continue;
            }
            let stale = listed.at - answered;
            self.told.note_stale(stale);
            assert!(stale < CONTACT, "{name} by host {host} is still not what was put: {}", listed.body);
            (host, offset) = (self.doors.next(), 0);
        }
    }

    /// Copies several secrets together.
    async fn copy(self) {
        for number in 0_usize.. {
            // Each copy leaves new names behind.
            sleep(5 * PAUSE).await;
            if !self.goes_on().await {
                return;
            }
            let mut names = Vec::new();
            for part in 0..COPIED_TOGETHER {
                let name = format!("{}_{number}_{part}", self.name);
                let put = self.put(Vault::Workspace, &name, self.doors.next()).await;
                names.extend(put.filter(|(verdict, _)| *verdict == Verdict::Done).map(|_| name));
            }
            if names.is_empty() {
                continue;
            }
            let (path, body) =
                (format!("{}/copy", path_of(&self.keys, Vault::Copies)), json!({"names": names}));
            let host = self.doors.next();
            let sent = self.doors.send(host, &self.keys.workspace, Method::POST, &path, &body).await;
            self.told.note_copy(names, sent.verdict());
        }
    }

    /// Asks a model.
    async fn ask(self, is_paid: bool) {
        let (model, key) =
            if is_paid { ("test/paid", &self.keys.paid) } else { ("test/open", &self.keys.workspace) };
        let body = json!({"model": model, "input": "x", "max_output_tokens": OUTPUT});
        while self.goes_on().await {
            let host = self.doors.next();
            let sent = self.doors.send(host, key, Method::POST, "/responses", &body).await;
            // What was refused or lost is no concern of these clients. Other statuses would be a mistake.
            let _ = sent.verdict();
            self.told.note_answer(is_paid, &sent);
        }
    }

    /// Makes keys and revokes them, while they are used through other hosts.
    async fn revoke(self) {
        while self.goes_on().await {
            let host = self.doors.next();
            let made = self
                .doors
                .send(host, &self.keys.provisioning, Method::POST, "/keys", &json!({"name": "short-lived"}))
                .await;
            if made.verdict() != Verdict::Done {
                continue;
            }
            let key = made.body["key"].as_str().unwrap().to_owned();
            let path = format!("/keys/{}", made.body["data"]["hash"].as_str().unwrap());
            let is_revoked = Arc::new(AtomicBool::new(false));
            let mut users = JoinSet::new();
            for other in self.doors.open().into_iter().filter(|other| *other != host) {
                users.spawn(use_key(Arc::clone(&self.doors), other, key.clone(), Arc::clone(&is_revoked)));
            }
            // Other hosts know a new key within about a quarter of a second.
            sleep(30 * PAUSE).await;
            let began = Instant::now();
            let answered = self.revoked(host, &path, began).await;
            is_revoked.store(true, Ordering::Release);
            let last = users.join_all().await.into_iter().flatten().max();
            if let (Some(answered), Some(last)) = (answered, last) {
                let after = last.saturating_duration_since(answered).as_millis() as i64;
                let before = answered.saturating_duration_since(last).as_millis() as i64;
                let revoked = Revoked { took: answered - began, last_success_ms: after - before };
                self.told.note_revoked(revoked);
            }
        }
    }

    /// When the answer came that a key is revoked. Asks again while that is in doubt; another host may be asked.
    async fn revoked(&self, host: usize, path: &str, began: Instant) -> Option<Instant> {
        let mut host = host;
        while began.elapsed() < super::super::PATIENCE {
            let body = Value::Null;
            let sent = self.doors.send(host, &self.keys.provisioning, Method::DELETE, path, &body).await;
            if sent.status == Some(404) || sent.verdict() == Verdict::Done {
                return Some(sent.answered);
            }
            sleep(PAUSE).await;
            host = self.doors.next();
        }
        None
    }
}

/// Uses a key until it is refused after its revocation. When the last request was sent that was served.
async fn use_key(
    doors: Arc<Doors>,
    host: usize,
    key: String,
    is_revoked: Arc<AtomicBool>,
) -> Option<Instant> {
    let (mut last, mut end) = (None, None);
    loop {
        let was_revoked = is_revoked.load(Ordering::Acquire);
        let sent = doors.get(host, &key, "/models").await;
        if sent.status == Some(200) {
            last = last.max(Some(sent.at));
        } else if was_revoked {
            return last;
        }
        if was_revoked && Instant::now() > *end.get_or_insert_with(|| Instant::now() + KEY_PATIENCE) {
            return last;
        }
        sleep(PAUSE / 2).await;
    }
}
