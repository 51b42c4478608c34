//! Connections to the primary break at each place of a transaction.

use super::cluster::{Cluster, HOSTS};
use super::table;
use cofferdam_test_postgres::{Fault, Place, Rule};
use std::time::Duration;

/// Longer than a usual transaction, shorter than a lane waits.
const DELAY: Duration = Duration::from_millis(300);

/// Cut, reply swallowed, delayed, half-closed.
pub const BREAKS: [Fault; 6] = [
    Fault::CutBefore,
    Fault::CutAfter,
    Fault::SwallowReply,
    Fault::Delay(DELAY),
    Fault::CloseToServer,
    Fault::CloseToClient,
];

/// The first round trip of a transaction, the second one, and its COMMIT.
fn places() -> [Place; 3] {
    let sql = |text: &str| Place::Sql(text.to_owned());
    [sql("FROM chain WHERE id = $1 FOR UPDATE"), sql("UPDATE chain SET seq"), Place::Commit]
}

/// Breaks connections of one host after the other, with all faults at all places.
pub async fn strike(cluster: &mut Cluster, faults: &[Fault], round: usize) {
    let all = places().into_iter().flat_map(|place| faults.iter().map(move |fault| (place.clone(), *fault)));
    for (number, (place, fault)) in all.enumerate() {
        let host = (round + number) % HOSTS;
        let [way, _] = cluster.ways_of(host);
        let struck = way.struck();
        way.add(Rule::new(place.clone(), fault));
        let waited = way.until_struck(struck + 1).await;
        waited.unwrap_or_else(|error| panic!("{place:?}, {fault:?}: {error}"));
        let struck_at = cluster.begin_fault();
        cluster.until_served(struck_at).await;
        // What fell silent must not stay so.
        cluster.ways_of(host)[0].release();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_break_lose_and_double_nothing() {
    let fault = "connection cut, reply swallowed, delayed, half-closed at flight 1, flight 2, COMMIT";
    table(fault, 50, async |cluster, _, round| strike(cluster, &BREAKS, round).await).await;
}

/// Each waits for the end of a round trip that gets no answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_fall_silent_lose_and_double_nothing() {
    let fault = "connection silent at flight 1, flight 2, COMMIT";
    let silent = [Fault::SilenceBefore, Fault::SilenceAfter];
    table(fault, 10, async |cluster, _, round| strike(cluster, &silent, round).await).await;
}
