//! Copying secrets of the workspace to an intern.

use super::{INVALID, NOT_FOUND, Vault, assert_refused, command, text, with_intern};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::task::JoinSet;

#[tokio::test]
async fn copies_come_back_in_the_order_asked_with_hosts_kept_and_other_fingerprints() {
    let (host, intern) = with_intern();
    let (vault, own) = (Vault::of(&host), Vault::of_intern(&host, &host.key, &intern));
    let mut names: Vec<String> = (0..100).map(|number| format!("n{number}")).collect();
    for name in &names {
        vault.stored(name, &[&format!("{}.example", name), "b.example"], name).await;
    }
    names.reverse();
    let asked: Vec<&str> = names.iter().map(String::as_str).collect();
    let answer = own.copy(&asked).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.body.as_object().unwrap().len(), 1);
    let copies = answer.body["data"].as_array().unwrap();
    assert_eq!(copies.iter().map(|copy| text(copy, "name")).collect::<Vec<_>>(), names);
    let sources = vault.list().await;
    for copy in copies {
        let source = sources.iter().find(|source| source["name"] == copy["name"]).unwrap();
        assert_eq!(copy["hosts"], source["hosts"]);
        assert_ne!(copy["fingerprint"], source["fingerprint"]);
        assert_eq!(copy.as_object().unwrap().len(), 4);
    }
    let mut listed = own.list().await;
    listed.reverse();
    let mut sorted = copies.clone();
    sorted.sort_by_key(|copy| std::cmp::Reverse(text(copy, "name")));
    assert_eq!(listed, sorted);
    assert_eq!(own.copy(&["n7"]).await.body["data"], json!([copies[92]]));
}

#[tokio::test]
async fn many_copies_of_one_workspace_do_not_block_the_writes_of_another() {
    let (host, intern) = with_intern();
    command(&host, "workspace create second");
    let other = text(&command(&host, "key create --workspace second"), "key");
    let (vault, other) = (Vault::of(&host), Vault::with_key(&host, &other));
    let own = Arc::new(Vault::of_intern(&host, &host.key, &intern));
    let value = "x".repeat(4096);
    let names: Vec<String> = (0..100).map(|number| format!("n{number}")).collect();
    for name in &names {
        vault.stored(name, &["a.com"], &value).await;
    }
    let mut copies = JoinSet::new();
    for _ in 0..100 {
        let (own, names) = (Arc::clone(&own), names.clone());
        copies.spawn(async move { own.copy(&names.iter().map(String::as_str).collect::<Vec<_>>()).await });
    }
    let first = copies.join_next().await.unwrap().unwrap();
    assert_eq!(first.status, 200, "{}", first.text);
    for number in 0..5 {
        other.stored(&format!("n{number}"), &["a.com"], "x").await;
    }
    command(&host, "workspace create third");
}

#[tokio::test]
async fn names_to_copy_are_a_list_of_1_to_100_different_names() {
    let (host, intern) = with_intern();
    let own = Vault::of_intern(&host, &host.key, &intern);
    let many: Vec<String> = (0..101).map(|number| format!("n{number}")).collect();
    for names in [
        json!([]),
        json!(many),
        json!(["a", "a"]),
        json!(["a", "A"]),
        json!(["a__b"]),
        json!(["a\n"]),
        json!([5]),
        json!([null]),
        json!([["a"]]),
        json!("a"),
        json!({"a": 1}),
        Value::Null,
    ] {
        assert_refused(
            &own.copy_body(json!({"names": names}).to_string()).await,
            INVALID,
            &names.to_string(),
        );
    }
    assert_refused(&own.copy_body("{}").await, INVALID, "missing");
}

#[tokio::test]
async fn nothing_is_copied_when_one_is_missing() {
    let (host, intern) = with_intern();
    let (vault, own) = (Vault::of(&host), Vault::of_intern(&host, &host.key, &intern));
    let kept = own.stored("n1", &["own.com"], "own").await;
    let names: Vec<String> = (0..99).map(|number| format!("n{number}")).collect();
    for name in &names {
        vault.stored(name, &["a.com"], name).await;
    }
    for missing in [0, 50, 99] {
        let mut asked: Vec<&str> = names.iter().map(String::as_str).collect();
        asked.insert(missing, "missing");
        assert_refused(&own.copy(&asked).await, NOT_FOUND, "missing");
        assert_eq!(own.list().await, std::slice::from_ref(&kept));
    }
    // A secret of the intern itself is not one of the workspace.
    own.stored("alone", &["a.com"], "x").await;
    assert_refused(&own.copy(&["alone"]).await, NOT_FOUND, "alone");
}

#[tokio::test]
async fn copies_replace_and_then_stand_on_their_own() {
    let (host, intern) = with_intern();
    let (vault, own) = (Vault::of(&host), Vault::of_intern(&host, &host.key, &intern));
    let before = own.stored("a", &["own.com"], "own").await;
    vault.stored("a", &["a.com"], "x").await;
    let copied = own.copy(&["a"]).await.body["data"][0].clone();
    assert_eq!(copied["hosts"], json!(["a.com"]));
    assert_ne!(copied["fingerprint"], before["fingerprint"]);
    assert_eq!(copied["created_at"], before["created_at"]);
    let again = own.copy(&["a"]).await.body["data"][0].clone();
    assert_eq!(again["fingerprint"], copied["fingerprint"]);
    vault.stored("a", &["b.com"], "y").await;
    assert_eq!(own.list().await, std::slice::from_ref(&again));
    assert_eq!(vault.delete("a").await.status, 204);
    assert_eq!(own.list().await, std::slice::from_ref(&again));
    // The value was copied as well: storing it again changes nothing.
    assert_eq!(own.stored("a", &["a.com"], "x").await, again);
}
