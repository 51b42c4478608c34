//! The clocks of hosts are wrong.

use super::super::PATIENCE;
use super::cluster::{Cluster, HOSTS, blocking};
use super::table;
use crate::kit::shim::Shim;
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Instant;

const HOUR: i64 = 3600;
/// How far the clock of each host is off in a round, in seconds.
const SHIFTS: [[i64; HOSTS]; 3] = [[HOUR, 0, 0], [-HOUR, 0, 0], [HOUR, -HOUR, 0]];
/// The host whose clock is always right.
const RIGHT: usize = 2;
/// The limit of a key in dollars, and the cost of an answer.
const LIMIT: u64 = 55;
const ANSWER: u64 = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_that_are_an_hour_off_change_only_dates() {
    let folder = tempfile::tempdir().unwrap();
    // No files are watched.
    let shims: [Shim; HOSTS] = std::array::from_fn(|_| Shim::new(&folder.path().join("none")));
    let fault = "clock of a host set an hour ahead, back, of two hosts apart; host killed, started";
    table(fault, 3, async |cluster, _, round| shift(cluster, &shims, round).await).await;
}

async fn shift(cluster: &mut Cluster, shims: &[Shim; HOSTS], round: usize) {
    if round == 0 {
        for (host, shim) in shims.iter().enumerate() {
            cluster.until_more().await;
            cluster.end_host(host);
            cluster.start_host(host, |setup| shim.on(setup));
        }
    }
    let shifts = SHIFTS[round % SHIFTS.len()];
    for (host, shim) in shims.iter().enumerate() {
        cluster.until_more().await;
        shim.shift_date(shifts[host]);
        if shifts[host] != 0 {
            let fault = cluster.begin_fault();
            cluster.until_served(fault).await;
        }
    }
    keys_expire_by_the_clock_of_each_host(cluster, shifts).await;
    a_limit_holds(cluster).await;
    // A host that begins with a wrong clock, and others whose clock is wrong when they take one for dead.
    for killed in [0, RIGHT] {
        cluster.until_more().await;
        let fault = cluster.begin_fault();
        cluster.kill_host(killed);
        cluster.until_served(fault).await;
        cluster.note_kill(killed, fault);
        cluster.start_host(killed, |setup| shims[killed].on(setup));
    }
    cluster.until_more().await;
    for host in 0..HOSTS {
        cluster.until_ready(host, true).await;
        let log = cluster.hosts[host].log();
        assert!(!log.contains("other hosts took this one for dead"), "host {host}:\n{log}");
    }
}

/// A key that expires half an hour from now is expired where the clock is an hour ahead.
async fn keys_expire_by_the_clock_of_each_host(cluster: &Cluster, shifts: [i64; HOSTS]) {
    let sql =
        "SELECT to_char(now() AT TIME ZONE 'UTC' + interval '30 min', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')";
    let soon = blocking(|| cluster.pair.primary.query(sql)).unwrap();
    let body = json!({"name": "expires", "expires_at": soon[0][0].as_deref().unwrap()});
    let key = new_key(cluster, &body).await;
    let later = new_key(cluster, &json!({"name": "does not expire"})).await;
    for (host, shift) in shifts.into_iter().enumerate() {
        // A host that knows the later key knows the earlier one.
        until(cluster, host, &later, 200).await;
        let wanted = if shift == HOUR { 401 } else { 200 };
        until(cluster, host, &key, wanted).await;
    }
}

/// A key with a limit is used through all hosts in turn until it is refused.
async fn a_limit_holds(cluster: &Cluster) {
    let body = json!({"name": "limited", "limit": LIMIT, "limit_reset": "daily"});
    let key = new_key(cluster, &body).await;
    for host in 0..HOSTS {
        until(cluster, host, &key, 200).await;
    }
    let body = json!({"model": "test/open", "input": "x", "max_output_tokens": 10});
    let (mut served, mut refused) = (0, 0);
    let end = Instant::now() + PATIENCE;
    for host in (0..HOSTS).cycle() {
        let sent = cluster.doors.send(host, &key, Method::POST, "/responses", &body).await;
        match sent.status {
            Some(200) => served += 1,
            Some(402) => refused += 1,
            Some(503) => assert!(Instant::now() < end, "{}", sent.body),
            _ => panic!("host {host}: {:?} {}", sent.status, sent.body),
        }
        if refused == HOSTS {
            break;
        }
    }
    assert!(served > 0 && served * ANSWER <= LIMIT + ANSWER, "{served} answers with a limit of {LIMIT}");
}

async fn new_key(cluster: &Cluster, body: &Value) -> String {
    let made = cluster.doors.send(RIGHT, &cluster.keys.provisioning, Method::POST, "/keys", body).await;
    assert_eq!(made.status, Some(201), "{}", made.body);
    made.body["key"].as_str().unwrap().to_owned()
}

/// Asks until the host answers so to the key: it learns of a new key a moment later.
async fn until(cluster: &Cluster, host: usize, key: &str, status: u16) {
    let end = Instant::now() + PATIENCE;
    loop {
        let sent = cluster.doors.get(host, key, "/models").await;
        if sent.status == Some(status) {
            return;
        }
        assert!(Instant::now() < end, "host {host}: {:?} in place of {status}", sent.status);
    }
}
