//! A disk with less free space than the operator requires: which requests are refused, which are
//! served, and what is charged.

mod full;

use crate::kit::admin::Admin;
use crate::kit::client::{Answer, Client, last_response};
use crate::kit::config::provider;
use crate::kit::host::{Host, Setup};
use crate::kit::script::{self, ending, word};
use crate::kit::upstream::{Reply, Upstream, sse_event};
use reqwest::Method;
use serde_json::{Value, json};
use std::os::unix::fs::MetadataExt;

/// More than any disk has free: 1 EiB.
const FULL: &str = "[store]\nfree_bytes_min = 1152921504606846976\n";

/// A model whose tokens cost one dollar each.
fn model(upstream: &Upstream) -> String {
    let endpoint = "{ provider = \"p\", model = \"m\", input = 1000000, output = 1000000 }";
    provider("p", "openai-chat", &upstream.base)
        + &format!("[[models]]\nid = \"test/m\"\nendpoints = [{endpoint}]\n")
}

fn command(host: &Host, line: &str) -> Value {
    host.command(&line.split_whitespace().collect::<Vec<_>>())
}

/// A client of a new workspace with credit for a hundred thousand tokens.
fn prepaid(host: &Host) -> Client {
    command(host, "workspace create paid");
    command(host, "credits add paid 100000");
    Client::with_key(host, command(host, "key create --workspace paid")["key"].as_str().unwrap())
}

async fn reload(host: &Host, config: &str, reloads: u64) {
    std::fs::write(host.directory().join("cofferdam.toml"), config).unwrap();
    host.signal("HUP");
    Admin::new(host).until_metric("cofferdam_reloads_total", reloads).await;
}

fn question() -> Value {
    json!({"model": "test/m", "input": "hi"})
}

async fn put(client: &Client, name: &str) -> Answer {
    let body = json!({"hosts": ["a.com"], "value": "x"}).to_string();
    let request = client.request(Method::PUT, &format!("/vault/secrets/{name}")).body(body);
    let answer = request.header("content-type", "application/json").send().await.unwrap();
    crate::kit::client::read(answer).await
}

#[tokio::test]
async fn full_disk_refuses_tenants_changes_and_prepaid_requests_only() {
    let upstream = Upstream::start().await;
    let host = Setup::new().config(&(FULL.to_owned() + &model(&upstream))).start();
    let (open, paid) = (Client::new(&host), prepaid(&host));
    let provisioning = command(&host, "key create --provisioning --workspace default");
    let provisioning = Client::with_key(&host, provisioning["key"].as_str().unwrap());

    upstream.reply(script::chat("served"));
    assert_eq!(open.post("/responses", &question()).await.output_text(), "served");
    let refused = put(&open, "a").await;
    assert_eq!((refused.status, refused.message()), (503, "Vault service is unavailable"));
    assert_eq!(open.get("/vault/secrets").await.body["data"], json!([]));
    let made = provisioning.post("/keys", &json!({"name": "another"})).await;
    assert_eq!(made.status, 503, "{}", made.text);
    assert!(made.message().contains("out of space"), "{}", made.text);
    assert_eq!(made.body["error"]["metadata"]["error_type"], "provider_unavailable");
    assert_eq!(provisioning.get("/keys").await.status, 200);
    let refused = paid.post("/responses", &question()).await;
    assert_eq!(refused.status, 503, "{}", refused.text);
    assert_eq!(upstream.asked().len(), 1, "the refused request went to the provider");
    let credit = command(&host, "credits show paid");
    assert_eq!((&credit["spent"], &credit["reserved"]), (&json!(0), &json!(0)));
    assert!(!host.data().join("reserve").exists());
    host.until_logged("the disk is nearly full (store.free_bytes_min)");

    // The free space is checked for each change, so no restart is needed.
    reload(&host, &("[store]\nfree_bytes_min = 1\n".to_owned() + &model(&upstream)), 1).await;
    assert_eq!(put(&open, "a").await.status, 200);
    assert_eq!(provisioning.post("/keys", &json!({"name": "another"})).await.status, 201);
    upstream.reply(script::chat("paid for"));
    assert_eq!(paid.post("/responses", &question()).await.output_text(), "paid for");
    host.until_logged("the disk has room again");

    // What a client has stored and must not stay can still be taken away.
    reload(&host, &(FULL.to_owned() + &model(&upstream)), 2).await;
    assert_eq!(put(&open, "b").await.status, 503);
    let deleted = open.request(Method::DELETE, "/vault/secrets/a").send().await.unwrap();
    assert!(deleted.status().is_success(), "{}", deleted.status());
    let leaked = command(&host, "key create --workspace default");
    let path = format!("/keys/{}", leaked["id"].as_str().unwrap());
    let patch = async |change: Value| {
        let request = provisioning.request(Method::PATCH, &path).body(change.to_string());
        request.header("content-type", "application/json").send().await.unwrap().status().as_u16()
    };
    assert_eq!(patch(json!({"disabled": true, "limit": 1})).await, 503);
    assert_eq!(patch(json!({"disabled": true})).await, 200);
    assert_eq!(patch(json!({"disabled": false})).await, 503);
    let revoked = provisioning.request(Method::DELETE, &path).send().await.unwrap();
    assert!(revoked.status().is_success(), "{}", revoked.status());
    let refused = Client::with_key(&host, leaked["key"].as_str().unwrap()).get("/models").await;
    assert_eq!(refused.status, 401);
    let host = host.restart();
    assert_eq!(command(&host, "credits show paid")["spent"], 10);
}

#[tokio::test]
async fn a_running_request_is_finished_and_charged_exactly() {
    let upstream = Upstream::start().await;
    let host = Setup::new().config(&model(&upstream)).start();
    let paid = prepaid(&host);
    let (words, reply) = Reply::fed();
    upstream.reply(reply);
    // The response head is sent with the first word.
    words.send(sse_event(&word("hello"))).await.unwrap();
    let mut events = paid.open(&question()).await;
    reload(&host, &(FULL.to_owned() + &model(&upstream)), 1).await;
    for chunk in ending("stop") {
        words.send(sse_event(&chunk)).await.unwrap();
    }
    drop(words);
    let mut all = Vec::new();
    while let Some(event) = events.next().await {
        all.push(event);
    }
    assert_eq!(last_response(&all)["status"], "completed");
    assert_eq!(paid.post("/responses", &question()).await.status, 503);
    let host = host.restart();
    let credit = command(&host, "credits show paid");
    assert_eq!((&credit["spent"], &credit["reserved"]), (&json!(10), &json!(0)));
    // The next start also finds too little free space.
    assert_eq!(put(&Client::new(&host), "a").await.status, 503);
}

#[tokio::test]
async fn disk_reserve_does_not_make_copies_larger() {
    let host = Setup::new().config("[store]\nfree_bytes_min = 1\n").start();
    let reserve = std::fs::metadata(host.data().join("reserve")).unwrap();
    assert_eq!((reserve.len(), reserve.mode() & 0o777), (0, 0o600));
    assert!(reserve.blocks() * 512 >= 32 * 1024 * 1024, "{} blocks", reserve.blocks());
    let host = host.restart();
    assert!(host.data().join("reserve").exists());
}
