//! Signals that end the host: running requests finish within the drain time, new ones are refused.

use super::{chat_model, finish, running_stream};
use crate::kit::admin::Admin;
use crate::kit::client::{Client, events_of};
use crate::kit::deadline;
use crate::kit::host::{Setup, send_signal};
use crate::kit::raw::{Raw, post_head};
use crate::kit::upstream::{Reply, Upstream};
use cofferdam_store::DirectoryLock;
use rustix::fs::OFlags;
use serde_json::json;
use std::cell::OnceCell;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Stdio;
use tokio::net::TcpStream;

#[tokio::test]
async fn stopping_host_finishes_running_requests_and_takes_no_new_ones() {
    let upstream = Upstream::start().await;
    let mut host = Setup::new().config(&chat_model(&upstream.base, "m")).start();
    let admin = Admin::new(&host);
    let (feed, mut response, mut text) = running_stream(&host, &upstream).await;
    host.signal("TERM");
    admin.until_draining().await;
    assert_eq!(admin.get("/readyz").await.status, 503);
    let address = host.base.trim_start_matches("http://").trim_end_matches("/v1").to_owned();
    deadline::until("refused connections", async || TcpStream::connect(&address).await.is_err()).await;
    finish(feed, &mut response, &mut text).await;
    assert_eq!(host.wait().code(), Some(0), "{}", host.log());
    assert_eq!(host.rest_of_stdout(), "");
}

#[tokio::test]
async fn stopping_host_accepts_requests_during_the_unready_window() {
    let config = "[timeouts]\nunready_ms = 3600000\ndrain_ms = 3600000\n";
    let mut host = Setup::new().config(config).start();
    let admin = Admin::new(&host);
    admin.until_ready().await;
    host.signal("TERM");
    admin.until_draining().await;
    assert_eq!(admin.get("/readyz").await.status, 503);
    let answer = Client::new(&host).post("/responses", &json!({"model": "local/demo", "input": "x"})).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    host.signal("TERM");
    assert_eq!(host.wait().code(), Some(0), "{}", host.log());
}

#[tokio::test]
async fn second_signal_ends_streams_with_an_event_and_other_requests_with_503() {
    let upstream = Upstream::start().await;
    let config = format!("{}[timeouts]\ndrain_ms = 3600000\n", chat_model(&upstream.base, "m"));
    let mut host = Setup::new().config(&config).start();
    let admin = Admin::new(&host);
    let (_feed, mut response, mut text) = running_stream(&host, &upstream).await;
    upstream.reply(Reply::Hang);
    let client = Client::new(&host);
    let whole =
        tokio::spawn(
            async move { client.post("/responses", &json!({"model": "calm/m", "input": "x"})).await },
        );
    upstream.until_asked(2).await;
    host.signal("TERM");
    admin.until_draining().await;
    host.signal("TERM");
    while let Some(bytes) = response.chunk().await.unwrap() {
        text.push_str(std::str::from_utf8(&bytes).unwrap());
    }
    let events = events_of(&text);
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.failed", "{text}");
    assert!(last["response"]["error"]["message"].as_str().unwrap().contains("stopping"), "{last}");
    let whole = whole.await.unwrap();
    assert_eq!(
        (whole.status, &whole.body["error"]["metadata"]["refused_by"]),
        (503, &json!("host")),
        "{}",
        whole.text
    );
    assert_eq!(host.wait().code(), Some(0), "{}", host.log());
    assert!(!host.log().contains("connections were cut"), "{}", host.log());
}

#[tokio::test]
async fn running_stream_ends_with_a_last_event_after_the_drain_time() {
    let upstream = Upstream::start().await;
    let config = format!("{}[timeouts]\ndrain_ms = 100\n", chat_model(&upstream.base, "m"));
    let mut host = Setup::new().config(&config).start();
    let (_feed, mut response, mut text) = running_stream(&host, &upstream).await;
    host.signal("TERM");
    while let Some(bytes) = response.chunk().await.unwrap() {
        text.push_str(std::str::from_utf8(&bytes).unwrap());
    }
    let events = events_of(&text);
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.failed", "{text}");
    assert!(last["response"]["error"]["message"].as_str().unwrap().contains("stopping"), "{last}");
    assert_eq!(host.wait().code(), Some(0), "{}", host.log());
    assert!(!host.log().contains("connections were cut"), "{}", host.log());
}

#[tokio::test]
async fn a_client_that_still_sends_is_cut_after_the_drain_time() {
    let mut host = Setup::new().config("[timeouts]\ndrain_ms = 100\n").start();
    let mut raw = Raw::connect(&host).await;
    assert!(raw.send(post_head(&host, "/responses", "Content-Length: 100\r\n\r\n{").as_bytes()).await);
    Admin::new(&host).until_metric("cofferdam_connections", 1).await;
    host.signal("TERM");
    assert_eq!(host.wait().code(), Some(0), "{}", host.log());
    assert!(host.log().contains("connections were cut"), "{}", host.log());
}

#[tokio::test]
async fn waiting_request_ends_with_an_answer_after_the_drain_time() {
    let upstream = Upstream::start().await;
    let config = format!("{}[timeouts]\ndrain_ms = 100\n", chat_model(&upstream.base, "m"));
    let mut host = Setup::new().config(&config).start();
    let admin = Admin::new(&host);
    upstream.reply(Reply::Hang);
    let client = Client::new(&host);
    let answer =
        tokio::spawn(
            async move { client.post("/responses", &json!({"model": "calm/m", "input": "go"})).await },
        );
    admin.until_metric("cofferdam_requests_running", 1).await;
    host.signal("TERM");
    let answer = answer.await.unwrap();
    assert_eq!(answer.status, 503, "{}", answer.text);
    assert_eq!(host.wait().code(), Some(0), "{}", host.log());
}

/// A host waits for a command or for a host that ends.
#[test]
fn a_signal_to_reload_does_not_end_a_host_that_waits_for_its_directory() {
    let setup = Setup::new();
    let lock = DirectoryLock::acquire(&setup.data()).unwrap();
    let mut host = setup.serve().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(host.stderr.take().unwrap()).lines();
    assert!(log.any(|line| line.unwrap().contains("waiting for it")), "it does not wait");
    send_signal(host.id(), "HUP");
    drop(lock);
    let mut greeting = String::new();
    BufReader::new(host.stdout.take().unwrap()).read_line(&mut greeting).unwrap();
    send_signal(host.id(), "TERM");
    let rest: Vec<String> = log.map_while(Result::ok).collect();
    assert_eq!(host.wait().unwrap().code(), Some(0), "{greeting}{rest:?}");
}

/// The handler matters for the first process of a container: the kernel ignores signals for which such a process
/// has none.
#[test]
fn a_signal_to_stop_ends_a_host_that_waits_for_its_directory() {
    for name in ["TERM", "INT"] {
        let setup = Setup::new();
        let lock = DirectoryLock::acquire(&setup.data()).unwrap();
        let mut host = setup.serve().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(host.stderr.take().unwrap()).lines();
        assert!(log.any(|line| line.unwrap().contains("waiting for it")), "it does not wait");
        send_signal(host.id(), name);
        let rest: Vec<String> = log.map_while(Result::ok).collect();
        assert_eq!(host.wait().unwrap().code(), Some(0), "{name}: {rest:?}");
        assert!(rest.iter().any(|line| line.contains("stopped before the host served")), "{name}: {rest:?}");
        drop(lock);
    }
}

#[test]
fn a_signal_right_after_the_greeting_is_handled() {
    for name in ["TERM", "INT"] {
        let mut host = Setup::new().start();
        host.signal(name);
        assert_eq!(host.wait().code(), Some(0), "{name}: {}", host.log());
    }
    let host = Setup::new().start();
    host.signal("HUP");
    host.command(&["status"]);
}

#[tokio::test]
async fn signal_to_stop_ends_a_host_whose_reload_hangs() {
    let mut host = Setup::new().config("[limits]\nstreams = 7").start();
    Admin::new(&host).until_ready().await;
    let file = host.directory().join("cofferdam.toml");
    std::fs::remove_file(&file).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
    host.signal("HUP");
    // It can be opened once the host reads. The host gets neither a byte nor the end.
    let unwritten = OnceCell::new();
    let mut options = std::fs::File::options();
    options.write(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let opens = async || options.open(&file).is_ok_and(|opened| unwritten.set(opened).is_ok());
    deadline::until("a reload", opens).await;
    host.signal("TERM");
    assert!(host.wait().success());
    drop(unwritten);
}
