//! One server: databases, signals, restarts, its end.

use crate::client::{connect, number};
use cofferdam_test_postgres::{Options, Server, installed};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[tokio::test]
async fn databases_of_a_shared_server_are_apart_and_belong_to_their_user() {
    if !installed() {
        return;
    }
    let server = Server::shared().unwrap();
    let (one, other) = (server.database("one").unwrap(), server.database("other").unwrap());
    let client = connect(&one.url()).await.unwrap();
    client.batch_execute("CREATE TABLE mine (id bigint); INSERT INTO mine VALUES (7)").await.unwrap();
    assert_eq!(number(&client, "SELECT id FROM mine").await.unwrap(), 7);
    let elsewhere = connect(&other.url()).await.unwrap();
    assert!(number(&elsewhere, "SELECT id FROM mine").await.is_err());
    assert!(client.batch_execute("CREATE ROLE stranger").await.is_err());
    assert_eq!(server.query_in("one", "SELECT id, null FROM mine").unwrap(), [[Some("7".to_owned()), None]]);
    let refused = server.query("SELECT nonsense").unwrap_err().to_string();
    assert!(refused.contains("42703"), "{refused}");
}

#[tokio::test]
async fn a_wrong_password_is_refused() {
    if !installed() {
        return;
    }
    let server = Server::shared().unwrap();
    let wrong = server.url().replace(server.password(), "wrong");
    assert!(connect(&wrong).await.is_err());
    connect(&server.url()).await.unwrap();
}

#[tokio::test]
async fn commits_survive_the_death_of_all_processes() {
    if !installed() {
        return;
    }
    let mut server = Server::start().unwrap();
    let database = server.database("kept").unwrap();
    let client = connect(&database.url()).await.unwrap();
    client.batch_execute("CREATE TABLE kept (id bigint); INSERT INTO kept VALUES (1)").await.unwrap();
    client.batch_execute("BEGIN; INSERT INTO kept VALUES (2)").await.unwrap();
    server.kill9().unwrap();
    assert!(connect(&database.url()).await.is_err());
    server.restart().unwrap();
    let client = connect(&database.url()).await.unwrap();
    assert_eq!(number(&client, "SELECT count(*) FROM kept").await.unwrap(), 1);
    assert!(server.log().contains("was not properly shut down"), "{}", server.log());
    // Once more in order: no recovery.
    let before = server.log().len();
    server.restart().unwrap();
    assert!(!server.log()[before..].contains("was not properly shut down"), "{}", server.log());
}

#[tokio::test]
async fn a_stopped_server_answers_when_it_goes_on() {
    if !installed() {
        return;
    }
    let server = Server::start().unwrap();
    let client = connect(&server.url()).await.unwrap();
    server.stop_signal().unwrap();
    let mut states = processes_of(server.pid().unwrap()).into_iter();
    assert!(states.len() > 2 && states.all(|(state, _)| state == 'T'));
    let answer = tokio::spawn(async move { number(&client, "SELECT 5::bigint").await });
    server.continue_signal().unwrap();
    assert_eq!(answer.await.unwrap().unwrap(), 5);
}

#[tokio::test]
async fn settings_are_those_of_the_options() {
    if !installed() {
        return;
    }
    let show = |server: &Server, name: &str| server.query(&format!("SHOW {name}")).unwrap();
    assert_eq!(show(Server::shared().unwrap(), "fsync"), [[Some("on".to_owned())]]);
    let server = Options::new().without_sync().setting("application_name", "it's").start().unwrap();
    assert_eq!(show(&server, "fsync"), [[Some("off".to_owned())]]);
    assert_eq!(show(&server, "application_name"), [[Some("it's".to_owned())]]);
    server.set("work_mem", "1MB").unwrap();
    server.until("SELECT setting FROM pg_settings WHERE name = 'work_mem'", "1024").await.unwrap();
    server.until_logged("parameter \"work_mem\" changed").await.unwrap();
    let refused = Options::new().setting("work_mem", "much").start().err().unwrap().to_string();
    assert!(refused.contains("work_mem"), "{refused}");
}

#[tokio::test]
async fn values_are_found_in_tables_changes_and_log() {
    if !installed() {
        return;
    }
    let server = Server::start().unwrap();
    let client = connect(&server.url()).await.unwrap();
    // Joined by the server, so that the whole text is nowhere but where the statement puts it.
    let canary = b"canary-0123456789";
    assert_eq!(server.files_containing(canary).unwrap(), [""; 0].map(Path::new));
    client.batch_execute("CREATE TABLE held AS SELECT 'canary-' || '0123456789' AS text").await.unwrap();
    let found = server.files_containing(canary).unwrap();
    let has = |part: &str| found.iter().any(|path| path.to_str().unwrap().contains(part));
    assert!(has("/pg_wal/") && has("/base/") && !has("/log"), "{found:?}");
    client.batch_execute("DO $$ BEGIN RAISE LOG '%', 'canary-' || '0123456789'; END $$").await.unwrap();
    assert!(server.files_containing(canary).unwrap().iter().any(|path| path.ends_with("log")));
}

#[test]
fn nothing_of_a_server_is_left_behind() {
    if !installed() {
        return;
    }
    let server = Server::start().unwrap();
    let (pid, folder) = (server.pid().unwrap(), server.data_dir());
    server.stop_signal().unwrap();
    drop(server);
    assert!(processes_of(pid).is_empty() && !folder.parent().unwrap().exists());
    let mut server = Server::start().unwrap();
    let (pid, folder) = (server.pid().unwrap(), server.data_dir());
    server.kill9().unwrap();
    drop(server);
    assert!(processes_of(pid).is_empty() && !folder.parent().unwrap().exists());
}

/// The test below starts this one in a process of its own, which it kills.
#[test]
#[ignore = "a part of a_server_ends_with_a_test_process_that_is_killed"]
fn wait_for_death() {
    let server = Server::start().unwrap();
    std::fs::write(
        std::env::var("NAMES_IN").unwrap(),
        format!("{} {}", server.pid().unwrap(), server.data_dir().display()),
    )
    .unwrap();
    println!("started");
    std::thread::park();
}

#[test]
fn a_server_ends_with_a_test_process_that_is_killed() {
    if !installed() {
        return;
    }
    let names = tempfile::NamedTempFile::new().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "server::wait_for_death"])
        .env("NAMES_IN", names.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    assert!(lines.map_while(Result::ok).any(|line| line.contains("started")));
    child.kill().unwrap();
    child.wait().unwrap();
    let text = std::fs::read_to_string(names.path()).unwrap();
    let (pid, folder) = text.split_once(' ').unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    while !processes_of(pid.parse().unwrap()).is_empty() || Path::new(folder).exists() {
        assert!(Instant::now() < end, "process {pid} or folder {folder} is left");
        std::thread::yield_now();
    }
}

/// State and id of a server's first process and its children.
fn processes_of(first: u32) -> Vec<(char, u32)> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let described = pids.filter_map(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let mut fields = stat.rsplit(')').next()?.split_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent: u32 = fields.next()?.parse().ok()?;
        (pid == first || parent == first).then_some((state, pid))
    });
    described.collect()
}
