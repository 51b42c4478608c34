//! The operator's switches: the whole vault, all writes, writes of a workspace.

use super::{INVALID, NOT_FOUND, Vault, assert_refused, command, setup, text, with_intern};
use crate::kit::host::Setup;
use reqwest::Method;

const UNAVAILABLE: (u16, &str) = (503, "Vault service is unavailable");
const NO_WRITES: (u16, &str) = (503, "Vault writes are not enabled");

/// The check comes after authentication and scope, and before validation.
#[tokio::test]
async fn a_vault_that_is_switched_off_is_unavailable_to_those_it_is_for() {
    let host = Setup::new().config("[vault]\nenabled = false").start();
    let intern = text(&command(&host, "intern create scout --workspace default"), "id");
    let vault = Vault::of(&host);
    let own = Vault::of_intern(&host, &host.key, &intern);
    assert_refused(&vault.page("?limit=none").await, UNAVAILABLE, "list");
    assert_refused(&vault.put("A", &["*"], "").await, UNAVAILABLE, "put");
    assert_refused(&vault.delete("a").await, UNAVAILABLE, "delete");
    assert_refused(&own.page("").await, UNAVAILABLE, "list");
    assert_refused(&own.effective("").await, UNAVAILABLE, "effective");
    assert_refused(&own.copy(&["a"]).await, UNAVAILABLE, "copy");
    assert_eq!(vault.ask(Method::POST, "/secrets", None).await.status, 405);
    let unscoped = text(&command(&host, "key create --no-scope"), "key");
    let answer = Vault::with_key(&host, &unscoped).page("").await;
    assert_refused(&answer, (403, "Vault scope is unavailable"), "unscoped");
    let own_key = text(&command(&host, "key create --workspace default --intern scout"), "key");
    assert_refused(&Vault::with_key(&host, &own_key).page("").await, NOT_FOUND, "intern");
    assert_eq!(vault.client.get("/models").await.status, 200);
}

#[tokio::test]
async fn without_writes_everything_can_still_be_read() {
    let host = Setup::new().config("[vault]\nwrites = false").start();
    let intern = text(&command(&host, "intern create scout --workspace default"), "id");
    refuses_writes(&Vault::of(&host), &Vault::of_intern(&host, &host.key, &intern)).await;
}

#[tokio::test]
async fn writes_can_be_switched_off_for_one_workspace() {
    let (host, intern) = with_intern();
    command(&host, "workspace create second");
    let other = text(&command(&host, "key create --workspace second"), "key");
    let (vault, own) = (Vault::of(&host), Vault::of_intern(&host, &host.key, &intern));
    let stored = vault.stored("a", &["a.com"], "x").await;
    command(&host, "workspace set default --vault-writes off");
    refuses_writes(&vault, &own).await;
    assert_eq!(vault.list().await, [stored]);
    Vault::with_key(&host, &other).stored("a", &["a.com"], "x").await;
    command(&host, "workspace set default --vault-writes on");
    assert_eq!(vault.delete("a").await.status, 204);
}

async fn refuses_writes(vault: &Vault, own: &Vault) {
    for vault in [vault, own] {
        assert_refused(&vault.put("a", &["a.com"], "x").await, NO_WRITES, "put");
        assert_refused(&vault.put_body("A__", "junk").await, NO_WRITES, "malformed");
        assert_refused(&vault.delete("a").await, NO_WRITES, "delete");
        assert_refused(&vault.delete("A").await, NO_WRITES, "malformed");
        assert_eq!(vault.page("").await.status, 200);
        assert_refused(&vault.page("?limit=0").await, INVALID, "list");
    }
    assert_refused(&own.copy(&["a"]).await, NO_WRITES, "copy");
    assert_refused(&own.copy_body("junk").await, NO_WRITES, "malformed");
    assert_eq!(own.effective("").await.status, 200);
}

/// A key without access to a path gets 404, even when writes are off.
#[tokio::test]
async fn what_is_not_there_is_not_there_with_writes_switched_off() {
    let host = setup().start();
    command(&host, "intern create scout --workspace default");
    let own = text(&command(&host, "key create --workspace default --intern scout"), "key");
    command(&host, "workspace set default --vault-writes off");
    assert_refused(&Vault::with_key(&host, &own).put("a", &["a.com"], "x").await, NOT_FOUND, "intern");
}
