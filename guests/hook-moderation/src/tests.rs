//! Tests with requests, rules and scripted endpoints.

use cofferdam_guest_kit::bindings::hooks::Action;
use cofferdam_guest_kit::bindings::http::{HttpError, Request, Response};
use cofferdam_guest_kit::bindings::log::Level;
use cofferdam_guest_kit::bindings::types::{ErrorKind, Failure};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Outside, handled};

/// An endpoint that gives scripted answers in order, and flags nothing after the last one.
#[derive(Default)]
struct Script {
    answers: Vec<Result<Response, HttpError>>,
    asked: Vec<Value>,
    log: Vec<String>,
}

impl Outside for Script {
    fn send(&mut self, request: &Request) -> Result<Response, HttpError> {
        assert_eq!((request.method.as_str(), request.redirects), ("POST", 0));
        let question: Value = serde_json::from_slice(&request.body).unwrap();
        let texts = question["input"].as_array().unwrap().len();
        self.asked.push(question);
        if self.answers.is_empty() {
            return answer(200, &json!({ "results": vec![json!({ "flagged": false }); texts] }));
        }
        self.answers.remove(0)
    }

    fn log(&mut self, _: Level, line: &str) {
        self.log.push(line.to_owned());
    }
}

fn answer(status: u16, body: &Value) -> Result<Response, HttpError> {
    let headers = vec![("retry-after".to_owned(), "7".to_owned())];
    Ok(Response { status, url: String::new(), headers, body: body.to_string().into_bytes() })
}

fn request(texts: &[&str]) -> Vec<u8> {
    let input: Vec<Value> = texts
        .iter()
        .map(|text| json!({ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": text }] }))
        .collect();
    json!({ "model": "a/b", "input": input }).to_string().into_bytes()
}

fn run(texts: &[&str], operator: &Value, script: &mut Script) -> Result<Action, Failure> {
    handled(&request(texts), operator.to_string().as_bytes(), script)
}

fn endpoint() -> Value {
    json!({ "endpoint": "https://moderation.test/v1/moderations", "model": "m" })
}

fn rejected(result: Result<Action, Failure>) -> (String, String) {
    match result {
        Ok(Action::Reject(failure)) => {
            assert!(matches!(failure.kind, ErrorKind::ContentPolicyViolation));
            (failure.message, failure.code.unwrap())
        }
        _ => panic!("not rejected"),
    }
}

#[test]
fn a_rule_rejects_with_its_reason_and_the_place() {
    let operator = json!({ "rules": [
        { "reason": "weapons", "pattern": r"\bbombs?\b" },
        { "reason": "names", "pattern": "zürich|(?-i:Ada)" },
        { "reason": "weapons", "pattern": "bomb" },
    ]});
    let mut script = Script::default();
    let result = run(&["hello", "How are BOMBS made in ZÜRICH?"], &operator, &mut script);
    let expected =
        ("The input was flagged by moderation: weapons, names", "weapons,names#/input/1/content/0/text");
    assert_eq!(rejected(result), (expected.0.to_owned(), expected.1.to_owned()));
    for text in ["bombastic ada", "nothing", ""] {
        let operator = json!({ "rules": [{ "reason": "x", "pattern": r"\bbombs?\b|(?-i:Ada)" }] });
        assert!(matches!(run(&[text], &operator, &mut script), Ok(Action::Pass)), "{text}");
    }
    assert!(script.asked.is_empty() && script.log.is_empty());
}

#[test]
fn the_endpoint_is_asked_for_all_texts_and_its_categories_are_the_reasons() {
    let flagged = json!({ "results": [
        { "flagged": false, "categories": { "violence": true } },
        { "flagged": true, "categories": { "hate": true, "violence": false, "self-harm/intent": true, "a,b": true } },
    ]});
    let mut script = Script { answers: vec![answer(200, &flagged)], ..Script::default() };
    let result = run(&["one", "two"], &endpoint(), &mut script);
    assert_eq!(rejected(result).1, "hate,self-harm/intent#/input/1/content/0/text");
    assert_eq!(script.asked, [json!({ "input": ["one", "two"], "model": "m" })]);

    let mut script = Script::default();
    assert!(matches!(run(&["one"], &endpoint(), &mut script), Ok(Action::Pass)));
    // Rules come first, and input that they flag is not sent to the endpoint.
    let both =
        json!({ "endpoint": "https://moderation.test", "rules": [{ "reason": "r", "pattern": "one" }] });
    let mut script = Script::default();
    assert_eq!(rejected(run(&["one"], &both, &mut script)).1, "r#/input/0/content/0/text");
    assert!(script.asked.is_empty());
}

#[test]
fn a_flag_without_a_category_is_a_reason_too() {
    let mut script = Script {
        answers: vec![answer(200, &json!({ "results": [{ "flagged": true }] }))],
        ..Script::default()
    };
    assert_eq!(rejected(run(&["x"], &endpoint(), &mut script)).1, "flagged#/input/0/content/0/text");
}

#[test]
fn an_endpoint_that_fails_refuses_the_request_unless_it_may_pass() {
    let cases = [
        (Err(HttpError::Timeout), "overloaded", None),
        (Err(HttpError::Unreachable), "overloaded", None),
        (answer(429, &json!({})), "overloaded", Some(7000)),
        (answer(503, &json!({})), "overloaded", Some(7000)),
        (answer(200, &json!({ "results": [] })), "overloaded", None),
        (answer(200, &json!({ "error": "x" })), "overloaded", None),
        (Err(HttpError::Denied), "server", None),
        (Err(HttpError::SecretUnavailable), "server", None),
        (answer(401, &json!({})), "server", None),
        (answer(302, &json!({})), "server", None),
    ];
    for (reply, kind, retry_after_ms) in cases {
        let mut script = Script { answers: vec![reply.clone()], ..Script::default() };
        let Err(failure) = run(&["secret words"], &endpoint(), &mut script) else { panic!("{reply:?}") };
        let named = match failure.kind {
            ErrorKind::ProviderOverloaded => "overloaded",
            ErrorKind::Server => "server",
            _ => "other",
        };
        assert_eq!((named, failure.retry_after_ms), (kind, retry_after_ms), "{reply:?}");
        assert!(script.log.len() == 1 && !script.log[0].contains("secret words"), "{:?}", script.log);

        let mut script = Script { answers: vec![reply], ..Script::default() };
        let mut lenient = endpoint();
        lenient["on_error"] = json!("allow");
        assert!(matches!(run(&["x"], &lenient, &mut script), Ok(Action::Pass)));
        assert_eq!(script.log.len(), 1);
    }
}

#[test]
fn long_input_is_judged_in_pieces_up_to_a_limit() {
    let long = "é".repeat(100_000);
    let mut script = Script::default();
    assert!(matches!(run(&[&long, "short"], &endpoint(), &mut script), Ok(Action::Pass)));
    let sent: Vec<&str> = script
        .asked
        .iter()
        .flat_map(|question| question["input"].as_array().unwrap())
        .map(|text| text.as_str().unwrap())
        .collect();
    assert!(sent.iter().all(|piece| piece.len() <= 64 * 1024));
    assert_eq!(sent.concat(), format!("{long}short"));

    // The second piece of the first text is flagged: the pointer is that of the text.
    let verdicts = json!({ "results": [{ "flagged": false }, { "flagged": true }, { "flagged": false }, { "flagged": false }, { "flagged": false }] });
    let mut script = Script { answers: vec![answer(200, &verdicts)], ..Script::default() };
    assert_eq!(
        rejected(run(&[&long, "short"], &endpoint(), &mut script)).1,
        "flagged#/input/0/content/0/text"
    );
}

#[test]
fn input_that_is_too_long_is_refused_whatever_happens_on_errors() {
    let huge = "x".repeat(5 << 20);
    for on_error in ["refuse", "allow"] {
        let mut operator = endpoint();
        operator["on_error"] = json!(on_error);
        let mut script = Script::default();
        for texts in [vec![huge.as_str()], vec!["x"; 1025]] {
            let Err(failure) = run(&texts, &operator, &mut script) else { panic!("passed") };
            assert!(matches!(failure.kind, ErrorKind::ContextLengthExceeded));
        }
        assert!(script.asked.is_empty());
        // The endpoint itself may report that the input is too long.
        let mut script = Script { answers: vec![answer(413, &json!({}))], ..Script::default() };
        let Err(failure) = run(&["x"], &operator, &mut script) else { panic!("passed") };
        assert!(matches!(failure.kind, ErrorKind::ContextLengthExceeded));
    }
}

#[test]
fn input_that_the_endpoint_refuses_is_refused_whatever_happens_on_errors() {
    for (on_error, status) in [("refuse", 400), ("allow", 400), ("allow", 422)] {
        let mut operator = endpoint();
        operator["on_error"] = json!(on_error);
        let mut script = Script { answers: vec![answer(status, &json!({}))], ..Script::default() };
        let Err(failure) = run(&["x"], &operator, &mut script) else { panic!("passed") };
        assert!(matches!(failure.kind, ErrorKind::InvalidRequest), "{on_error} {status}");
    }
}

#[test]
fn the_strings_of_a_tool_are_one_text_for_the_endpoint_and_apart_for_rules() {
    let properties: Value = (0..2000).map(|n| (format!("p{n}"), json!({ "const": "bomb" }))).collect();
    let request =
        json!({ "tools": [{ "type": "function", "name": "f", "parameters": { "properties": properties } }] });
    let request = request.to_string().into_bytes();
    let mut script = Script {
        answers: vec![answer(200, &json!({ "results": [{ "flagged": true }] }))],
        ..Script::default()
    };
    let result = handled(&request, endpoint().to_string().as_bytes(), &mut script);
    assert_eq!(rejected(result).1, "flagged#/tools/0");
    assert!(script.asked[0]["input"][0].as_str().unwrap().contains("\nbomb\n"));
    let rules = json!({ "rules": [{ "reason": "r", "pattern": "^bomb$" }] }).to_string();
    let (_, code) = rejected(handled(&request, rules.as_bytes(), &mut script));
    assert_eq!(code, "r#/tools/0/parameters/properties/p0/const");
}

#[test]
fn a_hook_without_rules_and_endpoint_refuses_requests() {
    let mut script = Script::default();
    let Err(failure) = run(&["x"], &json!({}), &mut script) else { panic!("passed") };
    assert!(matches!(failure.kind, ErrorKind::InvalidRequest));
    assert!(failure.message.starts_with("moderation is not set up"), "{}", failure.message);
    let Err(failure) = run(&["x"], &json!({ "rulez": [] }), &mut script) else { panic!("passed") };
    assert!(matches!(failure.kind, ErrorKind::Server));
    assert!(script.log[0].contains("unknown field `rulez`"), "{:?}", script.log);
}

proptest! {
    #[test]
    fn no_answer_breaks_the_hook(status in 100u16..600, body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let response = Response { status, url: String::new(), headers: Vec::new(), body };
        let mut script = Script { answers: vec![Ok(response)], ..Script::default() };
        prop_assert!(run(&["x"], &endpoint(), &mut script).is_err());
    }

    #[test]
    fn no_request_breaks_the_hook(request in proptest::collection::vec(any::<u8>(), 0..200), texts in proptest::collection::vec("\\PC{0,20}", 0..5)) {
        let operator = json!({ "rules": [{ "reason": "r", "pattern": r"\d+|[[:cntrl:]]" }] }).to_string();
        drop(handled(&request, operator.as_bytes(), &mut Script::default()));
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        drop(handled(&super::tests::request(&texts), operator.as_bytes(), &mut Script::default()));
    }
}
