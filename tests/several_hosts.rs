//! Hosts that share a store in a PostgreSQL database.

mod backups;
mod commands;
mod faults;
mod leased;
mod limits;
mod moving;
mod outages;
mod rotation;
mod set_back;
mod sharing;
mod stale;
mod starting;

use crate::kit::client::{Answer, Client, read};
use crate::kit::database;
use crate::kit::host::{Host, Setup};
use cofferdam_test_postgres::{Database, installed};
use reqwest::Method;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Instant;
use tempfile::TempDir;

/// How long a host may take to learn what another one has changed.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

/// A database, and what its hosts have in common.
struct Site {
    database: Database,
    folder: TempDir,
    /// The key that `store create` has shown.
    key: String,
}

impl Site {
    /// A database without a store; `None` where PostgreSQL is not installed.
    fn empty() -> Option<Self> {
        installed().then(|| Self::on(database::fresh()))
    }

    fn on(database: Database) -> Self {
        Self { database, folder: tempfile::tempdir().unwrap(), key: String::new() }
    }

    /// A database with a store.
    fn new() -> Option<Self> {
        Some(Self::empty()?.made())
    }

    fn made(mut self) -> Self {
        let made = self.host("").command_output(&["store", "create"]);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let made: Value = serde_json::from_slice(&made.stdout).unwrap();
        made["key"].as_str().unwrap().clone_into(&mut self.key);
        self
    }

    fn root_key(&self) -> PathBuf {
        self.folder.path().join("root.key")
    }

    /// A host with a directory of its own.
    fn host(&self, config: &str) -> Setup {
        let root_key = format!("[vault]\nroot_key = \"file:{}\"\n", self.root_key().display());
        let store = database::section(&self.database, self.folder.path());
        Setup::new().config(config).config(&root_key).config(&store).key(&self.key)
    }
}

/// Asks until the answer has this status: a host learns of changes elsewhere a moment later.
async fn until(status: u16, ask: impl AsyncFn() -> Answer) -> Answer {
    let end = Instant::now() + PATIENCE;
    loop {
        let answer = ask().await;
        if answer.status == status {
            return answer;
        }
        assert!(Instant::now() < end, "{} in place of {status}: {}", answer.status, answer.text);
        tokio::task::yield_now().await;
    }
}

async fn put(client: &Client, name: &str, host: &str, value: &str) -> Answer {
    let body = json!({"hosts": [host], "value": value}).to_string();
    let request = client.request(Method::PUT, &format!("/vault/secrets/{name}"));
    read(request.header("content-type", "application/json").body(body).send().await.unwrap()).await
}

async fn names(client: &Client) -> Vec<String> {
    let answer = client.get("/vault/secrets").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let listed = answer.body["data"].as_array().unwrap().iter();
    listed.map(|secret| secret["name"].as_str().unwrap().to_owned()).collect()
}

fn demo() -> Value {
    json!({"model": "local/demo", "input": "Hello"})
}

/// Exit status and standard error of a start that must fail.
fn refused(setup: Setup) -> (Option<i32>, String) {
    let output = setup.fail();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The same of a command.
fn failed(output: &std::process::Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The audit log of the whole store.
fn audit(host: &Host) -> Vec<Value> {
    host.command(&["vault", "audit"]).as_array().unwrap().clone()
}
