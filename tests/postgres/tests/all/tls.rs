//! TLS: what a client that checks certificates accepts.

use crate::client::connect;
use cofferdam_test_postgres::{Certificate, Fault, Options, Place, Proxy, Rule, Server, installed};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::sync::Arc;
use tokio_postgres::Client;
use tokio_postgres_rustls::MakeRustlsConnect;

/// Connects to this name by TLS, checking the certificate against this root.
async fn connect_tls(server: &Server, name: &str, port: u16, root: &str) -> Result<Client, String> {
    connect_with("require", server, name, port, root).await
}

async fn connect_with(
    mode: &str,
    server: &Server,
    name: &str,
    port: u16,
    root: &str,
) -> Result<Client, String> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(root.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let url = server.url().replace(&format!("127.0.0.1:{}", server.port()), &format!("{name}:{port}"));
    let url = format!("{url}?sslmode={mode}");
    let connected = tokio_postgres::connect(&url, MakeRustlsConnect::new(config)).await;
    let (client, connection) = connected.map_err(|error| format!("{error:?}"))?;
    tokio::spawn(connection);
    Ok(client)
}

#[tokio::test]
async fn only_the_right_certificate_is_accepted() {
    if !installed() {
        return;
    }
    let right = Certificate::new(&["localhost"]).unwrap();
    let server = Options::new().tls(&right).start().unwrap();
    let port = server.port();
    let client = connect_tls(&server, "localhost", port, &right.root).await.unwrap();
    let sql = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    assert!(client.query_typed(sql, &[]).await.unwrap()[0].get::<_, bool>(0));
    let stranger = Certificate::new(&["localhost"]).unwrap();
    let error = connect_tls(&server, "localhost", port, &stranger.root).await.err().unwrap();
    assert!(error.contains("UnknownIssuer") || error.contains("BadSignature"), "{error}");
    let error = connect_tls(&server, "127.0.0.1", port, &right.root).await.err().unwrap();
    assert!(error.contains("NotValidForName"), "{error}");
    // Without TLS nobody comes in.
    assert!(connect(&server.url()).await.is_err());
    let expired = Certificate::expired(&["localhost"]).unwrap();
    let server = Options::new().tls(&expired).start().unwrap();
    let error = connect_tls(&server, "localhost", server.port(), &expired.root).await.err().unwrap();
    assert!(error.contains("Expired"), "{error}");
}

#[tokio::test]
async fn encrypted_connections_pass_a_proxy_as_bytes() {
    if !installed() {
        return;
    }
    let certificate = Certificate::new(&["localhost"]).unwrap();
    let server = Options::new().tls(&certificate).start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    proxy.add(Rule::new(Place::Commit, Fault::CutBefore));
    let client = connect_tls(&server, "localhost", proxy.port(), &certificate.root).await.unwrap();
    client.batch_execute("BEGIN; COMMIT").await.unwrap();
    let tally = proxy.total();
    assert_eq!((proxy.struck(), tally.flights), (0, 0));
    assert!(tally.bytes_to_server > 500 && tally.bytes_to_client > 500, "{tally:?}");
    proxy.cut();
    assert!(client.batch_execute("SELECT 1").await.is_err());
}

#[tokio::test]
async fn clients_that_would_rather_have_tls_pass_a_proxy_message_by_message_without_it() {
    if !installed() {
        return;
    }
    let server = Server::shared().unwrap();
    let root = Certificate::new(&["localhost"]).unwrap().root;
    assert!(connect_tls(server, "localhost", server.port(), &root).await.is_err());
    let proxy = Proxy::start(server.port()).unwrap();
    let client = connect_with("prefer", server, "localhost", proxy.port(), &root).await.unwrap();
    client.batch_execute("BEGIN; COMMIT").await.unwrap();
    assert_eq!((proxy.total().flights, proxy.total().commits), (1, 1));
}

#[tokio::test]
async fn a_pair_replicates_by_tls() {
    if !installed() {
        return;
    }
    let certificate = Certificate::new(&["localhost"]).unwrap();
    let pair = Options::new().tls(&certificate).without_sync().start_pair().unwrap();
    let sql = "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_replication USING (pid)";
    assert_eq!(pair.primary.query(sql).unwrap(), [[Some("t".to_owned())]]);
}
