//! Accepted and refused names, and comparisons with the libraries for URLs and IDNA.

use idna::AsciiDenyList;
use idna::uts46::{DnsLength, Hyphens, Uts46};
use proptest::prelude::*;

use super::*;

fn canonical(text: &str) -> Option<String> {
    text.parse::<HostName>().ok().map(|host| host.to_string())
}

#[test]
fn valid_names_have_one_spelling() {
    for (given, name) in [
        ("api.example.com", "api.example.com"),
        ("API.Example.com.", "api.example.com"),
        ("localhost", "localhost"),
        ("localhost.", "localhost"),
        ("db", "db"),
        ("com", "com"),
        ("3com.com", "3com.com"),
        ("1.2.example", "1.2.example"),
        ("1.2.3.4a", "1.2.3.4a"),
        ("a.0xg", "a.0xg"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("XN--BCHER-KVA.example", "xn--bcher-kva.example"),
        ("ab--c.example.com", "ab--c.example.com"),
        ("ab--c.xn--bcher-kva.example", "ab--c.xn--bcher-kva.example"),
        ("a-b.example", "a-b.example"),
        ("printer.local", "printer.local"),
        ("x.onion", "x.onion"),
        ("github.io", "github.io"),
    ] {
        assert_eq!(canonical(given).as_deref(), Some(name), "{given}");
    }
}

#[test]
fn other_texts_are_refused() {
    for given in [
        "",
        " ",
        ".",
        "..",
        "a..b",
        ".a.com",
        "a.com..",
        " a.com",
        "a.com ",
        "a\tb.com",
        "a\nb",
        "a.com\n",
        "a\0b",
        "https://a.com",
        "//a.com",
        "a.com:443",
        "a.com/x",
        "a.com?x",
        "a.com#x",
        "a\\b",
        "u@a.com",
        "a%2ecom",
        "[a.com]",
        "*",
        "*.a.com",
        "a,b",
        "a_b.example.com",
        "_dmarc.example.com",
        "-a.com",
        "a-.com",
        "a.-b",
        "127.0.0.1",
        "8.8.8.8",
        "1.2.3.4.",
        "127.1",
        "0x7f.1",
        "2130706433",
        "0177.0.0.1",
        "256.256.256.256",
        "foo.1",
        "foo.0x1",
        "foo.0x",
        "foo.0X1",
        "foo.09",
        "0",
        "::1",
        "[::1]",
        "fe80::1%eth0",
        "::ffff:1.2.3.4",
        "b\u{fc}cher.example",
        "example\u{3002}com",
        "exa\u{ad}mple.com",
        "\u{ff11}27.0.0.1",
        "\u{212a}.com",
        "xn--a",
        "xn--",
        "xn--.com",
        "a.xn--",
        "xn--abc-.com",
        "xn--bcher-kvb.example.xn--a",
        // These labels decode to plain ASCII, to an upper-case letter, and to a label with hyphens
        // in third and fourth place.
        "xn--example-.com",
        "xn--bcher-2pa.example",
        "xn--ab---3ra.example",
    ] {
        assert_eq!(canonical(given), None, "{given:?}");
    }
}

#[test]
fn lengths_are_counted_with_and_without_the_root() {
    let label = "a".repeat(63);
    let long = format!("{label}.{label}.{label}.{}", "b".repeat(61));
    assert_eq!(long.len(), 253);
    assert_eq!(canonical(&long), Some(long.clone()));
    assert_eq!(canonical(&format!("{long}.")), Some(long.clone()));
    assert_eq!(canonical(&format!("{long}b")), None);
    assert_eq!(canonical(&format!("{long}b.")), None);
    assert_eq!(canonical(&format!("{label}.com")), Some(format!("{label}.com")));
    assert_eq!(canonical(&format!("{label}a.com")), None);
}

#[test]
fn hosts_are_counted_before_duplicates_go() {
    let hosts = |entries: &[&str]| Hosts::parse(entries).map(|hosts| hosts.as_slice().len());
    assert_eq!(hosts(&[]), Err(HostsError::Count));
    assert_eq!(hosts(&["a.com", "A.com", "a.com.", "b.com"]), Ok(2));
    assert_eq!(hosts(&["a"; 100]), Ok(1));
    assert_eq!(hosts(&["a"; 101]), Err(HostsError::Count));
    assert_eq!(hosts(&["a", "b", "c:1", "*"]), Err(HostsError::Host { index: 2 }));
    let order = Hosts::parse(&["b", "a", "B", "c"]).unwrap();
    assert_eq!(order.as_slice().iter().map(HostName::as_str).collect::<Vec<_>>(), ["b", "a", "c"]);
    assert!(order.contains(&"C.".parse().unwrap()) && !order.contains(&"d".parse().unwrap()));
}

/// Text that is nearly a host name.
fn near_names() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-zA-Z0-9.-]{1,20}",
        "([a-z0-9-]{1,5}\\.){0,4}[a-z0-9]{1,4}\\.?",
        "([0-9]{1,3}\\.){0,4}(0x)?[0-9a-f]{0,4}\\.?",
        "([a-z]{1,4}\\.)?xn--[a-z0-9-]{0,12}(\\.[a-z]{2})?",
        ".{0,12}",
        "[a-z.:/?#@%\\\\ *_\\[\\]-]{1,12}",
    ]
}

/// Labels that people write, encoded by the IDNA library, so that many of them are valid.
fn encoded_names() -> impl Strategy<Value = String> {
    let words = "[a-zäöüßéλжд日本語עא0-9-]{1,8}(\\.[a-zéж]{1,4})?";
    words.prop_filter_map("not encodable", |words| {
        let denied = AsciiDenyList::STD3;
        let name = Uts46::new().to_ascii(words.as_bytes(), denied, Hyphens::Check, DnsLength::Verify);
        name.ok().map(std::borrow::Cow::into_owned)
    })
}

/// The host that a URL parser would connect to.
fn dialled(host: &str) -> Option<url::Host<String>> {
    let url = url::Url::parse(&format!("https://{host}/")).ok()?;
    let untouched = url.username().is_empty() && url.port().is_none() && url.path() == "/";
    untouched.then(|| url.host().map(|host| host.to_owned())).flatten()
}

proptest! {
    #[test]
    fn an_accepted_name_is_canonical_and_the_host_that_a_url_parser_dials(
        text in prop_oneof![near_names(), encoded_names()]
    ) {
        if let Some(name) = canonical(&text) {
            prop_assert_eq!(canonical(&name), Some(name.clone()));
            prop_assert_eq!(canonical(&format!("{}.", name.to_ascii_uppercase())), Some(name.clone()));
            prop_assert_eq!(dialled(&name), Some(url::Host::Domain(name)));
        }
    }

    /// Names that strict IDNA leaves unchanged are accepted, unless they are numbers with dots.
    #[test]
    fn names_unchanged_by_strict_idna_are_accepted_unless_they_are_numbers(
        text in prop_oneof![near_names(), encoded_names()]
    ) {
        let name = text.to_ascii_lowercase();
        if idna::domain_to_ascii_strict(&name).is_ok_and(|strict| strict == name) {
            let number = matches!(dialled(&name), None | Some(url::Host::Ipv4(_)));
            prop_assert_eq!(canonical(&name).is_some(), !number, "{}", name);
        }
    }

    #[test]
    fn encoded_names_of_words_are_accepted(name in encoded_names()) {
        prop_assume!(matches!(dialled(&name), Some(url::Host::Domain(_))));
        prop_assert_eq!(canonical(&name), Some(name));
    }

    #[test]
    fn no_text_panics_the_parser(text in any::<String>()) {
        drop(canonical(&text));
    }
}
