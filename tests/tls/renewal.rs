//! Certificates that change while the host runs.

use super::address;
use crate::kit::client::{Client, http_to};
use crate::kit::host::{Host, Setup, write_certificate};
use crate::kit::site::{Authority, Issued};
use crate::kit::upstream::{Reply, Upstream, sse_event};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

const TAKEN: &str = "new connections get the new certificate";
const REFUSED: &str = "the new certificate is not used, the old one stays";
const NAMES: &[&str] = &["127.0.0.1"];

fn model(base: &str) -> String {
    format!(
        "[[providers]]\nname = \"calm\"\nadapter = \"openai-chat\"\nbase_url = \"{base}\"\n[[models]]\nid = \"calm/m\"\n\
         endpoints = [{{ provider = \"calm\", model = \"m\" }}]\n"
    )
}

/// The certificate that a new connection gets.
async fn served(host: &Host) -> CertificateDer<'static> {
    let mut roots = rustls::RootCertStore::empty();
    let root = host.root.as_ref().unwrap().as_bytes();
    roots.add(CertificateDer::from_pem_slice(root).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
    let socket = TcpStream::connect(address(host)).await.unwrap();
    let name = "127.0.0.1".try_into().unwrap();
    let stream = TlsConnector::from(config).connect(name, socket).await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}

fn der(issued: &Issued) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap()
}

/// A host with the first of two certificates of one authority.
fn with_two() -> (Host, Issued, Issued) {
    let authority = Authority::new();
    let (old, new) = (authority.issue(NAMES), authority.issue(NAMES));
    (Setup::new().tls(&old).start(), old, new)
}

#[tokio::test]
async fn a_certificate_is_replaced_under_a_hundred_streams_and_none_is_lost() {
    let upstream = Upstream::start().await;
    let authority = Authority::new();
    let (old, new) = (authority.issue(NAMES), authority.issue(NAMES));
    let host = Setup::new().config(&model(&upstream.base)).tls(&old).start();
    let chunk = |text: &str| sse_event(&json!({"choices": [{"index": 0, "delta": {"content": text}}]}));
    // Half of the streams share a connection of HTTP/2, the others have one each.
    let shared = http_to(&host).build().unwrap();
    let (mut feeds, mut streams) = (Vec::new(), Vec::new());
    for number in 0..100 {
        let (feed, reply) = Reply::fed();
        upstream.reply(reply);
        feed.send(chunk("first ")).await.unwrap();
        feeds.push(feed);
        let http =
            if number % 2 == 0 { shared.clone() } else { http_to(&host).http1_only().build().unwrap() };
        let body = json!({"model": "calm/m", "input": "go", "stream": true}).to_string();
        let request = http.post(format!("{}/responses", host.base)).bearer_auth(&host.key).body(body);
        let mut response = request.send().await.unwrap();
        let mut text = String::new();
        while !text.contains("first ") {
            text.push_str(std::str::from_utf8(&response.chunk().await.unwrap().unwrap()).unwrap());
        }
        streams.push((response, text));
    }
    assert_eq!(served(&host).await, der(&old));
    write_certificate(host.directory(), &new);
    host.until_logged(TAKEN);
    assert_eq!(served(&host).await, der(&new));
    for feed in feeds {
        feed.send(chunk("last")).await.unwrap();
        let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
        feed.send(sse_event(&end)).await.unwrap();
        feed.send(sse_event(&json!("[DONE]"))).await.unwrap();
    }
    for (mut response, mut text) in streams {
        while let Some(bytes) = response.chunk().await.unwrap() {
            text.push_str(std::str::from_utf8(&bytes).unwrap());
        }
        assert!(
            text.contains("event: response.completed") && text.trim_end().ends_with("data: [DONE]"),
            "{text}"
        );
    }
    assert!(!host.log().contains(REFUSED));
}

#[tokio::test]
async fn a_reload_takes_a_new_certificate_at_once() {
    let (host, _, new) = with_two();
    crate::kit::admin::Admin::new(&host).until_ready().await;
    write_certificate(host.directory(), &new);
    host.signal("HUP");
    host.until_logged("configuration and plugins were read again");
    assert_eq!(served(&host).await, der(&new));
}

#[tokio::test]
async fn a_pair_that_cannot_be_served_is_reported_and_the_old_one_stays() {
    let (host, old, new) = with_two();
    crate::kit::admin::Admin::new(&host).until_ready().await;
    let mixed = Issued { key: old.key.clone(), ..new.clone() };
    write_certificate(host.directory(), &mixed);
    host.until_logged(REFUSED);
    assert!(host.log().contains("is not the key of the first certificate"), "{}", host.log());
    host.signal("HUP");
    host.until_logged("the new configuration is not used, the old one stays");
    assert_eq!(served(&host).await, der(&old));
    write_certificate(host.directory(), &new);
    host.until_logged(TAKEN);
    assert_eq!(served(&host).await, der(&new));
}

#[tokio::test]
async fn an_expired_certificate_replaces_none_but_a_host_starts_with_it() {
    let authority = Authority::new();
    let expire = |params: &mut rcgen::CertificateParams| params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    let (old, expired) = (authority.issue(NAMES), authority.issue_with(NAMES, expire));
    let mut host = Setup::new().tls(&old).start();
    write_certificate(host.directory(), &expired);
    host.until_logged(REFUSED);
    assert!(host.log().contains("it expired at 2002-01-01"), "{}", host.log());
    assert_eq!(served(&host).await, der(&old));
    host.end();
    let host = Setup::after(&host).start();
    host.until_logged("clients refuse this certificate");
    write_certificate(host.directory(), &old);
    host.until_logged(TAKEN);
    assert_eq!(Client::new(&host).get("/models").await.status, 200);
}

#[tokio::test]
async fn a_configuration_is_read_again_under_a_certificate_that_has_expired() {
    let expire = |params: &mut rcgen::CertificateParams| params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    let expired = Authority::new().issue_with(NAMES, expire);
    let host = Setup::new().tls(&expired).start();
    host.until_logged("clients refuse this certificate");
    host.signal("HUP");
    host.until_logged("configuration and plugins were read again");
}
