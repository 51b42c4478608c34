//! The root key is replaced, and the host that does it is killed.

use super::super::PATIENCE;
use super::super::rotation::{HEADER_CHANGES, header_changed, keys, new_key, rotate, with_keys};
use super::cluster::{Cluster, HOSTS, blocking};
use super::table;
use crate::kit::random::Random;
use serde_json::Value;
use std::time::Instant;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotation_of_the_root_key_under_load_is_finished_by_another_host() {
    let fault = "root key replaced, the host that does it killed after each change of the header";
    table(fault, HEADER_CHANGES + 1, async |cluster, random, round| replace(cluster, random, round).await)
        .await;
}

/// Replaces the root key. The first attempt is killed after another number of changes of the header in each round.
async fn replace(cluster: &mut Cluster, random: &mut Random, round: usize) {
    let new = new_key(cluster.folder(), round as u8);
    let old = format!("file:{}", cluster.root_key.display());
    for host in 0..HOSTS {
        cluster.until_more().await;
        cluster.end_host(host);
        cluster.start_host(host, |setup| with_keys(setup, &new, Some(&old)));
    }
    cluster.until_more().await;
    until_killed_hosts_are_gone(cluster).await;
    let killed = random.below(HOSTS as u64) as usize;
    let (database, changes) = (cluster.place().name, (round + 1) % (HEADER_CHANGES + 1));
    tokio::select! {
        _ = rotate(&cluster.hosts[killed], &new) => {}
        () = header_changed(&cluster.pair.primary, &database, changes) => {}
    }
    let fault = cluster.begin_fault();
    cluster.kill_host(killed);
    cluster.until_served(fault).await;
    let finisher = (killed + 1) % HOSTS;
    let done = rotate(&cluster.hosts[finisher], &new).await;
    let (code, text) = super::super::failed(&done);
    assert_eq!(code, Some(0), "after {changes} changes: {text}");
    let done: Value = serde_json::from_slice(&done.stdout).unwrap();
    for host in cluster.doors.open() {
        let found = blocking(|| keys(&cluster.hosts[host]));
        assert_eq!(found, (done["root_key_id"].clone(), Value::Null), "on host {host} when it is answered");
    }
    cluster.note_kill(killed, fault);
    cluster.start_host(killed, |setup| with_keys(setup, &new, None));
    cluster.root_key = new.strip_prefix("file:").unwrap().into();
}

/// A host that was killed counts for half a minute, and does not have the new key.
async fn until_killed_hosts_are_gone(cluster: &Cluster) {
    let end = Instant::now() + PATIENCE;
    loop {
        let status = blocking(|| cluster.hosts[0].command(&["status"]));
        if status["store"]["hosts"].as_array().unwrap().len() == HOSTS {
            return;
        }
        assert!(Instant::now() < end, "{status}");
        cluster.until_more().await;
    }
}
