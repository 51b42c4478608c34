//! Request bodies: JSON objects with a declared type, limited in length and time.

use super::{INVALID, Vault, assert_refused, secret, setup, with_intern};
use crate::kit::client::read;
use crate::kit::raw::Raw;
use reqwest::Method;

const TOO_LARGE: (u16, &str) = (413, "Request payload too large");

#[tokio::test]
async fn only_one_json_object_with_each_member_once_is_read() {
    let (host, intern) = with_intern();
    let vault = Vault::of(&host);
    let own = Vault::of_intern(&host, &host.key, &intern);
    let good = "\"hosts\":[\"a.com\"],\"value\":\"x\",\"names\":[\"a\"]";
    vault.stored("a", &["a.com"], "x").await;
    assert_eq!(vault.put_body("a", format!(" {{{good}}}\r\n")).await.status, 200);
    assert_eq!(own.copy_body(format!(" {{{good}}}\r\n")).await.status, 200);
    for body in [
        String::new(),
        " ".to_owned(),
        "null".to_owned(),
        "\"x\"".to_owned(),
        "[[\"a.com\"],\"x\"]".to_owned(),
        "[[\"a\"]]".to_owned(),
        format!("{{{good},}}"),
        format!("{{{good}}}x"),
        format!("{{{good}}}{{}}"),
        format!("{{{good}"),
        format!("\u{feff}{{{good}}}"),
        format!("{{{good}/* */}}"),
        format!("{{{good},\"x\":NaN}}"),
        format!("{{{good},'x':1}}"),
        format!("{{{good},\"value\":\"x\",\"names\":[\"b\"]}}"),
        format!("{{{good},\"hosts\":[\"a.com\"],\"n\\u0061mes\":[\"a\"]}}"),
    ] {
        assert_refused(&vault.put_body("a", body.clone()).await, INVALID, &body);
        assert_refused(&own.copy_body(body.clone()).await, INVALID, &body);
    }
}

#[tokio::test]
async fn unknown_members_are_ignored_however_deep_and_never_logged() {
    let host = setup().environment("COFFERDAM_LOG", "trace").start();
    let vault = Vault::of(&host);
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let body = |hosts: &str, more: &str| {
        format!("{{\"hosts\":{hosts},\"value\":\"canary-5e1d0c\",\"canary-5e1d0d\":{more}}}")
    };
    for more in ["{\"value\":\"canary-5e1d0e\"}", &nested(100_000), &nested(400_000)] {
        let answer = vault.put_body("a", body("[\"a.com\"]", more)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert!(!answer.text.contains("canary"), "{}", answer.text);
    }
    for depth in [129, 100_000] {
        assert_refused(&vault.put_body("a", body(&nested(depth), "1")).await, INVALID, "deep");
        let value = format!("{{\"hosts\":[\"a.com\"],\"value\":{}}}", nested(depth));
        assert_refused(&vault.put_body("a", value).await, INVALID, "deep");
    }
    let mut host = host;
    let log = host.end();
    assert!(log.contains("\"request\""), "{log}");
    assert!(!log.contains("canary-5e1d0"), "{log}");
    assert!(host.files_with("canary-5e1d0").is_empty());
}

#[tokio::test]
async fn bodies_must_say_that_they_are_plain_json() {
    let (host, intern) = with_intern();
    let vault = Vault::of(&host);
    vault.stored("a", &["a.com"], "x").await;
    let table: [(&[(&'static str, &str)], bool); 12] = [
        (&[], false),
        (&[("content-type", "text/plain")], false),
        (&[("content-type", "application/x-www-form-urlencoded")], false),
        (&[("content-type", "application/json; charset=utf-8")], true),
        (&[("content-type", "Application/JSON;Charset=\"UTF-8\"")], true),
        (&[("content-type", "application/json; charset=latin1")], false),
        (&[("content-type", "application/json"), ("content-type", "application/json")], false),
        (&[("content-type", "application/json"), ("content-encoding", "gzip")], false),
        (&[("content-type", "application/json"), ("content-encoding", "br")], false),
        (&[("content-type", "application/json"), ("content-encoding", "identity")], true),
        (&[("content-type", "")], false),
        (&[("content-type", "application/json")], true),
    ];
    let copy = format!("/vault/interns/{intern}/secrets/copy");
    for (headers, accepted) in table {
        let requests = [
            (Method::PUT, "/vault/secrets/a", secret(&["a.com"], "x")),
            (Method::POST, &copy, b"{\"names\":[\"a\"]}".to_vec()),
        ];
        for (method, path, body) in requests {
            let request = vault.client.request(method, path).body(body);
            let request =
                headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
            let answer = read(request.send().await.unwrap()).await;
            assert_eq!(answer.status == 200, accepted, "{path} {headers:?}: {}", answer.text);
            assert!(matches!(answer.status, 200 | 400), "{path} {headers:?}: {}", answer.text);
        }
    }
}

#[tokio::test]
async fn longer_bodies_are_refused() {
    let (host, intern) = with_intern();
    let vault = Vault::of(&host);
    let own = Vault::of_intern(&host, &host.key, &intern);
    vault.stored("a", &["a.com"], "x").await;
    let padded = |body: &str, bytes: usize| format!("{body}{}", " ".repeat(bytes - body.len()));
    let put = "{\"hosts\":[\"a.com\"],\"value\":\"x\"}";
    assert_eq!(vault.put_body("a", padded(put, 1 << 20)).await.status, 200);
    assert_refused(&vault.put_body("a", padded(put, (1 << 20) + 1)).await, TOO_LARGE, "put");
    assert_refused(&own.put_body("a", padded(put, (1 << 20) + 1)).await, TOO_LARGE, "put");
    let copy = "{\"names\":[\"a\"]}";
    assert_eq!(own.copy_body(padded(copy, 1 << 18)).await.status, 200);
    assert_refused(&own.copy_body(padded(copy, (1 << 18) + 1)).await, TOO_LARGE, "copy");
}

fn head(host: &crate::kit::host::Host, method: &str, headers: &str) -> String {
    format!(
        "{method} /v1/vault/secrets/a HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\n{headers}\r\n",
        host.key
    )
}

#[tokio::test]
async fn a_body_that_is_declared_too_long_is_not_waited_for() {
    let host = setup().start();
    let mut raw = Raw::connect(&host).await;
    assert!(raw.send(head(&host, "PUT", "Content-Length: 1048577\r\n").as_bytes()).await);
    let (status, _, body) = raw.answer().await;
    assert_eq!((status, body["error"]["message"].as_str()), (413, Some(TOO_LARGE.1)));
}

#[tokio::test]
async fn a_body_of_unknown_length_is_cut_off_at_the_limit_and_the_connection_closed() {
    let host = setup().start();
    let mut raw = Raw::connect(&host).await;
    assert!(raw.send(head(&host, "PUT", "Transfer-Encoding: chunked\r\n").as_bytes()).await);
    let piece = format!("40000\r\n{}\r\n", " ".repeat(1 << 18));
    for _ in 0..5 {
        assert!(raw.send(piece.as_bytes()).await);
    }
    raw.send(b"0\r\n\r\n").await;
    // Reads to the end of the connection. The client did not ask to close it, so the host must.
    let (status, head, body) = raw.answer().await;
    assert_eq!((status, body["error"]["message"].as_str()), (413, Some(TOO_LARGE.1)));
    assert!(head.contains("connection: close"), "{head}");
}

#[tokio::test]
async fn a_body_that_stops_arriving_times_out() {
    let host = setup().config("[timeouts]\nbody_idle_ms = 300\n").start();
    for (method, sent) in [
        ("PUT", "Content-Length: 100\r\n\r\n{\"hosts\":"),
        ("PUT", "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"hos"),
        ("DELETE", "Transfer-Encoding: chunked\r\n\r\n"),
    ] {
        let mut raw = Raw::connect(&host).await;
        let head = head(&host, method, "");
        let sent = format!("{}{sent}", head.strip_suffix("\r\n").unwrap());
        assert!(raw.send(sent.as_bytes()).await);
        let (status, _, body) = raw.answer().await;
        assert_eq!(
            (status, body["error"]["message"].as_str()),
            (408, Some("Request body timed out")),
            "{sent}"
        );
    }
}

#[tokio::test]
async fn deleting_takes_no_body() {
    let host = setup().start();
    let vault = Vault::of(&host);
    vault.stored("a", &["a.com"], "x").await;
    for body in ["{}", "{\"name\":\"a\"}", "junk", " "] {
        let answer = vault.ask(Method::DELETE, "/secrets/a", Some(body.into())).await;
        assert_refused(&answer, INVALID, body);
    }
    let mut raw = Raw::connect(&host).await;
    let chunked = format!(
        "{}1\r\nx\r\n0\r\n\r\n",
        head(&host, "DELETE", "Connection: close\r\nTransfer-Encoding: chunked\r\n")
    );
    assert!(raw.send(chunked.as_bytes()).await);
    assert_eq!(raw.answer().await.0, 400);
    assert_eq!(vault.names().await, ["a"]);
    let mut raw = Raw::connect(&host).await;
    let empty =
        format!("{}0\r\n\r\n", head(&host, "DELETE", "Connection: close\r\nTransfer-Encoding: chunked\r\n"));
    assert!(raw.send(empty.as_bytes()).await);
    assert_eq!(raw.answer().await.0, 204);
}
