use proptest::prelude::*;

use super::*;

fn parse(base_url: &str, with_credential: bool) -> Result<Origin, OriginError> {
    Origin::parse(base_url, with_credential, false, &EgressConfig::default())
}

fn permissive() -> EgressConfig {
    EgressConfig { allow_plaintext_loopback: true, ..EgressConfig::default() }
}

#[test]
fn origins_become_canonical() {
    let table = [
        ("https://api.example.com/v1", "https://api.example.com/v1/x", "api.example.com", 443),
        ("https://api.example.com/v1/", "https://api.example.com/v1/x", "api.example.com", 443),
        ("https://api.example.com", "https://api.example.com/x", "api.example.com", 443),
        ("https://api.example.com/", "https://api.example.com/x", "api.example.com", 443),
        ("HTTPS://API.Example.COM:443/V1", "https://api.example.com/V1/x", "api.example.com", 443),
        ("https://api.example.com:8443/a/b", "https://api.example.com:8443/a/b/x", "api.example.com", 8443),
        ("http://127.0.0.1:11434/v1", "http://127.0.0.1:11434/v1/x", "127.0.0.1", 11434),
        ("http://2130706433/v1", "http://127.0.0.1/v1/x", "127.0.0.1", 80),
        ("http://0x7f.1/v1", "http://127.0.0.1/v1/x", "127.0.0.1", 80),
        ("http://[::1]:8000", "http://[::1]:8000/x", "[::1]", 8000),
        ("http://ollama:11434", "http://ollama:11434/x", "ollama", 11434),
        ("https://169.254.1.1/v1", "https://169.254.1.1/v1/x", "169.254.1.1", 443),
    ];
    for (base_url, joined, host, port) in table {
        let origin = parse(base_url, false).unwrap();
        assert_eq!(origin.join("x").unwrap().to_string(), joined);
        assert_eq!(origin.join("/x").unwrap().to_string(), joined);
        assert_eq!((origin.host(), origin.port()), (host, port));
    }
}

#[test]
fn suspicious_base_urls_are_warned_about() {
    for base_url in [
        "https://api.example.com/v1",
        "https://api.example.com/openai/v1/",
        "https://api.example.com/v1beta/openai",
        "http://127.0.0.1:11434/v1",
        "http://[::1]:8000/v1",
        "http://localhost:1/v1",
        "http://ollama:11434/v1",
        "http://models.internal/v1",
        "http://gpu.home.arpa/v4",
    ] {
        assert_eq!(parse(base_url, false).unwrap().doubts().count(), 0, "{base_url}");
    }
    for (base_url, says) in [
        ("https://api.example.com", "has no version in its path"),
        ("https://api.example.com/", "has no version in its path"),
        ("https://api.example.com/api/video", "has no version in its path"),
        ("http://api.example.com/v1", "write https://"),
    ] {
        let doubts: Vec<_> = parse(base_url, false).unwrap().doubts().collect();
        assert!(matches!(doubts[..], [doubt] if doubt.contains(says)), "{base_url}: {doubts:?}");
    }
    assert_eq!(parse("http://api.example.com", false).unwrap().doubts().count(), 2);
}

#[test]
fn malformed_base_urls_are_refused() {
    let table = [
        ("", OriginError::Malformed),
        ("api.example.com/v1", OriginError::Malformed),
        ("https:api.example.com", OriginError::Malformed),
        ("https:///v1", OriginError::Malformed),
        ("https://:443/v1", OriginError::Malformed),
        ("https://a:0/", OriginError::Malformed),
        ("https://a:/", OriginError::Malformed),
        ("https://a:65536/", OriginError::Malformed),
        ("https://a./v1", OriginError::Malformed),
        ("https://a../v1", OriginError::Malformed),
        ("https://exa\tmple.com/", OriginError::Malformed),
        ("https://example.com/\n", OriginError::Malformed),
        (" https://example.com/", OriginError::Malformed),
        ("https:\\\\example.com", OriginError::Malformed),
        ("https://good.test\\@evil.test/", OriginError::Malformed),
        ("https://%65xample.com/", OriginError::Malformed),
        ("https://b\u{fc}cher.example/", OriginError::Malformed),
        ("https://[::1", OriginError::Malformed),
        ("https://[fe80::1%25eth0]/", OriginError::Malformed),
        ("ftp://example.com/", OriginError::Scheme),
        ("file:///etc/passwd", OriginError::Scheme),
        ("wss://example.com/", OriginError::Scheme),
        ("https://user@example.com/", OriginError::UserInfo),
        ("https://user:pass@example.com/", OriginError::UserInfo),
        ("https://@example.com/", OriginError::UserInfo),
        ("https://example.com/?a=b", OriginError::Query),
        ("https://example.com?", OriginError::Query),
        ("https://example.com/#a", OriginError::Fragment),
        ("https://evil.test#@example.com/", OriginError::Fragment),
        ("https://example.com/v1/../v2", OriginError::Path(PathError::DotSegment)),
        ("https://example.com//v1", OriginError::Path(PathError::EmptySegment)),
        ("https://example.com/v1//", OriginError::Path(PathError::EmptySegment)),
        ("https://example.com/%2e%2e", OriginError::Path(PathError::DotSegment)),
    ];
    for (base_url, error) in table {
        assert_eq!(parse(base_url, false).map(|_| ()), Err(error), "{base_url:?}");
    }
}

#[test]
fn metadata_addresses_are_closed_as_literals() {
    let hosts = [
        "169.254.169.254",
        "2852039166",
        "0xa9fea9fe",
        "0251.0376.0251.0376",
        "169.254.43518",
        "100.100.100.200",
        "[::ffff:169.254.169.254]",
        "[64:ff9b::a9fe:a9fe]",
        "[2002:a9fe:a9fe::]",
        "[fd00:ec2::254]",
    ];
    for host in hosts {
        for scheme in ["http", "https"] {
            for with_credential in [false, true] {
                let base_url = format!("{scheme}://{host}/latest");
                let refused = Origin::parse(&base_url, with_credential, false, &permissive());
                assert_eq!(refused.map(|_| ()), Err(OriginError::Metadata), "{base_url}");
            }
        }
    }
}

#[test]
fn plain_http_without_credential_goes_to_loopback_and_private_addresses() {
    for host in
        ["127.0.0.1", "127.9.9.9", "[::1]", "10.0.0.1", "192.168.1.5:8000", "[fd00::1]", "localhost", "box"]
    {
        assert!(parse(&format!("http://{host}/v1"), false).is_ok(), "{host}");
    }
    for host in
        ["8.8.8.8", "[2606:4700::1]", "0.0.0.0", "[::]", "100.64.0.1", "169.254.1.1", "[64:ff9b::7f00:1]"]
    {
        let refused = parse(&format!("http://{host}/v1"), false).map(|_| ());
        assert_eq!(refused, Err(OriginError::PlaintextAddress), "{host}");
    }
}

#[test]
fn plain_http_with_credential_goes_to_loopback_where_allowed() {
    for host in ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "localhost", "api.localhost"] {
        let base_url = format!("http://{host}:9/v1");
        let refused = parse(&base_url, true).map(|_| ());
        assert_eq!(refused, Err(OriginError::PlaintextLoopback), "{host}");
        assert!(Origin::parse(&base_url, true, false, &permissive()).is_ok(), "{host}");
    }
    for host in ["10.0.0.1", "[fd00::1]", "8.8.8.8", "0.0.0.0"] {
        let base_url = format!("http://{host}/v1");
        for config in [EgressConfig::default(), permissive()] {
            let refused = Origin::parse(&base_url, true, false, &config).map(|_| ());
            assert_eq!(refused, Err(OriginError::PlaintextCredential), "{host}");
        }
    }
    for name in ["api.example.com", "localhost.example.com", "notlocalhost"] {
        let refused = parse(&format!("http://{name}/v1"), true).map(|_| ());
        assert_eq!(refused, Err(OriginError::PlaintextCredential), "{name}");
    }
}

#[test]
fn host_bound_secrets_need_a_name() {
    let bound = |base_url: &str| Origin::parse(base_url, true, true, &permissive()).map(|_| ());
    for base_url in ["http://127.0.0.1:11434/v1", "https://[2606:4700::1]/v1", "https://93.184.216.34/"] {
        assert_eq!(bound(base_url), Err(OriginError::HostBoundLiteral), "{base_url}");
    }
    assert_eq!(bound("http://localhost:11434/v1"), Ok(()));
    assert_eq!(bound("https://api.example.com/v1"), Ok(()));
}

proptest! {
    #[test]
    fn parse_never_panics(base_url in any::<String>()) {
        let _outcome = parse(&base_url, false);
    }

    #[test]
    fn parsed_hosts_match_the_text(base_url in "https?://[a-c.@:\\\\#?/%0-9\\[\\]]{0,16}") {
        if let Ok(origin) = parse(&base_url, false) {
            let url = Url::parse(&origin.join("x").unwrap().to_string()).unwrap();
            prop_assert_eq!(url.host_str(), Some(origin.host()));
            prop_assert!(url.username().is_empty() && url.password().is_none());
            prop_assert!(!base_url.contains(['@', '\\', '#', '?']));
        }
    }

    #[test]
    fn no_path_leaves_the_origin(path in "[a-z0-9./?#@:%25eEfF\\\\ \r\n\\-]{0,24}") {
        let origin = parse("https://api.example.com:8443/v1/base", false).unwrap();
        if let Ok(uri) = origin.join(&path) {
            // A parser that repairs URLs changes nothing: what was checked is what is sent.
            let url = Url::parse(&uri.to_string()).unwrap();
            prop_assert_eq!(url.as_str(), uri.to_string());
            prop_assert_eq!(url.scheme(), "https");
            prop_assert_eq!(url.host_str(), Some("api.example.com"));
            prop_assert_eq!(url.port(), Some(8443));
            prop_assert!(url.username().is_empty() && url.password().is_none());
            prop_assert!(url.fragment().is_none());
            prop_assert!(url.path().starts_with("/v1/base/"));
            let written = path.split('?').next().unwrap();
            prop_assert!(url.path().ends_with(written.trim_start_matches('/')));
        }
    }

    #[test]
    fn no_text_leaves_the_origin(path in any::<String>()) {
        let origin = parse("https://api.example.com/v1", false).unwrap();
        if let Ok(url) = origin.join(&path) {
            prop_assert!(url.to_string().starts_with("https://api.example.com/v1/"));
        }
    }
}
