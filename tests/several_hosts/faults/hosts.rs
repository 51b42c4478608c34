//! A host fails.

use super::cluster::{Cluster, HOSTS};
use crate::kit::random::{Random, count, seed};
use reqwest::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Kills between two checks, each of which waits until the killed hosts are dead for others.
const KILLS_TOGETHER: usize = 5;
/// How long a host sleeps. Others take it for dead after 30 s.
const SLEEP: Duration = Duration::from_secs(34);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_that_are_killed_lose_nothing_that_is_prepaid() {
    let Some(mut cluster) = Cluster::start().await else { return };
    let mut random = Random::new(seed());
    let kills = count(1, 50);
    for begun in (0..kills).step_by(KILLS_TOGETHER) {
        let load = cluster.load().await;
        for _ in begun..kills.min(begun + KILLS_TOGETHER) {
            cluster.until_more().await;
            let (host, fault) = (random.below(HOSTS as u64) as usize, Instant::now());
            cluster.kill_host(host);
            cluster.until_served(fault).await;
            cluster.restart_host(host);
            cluster.count_fault();
        }
        cluster.end_round(load).await;
    }
    cluster.report("host killed and started again");
}

/// The cheapest round takes more than half a minute, so there is none by default.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_sleeps_for_longer_than_its_life_goes_on_as_another_one() {
    let rounds = count(0, 10);
    if rounds == 0 {
        eprintln!("SKIPPED: COFFERDAM_FAULTS=N makes N rounds");
        return;
    }
    let Some(mut cluster) = Cluster::start().await else { return };
    for round in 0..rounds {
        let load = cluster.load().await;
        let sleeper = round % HOSTS;
        let other = (sleeper + 1) % HOSTS;
        let key = json!({"name": "of a sleeper"});
        let made = cluster.doors.send(other, &cluster.keys.provisioning, Method::POST, "/keys", &key).await;
        assert_eq!(made.status, Some(201), "{}", made.body);
        let key = made.body["key"].as_str().unwrap().to_owned();
        while cluster.doors.get(sleeper, &key, "/models").await.status != Some(200) {
            tokio::task::yield_now().await;
        }
        let base = cluster.hosts[sleeper].base.clone();
        let fault = Instant::now();
        cluster.hosts[sleeper].signal("STOP");
        cluster.doors.set(sleeper, None);
        // Revoked while the host sleeps, and asked of it before it has woken.
        let path = format!("/keys/{}", made.body["data"]["hash"].as_str().unwrap());
        let revoked =
            cluster.doors.send(other, &cluster.keys.provisioning, Method::DELETE, &path, &Value::Null);
        let revoked = revoked.await;
        assert!(matches!(revoked.status, Some(200 | 204)), "{:?} {}", revoked.status, revoked.body);
        // The fault is so long; nothing is waited for.
        tokio::time::sleep(SLEEP.saturating_sub(fault.elapsed())).await;
        cluster.doors.set(sleeper, Some(&base));
        let doors = cluster.doors.clone();
        let asked = tokio::spawn(async move { doors.get(sleeper, &key, "/models").await });
        let continued = Instant::now();
        cluster.hosts[sleeper].signal("CONT");
        let answer = asked.await.unwrap();
        assert!(matches!(answer.status, Some(401 | 503)), "{:?} {}", answer.status, answer.body);
        cluster.until_served(continued).await;
        assert!(cluster.hosts[sleeper].log().contains("other hosts took this one for dead"));
        cluster.end_round(load).await;
    }
    cluster.report("host paused for 34 s");
}
