//! Verification of certificates.

use cofferdam_egress::{Egress, EgressConfig, EgressConfigError, Error, Outgoing, Unreached, Untrusted};
use http::Version;

use crate::kit::{
    self, Server, config, egress, ok, origin, origin_with_credential, request, resolving, tls::Authority,
};

const BOTH: &[&str] = &["h2", "http/1.1"];

/// A configuration that trusts `authority` and resolves `api.test` to loopback.
fn trusting(authority: &Authority) -> EgressConfig {
    EgressConfig { roots: vec![authority.pem()], ..resolving("api.test", &["127.0.0.1"]) }
}

fn url(server: &Server) -> String {
    format!("https://api.test:{}/v1", server.address.port())
}

#[tokio::test]
async fn extra_roots_are_trusted_and_the_protocol_is_agreed_on() {
    let authority = Authority::new();
    let table = [(BOTH, Version::HTTP_2), (&["http/1.1"], Version::HTTP_11), (&[], Version::HTTP_11)];
    for (protocols, version) in table {
        let mut server = Server::start_tls(authority.acceptor("api.test", protocols), ok).await;
        let origin = origin_with_credential(&url(&server));
        let credential = kit::credential();
        let outgoing = Outgoing { credential: Some(&credential), ..request(&origin) };
        let reply = egress(&trusting(&authority)).send(outgoing).await.unwrap();
        assert_eq!(reply.body.collect(16).await.unwrap(), "fine");
        let seen = server.seen().await;
        assert_eq!(seen.version(), version);
        assert_eq!(seen.headers()["authorization"], "Bearer sk-very-secret");
    }
}

#[tokio::test]
async fn certificates_for_addresses_are_accepted() {
    let authority = Authority::new();
    let server = Server::start_tls(authority.acceptor("127.0.0.1", BOTH), ok).await;
    let origin = origin(&format!("https://{}/v1", server.address));
    assert_eq!(egress(&trusting(&authority)).send(request(&origin)).await.unwrap().status, 200);
}

#[tokio::test]
async fn unacceptable_certificates_are_untrusted() {
    let authority = Authority::new();
    let stranger = Authority::new();
    let servers = [
        (
            "unknown authority",
            Untrusted::UnknownRoot,
            Server::start_tls(stranger.acceptor("api.test", BOTH), ok).await,
        ),
        ("parent name", Untrusted::WrongName, Server::start_tls(authority.acceptor("test", BOTH), ok).await),
        (
            "sibling name",
            Untrusted::WrongName,
            Server::start_tls(authority.acceptor("other.test", BOTH), ok).await,
        ),
        (
            "child name",
            Untrusted::WrongName,
            Server::start_tls(authority.acceptor("a.api.test", BOTH), ok).await,
        ),
        (
            "address for a name",
            Untrusted::WrongName,
            Server::start_tls(authority.acceptor("127.0.0.1", BOTH), ok).await,
        ),
        ("expired", Untrusted::Expired, Server::start_tls(authority.expired("api.test"), ok).await),
    ];
    let egress = egress(&trusting(&authority));
    for (what, cause, server) in servers {
        let error = egress.send(request(&origin(&url(&server)))).await.unwrap_err();
        assert_eq!(error, Error::Untrusted(cause), "{what}");
        assert!(error.is_connect(), "{what}");
    }
}

#[tokio::test]
async fn roots_are_not_shared_between_instances() {
    let authority = Authority::new();
    let server = Server::start_tls(authority.acceptor("api.test", BOTH), ok).await;
    let other = EgressConfig { roots: Vec::new(), ..trusting(&authority) };
    let error = egress(&other).send(request(&origin(&url(&server)))).await.unwrap_err();
    assert_eq!(error, Error::Untrusted(Untrusted::UnknownRoot));
}

#[tokio::test]
async fn plain_server_behind_https_is_unreachable() {
    let server = Server::start(ok).await;
    let error = egress(&trusting(&Authority::new())).send(request(&origin(&url(&server)))).await.unwrap_err();
    assert_eq!(error, Error::Unreachable(Unreached::NoTls));
}

#[test]
fn unusable_roots_are_reported_by_index() {
    let good = Authority::new().pem();
    let key = b"-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n".to_vec();
    let noise = b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n".to_vec();
    let cut = good[..good.len() / 2].to_vec();
    for bad in [Vec::new(), b"not pem".to_vec(), key, noise, cut] {
        let roots = vec![good.clone(), bad];
        let error = Egress::new(EgressConfig { roots, ..config() }).err();
        assert_eq!(error, Some(EgressConfigError::Root { index: 1 }));
    }
}
