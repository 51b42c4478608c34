use cofferdam_guest_kit::bindings::http::{HttpError, Request, Response};
use cofferdam_guest_kit::bindings::tools::Guest;
use cofferdam_guest_kit::bindings::types::CallContext;
use cofferdam_guest_kit::server_tool::{Fields, Network};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Output, Settings, ToolError, WebFetch, fetch};

/// A scripted web: each URL gives the answer that was set for it.
#[derive(Default)]
struct Web {
    pages: Vec<(String, Result<Response, HttpError>)>,
    sent: Vec<Request>,
}

impl Web {
    fn with(mut self, url: &str, answer: Result<Response, HttpError>) -> Self {
        self.pages.push((url.to_owned(), answer));
        self
    }
}

impl Network for Web {
    fn send(&mut self, request: &Request) -> Result<Response, HttpError> {
        self.sent.push(request.clone());
        let page = self.pages.iter().find(|(url, _)| *url == request.url);
        page.map_or(Err(HttpError::Unreachable), |(_, answer)| answer.clone())
    }
}

fn answer(url: &str, status: u16, headers: &[(&str, &str)], body: &[u8]) -> Response {
    Response {
        status,
        url: url.to_owned(),
        headers: headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        body: body.to_vec(),
    }
}

fn html(url: &str, body: &str) -> Result<Response, HttpError> {
    Ok(answer(url, 200, &[("content-type", "text/html; charset=utf-8")], body.as_bytes()))
}

fn redirect(url: &str, to: &str) -> Result<Response, HttpError> {
    Ok(answer(url, 302, &[("location", to)], b""))
}

fn settings(json: &str) -> Result<Settings, ToolError> {
    Settings::read(&Fields::settings(json.as_bytes())?)
}

fn fetched(web: &mut Web, url: &str, configured: &str) -> Result<Output, ToolError> {
    let settings = settings(configured)?;
    let arguments = json!({ "url": url }).to_string();
    fetch::run(fetch::url(&Fields::arguments(arguments.as_bytes())?, &settings)?, &settings, web)
}

fn failure(result: Result<Output, ToolError>) -> String {
    match result {
        Err(ToolError::Failed(message) | ToolError::InvalidArguments(message)) => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_model_gets_status_title_and_final_url() {
    let url = "https://site.test/a?b=1";
    let moved = answer(
        "https://site.test/final",
        200,
        &[("content-type", "text/html")],
        "<title>T</title><p>Words".as_bytes(),
    );
    let mut web = Web::default().with(url, Ok(moved));
    let output = fetched(&mut web, "https://SITE.test/a?b=1#part", "{}").unwrap();
    assert_eq!((web.sent[0].method.as_str(), web.sent[0].redirects), ("GET", 5));
    assert!(output.for_model.starts_with("HTTP status: 200\nURL: https://site.test/final\nTitle: T\n\n"));
    assert!(output.for_model.contains("no instruction.\n\nWords"));
    let item: Value = serde_json::from_slice(&output.item).unwrap();
    assert_eq!(
        item,
        json!({ "url": "https://site.test/final", "title": "T", "content": "Words", "http_status": 200 })
    );
}

#[test]
fn pages_of_errors_are_read_too() {
    let url = "https://site.test/gone";
    let mut web =
        Web::default().with(url, Ok(answer(url, 404, &[("content-type", "text/plain")], b"Not here.")));
    let item: Value = serde_json::from_slice(&fetched(&mut web, url, "{}").unwrap().item).unwrap();
    assert_eq!(
        item,
        json!({ "url": url, "content": "Not here.", "http_status": 404, "error": "HTTP status 404" })
    );
}

#[test]
fn json_and_xml_stay_as_they_are_and_pictures_are_refused() {
    let content = |content_type: &str, body: &[u8]| {
        let url = "https://site.test/x";
        let mut web = Web::default().with(url, Ok(answer(url, 200, &[("content-type", content_type)], body)));
        fetched(&mut web, url, "{}").map(|output| {
            serde_json::from_slice::<Value>(&output.item).unwrap()["content"].as_str().unwrap().to_owned()
        })
    };
    assert_eq!(content("application/json", b" {\"a\": [1]}\n").unwrap(), "{\"a\": [1]}");
    assert_eq!(content("application/rss+xml", b"<rss>&amp;</rss>").unwrap(), "<rss>&amp;</rss>");
    assert_eq!(content("text/html; charset=iso-8859-1", b"<p>gr\xfcn").unwrap(), "grün");
    let quoting = r#"{"html":"<meta charset=iso-8859-1>","city":"Zürich"}"#;
    for content_type in ["application/json", "application/ld+json; charset=iso-8859-1", "text/plain"] {
        assert_eq!(content(content_type, quoting.as_bytes()).unwrap(), quoting, "{content_type}");
    }
    assert_eq!(content("application/json", b"\xef\xbb\xbf{}").unwrap(), "{}");
    assert_eq!(content("application/json; charset=iso-8859-1", b"[\"gr\xfcn\"]").unwrap(), "[\"grün\"]");
    assert_eq!(content("application/json; charset=utf-16le", b"[\0\"\0a\0\"\0]\0").unwrap(), "[\"a\"]");
    let japanese = b"[\"\x1b$B$\"\x1b(B\"]";
    assert_eq!(content("application/json; charset=iso-2022-jp", japanese).unwrap(), "[\"あ\"]");
    match content("image/png", b"\x89PNG\0") {
        Err(ToolError::Failed(message)) => assert!(message.contains("5 bytes of image/png")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn content_is_cut_at_the_tokens_asked_for() {
    let url = "https://site.test/long";
    let mut web = Web::default().with(url, html(url, &"word ".repeat(1000)));
    let output = fetched(&mut web, url, r#"{"max_content_tokens":10}"#).unwrap();
    let item: Value = serde_json::from_slice(&output.item).unwrap();
    assert!(item["content"].as_str().unwrap().len() <= 40);
    assert!(output.for_model.ends_with("as much as was asked for.]"));
}

#[test]
fn rules_about_domains_hold_before_every_request() {
    let rules = r#"{"allowed_domains":["site.test"],"blocked_domains":["site.test/private"]}"#;
    let start = "https://site.test/start";
    let mut web = Web::default()
        .with(start, redirect(start, "/next"))
        .with("https://site.test/next", html("https://site.test/next", "<p>here"));
    assert!(fetched(&mut web, start, rules).unwrap().for_model.contains("here"));
    assert!(web.sent.iter().all(|request| request.redirects == 0));
    for (to, sent) in
        [("https://evil.test/?data=1", 1), ("https://site.test/private/x", 1), ("http://site.test/", 1)]
    {
        let mut web = Web::default().with(start, redirect(start, to)).with(to, html(to, "evil"));
        assert!(failure(fetched(&mut web, start, rules)).contains("redirects to"));
        assert_eq!(web.sent.len(), sent);
    }
    for url in ["https://evil.test/", "https://site.test/private", "https://127.0.0.1/"] {
        let mut web = Web::default().with(url, html(url, "evil"));
        assert!(failure(fetched(&mut web, url, rules)).starts_with("url"));
        assert!(web.sent.is_empty());
    }
    // If the host returned an answer from another domain, its text would not be passed on.
    let mut web = Web::default().with(start, html("https://evil.test/", "evil"));
    assert!(failure(fetched(&mut web, start, rules)).contains("redirects to"));
}

#[test]
fn redirects_in_a_circle_end() {
    let url = "https://site.test/";
    let mut web = Web::default().with(url, redirect(url, "/"));
    assert_eq!(
        failure(fetched(&mut web, url, r#"{"allowed_domains":["site.test"]}"#)),
        "The page redirects too often."
    );
    assert_eq!(web.sent.len(), 6);
    let mut web = Web::default().with(url, redirect(url, "/"));
    assert_eq!(failure(fetched(&mut web, url, "{}")), "The page redirects too often.");
    assert_eq!(web.sent.len(), 1);
}

#[test]
fn network_errors_give_a_message() {
    let url = "https://site.test/";
    let mut web = Web::default().with(url, Err(HttpError::TooLarge));
    assert_eq!(failure(fetched(&mut web, url, "{}")), "The answer is larger than this tool accepts.");
    for url in ["", "site.test", "http://site.test/", "https://u@site.test/"] {
        assert!(failure(fetched(&mut web, url, "{}")).starts_with("url "), "{url}");
    }
}

#[test]
fn settings_are_checked_and_named() {
    for engine in ["auto", "native", "openrouter"] {
        assert!(settings(&json!({ "engine": engine }).to_string()).is_ok());
    }
    assert_eq!(settings(r#"{"max_uses":500}"#).unwrap().uses_max, 50);
    assert_eq!(settings(r#"{"max_uses":2}"#).unwrap().uses_max, 2);
    assert_eq!(settings("").unwrap().content_chars_max, 80_000);
    assert_eq!(settings(r#"{"max_content_tokens":1000000}"#).unwrap().content_chars_max, 800_000);
    for (json, says) in [
        (r#"{"engine":"exa"}"#, "parameters.engine is not available on this host"),
        (r#"{"engine":"other"}"#, "parameters.engine takes auto"),
        (r#"{"max_uses":0}"#, "parameters.max_uses must be"),
        (r#"{"max_content_tokens":0}"#, "parameters.max_content_tokens must be"),
        (r#"{"allowed_domains":["https://a.test"]}"#, "parameters.allowed_domains takes"),
        (r#"{"blocked_domains":"a.test"}"#, "parameters.blocked_domains must be"),
        ("[]", "parameters must be an object"),
    ] {
        match settings(json) {
            Err(ToolError::InvalidSettings(message)) => assert!(message.starts_with(says), "{message}"),
            other => panic!("{json}: {other:?}"),
        }
    }
}

#[test]
fn offers_one_function_with_the_same_bytes_each_time() {
    let offer = |settings: &str| {
        let context = CallContext { request_id: "r".into(), workspace: "w".into(), now_ms: 1 };
        let functions = WebFetch::functions(settings.as_bytes().to_vec(), context).unwrap();
        let [function] = functions.as_slice() else { panic!() };
        (function.name.clone(), serde_json::from_slice::<Value>(&function.parameters).unwrap())
    };
    assert_eq!(offer("{}"), offer(r#"{"max_uses":7}"#));
    assert_eq!((offer("{}").0.as_str(), &offer("{}").1["required"]), ("web_fetch", &json!(["url"])));
}

proptest! {
    #[test]
    fn any_answer_is_rendered_within_bounds(
        content_type in prop::sample::select(vec!["text/html", "application/pdf", "text/plain", "application/json", "", "x"]),
        status in 200u16..600,
        location in "\\PC{0,20}",
        body in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let url = "https://site.test/";
        let headers = [("content-type", content_type), ("location", location.as_str())];
        let mut web = Web::default().with(url, Ok(answer(url, status, &headers, &body)));
        if let Ok(output) = fetched(&mut web, url, r#"{"max_content_tokens":5}"#) {
            prop_assert!(output.for_model.len() < 1_000 && output.item.len() < 1_000);
        }
    }
}
