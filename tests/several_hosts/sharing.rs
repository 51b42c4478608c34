//! What one host stores, the others see.

use super::{Site, audit, demo, names, put, until};
use crate::kit::client::{Client, read};
use crate::kit::config::{MODEL, STEADY, model, priced};
use crate::kit::host::Host;
use crate::kit::script;
use crate::kit::upstream::Upstream;
use crate::routing::METADATA;
use cofferdam_test_postgres::Server;
use reqwest::Method;
use serde_json::json;

/// The value that is looked for everywhere.
const CANARY: &str = "canary-5f2e91c07b-value";
const PROVIDER: &str = "provider.test";

/// A provider that takes the caller's own key.
pub(super) fn provider(upstream: &Upstream) -> String {
    let base = upstream.base.replace("127.0.0.1", PROVIDER);
    format!(
        "[egress]\nallow_plaintext_loopback = true\nresolve = {{ \"{PROVIDER}\" = [\"127.0.0.1\"] }}\n\
         [[providers]]\nname = \"a\"\nadapter = \"openai-chat\"\nbase_url = \"{base}\"\nbyok = \"own_key\"\n"
    ) + &model(MODEL, "responses", &["a"])
}

#[tokio::test]
async fn a_secret_put_through_one_host_is_used_by_a_request_through_another() {
    let Some(site) = Site::new() else { return };
    let upstream = Upstream::start().await;
    let config = provider(&upstream);
    let (mut a, mut b) = (site.host(&config).start(), site.host(&config).start());
    let stored = put(&Client::new(&a), "own_key", PROVIDER, CANARY).await;
    assert_eq!(stored.status, 200, "{}", stored.text);
    upstream.reply(script::chat("hello"));
    let answer = Client::new(&b).post("/responses", &json!({"model": MODEL, "input": "x"})).await;
    assert_eq!((answer.status, answer.output_text()), (200, "hello"), "{}", answer.text);
    let sent = upstream.asked_once();
    assert_eq!(sent.headers["authorization"], format!("Bearer {CANARY}"));
    // Both hosts end in order, so that all rows are committed.
    let logs = [a.end(), b.end()];
    assert!(!logs.concat().contains(CANARY), "the value is in a log");
    let actions: Vec<String> = audit(&a)
        .iter()
        .flat_map(|record| record["entries"].as_array().unwrap().clone())
        .map(|entry| entry["action"].as_str().unwrap().to_owned())
        .collect();
    for action in ["store_created", "secret_stored", "secret_released"] {
        assert!(actions.iter().any(|found| found == action), "no {action} in {actions:?}");
    }
    let server = Server::shared().unwrap();
    let found = server.files_containing(CANARY.as_bytes()).unwrap();
    assert!(found.is_empty(), "the value is in {found:?}");
    // The search itself finds what is there.
    let names = server.files_containing(b"cofferdam").unwrap();
    assert!(!names.is_empty());
    for host in [&a, &b] {
        assert!(host.files_with(CANARY).is_empty());
        assert!(host.files_with(&site.database.password).is_empty(), "the password is in a file of the host");
    }
    assert!(!logs.concat().contains(&site.database.password), "the password is in a log");
}

#[tokio::test]
async fn keys_made_and_revoked_on_one_host_count_on_the_other() {
    let Some(site) = Site::new() else { return };
    let (a, b) = (site.host("").start(), site.host("").start());
    let made = a.command(&["key", "create", "--workspace", "default", "--name", "second"]);
    let (key, id) = (made["key"].as_str().unwrap(), made["id"].as_str().unwrap());
    let there = Client::with_key(&b, key);
    until(200, async || there.post("/responses", &demo()).await).await;
    let listed = b.command(&["key", "list"]);
    assert!(listed.as_array().unwrap().iter().any(|listed| listed["id"] == id), "{listed}");
    a.command(&["key", "revoke", id]);
    assert_eq!(Client::with_key(&a, key).post("/responses", &demo()).await.status, 401);
    until(401, async || there.post("/responses", &demo()).await).await;
}

#[tokio::test]
async fn secrets_are_listed_replaced_copied_and_deleted_through_either_host() {
    let Some(site) = Site::new() else { return };
    let (a, b) = (site.host("").start(), site.host("").start());
    let (through_a, through_b) = (Client::new(&a), Client::new(&b));
    let first = put(&through_a, "one", "a.example", "1").await;
    assert_eq!(first.status, 200, "{}", first.text);
    assert_eq!(put(&through_b, "two", "b.example", "2").await.status, 200);
    // Rows of vaults are read from the database, so they are there at once.
    for client in [&through_a, &through_b] {
        let mut listed = names(client).await;
        listed.sort();
        assert_eq!(listed, ["one", "two"]);
    }
    let replaced = put(&through_b, "one", "a.example", "1").await;
    let fingerprint = |answer: &crate::kit::client::Answer| answer.body["data"]["fingerprint"].clone();
    assert_eq!(fingerprint(&replaced), fingerprint(&first), "both hosts have the keys of the vault");
    a.command(&["intern", "create", "reader", "--workspace", "default"]);
    let intern = a.command(&["intern", "list"])[0]["id"].as_str().unwrap().to_owned();
    let copy = async || {
        let path = format!("/vault/interns/{intern}/secrets/copy");
        through_b.post(&path, &json!({"names": ["one"]})).await
    };
    let copied = until(200, copy).await;
    assert_eq!(copied.body["data"][0]["hosts"], json!(["a.example"]), "{}", copied.text);
    let delete = |client: &Client| client.request(Method::DELETE, "/vault/secrets/two").send();
    assert_eq!(read(delete(&through_a).await.unwrap()).await.status, 204);
    assert_eq!(read(delete(&through_b).await.unwrap()).await.status, 404);
    assert_eq!(names(&through_b).await, ["one"]);
    assert_eq!(b.command(&["vault", "verify"])["ok"], true);
}

#[tokio::test]
async fn requests_through_both_hosts_are_in_one_report_of_usage() {
    let Some(site) = Site::new() else { return };
    let (mut a, mut b) = (site.host("").start(), site.host("").start());
    for host in [&a, &b, &a] {
        assert_eq!(Client::new(host).ask(&demo(), false).await["status"], "completed");
        assert_eq!(Client::new(host).ask(&demo(), true).await["status"], "completed");
    }
    // A host that ends commits the rows that wait.
    a.end();
    b.end();
    let report = a.command(&["usage", "--by", "model"]);
    assert_eq!(report["total"]["requests"], 6, "{report}");
    assert_eq!(a.command(&["vault", "verify"])["ok"], true);
}

#[tokio::test]
async fn a_host_that_was_killed_starts_again_beside_the_other() {
    let Some(site) = Site::new() else { return };
    let (mut a, b) = (site.host("").start(), site.host("").start());
    assert_eq!(put(&Client::new(&a), "one", "a.example", "1").await.status, 200);
    a.kill();
    assert_eq!(put(&Client::new(&b), "two", "b.example", "2").await.status, 200);
    let a = a.restart();
    let mut listed = names(&Client::new(&a)).await;
    listed.sort();
    assert_eq!(listed, ["one", "two"]);
    assert_eq!(Client::new(&a).ask(&demo(), false).await["status"], "completed");
    assert_eq!(put(&Client::new(&a), "three", "c.example", "3").await.status, 200);
    assert_eq!(names(&Client::new(&b)).await.len(), 3);
    assert_eq!(a.command(&["vault", "verify"])["ok"], true);
}

/// By chance, all of them go to the same endpoint on both hosts with probability 2^-12.
const SESSIONS: usize = 12;

#[tokio::test]
async fn a_named_session_goes_to_the_same_endpoint_on_every_host() {
    let Some(site) = Site::new() else { return };
    let upstreams = [Upstream::start().await, Upstream::start().await];
    // An endpoint that one of the hosts has found slow is not put last.
    let config = STEADY.to_owned() + &priced(&[(&upstreams[0].base, 1.0), (&upstreams[1].base, 1.0)]);
    let hosts = [site.host(&config).start(), site.host(&config).start()];
    let answering = async |host: &Host, session: &str| {
        for upstream in &upstreams {
            upstream.clear();
            upstream.reply(script::chat("fine"));
        }
        let request = json!({"model": MODEL, "input": "x", "session_id": session});
        let answer = Client::new(host).post_with("/responses", &request, &METADATA).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.body["service_metadata"]["attempts"][0]["provider"].as_str().unwrap().to_owned()
    };
    let mut drawn: Vec<String> = Vec::new();
    for session in 0..SESSIONS {
        let session = format!("session {session}");
        let first = answering(&hosts[0], &session).await;
        assert_eq!(answering(&hosts[1], &session).await, first, "{session}");
        drawn.push(first);
    }
    drawn.dedup();
    assert!(drawn.len() > 1, "sessions are distributed");
}
