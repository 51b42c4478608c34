//! What clients were told holds whatever happens to hosts, to the database and to the connections between them.
//!
//! Three hosts have a primary with a synchronous standby, each by proxies of its own. Clients of all kinds ask through
//! all hosts, and note what they were told. After each fault this is compared with what is there.
//!
//! By default one cluster suffers one fault after another. `COFFERDAM_FAULTS=N` or `all` repeats each fault on a cluster
//! of its own and prints its line of the table.

mod check;
mod clocks;
mod cluster;
mod connections;
mod doors;
mod history;
mod hosts;
mod linear;
mod load;
mod primary;
mod report;
mod rolling;
mod rotation;
mod told;

use crate::kit::random::{Random, count, seed};
use cluster::Cluster;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_fault_after_another_loses_and_doubles_nothing() {
    let Some(mut cluster) = Cluster::start().await else { return };
    let mut random = Random::new(seed());
    let load = cluster.load().await;
    // What it had reserved is charged after half a minute, in which the others happen.
    hosts::kill(&mut cluster, &mut random).await;
    primary::kill(&mut cluster).await;
    connections::strike(&mut cluster, &connections::BREAKS, 0).await;
    primary::crash(&mut cluster).await;
    primary::forget(&mut cluster).await;
    primary::pause(&mut cluster).await;
    linear::compete(&mut cluster, &mut random, 0).await;
    cluster.end_round(load).await;
    cluster.report("one fault after another");
}

/// How often a fault is repeated: so many times with `COFFERDAM_FAULTS=all`, and not at all by default.
fn rounds(all: usize) -> usize {
    let rounds = count(0, all);
    if rounds == 0 {
        eprintln!("SKIPPED: COFFERDAM_FAULTS=N makes N rounds");
    }
    rounds
}

/// Repeats a fault on one cluster.
async fn table(fault: &str, all: usize, suffer: impl AsyncFn(&mut Cluster, &mut Random, usize)) {
    let rounds = rounds(all);
    if rounds == 0 {
        return;
    }
    let Some(mut cluster) = Cluster::start().await else { return };
    let mut random = Random::new(seed());
    for round in 0..rounds {
        let load = cluster.load().await;
        suffer(&mut cluster, &mut random, round).await;
        cluster.end_round(load).await;
    }
    cluster.report(fault);
}
