//! Guests' own requests: the places of secrets, and which headers guests may set (egress rules R1
//! to R4 and R14 to R17).

use bytes::Bytes;
use cofferdam_egress::{
    GuestRequest, PlacedSecret, Placement, PlacementError, Reason, is_credential_header, placeholders,
};

use http::{Request, Response};
use http_body_util::Full;

use crate::kit::{
    Server, egress,
    guest::{NAME, Scene, VALUE, echo, get, opened, text, with_header},
    ok,
    tls::Authority,
    vault,
};

const PLACEHOLDER: &str = "{{secret:github_token}}";

fn header(name: &str) -> Placement {
    Placement::header(name, "{}").unwrap()
}

fn placeholder(name: &str) -> Placement {
    Placement::placeholder(name, PLACEHOLDER).unwrap()
}

fn post(scene: &Scene, body: &str) -> GuestRequest {
    GuestRequest {
        method: "POST".to_owned(),
        body: Bytes::copy_from_slice(body.as_bytes()),
        ..scene.get("/things")
    }
}

#[tokio::test]
async fn placeholders_become_secrets_in_header_values() {
    let mut scene = Scene::new(ok).await;
    let value = format!("token {PLACEHOLDER}, again {PLACEHOLDER};");
    let request = with_header(with_header(scene.get("/"), "Authorization", &value), "x-plain", "{{other}}");
    let injection = scene.with(placeholder("authorization"), VALUE);
    scene.fetch(request, vec![injection]).await.unwrap();
    let seen = scene.server.seen().await;
    assert_eq!(seen.headers()["authorization"], format!("token {VALUE}, again {VALUE};"));
    assert_eq!(seen.headers()["x-plain"], "{{other}}");
}

#[tokio::test]
async fn inserted_secret_is_not_scanned_for_placeholders() {
    let mut scene = Scene::new(ok).await;
    let inner = "{{secret:other}} {{secret:github_token}}";
    let request = with_header(scene.get("/"), "x-auth", PLACEHOLDER);
    let injections = vec![scene.with(placeholder("x-auth"), inner), scene.with(header("x-key"), inner)];
    scene.fetch(request, injections).await.unwrap();
    let seen = scene.server.seen().await;
    assert_eq!(seen.headers()["x-auth"], inner);
    assert_eq!(seen.headers()["x-key"], inner);
}

#[tokio::test]
async fn placeholders_anywhere_else_are_refused() {
    let scene = Scene::new(ok).await;
    let body = post(&scene, r#"{"key":"{{secret:github_token}}"}"#);
    let name = with_header(scene.get("/"), "x-{{secret:github_token}}", "a");
    let split = with_header(with_header(scene.get("/"), "x-a", "{{secret:github"), "x-b", "_token}}");
    let nested = with_header(scene.get("/"), "x-a", "{{secret:{{secret:github_token}}}}");
    // The secret of this placeholder is not granted at all, or not for this header.
    let lonely = with_header(scene.get("/"), "x-a", PLACEHOLDER);
    for request in [body, name, split, nested, lonely.clone()] {
        assert_eq!(scene.refusal(request, Vec::new()).await, Reason::Placeholder);
    }
    let elsewhere = scene.with(placeholder("x-b"), VALUE);
    assert_eq!(scene.refusal(lonely.clone(), vec![elsewhere]).await, Reason::Placeholder);
    let other = scene.vault.injection(placeholder("x-a"), "other", VALUE, "api.test");
    assert_eq!(scene.refusal(lonely, vec![other]).await, Reason::Placeholder);
    // A secret whose placeholder does not occur would be released without being used.
    let unused = scene.with(placeholder("x-a"), VALUE);
    assert_eq!(scene.refusal(scene.get("/"), vec![unused]).await, Reason::Placeholder);
    let many = with_header(scene.get("/"), "x-a", &PLACEHOLDER.repeat(5));
    assert_eq!(scene.refusal(many, vec![scene.with(placeholder("x-a"), VALUE)]).await, Reason::Placeholder);
}

#[test]
fn placeholders_of_a_request_are_listed() {
    let request = with_header(get("https://api.test/"), "X-Auth", "a {{secret:one}} {{secret:two}}");
    let found = placeholders(&with_header(request, "x-b", "{{secret:one}}")).unwrap();
    let found: Vec<(&str, &str)> =
        found.iter().map(|one| (one.header.as_str(), one.secret.as_str())).collect();
    assert_eq!(found, [("x-auth", "one"), ("x-auth", "two"), ("x-b", "one")]);
}

#[tokio::test]
async fn secret_becomes_a_query_parameter() {
    let mut scene = Scene::new(ok).await;
    let key = || Placement::query("key").unwrap();
    let encoded = "ghp_0123456789%2Fabc%2BDEF%3D%3D";
    for (path, expected) in
        [("/a", "/a?key="), ("/a?", "/a?key="), ("/a?b=c", "/a?b=c&key="), ("/?keys=1", "/?keys=1&key=")]
    {
        scene.fetch(scene.get(path), vec![scene.with(key(), VALUE)]).await.unwrap();
        let seen = scene.server.seen().await;
        assert_eq!(seen.uri().path_and_query().unwrap().as_str(), format!("{expected}{encoded}"));
    }
    for path in ["/?key=1", "/?a&key", "/?k%65y=1"] {
        assert_eq!(
            scene.refusal(scene.get(path), vec![scene.with(key(), VALUE)]).await,
            Reason::PlaceTaken,
            "{path}"
        );
    }
    let twice = vec![scene.with(key(), VALUE), scene.with(key(), VALUE)];
    assert_eq!(scene.refusal(scene.get("/"), twice).await, Reason::PlaceTaken);
    // Two parameters, and values that would be read as more parameters if they were not encoded.
    let both = vec![scene.with(key(), "a&b=c#d"), scene.with(Placement::query("k2").unwrap(), "\u{e4}%41 ")];
    scene.fetch(scene.get("/"), both).await.unwrap();
    let seen = scene.server.seen().await;
    assert_eq!(seen.uri().query().unwrap(), "key=a%26b%3Dc%23d&k2=%C3%A4%2541%20");
}

#[tokio::test]
async fn secret_becomes_a_member_of_a_json_body() {
    let mut scene = Scene::new(ok).await;
    let slot = || Placement::json("/auth/key").unwrap();
    let request = post(&scene, r#"{"auth":{"user":"me"},"n":1.50}"#);
    scene.fetch(request, vec![scene.with(slot(), "a\"b\nc")]).await.unwrap();
    let seen = scene.server.seen().await;
    assert_eq!(seen.body(), r#"{"auth":{"user":"me","key":"a\"b\nc"},"n":1.50}"#);
    let length = seen.headers()["content-length"].to_str().unwrap().parse();
    assert_eq!(length, Ok(seen.body().len()));
    for (body, reason) in [
        (r#"{"auth":{"key":null}}"#, Reason::PlaceTaken),
        (r#"{"auth":1}"#, Reason::JsonBody),
        ("auth=1", Reason::JsonBody),
    ] {
        assert_eq!(
            scene.refusal(post(&scene, body), vec![scene.with(slot(), VALUE)]).await,
            reason,
            "{body}"
        );
    }
    let twice = vec![scene.with(slot(), VALUE), scene.with(slot(), VALUE)];
    assert_eq!(scene.refusal(post(&scene, r#"{"auth":{}}"#), twice).await, Reason::PlaceTaken);
}

#[tokio::test]
async fn values_that_are_not_header_safe_are_refused() {
    let scene = Scene::new(ok).await;
    for value in [
        "secret-value\n",
        "secret\r\nx-evil: 1",
        "secret\0value",
        "secret\tvalue",
        " secret-value",
        "s\u{e9}cret-value",
        "secret\u{7f}",
    ] {
        for slot in [header("x-api-key"), placeholder("x-auth")] {
            let request = match slot {
                _ if slot == header("x-api-key") => scene.get("/"),
                _ => with_header(scene.get("/"), "x-auth", PLACEHOLDER),
            };
            let reason = scene.refusal(request, vec![scene.with(slot, value)]).await;
            assert_eq!(reason, Reason::SecretNotHeaderSafe, "{value:?}");
            assert!(reason.to_string().contains("line break"));
        }
    }
}

#[tokio::test]
async fn existing_header_is_not_overridden() {
    let scene = Scene::new(ok).await;
    for name in ["X-Access", "x-access"] {
        let request = with_header(scene.get("/"), name, "guest");
        assert_eq!(
            scene.refusal(request, vec![scene.with(header("x-access"), VALUE)]).await,
            Reason::PlaceTaken
        );
    }
    let twice = vec![
        scene.with(Placement::header("x-access", "a{}").unwrap(), VALUE),
        scene.with(Placement::header("X-Access", "b{}").unwrap(), VALUE),
    ];
    assert_eq!(scene.refusal(scene.get("/"), twice).await, Reason::PlaceTaken);
}

#[test]
fn headers_that_never_carry_a_secret() {
    let never = [
        "host",
        ":authority",
        "content-length",
        "transfer-encoding",
        "connection",
        "upgrade",
        "te",
        "trailer",
        "expect",
        "keep-alive",
        "proxy-authorization",
        "proxy-x",
        "via",
        "forwarded",
        "x-forwarded-for",
        "user-agent",
        "referer",
        "origin",
        "from",
        "range",
        "if-match",
        "sec-fetch-mode",
        "access-control-request-method",
        "x-request-id",
        "request-id",
        "traceparent",
        "tracestate",
        "baggage",
        "b3",
        "x-b3-traceid",
        "idempotency-key",
        "prefer",
        "last-event-id",
        "content-disposition",
        "content-type",
        "content-encoding",
        "accept",
        "accept-language",
        "",
        "a b",
    ];
    for name in never {
        assert_eq!(Placement::header(name, "{}"), Err(PlacementError::Header), "{name}");
        assert_eq!(Placement::placeholder(name, PLACEHOLDER), Err(PlacementError::Header), "{name}");
    }
    for name in ["Authorization", "X-Api-Key", "x-goog-api-key", "private-token"] {
        assert!(Placement::header(name, "Bearer {}").is_ok(), "{name}");
    }
    // A secret goes into a cookie only by the operator's plan, never by a placeholder of the guest.
    assert!(Placement::header("cookie", "session={}").is_ok());
    assert_eq!(Placement::placeholder("cookie", PLACEHOLDER), Err(PlacementError::Header));
}

#[test]
fn places_are_checked_when_they_are_created() {
    for (before, after) in [("a\n", ""), ("{}", ""), ("", "\r\nx: y"), (" ", ""), ("", " "), ("\u{e9}", "")] {
        assert_eq!(
            Placement::header("x-a", &format!("{before}{{}}{after}")),
            Err(PlacementError::Format),
            "{before:?} {after:?}"
        );
    }
    for text in [
        "",
        "github_token",
        "{{secret:}}",
        "{{secret:A}}",
        "x{{secret:a}}",
        "{{secret:a}}x",
        "{{secret:a}}{{secret:b}}",
    ] {
        assert_eq!(Placement::placeholder("x-a", text), Err(PlacementError::Placeholder), "{text}");
    }
    for name in ["", "a b", "a=b", "a&b", "a%20", "\u{e9}", &"a".repeat(257)] {
        assert_eq!(Placement::query(name), Err(PlacementError::Query), "{name}");
    }
    for pointer in ["", "key", "/a~", "/a~2b", &format!("/{}", "a".repeat(256))] {
        assert_eq!(Placement::json(pointer), Err(PlacementError::Pointer), "{pointer}");
    }
    assert!(Placement::json("/a/b~1c~0d").is_ok());
}

#[tokio::test]
async fn guest_credentials_are_refused_next_to_a_secret() {
    let scene = Scene::new(ok).await;
    for name in [
        "Authorization",
        "X-Api-Key",
        "apikey",
        "x-auth-token",
        "PRIVATE-TOKEN",
        "x-goog-api-key",
        "client-secret",
    ] {
        let request = with_header(scene.get("/"), name, "guest");
        assert!(is_credential_header(name));
        let reason = scene.refusal(request.clone(), vec![scene.with(header("x-access"), VALUE)]).await;
        assert_eq!(reason, Reason::CredentialHeader, "{name}");
        // Without a secret the guest may set it.
        assert_eq!(scene.fetch(request, Vec::new()).await.unwrap().status, 200, "{name}");
    }
    let cookie = with_header(scene.get("/"), "Cookie", "a=b");
    assert_eq!(scene.fetch(cookie, Vec::new()).await.err(), Some(Reason::Header.into()));
}

#[tokio::test]
async fn guests_cannot_set_framing_headers() {
    let scene = Scene::new(echo).await;
    for (name, value) in [
        ("Content-Length", "5"),
        ("Transfer-Encoding", "chunked"),
        ("Connection", "close"),
        ("Upgrade", "websocket"),
        ("TE", "trailers"),
        ("Trailer", "x"),
        ("Expect", "100-continue"),
        ("Accept-Encoding", "gzip"),
        ("Content-Encoding", "gzip"),
        ("x-a", "a\r\nx-evil: 1"),
        ("x-a", "a\nb"),
        ("x-a\r\nx-evil", "1"),
        ("x-a:", "1"),
        ("", "1"),
    ] {
        let request = with_header(post(&scene, "body"), name, value);
        assert_eq!(scene.refusal(request, Vec::new()).await, Reason::Header, "{name}");
    }
    for method in ["get", "CONNECT", "TRACE", "OPTIONS", "", "GET /", "GET\r\nx: y"] {
        let request = GuestRequest { method: method.to_owned(), ..scene.get("/") };
        assert_eq!(scene.refusal(request, Vec::new()).await, Reason::Method, "{method}");
    }
}

#[tokio::test]
async fn headers_are_bounded() {
    let scene = Scene::new(ok).await;
    let mut many = scene.get("/");
    many.headers = (0..101).map(|number| (format!("x-{number}"), "v".to_owned())).collect();
    assert_eq!(scene.refusal(many, Vec::new()).await, Reason::HeadersTooLarge);
    let long = with_header(scene.get("/"), "x-a", &"v".repeat(16 * 1024 + 1));
    assert_eq!(scene.refusal(long, Vec::new()).await, Reason::HeadersTooLarge);
    let value = "k".repeat(16 * 1024);
    let framed = scene.with(Placement::header("x-a", "B{}").unwrap(), &value);
    assert_eq!(scene.refusal(scene.get("/"), vec![framed]).await, Reason::SecretLength);
    let replaced = with_header(scene.get("/"), "x-a", &format!("a{PLACEHOLDER}"));
    assert_eq!(
        scene.refusal(replaced, vec![scene.with(placeholder("x-a"), &value)]).await,
        Reason::SecretLength
    );
    let longer = scene.with(Placement::json("/key").unwrap(), &format!("{value}k"));
    assert_eq!(scene.refusal(post(&scene, "{}"), vec![longer]).await, Reason::SecretLength);
    let seventeen = (0..17).map(|number| scene.with(header(&format!("x-{number}")), VALUE)).collect();
    assert_eq!(scene.refusal(scene.get("/"), seventeen).await, Reason::TooManySecrets);
}

#[tokio::test]
async fn check_refuses_what_fetch_would_refuse() {
    let scene = Scene::new(ok).await;
    let egress = egress(&scene.config);
    let placed = vec![PlacedSecret { secret: NAME.parse().unwrap(), placement: header("x-access") }];
    let taken = with_header(scene.get("/"), "x-access", "guest");
    let check = |request: &GuestRequest| egress.check(request.clone(), placed.clone()).err();
    assert_eq!(check(&taken), Some(Reason::PlaceTaken));
    assert!(egress.check(taken, Vec::new()).is_ok());
    assert_eq!(check(&get("https://api.test/")), Some(Reason::Port));
    assert_eq!(check(&get("https://127.0.0.1/")), Some(Reason::Port));
    let port = scene.server.address.port();
    let literal = get(&format!("https://127.0.0.1:{port}/"));
    assert_eq!(check(&literal), Some(Reason::SecretHost));
    assert_eq!(scene.server.connections(), 0);
}

#[tokio::test]
async fn methods_and_bodies_are_sent_unchanged() {
    let scene = Scene::new(echo).await;
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
        let request = GuestRequest { method: method.to_owned(), ..post(&scene, "the body") };
        let answer = text(scene.fetch(request, Vec::new()).await.unwrap()).await;
        assert!(answer.starts_with(method) && answer.ends_with("the body"), "{answer}");
    }
}

#[tokio::test]
async fn answers_without_a_body_may_announce_a_length() {
    fn length(request: &Request<Bytes>) -> Response<Full<Bytes>> {
        let status = if request.method() == "HEAD" { 200 } else { 304 };
        let response = Response::builder().status(status).header("content-length", "1000000000000");
        response.body(Full::default()).unwrap()
    }
    let authority = Authority::new();
    let server = Server::start_tls(authority.acceptor("api.test", &["http/1.1"]), length).await;
    let egress = egress(&opened(&server, &authority));
    for method in ["HEAD", "GET", "HEAD"] {
        let request = get(&format!("https://api.test:{}/", server.address.port()));
        let request = GuestRequest { method: method.to_owned(), ..request };
        let reply = vault::fetch(&egress, request, Vec::new()).await.unwrap();
        assert_eq!(text(reply).await, "", "{method}");
    }
    assert_eq!(server.connections(), 1);
}
