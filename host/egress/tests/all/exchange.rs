//! One provider request and its answer, without faults.

use bytes::Bytes;
use cofferdam_egress::{Error, Outgoing, Reason};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use http_body_util::Full;
use hyper::{Request, Response};

use crate::kit::{self, Server, config, egress, ok, origin, origin_with_credential, request};

#[tokio::test]
async fn request_arrives_as_given() {
    let mut server = Server::start(ok).await;
    let origin = origin(&server.url());
    let version = (HeaderName::from_static("x-version"), HeaderValue::from_static("7"));
    let outgoing = Outgoing {
        path: "chat/completions?a=b",
        headers: vec![version],
        body: Bytes::from_static(b"{\"model\":\"m\"}"),
        streamed: true,
        ..request(&origin)
    };
    let reply = egress(&config()).send(outgoing).await.unwrap();
    assert_eq!(reply.status, StatusCode::OK);
    assert_eq!(reply.headers["content-length"], "4");
    assert_eq!(reply.body.collect(4).await.unwrap(), "fine");

    let seen = server.seen().await;
    assert_eq!(seen.method(), Method::POST);
    assert_eq!(seen.uri(), "/v1/chat/completions?a=b");
    assert_eq!(seen.headers()["host"], server.address.to_string());
    assert_eq!(seen.headers()["x-version"], "7");
    assert_eq!(seen.headers()["content-type"], "application/json");
    assert_eq!(seen.headers()["accept"], "text/event-stream");
    assert_eq!(seen.headers()["accept-encoding"], "identity");
    assert_eq!(seen.headers()["content-length"], "13");
    assert!(seen.headers().get("authorization").is_none());
    assert!(seen.headers().get("referer").is_none());
    assert_eq!(seen.body(), "{\"model\":\"m\"}");
}

#[tokio::test]
async fn credential_arrives_at_loopback() {
    let mut server = Server::start(ok).await;
    let origin = origin_with_credential(&server.url());
    let credential = kit::credential();
    let egress = egress(&config());
    egress.send(Outgoing { credential: Some(&credential), ..request(&origin) }).await.unwrap();
    let seen = server.seen().await;
    let values: Vec<_> = seen.headers().get_all("authorization").iter().collect();
    assert_eq!(values, ["Bearer sk-very-secret"]);
    // The next request on the same connection does not carry it.
    egress.send(request(&origin)).await.unwrap();
    assert!(server.seen().await.headers().get("authorization").is_none());
}

#[tokio::test]
async fn connection_is_reused() {
    let server = Server::start(ok).await;
    let origin = origin(&server.url());
    let egress = egress(&config());
    for _ in 0..5 {
        let reply = egress.clone().send(request(&origin)).await.unwrap();
        reply.body.collect(16).await.unwrap();
    }
    assert_eq!(server.connections(), 1);
}

fn elsewhere(request: &Request<Bytes>) -> Response<Full<Bytes>> {
    // The request's query has the status and the port of the redirect, so this function needs no
    // state.
    let (status, port) = request.uri().query().unwrap().split_once('-').unwrap();
    let location = format!("http://127.0.0.1:{port}/stolen");
    let response = Response::builder().status(status).header("location", location);
    response.body(Full::from("moved")).unwrap()
}

#[tokio::test]
async fn redirects_are_answers_and_not_followed() {
    let target = Server::start(ok).await;
    let server = Server::start(elsewhere).await;
    let origin = origin_with_credential(&server.url());
    let credential = kit::credential();
    let egress = egress(&config());
    for status in [301, 302, 303, 307, 308] {
        let path = format!("a?{status}-{}", target.address.port());
        let outgoing = Outgoing { path: &path, credential: Some(&credential), ..request(&origin) };
        let reply = egress.send(outgoing).await.unwrap();
        assert_eq!(reply.status.as_u16(), status);
        assert!(reply.headers.contains_key("location"));
        assert_eq!(reply.body.collect(16).await.unwrap(), "moved");
    }
    assert_eq!(target.connections(), 0);
}

fn cookie(_request: &Request<Bytes>) -> Response<Full<Bytes>> {
    Response::builder().header("set-cookie", "a=b").body(Full::default()).unwrap()
}

#[tokio::test]
async fn cookies_are_not_kept() {
    let mut server = Server::start(cookie).await;
    let origin = origin(&server.url());
    let egress = egress(&config());
    for _ in 0..2 {
        let reply = egress.send(request(&origin)).await.unwrap();
        assert_eq!(reply.body.collect(0).await.unwrap(), "");
        assert!(server.seen().await.headers().get("cookie").is_none());
    }
}

fn compressed(_request: &Request<Bytes>) -> Response<Full<Bytes>> {
    Response::builder().header("content-encoding", "gzip").body(Full::from("\u{1f}")).unwrap()
}

#[tokio::test]
async fn unrequested_compression_is_broken() {
    let server = Server::start(compressed).await;
    let error = egress(&config()).send(request(&origin(&server.url()))).await.unwrap_err();
    assert_eq!(error, Error::Broken);
}

#[tokio::test]
async fn refused_requests_do_not_reach_the_server() {
    let server = Server::start(ok).await;
    let origin = origin(&server.url());
    let egress = egress(&config());
    let host = (HeaderName::from_static("host"), HeaderValue::from_static("evil.test"));
    let error = egress.send(Outgoing { headers: vec![host], ..request(&origin) }).await.unwrap_err();
    assert_eq!(error, Error::Refused { reason: Reason::Header });
    assert!(error.is_connect());
    for path in ["//evil.test/", "../x", "@evil.test", "a\r\nb", "https://evil.test/"] {
        let error = egress.send(Outgoing { path, ..request(&origin) }).await.unwrap_err();
        assert!(matches!(error, Error::Refused { reason: Reason::Path(_) }), "{path}");
    }
    assert_eq!(server.connections(), 0);
}

/// Also run by the next test, as a child process with proxy variables in its environment.
#[tokio::test]
async fn origin_is_dialled_directly() {
    let server = Server::start(ok).await;
    let reply = egress(&config()).send(request(&origin(&server.url()))).await.unwrap();
    assert_eq!(reply.body.collect(16).await.unwrap(), "fine");
}

#[tokio::test]
async fn proxies_of_the_environment_are_ignored() {
    let proxy = Server::start(ok).await;
    let url = format!("http://{}", proxy.address);
    let mut child = tokio::task::spawn_blocking(move || {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "exchange::origin_is_dialled_directly"]);
        for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
            command.env(name, &url);
        }
        command.env_remove("no_proxy").env_remove("NO_PROXY").output().unwrap()
    });
    let output = tokio::time::timeout(kit::PATIENCE, &mut child).await.unwrap().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    assert_eq!(proxy.connections(), 0);
}
