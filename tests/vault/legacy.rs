//! Imported secrets from before hosts were required.

use super::{NOT_FOUND, Vault, assert_refused, command, setup, text};
use crate::kit::host::{Host, Setup};
use crate::kit::store::{now, prepare};
use cofferdam_store::{Actor, LegacySecret, SecretValue};
use serde_json::{Value, json};

/// A host whose workspace `default` has these legacy secrets, and an intern.
fn with_legacy(names: &[&str]) -> (Host, String) {
    let setup = setup();
    import(&setup, names);
    let host = setup.start();
    let intern = text(&command(&host, "intern create scout --workspace default"), "id");
    (host, intern)
}

fn import(setup: &Setup, names: &[&str]) {
    let secret = |name: &&str| LegacySecret {
        name: name.parse().unwrap(),
        value: SecretValue::new(format!("old {name}").into()).unwrap(),
        created_at_ms: Some(1_704_164_645_678),
    };
    prepare(setup, |store| {
        let workspace = now(store.find_workspace("default")).unwrap().id;
        store.import_legacy(Actor::Operator, workspace, names.iter().map(secret).collect()).unwrap();
    });
}

fn legacy(name: &str) -> Value {
    json!({"name": name, "hosts": null, "fingerprint": null, "created_at": "2024-01-02T03:04:05.678Z"})
}

#[tokio::test]
async fn legacy_secrets_stand_among_the_others_with_null_hosts_and_fingerprint() {
    let (host, intern) = with_legacy(&["e", "a", "c", "g"]);
    let vault = Vault::of(&host);
    for name in ["b", "d", "f"] {
        vault.stored(name, &["a.com"], "x").await;
    }
    let mut walked = Vec::new();
    for (offset, has_more) in [(0, true), (3, true), (6, false)] {
        let page = vault.page(&format!("?limit=3&offset={offset}")).await;
        assert_eq!(page.body["has_more"], has_more, "{}", page.text);
        walked.extend(page.body["data"].as_array().unwrap().clone());
    }
    let names: Vec<String> = walked.iter().map(|entry| text(entry, "name")).collect();
    assert_eq!(names, ["a", "b", "c", "d", "e", "f", "g"]);
    assert_eq!((&walked[0], &walked[2]), (&legacy("a"), &legacy("c")));
    assert!(walked[1]["hosts"].is_array());
    // The intern sees it too, because it has no secret of that name.
    let effective = Vault::of_intern(&host, &host.key, &intern).effective("?limit=1").await;
    let mut expected = legacy("a");
    expected["scope"] = "workspace".into();
    assert_eq!(effective.body["data"], json!([expected]));
}

#[tokio::test]
async fn storing_over_a_legacy_secret_replaces_it_permanently() {
    let (host, _) = with_legacy(&["a", "b"]);
    let vault = Vault::of(&host);
    let stored = vault.stored("a", &["a.com"], "new").await;
    assert_eq!(stored["created_at"], "2024-01-02T03:04:05.678Z");
    assert_eq!(vault.list().await, [stored, legacy("b")]);
    assert_eq!(vault.delete("a").await.status, 204);
    assert_eq!(vault.list().await, [legacy("b")]);
    assert_refused(&vault.delete("a").await, NOT_FOUND, "a");
}

#[tokio::test]
async fn legacy_secrets_cannot_be_deleted() {
    let (host, _) = with_legacy(&["a"]);
    let vault = Vault::of(&host);
    assert_refused(&vault.delete("a").await, NOT_FOUND, "a");
    assert_eq!(vault.list().await, [legacy("a")]);
}

#[tokio::test]
async fn legacy_secrets_cannot_be_copied_and_a_missing_name_is_reported_first() {
    let (host, intern) = with_legacy(&["a"]);
    let (vault, own) = (Vault::of(&host), Vault::of_intern(&host, &host.key, &intern));
    vault.stored("b", &["a.com"], "x").await;
    let answer = own.copy(&["b", "a"]).await;
    let message = "A secret without hosts cannot be copied; store it again with hosts";
    assert_refused(&answer, (409, message), "legacy");
    assert_refused(&own.copy(&["a", "missing"]).await, NOT_FOUND, "both");
    assert_refused(&own.copy(&["missing", "a"]).await, NOT_FOUND, "both");
    assert!(own.list().await.is_empty());
    vault.stored("a", &["a.com"], "x").await;
    assert_eq!(own.copy(&["b", "a"]).await.status, 200);
}
