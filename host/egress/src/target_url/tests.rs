use proptest::prelude::*;

use super::*;

fn parse(url: &str) -> Result<Target, TargetError> {
    Target::parse(url)
}

/// Host, port and canonical text of an accepted URL.
fn read(url: &str) -> (String, u16, String) {
    let target = parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
    (target.host().to_owned(), target.port(), target.as_str().to_owned())
}

#[test]
fn host_becomes_canonical() {
    let table = [
        ("https://api.example.com/v1?a=b", "api.example.com", 443, "https://api.example.com/v1?a=b"),
        ("HTTPS://API.Example.COM", "api.example.com", 443, "https://api.example.com/"),
        ("https://api.example.com./v1", "api.example.com", 443, "https://api.example.com/v1"),
        ("https://api.example.com:443/", "api.example.com", 443, "https://api.example.com/"),
        ("https://api.example.com:8443/", "api.example.com", 8443, "https://api.example.com:8443/"),
        ("https://api.example.com:0443/", "api.example.com", 443, "https://api.example.com/"),
        ("http://localhost:80", "localhost", 80, "http://localhost/"),
        ("https://xn--bcher-kva.example/", "xn--bcher-kva.example", 443, "https://xn--bcher-kva.example/"),
        ("https://a.test/x/../y?z#part", "a.test", 443, "https://a.test/y?z"),
        ("https://a.test/stra\u{df}e?q=\u{e4}", "a.test", 443, "https://a.test/stra%C3%9Fe?q=%C3%A4"),
        ("https://a.test#@b.test/", "a.test", 443, "https://a.test/"),
        ("https://a.test?@b.test/", "a.test", 443, "https://a.test/?@b.test/"),
        ("https://a.test/@b.test", "a.test", 443, "https://a.test/@b.test"),
    ];
    for (url, host, port, whole) in table {
        assert_eq!(read(url), (host.to_owned(), port, whole.to_owned()), "{url}");
        assert_eq!(parse(url).unwrap().host_name().unwrap().as_str(), host, "{url}");
    }
}

#[test]
fn urls_that_parsers_read_differently_are_refused() {
    let table = [
        ("https://exa\tmple.com/", TargetError::Character),
        ("https://exam\nple.com/", TargetError::Character),
        (" https://example.com/", TargetError::Character),
        ("https://example.com/a b", TargetError::Character),
        ("https://example.com/\0", TargetError::Character),
        ("https://example.com/\u{85}", TargetError::Character),
        ("https://example.com/\u{2028}", TargetError::Character),
        ("\u{feff}https://example.com/", TargetError::Character),
        ("https:\\\\example.com/", TargetError::Character),
        ("https://host\\@evil.test/", TargetError::Character),
        ("https://example.com\\.evil.test/", TargetError::Character),
        ("https://user@example.com/", TargetError::UserInfo),
        ("https://user:password@example.com/", TargetError::UserInfo),
        ("https://@example.com/", TargetError::UserInfo),
        ("https://host@evil.test/", TargetError::UserInfo),
        ("https://host%2eevil.test/", TargetError::Host),
        ("https://host%00.test/", TargetError::Host),
        ("https:///example.com/", TargetError::Host),
        ("https://", TargetError::Host),
        ("https:example.com/", TargetError::Scheme),
        ("//example.com/", TargetError::Scheme),
        ("example.com", TargetError::Scheme),
        ("ftp://example.com/", TargetError::Scheme),
        ("file:///etc/passwd", TargetError::Scheme),
        ("wss://example.com/", TargetError::Scheme),
        ("https://example.com:/", TargetError::Port),
        ("https://example.com:0/", TargetError::Port),
        ("https://example.com:65536/", TargetError::Port),
        ("https://example.com:+443/", TargetError::Port),
        ("https://example.com:443:443/", TargetError::Port),
        ("https://example.com:x/", TargetError::Port),
        ("https://a.test/{{secret:a}}", TargetError::Placeholder),
        ("https://a.test/?q=%7B%7bsecret%3Aa%7D%7D", TargetError::Placeholder),
        ("https://{{secret:a}}/", TargetError::Placeholder),
    ];
    for (url, error) in table {
        assert_eq!(parse(url).err(), Some(error), "{url:?}");
    }
    assert_eq!(
        parse(&format!("https://a.test/{}", "a".repeat(URL_BYTES_MAX))).err(),
        Some(TargetError::TooLong)
    );
}

#[test]
fn urls_that_are_too_long_once_they_are_escaped_are_refused() {
    // `{` becomes `%7B`.
    let path = |count: usize| format!("https://example.com/{}", "{".repeat(count));
    assert!(parse(&path(2_700)).is_ok());
    assert_eq!(parse(&path(3_000)).err(), Some(TargetError::TooLong));
    let target = parse("https://example.com/").unwrap();
    assert_eq!(target.redirect(&"{".repeat(3_000)).err(), Some(TargetError::TooLong));
}

#[test]
fn invalid_host_names_are_refused() {
    for host in [
        "example.com..",
        ".example.com",
        "a..b",
        "b\u{fc}cher.example",
        "ex\u{430}mple.com",
        "example\u{3002}com",
        "\u{ff11}27.0.0.1",
        "xn--a",
        "xn--",
        "*.example.com",
        "-a.test",
        "a-.test",
        "a_b.test",
        "foo.1",
        "256.256.256.256",
        "1.2.3.4.5",
        "0x7f.1.1.1.1",
        "a,b",
        "a;b",
        "[::1",
        "::1",
        "[::1%25eth0]",
        "[127.0.0.1]",
        "[]",
        "a]",
        "]a",
    ] {
        assert!(
            matches!(parse(&format!("https://{host}/")), Err(TargetError::Host | TargetError::Port)),
            "{host}"
        );
    }
}

#[test]
fn addresses_are_recognised_in_every_notation() {
    for host in
        ["127.0.0.1", "127.0.0.1.", "127.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "127.0.0x1"]
    {
        let target = parse(&format!("https://{host}/")).unwrap();
        assert_eq!(target.literal(), Some("127.0.0.1".parse().unwrap()), "{host}");
        assert_eq!(target.host_name(), None, "{host}");
        assert_eq!(target.as_str(), "https://127.0.0.1/", "{host}");
    }
    for host in ["[::ffff:127.0.0.1]", "[::FFFF:7f00:1]", "[0:0:0:0:0:ffff:7f00:1]"] {
        let target = parse(&format!("https://{host}:8443/")).unwrap();
        assert_eq!(target.literal().unwrap().to_canonical(), IpAddr::from([127, 0, 0, 1]), "{host}");
        assert_eq!(target.as_str(), "https://[::ffff:7f00:1]:8443/", "{host}");
        assert!(target.is_loopback());
    }
}

#[test]
fn redirects_are_checked_like_urls() {
    let here = parse("https://a.test:8443/x/y?z").unwrap();
    let to = |location: &str| here.redirect(location).map(|target| target.as_str().to_owned());
    let table = [
        ("w", "https://a.test:8443/x/w"),
        ("/w?v#u", "https://a.test:8443/w?v"),
        ("?v", "https://a.test:8443/x/y?v"),
        ("", "https://a.test:8443/x/y?z"),
        ("//b.test/w", "https://b.test/w"),
        ("https://B.test./w", "https://b.test/w"),
        ("/a:b", "https://a.test:8443/a:b"),
    ];
    for (location, whole) in table {
        assert_eq!(to(location), Ok(whole.to_owned()), "{location}");
    }
    let refused = [
        ("http://a.test:8443/", TargetError::Downgrade),
        ("https://user@b.test/", TargetError::UserInfo),
        ("//user@b.test/", TargetError::UserInfo),
        ("/\\b.test/", TargetError::Character),
        ("\\\\b.test/", TargetError::Character),
        ("/a\tb", TargetError::Character),
        ("https:/b.test/", TargetError::Scheme),
        ("https:b.test", TargetError::Scheme),
        ("javascript:alert(1)", TargetError::Scheme),
        ("a:b", TargetError::Scheme),
        ("//b%2etest/", TargetError::Host),
        ("///b.test/", TargetError::Host),
        ("/{{secret:a}}", TargetError::Placeholder),
    ];
    for (location, error) in refused {
        assert_eq!(to(location), Err(error), "{location:?}");
    }
    assert!(parse("http://localhost/").unwrap().redirect("https://a.test/").is_ok());
}

#[test]
fn loopback_is_recognised_without_dns() {
    for url in
        ["http://localhost", "http://a.localhost", "http://127.1.2.3", "http://[::1]", "http://LOCALHOST."]
    {
        assert!(parse(url).unwrap().is_loopback(), "{url}");
    }
    for url in
        ["http://localhost.test", "http://128.0.0.1", "http://0.0.0.0", "http://[::]", "http://notlocalhost"]
    {
        assert!(!parse(url).unwrap().is_loopback(), "{url}");
    }
}

/// Texts that look like URLs.
fn near_urls() -> impl Strategy<Value = String> {
    let scheme =
        prop_oneof![Just("https://"), Just("http://"), Just("HTTPS://"), Just("https:/"), Just("https:\\\\")];
    let part = prop_oneof![
        "[a-zA-Z0-9-]{1,5}",
        Just(".".to_owned()),
        Just("..".to_owned()),
        Just("@".to_owned()),
        Just(":".to_owned()),
        Just("/".to_owned()),
        Just("\\".to_owned()),
        Just("?".to_owned()),
        Just("#".to_owned()),
        Just("%2e".to_owned()),
        Just("\t".to_owned()),
        Just("[::1]".to_owned()),
        Just("0x7f.1".to_owned()),
        Just("\u{3002}".to_owned()),
        Just("\u{ad}".to_owned()),
        Just("xn--bcher-kva".to_owned()),
        Just(":8443".to_owned()),
        Just("[::ffff:127.0.0.1]".to_owned()),
        any::<char>().prop_map(String::from),
    ];
    (scheme, proptest::collection::vec(part, 0..8))
        .prop_map(|(scheme, parts)| format!("{scheme}{}", parts.concat()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn accepted_url_has_the_same_host_in_every_parser(text in near_urls(), location in near_urls()) {
        let Ok(target) = parse(&text) else { return Ok(()) };
        let url = Url::parse(&text).unwrap();
        let theirs = url.host_str().unwrap().trim_end_matches('.');
        prop_assert_eq!(target.host(), theirs);
        prop_assert_eq!(Some(target.port()), url.port_or_known_default());
        prop_assert!(url.username().is_empty() && url.password().is_none());
        // The URI that is sent has the same host, and its text parses to the same URL.
        prop_assert_eq!(target.uri().host(), Some(target.host()));
        let usual = if target.is_https() { 443 } else { 80 };
        prop_assert_eq!(target.uri().port_u16().unwrap_or(usual), target.port());
        let again = parse(target.as_str()).unwrap();
        prop_assert_eq!(target.as_str(), again.as_str());
        prop_assert_eq!(target.uri().path_and_query().unwrap().as_str().split('?').next(), Some(url.path()));
        // The name is in the canonical form that secrets are bound to, byte for byte.
        if let Some(name) = target.host_name() {
            prop_assert_eq!(name, &name.as_str().parse().unwrap());
        }
        if let Ok(next) = target.redirect(&location) {
            prop_assert!(next.is_https() || !target.is_https());
            let joined = url.join(&location).unwrap();
            prop_assert_eq!(next.host(), joined.host_str().unwrap().trim_end_matches('.'));
        }
    }

    #[test]
    fn parsing_never_panics(text in any::<String>()) {
        let _outcome = parse(&text);
        let _outcome = parse("https://a.test/").unwrap().redirect(&text);
    }
}
