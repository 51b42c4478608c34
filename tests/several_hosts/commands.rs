//! Commands on a store in a database.

use super::Site;
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
fn the_audit_log_is_read_page_by_page_from_any_position() {
    let Some(site) = Site::new() else { return };
    for name in ["a", "b", "c"] {
        alone(&site, &format!("workspace create {name}"));
    }
    let records = alone(&site, "vault audit");
    let positions: Vec<u64> =
        records.as_array().unwrap().iter().map(|record| record["position"].as_u64().unwrap()).collect();
    assert!(positions.len() >= 5 && positions.is_sorted(), "{positions:?}");
    let rest = alone(&site, &format!("vault audit --since {}", positions[1]));
    assert_eq!(rest.as_array().unwrap()[..], records.as_array().unwrap()[2..]);
}
