//! Attacks on the admin listener, and signing in.

use crate::kit::admin::Admin;
use crate::kit::client::{Answer, counted_body, http, read};
use crate::kit::deadline;
use crate::kit::host::{Host, Setup};
use reqwest::{Method, RequestBuilder};
use serde_json::json;
use std::sync::atomic::Ordering;

fn request(host: &Host, method: Method, path: &str) -> RequestBuilder {
    http().build().unwrap().request(method, format!("{}{path}", host.admin))
}

async fn sign_in(host: &Host, body: &serde_json::Value) -> Answer {
    read(
        request(host, Method::POST, "/admin/v1/session")
            .header("content-type", "application/json")
            .body(body.to_string())
            .send()
            .await
            .unwrap(),
    )
    .await
}

#[tokio::test]
async fn over_http_2_a_refusal_comes_after_the_body_of_its_request() {
    let host = Setup::new().start();
    let client = http().http2_prior_knowledge().build().unwrap();
    for (path, status) in [("session", 413), ("playground", 401)] {
        // More than the windows of HTTP/2 hold.
        let (body, taken) = counted_body(24);
        let request = client.post(format!("{}/admin/v1/{path}", host.admin)).body(body);
        let answer = read(request.header("content-type", "application/json").send().await.unwrap()).await;
        assert_eq!(answer.status, status, "{}", answer.text);
        assert_eq!(taken.load(Ordering::Relaxed), 24, "{path}: the rest is not read");
    }
}

async fn status_with(host: &Host, token: &str) -> u16 {
    request(host, Method::GET, "/admin/v1/status").bearer_auth(token).send().await.unwrap().status().as_u16()
}

#[tokio::test]
async fn link_of_the_console_command_signs_in_once() {
    let host = Setup::new().start();
    let printed = host.command(&["console"]);
    let url = printed["url"].as_str().unwrap();
    let (page, code) = url.split_once("#code=").unwrap();
    assert_eq!(page, format!("{}/", host.admin));
    let bearer = sign_in(&host, &json!({"code": code})).await;
    assert_eq!(bearer.status, 200, "{}", bearer.text);
    assert!(bearer.headers.get("set-cookie").is_none(), "no cookie");
    let bearer = bearer.body["bearer"].as_str().unwrap().to_owned();
    assert_eq!(status_with(&host, &bearer).await, 200);
    assert_eq!(sign_in(&host, &json!({"code": code})).await.status, 401, "a code works once");

    let ended =
        request(&host, Method::DELETE, "/admin/v1/session").bearer_auth(&bearer).send().await.unwrap();
    assert_eq!(ended.status(), 200);
    assert_eq!(status_with(&host, &bearer).await, 401);
    assert!(!host.log().contains(code) && !host.log().contains(&bearer));
}

#[test]
fn console_command_of_a_host_without_a_console_says_why() {
    let host = Setup::new().admin("0.0.0.0:0").start();
    let output = host.command_output(&["console"]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && error.contains("set `[server.tls]`"), "{error}");
}

#[tokio::test]
async fn console_command_without_a_host_says_what_to_start() {
    let setup = Setup::new();
    let output = setup.command_output(&["console"]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && error.contains("start one with `cofferdam serve`"), "{error}");
    assert!(!setup.data().exists(), "nothing is made");
}

#[tokio::test]
async fn nothing_is_answered_without_a_right_bearer() {
    let host = Setup::new().start();
    for path in ["status", "key/list", "no/such", "session", ""] {
        let answer = request(&host, Method::GET, &format!("/admin/v1/{path}")).send().await.unwrap();
        assert_eq!(
            (answer.status().as_u16(), answer.headers()["www-authenticate"].to_str().unwrap()),
            (401, "Bearer")
        );
    }
    // A key of a client is no operator token.
    assert_eq!(status_with(&host, &host.key).await, 401);
    let in_url = request(&host, Method::GET, "/admin/v1/status?token=x&access_token=y").send().await.unwrap();
    assert_eq!(in_url.status(), 401);
}

#[tokio::test]
async fn guessing_is_slowed_down_and_never_locks_the_operator_out() {
    let host = Setup::new().start();
    let admin = Admin::new(&host);
    for _ in 0..5 {
        assert_eq!(sign_in(&host, &json!({"token": "guess"})).await.status, 401);
    }
    let slowed = sign_in(&host, &json!({"code": "guess"})).await;
    assert_eq!(slowed.status, 429, "{}", slowed.text);
    assert!((1..=60).contains(&slowed.headers["retry-after"].to_str().unwrap().parse::<u64>().unwrap()));
    assert_eq!(status_with(&host, "guess").await, 429);
    assert_eq!(status_with(&host, &admin.token).await, 200);
    assert_eq!(sign_in(&host, &json!({"token": admin.token})).await.status, 200);
}

#[tokio::test]
async fn host_of_another_name_is_misdirected() {
    let host = Setup::new().config("[server]\nadmin_hosts = [\"ops.example.com\"]").start();
    let admin = Admin::new(&host);
    let port = host.admin.rsplit(':').next().unwrap().to_owned();
    for name in [
        "attacker.example",
        &format!("attacker.example:{port}"),
        "192.0.2.7",
        "localhost.attacker.example",
        "localhost@attacker.example",
        "[2001:db8::1]",
        "0.0.0.0",
    ] {
        for path in ["/", "/console/main.js", "/admin/v1/status", "/openapi.json"] {
            let answer = admin.request(Method::GET, path).header("host", name).send().await.unwrap();
            assert_eq!(answer.status(), 421, "{name}{path}");
            assert!(answer.text().await.unwrap().contains("server.admin_hosts"));
        }
        // Probes and scrapers call the host by any name.
        for path in ["/healthz", "/metrics"] {
            let answer = admin.request(Method::GET, path).header("host", name).send().await.unwrap();
            assert_eq!(answer.status(), 200, "{name}{path}");
        }
    }
    for name in [
        "localhost",
        "LOCALHOST",
        &format!("localhost:{port}"),
        "127.0.0.1",
        "[::1]:1",
        "ops.example.com",
        "Ops.Example.Com.:443",
    ] {
        let answer =
            admin.request(Method::GET, "/admin/v1/status").header("host", name).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{name}");
    }
}

#[tokio::test]
async fn requests_that_other_sites_can_send_change_nothing() {
    let host = Setup::new().start();
    let admin = Admin::new(&host);
    // What a form or a script of another site can send without asking the browser first.
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
        let body = "{\"name\": \"forged\"}";
        let forged = request(&host, Method::POST, "/admin/v1/workspace/create")
            .header("content-type", kind)
            .body(body);
        assert_eq!(forged.send().await.unwrap().status(), 401, "{kind}");
        let known =
            admin.request(Method::POST, "/admin/v1/workspace/create").header("content-type", kind).body(body);
        assert_eq!(known.send().await.unwrap().status(), 400, "{kind}");
    }
    let asked = request(&host, Method::OPTIONS, "/admin/v1/workspace/create")
        .header("origin", "https://attacker.example")
        .header("access-control-request-method", "POST");
    let asked = asked.send().await.unwrap();
    assert!(!asked.status().is_success() && asked.headers().get("access-control-allow-origin").is_none());
    assert_eq!(admin.ask("workspace/list").await.body.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn pages_of_the_console_have_a_strict_policy() {
    let host = Setup::new().start();
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/console/style.css", "text/css; charset=utf-8"),
        ("/console/main.js", "text/javascript; charset=utf-8"),
        ("/console/icon.svg", "image/svg+xml"),
    ] {
        let answer = read(request(&host, Method::GET, path).send().await.unwrap()).await;
        assert_eq!((answer.status, answer.headers["content-type"].to_str().unwrap()), (200, kind), "{path}");
        let policy = answer.headers["content-security-policy"].to_str().unwrap();
        for rule in
            ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "trusted-types 'none'"]
        {
            assert!(policy.contains(rule), "{policy}");
        }
        assert!(!policy.contains("unsafe"));
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
        assert_eq!(answer.headers["referrer-policy"], "no-referrer");
        assert_eq!(answer.headers["cross-origin-opener-policy"], "same-origin");
    }
    for path in ["/console/", "/console/../main.js", "/console/%2e%2e/main.js", "/console/nothing"] {
        let answer = request(&host, Method::GET, path).send().await.unwrap();
        assert_eq!(answer.status(), 404, "{path}");
    }
    assert_eq!(request(&host, Method::POST, "/").send().await.unwrap().status(), 405);
}

#[tokio::test]
async fn another_operator_token_is_taken_at_a_reload() {
    let host = Setup::new().start();
    let before = Admin::new(&host);
    before.until_ready().await;
    std::fs::remove_file(host.data().join("operator.token")).unwrap();
    host.signal("HUP");
    host.until_logged("configuration and plugins were read again");
    assert_eq!(before.ask("status").await.status, 401);
    assert_eq!(Admin::new(&host).ask("status").await.status, 200);
    assert!(!host.log().contains(&before.token));
}

#[tokio::test]
async fn another_operator_token_is_taken_where_the_configuration_is_refused() {
    let host = Setup::new().config("[limits]\nstreams = 7").start();
    let before = Admin::new(&host);
    before.until_ready().await;
    std::fs::remove_file(host.data().join("operator.token")).unwrap();
    std::fs::write(host.directory().join("cofferdam.toml"), "[limits]\nstraems = 7").unwrap();
    host.signal("HUP");
    let is_refused = async || before.ask("status").await.status == 401;
    deadline::until("the end of the old token", is_refused).await;
    host.until_logged("the old one stays");
    assert_eq!(Admin::new(&host).ask("status").await.status, 200);
}
