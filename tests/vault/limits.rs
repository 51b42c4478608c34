//! How often a key may ask, and how often an address may guess.

use super::{UNHURRIED, Vault, command, text};
use crate::kit::client::{Answer, Client, http};
use crate::kit::host::Setup;
use std::net::Ipv4Addr;

fn assert_too_often(answer: &Answer) {
    super::assert_refused(answer, (429, "Too many vault requests"), "too often");
    let wait_s: u64 = answer.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait_s), "{wait_s}");
}

/// Case 111.
#[tokio::test]
async fn a_key_that_asks_too_often_is_told_when_to_come_back() {
    let host =
        Setup::new().config("[vault]\nrate_limit = { reads_per_minute = 60, writes_per_minute = 1 }").start();
    let vault = Vault::of(&host);
    let mut answered = 0;
    let refused = loop {
        let answer = vault.page("").await;
        if answer.status != 200 {
            break answer;
        }
        answered += 1;
        assert!(answered < 1000, "there is no limit");
    };
    assert!(answered >= 20, "only {answered} at once");
    assert_too_often(&refused);
    let other = text(&command(&host, "key create --workspace default"), "key");
    assert_eq!(Vault::with_key(&host, &other).page("").await.status, 200);
    vault.stored("a", &["a.com"], "x").await;
    let mut writes = 1;
    while vault.delete("a").await.status != 429 {
        writes += 1;
        assert!(writes < 1000, "there is no limit");
    }
    assert!(writes >= 20, "only {writes} at once");
    // The limit counts before anything of the request is looked at.
    assert_too_often(&vault.put("a", &["*"], "").await);
    assert_eq!(Client::new(&host).get("/models").await.status, 200);
    // Who waits is let in again; being refused has not made the wait longer.
    while vault.page("").await.status == 429 {}
}

/// Case 112.
#[tokio::test]
async fn an_address_that_guesses_too_often_is_refused_and_costs_nobody_else_anything() {
    let host = Setup::new().config("[vault]\nrate_limit = { reads_per_minute = 60 }").start();
    let key = &host.key;
    let wrong = format!("{}{}", &key[..20], "0".repeat(key.len() - 20));
    let far = |key: &str| Vault {
        client: Client::from_address(&host, key, Ipv4Addr::new(127, 0, 0, 2)),
        path: "/vault".to_owned(),
    };
    let guesser = far(&wrong);
    let mut guesses = 0;
    let good = far(key);
    // Before any look-up: a good key from there is not looked at either, unless a second has passed meanwhile.
    loop {
        while guesser.page("").await.status == 401 {
            guesses += 1;
        }
        assert!((60..2000).contains(&guesses), "{guesses} at once");
        let answer = good.page("").await;
        if answer.status != 200 {
            assert_too_often(&answer);
            break;
        }
    }
    let victim = Vault::of(&host);
    for _ in 0..20 {
        assert_eq!(victim.page("").await.status, 200);
    }
    // The other routes have limits of their own.
    assert_eq!(good.client.get("/models").await.status, 200);
}

/// Requests that show no key guess nothing.
#[tokio::test]
async fn requests_without_a_key_do_not_use_up_the_guesses_of_an_address() {
    let host = Setup::new().config(UNHURRIED).start();
    let url = format!("{}/vault/secrets", host.base);
    let http = http().build().unwrap();
    for _ in 0..100 {
        assert_eq!(http.get(&url).send().await.unwrap().status(), 401);
    }
    assert_eq!(Vault::of(&host).page("").await.status, 200);
}
