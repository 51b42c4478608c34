//! Which hosts requests may reach (egress rules R4 to R13).

use super::{API, Bench, GRANT, OTHER, VALUE, assert_error, assert_ok};
use crate::kit::host::Setup;
use crate::kit::site::{Authority, Site};
use serde_json::json;

#[tokio::test]
async fn granted_host_is_reached_in_every_spelling_of_its_name() {
    let bench = Bench::start(GRANT).await;
    bench.secret("api_key", VALUE, API);
    for name in ["api.test", "API.Test", "api.test."] {
        assert_ok(&bench.get(&bench.url(name, "/x")).await);
        let seen = bench.site.last();
        assert_eq!(seen.sni.as_deref(), Some(API), "R8");
        assert_eq!(seen.header("host"), Some(format!("{API}:{}", bench.site.port).as_str()));
        assert_eq!(seen.header("authorization"), Some(format!("Bearer {VALUE}").as_str()));
    }
    assert!(bench.names.asked().is_empty());
}

#[tokio::test]
async fn no_other_host_is_resolved_or_reached() {
    let bench = Bench::start(GRANT).await;
    bench.secret("api_key", VALUE, API);
    let port = bench.site.port;
    for authority in [
        "test",
        "evil.api.test",
        "bpi.test",
        "api.test.evil.test",
        "api-test",
        "xapi.test",
        "api.tes",
        "api.test..",
        ".api.test",
        "xn--pi-7ka.test",
        "\u{430}pi.test",
        "api\u{3002}test",
        "ap\u{ad}i.test",
        "api.test@evil.test",
        "evil.test#@api.test",
        "evil.test\\@api.test",
        "api.test%2eevil.test",
        "api%2etest",
        "api.test\\.evil.test",
        "api\t.test",
        "api\n.test",
        "api.test ",
        "127.0.0.1",
        "2130706433",
        "0177.0.0.1",
        "0x7f.1",
        "127.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "0.0.0.0",
        "localhost",
        "localhost.",
        "169.254.169.254",
        "",
    ] {
        for url in [format!("https://{authority}:{port}/"), format!("https://{authority}/")] {
            let answer = bench.get(&url).await;
            let error = answer["error"].as_str().unwrap_or_else(|| panic!("{url}: {answer}"));
            // IP addresses are refused in every spelling; the other URLs are not granted or
            // invalid.
            assert!(["denied", "invalid"].contains(&error), "{url}: {answer}");
        }
    }
    assert_eq!(bench.site.connections(), 0);
    assert!(bench.names.asked().is_empty(), "{:?}", bench.names.asked());
    bench.host.until_logged("the host is not granted; to allow it: [plugins.tool-probe] hosts = [");
}

#[tokio::test]
async fn only_https_and_allowed_ports_are_reached() {
    let bench = Bench::start(GRANT).await;
    bench.secret("api_key", VALUE, API);
    let port = bench.site.port;
    for (url, error) in [
        (format!("http://{API}:{port}/"), "denied"),
        (format!("http://{API}/"), "denied"),
        (format!("https://{API}/"), "denied"),
        (format!("https://{API}:80/"), "denied"),
        (format!("https://{API}:8443/"), "denied"),
        (format!("https://{API}:0/"), "invalid"),
        (format!("https://{API}:{port}0000/"), "invalid"),
        (format!("ftp://{API}:{port}/"), "invalid"),
        (format!("ws://{API}:{port}/"), "invalid"),
        ("file:///etc/passwd".to_owned(), "invalid"),
        ("/x".to_owned(), "invalid"),
        (String::new(), "invalid"),
    ] {
        assert_error(&bench.get(&url).await, error);
    }
    for method in ["TRACE", "CONNECT", "OPTIONS", "get", "GET /x HTTP/1.1\r\nx:", ""] {
        assert_error(&bench.probe(json!({"url": bench.url(API, "/"), "method": method})).await, "denied");
    }
    assert_eq!(bench.site.connections(), 0);
}

#[tokio::test]
async fn names_that_resolve_to_a_private_address_are_not_dialled() {
    let grant = "[plugins.tool-probe]\nhosts = [\"flip.test\"]\nsecrets = [\"api_key\"]\n";
    let mut bench = Bench::start(grant).await;
    bench.secret("api_key", VALUE, "flip.test");
    let url = bench.url("flip.test", "/");
    assert_error(&bench.get(&url).await, "unreachable");
    for addresses in [
        &["10.0.0.1"][..],
        &["169.254.169.254"],
        &["0.0.0.0"],
        &["192.0.2.1"],
        // One closed address makes the whole answer unusable.
        &["127.0.0.1", "10.0.0.1"],
        &["10.0.0.1", "127.0.0.1"],
    ] {
        bench.names.answer("flip.test", addresses);
        assert_error(&bench.get(&url).await, "denied");
    }
    assert_eq!(bench.site.connections(), 0);
    bench.names.answer("flip.test", &["127.0.0.1"]);
    assert_ok(&bench.get(&url).await);
    assert_eq!(bench.audit("secret_released").len(), 1, "what was not dialled was not released either");
}

#[tokio::test]
async fn a_server_without_a_valid_certificate_gets_nothing() {
    let (trusted, stranger) = (Authority::new(), Authority::new());
    let site = Site::start(&stranger, &[API]).await;
    let bench = Bench::at(Setup::new(), &trusted, site, "", GRANT).await;
    bench.secret("api_key", VALUE, API);
    assert_error(&bench.get(&bench.url(API, "/")).await, "untrusted");
    bench.host.until_logged("certificate is not trusted: it is signed by an unknown root");
    assert!(bench.site.seen().is_empty());
    let site = Site::start(&trusted, &[OTHER]).await;
    let bench = Bench::at(Setup::new(), &trusted, site, "", GRANT).await;
    bench.secret("api_key", VALUE, API);
    assert_error(&bench.get(&bench.url(API, "/")).await, "untrusted");
    bench.host.until_logged("certificate is not trusted: it is not for this name");
    assert!(bench.site.seen().is_empty(), "a wrong name at the same address");
}

#[tokio::test]
async fn proxies_of_the_environment_are_not_used() {
    let setup = Setup::new();
    let bench = {
        let proxy = "http://127.0.0.1:9";
        let mut setup = setup;
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "https_proxy", "all_proxy"] {
            setup = setup.environment(name, proxy);
        }
        Bench::with(setup, "", GRANT).await
    };
    assert_ok(&bench.get(&bench.url(API, "/")).await);
}

#[tokio::test]
async fn a_star_grants_every_public_host_but_never_a_secret() {
    let bench = Bench::start("[plugins.tool-probe]\nhosts = [\"*\"]\nsecrets = [\"api_key\"]\n").await;
    bench.secret("api_key", VALUE, API);
    let url = bench.url(API, "/");
    // The site has a private address. `*` does not include private addresses, even if the operator
    // has allowed them for named hosts.
    assert_error(&bench.get(&url).await, "denied");
    let named =
        json!({"url": url, "injections": [{"secret": "api_key", "header": ["authorization", "", ""]}]});
    assert_error(&bench.probe(named).await, "denied");
    assert!(bench.site.seen().is_empty());
    bench.host.until_logged("secrets go to hosts granted by name only; to allow it: [plugins.tool-probe] hosts = [\\\"api.test\\\"]");
    let bench =
        Bench::start("[plugins.tool-probe]\nhosts = [\"*\", \"api.test\"]\nsecrets = [\"api_key\"]\n").await;
    bench.secret("api_key", VALUE, API);
    assert_ok(&bench.get(&bench.url(API, "/")).await);
    assert_eq!(bench.site.last().header("authorization"), Some(format!("Bearer {VALUE}").as_str()));
}

#[tokio::test]
async fn a_plugin_without_a_grant_is_unknown_to_clients() {
    let bench = Bench::start("").await;
    let request = json!({"model": super::MODEL, "input": "Go.", "tools": [{"type": "service:probe"}]});
    let answer = crate::kit::client::Client::new(&bench.host).post("/responses", &request).await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    assert!(answer.message().contains("is not available on this host"), "{}", answer.text);
    assert!(!answer.text.contains("plugins."), "{}", answer.text);
}
