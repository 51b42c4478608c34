//! Backups of a store that several hosts share.

use super::{PATIENCE, Site, audit, demo, failed, names, put};
use crate::kit::client::Client;
use crate::kit::database;
use crate::kit::host::{Host, Setup};
use serde_json::Value;
use std::path::Path;
use std::time::Instant;

/// What must be the same in a restored store.
#[derive(Debug, PartialEq)]
pub(super) struct Told {
    usage: Value,
    keys: Value,
    secrets: Vec<String>,
}

pub(super) async fn told(host: &Host) -> Told {
    Told {
        usage: host.command(&["usage"])["total"].clone(),
        keys: host.command(&["key", "list"]),
        secrets: names(&Client::new(host)).await,
    }
}

/// Two hosts of a store with a secret and a finished request of each.
pub(super) async fn hosts(site: &Site) -> [Host; 2] {
    let hosts = [site.host("").start(), site.host("").start()];
    for (host, name) in hosts.iter().zip(["first_key", "second_key"]) {
        let client = Client::new(host);
        assert_eq!(put(&client, name, "api.example.com", "a value").await.status, 200);
        assert_eq!(client.ask(&demo(), false).await["status"], "completed");
    }
    let end = Instant::now() + PATIENCE;
    while hosts[0].command(&["usage"])["total"]["requests"] != 2 {
        assert!(Instant::now() < end, "the rows of both requests are committed");
    }
    hosts
}

/// The same records, each with the number that `--since` takes.
pub(super) fn places(records: &[Value]) -> Vec<(Value, u64)> {
    let place = |record: &Value| record["position"].as_u64().or_else(|| record["seq"].as_u64()).unwrap();
    records.iter().map(|record| (record["entries"].clone(), place(record))).collect()
}

/// Starts a host on a restored store and compares it with what the hosts of before said.
async fn assert_restored(setup: Setup, before: &Told, records: &[Value]) -> Host {
    let host = setup.start();
    assert_eq!(told(&host).await, *before);
    let now = audit(&host);
    let cursors = places(&now);
    assert_eq!(cursors[..records.len()], places(records));
    assert!(cursors.is_sorted_by_key(|(_, place)| *place), "{cursors:?}");
    let last = cursors[records.len() - 1].1;
    let rest = host.command(&["vault", "audit", "--since", &last.to_string()]);
    assert_eq!(rest.as_array().unwrap()[..], now[records.len()..]);
    assert!(rest.to_string().contains("\"restored\""), "{rest}");
    assert_eq!(host.command(&["vault", "verify"])["ok"], true);
    let client = Client::new(&host);
    assert_eq!(client.ask(&demo(), false).await["status"], "completed");
    assert_eq!(put(&client, "third_key", "api.example.com", "a value").await.status, 200);
    assert_eq!(host.command(&["vault", "verify"])["ok"], true);
    host
}

/// A host with the root key and a data directory without a store.
fn alone(site: &Site) -> Setup {
    let root_key = format!("[vault]\nroot_key = \"file:{}\"\n", site.root_key().display());
    Setup::new().config(&root_key).key(&site.key)
}

fn backup(host: &Host, file: &Path) -> Value {
    host.command(&["vault", "backup", &file.display().to_string()])
}

fn restore(setup: &Setup, file: &Path) {
    let output = setup.command_output(&["vault", "restore", &file.display().to_string()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn a_backup_of_a_shared_store_is_restored_into_either_engine() {
    let Some(site) = Site::new() else { return };
    if database::is_wanted() {
        return;
    }
    let hosts = hosts(&site).await;
    let file = site.folder.path().join("backup");
    let before = told(&hosts[1]).await;
    let made = backup(&hosts[1], &file);
    let records = audit(&hosts[0]);
    // The last commit may have rows of usage only.
    assert!(made["seq"].as_u64() >= records.last().unwrap()["position"].as_u64(), "{made} {records:?}");
    // Not in the backup.
    assert_eq!(put(&Client::new(&hosts[0]), "later", "api.example.com", "a value").await.status, 200);
    let findings = hosts[1].command_output(&["doctor", "--offline"]);
    assert!(String::from_utf8_lossy(&findings.stdout).contains("backup"), "the last one is noted");

    let embedded = alone(&site);
    restore(&embedded, &file);
    let alone = assert_restored(embedded, &before, &records).await;

    let mut other = Site::empty().unwrap();
    other.key.clone_from(&site.key);
    std::fs::copy(site.root_key(), other.root_key()).unwrap();
    restore(&other.host(""), &file);
    assert_restored(other.host(""), &before, &records).await;

    // What was restored is backed up and moved like every other store.
    let (before, records) = (told(&alone).await, audit(&alone));
    let again = site.folder.path().join("again");
    backup(&alone, &again);
    let mut third = Site::empty().unwrap();
    third.key.clone_from(&site.key);
    std::fs::copy(site.root_key(), third.root_key()).unwrap();
    restore(&third.host(""), &again);
    assert_restored(third.host(""), &before, &records).await;
}

#[tokio::test]
async fn a_backup_of_a_shared_store_that_was_changed_or_cut_is_refused() {
    let Some(site) = Site::new() else { return };
    if database::is_wanted() {
        return;
    }
    let hosts = hosts(&site).await;
    let file = site.folder.path().join("backup");
    let path = file.display().to_string();
    // In a process of its own, beside both hosts.
    let made = site.host("").command_output(&["vault", "backup", &path]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let (code, text) = failed(&hosts[0].command_output(&["vault", "backup", &path]));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("exists already"), "{text}");
    let whole = std::fs::read(&file).unwrap();
    assert!(!whole.windows(7).any(|window| window == b"a value"), "values are encrypted");
    let edited = site.folder.path().join("edited");
    let mut flipped = whole.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    let other = Site::empty().unwrap();
    std::fs::copy(site.root_key(), other.root_key()).unwrap();
    let embedded = alone(&site);
    for content in [&flipped[..], &whole[..middle], &whole[..whole.len() - 1]] {
        std::fs::write(&edited, content).unwrap();
        for setup in [&other.host(""), &embedded] {
            let output = setup.command_output(&["vault", "restore", &edited.display().to_string()]);
            let (code, text) = failed(&output);
            assert_eq!(code, Some(1), "{text}");
            assert!(text.contains("cannot be restored"), "{text}");
        }
    }
    let (code, text) = failed(&other.host("").command_output(&["status"]));
    assert_eq!(code, Some(78), "nothing was made: {text}");
    let (code, text) = failed(&embedded.command_output(&["status"]));
    assert!(code == Some(1) && text.contains("no store"), "nothing was made: {text}");
}

#[tokio::test]
async fn a_backup_is_read_from_the_server_that_the_configuration_names_for_it() {
    let Some(site) = Site::new() else { return };
    let cofferdam_test_postgres::Database { user, port, name, .. } = &site.database;
    let from = |port: u16| format!("backup_url = \"postgres://{user}@127.0.0.1:{port}/{name}\"\n");
    let backup = site.folder.path().join("backup");
    let line = ["vault", "backup", backup.to_str().unwrap()];
    // A port of loopback that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (code, text) = failed(&site.host("").config(&from(free)).command_output(&line));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(&format!("127.0.0.1:{free}")), "{text}");
    let host = site.host("").config(&from(*port)).start();
    let client = Client::new(&host);
    assert_eq!(put(&client, "first_key", "api.example.com", "a value").await.status, 200);
    assert_eq!(host.command(&line)["file"], backup.to_str().unwrap());
}
