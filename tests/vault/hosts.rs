//! Host names of secrets: exact names, normalised to one spelling.

use super::{INVALID, Vault, assert_refused, setup};
use serde_json::{Value, json};

#[tokio::test]
async fn hosts_must_be_a_list_of_strings() {
    let host = setup().start();
    let vault = Vault::of(&host);
    let lists = [
        Value::Null,
        json!("a.com"),
        json!([]),
        json!([null]),
        json!([5]),
        json!([["a.com"]]),
        json!({"0": "a.com"}),
        json!(["a.com", null]),
    ];
    for hosts in lists {
        let body = json!({"hosts": hosts, "value": "x"}).to_string();
        assert_refused(&vault.put_body("a", body.clone()).await, INVALID, &body);
    }
    assert_refused(&vault.put_body("a", "{\"value\":\"x\"}").await, INVALID, "missing");
}

#[tokio::test]
async fn up_to_100_hosts_are_counted_before_duplicates_go() {
    let host = setup().start();
    let vault = Vault::of(&host);
    let many: Vec<String> = (0..101).map(|number| format!("h{number}.example")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let stored = vault.stored("a", &many[..100], "x").await;
    assert_eq!(stored["hosts"].as_array().unwrap().len(), 100);
    assert_refused(&vault.put("a", &many, "x").await, INVALID, "101");
    let twice: Vec<&str> = many[..100].iter().chain(&many[..1]).copied().collect();
    assert_refused(&vault.put("a", &twice, "x").await, INVALID, "101 with two equal");
    assert_eq!(vault.stored("b", &["a.com"; 100], "x").await["hosts"], json!(["a.com"]));
    assert_refused(&vault.put("b", &["a.com"; 101], "x").await, INVALID, "101 equal");
}

#[tokio::test]
async fn lengths_are_those_of_the_domain_name_system() {
    let host = setup().start();
    let vault = Vault::of(&host);
    let label = "a".repeat(63);
    let long = format!("{label}.{label}.{label}.{}", "b".repeat(61));
    assert_eq!(long.len(), 253);
    assert_eq!(vault.stored("a", &[&format!("{long}.")], "x").await["hosts"], json!([long]));
    assert_eq!(vault.stored("a", &[&long], "x").await["hosts"], json!([long]));
    for host in [format!("{long}b."), format!("{long}b"), format!("{label}a.com"), "a".repeat(70_000)] {
        assert_refused(&vault.put("a", &[&host], "x").await, INVALID, &host[..60]);
    }
    assert_eq!(vault.stored("a", &[&format!("{label}.com")], "x").await["hosts"][0], format!("{label}.com"));
}

#[tokio::test]
async fn names_are_stored_in_their_one_spelling_in_the_order_given() {
    let host = setup().start();
    let vault = Vault::of(&host);
    let lists: [(&[&str], &[&str]); 8] = [
        (&["API.Example.COM."], &["api.example.com"]),
        (&["a.com", "A.com", "a.com."], &["a.com"]),
        (&["b.com", "a.com", "B.com", "c.com"], &["b.com", "a.com", "c.com"]),
        (&["xn--bcher-kva.example"], &["xn--bcher-kva.example"]),
        (&["localhost", "com", "3com.com"], &["localhost", "com", "3com.com"]),
        (&["localhost."], &["localhost"]),
        (&["ab--c.example.com", "1.2.example"], &["ab--c.example.com", "1.2.example"]),
        (&["github.io", "printer.local", "x.onion"], &["github.io", "printer.local", "x.onion"]),
    ];
    for (given, hosts) in lists {
        assert_eq!(vault.stored("a", given, "x").await["hosts"], json!(hosts), "{given:?}");
        assert_eq!(vault.list().await[0]["hosts"], json!(hosts), "{given:?}");
    }
}

#[tokio::test]
async fn everything_but_an_exact_name_is_refused() {
    let host = setup().start();
    let vault = Vault::of(&host);
    for host in [
        "https://a.com",
        "//a.com",
        "a.com:443",
        "a.com:",
        "a.com/x",
        "*.a.com",
        "*",
        "",
        " ",
        ".",
        "a..b",
        ".a.com",
        "a.com..",
        " a.com",
        "a.com ",
        "a\tb.com",
        "a.com\n",
        "a\u{0}b",
        "u@a.com",
        "a.com?x",
        "a.com#x",
        "a%2ecom",
        "a\\b",
        "a,b",
        "127.0.0.1",
        "8.8.8.8",
        "[::1]",
        "::1",
        "127.1",
        "0x7f.1",
        "2130706433",
        "1.2.3.4.",
        "0177.0.0.1",
        "foo.1",
        "foo.0x1",
        "foo.0x",
        "256.256.256.256",
        "bücher.example",
        "example\u{3002}com",
        "exa\u{ad}mple.com",
        "\u{ff11}27.0.0.1",
        "xn--a",
        "xn--",
        "a_b.example.com",
        "-a.com",
        "a-.com",
    ] {
        assert_refused(&vault.put("a", &[host], "x").await, INVALID, &format!("{host:?}"));
        let second = vault.put("a", &["good.com", host], "x").await;
        assert_refused(&second, INVALID, &format!("{host:?}"));
        assert_eq!(second.body["error"]["metadata"]["path"], "hosts[1]");
        assert!(host.trim().len() < 5 || !second.text.contains(host), "{}", second.text);
    }
    assert!(vault.list().await.is_empty());
}

#[tokio::test]
async fn one_bad_host_leaves_the_secret_as_it_was() {
    let host = setup().start();
    let vault = Vault::of(&host);
    let stored = vault.stored("a", &["old.com"], "old").await;
    let mut hosts = vec!["good.com"; 99];
    hosts.push("*.bad.com");
    assert_refused(&vault.put("a", &hosts, "new").await, INVALID, "one bad");
    assert_eq!(vault.list().await, [stored]);
}
