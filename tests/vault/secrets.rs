//! What the vault stores and what it returns.

use super::{Vault, command, setup, text};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use serde_json::Value;

#[tokio::test]
async fn storing_shows_exactly_the_metadata_and_never_the_value() {
    let host = setup().start();
    let value = "canary value \"with\" everything/é+%";
    let answer = Vault::of(&host).put("a", &["api.example.com"], value).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let members: Vec<&String> = answer.body["data"].as_object().unwrap().keys().collect();
    assert_eq!(members, ["name", "hosts", "fingerprint", "created_at"]);
    assert_eq!(answer.body.as_object().unwrap().len(), 1);
    let data = &answer.body["data"];
    assert_eq!((&data["name"], &data["hosts"][0]), (&"a".into(), &"api.example.com".into()));
    let created = text(data, "created_at");
    let shape: String = created.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(shape, "0000-00-00T00:00:00.000Z");
    let fingerprint = text(data, "fingerprint");
    let digits = fingerprint.strip_prefix("sha256:").unwrap();
    assert!(digits.len() == 64 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')));
    let raw = format!("{:?} {}", answer.headers, answer.text);
    let hex: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
    let json = serde_json::to_string(value).unwrap();
    for encoded in [value, &hex, &BASE64_STANDARD_NO_PAD.encode(value), json.trim_matches('"')] {
        assert!(!raw.contains(encoded), "{encoded}");
    }
}

#[tokio::test]
async fn fingerprints_are_equal_for_equal_values_of_one_vault_only() {
    let host = setup().start();
    let vault = Vault::of(&host);
    let fingerprint = |data: &Value| text(data, "fingerprint");
    let first = fingerprint(&vault.stored("a", &["a.com"], "one").await);
    assert_eq!(fingerprint(&vault.stored("a", &["b.com"], "one").await), first);
    let second = fingerprint(&vault.stored("a", &["b.com"], "two").await);
    assert_ne!(second, first);
    assert_eq!(fingerprint(&vault.stored("a", &["b.com"], "one").await), first);
    assert_eq!(fingerprint(&vault.stored("other", &["c.com"], "one").await), first);
    // SHA-256 of `one`, without a key: a fingerprint must not be a plain hash.
    let plain = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed";
    assert_ne!(first, format!("sha256:{plain}"));
    command(&host, "workspace create second");
    let key = text(&command(&host, "key create --workspace second"), "key");
    let there = fingerprint(&Vault::with_key(&host, &key).stored("a", &["a.com"], "one").await);
    assert_ne!(there, first);
}

#[tokio::test]
async fn replacing_keeps_the_date_and_storing_anew_does_not() {
    let host = setup().start();
    let vault = Vault::of(&host);
    let first = text(&vault.stored("a", &["a.com"], "one").await, "created_at");
    assert_eq!(text(&vault.stored("a", &["b.com"], "two").await, "created_at"), first);
    let mut again = first.clone();
    // On a fast disk both may happen in the same millisecond.
    while again == first {
        assert_eq!(vault.delete("a").await.status, 204);
        again = text(&vault.stored("a", &["a.com"], "one").await, "created_at");
        assert!(again >= first);
    }
}

#[tokio::test]
async fn deleting_answers_once_with_nothing_and_then_with_not_found() {
    let host = setup().start();
    let vault = Vault::of(&host);
    vault.stored("a", &["a.com"], "one").await;
    let deleted = vault.delete("a").await;
    assert_eq!((deleted.status, deleted.text.as_str()), (204, ""));
    assert!(!deleted.headers.contains_key("content-type"), "{:?}", deleted.headers);
    super::assert_refused(&vault.delete("a").await, super::NOT_FOUND, "again");
    assert!(vault.list().await.is_empty());
}

/// A client cannot tell whether the secret existed before.
#[tokio::test]
async fn storing_anew_and_replacing_look_alike() {
    let host = setup().start();
    let vault = Vault::of(&host);
    let anew = vault.put("a", &["a.com"], "one").await;
    let again = vault.put("a", &["a.com"], "one").await;
    assert_eq!((anew.status, &anew.text), (again.status, &again.text));
    let names = |answer: &crate::kit::client::Answer| -> Vec<String> {
        answer.headers.keys().map(ToString::to_string).collect()
    };
    assert_eq!(names(&anew), names(&again));
}

#[tokio::test]
async fn secrets_are_there_after_a_restart() {
    let host = setup().start();
    let stored = Vault::of(&host).stored("a", &["a.com"], "one").await;
    let host = host.restart();
    let vault = Vault::of(&host);
    assert_eq!(vault.list().await, std::slice::from_ref(&stored));
    assert_eq!(vault.stored("a", &["a.com"], "one").await, stored);
}
