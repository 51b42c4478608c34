//! Names of secrets, and how they are encoded in paths.

use super::{INVALID, NOT_FOUND, Vault, assert_refused, command, secret, setup, text};
use crate::kit::raw::ask_raw;

#[tokio::test]
async fn names_of_the_pattern_are_accepted() {
    let host = setup().start();
    let vault = Vault::of(&host);
    let long = "a".repeat(255);
    for name in ["a", "a1", "a_b", "z9", "copy", &long] {
        assert_eq!(vault.stored(name, &["a.com"], "x").await["name"], name);
    }
    assert_eq!(vault.names().await, ["a", "a1", "a_b", &long, "copy", "z9"]);
}

/// An invalid name is a 400, an absent one a 404.
#[tokio::test]
async fn other_names_are_refused_whatever_is_asked() {
    let host = setup().start();
    let vault = Vault::of(&host);
    let long = "a".repeat(256);
    let bad = [
        "A", "1a", "_a", "a_", "a__b", "a-b", "a.b", "%C3%A9", "é", &long, "a%0A", "a%2Fb", "a%00", "%FF",
        "%zz", "%", "a%20", "..%2f..", "a;x=1", "a+b",
    ];
    for name in bad {
        assert_refused(&vault.put(name, &["a.com"], "x").await, INVALID, name);
        assert_refused(&vault.delete(name).await, INVALID, name);
    }
    assert!(vault.list().await.is_empty());
    // Client libraries would resolve these paths themselves, so they are sent raw.
    for name in ["%2e%2e", "%2e", "..%2f..%2fsecrets%2fa"] {
        let (status, body) = put_raw(&host, &format!("/v1/vault/secrets/{name}")).await;
        assert_eq!((status, body["error"]["message"].as_str()), (400, Some(INVALID.1)), "{name}");
    }
}

async fn put_raw(host: &crate::kit::host::Host, path: &str) -> (u16, serde_json::Value) {
    let body = String::from_utf8(secret(&["a.com"], "x")).unwrap();
    let (status, _, body) = ask_raw(host, "PUT", path, "Content-Type: application/json\r\n", &body).await;
    (status, body)
}

#[tokio::test]
async fn encoded_characters_mean_what_they_encode() {
    let host = setup().start();
    let vault = Vault::of(&host);
    assert_eq!(vault.stored("%61b%63", &["a.com"], "x").await["name"], "abc");
    assert_eq!(vault.delete("abc").await.status, 204);
}

#[tokio::test]
async fn paths_are_exact_and_never_lead_to_another_secret() {
    let host = setup().start();
    Vault::of(&host).stored("a", &["a.com"], "x").await;
    for path in [
        "/v1/vault/secrets/../secrets/a",
        "/v1/vault/secrets/./a",
        "/v1/vault/interns/../secrets/a",
        "/v1/vault//secrets/a",
        "/v1//vault/secrets/a",
        "/v1/vault/secrets/a/",
        "/v1/vault/secrets/",
        "/v1/vault/secrets/a/b",
        "/v1/VAULT/secrets/a",
        "/v1/vault/Secrets/a",
        "/v1/v%61ult/secrets/a",
        "/vault/secrets/a",
    ] {
        let (status, body) = put_raw(&host, path).await;
        assert_eq!((status, body["error"]["message"].as_str()), (404, Some(NOT_FOUND.1)), "{path}");
    }
}

#[tokio::test]
async fn unknown_queries_mean_nothing_to_a_path() {
    let host = setup().start();
    let vault = Vault::of(&host);
    assert_eq!(vault.stored("a?x=1", &["a.com"], "x").await["name"], "a");
    assert_eq!(vault.stored("a?limit=none&x=%zz", &["a.com"], "x").await["name"], "a");
    assert_eq!(vault.delete("a?x=1").await.status, 204);
}

#[tokio::test]
async fn interns_are_named_by_uuids_in_either_case() {
    let (host, intern) = super::with_intern();
    let foreign = command(&host, "workspace create second");
    assert!(foreign["id"].is_string());
    let foreign = text(&command(&host, "intern create other --workspace second"), "id");
    let vault = |id: &str| Vault::of_intern(&host, &host.key, id);
    let unknown = "7b1c3a52-91d4-4c6e-8f01-2d3e4f5a6b7c";
    for id in [foreign.as_str(), unknown] {
        assert_refused(&vault(id).page("").await, NOT_FOUND, id);
        assert_refused(&vault(id).effective("").await, NOT_FOUND, id);
        assert_refused(&vault(id).put("a", &["a.com"], "x").await, NOT_FOUND, id);
        assert_refused(&vault(id).delete("a").await, NOT_FOUND, id);
        assert_refused(&vault(id).copy(&["a"]).await, NOT_FOUND, id);
    }
    for id in ["scout", "7b1c3a52", "%zz", "7b1c3a52-91d4-4c6e-8f01-2d3e4f5a6b7g"] {
        assert_refused(&vault(id).page("").await, INVALID, id);
        assert_refused(&vault(id).effective("").await, INVALID, id);
        assert_refused(&vault(id).put("a", &["a.com"], "x").await, INVALID, id);
        assert_refused(&vault(id).delete("a").await, INVALID, id);
        assert_refused(&vault(id).copy(&["a"]).await, INVALID, id);
    }
    vault(&intern.to_uppercase()).stored("a", &["a.com"], "x").await;
    assert_eq!(vault(&intern).names().await, ["a"]);
    assert_eq!(vault(&intern.replace('-', "%2D")).names().await, ["a"]);
}

/// `secrets/copy` with `POST` copies; with `PUT` and `DELETE` it is a secret named `copy`.
#[tokio::test]
async fn a_secret_called_copy_is_a_secret_of_an_intern_too() {
    let (host, intern) = super::with_intern();
    let (workspace, own) = (Vault::of(&host), Vault::of_intern(&host, &host.key, &intern));
    workspace.stored("copy", &["a.com"], "x").await;
    assert_eq!(own.copy(&["copy"]).await.status, 200);
    own.stored("copy", &["b.com"], "y").await;
    assert_eq!(own.list().await[0]["hosts"][0], "b.com");
    assert_eq!(own.delete("copy").await.status, 204);
    assert_refused(&own.delete("copy").await, NOT_FOUND, "copy");
}
