//! `tour`: the whole story in a temporary directory, as text and as JSON. Nothing is left behind,
//! whether it succeeds, fails or is interrupted.

use crate::kit::host::program;
use crate::kit::processes::{children, runs};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// A tour whose temporary directory is made in this one.
fn tour(within: &Path) -> Command {
    let mut command = program();
    command.arg("tour").env("TMPDIR", within);
    command
}

fn is_empty(directory: &TempDir) -> bool {
    std::fs::read_dir(directory.path()).unwrap().count() == 0
}

fn text(output: &Output) -> String {
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn the_server_gets_the_value_and_everyone_else_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let document = text(&tour(directory.path()).arg("--json").output().unwrap());
    assert_eq!(document.lines().count(), 1, "{document}");
    let document: Value = serde_json::from_str(&document).unwrap();
    let value = document["value"].as_str().unwrap();
    assert!(value.starts_with("canary-") && value.len() > 30, "{value}");
    assert_eq!(document["received"]["authorization"], format!("Bearer {value}"));
    assert_eq!(document["received"]["method"], "GET");
    let answer = document["answer"].as_str().unwrap();
    assert!(answer.contains("Bearer [secret:tour_token]") && !answer.contains(value), "{answer}");
    assert_eq!(document["call"]["type"], "service:http_request");
    assert_eq!(document["call"]["http_status"], 200);
    let entry = &document["audit"]["entries"][0];
    assert_eq!(
        (entry["action"].as_str(), entry["name"].as_str()),
        (Some("secret_released"), Some("tour_token"))
    );
    for count in ["answer_bytes", "log_bytes", "files", "file_bytes"] {
        assert!(document["searched"][count].as_u64().unwrap() > 0, "{count} in {document}");
    }
    assert!(is_empty(&directory), "the directory of the tour is left");
}

#[test]
fn the_text_has_all_steps_and_no_colours_outside_a_terminal() {
    let directory = tempfile::tempdir().unwrap();
    let text = text(&tour(directory.path()).env_remove("NO_COLOR").output().unwrap());
    let headings = text.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_digit()));
    assert_eq!(headings.count(), 7, "{text}");
    for part in ["$ cofferdam secret put tour_token", "authorization: Bearer canary-", "[secret:tour_token]"]
    {
        assert!(text.contains(part), "no {part} in {text}");
    }
    assert!(!text.contains('\x1b'), "{text}");
    assert!(text.lines().all(|line| line == line.trim_end()), "{text}");
}

#[test]
fn a_step_that_fails_is_named() {
    let output = tour(Path::new("/dev/null")).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(
        complaint.starts_with("error: the tour failed while making a temporary directory: "),
        "{complaint}"
    );
    assert!(output.stdout.is_empty());
}

#[test]
fn an_interrupted_tour_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let child = tour(directory.path()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    while is_empty(&directory) {
        std::thread::yield_now();
    }
    let status = Command::new("kill").arg("-INT").arg(child.id().to_string()).status().unwrap();
    assert!(status.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8(output.stderr).unwrap().trim_end().ends_with("interrupted"));
    assert!(is_empty(&directory), "the directory of the tour is left");
}

#[test]
fn a_killed_tour_leaves_no_host() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = tour(directory.path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut host = children(child.id());
    while host.is_empty() && child.try_wait().unwrap().is_none() {
        host = children(child.id());
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while host.iter().any(|pid| runs(pid)) {
        assert!(std::time::Instant::now() < end, "{host:?} runs without the tour");
        std::thread::yield_now();
    }
}
