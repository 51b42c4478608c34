//! The first steps with the program: an empty directory, one key, one command line.

use crate::kit::client::{Client, text_of};
use crate::kit::host::{Setup, program, send_signal};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::Stdio;

#[tokio::test]
async fn first_start_prints_a_key_and_a_command_that_streams_a_response() {
    let host = Setup::new().start();
    assert!(host.key.starts_with("cfd_"), "{}", host.banner);
    let curl = host.banner["curl"].as_str().unwrap();
    assert!(curl.contains(&host.key) && curl.contains(&host.base), "{curl}");
    let output = std::process::Command::new("sh").arg("-c").arg(curl).output().unwrap();
    let stream = String::from_utf8(output.stdout).unwrap();
    assert!(stream.contains("event: response.output_text.delta"), "{stream}");
    assert!(stream.trim_end().ends_with("data: [DONE]"), "{stream}");
    assert!(!host.log().contains(&host.key), "the key is in the log");
}

#[tokio::test]
async fn a_later_start_prints_no_key_and_the_first_key_still_works() {
    let host = Setup::new().start().restart();
    assert!(host.banner.get("key").is_none());
    let request = json!({"model": "local/demo", "input": "good morning"});
    let events = Client::new(&host).stream(&request).await;
    assert!(text_of(&events).contains("good morning"));
}

#[test]
fn a_first_key_that_cannot_be_shown_is_revoked() {
    let setup = Setup::new();
    let mut host = setup.serve().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(host.stdout.take());
    let mut log = BufReader::new(host.stderr.take().unwrap()).lines();
    let warned =
        log.any(|line| line.unwrap().contains("the first key could not be written to standard output"));
    send_signal(host.id(), "TERM");
    let rest: Vec<String> = log.map_while(Result::ok).collect();
    assert_eq!((warned, host.wait().unwrap().code()), (true, Some(0)), "{rest:?}");
    let listed = setup.command_output(&["key", "list"]);
    let keys: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert!(keys[0]["revoked_at"].is_string(), "{keys}");
}

#[test]
fn greeting_names_the_console_where_it_is_served() {
    for (admin, served) in [("127.0.0.1:0", true), ("0.0.0.0:0", false)] {
        let folder = tempfile::tempdir().unwrap();
        let mut command = program();
        command.arg("--data").arg(folder.path().join("data"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--admin", admin]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let greeting: Vec<String> = lines.take_while(|line| line != "Try it:").collect();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(greeting[0].contains("; console, health and metrics on http://"), served, "{greeting:?}");
        let how = greeting.iter().any(|line| line.starts_with("`cofferdam console` prints a link"));
        assert_eq!(how, served, "{greeting:?}");
    }
}
