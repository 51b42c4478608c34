//! Pages of secrets.

use super::{INVALID, Vault, assert_refused, command, setup, text, with_intern};
use serde_json::{Value, json};

fn names(answer: &crate::kit::client::Answer) -> Vec<String> {
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.body["data"].as_array().unwrap().iter().map(|entry| text(entry, "name")).collect()
}

#[tokio::test]
async fn names_stand_in_byte_order() {
    let host = setup().start();
    let vault = Vault::of(&host);
    assert_eq!(vault.page("").await.body, json!({"data": [], "has_more": false}));
    for name in ["b", "ab", "a_b", "z", "a1", "a", "a10", "a2", "az"] {
        vault.stored(name, &["a.com"], "x").await;
    }
    assert_eq!(names(&vault.page("").await), ["a", "a1", "a10", "a2", "a_b", "ab", "az", "b", "z"]);
}

#[tokio::test]
async fn pages_tell_whether_more_follows_and_show_each_secret_once() {
    let host = setup().start();
    let vault = Vault::of(&host);
    let expected: Vec<String> = (0..101).map(|number| format!("n{number:03}")).collect();
    for (count, name) in expected.iter().enumerate() {
        let page = vault.page("?limit=100").await;
        assert!(count < 99 || (names(&page).len(), &page.body["has_more"]) == (count, &json!(false)));
        vault.stored(name, &["a.com"], "x").await;
    }
    for query in ["", "?limit=100"] {
        let page = vault.page(query).await;
        assert_eq!((names(&page), &page.body["has_more"]), (expected[..100].to_vec(), &json!(true)));
    }
    let last = vault.page("?offset=100").await;
    assert_eq!((names(&last), &last.body["has_more"]), (expected[100..].to_vec(), &json!(false)));
    let mut walked = Vec::new();
    let mut has_more = true;
    while has_more {
        let page = vault.page(&format!("?limit=1&offset={}", walked.len())).await;
        walked.extend(names(&page));
        has_more = page.body["has_more"].as_bool().unwrap();
    }
    assert_eq!(walked, expected);
    assert_eq!(vault.page("?offset=101").await.body, json!({"data": [], "has_more": false}));
}

#[tokio::test]
async fn windows_are_whole_numbers_inside_their_limits() {
    let (host, intern) = with_intern();
    let vault = Vault::of(&host);
    let own = Vault::of_intern(&host, &host.key, &intern);
    vault.stored("a", &["a.com"], "x").await;
    own.stored("b", &["a.com"], "x").await;
    // One of each kind; unit tests of the parser cover the others.
    for query in
        ["limit=0", "limit=101", "limit=-1", "limit=%zz", "offset=10001", "offset=", "limit=1&limit=2"]
    {
        let query = format!("?{query}");
        for answer in [vault.page(&query).await, own.page(&query).await, own.effective(&query).await] {
            assert_refused(&answer, INVALID, &query);
        }
    }
    for query in ["limit=1", "limit=%31", "limit=100&offset=0", "x=1&limit=1", "limit=1&y&%zz", "Limit=0"] {
        let query = format!("?{query}");
        assert_eq!(names(&vault.page(&query).await), ["a"], "{query}");
        assert_eq!(names(&own.page(&query).await), ["b"], "{query}");
        assert_eq!(names(&own.effective(&query).await)[0], "a", "{query}");
    }
    assert_eq!(vault.page("?offset=10000").await.body, json!({"data": [], "has_more": false}));
}

#[tokio::test]
async fn nothing_is_seen_of_other_workspaces_and_interns() {
    let (host, intern) = with_intern();
    let second = text(&command(&host, "intern create second --workspace default"), "id");
    command(&host, "workspace create apart");
    let key = text(&command(&host, "key create --workspace apart"), "key");
    Vault::of(&host).stored("ours", &["a.com"], "x").await;
    Vault::of_intern(&host, &host.key, &intern).stored("own", &["a.com"], "x").await;
    Vault::with_key(&host, &key).stored("theirs", &["a.com"], "x").await;
    assert_eq!(Vault::of(&host).names().await, ["ours"]);
    assert_eq!(Vault::of_intern(&host, &host.key, &intern).names().await, ["own"]);
    assert_eq!(Vault::of_intern(&host, &host.key, &second).names().await, Vec::<String>::new());
    assert_eq!(Vault::with_key(&host, &key).names().await, ["theirs"]);
}

#[tokio::test]
async fn an_intern_has_its_own_secrets_and_those_of_the_workspace_that_they_do_not_hide() {
    let (host, intern) = with_intern();
    let vault = Vault::of(&host);
    let key = text(&command(&host, "key create --workspace default --intern scout"), "key");
    let own = Vault::of_intern(&host, &key, &intern);
    let shared = vault.stored("a", &["a.com"], "x").await;
    vault.stored("b", &["hidden.com"], "x").await;
    let of_intern = own.stored("b", &["own.com"], "y").await;
    let alone = own.stored("a1", &["own.com"], "z").await;
    let with = |metadata: &Value, scope: &str| {
        let mut entry = metadata.clone();
        entry["scope"] = scope.into();
        entry
    };
    let expected = [with(&shared, "workspace"), with(&alone, "intern"), with(&of_intern, "intern")];
    let page = own.effective("").await;
    assert_eq!(page.body, json!({"data": expected, "has_more": false}));
    let members: Vec<&String> = page.body["data"][0].as_object().unwrap().keys().collect();
    assert_eq!(members, ["name", "hosts", "fingerprint", "created_at", "scope"]);
    let page = own.effective("?limit=1&offset=1").await;
    assert_eq!(page.body, json!({"data": [expected[1]], "has_more": true}));
    assert_eq!(own.delete("b").await.status, 204);
    assert_eq!(own.effective("?offset=2").await.body["data"][0]["scope"], "workspace");
}
