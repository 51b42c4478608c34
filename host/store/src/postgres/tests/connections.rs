//! Which hosts are connected to, and how.

use std::net::TcpListener;
use std::time::Instant;

use cofferdam_test_postgres::{self as kit, Certificate, Options, Server};

use super::super::connect::{CONNECT_PATIENCE, Database, TlsError, config, open_any};
use super::super::failure::Failure;
use super::super::url::DatabaseUrl;
use super::{database, runtime};

/// An address of the server with other hosts before it.
fn url(database: &kit::Database, hosts: &str) -> String {
    let kit::Database { name, user, password, port } = database;
    format!("postgres://{user}:{password}@{hosts}127.0.0.1:{port}/{name}")
}

#[test]
fn a_host_that_refuses_or_is_silent_is_passed_over() {
    if !kit::installed() {
        return;
    }
    let address = Server::shared().unwrap().database("hosts").unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap();
    let (silent_port, gone_port) = (silent.local_addr().unwrap().port(), gone.local_addr().unwrap().port());
    drop(gone);
    let database = database(&url(&address, &format!("127.0.0.1:{gone_port},127.0.0.1:{silent_port},")));
    runtime().block_on(async {
        for _ in 0..2 {
            let session = database.connect().await.unwrap();
            assert_eq!(session.script("SELECT 1").await.unwrap(), [[Some("1".to_owned())]]);
        }
    });
    // Only the first connection asked the silent host.
    silent.set_nonblocking(true).unwrap();
    assert!(silent.accept().is_ok() && silent.accept().is_err());
}

#[test]
fn a_silent_address_of_a_host_leaves_time_for_its_other_addresses() {
    if !kit::installed() {
        return;
    }
    let address = Server::shared().unwrap().database("addresses").unwrap();
    // Takes connections at the port of the server, and says nothing.
    let silent = TcpListener::bind(("127.0.0.2", address.port)).unwrap();
    let url = DatabaseUrl::parse(&address.url()).unwrap();
    let config = config(&url, url.hosts.first().unwrap());
    let both = ["127.0.0.2", "127.0.0.1"].map(|address| Some(address.parse().unwrap()));
    runtime().block_on(async {
        let deadline = Instant::now() + CONNECT_PATIENCE;
        let session = open_any(&config, &both, None, deadline).await.unwrap();
        assert_eq!(session.script("SELECT 1").await.unwrap(), [[Some("1".to_owned())]]);
        // Each address that failed is named.
        let [first, _] = both;
        let failed = open_any(&config, &[first, first], None, Instant::now()).await.err().unwrap();
        assert_eq!(failed.len(), 2);
        assert!(failed.iter().all(|reason| reason.contains("127.0.0.2")), "{failed:?}");
    });
    silent.set_nonblocking(true).unwrap();
    assert!(silent.accept().is_ok());
}

#[test]
fn an_unreachable_database_is_described_without_its_password() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = gone.local_addr().unwrap().port();
    drop(gone);
    let database = database(&format!("postgres://u:secretword@127.0.0.1:{port}/d"));
    let failure = runtime().block_on(database.connect()).err().unwrap();
    let text = format!("{failure} {failure:?}");
    assert!(matches!(failure, Failure::Unreachable(_)) && text.contains(&port.to_string()), "{text}");
    assert!(!text.contains("secretword"), "{text}");
}

#[test]
fn a_host_that_takes_no_writes_is_passed_over() {
    if !kit::installed() {
        return;
    }
    let server = Server::shared().unwrap();
    let address = server.database("read_only").unwrap();
    server.query("ALTER DATABASE read_only SET default_transaction_read_only = on").unwrap();
    let failure = runtime().block_on(database(&address.url()).connect()).err().unwrap();
    assert!(matches!(failure, Failure::Unreachable(_)), "{failure}");
}

#[test]
fn certificates_and_names_of_servers_are_verified() {
    if !kit::installed() {
        return;
    }
    let (good, other, expired) = (
        Certificate::new(&["127.0.0.1"]).unwrap(),
        Certificate::new(&["db.example"]).unwrap(),
        Certificate::expired(&["127.0.0.1"]).unwrap(),
    );
    let connects = |certificate: &Certificate, root: &str| {
        let server = Options::new().tls(certificate).start().unwrap();
        let address = server.database("tls").unwrap();
        let url = DatabaseUrl::parse(&format!("{}?sslmode=verify-full", address.url())).unwrap();
        let database = Database::new(&url, &[root.as_bytes().to_vec()]).unwrap();
        let sql = "SELECT ssl::text FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        runtime().block_on(async {
            match database.connect().await {
                Ok(session) => Ok(session.script(sql).await.unwrap()),
                Err(failure) => Err(failure.to_string()),
            }
        })
    };
    assert_eq!(connects(&good, &good.root), Ok(vec![vec![Some("true".to_owned())]]));
    for (certificate, root) in [(&good, &other.root), (&other, &other.root), (&expired, &expired.root)] {
        let refused = connects(certificate, root).unwrap_err();
        assert!(refused.contains("certificate"), "{refused}");
    }
}

#[test]
fn files_that_have_no_root_certificates_are_refused() {
    let url = DatabaseUrl::parse("postgres://u@db.example/d").unwrap();
    let refused = Database::new(&url, &[b"no certificate".to_vec()]);
    assert!(matches!(refused.err(), Some(TlsError::Root(1))));
}
