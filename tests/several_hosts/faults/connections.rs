//! Connections to the primary break at each place of a transaction.

use super::cluster::{Cluster, HOSTS};
use crate::kit::random::count;
use cofferdam_test_postgres::{Fault, Place, Rule};
use std::time::{Duration, Instant};

/// Longer than a usual transaction, shorter than a lane waits.
const DELAY: Duration = Duration::from_millis(300);

/// The first round trip of a transaction, the second one, and its COMMIT.
fn places() -> [(&'static str, Place); 3] {
    [
        ("flight 1", Place::Sql("FROM chain WHERE id = $1 FOR UPDATE".to_owned())),
        ("flight 2", Place::Sql("UPDATE chain SET seq".to_owned())),
        ("COMMIT", Place::Commit),
    ]
}

/// Breaks connections of one host after the other, all faults at all places in each round.
async fn strike(what: &str, faults: &[Fault], rounds: usize) {
    let Some(mut cluster) = Cluster::start().await else { return };
    for round in 0..rounds {
        let load = cluster.load().await;
        for (number, (name, place)) in places().iter().enumerate() {
            for (kind, fault) in faults.iter().enumerate() {
                let host = (round + number + kind) % HOSTS;
                let [way, _] = cluster.ways_of(host);
                let struck = way.struck();
                way.add(Rule::new(place.clone(), *fault));
                let waited = way.until_struck(struck + 1).await;
                waited.unwrap_or_else(|error| panic!("{name}, {fault:?}: {error}"));
                cluster.count_fault();
                let at = Instant::now();
                cluster.until_served(at).await;
                // What fell silent must not stay so in the next round.
                cluster.ways_of(host)[0].release();
            }
        }
        cluster.end_round(load).await;
    }
    cluster.report(what);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_break_lose_and_double_nothing() {
    let faults = [
        Fault::CutBefore,
        Fault::CutAfter,
        Fault::SwallowReply,
        Fault::Delay(DELAY),
        Fault::CloseToServer,
        Fault::CloseToClient,
    ];
    strike(
        "connection cut, reply swallowed, delayed, half-closed at flight 1, flight 2, COMMIT",
        &faults,
        count(1, 50),
    )
    .await;
}

/// Each waits for the end of a round trip that gets no answer, so there is no round by default.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_fall_silent_lose_and_double_nothing() {
    let rounds = count(0, 50);
    if rounds == 0 {
        eprintln!("SKIPPED: COFFERDAM_FAULTS=N makes N rounds");
        return;
    }
    let faults = [Fault::SilenceBefore, Fault::SilenceAfter];
    strike("connection silent at flight 1, flight 2, COMMIT", &faults, rounds).await;
}
