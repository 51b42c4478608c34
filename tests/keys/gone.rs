//! Keys that are switched off, or whose member or workspace is deleted, while the host runs.

use super::{key, text};
use crate::kit::client::Client;
use crate::kit::host::{Host, Setup};
use crate::kit::raw::Raw;
use serde_json::json;

/// The statuses of the routes for this key: responses, embeddings, models, own key, vault.
async fn statuses(host: &Host, token: &str) -> [u16; 5] {
    let client = Client::with_key(host, token);
    [
        client.post("/responses", &json!({"model": "local/demo", "input": "hi"})).await.status,
        client.post("/embeddings", &json!({"model": "local/embed", "input": "hi"})).await.status,
        client.get("/models").await.status,
        client.get("/key").await.status,
        client.get("/vault/secrets").await.status,
    ]
}

#[tokio::test]
async fn keys_of_a_deleted_workspace_stop_working_at_once() {
    let host = Setup::new().start();
    key(&host, "workspace create acme");
    key(&host, "intern create scout --workspace acme");
    let member = text(&key(&host, "key create --workspace acme"), "key");
    let intern = text(&key(&host, "key create --workspace acme --intern scout"), "key");
    assert_eq!(statuses(&host, &member).await, [200; 5]);
    assert_eq!(statuses(&host, &intern).await[..4], [200; 4]);
    let deleted = key(&host, "workspace delete acme --yes");
    assert_eq!(deleted["keys_revoked"], 2);
    assert_eq!(statuses(&host, &member).await, [401; 5]);
    assert_eq!(statuses(&host, &intern).await, [401; 5]);
    assert_eq!(statuses(&host, &host.key).await, [200; 5]);
    // Deletions are durable.
    let host = host.restart();
    assert_eq!(statuses(&host, &member).await, [401; 5]);
    assert_eq!(key(&host, "vault verify")["ok"], true);
}

#[tokio::test]
async fn keys_of_a_deleted_member_stop_working_but_not_those_of_its_interns() {
    let host = Setup::new().start();
    key(&host, "member create ada --workspace default");
    key(&host, "intern create scout --workspace default --member ada");
    let ada = text(&key(&host, "key create --workspace default --member ada"), "key");
    let scout = text(&key(&host, "key create --workspace default --intern scout"), "key");
    assert_eq!(statuses(&host, &ada).await[..4], [200; 4]);
    let before = statuses(&host, &scout).await;
    assert_eq!(before[..4], [200; 4]);
    assert_eq!(key(&host, "member delete ada")["keys_revoked"], 1);
    assert_eq!(statuses(&host, &ada).await, [401; 5]);
    assert_eq!(statuses(&host, &scout).await, before);
}

#[tokio::test]
async fn a_disabled_key_works_again_only_when_enabled() {
    let host = Setup::new().start();
    let made = key(&host, "key create --workspace default");
    let (id, token) = (text(&made, "id"), text(&made, "key"));
    for _ in 0..2 {
        assert_eq!(statuses(&host, &token).await, [200; 5]);
        assert_eq!(key(&host, &format!("key disable {id}"))["disabled"], true);
        assert_eq!(statuses(&host, &token).await, [401; 5]);
        assert_eq!(key(&host, &format!("key enable {id}"))["disabled"], false);
    }
}

#[tokio::test]
async fn changing_one_limit_on_a_running_host_keeps_the_others() {
    let host = Setup::new().start();
    let made = key(&host, "key create --workspace default --limit-day 5 --limit-week 7");
    let (id, token) = (text(&made, "id"), text(&made, "key"));
    let client = Client::with_key(&host, &token);
    key(&host, &format!("key limit {id} --limit-total 0.5 --limit-day none"));
    let shown = client.get("/key").await.body["data"].clone();
    assert_eq!(shown["limits"], json!({"day": null, "week": 7, "month": null, "total": 0.5}));
    key(&host, &format!("key limit {id} --limit-total none --limit-week none"));
    assert_eq!(client.get("/key").await.body["data"]["limit"], json!(null));
}

/// The host asks for the body after it has authenticated the key, so the request is already
/// admitted.
#[tokio::test]
async fn deleting_the_workspace_before_the_body_arrives_refuses_the_request() {
    let body = json!({"model": "local/demo", "input": "hi", "value": "x", "hosts": ["a.com"]}).to_string();
    for (line, kind) in [
        ("POST /v1/responses", ""),
        ("POST /v1/embeddings", ""),
        ("POST /v1/keys", "--provisioning"),
        ("PUT /v1/vault/secrets/a", ""),
    ] {
        let host = Setup::new().start();
        key(&host, "workspace create acme");
        let token = text(&key(&host, &format!("key create --workspace acme {kind}")), "key");
        let mut raw = Raw::connect(&host).await;
        let head = format!(
            "{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        assert!(raw.send(head.as_bytes()).await);
        raw.is_asked_for_body().await;
        key(&host, "workspace delete acme --yes");
        assert!(raw.send(body.as_bytes()).await);
        let (status, _, answer) = raw.answer().await;
        assert_eq!(status, 401, "{line}: {answer}");
    }
}

#[tokio::test]
async fn a_restriction_before_the_body_arrives_refuses_the_write() {
    let host = Setup::new().start();
    key(&host, "workspace create acme");
    key(&host, "member create boss --workspace acme --role admin");
    key(&host, "member create other --workspace acme");
    let intern = text(&key(&host, "intern create scout --workspace acme --member other"), "id");
    let token = text(&key(&host, "key create --workspace acme --member boss"), "key");
    let body = json!({"value": "x", "hosts": ["a.com"]}).to_string();
    let (own, others) = ("/v1/vault/secrets/a".to_owned(), format!("/v1/vault/interns/{intern}/secrets/a"));
    for (path, restrict, restore, expected) in [
        (&own, "workspace set acme --vault-writes off", "workspace set acme --vault-writes on", 503),
        (&own, "workspace set acme --programme off", "workspace set acme --programme on", 404),
        (&others, "member set boss --role member", "member set boss --role admin", 404),
    ] {
        let mut raw = Raw::connect(&host).await;
        let head = format!(
            "PUT {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        assert!(raw.send(head.as_bytes()).await);
        raw.is_asked_for_body().await;
        key(&host, restrict);
        assert!(raw.send(body.as_bytes()).await);
        let (status, _, answer) = raw.answer().await;
        assert_eq!(status, expected, "{restrict}: {answer}");
        key(&host, restore);
        let listed = Client::with_key(&host, &token)
            .get(path.strip_prefix("/v1").unwrap().trim_end_matches("/a"))
            .await;
        assert_eq!(listed.body["data"], json!([]), "{restrict}");
    }
}
