//! Rate limits of keys, and of failed authentication per address.

use super::{UNHURRIED, Vault, command, text};
use crate::kit::client::{Answer, Client, http, read};
use crate::kit::host::Setup;
use std::net::Ipv4Addr;

fn assert_too_often(answer: &Answer) {
    super::assert_refused(answer, (429, "Too many vault requests"), "too often");
    let wait_s: u64 = answer.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait_s), "{wait_s}");
}

#[tokio::test]
async fn a_key_over_its_limit_gets_a_retry_after() {
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
    // The limit applies before the request is validated.
    assert_too_often(&vault.put("a", &["*"], "").await);
    assert_eq!(Client::new(&host).get("/models").await.status, 200);
    // Waiting helps, and refused requests do not make the wait longer.
    while vault.page("").await.status == 429 {}
}

#[tokio::test]
async fn an_address_that_guesses_too_often_is_refused_and_good_keys_are_not() {
    let host = Setup::new().config("[vault]\nrate_limit = { reads_per_minute = 600 }").start();
    let key = &host.key;
    let wrong = format!("{}{}", &key[..20], "0".repeat(key.len() - 20));
    let far = |key: &str| Vault {
        client: Client::from_address(&host, key, Ipv4Addr::new(127, 0, 0, 2)),
        path: "/vault".to_owned(),
    };
    let guesser = far(&wrong);
    let good = far(key);
    let refused = refused_after(async || guesser.page("").await).await;
    assert_too_often(&refused);
    // A valid key at the same address, for example of another client of a proxy.
    assert_eq!(good.page("").await.status, 200);
    let victim = Vault::of(&host);
    for _ in 0..20 {
        assert_eq!(victim.page("").await.status, 200);
    }
    // Other routes have their own limits.
    assert_eq!(good.client.get("/models").await.status, 200);
}

/// The refusal that ends the guesses of an address, after at least 60 of them.
async fn refused_after(guess: impl AsyncFn() -> Answer) -> Answer {
    for guesses in 0..2000 {
        let answer = guess().await;
        if answer.status != 401 {
            assert!(guesses >= 60, "{guesses} at once");
            return answer;
        }
    }
    panic!("there is no limit");
}

/// Behind a trusted proxy the client's address is the one that the proxy reports.
#[tokio::test]
async fn guesses_count_for_the_address_that_a_trusted_proxy_reports() {
    let trusting = "[server]\ntrusted_proxies = [\"127.0.0.0/8\", \"10.0.0.0/8\"]\n";
    for (config, is_trusted) in [(trusting, true), ("", false)] {
        let host = Setup::new().config(config).start();
        let client = Client::with_key(&host, "cfd_wrong");
        let guess = async |forwarded: &str| {
            let request = client.request(reqwest::Method::GET, "/vault/secrets");
            read(request.header("x-forwarded-for", forwarded).send().await.unwrap()).await
        };
        // What the client itself writes is to the left of what proxies add.
        let refused = refused_after(async || guess("203.0.113.8, 192.0.2.1, 10.0.0.7").await).await;
        assert_too_often(&refused);
        let other = guess("192.0.2.1, 192.0.2.2, 10.0.0.7").await;
        assert_eq!(other.status, if is_trusted { 401 } else { 429 }, "{}", other.text);
        let logged = if is_trusted { "192.0.2.2" } else { "127.0.0.1" };
        host.until_logged(&format!("\"client\":\"{logged}\""));
    }
}

/// A request without a key is not a guess.
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
