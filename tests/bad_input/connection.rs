//! Invalid HTTP: lengths, speeds and heads.

use super::{CANARY, end};
use crate::kit::client::{self, Client, http};
use crate::kit::host::Setup;
use crate::kit::raw::{Raw, post_head};
use reqwest::header::{HeaderName, HeaderValue};
use serde_json::json;
use std::sync::atomic::Ordering;

#[tokio::test]
async fn a_body_that_is_declared_too_long_is_not_read() {
    let host = Setup::new().start();
    let mut raw = Raw::connect(&host).await;
    let head = post_head(&host, "/responses", "Content-Length: 52428800\r\n\r\n");
    assert!(raw.send(head.as_bytes()).await);
    let answer = tokio::time::timeout(std::time::Duration::from_secs(20), raw.answer()).await;
    let (status, head, body) = answer.expect("the refusal waits for a body that does not come");
    assert_eq!((status, &body["error"]["code"]), (413, &json!(413)), "{head}");
    assert_eq!(body["error"]["message"], "Request payload too large");
}

/// Common clients of HTTP/2, such as those of curl and Python, lose an answer whose stream ends while they send.
#[tokio::test]
async fn over_http_2_a_refusal_comes_after_the_body_of_its_request() {
    let host = Setup::new().start();
    let client = http().http2_prior_knowledge().build().unwrap();
    for (path, key, status) in [("/responses", "wrong", 401), ("/nothing", host.key.as_str(), 404)] {
        let (body, taken) = client::counted_body(64);
        let request = client.post(format!("{}{path}", host.base)).bearer_auth(key);
        let request = request.header("content-type", "application/json");
        let answer = client::read(request.body(body).send().await.unwrap()).await;
        assert_eq!(answer.status, status, "{}", answer.text);
        assert_eq!(taken.load(Ordering::Relaxed), 64, "{path}: the rest is not read");
    }
}

#[tokio::test]
async fn a_client_that_sends_a_long_body_all_the_same_reads_the_refusal() {
    let host = Setup::new().environment("COFFERDAM_LOG", "trace").start();
    let client = Client::new(&host);
    let body = CANARY.repeat(50_000_000 / CANARY.len()).into_bytes();
    for path in ["/responses", "/embeddings"] {
        let answer = client.post_bytes(path, body.clone()).await;
        assert_eq!(answer.status, 413, "{}", answer.text);
    }
    end(host);
}

#[tokio::test]
async fn a_client_without_a_key_reads_the_refusal_after_a_long_body() {
    let host = Setup::new().start();
    let body = vec![b' '; 8 << 20];
    for (key, path, status) in [("nonsense", "/responses", 401), (host.key.as_str(), "/nothing", 404)] {
        let answer = Client::with_key(&host, key).post_bytes(path, body.clone()).await;
        assert_eq!(answer.status, status, "{}", answer.text);
    }
}

#[tokio::test]
async fn a_body_of_unknown_length_is_cut_off_at_the_limit() {
    let host = Setup::new().start();
    let mut raw = Raw::connect(&host).await;
    let head = post_head(&host, "/responses", "Transfer-Encoding: chunked\r\n\r\n");
    assert!(raw.send(head.as_bytes()).await);
    let piece = format!("100000\r\n{}\r\n", " ".repeat(1 << 20));
    for _ in 0..40 {
        if !raw.send(piece.as_bytes()).await {
            break;
        }
    }
    let (status, _, body) = raw.answer().await;
    assert_eq!((status, &body["error"]["metadata"]["error_type"]), (413, &json!("payload_too_large")));
}

#[tokio::test]
async fn a_body_that_stops_arriving_times_out() {
    let host = Setup::new().config("[timeouts]\nbody_idle_ms = 300\n").start();
    let mut raw = Raw::connect(&host).await;
    let head = post_head(&host, "/responses", "Content-Length: 100\r\n\r\n{\"model\":");
    assert!(raw.send(head.as_bytes()).await);
    // The limit for the whole body is much longer.
    let answer = tokio::time::timeout(std::time::Duration::from_secs(20), raw.answer()).await;
    let (status, _, body) = answer.expect("the refusal waits for a client that has stopped");
    assert_eq!((status, &body["error"]["message"]), (408, &json!("Request body timed out")));
}

#[tokio::test]
async fn a_body_in_endless_small_pieces_times_out() {
    let host = Setup::new().config("[timeouts]\nbody_idle_ms = 5000\nbody_total_ms = 500\n").start();
    let mut raw = Raw::connect(&host).await;
    let head = post_head(&host, "/responses", "Transfer-Encoding: chunked\r\n\r\n");
    assert!(raw.send(head.as_bytes()).await);
    let (mut reader, mut writer) = raw.split();
    let pieces = async {
        let mut beats = tokio::time::interval(std::time::Duration::from_millis(50));
        while writer.send(b"1\r\n \r\n").await {
            beats.tick().await;
        }
    };
    let (status, ()) = tokio::join!(reader.status(), pieces);
    assert_eq!(status, 408);
}

#[tokio::test]
async fn heads_that_are_too_long_are_refused_with_an_envelope() {
    let host = Setup::new().start();
    let client = Client::new(&host);
    let body = json!({"model": "local/demo", "input": "x"});
    let long = "h".repeat(40_000);
    let answer = client.post_with("/responses", &body, &[("x-long", &long)]).await;
    assert_eq!(answer.status, 431, "{}", answer.text);
    assert_eq!(answer.message(), "Request headers too large");
    let longer = "h".repeat(300_000);
    let mut raw = Raw::connect(&host).await;
    let head = post_head(&host, "/responses", &format!("X-Long: {longer}\r\n\r\n"));
    raw.send(head.as_bytes()).await;
    let (status, ..) = raw.answer().await;
    assert_eq!(status, 431);
    let path = format!("/models/{}", "p".repeat(9000));
    let answer = client.get(&path).await;
    assert_eq!(answer.status, 414, "{}", answer.text);
}

#[tokio::test]
async fn more_than_96_headers_are_refused_over_either_version_of_http() {
    let host = Setup::new().start();
    let header =
        |number: u32| (HeaderName::try_from(format!("x-h{number}")).unwrap(), HeaderValue::from_static("1"));
    for version in [http().http1_only(), http().http2_prior_knowledge()] {
        let client = version.build().unwrap();
        // The requests have some headers beside these.
        for (count, status) in [(90, 200), (95, 431)] {
            let headers = (0..count).map(header);
            let request = client.get(format!("{}/models", host.base)).bearer_auth(&host.key);
            let answer = client::read(request.headers(headers.collect()).send().await.unwrap()).await;
            assert_eq!(answer.status, status, "{count} headers: {}", answer.text);
            assert!(status == 200 || answer.message() == "Request headers too large");
        }
    }
    // The HTTP library refuses more than 100 over HTTP/1 itself, without a document.
    let mut raw = Raw::connect(&host).await;
    let lines: String = (0..101).map(|number| format!("x-h{number}: 1\r\n")).collect();
    raw.send(format!("GET /v1/models HTTP/1.1\r\nHost: x\r\n{lines}\r\n").as_bytes()).await;
    let (status, ..) = raw.answer().await;
    assert_eq!(status, 431);
}

#[tokio::test]
async fn nothing_is_read_of_a_body_without_a_key() {
    let host = Setup::new().start();
    let mut raw = Raw::connect(&host).await;
    let head = "POST /v1/responses HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n";
    assert!(raw.send(head.as_bytes()).await);
    let (status, head, _) = raw.answer().await;
    assert_eq!(status, 401);
    assert!(!head.contains("100 continue"), "{head}");
}

#[tokio::test]
async fn an_incomplete_body_harms_no_other_request() {
    let host = Setup::new().start();
    let mut raw = Raw::connect(&host).await;
    let head = post_head(&host, "/responses", "Content-Length: 100\r\n\r\n{\"model\":");
    assert!(raw.send(head.as_bytes()).await);
    drop(raw);
    let request = json!({"model": "local/demo", "input": "good morning"});
    assert_eq!(Client::new(&host).post("/responses", &request).await.status, 200);
}
