//! Secret values: limited in characters, stored byte for byte.

use super::{INVALID, Vault, assert_refused, setup, text};

fn body(value: &str) -> String {
    format!("{{\"hosts\":[\"a.com\"],\"value\":{value}}}")
}

#[tokio::test]
async fn values_of_1_to_65536_characters_are_stored_however_they_are_written() {
    let host = setup().start();
    let vault = Vault::of(&host);
    for value in
        ["x", "\u{0}", "a\nb\tc", &"a".repeat(65_536), &"é".repeat(65_536), &"\u{1f600}".repeat(65_536)]
    {
        vault.stored("a", &["a.com"], value).await;
    }
    let plain = text(&vault.stored("a", &["a.com"], &"\u{1f600}".repeat(65_536)).await, "fingerprint");
    let escaped = body(&format!("\"{}\"", "\\ud83d\\ude00".repeat(65_536)));
    let answer = vault.put_body("a", escaped).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(text(&answer.body["data"], "fingerprint"), plain);
    let answer = vault.put_body("a", body("\"\\u0000\\n\\t\"")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

#[tokio::test]
async fn empty_and_longer_values_are_refused() {
    let host = setup().start();
    let vault = Vault::of(&host);
    for value in ["", &"a".repeat(65_537), &"é".repeat(65_537), &"\u{1f600}".repeat(65_537)] {
        assert_refused(&vault.put("a", &["a.com"], value).await, INVALID, "value");
    }
    assert!(vault.list().await.is_empty());
}

#[tokio::test]
async fn values_are_not_normalised() {
    let host = setup().start();
    let vault = Vault::of(&host);
    let mut seen = Vec::new();
    for value in ["e\u{301}", "é", "x", "x ", " x", "x\n", "x\r\n", "X"] {
        let fingerprint = text(&vault.stored("a", &["a.com"], value).await, "fingerprint");
        assert!(!seen.contains(&fingerprint), "{value:?}");
        seen.push(fingerprint);
    }
}

#[tokio::test]
async fn values_must_be_strings() {
    let host = setup().start();
    let vault = Vault::of(&host);
    for value in [
        "null",
        "5",
        "[]",
        "{}",
        "true",
        "[\"x\"]",
        "\"\\ud800\"",
        "\"\\ude00\\ud83d\"",
        "\"\\x\"",
        "\"a\nb\"",
        "x",
        "'x'",
        "\"x",
    ] {
        assert_refused(&vault.put_body("a", body(value)).await, INVALID, value);
    }
    assert_refused(&vault.put_body("a", "{\"hosts\":[\"a.com\"]}").await, INVALID, "missing");
    let broken = [b"{\"hosts\":[\"a.com\"],\"value\":\"", &b"\xff\xfe"[..], b"\"}"].concat();
    assert_refused(&vault.put_body("a", broken).await, INVALID, "no UTF-8");
    let aside = [b"{\"hosts\":[\"a.com\"],\"value\":\"x\",\"note\":\"", &b"\xff\xfe"[..], b"\"}"].concat();
    assert_refused(&vault.put_body("a", aside).await, INVALID, "no UTF-8 where nobody looks");
    assert!(vault.list().await.is_empty());
}
