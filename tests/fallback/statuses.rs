//! Every status a provider can answer with, alone and before a provider that answers.

use super::{ask, pair, request};
use crate::kit::client::{Client, text_of};
use crate::kit::config::{MODEL, provider, several};
use crate::kit::host::Setup;
use crate::kit::script::{self, word};
use crate::kit::upstream::{Reply, Upstream, sse_event};
use serde_json::{Value, json};

/// The provider's status, the status for the client when all providers answer so, the error type,
/// and whether the next endpoint is tried.
const STATUSES: [(u16, u16, &str, bool); 18] = [
    (400, 400, "invalid_request", false),
    (404, 404, "not_found", false),
    (413, 413, "payload_too_large", false),
    (422, 422, "unprocessable", false),
    (401, 502, "provider_unavailable", true),
    (402, 502, "provider_unavailable", true),
    (403, 502, "provider_unavailable", true),
    (408, 504, "timeout", true),
    (429, 429, "rate_limit_exceeded", true),
    (500, 502, "provider_unavailable", true),
    (501, 502, "provider_unavailable", true),
    (502, 502, "provider_unavailable", true),
    (503, 502, "provider_overloaded", true),
    (504, 502, "provider_unavailable", true),
    (529, 529, "provider_overloaded", true),
    (599, 502, "provider_unavailable", true),
    (418, 502, "provider_unavailable", true),
    (304, 502, "provider_unavailable", true),
];

#[tokio::test]
async fn every_status_has_its_rule() {
    let (a, b, host) = pair().await;
    let client = Client::new(&host);
    let (mut whole, mut streamed) = (request(), request());
    whole["stream"] = json!(false);
    streamed["stream"] = json!(true);
    let cases = STATUSES.into_iter().flat_map(|case| [(case, &whole), (case, &streamed)]);
    for ((upstream, status, kind, goes_on), request) in cases {
        let before = b.asked().len();
        a.reply(script::refusal(upstream, "their words"));
        if goes_on {
            b.reply(script::refusal(upstream, "their words"));
        }
        let answer = client.post("/responses", request).await;
        assert_eq!(answer.status, status, "{upstream}: {}", answer.text);
        assert_eq!(answer.body["error"]["code"], status);
        assert_eq!(answer.body["error"]["metadata"]["error_type"], kind, "{upstream}: {}", answer.text);
        assert_eq!(b.asked().len() - before, usize::from(goes_on), "{upstream}");
    }
}

#[tokio::test]
async fn a_providers_error_is_returned_unless_it_is_about_the_operators_key_or_its_own_fault() {
    let (a, b, host) = pair().await;
    let client = Client::new(&host);
    for (upstream, .., goes_on) in STATUSES.into_iter().filter(|(upstream, ..)| *upstream >= 400) {
        a.reply(script::refusal(upstream, "first words"));
        if goes_on {
            b.reply(script::refusal(upstream, "last words"));
        }
        let answer = client.post("/responses", &request()).await;
        let raw = &answer.body["error"]["metadata"]["raw"];
        if matches!(upstream, 401..=403 | 500) {
            assert_eq!(raw, &Value::Null, "{upstream}: {}", answer.text);
            continue;
        }
        let told: Value =
            serde_json::from_str(raw.as_str().unwrap_or_else(|| panic!("{}", answer.text))).unwrap();
        let words = if goes_on { "last words" } else { "first words" };
        assert_eq!(told["error"]["message"], words, "{upstream}");
    }
    let long = "\u{e9}".repeat(4096);
    a.reply(script::refusal(400, &long));
    let answer = client.post("/responses", &request()).await;
    let raw = answer.body["error"]["metadata"]["raw"].as_str().unwrap();
    assert!(raw.len() > 4000 && raw.len() <= 4100, "{}", raw.len());
}

#[tokio::test]
async fn after_every_status_that_goes_on_the_next_endpoint_answers() {
    let (a, b, host) = pair().await;
    for (upstream, ..) in STATUSES.into_iter().filter(|(.., goes_on)| *goes_on) {
        a.reply(script::refusal(upstream, "no"));
        b.reply(script::chat("from b"));
        assert_eq!(ask(&host, &request()).await.output_text(), "from b", "{upstream}");
    }
}

#[tokio::test]
async fn invalid_answers_go_on_to_the_next_endpoint() {
    let (a, b, host) = pair().await;
    let html = |status: u16| Reply::Whole {
        status,
        headers: vec![("content-type", "text/html".to_owned())],
        body: "<html>Bad gateway</html>".to_owned(),
    };
    for reply in [
        Reply::json(200, json!({})),
        Reply::json(200, json!({"choices": []})),
        Reply::json(200, json!([])),
        Reply::json(200, json!({"error": {"message": "busy", "code": 503}})),
        script::chat(""),
        html(200),
        html(502),
        Reply::Whole { status: 200, headers: Vec::new(), body: String::new() },
        Reply::Whole { status: 204, headers: Vec::new(), body: String::new() },
        Reply::Cut { content_type: "application/json", pieces: vec!["{\"choices\":".to_owned()] },
    ] {
        a.reply(reply);
        b.reply(script::chat("from b"));
        assert_eq!(ask(&host, &request()).await.output_text(), "from b");
    }
}

#[tokio::test]
async fn a_providers_words_are_passed_on_only_where_they_help() {
    let (a, b, host) = pair().await;
    for (status, words) in [(400, "messages[0] is too odd"), (422, "be shorter")] {
        a.reply(script::refusal(status, words));
        let told = format!("Provider returned error: {words}");
        assert_eq!(ask(&host, &request()).await.message(), told);
    }
    for status in [401, 500] {
        a.reply(script::refusal(status, "inner words"));
        b.reply(script::refusal(status, "inner words"));
        let answer = ask(&host, &request()).await;
        assert!(!answer.text.contains("inner words"), "{}", answer.text);
    }
}

#[tokio::test]
async fn retry_after_is_sent_only_when_all_providers_are_limited() {
    let (a, b, host) = pair().await;
    let limited = |seconds: &str| script::limited(429, seconds);
    a.reply(limited("3"));
    b.reply(limited("7"));
    let all = ask(&host, &request()).await;
    assert_eq!(all.status, 429, "{}", all.text);
    // The shortest of the waits is enough.
    assert_eq!(all.headers["retry-after"], "3");
    for (first, second) in
        [(limited("3"), script::refusal(500, "no")), (script::refusal(500, "no"), limited("3"))]
    {
        a.reply(first);
        b.reply(second);
        let mixed = ask(&host, &request()).await;
        assert_eq!(mixed.status, 502, "{}", mixed.text);
        assert!(mixed.headers.get("retry-after").is_none());
    }
}

#[tokio::test]
async fn redirects_are_never_followed() {
    let (a, b, host) = pair().await;
    for status in [301, 302, 303, 307, 308] {
        for _ in 0..2 {
            let headers = vec![("location", b.base.clone())];
            a.reply(Reply::Whole { status, headers: headers.clone(), body: String::new() });
        }
        let mut request = request();
        request["provider"] = json!({"only": ["a"]});
        let answer = ask(&host, &request).await;
        assert_eq!((answer.status, answer.message()), (502, "Provider returned error"), "{status}");
    }
    assert!(b.asked().is_empty());
    assert_eq!(a.asked().len(), 5);
}

/// [`crate::kit::config::MODEL`] at two endpoints that must send a first event within 300 ms.
fn impatient(more: &str, a: &Upstream, b: &Upstream) -> String {
    let endpoint = |name| format!("{{ provider = \"{name}\", model = \"up\", first_event_ms = 300 }}");
    let list = [endpoint("a"), endpoint("b")].join(", ");
    more.to_owned()
        + &provider("a", "openai-chat", &a.base)
        + &provider("b", "openai-chat", &b.base)
        + &format!("[[models]]\nid = \"{MODEL}\"\nendpoints = [{list}]\n")
}

#[tokio::test]
async fn only_the_total_time_limits_the_head_of_a_whole_answer() {
    let a = Upstream::start().await;
    // No provider answers within a millisecond.
    let host =
        Setup::new().config(&format!("[timeouts]\nfirst_event_ms = 1\n{}", several(&[&a.base]))).start();
    a.reply(script::chat("whole"));
    assert_eq!(ask(&host, &request()).await.output_text(), "whole");
    drop(host);
    let host = Setup::new().config(&format!("[timeouts]\ntotal_ms = 1000\n{}", several(&[&a.base]))).start();
    a.reply(Reply::Hang);
    let answer = ask(&host, &request()).await;
    assert_eq!((answer.status, answer.message()), (504, "The operation was aborted due to timeout"));
}

#[tokio::test]
async fn the_time_of_an_endpoint_replaces_that_of_the_host() {
    let a = Upstream::start().await;
    let endpoint = "{ provider = \"a\", model = \"up\", first_event_ms = 60000 }";
    let config = "[timeouts]\nfirst_event_ms = 1\n".to_owned()
        + &provider("a", "openai-chat", &a.base)
        + &format!("[[models]]\nid = \"{MODEL}\"\nendpoints = [{endpoint}]\n");
    let host = Setup::new().config(&config).start();
    a.reply(script::chat_stream(&["patient"]));
    assert_eq!(text_of(&Client::new(&host).stream(&request()).await), "patient");
}

#[tokio::test]
async fn no_provider_beginning_in_time_is_a_gateway_timeout() {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let host = Setup::new().config(&impatient("", &a, &b)).start();
    for streamed in [false, true] {
        a.reply(Reply::Hang);
        b.reply(Reply::Hang);
        let mut request = request();
        request["stream"] = json!(streamed);
        let answer = ask(&host, &request).await;
        assert_eq!(answer.status, 504, "{}", answer.text);
        assert_eq!(answer.message(), "The operation was aborted due to timeout");
        assert_eq!(answer.body["error"]["metadata"]["error_type"], "timeout");
    }
    assert_eq!((a.asked().len(), b.asked().len()), (2, 2));
}

#[tokio::test]
async fn comments_are_no_first_event() {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let config =
        format!("[timeouts]\nfirst_event_ms = 500\ntotal_ms = 20000\n{}", several(&[&a.base, &b.base]));
    let host = Setup::new().config(&config).start();
    a.reply(Reply::Comments);
    b.reply(script::chat_stream(&["from b"]));
    let events = Client::new(&host).stream(&request()).await;
    assert_eq!(text_of(&events), "from b");
}

#[tokio::test]
async fn a_whole_answer_that_began_and_takes_too_long_is_524() {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let config = format!("[timeouts]\ntotal_ms = 4000\n{}", several(&[&a.base, &b.base]));
    let host = Setup::new().config(&config).start();
    // The first request compiles the plugins, so that this time does not count below.
    a.reply(script::chat("first"));
    assert_eq!(ask(&host, &request()).await.output_text(), "first");
    let (words, reply) = fed_json();
    a.reply(reply);
    words.send("{\"choices\":".to_owned()).await.unwrap();
    let answer = ask(&host, &request()).await;
    assert_eq!(answer.status, 524, "{}", answer.text);
    assert_eq!(answer.message(), "Request timed out. Please try again later.");
    assert!(b.asked().is_empty(), "there is no time left to try another");
    drop(words);
    // An answer that broke off had begun, too.
    a.reply(Reply::Cut { content_type: "application/json", pieces: vec!["{\"choices\":".to_owned()] });
    b.reply(Reply::Hang);
    assert_eq!(ask(&host, &request()).await.status, 524);
}

#[tokio::test]
async fn a_stream_that_never_began_in_the_total_time_is_504() {
    let a = Upstream::start().await;
    let config = format!("[timeouts]\ntotal_ms = 1000\n{}", several(&[&a.base]));
    let host = Setup::new().config(&config).start();
    let (words, reply) = Reply::fed();
    a.reply(reply);
    words.send(sse_event(&script::opening())).await.unwrap();
    let mut request = request();
    request["stream"] = json!(true);
    let answer = ask(&host, &request).await;
    assert_eq!(answer.status, 504, "{}", answer.text);
    drop(words);
}

#[tokio::test]
async fn a_slow_provider_gives_way_to_the_next() {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let host = Setup::new().config(&impatient("[timeouts]\nidle_ms = 300\n", &a, &b)).start();
    let (words, reply) = fed_json();
    a.reply(Reply::Hang);
    a.reply(reply);
    words.send("{\"choices\":".to_owned()).await.unwrap();
    for _ in 0..2 {
        b.reply(script::chat("from b"));
        assert_eq!(ask(&host, &request()).await.output_text(), "from b");
    }
    drop(words);
}

#[tokio::test]
async fn errors_inside_a_successful_answer_follow_the_same_rules() {
    let (a, b, host) = pair().await;
    let error = |code: Value| Reply::json(200, json!({"error": {"message": "their words", "code": code}}));
    for (code, status, goes_on) in [
        (json!("context_length_exceeded"), 400, false),
        (json!("rate_limit_exceeded"), 429, true),
        (json!("invalid_api_key"), 502, true),
        (json!("server_overloaded"), 502, true),
        (json!(500), 502, true),
    ] {
        let before = b.asked().len();
        a.reply(error(code.clone()));
        if goes_on {
            b.reply(error(code.clone()));
        }
        let answer = ask(&host, &request()).await;
        assert_eq!(answer.status, status, "{code}: {}", answer.text);
        assert_eq!(b.asked().len() - before, usize::from(goes_on), "{code}");
    }
    let before = b.asked().len();
    a.reply(Reply::sse(&[
        json!({"error": {"message": "too long", "code": "context_length_exceeded"}}),
        word("x"),
    ]));
    let mut streamed = request();
    streamed["stream"] = json!(true);
    assert_eq!(ask(&host, &streamed).await.status, 400);
    assert_eq!(b.asked().len(), before);
}

/// A JSON body that the test sends in pieces.
fn fed_json() -> (tokio::sync::mpsc::Sender<String>, Reply) {
    let (words, pieces) = tokio::sync::mpsc::channel(8);
    (words, Reply::Fed { content_type: "application/json", pieces })
}

#[tokio::test]
async fn the_last_word_of_a_limited_provider_counts() {
    let a = Upstream::start().await;
    let host = Setup::new().config(&several(&[&a.base])).start();
    a.reply(script::limited(429, "0"));
    a.reply(script::limited(429, "300"));
    let answer = ask(&host, &request()).await;
    assert_eq!((answer.status, a.asked().len()), (429, 2), "{}", answer.text);
    assert_eq!(answer.headers["retry-after"], "300");
}

/// One provider may be asked again at once and says then that it is closed for long. The other one opens first.
#[tokio::test]
async fn the_wait_of_the_limited_provider_that_opens_first_is_told() {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let host = Setup::new().config(&several(&[&a.base, &b.base])).start();
    a.reply(script::limited(429, "0"));
    a.reply(script::limited(429, "300"));
    b.reply(script::limited(429, "5"));
    let answer = ask(&host, &request()).await;
    assert_eq!((answer.status, a.asked().len(), b.asked().len()), (429, 2, 1), "{}", answer.text);
    assert_eq!(answer.headers["retry-after"], "5");
}
