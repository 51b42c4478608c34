//! A host fails.

use super::cluster::{Cluster, HOSTS};
use super::doors::Verdict;
use super::table;
use crate::kit::deadline;
use crate::kit::random::Random;
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;

/// Kills in a round. At its end the killed hosts must be dead for others, which takes half a minute.
const KILLS: usize = 5;
/// How long a host sleeps at the most. Others take it for dead after 30 s in which they had contact themselves.
const SLEEP_MAX: Duration = Duration::from_secs(180);
/// How often the log is looked at for the end of a sleeping host.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// What the host that ends it logs.
const ENDED: &str = "a host showed no sign of life";
/// What it logs itself when it goes on.
const GOES_ON: &str = "other hosts took this one for dead";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_that_are_killed_lose_nothing_that_is_prepaid() {
    let several = async |cluster: &mut Cluster, random: &mut Random, _| {
        for _ in 0..KILLS {
            kill(cluster, random).await;
        }
    };
    table("host killed and started again", 50 / KILLS, several).await;
}

/// Kills a host under load, and starts it again when the others have gone on.
pub async fn kill(cluster: &mut Cluster, random: &mut Random) {
    cluster.until_more().await;
    let (host, fault) = (random.below(HOSTS as u64) as usize, cluster.begin_fault());
    cluster.kill_host(host);
    cluster.until_served(fault).await;
    cluster.note_kill(host, fault);
    cluster.start_host(host, |setup| setup);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_sleeps_for_longer_than_its_life_goes_on_as_another_one() {
    table("host paused until another one has ended it", 10, async |cluster, _, round| {
        sleep(cluster, round % HOSTS).await
    })
    .await;
}

async fn sleep(cluster: &mut Cluster, sleeper: usize) {
    let other = (sleeper + 1) % HOSTS;
    let (doors, keys) = (cluster.doors.clone(), cluster.keys.clone());
    let body = json!({"name": "of a sleeper"});
    let made = doors.send(other, &keys.provisioning, Method::POST, "/keys", &body).await;
    assert_eq!(made.status, Some(201), "{}", made.body);
    let key = made.body["key"].as_str().unwrap().to_owned();
    let works = async || doors.get(sleeper, &key, "/models").await.status == Some(200);
    deadline::until("the new key at the host that will sleep", works).await;
    let base = cluster.hosts[sleeper].base.clone();
    let count = |cluster: &Cluster, text: &str| -> usize {
        cluster.hosts.iter().map(|host| host.log().matches(text).count()).sum()
    };
    let (ended, gone_on) = (count(cluster, ENDED), count(cluster, GOES_ON));
    let slept = cluster.begin_fault();
    cluster.hosts[sleeper].signal("STOP");
    cluster.doors.set(sleeper, None);
    let path = format!("/keys/{}", made.body["data"]["hash"].as_str().unwrap());
    // A host that sleeps within a transaction keeps its locks for 5 s, so the first answer may leave the outcome open.
    let is_revoked = async || {
        let revoked = doors.send(other, &keys.provisioning, Method::DELETE, &path, &Value::Null).await;
        revoked.status == Some(404) || revoked.verdict() == Verdict::Done
    };
    while !is_revoked().await {
        assert!(slept.elapsed() < SLEEP_MAX, "the key is not revoked");
    }
    while count(cluster, ENDED) == ended {
        assert!(slept.elapsed() < SLEEP_MAX, "no host has ended the one that sleeps");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    // Asked with the revoked key before the host wakes.
    cluster.doors.set(sleeper, Some(&base));
    let asked = tokio::spawn(async move { doors.get(sleeper, &key, "/models").await });
    tokio::task::yield_now().await;
    let woken = std::time::Instant::now();
    cluster.hosts[sleeper].signal("CONT");
    let answer = asked.await.unwrap();
    assert!(matches!(answer.status, Some(401 | 503)), "{:?} {}", answer.status, answer.body);
    cluster.until_served(woken).await;
    // Others may have taken over all that is asked for before it finds out.
    while count(cluster, GOES_ON) == gone_on {
        assert!(woken.elapsed() < SLEEP_MAX, "the host does not find out that it was ended");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
