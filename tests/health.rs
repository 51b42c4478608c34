//! `health`: the answer of a host as an exit status, with TLS and without.

use crate::kit::admin::Admin;
use crate::kit::host::{Host, Setup, program, write_certificate};
use crate::kit::site::Authority;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};

/// The configuration that names the address of a running host.
fn config_of(host: &Host) -> String {
    let admin = host.banner["admin"].as_str().unwrap();
    let tls =
        if host.root.is_some() { "[server.tls]\ncertificate = \"tls.crt\"\nkey = \"tls.key\"\n" } else { "" };
    format!("[server]\nadmin = \"{admin}\"\n{tls}")
}

/// `health` with the configuration of a directory, and without a data directory.
fn health(directory: &Path, arguments: &[&str]) -> Output {
    let mut command: Command = program();
    command.current_dir(directory).arg("--config").arg("health.toml").arg("health").args(arguments);
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn a_ready_host_is_exit_status_0() {
    for setup in [Setup::new(), Setup::new().tls(&Authority::new().issue(&["127.0.0.1"]))] {
        let host = setup.start();
        Admin::new(&host).until_ready().await;
        std::fs::write(host.directory().join("health.toml"), config_of(&host)).unwrap();
        let output = health(host.directory(), &[]);
        assert_eq!(
            (output.status.code(), text(&output.stdout)),
            (Some(0), format!("ready: {}/readyz\n", host.admin))
        );
        let output = health(host.directory(), &["--json"]);
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&document["ready"], &document["answer"]["store_writable"]), (&json!(true), &json!(true)));
    }
}

#[tokio::test]
async fn a_host_that_stops_is_exit_status_1_with_the_reason() {
    let host = Setup::new().config("[timeouts]\nunready_ms = 3600000\ndrain_ms = 3600000").start();
    let admin = Admin::new(&host);
    admin.until_ready().await;
    std::fs::write(host.directory().join("health.toml"), config_of(&host)).unwrap();
    host.signal("TERM");
    admin.until_draining().await;
    let output = health(host.directory(), &[]);
    let error = text(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    assert!(
        error.contains("not ready") && error.contains("503") && error.contains("it is stopping"),
        "{error}"
    );
    let output = health(host.directory(), &["--json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((document["ready"].clone(), output.status.code()), (json!(false), Some(1)));
}

#[tokio::test]
async fn no_host_and_a_host_that_says_nothing_are_exit_status_1() {
    let folder = tempfile::tempdir().unwrap();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    std::fs::write(folder.path().join("health.toml"), format!("[server]\nadmin = \"{address}\"\n")).unwrap();
    let output = health(folder.path(), &[]);
    assert!(text(&output.stderr).contains("no answer within 5 seconds"), "{output:?}");
    assert_eq!(output.status.code(), Some(1));
    drop(silent);
    let output = health(folder.path(), &[]);
    assert!(text(&output.stderr).contains("is the host running"), "{output:?}");
    assert_eq!(output.status.code(), Some(1));
}

#[tokio::test]
async fn a_url_is_asked_in_place_of_the_configuration() {
    let authority = Authority::new();
    let (own, other) = (authority.issue(&["127.0.0.1"]), authority.issue(&["127.0.0.1"]));
    let host = Setup::new().tls(&own).start();
    Admin::new(&host).until_ready().await;
    std::fs::write(host.directory().join("health.toml"), config_of(&host)).unwrap();
    let output = health(host.directory(), &["--url", &host.admin]);
    assert!(output.status.success(), "the certificate of the configuration is trusted: {output:?}");
    // A certificate that no root of the system has issued, and that is not that of the configuration.
    let folder = tempfile::tempdir().unwrap();
    write_certificate(folder.path(), &other);
    std::fs::write(folder.path().join("health.toml"), config_of(&host)).unwrap();
    let output = health(folder.path(), &["--url", &host.admin]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("TLS: "), "{output:?}");
    let output = health(folder.path(), &[]);
    assert!(output.status.success(), "the configured address may serve the certificate before: {output:?}");
}

#[test]
fn mistakes_are_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("health.toml"), "[server]\nadmin = \"127.0.0.1:0\"\n").unwrap();
    let output = health(folder.path(), &[]);
    assert!(text(&output.stderr).contains("name it with --url"), "{output:?}");
    let output = health(folder.path(), &["--url", "127.0.0.1:8081"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("expected http://HOST:PORT"), "{output:?}");
    std::fs::write(folder.path().join("health.toml"), "[server]\nadmin = 5\n").unwrap();
    assert_eq!(health(folder.path(), &[]).status.code(), Some(78));
}

#[tokio::test]
async fn a_file_that_the_running_host_does_not_use_yet_makes_no_host_ill() {
    let host = Setup::new().start();
    Admin::new(&host).until_ready().await;
    let silent = crate::kit::upstream::Closed::new().base;
    let silent = silent.trim_start_matches("http://").trim_end_matches("/v1");
    let config = |admin: &str| format!("[server]\nadmin = \"{admin}\"\n");
    for config in ["[server]\nadmin = 5\n".to_owned(), config(silent)] {
        std::fs::write(host.directory().join("cofferdam.toml"), config).unwrap();
        assert_ready(&host);
    }
    let host = Setup::new().tls(&Authority::new().issue(&["127.0.0.1"])).start();
    Admin::new(&host).until_ready().await;
    let without_tls = config(host.banner["admin"].as_str().unwrap());
    std::fs::write(host.directory().join("cofferdam.toml"), without_tls).unwrap();
    assert_ready(&host);
}

fn assert_ready(host: &Host) {
    let output = host.command_to_run(&["health"]).output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let url = format!("{}/readyz", host.admin);
    assert_eq!((&document["ready"], &document["url"]), (&json!(true), &json!(url)), "{output:?}");
}

#[tokio::test]
async fn a_host_that_was_killed_is_not_ready() {
    let mut host = Setup::new().start();
    Admin::new(&host).until_ready().await;
    let admin = host.banner["admin"].as_str().unwrap();
    std::fs::write(host.directory().join("cofferdam.toml"), format!("[server]\nadmin = \"{admin}\"\n"))
        .unwrap();
    host.kill();
    assert!(host.data().join("admin.url").exists());
    let output = host.command_to_run(&["health"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}
