//! `[server.tls]`: both listeners with TLS, what clients without it get, and handshakes that do not end.

mod mistakes;
mod renewal;

use crate::kit::admin::Admin;
use crate::kit::client::{Client, http_to};
use crate::kit::host::{Host, Setup, program};
use crate::kit::site::{Authority, Issued, ends_in};
use http::Version;
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long the host may take to close a connection.
const PATIENCE: Duration = Duration::from_secs(60);
/// The begin of a record that promises more of a handshake than it has.
const HALF_A_HANDSHAKE: &[u8] = &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
/// A ClientHello of TLS 1.1, with a cipher that TLS 1.2 has too.
const HELLO_OF_TLS_1_1: &[u8] = &[
    0x16, 3, 1, 0, 55, 1, 0, 0, 51, 3, 2, // Its random bytes.
    7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    // No session, one cipher, no compression, and the extension signature_algorithms.
    0, 0, 2, 0xc0, 0x2f, 1, 0, 0, 8, 0, 13, 0, 4, 0, 2, 4, 3,
];

fn certificate() -> Issued {
    Authority::new().issue(&["127.0.0.1", "localhost"])
}

fn with_tls() -> Host {
    Setup::new().tls(&certificate()).start()
}

/// The address of the listener for clients.
fn address(host: &Host) -> &str {
    host.banner["listen"].as_str().unwrap()
}

/// What a command prints for people.
fn text_of(host: &Host, command: &str) -> String {
    let output = program().arg("--data").arg(host.data()).arg(command).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

async fn connect(host: &Host) -> TcpStream {
    TcpStream::connect(address(host)).await.unwrap()
}

/// What the host sends until it closes the connection.
async fn until_closed(mut socket: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // The host may reset the connection.
    let read = tokio::time::timeout(PATIENCE, socket.read_to_end(&mut bytes)).await;
    assert!(read.is_ok(), "the host does not close the connection");
    bytes
}

async fn get(client: reqwest::ClientBuilder, host: &Host, url: &str) -> reqwest::Response {
    client.build().unwrap().get(url).bearer_auth(&host.key).send().await.unwrap()
}

#[tokio::test]
async fn both_listeners_speak_http_2_and_http_1_1() {
    let host = with_tls();
    assert!(host.base.starts_with("https://") && host.admin.starts_with("https://"));
    Admin::new(&host).until_ready().await;
    let models = format!("{}/models", host.base);
    for url in [models, format!("{}/readyz", host.admin)] {
        for version in [reqwest::tls::Version::TLS_1_2, reqwest::tls::Version::TLS_1_3] {
            let client = || http_to(&host).tls_version_min(version).tls_version_max(version);
            let (new, old) =
                (get(client(), &host, &url).await, get(client().http1_only(), &host, &url).await);
            assert_eq!((new.status(), new.version()), (http::StatusCode::OK, Version::HTTP_2));
            assert_eq!((old.status(), old.version()), (http::StatusCode::OK, Version::HTTP_11));
        }
    }
}

#[tokio::test]
async fn descriptions_of_both_apis_are_served_over_tls() {
    let (host, plain) = (with_tls(), Setup::new().start());
    let urls =
        |host: &Host| [host.base.replace("/v1", "/openapi.json"), format!("{}/openapi.json", host.admin)];
    for (url, plain_url) in urls(&host).into_iter().zip(urls(&plain)) {
        let expected = get(http_to(&plain), &plain, &plain_url).await.text().await.unwrap();
        for client in [http_to(&host), http_to(&host).http1_only()] {
            let answer = get(client, &host, &url).await;
            assert_eq!(
                (answer.status().as_u16(), &answer.headers()["content-type"]),
                (200, &"application/json".parse().unwrap())
            );
            let text = answer.text().await.unwrap();
            // Clients take the address that the document came from.
            assert!(
                text == expected && text.contains("\"paths\"") && !text.contains("\"servers\""),
                "{url}: {text}"
            );
        }
    }
}

#[tokio::test]
async fn everything_that_names_the_host_says_https() {
    let mut host = with_tls();
    let listen = address(&host).to_owned();
    let curl = host.banner["curl"].as_str().unwrap();
    assert!(curl.contains(&format!("https://{listen}/v1/responses")), "{curl}");
    let trusted = curl.replacen("curl ", "curl --cacert root.pem ", 1);
    std::fs::write(host.directory().join("root.pem"), host.root.as_ref().unwrap()).unwrap();
    let output =
        std::process::Command::new("sh").args(["-c", &trusted]).current_dir(host.directory()).output();
    let stream = String::from_utf8(output.unwrap().stdout).unwrap();
    assert!(stream.trim_end().ends_with("data: [DONE]"), "{stream}");
    assert_eq!(host.command(&["status"])["serving"]["tls"], true);
    let status = text_of(&host, "status");
    assert!(status.contains(&format!("https://{listen}\n")) && !status.contains("http://"), "{status}");
    host.end();
}

#[tokio::test]
async fn the_printed_command_reaches_a_host_whose_own_certificate_names_no_address() {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(["cofferdam.test".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap().pem();
    let issued = Issued { root: certificate.clone(), certificate, key: key.serialize_pem() };
    let host = Setup::new().tls(&issued).start();
    let curl = host.banner["curl"].as_str().unwrap();
    assert!(curl.contains("--cacert") && curl.contains("https://cofferdam.test:"), "{curl}");
    let output = std::process::Command::new("sh").args(["-c", curl]).output().unwrap();
    let stream = String::from_utf8(output.stdout).unwrap();
    assert!(
        stream.trim_end().ends_with("data: [DONE]"),
        "{stream}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[tokio::test]
async fn the_metric_counts_down_to_the_end_of_the_certificate() {
    let issued = Authority::new().issue_with(&["127.0.0.1"], ends_in(2));
    let host = Setup::new().tls(&issued).start();
    let admin = Admin::new(&host);
    for listener in ["api", "admin"] {
        let sample = format!("cofferdam_certificate_expiry_seconds{{listener=\"{listener}\"}}");
        let left = admin.metric(&sample).await;
        assert!((80_000..=172_800).contains(&left), "{left}");
    }
}

#[tokio::test]
async fn plain_http_is_told_to_use_https() {
    let host = with_tls();
    let url = format!("http://{}/v1/models", address(&host));
    let answer = crate::kit::client::http().build().unwrap().get(url).send().await.unwrap();
    assert_eq!(answer.status(), 400);
    assert_eq!(answer.text().await.unwrap(), "This port speaks TLS: use https:// in place of http:// .\r\n");
}

#[tokio::test]
async fn tls_1_1_is_refused() {
    let host = with_tls();
    let mut socket = connect(&host).await;
    socket.write_all(HELLO_OF_TLS_1_1).await.unwrap();
    let answer = until_closed(socket).await;
    // A fatal alert, `protocol_version`.
    assert_eq!((answer[0], &answer[5..7]), (0x15, &[2, 70][..]), "{answer:?}");
}

#[tokio::test]
async fn clients_that_do_not_end_their_handshake_are_cut_off_and_others_are_served() {
    let host = with_tls();
    let silent = connect(&host).await;
    let mut half = connect(&host).await;
    half.write_all(HALF_A_HANDSHAKE).await.unwrap();
    let answer = Client::new(&host).get("/models").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let (silent, half) = tokio::join!(until_closed(silent), until_closed(half));
    assert!(silent.is_empty() && half.is_empty());
}

#[tokio::test]
async fn a_handshake_holds_a_place_of_the_limit_of_connections() {
    let host = Setup::new().config("[limits]\nconnections = 1").tls(&certificate()).start();
    let silent = connect(&host).await;
    let client = Client::new(&host);
    let waiting = tokio::spawn(async move { client.get("/models").await.status });
    // The second connection is not accepted before the first has ended.
    Admin::new(&host).until_ready().await;
    assert!(!waiting.is_finished());
    drop(silent);
    assert_eq!(waiting.await.unwrap(), 200);
}

#[tokio::test]
async fn a_stop_does_not_wait_for_handshakes() {
    let mut host = Setup::new().config("[timeouts]\ndrain_ms = 3600000").tls(&certificate()).start();
    let admin = Admin::new(&host);
    admin.until_ready().await;
    let silent = connect(&host).await;
    admin.until_metric("cofferdam_connections", 1).await;
    host.signal("TERM");
    assert!(until_closed(silent).await.is_empty());
    assert_eq!(host.wait().code(), Some(0), "{}", host.log());
}

#[tokio::test]
async fn a_request_body_and_an_error_travel_over_tls_as_without() {
    let host = with_tls();
    let client = Client::new(&host);
    let answer =
        client.post("/responses", &json!({"model": "local/demo", "input": "x".repeat(1_000_000)})).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(client.get("/nowhere").await.status, 404);
}
