//! The primary fails, or its standby.

use super::cluster::{Cluster, blocking};
use super::load::{path_of, put_body};
use super::told::Vault;
use crate::kit::random::count;
use cofferdam_test_postgres::Pair;
use reqwest::Method;
use std::time::Instant;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_is_killed_is_replaced_by_its_standby() {
    let Some(mut cluster) = Cluster::start().await else { return };
    for _ in 0..count(1, 20) {
        let load = cluster.load().await;
        let fault = Instant::now();
        blocking(|| cluster.pair.primary.kill9()).unwrap();
        cluster.promote();
        cluster.until_served(fault).await;
        cluster.replace_old_primary();
        cluster.end_round(load).await;
    }
    cluster.report("primary killed, standby promoted");
}

/// Two hosts reach the new primary only, the third one the old one only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_primary_that_goes_on_beside_the_new_one_keeps_no_host_in_contact() {
    const LEFT: usize = 2;
    let Some(mut cluster) = Cluster::start().await else { return };
    for _ in 0..count(1, 20) {
        let load = cluster.load().await;
        let fault = Instant::now();
        blocking(|| cluster.pair.primary.stop_signal()).unwrap();
        cluster.divide(Some(LEFT));
        cluster.promote();
        blocking(|| cluster.pair.primary.continue_signal()).unwrap();
        cluster.until_ready(LEFT, false).await;
        let base = cluster.hosts[LEFT].base.clone();
        cluster.doors.set(LEFT, None);
        cluster.until_served(fault).await;
        cluster.doors.set(LEFT, Some(&base));
        let refused = cluster.doors.get(LEFT, &cluster.keys.workspace, "/vault/secrets").await;
        assert_eq!(refused.status, Some(503), "{}", refused.body);
        let body = serde_json::json!({"model": "test/open", "input": "x"});
        let refused =
            cluster.doors.send(LEFT, &cluster.keys.workspace, Method::POST, "/responses", &body).await;
        assert_eq!(refused.status, Some(503), "{}", refused.body);
        assert!(!cluster.is_ready(LEFT).await, "the old primary keeps a host in contact");
        cluster.divide(None);
        cluster.replace_old_primary();
        cluster.until_ready(LEFT, true).await;
        cluster.end_round(load).await;
    }
    cluster.report("primary paused, standby promoted, old primary goes on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_only_a_crashed_primary_has_is_not_acknowledged_before_it_is_replicated() {
    let Some(mut cluster) = Cluster::start().await else { return };
    for _ in 0..count(1, 20) {
        let load = cluster.load().await;
        blocking(|| cluster.pair.standby.stop_signal()).unwrap();
        let stopped = Instant::now();
        let waits = "SELECT (count(*) > 0)::text FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        // Commits wait for the standby when the primary crashes, and again after that.
        cluster.pair.primary.until(waits, "true").await.unwrap();
        let fault = Instant::now();
        blocking(|| {
            cluster.pair.primary.kill9().unwrap();
            cluster.pair.primary.restart().unwrap();
        });
        cluster.pair.primary.until(waits, "true").await.unwrap();
        let continued = Instant::now();
        blocking(|| cluster.pair.standby.continue_signal()).unwrap();
        cluster.until_served(fault).await;
        let writes = cluster.told.writes.lock().unwrap().clone();
        let early = writes.iter().find(|write| write.at > stopped && write.answered < continued);
        assert!(early.is_none(), "acknowledged by the primary alone: {early:?}");
        cluster.end_round(load).await;
    }
    cluster.report("crash restart of the primary with commits in doubt");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_standby_changes_are_in_doubt_and_then_refused_until_it_is_back() {
    let Some(mut cluster) = Cluster::start().await else { return };
    for round in 0..count(1, 5) {
        let load = cluster.load().await;
        let fault = Instant::now();
        blocking(|| cluster.pair.standby.kill9()).unwrap();
        let path = format!("{}/fence_{round}", path_of(&cluster.keys, Vault::Workspace));
        let put =
            cluster.doors.send(0, &cluster.keys.workspace, Method::PUT, &path, &put_body("fence", 0)).await;
        assert_eq!(put.status, Some(504), "{}", put.body);
        for host in 0..cluster.hosts.len() {
            cluster.until_ready(host, false).await;
            let put = cluster
                .doors
                .send(host, &cluster.keys.workspace, Method::PUT, &path, &put_body("fence", 0))
                .await;
            assert_eq!(put.status, Some(503), "{}", put.body);
        }
        blocking(|| {
            let Pair { standby, .. } = &mut cluster.pair;
            standby.restart().unwrap();
        });
        cluster.until_served(fault).await;
        cluster.end_round(load).await;
    }
    cluster.report("standby killed, 504 and then 503, standby started again");
}
