//! HTTP itself: methods, versions, and heads that are malformed or incomplete.

use super::{Vault, setup, with_intern};
use crate::kit::admin::Admin;
use crate::kit::client::{Client, http, read};
use crate::kit::host::Host;
use crate::kit::raw::{Raw, ask_raw};
use reqwest::Method;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;

#[tokio::test]
async fn a_client_without_a_key_gets_no_100_continue() {
    let host = setup().start();
    for key in ["", "Authorization: Bearer nonsense\r\n"] {
        let mut raw = Raw::connect(&host).await;
        let head = format!(
            "PUT /v1/vault/secrets/a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{key}Expect: 100-continue\r\n\
             Content-Type: application/json\r\nContent-Length: 100\r\n\r\n"
        );
        assert!(raw.send(head.as_bytes()).await);
        let (status, head, _) = raw.answer().await;
        assert_eq!(status, 401);
        assert!(!head.contains("100 continue"), "{head}");
    }
}

#[tokio::test]
async fn a_head_that_does_not_come_to_its_end_ends_the_connection() {
    let host = setup().start();
    let mut raw = Raw::connect(&host).await;
    assert!(raw.send(b"GET /v1/vault/secrets HTTP/1.1\r\nHost: x\r\nX-Slow: ").await);
    // Other connections are served meanwhile.
    let vault = Vault::of(&host);
    let (ended, answer) = tokio::join!(raw.ended(), vault.page(""));
    assert_eq!(answer.status, 200);
    assert!(ended.is_empty() || ended.starts_with("HTTP/1.1 408"), "{ended}");
}

/// Raises the limit of open files: this process holds a thousand connections.
fn make_room() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}

#[tokio::test]
async fn idle_connections_do_not_block_other_clients() {
    make_room();
    let host = setup().start();
    let mut idle = Vec::new();
    for _ in 0..1000 {
        idle.push(Raw::connect(&host).await);
    }
    assert_eq!(Vault::of(&host).page("").await.status, 200);
    drop(idle);
    let host = setup().config("[limits]\nconnections = 8").start();
    let mut idle = Vec::new();
    for _ in 0..8 {
        idle.push(Raw::connect(&host).await);
    }
    // A new connection waits until another is closed.
    Admin::new(&host).until_metric("cofferdam_connections", 8).await;
    let vault = Vault::of(&host);
    let leaving = async { drop(idle) };
    let (answer, ()) = tokio::join!(vault.page(""), leaving);
    assert_eq!(answer.status, 200);
}

async fn raw_status(host: &Host, request: &str) -> (u16, String) {
    let mut raw = Raw::connect(host).await;
    assert!(raw.send(request.replace("KEY", &host.key).as_bytes()).await);
    let (status, head, _) = raw.answer().await;
    (status, head)
}

#[tokio::test]
async fn heads_with_two_meanings_are_refused_and_the_connection_closed() {
    let host = setup().start();
    let put = "PUT /v1/vault/secrets/a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer KEY\r\n\
               Content-Type: application/json\r\n";
    let body = "{\"hosts\":[\"a.com\"],\"value\":\"x\"}";
    for headers in [
        "Content-Length: 30\r\nContent-Length: 31\r\n",
        "Content-Length: +30\r\n",
        "Content-Length: -30\r\n",
        "Content-Length : 30\r\n",
        "Content-Length: 30\r\nX-Fold: a\r\n b\r\n",
        "Content-Length: 30, 31\r\n",
        "Content-Length: 0x1e\r\n",
        "Host: y\r\nContent-Length: 30\r\n",
        "Transfer-Encoding: gzip\r\n",
        "X Space: 1\r\nContent-Length: 30\r\n",
    ] {
        let (status, _) = raw_status(&host, &format!("{put}{headers}\r\n{body}")).await;
        assert_eq!(status, 400, "{headers}");
    }
    let get = "GET /v1/vault/secrets HTTP/1.1\r\nAuthorization: Bearer KEY\r\nConnection: close\r\n";
    for hosts in ["", "Host: a\r\nHost: a\r\n", "Host: a\r\nhost: b\r\n", "Host: u@a\r\n"] {
        let mut raw = Raw::connect(&host).await;
        assert!(raw.send(format!("{get}{hosts}\r\n").replace("KEY", &host.key).as_bytes()).await);
        let (status, _, body) = raw.answer().await;
        assert_eq!(
            (status, body["error"]["message"].as_str()),
            (400, Some("Invalid vault request")),
            "{hosts}"
        );
    }
    // The host may use either length, but not both: the smuggled request must not be answered.
    let smuggled = "GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer KEY\r\n\r\n";
    let both = format!("{put}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}");
    let mut raw = Raw::connect(&host).await;
    assert!(raw.send(both.replace("KEY", &host.key).as_bytes()).await);
    let all = raw.ended().await;
    assert_eq!(all.matches("HTTP/1.1 ").count(), 1, "{all}");
    assert!(all.starts_with("HTTP/1.1 400"), "{all}");
    assert!(Vault::of(&host).list().await.is_empty());
    let (status, _) =
        raw_status(&host, &get.replace("\r\n", "\n").replace("close\n", "close\nHost: x\n\n")).await;
    assert!(matches!(status, 200 | 400), "bare line ends: {status}");
}

#[tokio::test]
async fn other_methods_are_refused_with_the_allowed_ones() {
    let (host, intern) = with_intern();
    let client = Client::new(&host);
    let of_intern = |rest: &str| format!("/vault/interns/{intern}/{rest}");
    let table = [
        ("/vault/secrets".to_owned(), "GET, HEAD"),
        ("/vault/secrets/a".to_owned(), "PUT, DELETE"),
        (of_intern("secrets"), "GET, HEAD"),
        (of_intern("secrets/a"), "PUT, DELETE"),
        (of_intern("secrets/copy"), "POST, PUT, DELETE"),
        (of_intern("effective-secrets"), "GET, HEAD"),
    ];
    let methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "get", "PURGE"]
        .map(|method| method.parse::<Method>().unwrap());
    for (path, allowed) in &table {
        let refused =
            methods.iter().filter(|method| !allowed.split(", ").any(|known| known == method.as_str()));
        for method in refused {
            let answer = read(client.request(method.clone(), path).send().await.unwrap()).await;
            assert_eq!(answer.status, 405, "{method} {path}");
            assert_eq!(answer.text.is_empty(), method == Method::HEAD, "{method} {path}");
            assert!(answer.text.is_empty() || answer.message() == "Method not allowed", "{}", answer.text);
            assert_eq!(answer.headers["allow"], *allowed, "{method} {path}");
            assert!(!answer.headers.keys().any(|name| name.as_str().starts_with("access-control")));
        }
    }
    for target in ["a.example:443", "/v1/vault/secrets"] {
        let (status, ..) = ask_raw(&host, "CONNECT", target, "", "").await;
        assert_eq!(status, 400, "{target}");
    }
}

#[tokio::test]
async fn the_head_of_a_list_has_no_body() {
    let (host, intern) = with_intern();
    Vault::of(&host).stored("a", &["a.com"], "x").await;
    let client = Client::new(&host);
    for path in [
        "/vault/secrets".to_owned(),
        format!("/vault/interns/{intern}/secrets"),
        format!("/vault/interns/{intern}/effective-secrets"),
    ] {
        let whole = client.get(&path).await;
        let head = read(client.request(Method::HEAD, &path).send().await.unwrap()).await;
        assert_eq!((head.status, head.text.as_str()), (200, ""), "{path}");
        assert_eq!(head.headers["content-length"], whole.text.len().to_string());
    }
}

#[tokio::test]
async fn every_version_of_http_is_answered_in_order() {
    let host = setup().start();
    Vault::of(&host).stored("a", &["a.com"], "x").await;
    let get = |path: &str, version: &str, headers: &str| {
        format!("GET {path} HTTP/{version}\r\nHost: x\r\nAuthorization: Bearer {}\r\n{headers}\r\n", host.key)
    };
    let mut raw = Raw::connect(&host).await;
    assert!(raw.send(get("/v1/vault/secrets", "1.0", "").replace("Host: x\r\n", "").as_bytes()).await);
    let (status, _, body) = raw.answer().await;
    assert_eq!((status, &body["data"][0]["name"]), (200, &Value::from("a")));
    // Three pipelined requests; the last one closes the connection.
    let requests = [
        get("/v1/vault/secrets", "1.1", ""),
        get("/v1/vault/secrets/a", "1.1", ""),
        get("/v1/nothing", "1.1", "Connection: close\r\n"),
    ];
    let mut raw = Raw::connect(&host).await;
    assert!(raw.send(requests.concat().as_bytes()).await);
    let all = raw.ended().await;
    let statuses: Vec<&str> = all.match_indices("HTTP/1.1 ").map(|(at, _)| &all[at + 9..at + 12]).collect();
    assert_eq!(statuses, ["200", "405", "404"], "{all}");
    // Sequential requests on one connection.
    let mut raw = Raw::connect(&host).await;
    for _ in 0..3 {
        assert!(raw.send(get("/v1/vault/secrets", "1.1", "").as_bytes()).await);
        assert!(raw.one_answer().await.starts_with("HTTP/1.1 200"));
    }
    let http = http().http2_prior_knowledge().build().unwrap();
    let request = http.get(format!("{}/vault/secrets", host.base)).bearer_auth(&host.key);
    let answer = request.send().await.unwrap();
    assert_eq!(answer.version(), reqwest::Version::HTTP_2);
    assert_eq!(read(answer).await.body["data"][0]["name"], "a");
    let put = http.put(format!("{}/vault/secrets/b", host.base)).bearer_auth(&host.key);
    let put = put.header("content-type", "application/json").body(super::secret(&["a.com"], "x"));
    assert_eq!(put.send().await.unwrap().status(), 200);
}
