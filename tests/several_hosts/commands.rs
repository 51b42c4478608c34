//! Commands on a store in a database.

use super::Site;
use crate::kit::database;
use crate::kit::host::Setup;
use serde_json::Value;

/// Runs a command beside hosts, in a directory that none of them serves.
fn alone(site: &Site, line: &str) -> Value {
    let words: Vec<&str> = line.split(' ').collect();
    let output = site.host("").command_output(&words);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{line}: {:?}", output.stdout))
}

#[test]
fn commands_run_with_and_without_a_host() {
    let Some(site) = Site::new() else { return };
    let host = site.host("").start();
    // In a process of its own, and in the host of the directory.
    alone(&site, "workspace create research");
    alone(&site, "member create alice --workspace research");
    alone(&site, "credits add research 5");
    let made = alone(&site, "key create --workspace research --name notebook");
    assert!(made["key"].as_str().unwrap().starts_with("cfd_"));
    host.command(&["intern", "create", "reader", "--workspace", "default"]);
    for line in
        ["workspace list", "member list", "intern list", "key list", "secret list", "credits show research"]
    {
        let words: Vec<&str> = line.split(' ').collect();
        let deadline = std::time::Instant::now() + super::PATIENCE;
        // The host learns of the changes a moment later.
        while host.command(&words) != alone(&site, line) {
            assert!(std::time::Instant::now() < deadline, "{line} differs");
        }
    }
    let verified = alone(&site, "vault verify");
    assert_eq!(verified["ok"], true, "{verified}");
    assert_eq!(alone(&site, "usage")["total"]["requests"], 0);
    assert_eq!(alone(&site, "vault rotate-keys")["keys_deleted"], 0);
}

#[test]
fn status_names_the_engine_and_the_hosts_of_the_database() {
    let Some(site) = Site::new() else { return };
    let host = site.host("").start();
    let at = format!("127.0.0.1:{}", site.database.port);
    for (status, serves) in [(alone(&site, "status"), false), (host.command(&["status"]), true)] {
        let store = &status["store"];
        assert_eq!(
            (&store["engine"], &store["database_hosts"][0]),
            (&"postgres".into(), &at.as_str().into())
        );
        assert_eq!(status["serving"].is_object(), serves, "{status}");
        assert!(!status.to_string().contains(&site.database.password));
    }
    let findings = host.command_output(&["doctor", "--offline"]);
    let findings: Value = serde_json::from_slice(&findings.stdout).unwrap();
    let store = findings["findings"].as_array().unwrap().iter().find(|it| it["id"] == "store").unwrap();
    assert!(store["text"].as_str().unwrap().contains(&at), "{store}");
}

#[test]
fn an_upgrade_says_that_there_is_nothing_to_upgrade() {
    let Some(site) = Site::new() else { return };
    let host = site.host("").start();
    let newest = host.command(&["status"])["store"]["newest_schema"].clone();
    assert!(newest.is_u64(), "{newest}");
    for ended in [alone(&site, "store upgrade"), host.command(&["store", "upgrade"])] {
        assert_eq!(ended, serde_json::json!({"schema_before": newest, "schema": newest}));
    }
    assert_eq!(host.command(&["status"])["store"]["schema"], newest);
}

#[test]
fn an_upgrade_of_a_data_directory_does_nothing_and_makes_no_store() {
    if database::is_wanted() {
        return;
    }
    let setup = Setup::new();
    let (code, text) = super::failed(&setup.command_output(&["store", "upgrade"]));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("no store in"), "{text}");
    let host = setup.start();
    assert_eq!(host.command(&["store", "upgrade"])["schema"], Value::Null);
    assert_eq!(host.command(&["status"])["store"]["schema"], Value::Null);
}

#[test]
fn usage_rows_are_dropped_only_when_that_was_confirmed_and_only_from_a_database() {
    let Some(site) = Site::new() else { return };
    let host = site.host("").start();
    let drop = ["usage", "drop", "--before", "2026-01-31"];
    let (code, text) = super::failed(&host.command_output(&drop));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("Delete the usage rows of all requests of days before 2026-01-31?"), "{text}");
    let nothing = serde_json::json!({"before": "2026-01-31", "rows": 0});
    assert_eq!(host.command(&[&drop[..], &["--yes"]].concat()), nothing);
    assert_eq!(alone(&site, "usage drop --before 2026-01-31 --yes"), nothing);
    for (day, status, part) in
        [("2999-01-01", 1, "only the usage of days that are over"), ("soon", 2, "written like")]
    {
        let refused = host.command_output(&["usage", "drop", "--before", day, "--yes"]);
        let (code, text) = super::failed(&refused);
        assert!(code == Some(status) && text.contains(part), "{day}: {text}");
    }
    if !database::is_wanted() {
        let embedded = Setup::new().start();
        let (code, text) = super::failed(&embedded.command_output(&[&drop[..], &["--yes"]].concat()));
        assert!(code == Some(1) && text.contains("this one is in a data directory"), "{text}");
    }
}

#[test]
fn a_schema_of_a_later_version_is_refused_with_both_numbers_unless_it_only_adds() {
    let Some(site) = Site::new() else { return };
    let newest = alone(&site, "status")["store"]["newest_schema"].as_u64().unwrap();
    let server = cofferdam_test_postgres::Server::shared().unwrap();
    let set = |row: &str| {
        let sql = format!("UPDATE store SET body = '{row}' WHERE k = 'schema'");
        server.query_in(&site.database.name, &sql).unwrap();
    };
    set("900");
    for line in [&["serve"][..], &["status"], &["store", "upgrade"]] {
        let (code, text) = super::failed(&site.host("").command_output(line));
        assert_eq!(code, Some(69), "{line:?}: {text}");
        let numbers = format!("the database has schema 900, this program works with {newest}");
        assert!(text.contains(&numbers), "{line:?}: {text}");
    }
    set(&format!("900 {newest}"));
    assert_eq!(alone(&site, "status")["store"]["schema"], 900);
    site.host("").start();
}

#[test]
fn the_audit_log_is_read_page_by_page_from_any_position() {
    let Some(site) = Site::new() else { return };
    for name in ["a", "b", "c"] {
        alone(&site, &format!("workspace create {name}"));
    }
    let records = alone(&site, "vault audit");
    let positions: Vec<u64> =
        records.as_array().unwrap().iter().map(|record| record["position"].as_u64().unwrap()).collect();
    assert!(positions.len() >= 5 && positions.is_sorted(), "{positions:?}");
    let records = records.as_array().unwrap();
    let read = |line: &str| alone(&site, line).as_array().unwrap().clone();
    assert_eq!(read(&format!("vault audit --since {}", positions[1])), records[2..]);
    assert_eq!(read("vault audit --newest 2"), records[records.len() - 2..]);
    assert_eq!(read(&format!("vault audit --newest 2 --before {}", positions[4])), records[2..4]);
    assert_eq!(read(&format!("vault audit --newest 9 --before {}", positions[1])), records[..1]);
}
