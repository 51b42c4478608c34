//! Hosts of the version before and of this one serve one store while an operator replaces them one after the other.
//!
//! `COFFERDAM_PREVIOUS` names the program of the version before. It also makes the store.

use super::super::{PATIENCE, failed, refused};
use super::cluster::{Cluster, HOSTS, blocking};
use super::doors::Verdict;
use super::rounds;
use crate::kit::admin::Admin;
use crate::kit::program::EXECUTABLE;
use reqwest::Method;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Instant;

const PREVIOUS: &str = "COFFERDAM_PREVIOUS";
/// The schemas of a store that the version before makes, and of one that this version makes.
const SCHEMAS: [u32; 2] = [2, 3];
/// Requests a minute of a key, tried after the upgrade.
const LIMIT: usize = 3;
/// How many keys are tried: a host that waits in vain for a busy database admits its part alone.
const KEYS: usize = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_of_two_versions_serve_one_store_until_all_are_new_and_it_is_upgraded() {
    let rounds = rounds(3);
    let Some(previous) = std::env::var_os(PREVIOUS).map(PathBuf::from) else {
        eprintln!("SKIPPED: {PREVIOUS} names no program of the version before");
        return;
    };
    // An upgraded store does not go back, so each round has a cluster of its own.
    for _ in 0..rounds {
        let Some(mut cluster) = Cluster::start_with(&previous).await else { return };
        let load = cluster.load().await;
        roll(&mut cluster, &previous).await;
        cluster.end_round(load).await;
        refuses_the_upgraded_store(&cluster, &previous);
        shares_limits(&mut cluster).await;
        cluster.report("hosts replaced by those of this version, one back, store upgraded");
    }
}

/// How a host ends before another program takes its place.
#[derive(Clone, Copy)]
enum End {
    InOrder,
    Killed,
}

async fn roll(cluster: &mut Cluster, previous: &Path) {
    let this = Path::new(EXECUTABLE);
    let mut secrets = Secrets::default();
    secrets.are_used_as_put(cluster).await;
    replace(cluster, 0, this, End::InOrder).await;
    secrets.are_used_as_put(cluster).await;
    // Back to the version before. Hosts of that version charge what the killed one had reserved.
    replace(cluster, 0, previous, End::Killed).await;
    secrets.are_used_as_put(cluster).await;
    replace(cluster, 0, this, End::InOrder).await;
    replace(cluster, 1, this, End::Killed).await;
    secrets.are_used_as_put(cluster).await;
    is_not_upgraded(cluster);
    replace(cluster, 2, this, End::InOrder).await;
    secrets.are_used_as_put(cluster).await;
    upgrade(cluster).await;
    secrets.are_used_as_put(cluster).await;
}

/// Replaces the program of a host.
async fn replace(cluster: &mut Cluster, host: usize, by: &Path, end: End) {
    cluster.until_more().await;
    let fault = cluster.begin_fault();
    match end {
        End::InOrder => cluster.end_host(host),
        End::Killed => cluster.kill_host(host),
    }
    cluster.until_served(fault).await;
    if matches!(end, End::Killed) {
        cluster.note_kill(host, fault);
    }
    cluster.start_host(host, |setup| setup.executable(by));
}

/// Secrets that are put through each host in turn and used by requests through all of them.
#[derive(Default)]
struct Secrets {
    puts: usize,
}

impl Secrets {
    /// Each host has used the value before, and uses another one as soon as it is acknowledged by any host.
    async fn are_used_as_put(&mut self, cluster: &Cluster) {
        for by in 0..HOSTS {
            let value = format!("own-value-{}", self.puts);
            self.puts += 1;
            let body = json!({"hosts": ["provider.test"], "value": value});
            let put = ask(cluster, by, Method::PUT, "/vault/secrets/own_key", &body).await;
            for host in 0..HOSTS {
                let body = json!({"model": "test/own", "input": value});
                ask(cluster, host, Method::POST, "/responses", &body).await;
                let asked = cluster.upstream.asked();
                let sent = asked.iter().rfind(|asked| asked.body.to_string().contains(&value)).unwrap();
                let bearer = sent.headers["authorization"].to_str().unwrap();
                assert_eq!(bearer, format!("Bearer {value}"), "host {host} after {put} by host {by}");
            }
        }
    }
}

/// Asks until the answer is no refusal for now; then it has to be the wanted one.
async fn ask(cluster: &Cluster, host: usize, method: Method, path: &str, body: &Value) -> Value {
    let end = Instant::now() + PATIENCE;
    loop {
        let sent = cluster.doors.send(host, &cluster.keys.paid, method.clone(), path, body).await;
        if sent.verdict() == Verdict::Done {
            return sent.body;
        }
        assert!(Instant::now() < end, "{path} by host {host}: {:?} {}", sent.status, sent.body);
    }
}

/// The last host has the version before: it is named.
fn is_not_upgraded(cluster: &Cluster) {
    let ended = blocking(|| cluster.hosts[0].command_output(&["store", "upgrade"]));
    let (code, text) = failed(&ended);
    assert_eq!(code, Some(1), "{text}");
    let old = format!("process {} ", cluster.hosts[2].pid());
    let new = [0, 1].map(|host| format!("process {} ", cluster.hosts[host].pid()));
    assert!(text.contains(&old) && !new.iter().any(|new| text.contains(new)), "{text}");
    assert_eq!(schemas(cluster), SCHEMAS);
}

/// A host of the version before that was killed counts until others take it for dead.
async fn upgrade(cluster: &Cluster) {
    let [old, new] = SCHEMAS;
    let end = Instant::now() + PATIENCE;
    let made = loop {
        let ended = blocking(|| cluster.hosts[0].command_output(&["store", "upgrade"]));
        if ended.status.success() {
            break serde_json::from_slice::<Value>(&ended.stdout).unwrap();
        }
        let (code, text) = failed(&ended);
        assert!(code == Some(1) && Instant::now() < end, "{text}");
        assert!(
            !cluster.hosts.iter().any(|host| text.contains(&format!("process {} ", host.pid()))),
            "{text}"
        );
        cluster.until_more().await;
    };
    assert_eq!(made, json!({"schema_before": old, "schema": new}));
    let upgrade = |host: usize| blocking(|| cluster.hosts[host].command(&["store", "upgrade"]));
    for host in 0..HOSTS {
        assert_eq!(upgrade(host), json!({"schema_before": new, "schema": new}));
    }
    assert_eq!(schemas(cluster), [new, new]);
}

/// The schema that the store has, and the newest one that the program of the first host knows.
fn schemas(cluster: &Cluster) -> [u32; 2] {
    let status = blocking(|| cluster.hosts[0].command(&["status"]));
    ["schema", "newest_schema"].map(|name| status["store"][name].as_u64().unwrap() as u32)
}

fn refuses_the_upgraded_store(cluster: &Cluster, previous: &Path) {
    let (code, text) = refused(cluster.another().executable(previous));
    let [old, new] = SCHEMAS;
    assert_eq!(code, Some(69), "{text}");
    assert!(
        text.contains(&format!("the database has schema {new}, this program works with {old}")),
        "{text}"
    );
}

/// What the new schema brings: hosts count requests together.
async fn shares_limits(cluster: &mut Cluster) {
    for host in 0..HOSTS {
        cluster.end_host(host);
        let limits = format!("[limits]\nrequests_per_minute = {LIMIT}\n");
        cluster.start_host(host, |setup| setup.config(&limits));
    }
    for host in &cluster.hosts {
        Admin::new(host).until_metric("cofferdam_store_hosts", HOSTS as u64).await;
    }
    let mut counts = Vec::new();
    for _ in 0..KEYS {
        let made = blocking(|| cluster.hosts[0].command(&["key", "create", "--workspace", "default"]));
        let key = made["key"].as_str().unwrap();
        for host in 0..HOSTS {
            let is_known = async || cluster.doors.get(host, key, "/models").await.status == Some(200);
            let end = Instant::now() + PATIENCE;
            while !is_known().await {
                assert!(Instant::now() < end, "host {host} does not know the key");
            }
        }
        let mut admitted = 0;
        for turn in 0..4 * LIMIT {
            let body = json!({"model": "test/open", "input": "x"});
            let sent = cluster.doors.send(turn % HOSTS, key, Method::POST, "/responses", &body).await;
            assert!(matches!(sent.status, Some(200 | 429)), "{:?} {}", sent.status, sent.body);
            admitted += usize::from(sent.status == Some(200));
        }
        counts.push(admitted);
        if admitted == LIMIT {
            return;
        }
    }
    panic!("admitted {counts:?} with a limit of {LIMIT}");
}
