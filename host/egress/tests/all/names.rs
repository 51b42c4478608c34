//! Resolving names, and the checks of their addresses.

use cofferdam_egress::{EgressConfig, Error, Origin, Outgoing, Reason, Unreached};

use crate::kit::{
    self, Server, config, dns::NameServer, egress, ok, origin, origin_with_credential, request, resolving,
};

/// The outcome of a request to `origin` when `api.test` has these addresses.
async fn outcome(origin: &Origin, addresses: &[&str]) -> Result<u16, Error> {
    let config = resolving("API.test", addresses);
    egress(&config).send(request(origin)).await.map(|reply| reply.status.as_u16())
}

fn refused(reason: Reason) -> Result<u16, Error> {
    Err(Error::Refused { reason })
}

#[tokio::test]
async fn fixed_answers_lead_to_the_server() {
    let mut server = Server::start(ok).await;
    let origin = origin(&format!("http://api.test:{}/v1", server.address.port()));
    assert_eq!(outcome(&origin, &["127.0.0.1"]).await, Ok(200));
    assert_eq!(server.seen().await.headers()["host"], format!("api.test:{}", server.address.port()));
    assert_eq!(outcome(&origin, &["::ffff:127.0.0.1"]).await, Ok(200));
}

#[tokio::test]
async fn metadata_stays_closed_for_every_name() {
    let answers = [
        &["169.254.169.254"][..],
        &["::ffff:169.254.169.254"],
        &["64:ff9b::a9fe:a9fe"],
        &["2002:a9fe:a9fe::1"],
        &["fd00:ec2::254"],
        &["100.100.100.200"],
        &["127.0.0.1", "169.254.169.254"],
    ];
    let origins = [
        origin("https://api.test/v1"),
        origin("http://api.test/v1"),
        origin_with_credential("https://api.test/v1"),
        origin_with_credential("http://api.test/v1"),
    ];
    for origin in &origins {
        for answer in answers {
            assert_eq!(outcome(origin, answer).await, refused(Reason::Metadata), "{origin:?} {answer:?}");
        }
    }
}

#[tokio::test]
async fn plain_http_refuses_names_of_public_addresses() {
    let server = Server::start(ok).await;
    let origin = origin(&format!("http://api.test:{}/v1", server.address.port()));
    for answer in [
        &["93.184.216.34"][..],
        &["0.0.0.0"],
        &["2606:4700::1111"],
        &["127.0.0.1", "93.184.216.34"],
        &["64:ff9b::7f00:1"],
    ] {
        assert_eq!(outcome(&origin, answer).await, refused(Reason::Address), "{answer:?}");
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn credential_over_plain_http_stays_on_loopback() {
    let server = Server::start(ok).await;
    let origin = origin_with_credential(&format!("http://api.test:{}/v1", server.address.port()));
    for answer in [&["10.0.0.1"][..], &["93.184.216.34"], &["127.0.0.1", "10.0.0.1"]] {
        assert_eq!(outcome(&origin, answer).await, refused(Reason::Plaintext), "{answer:?}");
    }
    assert_eq!(server.connections(), 0);
    assert_eq!(outcome(&origin, &["127.0.0.1"]).await, Ok(200));
}

#[tokio::test]
async fn credential_is_refused_for_an_origin_without_one() {
    let server = Server::start(ok).await;
    let origin = origin(&server.url());
    let credential = kit::credential();
    let outgoing = Outgoing { credential: Some(&credential), ..request(&origin) };
    let error = egress(&config()).send(outgoing).await.unwrap_err();
    assert_eq!(error, Error::Refused { reason: Reason::Plaintext });
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn localhost_needs_no_name_server() {
    let server = Server::start(ok).await;
    let name_server = NameServer::start(&["169.254.169.254"]).await;
    let config = EgressConfig { nameservers: vec![name_server.address], ..config() };
    for name in ["localhost", "LOCALHOST", "api.localhost"] {
        let origin = origin(&format!("http://{name}:{}/v1", server.address.port()));
        assert_eq!(egress(&config).send(request(&origin)).await.unwrap().status, 200, "{name}");
    }
}

#[tokio::test]
async fn answers_of_configured_name_servers_are_checked() {
    let server = Server::start(ok).await;
    let origin = origin(&format!("http://api.example:{}/v1", server.address.port()));
    let table = [
        (&["127.0.0.1"][..], Ok(200)),
        (&["169.254.169.254"], refused(Reason::Metadata)),
        (&["127.0.0.1", "fd00:ec2::254"], refused(Reason::Metadata)),
        (&["127.0.0.1", "93.184.216.34"], refused(Reason::Address)),
        (&["::ffff:93.184.216.34"], refused(Reason::Address)),
        (&[], Err(Error::Unreachable(Unreached::UnknownName))),
    ];
    for (addresses, expected) in table {
        let name_server = NameServer::start(addresses).await;
        let config = EgressConfig { nameservers: vec![name_server.address], ..config() };
        let outcome = egress(&config).send(request(&origin)).await.map(|reply| reply.status.as_u16());
        assert_eq!(outcome, expected, "{addresses:?}");
    }
}

#[tokio::test]
async fn names_without_addresses_are_unreachable() {
    let origin = origin("https://api.test/v1");
    assert_eq!(outcome(&origin, &[]).await, Err(Error::Unreachable(Unreached::UnknownName)));
}

#[test]
fn egress_is_built_without_a_runtime() {
    // Checking a configuration must work without a Tokio runtime.
    assert!(cofferdam_egress::Egress::new(EgressConfig::default()).is_ok());
}
