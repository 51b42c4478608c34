//! How much a vault may hold.

use super::{UNHURRIED, Vault, command, text};
use crate::kit::client::Answer;
use crate::kit::host::{Host, Setup};
use serde_json::json;

fn host(limits: &str) -> Host {
    Setup::new().config(&format!("{UNHURRIED}\n{limits}")).start()
}

fn assert_full(answer: &Answer, limit: &str, scope: &str, max: u64) {
    assert_eq!(answer.status, 413, "{}", answer.text);
    let message = answer.message();
    assert!(message.contains(&format!("at most {max} ")) && message.contains(limit), "{message}");
    let metadata = json!({
        "error_type": "payload_too_large", "refused_by": "host", "limit": limit, "scope": scope, "max": max,
    });
    assert_eq!(answer.body["error"]["metadata"], metadata);
}

#[tokio::test]
async fn a_vault_takes_as_many_secrets_as_configured_and_warns_at_nine_tenths() {
    let mut host = host("secrets_max = 10");
    let vault = Vault::of(&host);
    for number in 0..8 {
        vault.stored(&format!("n{number}"), &["a.com"], "x").await;
    }
    assert!(!host.log().contains("nine tenths"), "{}", host.log());
    vault.stored("n8", &["a.com"], "x").await;
    host.until_logged("a vault holds nine tenths of its limit");
    vault.stored("n9", &["a.com"], "x").await;
    assert_full(&vault.put("n10", &["a.com"], "x").await, "vault.secrets_max", "vault", 10);
    // Replacing adds no secret, and deleting makes room.
    vault.stored("n9", &["b.com"], "another value").await;
    assert_eq!(vault.delete("n0").await.status, 204);
    vault.stored("n10", &["a.com"], "x").await;
    assert_eq!(vault.list().await.len(), 10);
    let log = host.end();
    assert!(log.contains("vault.secrets_max") && !log.contains("the vault failed"), "{log}");
}

#[tokio::test]
async fn replacing_a_value_counts_the_difference_of_its_bytes() {
    let host = host("bytes_max = 100000");
    let vault = Vault::of(&host);
    vault.stored("a", &["a.com"], &"x".repeat(60_000)).await;
    let more = "x".repeat(40_000);
    assert_full(&vault.put("b", &["a.com"], &more).await, "vault.bytes_max", "vault", 100_000);
    vault.stored("a", &["a.com"], &"y".repeat(59_000)).await;
    vault.stored("b", &["a.com"], &more).await;
    // The count is the same after a restart.
    let host = host.restart();
    let vault = Vault::of(&host);
    assert_full(&vault.put("c", &["a.com"], &more).await, "vault.bytes_max", "vault", 100_000);
    assert_eq!(vault.delete("b").await.status, 204);
    vault.stored("c", &["a.com"], &more).await;
}

#[tokio::test]
async fn copies_and_imports_count_and_a_workspace_with_its_interns_holds_ten_vaults() {
    let host = host("secrets_max = 2");
    let vault = Vault::of(&host);
    for name in ["a", "b"] {
        vault.stored(name, &["a.com"], "x").await;
    }
    for number in 0..9 {
        let intern = text(&command(&host, &format!("intern create i{number} --workspace default")), "id");
        assert_eq!(Vault::of_intern(&host, &host.key, &intern).copy(&["a", "b"]).await.status, 200);
    }
    let intern = text(&command(&host, "intern create last --workspace default"), "id");
    let last = Vault::of_intern(&host, &host.key, &intern);
    assert_full(&last.copy(&["a", "b"]).await, "vault.secrets_max", "workspace", 20);
    assert!(last.list().await.is_empty());
    command(&host, "intern delete i0");
    assert_eq!(last.copy(&["a", "b"]).await.status, 200);
    let file = host.directory().join("legacy.jsonl");
    std::fs::write(&file, "{\"name\":\"old\",\"value\":\"x\"}\n").unwrap();
    let import = ["vault", "import-legacy", file.to_str().unwrap(), "--workspace", "default"];
    let refused = host.command_output(&import);
    let complaint = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{complaint}");
    assert!(complaint.contains("at most 2 secrets"), "{complaint}");
}
