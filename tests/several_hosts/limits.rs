//! Limits that hosts share. The rates are so low that nothing is paid off during a test.

use super::sharing::provider;
use super::{Site, demo, put, until};
use crate::kit::admin::Admin;
use crate::kit::client::{Answer, Client, Events};
use crate::kit::config::MODEL;
use crate::kit::host::Host;
use crate::kit::script;
use crate::kit::upstream::{Reply, Upstream, sse_event};
use cofferdam_test_postgres::{Database, Server, installed};
use serde_json::json;
use tokio::sync::mpsc::Sender;

const HOSTS: &str = "cofferdam_store_hosts";
/// A database of a busy machine may take longer than a host waits for it, which then admits its part. So what is
/// exact otherwise is tried with one key after the other.
const ROUNDS: usize = 5;

/// Two hosts that know of each other.
async fn pair(site: &Site, config: &str) -> [Host; 2] {
    let hosts = [site.host(config).start(), site.host(config).start()];
    for host in &hosts {
        Admin::new(host).until_metric(HOSTS, 2).await;
    }
    hosts
}

/// A client of a new key on each host.
async fn clients(hosts: &[Host; 2]) -> ([Client; 2], String) {
    let made = hosts[0].command(&["key", "create", "--workspace", "default"]);
    let key = made["key"].as_str().unwrap();
    let clients = [Client::with_key(&hosts[0], key), Client::with_key(&hosts[1], key)];
    until(200, async || clients[1].get("/models").await).await;
    (clients, made["id"].as_str().unwrap().to_owned())
}

/// The limit that refused this.
fn limit(answer: &Answer) -> &str {
    assert_eq!(answer.status, 429, "{}", answer.text);
    answer.body["error"]["metadata"]["limit"].as_str().unwrap()
}

/// The answers to requests, one after the other, through these clients in turn.
async fn answers(clients: &[&Client], count: usize) -> Vec<Answer> {
    let mut answers = Vec::new();
    for turn in 0..count {
        answers.push(clients[turn % clients.len()].post("/responses", &demo()).await);
    }
    answers
}

/// A stream whose first event has arrived, and the sender that feeds it.
async fn opened(client: &Client, upstream: &Upstream) -> (Sender<String>, Events) {
    let (feed, reply) = Reply::fed();
    upstream.reply(reply);
    feed.send(sse_event(&script::word("first"))).await.unwrap();
    let mut events = client.open(&json!({"model": MODEL, "input": "x"})).await;
    events.until("response.output_text.delta").await;
    (feed, events)
}

#[tokio::test]
async fn a_few_requests_a_minute_are_counted_exactly_over_both_hosts() {
    let Some(site) = Site::new() else { return };
    let config = "[limits]\nrequests_per_minute = 3\nworkspace_requests_per_minute = 1000\n";
    let hosts = pair(&site, config).await;
    let mut counts = Vec::new();
    for _ in 0..ROUNDS {
        let (clients, id) = clients(&hosts).await;
        let answers = answers(&clients.each_ref(), 8).await;
        assert!(answers.iter().all(|answer| answer.headers["x-ratelimit-limit"] == "3"));
        let (admitted, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 200);
        for answer in refused {
            assert_eq!(limit(answer), "requests_per_minute");
            assert!(answer.headers.contains_key("retry-after"));
            assert_eq!(answer.headers["x-ratelimit-remaining"], "0");
        }
        let admitted = admitted.len();
        counts.push(admitted);
        if admitted == 3 {
            let bucket = format!("SELECT count(*) FROM bucket WHERE id = 'requests/{id}'");
            let rows = Server::shared().unwrap().query_in(&site.database.name, &bucket).unwrap();
            assert_eq!(rows, [[Some("1".to_owned())]]);
            return;
        }
    }
    panic!("admitted {counts:?} with a limit of 3");
}

#[tokio::test]
async fn tokens_charged_on_one_host_keep_the_key_from_the_other() {
    let Some(site) = Site::new() else { return };
    let upstream = Upstream::start().await;
    let hosts = pair(&site, &(provider(&upstream) + "[limits]\ntokens_per_minute = 2\n")).await;
    assert_eq!(put(&Client::new(&hosts[0]), "own_key", "provider.test", "1").await.status, 200);
    let server = Server::shared().unwrap();
    for _ in 0..ROUNDS {
        let (clients, id) = clients(&hosts).await;
        // 10 tokens are five minutes.
        upstream.reply(script::chat("hello"));
        let answer = clients[0].post("/responses", &json!({"model": MODEL, "input": "x"})).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let bucket = format!(
            "SELECT count(*) FROM bucket WHERE id = 'tokens/{id}' \
             AND until_ns / 1e9 > extract(epoch FROM now()) + 60"
        );
        let end = std::time::Instant::now() + super::PATIENCE;
        while server.query_in(&site.database.name, &bucket).unwrap() != [[Some("1".to_owned())]] {
            assert!(std::time::Instant::now() < end, "the tokens are not booked");
        }
        // One that is admitted is charged too.
        upstream.reply(script::chat("hello"));
        let answer = clients[1].post("/responses", &json!({"model": MODEL, "input": "x"})).await;
        upstream.clear();
        if answer.status != 200 {
            assert_eq!(limit(&answer), "tokens_per_minute");
            return;
        }
    }
    panic!("tokens of the other host are never known");
}

#[tokio::test]
async fn requests_of_the_vault_are_counted_exactly_over_both_hosts() {
    let Some(site) = Site::new() else { return };
    // 20 at once, at least.
    let hosts = pair(&site, "[vault.rate_limit]\nreads_per_minute = 1\n").await;
    let mut counts = Vec::new();
    for _ in 0..ROUNDS {
        let (clients, _) = clients(&hosts).await;
        let mut admitted = 0;
        for turn in 0..25 {
            let answer = clients[turn % 2].get("/vault/secrets").await;
            assert!(matches!(answer.status, 200 | 429), "{}", answer.text);
            admitted += usize::from(answer.status == 200);
        }
        counts.push(admitted);
        if admitted == 20 {
            return;
        }
    }
    panic!("admitted {counts:?} with a limit of 20");
}

#[tokio::test]
async fn requests_that_run_on_both_hosts_share_the_limit_of_their_key() {
    let Some(site) = Site::new() else { return };
    let upstream = Upstream::start().await;
    let hosts = pair(&site, &(provider(&upstream) + "[limits]\nconcurrent_per_key = 3\n")).await;
    assert_eq!(put(&Client::new(&hosts[0]), "own_key", "provider.test", "1").await.status, 200);
    let ask = json!({"model": MODEL, "input": "x"});
    for _ in 0..ROUNDS {
        let (clients, _) = clients(&hosts).await;
        let mut streams = Vec::new();
        for client in [&clients[0], &clients[0], &clients[1]] {
            streams.push(opened(client, &upstream).await);
        }
        upstream.reply(script::chat("one too many"));
        let answers = [clients[0].post("/responses", &ask).await, clients[1].post("/responses", &ask).await];
        upstream.clear();
        if answers.iter().any(|answer| answer.status == 200) {
            continue;
        }
        for answer in &answers {
            assert_eq!(limit(answer), "concurrent_per_key");
        }
        // A stream of the first host ends, and the second one may run one more.
        drop(streams.remove(0));
        let next = until(200, async || {
            upstream.clear();
            upstream.reply(script::chat("next"));
            clients[1].post("/responses", &ask).await
        });
        assert_eq!(next.await.output_text(), "next");
        return;
    }
    panic!("more than three requests ran in each round");
}

#[tokio::test]
async fn seats_of_a_killed_host_are_free_again() {
    let Some(site) = Site::new() else { return };
    let upstream = Upstream::start().await;
    let mut hosts = pair(&site, &(provider(&upstream) + "[limits]\nconcurrent_per_key = 1\n")).await;
    assert_eq!(put(&Client::new(&hosts[0]), "own_key", "provider.test", "1").await.status, 200);
    let (clients, _) = clients(&hosts).await;
    let stream = opened(&clients[0], &upstream).await;
    hosts[0].kill();
    let next = until(200, async || {
        upstream.clear();
        upstream.reply(script::chat("next"));
        clients[1].post("/responses", &json!({"model": MODEL, "input": "x"})).await
    });
    assert_eq!(next.await.output_text(), "next");
    drop(stream);
}

#[tokio::test]
async fn a_database_that_does_not_answer_gives_each_host_its_part() {
    if !installed() {
        return;
    }
    let server = Server::start().unwrap();
    let database: Database = server.database("paused").unwrap();
    let site = Site::on(database).made();
    let hosts = pair(&site, "[limits]\nrequests_per_minute = 8\n").await;
    for _ in 0..ROUNDS {
        let (clients, _) = clients(&hosts).await;
        server.stop_signal().unwrap();
        let mut statuses = Vec::new();
        for client in &clients {
            let answers = answers(&[client], 6).await;
            statuses.push(answers.iter().map(|answer| answer.status).collect::<Vec<_>>());
        }
        server.continue_signal().unwrap();
        // After 4.5 s without the database a host refuses everything.
        if !statuses.iter().flatten().any(|status| *status == 503) {
            assert_eq!(statuses, [[200, 200, 200, 200, 429, 429], [200, 200, 200, 200, 429, 429]]);
            return;
        }
        for host in &hosts {
            Admin::new(host).until_ready().await;
            Admin::new(host).until_metric(HOSTS, 2).await;
        }
    }
    panic!("hosts had no contact in each round");
}
