//! A store that comes from a data directory, or from a backup.

use super::backups::{hosts, places, told};
use super::{Site, audit, demo, failed, names, put};
use crate::kit::client::Client;
use crate::kit::database;
use crate::kit::host::{Host, Setup};
use cofferdam_test_postgres::Database;
use serde_json::Value;

/// An embedded store with a secret and a finished request.
async fn used() -> Host {
    let host = Setup::new().start();
    let client = Client::new(&host);
    assert_eq!(put(&client, "own_key", "api.example.com", "a value").await.status, 200);
    assert_eq!(client.ask(&demo(), false).await["status"], "completed");
    host
}

/// The same directory with a configuration that names the database.
fn shared(host: &Host, site: &Site) -> Setup {
    Setup::after(host).config(&database::section(&site.database, host.directory()))
}

fn requests(host: &Host) -> Value {
    host.command(&["usage"])["total"]["requests"].clone()
}

#[tokio::test]
async fn a_store_of_a_data_directory_goes_on_in_a_database() {
    let Some(site) = Site::empty() else { return };
    if database::is_wanted() {
        return;
    }
    let mut embedded = used().await;
    let before = audit(&embedded);
    let in_use = shared(&embedded, &site).command_output(&["store", "migrate"]);
    assert_eq!(failed(&in_use).0, Some(1), "a host serves the store");
    embedded.end();
    let setup = Setup::after(&embedded);
    let moved = setup.command_output(&["store", "migrate"]);
    assert!(moved.status.success(), "{}", String::from_utf8_lossy(&moved.stderr));
    let moved: Value = serde_json::from_slice(&moved.stdout).unwrap();
    assert_eq!((&moved["secrets"], &moved["keys"]), (&1.into(), &1.into()));
    // Twice is once.
    let (code, text) = failed(&setup.command_output(&["store", "migrate"]));
    assert_eq!(code, Some(78), "{text}");
    assert!(text.contains("is in a database now"), "{text}");

    let (a, b) = (setup.start(), {
        std::fs::copy(embedded.data().join("root.key"), site.root_key()).unwrap();
        site.host("").key(&embedded.key).start()
    });
    for host in [&a, &b] {
        assert_eq!(names(&Client::new(host)).await, ["own_key"]);
        assert_eq!(Client::new(host).ask(&demo(), false).await["status"], "completed");
    }
    let after = audit(&a);
    assert_eq!(
        after[..before.len()].iter().map(entries).collect::<Vec<_>>(),
        before.iter().map(entries).collect::<Vec<_>>()
    );
    // Each commit of before has a record, and its number is still a cursor.
    let last = after.iter().position(|record| record["entries"][0]["action"] == "moved").unwrap();
    let since = a.command(&["vault", "audit", "--since", &last.to_string()]);
    assert_eq!(since[0], after[last]);
    assert_eq!(a.command(&["vault", "verify"])["ok"], true);
    let end = std::time::Instant::now() + super::PATIENCE;
    while requests(&a) != 3 {
        assert!(std::time::Instant::now() < end, "{}", requests(&a));
    }
}

fn entries(record: &Value) -> &Value {
    &record["entries"]
}

#[tokio::test]
async fn a_moved_store_is_not_served_from_its_directory_again() {
    let Some(site) = Site::empty() else { return };
    if database::is_wanted() {
        return;
    }
    let mut embedded = used().await;
    embedded.end();
    let alone = Setup::after(&embedded);
    assert!(shared(&embedded, &site).command_output(&["store", "migrate"]).status.success());
    for line in [&["serve"][..], &["status"]] {
        let (code, text) = failed(&alone.command_output(line));
        assert_eq!(code, Some(78), "{line:?}: {text}");
        assert!(text.contains("store.moved") && text.contains("[store] url"), "{line:?}: {text}");
    }
    // What the operator may decide.
    std::fs::remove_file(embedded.data().join("store.moved")).unwrap();
    assert_eq!(names(&Client::new(&alone.start())).await, ["own_key"]);
}

#[test]
fn a_move_that_cannot_be_made_is_refused() {
    let Some(site) = Site::new() else { return };
    if database::is_wanted() {
        return;
    }
    let (code, text) = failed(&Setup::new().config("[store]").command_output(&["store", "migrate"]));
    assert_eq!(code, Some(78), "{text}");
    assert!(text.contains("names no database"), "{text}");
    let empty = site.host("");
    let (code, text) = failed(&empty.command_output(&["store", "migrate"]));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("has no store to move"), "{text}");
    let away = Database { port: 1, ..site.database.clone() };
    for (database, expected, says) in
        [(&site.database, 1, "the database has a store already"), (&away, 69, "127.0.0.1:1")]
    {
        let mut embedded = Setup::new().start();
        embedded.end();
        let alone = Setup::after(&embedded);
        let setup = Setup::after(&embedded).config(&database::section(database, embedded.directory()));
        let (code, text) = failed(&setup.command_output(&["store", "migrate"]));
        assert_eq!(code, Some(expected), "{text}");
        assert!(text.contains(says), "{text}");
        alone.start();
    }
}

#[tokio::test]
async fn a_backup_is_restored_into_a_database() {
    let Some(site) = Site::empty() else { return };
    if database::is_wanted() {
        return;
    }
    let mut embedded = used().await;
    let backup = embedded.directory().join("backup");
    let path = backup.display().to_string();
    embedded.command(&["vault", "backup", &path]);
    embedded.end();
    std::fs::copy(embedded.data().join("root.key"), site.root_key()).unwrap();
    let setup = site.host("").key(&embedded.key);
    let mut cut = std::fs::read(&backup).unwrap();
    let middle = cut.len() / 2;
    cut[middle] ^= 1;
    let damaged = embedded.directory().join("damaged");
    std::fs::write(&damaged, cut).unwrap();
    let (code, text) = failed(&setup.command_output(&["vault", "restore", &damaged.display().to_string()]));
    assert_eq!(code, Some(1), "{text}");
    let (code, text) = failed(&setup.command_output(&["status"]));
    assert_eq!(code, Some(78), "nothing was made: {text}");
    let restored = setup.command_output(&["vault", "restore", &path]);
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    let host = setup.start();
    assert_eq!(names(&Client::new(&host)).await, ["own_key"]);
    assert_eq!(host.command(&["vault", "verify"])["ok"], true);
}

#[tokio::test]
async fn a_shared_store_goes_back_into_a_data_directory() {
    let Some(site) = Site::new() else { return };
    if database::is_wanted() {
        return;
    }
    let [mut one, mut other] = hosts(&site).await;
    let (before, records) = (told(&one).await, audit(&one));
    let back = ["store", "migrate", "--to-directory"];
    one.end();
    let setup = Setup::after(&one);
    let (code, text) = failed(&setup.command_output(&back));
    assert_eq!(code, Some(1), "{text}");
    let process = format!("process {} (version ", other.pid());
    assert!(text.contains("end them first") && text.contains(&process), "{text}");
    other.end();
    let moved = setup.command_output(&back);
    assert!(moved.status.success(), "{}", String::from_utf8_lossy(&moved.stderr));
    let moved: Value = serde_json::from_slice(&moved.stdout).unwrap();
    assert_eq!((&moved["secrets"], &moved["keys"]), (&2.into(), &1.into()));
    // The database is not served any more, from whichever directory.
    for line in [&["serve"][..], &["status"], &back] {
        let (code, text) = failed(&Setup::after(&other).command_output(line));
        assert_eq!(code, Some(78), "{line:?}: {text}");
        assert!(text.contains("moved into a data directory"), "{line:?}: {text}");
    }
    let (code, text) = failed(&setup.command_output(&back));
    assert!(code == Some(1) && text.contains("a directory without one"), "{text}");

    let config = one.directory().join("cofferdam.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace(&database::section(&site.database, site.folder.path()), ""))
        .unwrap();
    let alone = Setup::after(&one).start();
    assert_eq!(alone.command(&["status"])["store"]["engine"], "embedded");
    assert_eq!(told(&alone).await, before);
    let now = audit(&alone);
    assert_eq!(places(&now)[..records.len()], places(&records));
    assert!(now.iter().any(|record| record.to_string().contains("\"moved_back\"")), "{now:?}");
    assert_eq!(Client::new(&alone).ask(&demo(), false).await["status"], "completed");
    assert_eq!(alone.command(&["vault", "verify"])["ok"], true);
}
