//! Redirects (egress rule R10).

use super::{API, Bench, GRANT, OTHER, VALUE, assert_error, assert_ok};
use crate::kit::upstream::Reply;
use serde_json::json;

fn redirect(status: u16, location: &str) -> Reply {
    Reply::Whole { status, headers: vec![("location", location.to_owned())], body: String::new() }
}

#[tokio::test]
async fn request_with_a_secret_follows_no_redirect() {
    let bench = Bench::start(GRANT).await;
    bench.secret("api_key", VALUE, API);
    let elsewhere = [
        bench.url(OTHER, "/stolen"),
        bench.url(API, "/again"),
        "http://api.test/plain".to_owned(),
        "https://evil.test/".to_owned(),
        "https://api.test:8443/".to_owned(),
        "//evil.test/x".to_owned(),
        "https://api.test@evil.test/".to_owned(),
    ];
    for status in [301, 302, 303, 307, 308] {
        for location in &elsewhere {
            bench.site.reply(redirect(status, location));
            let before = bench.site.seen().len();
            let answer = bench.probe(json!({"url": bench.url(API, "/"), "redirects": 5})).await;
            assert_eq!(answer["status"], status, "{answer}");
            assert!(answer["headers"].to_string().contains(location.as_str()), "{answer}");
            assert_eq!(bench.site.seen().len(), before + 1);
        }
    }
    // A value in the `Location` header is redacted like anywhere else.
    bench.site.reply(redirect(302, &bench.url(OTHER, &format!("/?key={VALUE}"))));
    bench.site.reply(Reply::Whole {
        status: 200,
        headers: vec![("refresh", format!("0; url=https://evil.test/?key={VALUE}"))],
        body: format!("<meta http-equiv=refresh content=\"0; url=https://evil.test/?key={VALUE}\">"),
    });
    for _ in 0..2 {
        let answer = bench.probe(json!({"url": bench.url(API, "/"), "redirects": 5})).await;
        assert!(!answer.to_string().contains(VALUE), "{answer}");
    }
    assert!(bench.names.asked().is_empty(), "nobody looked for evil.test");
}

#[tokio::test]
async fn request_without_a_secret_follows_redirects_within_its_grant() {
    let bench = Bench::start(GRANT).await;
    let get = |redirects: u8| json!({"url": bench.url(API, "/1"), "redirects": redirects, "headers": [["x-own", "1"], ["accept", "text/plain"]]});
    bench.site.reply(redirect(302, "/2"));
    bench.site.reply(redirect(307, &bench.url(OTHER, "/3")));
    let answer = bench.probe(get(5)).await;
    assert_ok(&answer);
    assert_eq!(answer["url"], bench.url(OTHER, "/3"));
    let seen = bench.site.seen();
    let paths: Vec<&str> = seen.iter().map(|seen| seen.path.as_str()).collect();
    assert_eq!(paths, ["/1", "/2", "/3"]);
    assert_eq!(
        (seen[1].header("x-own"), seen[2].header("x-own")),
        (Some("1"), None),
        "nothing survives to another host"
    );
    assert_eq!(seen[2].header("accept"), Some("text/plain"));

    for (location, error) in [
        ("https://evil.test/", "denied"),
        ("http://api.test/", "denied"),
        ("https://127.0.0.1/", "denied"),
        ("https://169.254.169.254/latest", "denied"),
        ("https://api.test:8443/", "denied"),
        ("https://api.test@evil.test/", "invalid"),
        ("//evil.test/", "denied"),
        ("https://evil.test\\@api.test/", "invalid"),
    ] {
        bench.site.reply(redirect(302, location));
        assert_error(&bench.probe(get(5)).await, error);
    }
    assert!(bench.names.asked().is_empty());
}

#[tokio::test]
async fn redirects_are_limited_and_change_the_method_as_browsers_do() {
    let bench = Bench::start(GRANT).await;
    for hop in 1..=3 {
        bench.site.reply(redirect(302, &format!("/{hop}")));
    }
    let answer = bench.probe(json!({"url": bench.url(API, "/0"), "redirects": 2})).await;
    assert_eq!((&answer["status"], bench.site.last().path.as_str()), (&json!(302), "/2"));
    let answer = bench.probe(json!({"url": bench.url(API, "/0"), "redirects": 6})).await;
    assert_error(&answer, "invalid");
    for (status, method, then, body) in [
        (301, "POST", "GET", ""),
        (302, "POST", "GET", ""),
        (303, "POST", "GET", ""),
        (303, "PUT", "GET", ""),
        (307, "POST", "POST", "content"),
        (308, "PUT", "PUT", "content"),
        (302, "PUT", "PUT", "content"),
        (303, "HEAD", "HEAD", ""),
    ] {
        bench.site.reply(redirect(status, "/next"));
        let sent = if method == "HEAD" { "" } else { "content" };
        let request = json!({
            "url": bench.url(API, "/0"), "method": method, "body": sent, "redirects": 1,
            "headers": [["content-type", "text/plain"]],
        });
        assert_ok(&bench.probe(request).await);
        let seen = bench.site.last();
        assert_eq!((seen.method.as_str(), &seen.body[..]), (then, body.as_bytes()), "{status} {method}");
        assert_eq!(seen.header("content-type").is_some(), then == method, "{status} {method}");
    }
}

#[tokio::test]
async fn redirects_never_release_a_secret() {
    let bench = Bench::start(GRANT).await;
    bench.secret("api_key", VALUE, API);
    bench.site.reply(redirect(302, &bench.url(API, "/delete-everything")));
    let answer = bench.probe(json!({"url": bench.url(OTHER, "/"), "redirects": 5})).await;
    assert_eq!(answer["status"], 302, "the guest decides whether it goes on: {answer}");
    assert_eq!(bench.site.seen().len(), 1);
}
