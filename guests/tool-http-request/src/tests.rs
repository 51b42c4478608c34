use cofferdam_guest_kit::bindings::http::{HttpError, Placement, Request, Response};
use cofferdam_guest_kit::bindings::tools::Guest;
use cofferdam_guest_kit::bindings::types::CallContext;
use cofferdam_guest_kit::server_tool::{Fields, Network};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{HttpRequest, Output, Settings, ToolError, run};

/// Gives one scripted answer and records the requests.
struct Script {
    answer: Result<Response, HttpError>,
    sent: Vec<Request>,
}

impl Network for Script {
    fn send(&mut self, request: &Request) -> Result<Response, HttpError> {
        self.sent.push(request.clone());
        self.answer.clone()
    }
}

fn response(status: u16, content_type: &str, body: &[u8]) -> Response {
    Response {
        status,
        url: "https://api.test/".to_owned(),
        headers: vec![
            ("content-type".to_owned(), content_type.to_owned()),
            ("set-cookie".to_owned(), "session=1".to_owned()),
            ("retry-after".to_owned(), "7".to_owned()),
        ],
        body: body.to_vec(),
    }
}

fn settings(json: &str) -> Result<Settings, ToolError> {
    Settings::read(&Fields::settings(json.as_bytes())?)
}

fn send(arguments: Value, configured: &str) -> (Result<Output, ToolError>, Vec<Request>) {
    let answer = Ok(response(200, "application/json", b"{\"a\":1}"));
    let mut script = Script { answer, sent: Vec::new() };
    let output = run(arguments.to_string().as_bytes(), &settings(configured).unwrap(), &mut script);
    (output, script.sent)
}

fn sent(arguments: Value) -> Request {
    let (output, mut sent) = send(arguments, "{}");
    output.unwrap();
    assert_eq!(sent.len(), 1);
    sent.remove(0)
}

fn refused(arguments: Value, configured: &str) -> String {
    let (output, sent) = send(arguments, configured);
    assert!(sent.is_empty());
    match output {
        Err(ToolError::InvalidArguments(message)) => message,
        other => panic!("{other:?}"),
    }
}

fn answered(answer: Result<Response, HttpError>, configured: &str) -> Result<Output, ToolError> {
    let arguments = json!({ "method": "GET", "url": "https://api.test/v1/x?key=k#f" });
    let mut script = Script { answer, sent: Vec::new() };
    run(arguments.to_string().as_bytes(), &settings(configured).unwrap(), &mut script)
}

fn value<'a>(request: &'a Request, name: &str) -> Option<&'a str> {
    request.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
}

#[test]
fn a_request_has_the_models_fields() {
    let request = sent(json!({
        "method": "post", "url": "https://API.test/v1/items?a=1#part",
        "query": { "q": "two words & more", "n": 5, "f": true, "none": null },
        "headers": { "X-Trace": " t1 " },
        "body": { "name": "x" }
    }));
    assert_eq!((request.method.as_str(), request.redirects), ("POST", 0));
    assert_eq!(request.url, "https://api.test/v1/items?a=1&q=two+words+%26+more&n=5&f=true");
    assert_eq!(
        (value(&request, "x-trace"), value(&request, "content-type")),
        (Some("t1"), Some("application/json"))
    );
    assert_eq!(request.body, br#"{"name":"x"}"#);
    assert!(request.injections.is_empty());
}

#[test]
fn text_bodies_are_sent_as_they_are() {
    let media = |body: &str| {
        let request = sent(json!({ "method": "PUT", "url": "https://api.test/", "body": body }));
        assert_eq!(request.body, body.as_bytes());
        value(&request, "content-type").map(str::to_owned)
    };
    assert_eq!(media("[1, 2]").as_deref(), Some("application/json"));
    assert_eq!(media("{not json").as_deref(), Some("text/plain; charset=utf-8"));
    assert_eq!(media(""), None);
    let form = json!({
        "method": "POST", "url": "https://api.test/", "body": "a=1",
        "headers": { "content-type": "application/x-www-form-urlencoded" }
    });
    assert_eq!(value(&sent(form), "content-type"), Some("application/x-www-form-urlencoded"));
}

#[test]
fn a_secret_becomes_an_injection_and_never_a_header() {
    let inject = |secret: Value| {
        let request = sent(json!({ "method": "GET", "url": "https://api.test/", "secret": secret }));
        assert!(value(&request, "authorization").is_none());
        let injection = request.injections[0].clone();
        let Placement::Header(placed) = injection.placement else { panic!() };
        (injection.secret, placed.0, placed.1, placed.2)
    };
    let texts = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned(), String::new());
    assert_eq!(inject(json!({ "name": "github_token" })), texts("github_token", "authorization", "Bearer "));
    assert_eq!(inject(json!({ "name": "k", "header": "X-Api-Key" })), texts("k", "x-api-key", ""));
    assert_eq!(inject(json!({ "name": "k", "prefix": "token " })), texts("k", "authorization", "token "));
    for secret in [
        json!({}),
        json!({ "name": "Not A Name" }),
        json!({ "name": "k", "header": "host" }),
        json!({ "name": "k", "header": "a b" }),
        json!({ "name": "k", "prefix": "a\r\nb" }),
        json!({ "name": 7 }),
        json!("k"),
    ] {
        let message = refused(json!({ "method": "GET", "url": "https://api.test/", "secret": secret }), "{}");
        assert!(message.starts_with("secret"), "{message}");
    }
}

#[test]
fn placeholders_become_injections_in_the_values_of_headers_only() {
    let headers = |headers: Value| json!({ "method": "GET", "url": "https://api.test/", "headers": headers });
    let request = sent(headers(
        json!({ "Authorization": "token {{secret:a_1}}", "x-api-key": "{{secret:b}}{{secret:b}}" }),
    ));
    assert_eq!(value(&request, "authorization"), Some("token {{secret:a_1}}"));
    let placed: Vec<_> = request
        .injections
        .iter()
        .map(|injection| match &injection.placement {
            Placement::HeaderPlaceholder((header, text)) => {
                (injection.secret.as_str(), header.as_str(), text.as_str())
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(placed, [("a_1", "authorization", "{{secret:a_1}}"), ("b", "x-api-key", "{{secret:b}}")]);
    for value in ["{{secret:}}", "{{secret:a", "{{secret:{{secret:a}}}}", "{{secret:A}}"] {
        assert!(
            refused(headers(json!({ "authorization": value })), "{}").contains("{{secret:NAME}}"),
            "{value}"
        );
    }
    let five: Vec<String> = (0..5).map(|number| format!("{{{{secret:s{number}}}}}")).collect();
    assert!(refused(headers(json!({ "authorization": five.join(" ") })), "{}").contains("more than 4"));
    for elsewhere in [
        json!({ "method": "GET", "url": "https://api.test/{{secret:a}}" }),
        json!({ "method": "GET", "url": "https://api.test/", "query": { "key": "{{secret:a}}" } }),
        json!({ "method": "GET", "url": "https://api.test/", "query": { "{{secret:a}}": "key" } }),
        json!({ "method": "POST", "url": "https://api.test/", "body": { "key": "{{secret:a}}" } }),
        json!({ "method": "POST", "url": "https://api.test/", "body": "{{secret:a}}" }),
    ] {
        assert!(refused(elsewhere, "{}").contains("placeholder"));
    }
    assert!(refused(headers(json!({ "x-{{secret:a}}": "v" })), "{}").contains("cannot be set"));
}

#[test]
fn wrong_arguments_are_named() {
    let with = |field: &str, value: Value| {
        let mut arguments = json!({ "method": "POST", "url": "https://api.test/" });
        arguments[field] = value;
        refused(arguments, "{}")
    };
    for (field, value) in [
        ("method", json!("TRACE")),
        ("method", json!("")),
        ("url", json!("http://api.test/")),
        ("url", json!("https://u:p@api.test/")),
        ("query", json!({ "a": [1] })),
        ("query", json!("a=1")),
        ("headers", json!({ "host": "evil.test" })),
        ("headers", json!({ "Content-Length": "1" })),
        ("headers", json!({ "proxy-authorization": "x" })),
        ("headers", json!({ "a": "x\r\ny: z" })),
        ("headers", json!({ "a": 1 })),
        ("headers", json!({ "a": "1", "A": "2" })),
        ("body", json!("x".repeat(1024 * 1024 + 1))),
    ] {
        let message = with(field, value);
        assert!(message.starts_with(field), "{field}: {message}");
    }
    let body = json!({ "method": "GET", "url": "https://api.test/", "body": "x" });
    assert_eq!(refused(body, "{}"), "body cannot be sent with GET or HEAD");
}

#[test]
fn settings_narrow_methods_and_hosts() {
    let narrow = r#"{"allowed_methods":["get"],"allowed_hosts":["API.test"]}"#;
    let get = |url: &str| json!({ "method": "GET", "url": url });
    assert!(send(get("https://api.test/x"), narrow).0.is_ok());
    assert_eq!(refused(get("https://www.api.test/"), narrow), "url must be on one of these hosts: api.test");
    let post = json!({ "method": "POST", "url": "https://api.test/" });
    assert_eq!(refused(post, narrow), "method takes GET");
    for wrong in [
        r#"{"allowed_methods":["TRACE"]}"#,
        r#"{"allowed_methods":[]}"#,
        r#"{"allowed_hosts":["https://api.test"]}"#,
        r#"{"allowed_hosts":["*.api.test"]}"#,
        r#"{"allowed_hosts":["127.0.0.1"]}"#,
        r#"{"allowed_hosts":[]}"#,
        r#"{"max_response_chars":0}"#,
    ] {
        let message = settings(wrong).unwrap_err();
        assert!(
            matches!(message, ToolError::InvalidSettings(text) if text.starts_with("parameters.")),
            "{wrong}"
        );
    }
}

#[test]
fn the_model_gets_status_useful_headers_and_body() {
    let output = answered(Ok(response(429, "application/json", b"{\"error\":\"slow down\"}")), "{}").unwrap();
    assert!(output.for_model.starts_with("Status: 429\ncontent-type: application/json\nretry-after: 7\n"));
    assert!(
        output.for_model.ends_with("{\"error\":\"slow down\"}") && !output.for_model.contains("session=1")
    );
    let item: Value = serde_json::from_slice(&output.item).unwrap();
    assert_eq!(
        item,
        json!({ "method": "GET", "url": "https://api.test/v1/x", "http_status": 429, "error": "HTTP status 429" })
    );
    let ok = answered(Ok(response(204, "", b"")), "{}").unwrap();
    assert!(ok.for_model.ends_with("(empty)"));
    assert_eq!(serde_json::from_slice::<Value>(&ok.item).unwrap().get("error"), None);
}

#[test]
fn bodies_are_cut_decoded_or_described() {
    let body = |content_type: &str, bytes: &[u8], configured: &str| {
        let told = answered(Ok(response(200, content_type, bytes)), configured).unwrap().for_model;
        told.split_once("instruction:\n").unwrap().1.to_owned()
    };
    assert_eq!(body("text/html", b"<p>as it is</p>", "{}"), "<p>as it is</p>");
    assert_eq!(body("text/plain; charset=latin1", b"gr\xfcn", "{}"), "grün");
    assert_eq!(
        body("image/png", b"\x89PNG\0", "{}"),
        "(5 bytes of image/png, not shown because it is not text)"
    );
    assert_eq!(
        body("text/plain", "äöü".as_bytes(), r#"{"max_response_chars":2}"#),
        "äö\n[cut after 2 characters of 6 bytes]"
    );
}

#[test]
fn errors_of_the_network_fail_the_call_with_a_sentence() {
    for error in [HttpError::Denied, HttpError::SecretUnavailable, HttpError::Timeout] {
        assert!(
            matches!(answered(Err(error), "{}"), Err(ToolError::Failed(message)) if message.ends_with('.'))
        );
    }
}

#[test]
fn offers_one_function_with_the_same_bytes_each_time() {
    let offer = |settings: &str| {
        let context = CallContext { request_id: "r".into(), workspace: "w".into(), now_ms: 1 };
        let functions = HttpRequest::functions(settings.as_bytes().to_vec(), context).unwrap();
        let [function] = functions.as_slice() else { panic!() };
        (function.name.clone(), serde_json::from_slice::<Value>(&function.parameters).unwrap())
    };
    assert_eq!(offer("{}"), offer("null"));
    let (name, schema) = offer(r#"{"allowed_hosts":["api.test"],"allowed_methods":["POST","GET"]}"#);
    assert_eq!(name, "http_request");
    assert_eq!(schema["properties"]["method"]["enum"], json!(["GET", "POST"]));
    assert!(schema["properties"]["url"]["description"].as_str().unwrap().contains("api.test"));
}

proptest! {
    #[test]
    fn no_arguments_and_no_answer_break_the_tool(
        bytes in proptest::collection::vec(any::<u8>(), 0..80),
        text in "\\PC{0,40}",
        content_type in "\\PC{0,20}",
    ) {
        let mut script = Script { answer: Ok(response(200, &content_type, &bytes)), sent: Vec::new() };
        let settings = settings(r#"{"max_response_chars":50}"#).unwrap();
        drop(run(&bytes, &settings, &mut script));
        let arguments = json!({
            "method": "POST", "url": format!("https://api.test/{text}"), "query": { &text: &text },
            "headers": { "x-a": &text }, "body": &text
        });
        if let Ok(output) = run(arguments.to_string().as_bytes(), &settings, &mut script) {
            prop_assert!(output.for_model.chars().count() < 8_000);
        }
    }
}
