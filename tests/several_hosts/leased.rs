//! Hosts that reserve credit ahead, `store.ledger = "leased"`.

use super::{PATIENCE, Site, refused};
use crate::kit::client::Client;
use crate::kit::config::provider;
use crate::kit::database;
use crate::kit::deadline;
use crate::kit::host::{Host, Setup};
use crate::kit::script;
use crate::kit::upstream::Upstream;
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;
use tokio::task::JoinSet;

const LEASED: &str = "ledger = \"leased\"\n";
/// What each request costs, in dollars: ten tokens.
const COST: u32 = 10;
const CLIENTS: usize = 8;

/// A model whose tokens cost one dollar each.
fn model(upstream: &Upstream) -> String {
    let endpoint = "{ provider = \"p\", model = \"m\", input = 1000000, output = 1000000 }";
    provider("p", "openai-chat", &upstream.base)
        + &format!("[[models]]\nid = \"test/m\"\nendpoints = [{endpoint}]\n")
}

fn question() -> Value {
    json!({"model": "test/m", "input": "hi", "max_output_tokens": 16})
}

async fn ask(client: &Client) -> reqwest::Result<reqwest::Response> {
    let request = client.request(Method::POST, "/responses").header("content-type", "application/json");
    request.body(question().to_string()).send().await
}

/// Two hosts that reserve ahead, and the key of a workspace with this credit.
async fn paid(site: &Site, credit: u32) -> (Upstream, [Host; 2], String) {
    let upstream = Upstream::start().await;
    upstream.always(|_| script::chat("fine"));
    let hosts = [(); 2].map(|()| site.host(&model(&upstream)).config(LEASED).start());
    let [host, other] = &hosts;
    host.command(&["workspace", "create", "paid"]);
    host.command(&["credits", "add", "paid", &credit.to_string()]);
    let key = host.command(&["key", "create", "--workspace", "paid"])["key"].as_str().unwrap().to_owned();
    let elsewhere = Client::with_key(other, &key);
    super::until(200, async || elsewhere.get("/key").await).await;
    (upstream, hosts, key)
}

fn credit(host: &Host) -> (f64, f64) {
    let shown = host.command(&["credits", "show", "paid"]);
    (shown["spent"].as_f64().unwrap(), shown["reserved"].as_f64().unwrap())
}

/// Asks with several clients over the hosts, each until it is refused or this is over. Returns how many answers came.
async fn ask_all(hosts: &[&Host], key: &str, is_over: &Arc<AtomicBool>, served: &Arc<AtomicU32>) -> u32 {
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let client = Client::with_key(hosts[number % hosts.len()], key);
        let (is_over, served) = (Arc::clone(is_over), Arc::clone(served));
        clients.spawn(async move {
            while !is_over.load(Ordering::Acquire) {
                let answer = client.post("/responses", &question()).await;
                match answer.status {
                    200 => drop(served.fetch_add(1, Ordering::AcqRel)),
                    402 => return,
                    status => panic!("{status}: {}", answer.text),
                }
            }
        });
    }
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
    served.load(Ordering::Acquire)
}

fn until_free(host: &Host) {
    let end = Instant::now() + 2 * PATIENCE;
    while credit(host).1 > 0.0 {
        assert!(Instant::now() < end, "{:?} is reserved", credit(host));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_credit_of_a_workspace_is_spent_to_its_end_over_two_hosts() {
    const CREDIT: u32 = 2_005;
    let Some(site) = Site::new() else { return };
    let (upstream, hosts, key) = paid(&site, CREDIT).await;
    let (is_over, served) = (Arc::default(), Arc::default());
    ask_all(&[&hosts[0], &hosts[1]], &key, &is_over, &served).await;
    // Alone, a request gets what is left, on whichever host.
    let end = Instant::now() + PATIENCE;
    for host in hosts.iter().cycle() {
        if Client::with_key(host, &key).post("/responses", &question()).await.status == 200 {
            served.fetch_add(1, Ordering::AcqRel);
        } else if credit(host).0 >= f64::from(CREDIT) {
            break;
        }
        assert!(Instant::now() < end, "{:?} is left", credit(host));
    }
    for host in &hosts {
        assert_eq!(Client::with_key(host, &key).post("/responses", &question()).await.status, 402);
    }
    let served = served.load(Ordering::Acquire);
    assert_eq!(
        served * COST,
        CREDIT.next_multiple_of(COST),
        "all of the credit, and less than one request more"
    );
    assert_eq!(
        u32::try_from(upstream.asked().len()).unwrap(),
        served,
        "no refused request went to the provider"
    );
    let [mut host, mut other] = hosts;
    other.end();
    host.end();
    assert_eq!(
        credit(&host),
        (f64::from(served * COST), 0.0),
        "hosts that end give back what they reserved ahead"
    );
    assert_eq!(host.command(&["vault", "verify"])["ok"], true);
}

/// Asks until the host is gone, and counts the whole answers.
async fn ask_until_gone(client: &Client, served: &AtomicU32) {
    while let Ok(answer) = ask(client).await {
        let is_served = answer.status() == 200 && answer.bytes().await.is_ok();
        served.fetch_add(u32::from(is_served), Ordering::AcqRel);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_is_killed_is_charged_at_most_what_it_had_reserved_ahead() {
    const CREDIT: u32 = 40_000;
    let Some(site) = Site::new() else { return };
    let (_upstream, [mut killed, other], key) = paid(&site, CREDIT).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let (of_killed, of_other) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut load = JoinSet::new();
    for _ in 0..CLIENTS {
        let (client, served) = (Client::with_key(&killed, &key), Arc::clone(&of_killed));
        load.spawn(async move { ask_until_gone(&client, &served).await });
    }
    let elsewhere = async { ask_all(&[&other], &key, &is_over, &of_other).await };
    let fault = async {
        let have_answered = || [&of_killed, &of_other].iter().all(|of| of.load(Ordering::Acquire) >= 100);
        deadline::until("100 answers of each host", async || have_answered()).await;
        killed.kill();
        while let Some(ended) = load.join_next().await {
            ended.unwrap();
        }
        is_over.store(true, Ordering::Release);
    };
    tokio::join!(elsewhere, fault);
    tokio::task::block_in_place(|| until_free(&other));
    let (spent, _) = credit(&other);
    let served = (of_killed.load(Ordering::Acquire) + of_other.load(Ordering::Acquire)) * COST;
    // A slice has at most an eighth of the credit; of the requests of a few seconds it is much less.
    let (served, most) = (f64::from(served), f64::from(CREDIT / 8));
    assert!((spent - served).abs() < most, "{spent} for {served}");
    let report = other.command(&["usage", "--workspace", "paid"]);
    assert_eq!(report["total"]["cost"].as_f64(), Some(spent), "{report}");
    assert_eq!(other.command(&["vault", "verify"])["ok"], true);
}

#[test]
fn to_reserve_ahead_is_refused_without_a_database() {
    if database::is_wanted() {
        return;
    }
    let (status, error) = refused(Setup::new().config(&format!("[store]\n{LEASED}")));
    assert_eq!(status, Some(78), "{error}");
    assert!(error.contains("store.ledger: without `url` there is no database"), "{error}");
}
