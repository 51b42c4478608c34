//! A hundred swaps of a plugin under load.

use super::changes::{edition_of, request, until_version};
use super::{Commands, Edition, NAME, setup};
use crate::kit::admin::Admin;
use crate::kit::client::{Client, last_response};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const SWAPS: usize = 100;
const STREAMS: usize = 4;

/// Sends one request after the other until stopped. Returns how many answers came from each edition.
async fn load(client: Client, stop: Arc<AtomicBool>) -> [usize; 2] {
    let mut answers = [0; 2];
    while !stop.load(Ordering::Relaxed) {
        let events = client.stream(&request()).await;
        let response = last_response(&events);
        assert_eq!(response["status"], "completed", "{response}");
        answers[edition_of(response)] += 1;
    }
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_swaps_lose_no_request_and_keep_no_old_code() {
    let setup = setup();
    setup.done(&["plugin", "install", &Edition::plain(0, "0.1.0").file()]);
    setup.done(&["plugin", "update", &Edition::plain(1, "0.2.0").file()]);
    let host = setup.start();
    host.until_all_compiled();
    let admin = Admin::new(&host);
    let stop = Arc::new(AtomicBool::new(false));
    let running: Vec<_> =
        (0..STREAMS).map(|_| tokio::spawn(load(Client::new(&host), Arc::clone(&stop)))).collect();
    for swap in 0..SWAPS {
        let done = tokio::task::block_in_place(|| host.done(&["plugin", "rollback", NAME]));
        let version = ["0.1.0", "0.2.0"][swap % 2];
        assert_eq!(done["version"], version);
        tokio::task::block_in_place(|| until_version(&host, version));
    }
    stop.store(true, Ordering::Relaxed);
    let mut answers = [0; 2];
    for task in running {
        let [one, two] = task.await.unwrap();
        answers = [answers[0] + one, answers[1] + two];
    }
    assert!(answers.iter().all(|count| *count > 0), "{answers:?}");
    admin.until_metric("cofferdam_reloads_total", SWAPS as u64).await;
    assert_eq!(admin.metric("cofferdam_reloads_refused_total").await, 0);
    // The code in memory is that of the plugins which are loaded now, as after a start.
    let bytes = admin.metric("cofferdam_plugin_code_bytes").await;
    let fresh = host.restart();
    let client = Client::new(&fresh);
    client.stream(&request()).await;
    let admin = Admin::new(&fresh);
    let loaded = admin.metric("cofferdam_plugin_code_bytes").await;
    assert!(loaded > 0 && bytes <= loaded * 2, "{bytes} bytes of code, {loaded} after a start");
}
