//! The primary fails, or its standby.

use super::cluster::{Cluster, blocking};
use super::load::{path_of, put_body};
use super::table;
use super::told::Vault;
use cofferdam_test_postgres::Pair;
use reqwest::Method;
use serde_json::json;
use std::time::Instant;

/// The host that is left with the old primary.
const LEFT: usize = 2;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_is_killed_is_replaced_by_its_standby() {
    table("primary killed, standby promoted", 20, async |cluster, _, _| kill(cluster).await).await;
}

pub async fn kill(cluster: &mut Cluster) {
    let fault = cluster.begin_fault();
    blocking(|| cluster.pair.primary.kill9()).unwrap();
    cluster.promote();
    cluster.until_served(fault).await;
    cluster.replace_old_primary();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_primary_that_goes_on_beside_the_new_one_keeps_no_host_in_contact() {
    let fault = "primary paused, standby promoted, old primary goes on";
    table(fault, 20, async |cluster, _, _| pause(cluster).await).await;
}

/// Two hosts reach the new primary only, the third one the old one only.
pub async fn pause(cluster: &mut Cluster) {
    let fault = cluster.begin_fault();
    blocking(|| cluster.pair.primary.stop_signal()).unwrap();
    cluster.divide(Some(LEFT));
    cluster.promote();
    blocking(|| cluster.pair.primary.continue_signal()).unwrap();
    cluster.until_ready(LEFT, false).await;
    // A balancer leaves the host out now.
    let base = cluster.hosts[LEFT].base.clone();
    cluster.doors.set(LEFT, None);
    cluster.until_served(fault).await;
    cluster.doors.set(LEFT, Some(&base));
    let (doors, key) = (&cluster.doors, &cluster.keys.workspace);
    let listed = doors.get(LEFT, key, "/vault/secrets").await;
    let asked = json!({"model": "test/open", "input": "x"});
    let answered = doors.send(LEFT, key, Method::POST, "/responses", &asked).await;
    for refused in [listed, answered] {
        assert_eq!(refused.status, Some(503), "{}", refused.body);
    }
    assert!(!cluster.is_ready(LEFT).await, "the old primary keeps a host in contact");
    cluster.divide(None);
    cluster.replace_old_primary();
    cluster.until_ready(LEFT, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_only_a_crashed_primary_has_is_not_acknowledged_before_it_is_replicated() {
    let fault = "crash restart of the primary with commits in doubt";
    table(fault, 20, async |cluster, _, _| crash(cluster).await).await;
}

pub async fn crash(cluster: &mut Cluster) {
    let waits = "SELECT (count(*) > 0)::text FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    blocking(|| cluster.pair.standby.stop_signal()).unwrap();
    let stopped = Instant::now();
    // Commits wait for the standby when the primary crashes, and again after that.
    cluster.pair.primary.until(waits, "true").await.unwrap();
    let fault = cluster.begin_fault();
    blocking(|| {
        cluster.pair.primary.kill9().unwrap();
        cluster.pair.primary.restart().unwrap();
    });
    cluster.pair.primary.until(waits, "true").await.unwrap();
    let continued = Instant::now();
    blocking(|| cluster.pair.standby.continue_signal()).unwrap();
    cluster.until_served(fault).await;
    let writes = cluster.told.writes.lock().unwrap();
    let early = writes.iter().find(|write| write.at > stopped && write.answered < continued);
    assert!(early.is_none(), "acknowledged by the primary alone: {early:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_that_only_a_crashed_primary_had_are_forgotten_when_its_standby_is_promoted() {
    let fault = "crash restart of the primary with commits in doubt, standby without them promoted";
    table(fault, 5, async |cluster, _, _| forget(cluster).await).await;
}

pub async fn forget(cluster: &mut Cluster) {
    let waits = "SELECT (count(*) > 0)::text FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    blocking(|| cluster.pair.standby.kill9()).unwrap();
    cluster.pair.primary.until(waits, "true").await.unwrap();
    let fault = cluster.begin_fault();
    blocking(|| {
        cluster.pair.primary.kill9().unwrap();
        cluster.pair.primary.restart().unwrap();
    });
    // Hosts are there again, and see what was never acknowledged.
    cluster.pair.primary.until(waits, "true").await.unwrap();
    blocking(|| {
        cluster.pair.primary.kill9().unwrap();
        cluster.pair.standby.restart().unwrap();
    });
    cluster.promote();
    cluster.until_served(fault).await;
    cluster.replace_old_primary();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_standby_changes_are_in_doubt_and_then_refused_until_it_is_back() {
    let fault = "standby killed, 504 and then 503, standby started again";
    table(fault, 5, async |cluster, _, round| without_standby(cluster, round).await).await;
}

async fn without_standby(cluster: &mut Cluster, round: usize) {
    let fault = cluster.begin_fault();
    blocking(|| cluster.pair.standby.kill9()).unwrap();
    let (doors, key) = (cluster.doors.clone(), cluster.keys.workspace.clone());
    let path = format!("{}/fence_{round}", path_of(&cluster.keys, Vault::Workspace));
    let put = async |host| doors.send(host, &key, Method::PUT, &path, &put_body("fence", 0)).await;
    let doubtful = put(0).await;
    assert_eq!(doubtful.status, Some(504), "{}", doubtful.body);
    for host in 0..cluster.hosts.len() {
        cluster.until_ready(host, false).await;
        let refused = put(host).await;
        assert_eq!(refused.status, Some(503), "{}", refused.body);
    }
    let Pair { standby, .. } = &mut cluster.pair;
    blocking(|| standby.restart()).unwrap();
    cluster.until_served(fault).await;
}
