//! Guests' own requests: which destinations are open (egress rules R4 to R13).

use std::time::Duration;

use cofferdam_egress::{
    EgressConfig, Error, ExchangeLimits, Outgoing, Placement, Reason, Target, TargetError, Unreached,
    Untrusted,
};
use http::{Request, Response, Version};

use crate::kit::{
    Server,
    dns::NameServer,
    egress,
    guest::{NAME, Scene, VALUE, echo, get, opened, refusal, text},
    ok,
    tls::Authority,
    vault::{self, Vault},
};

fn bearer() -> Placement {
    Placement::header("authorization", "Bearer {}").unwrap()
}

#[tokio::test]
async fn request_of_a_guest_arrives_with_its_secret() {
    let mut scene = Scene::new(ok).await;
    let reply = scene.fetch(scene.get("/user?a=b"), vec![scene.bearer()]).await.unwrap();
    assert_eq!(reply.status, 200);
    assert_eq!(text(reply).await, "fine");
    let seen = scene.server.seen().await;
    assert_eq!(seen.headers()["authorization"], format!("Bearer {VALUE}"));
    assert_eq!(seen.headers()["accept-encoding"], "identity");
    assert_eq!(seen.uri().path_and_query().unwrap(), "/user?a=b");
}

#[tokio::test]
async fn request_uses_the_connection_made_by_connect() {
    let mut scene = Scene::new(ok).await;
    let checked = scene.egress.check(scene.get("/"), Vec::new()).unwrap();
    scene.egress.connect(&checked).await.unwrap();
    scene.egress.connect(&checked).await.unwrap();
    assert_eq!(scene.server.connections(), 1);
    assert_eq!(scene.fetch(scene.get("/"), vec![scene.bearer()]).await.unwrap().status, 200);
    assert_eq!(scene.server.connections(), 1);
    assert_eq!(scene.server.seen().await.uri().path(), "/");
    let elsewhere = get(&format!("https://api.test:{}/", scene.server.address.port() ^ 1));
    assert_eq!(scene.egress.check(elsewhere, Vec::new()).err(), Some(Reason::Port));
}

#[tokio::test]
async fn secret_is_sent_to_its_own_host_only() {
    let scene = Scene::new(ok).await;
    for host in ["test", "other.test", "a.api.test", "xapi.test", "api.test.example", "localhost"] {
        let injection = scene.vault.injection(bearer(), NAME, VALUE, host);
        assert_eq!(scene.refusal(scene.get("/"), vec![injection]).await, Reason::SecretHost, "{host}");
    }
    // Upper case and a trailing dot make no difference.
    let port = scene.server.address.port();
    for url in [format!("https://API.Test:{port}/"), format!("https://api.test.:{port}/")] {
        assert_eq!(scene.fetch(get(&url), vec![scene.bearer()]).await.unwrap().status, 200, "{url}");
    }
}

#[tokio::test]
async fn secret_needs_tls() {
    let server = Server::start(ok).await;
    let vault = Vault::new();
    let authority = Authority::new();
    let plain = EgressConfig { allow_plaintext_loopback: true, ..opened(&server, &authority) };
    let port = server.address.port();
    let to = |config: &EgressConfig, host: &str, url_host: &str| {
        let injection = vault.injection(bearer(), NAME, VALUE, host);
        let (egress, request) = (egress(config), get(&format!("http://{url_host}:{port}/")));
        async move { vault::fetch(&egress, request, vec![injection]).await }
    };
    // A name that resolves to loopback is not a loopback name.
    assert_eq!(refusal(to(&plain, "api.test", "api.test").await), Reason::Plaintext);
    assert_eq!(refusal(to(&opened(&server, &authority), "localhost", "localhost").await), Reason::Plaintext);
    assert_eq!(refusal(to(&plain, "localhost", "127.0.0.1").await), Reason::SecretHost);
    assert_eq!(server.connections(), 0);
    assert_eq!(to(&plain, "localhost", "localhost").await.unwrap().status, 200);
}

#[tokio::test]
async fn plain_http_reaches_loopback_where_allowed() {
    let server = Server::start(ok).await;
    let closed = opened(&server, &Authority::new());
    let open = EgressConfig { allow_plaintext_loopback: true, allow_private: Vec::new(), ..closed.clone() };
    let port = server.address.port();
    for host in ["127.0.0.1", "localhost", "127.1"] {
        let request = get(&format!("http://{host}:{port}/"));
        assert_eq!(
            refusal(vault::fetch(&egress(&closed), request.clone(), Vec::new()).await),
            Reason::PlaintextGuest
        );
        assert_eq!(vault::fetch(&egress(&open), request, Vec::new()).await.unwrap().status, 200, "{host}");
    }
    let request = get(&format!("http://api.test:{port}/"));
    assert_eq!(refusal(vault::fetch(&egress(&open), request, Vec::new()).await), Reason::PlaintextGuest);
    // `allow_plaintext_loopback` opens nothing for https.
    let request = get(&format!("https://localhost:{port}/"));
    assert_eq!(refusal(vault::fetch(&egress(&open), request, Vec::new()).await), Reason::Closed);
    let elsewhere = EgressConfig {
        resolve: [("localhost".to_owned(), vec!["10.0.0.1".parse().unwrap()])].into(),
        ..open
    };
    let request = get(&format!("http://localhost:{port}/"));
    assert_eq!(refusal(vault::fetch(&egress(&elsewhere), request, Vec::new()).await), Reason::Closed);
}

#[tokio::test]
async fn only_listed_ports_are_open() {
    let scene = Scene::new(ok).await;
    for url in ["https://api.test/", "https://api.test:80/", "https://api.test:8443/"] {
        assert_eq!(scene.refusal(get(url), vec![scene.bearer()]).await, Reason::Port, "{url}");
    }
}

#[tokio::test]
async fn host_of_the_request_is_the_dialled_host() {
    let scene = Scene::new(echo).await;
    for (name, value) in [("Host", "evil.test"), ("host", "api.test"), (":authority", "evil.test")] {
        let mut request = scene.get("/");
        request.headers.push((name.to_owned(), value.to_owned()));
        assert_eq!(scene.refusal(request, Vec::new()).await, Reason::Header, "{name}");
    }
    // Over HTTP/1.1, also where the server would rather speak HTTP/2, in which the number of interim answers cannot
    // be bounded. The server's certificate is valid for `api.test` only.
    for protocols in [&["http/1.1"][..], &["h2", "http/1.1"]] {
        let mut server = Server::start_tls(scene.authority.acceptor("api.test", protocols), ok).await;
        let port = server.address.port();
        let egress = egress(&opened(&server, &scene.authority));
        vault::fetch(&egress, get(&format!("https://Api.Test.:{port}/")), Vec::new()).await.unwrap();
        let seen = server.seen().await;
        assert_eq!(seen.version(), Version::HTTP_11);
        assert_eq!(seen.headers()["host"], format!("api.test:{port}"));
    }
}

#[tokio::test]
async fn connections_are_shared_neither_between_hosts_nor_with_providers() {
    let authority = Authority::new();
    // One certificate for two names. Over HTTP/2, a browser would use one connection for both.
    let acceptor = authority.acceptor_for(&["api.test", "other.test"], &["h2", "http/1.1"]);
    let server = Server::start_tls(acceptor, ok).await;
    let mut config = opened(&server, &authority);
    config.resolve.insert("other.test".to_owned(), vec!["127.0.0.1".parse().unwrap()]);
    let port = server.address.port();
    let egress = egress(&config);
    for (name, connections) in [("api.test", 1), ("other.test", 2), ("API.test", 2), ("other.test.", 2)] {
        let reply = vault::fetch(&egress, get(&format!("https://{name}:{port}/")), Vec::new()).await.unwrap();
        assert_eq!(text(reply).await, "fine");
        assert_eq!(server.connections(), connections, "{name}");
    }
    let origin = crate::kit::origin(&format!("https://api.test:{port}/v1"));
    let reply = egress
        .send(Outgoing { limits: ExchangeLimits::default(), ..crate::kit::request(&origin) })
        .await
        .unwrap();
    assert_eq!(reply.status, 200);
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn redirects_are_answers_to_guests() {
    fn moved(request: &Request<bytes::Bytes>) -> Response<http_body_util::Full<bytes::Bytes>> {
        let status: u16 = request.uri().path().trim_start_matches('/').parse().unwrap();
        let location = match status {
            301 => "https://evil.test/",
            302 => "http://api.test/",
            303 => "https://api.test:444/",
            307 => "//evil.test/",
            _ => "/again",
        };
        Response::builder().status(status).header("location", location).body("".into()).unwrap()
    }
    let mut scene = Scene::new(moved).await;
    for status in [301, 302, 303, 307, 308] {
        let request = scene.get(&format!("/{status}"));
        let target = request.target.clone();
        let reply = scene.fetch(request, vec![scene.bearer()]).await.unwrap();
        assert_eq!(reply.status.as_u16(), status);
        let (_, location) = reply.headers.iter().find(|(name, _)| name == "location").unwrap();
        let next = target.redirect(location);
        match status {
            302 => assert_eq!(next.err(), Some(TargetError::Downgrade)),
            308 => assert!(next.unwrap().is_same_origin(&target)),
            _ => assert!(!next.unwrap().is_same_origin(&target)),
        }
        assert_eq!(text(reply).await, "");
        scene.server.seen().await;
    }
    // No redirect was followed.
    assert_eq!(scene.server.connections(), 1);
}

/// Why a request is refused when the name server answers with these addresses.
async fn resolved(addresses: &[&str], allow_private: &[&str]) -> Reason {
    let server = Server::start(ok).await;
    let names = NameServer::start(addresses).await;
    let config = EgressConfig {
        resolve: [].into(),
        nameservers: vec![names.address],
        allow_private: allow_private.iter().map(|range| range.parse().unwrap()).collect(),
        ..opened(&server, &Authority::new())
    };
    let request = get(&format!("https://api.example:{}/", server.address.port()));
    let outcome = vault::fetch(&egress(&config), request, Vec::new()).await;
    assert_eq!(server.connections(), 0);
    refusal(outcome)
}

#[tokio::test]
async fn one_closed_address_refuses_the_whole_answer() {
    for answer in [
        &["127.0.0.1"][..],
        &["93.184.216.34", "127.0.0.1"],
        &["93.184.216.34", "10.0.0.1"],
        &["::ffff:127.0.0.1"],
        &["64:ff9b::7f00:1"],
        &["2002:7f00:1::"],
        &["93.184.216.34", "::1"],
        &["0.0.0.0"],
        &["fd00::1"],
    ] {
        assert_eq!(resolved(answer, &[]).await, Reason::Closed, "{answer:?}");
    }
    for answer in [&["169.254.169.254"][..], &["93.184.216.34", "169.254.169.254"], &["64:ff9b::a9fe:a9fe"]] {
        assert_eq!(resolved(answer, &["0.0.0.0/0", "::/0"]).await, Reason::Metadata, "{answer:?}");
    }
}

#[tokio::test]
async fn changed_dns_answer_is_checked_again() {
    let server = Server::start(ok).await;
    // The first answer is open but no server has that address, the second is closed. Each answer
    // must be checked before its addresses are dialled.
    let names = NameServer::flipping(&[&["192.0.2.1"], &["127.0.0.1"]]).await;
    let config = EgressConfig {
        resolve: [].into(),
        nameservers: vec![names.address],
        allow_private: vec!["192.0.2.0/24".parse().unwrap()],
        connect_timeout: Duration::from_millis(300),
        ..opened(&server, &Authority::new())
    };
    let egress = egress(&config);
    let request = get(&format!("https://api.example:{}/", server.address.port()));
    let closed = Error::Refused { reason: Reason::Closed };
    // An address for documentation is unreachable on every machine, but the exact error differs.
    let first = vault::fetch(&egress, request.clone(), Vec::new()).await.err();
    assert!(matches!(first, Some(Error::Unreachable(_))), "{first:?}");
    for _ in 0..2 {
        assert_eq!(vault::fetch(&egress, request.clone(), Vec::new()).await.err(), Some(closed));
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn name_without_an_address_is_unreachable() {
    let server = Server::start(ok).await;
    let names = NameServer::start(&[]).await;
    let config = EgressConfig {
        resolve: [].into(),
        nameservers: vec![names.address],
        ..opened(&server, &Authority::new())
    };
    let request = get(&format!("https://api.example:{}/", server.address.port()));
    assert_eq!(
        vault::fetch(&egress(&config), request, Vec::new()).await.err(),
        Some(Error::Unreachable(Unreached::UnknownName))
    );
}

#[tokio::test]
async fn literal_addresses_are_checked_without_a_resolver() {
    let server = Server::start(ok).await;
    let config = EgressConfig { allow_private: Vec::new(), ..opened(&server, &Authority::new()) };
    let egress = egress(&config);
    let port = server.address.port();
    for host in [
        "127.0.0.1",
        "2130706433",
        "0x7f.1",
        "0177.1",
        "[::ffff:127.0.0.1]",
        "[::1]",
        "0.0.0.0",
        "[::]",
        "10.0.0.1",
    ] {
        let request = get(&format!("https://{host}:{port}/"));
        assert_eq!(egress.check(request.clone(), Vec::new()).err(), Some(Reason::Closed), "{host}");
        assert_eq!(refusal(vault::fetch(&egress, request, Vec::new()).await), Reason::Closed, "{host}");
    }
    for host in ["169.254.169.254", "2852039166", "[fd00:ec2::254]"] {
        assert_eq!(
            egress.check(get(&format!("https://{host}:{port}/")), Vec::new()).err(),
            Some(Reason::Metadata),
            "{host}"
        );
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn own_listeners_stay_closed() {
    let scene = Scene::new(ok).await;
    let config = EgressConfig { own_ports: vec![scene.server.address.port()], ..scene.config.clone() };
    assert_eq!(refusal(vault::fetch(&egress(&config), scene.get("/"), Vec::new()).await), Reason::Closed);
    // The same holds over plain http.
    let server = Server::start(ok).await;
    let port = server.address.port();
    let config =
        EgressConfig { own_ports: vec![port], allow_plaintext_loopback: true, ports: vec![port], ..config };
    let request = get(&format!("http://localhost:{port}/"));
    assert_eq!(refusal(vault::fetch(&egress(&config), request, Vec::new()).await), Reason::Closed);
}

#[tokio::test]
async fn certificates_are_verified() {
    let authority = Authority::new();
    let servers = [
        ("expired", Untrusted::Expired, authority.expired("api.test")),
        ("self-signed", Untrusted::UnknownRoot, Authority::self_signed("api.test")),
        ("another name", Untrusted::WrongName, authority.acceptor("other.test", &["h2", "http/1.1"])),
        (
            "unknown authority",
            Untrusted::UnknownRoot,
            Authority::new().acceptor("api.test", &["h2", "http/1.1"]),
        ),
    ];
    let vault = Vault::new();
    for (what, cause, acceptor) in servers {
        let server = Server::start_tls(acceptor, ok).await;
        let request = get(&format!("https://api.test:{}/", server.address.port()));
        let injection = vault.injection(bearer(), NAME, VALUE, "api.test");
        let outcome = vault::fetch(&egress(&opened(&server, &authority)), request, vec![injection]).await;
        assert_eq!(outcome.err(), Some(Error::Untrusted(cause)), "{what}");
    }
}

#[test]
fn proxies_of_the_environment_are_not_used() {
    // A test must not change its own environment, so it starts itself again with another one.
    const MARK: &str = "COFFERDAM_TEST_PROXIED";
    let test = "guest_way::proxies_of_the_environment_are_not_used";
    if std::env::var_os(MARK).is_none() {
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.args([test, "--exact"]).env(MARK, "1");
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"] {
            again.env(name, "http://127.0.0.1:9");
        }
        assert!(again.status().unwrap().success());
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let scene = Scene::new(ok).await;
        assert_eq!(scene.fetch(scene.get("/"), vec![scene.bearer()]).await.unwrap().status, 200);
    });
}

#[test]
fn urls_with_two_possible_hosts_are_refused() {
    for url in ["https://api.test@evil.test/", "https://evil.test\\@api.test/", "https://api\t.test/"] {
        assert!(Target::parse(url).is_err(), "{url}");
    }
}
