//! A mixed load of paid and free requests and vault writes, ended by SIGTERM or SIGKILL at a random point.

use super::ledger::{OUTPUT, answer, of, once, prepaid_key, setup};
use super::rows::Rows;
use crate::kit::client::Client;
use crate::kit::deadline;
use crate::kit::host::{Host, Setup};
use crate::kit::random::{Random, count, seed};
use crate::kit::store::rows_in;
use crate::kit::upstream::Upstream;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::Notify;

/// Clients that ask for answers, half of them for the prepaid workspace.
const CLIENTS: usize = 6;
/// Clients that write secrets.
const WRITERS: usize = 8;

/// One round of the load.
#[derive(Default)]
struct Load {
    /// Answers that arrived whole.
    finished: AtomicUsize,
    grown: Notify,
    is_signalled: AtomicBool,
}

impl Load {
    fn add(&self) {
        self.finished.fetch_add(1, Ordering::Relaxed);
        self.grown.notify_one();
    }

    async fn until(&self, enough: usize) {
        while self.finished.load(Ordering::Relaxed) < enough {
            self.grown.notified().await;
        }
    }

    /// Whether the host was sent its signal. Before it only a busy host refuses requests, and they are sent again.
    fn is_over(&self) -> bool {
        self.is_signalled.load(Ordering::Acquire)
    }
}

/// Sends requests until the host has got its signal and refuses one or is gone; returns the ids of the answers that arrived
/// whole.
async fn ask_on(client: Client, model: &str, load: &Load) -> Vec<String> {
    let mut ids = Vec::new();
    for number in 0_u32.. {
        let streamed = number.is_multiple_of(2);
        let tools = if number % 4 < 2 { json!([]) } else { json!([{"type": "service:datetime"}]) };
        let body = json!({"model": model, "input": "x", "max_output_tokens": OUTPUT, "stream": streamed, "tools": tools});
        let request = client.request(reqwest::Method::POST, "/responses").body(body.to_string());
        let response = match request.header("content-type", "application/json").send().await {
            Ok(response) => response,
            Err(error) => {
                assert!(!error.is_timeout(), "a client hangs: {error}");
                assert!(load.is_over(), "the host is gone before its signal: {error}");
                break;
            }
        };
        if response.status() != 200 {
            assert_eq!(response.status(), 503);
            if load.is_over() {
                break;
            }
            continue;
        }
        let id = response.headers()["x-generation-id"].to_str().unwrap().to_owned();
        match response.text().await {
            Ok(text) if !streamed || text.contains("\"response.completed\"") => ids.push(id),
            Ok(_) if load.is_over() => break,
            Ok(_) => continue,
            Err(error) => {
                assert!(!error.is_timeout(), "a client hangs: {error}");
                assert!(load.is_over(), "an answer breaks off before the signal: {error}");
                break;
            }
        }
        load.add();
    }
    ids
}

/// Sends the signal after so many answers; returns those of the prepaid workspace and the others.
async fn ended_under_load(host: &Host, paid_key: &str, signal: &str, enough: usize) -> [Vec<String>; 2] {
    let load = Load::default();
    let of_model = |model: &'static str, key: &str| {
        let clients = (0..CLIENTS / 2).map(|_| ask_on(Client::with_key(host, key), model, &load));
        futures_util::future::join_all(clients.collect::<Vec<_>>())
    };
    let end = async {
        deadline::within(&format!("{enough} answers"), load.until(enough)).await;
        load.is_signalled.store(true, Ordering::Release);
        host.signal(signal);
    };
    let (paid, open, ()) =
        tokio::join!(of_model("test/paid", paid_key), of_model("test/open", &host.key), end);
    [paid.concat(), open.concat()]
}

#[test]
fn a_mixed_load_can_be_ended_at_any_point() {
    let mut random = Random::new(seed());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (paid, open) = runtime.block_on(async { (Upstream::start().await, Upstream::start().await) });
    for upstream in [&paid, &open] {
        upstream.always(answer);
    }
    let unlimited = "[vault]\nrate_limit = { reads_per_minute = 0, writes_per_minute = 0 }";
    let mut host = setup(&paid, &open).config(unlimited).start();
    let key = prepaid_key(&host);
    let rows = Arc::new(Rows::new());
    let rounds = count(4, 200);
    let (mut signals, mut answers, mut lost) = ([0; 2], 0, 0);
    for round in 0..rounds {
        // Both signals are tried however few the rounds are.
        let is_kill = round % 2 == 0;
        let (signal, enough) = (["TERM", "KILL"][usize::from(is_kill)], 1 + random.below(60) as usize);
        let [of_paid, of_open] = rows
            .write_during(&host, WRITERS, || runtime.block_on(ended_under_load(&host, &key, signal, enough)));
        let status = host.wait();
        assert_eq!(status.code(), (!is_kill).then_some(0), "round {round}: {status}");
        rows.check(&host.data()).unwrap();
        let stored = rows_in(&host.data(), 1_000_000);
        let by_id = once(&stored);
        assert!(
            of_paid.iter().all(|id| by_id.contains_key(id)),
            "round {round}: an answer was paid and is not in the books"
        );
        let missing = of_open.iter().filter(|id| !by_id.contains_key(*id)).count();
        // A kill may lose the rows of the last second where nothing is prepaid.
        assert!(is_kill || missing == 0, "round {round}: {missing} answers are not in the books");
        host = Setup::after(&host).start();
        let credit = host.command(&["credits", "show", "paid"]);
        let dollars =
            of(&stored, "test/paid").iter().map(|row| row.cost_pico).sum::<u64>() / 1_000_000_000_000;
        assert_eq!(
            (credit["reserved"].as_f64(), credit["spent"].as_f64()),
            (Some(0.0), Some(dollars as f64)),
            "round {round}"
        );
        assert_eq!(host.command(&["vault", "verify"])["problems"], json!([]), "round {round}");
        signals[usize::from(is_kill)] += 1;
        answers += of_paid.len() + of_open.len();
        lost += missing;
        if (round + 1) % 20 == 0 || round + 1 == rounds {
            eprintln!(
                "{} times SIGTERM, {} times SIGKILL: {answers} answers arrived whole, {lost} rows of the last second \
                 before a kill are lost; {} secrets were acknowledged",
                signals[0],
                signals[1],
                rows.acknowledged()
            );
        }
    }
}
