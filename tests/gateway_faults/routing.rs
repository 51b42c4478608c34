//! Complaints about other gateways: fallbacks, streams that break, conversations that change
//! providers, and attempts that influence later ones.

use crate::kit::admin::Admin;
use crate::kit::client::{Answer, Client, last_response, text_of, types_of};
use crate::kit::config::{MODEL, model, priced, provider, several, single};
use crate::kit::host::{Host, Setup};
use crate::kit::script::{self, word};
use crate::kit::store::usage_of;
use crate::kit::upstream::{Reply, Upstream};
use serde_json::{Value, json};

const METADATA: [(&str, &str); 1] = [("x-service-metadata", "enabled")];

fn request() -> Value {
    json!({"model": MODEL, "input": "x", "provider": {"sort": "price"}})
}

async fn ask(host: &Host, request: &Value) -> Answer {
    Client::new(host).post_with("/responses", request, &METADATA).await
}

/// In other gateways the provider's first events are valid and the quota error comes later, so no
/// fallback runs. Every dialect's form of it is tested in
/// `streaming::every_dialect_falls_back_before_its_first_word`.
#[tokio::test]
async fn a_quota_error_behind_valid_first_events_runs_the_fallback() {
    let (own, chat) = (Upstream::start().await, Upstream::start().await);
    let config = provider("a", "openai-responses", &own.base)
        + &provider("b", "openai-chat", &chat.base)
        + &model(MODEL, "responses", &["a", "b"]);
    let host = Setup::new().config(&config).start();
    let begun = json!({"id": "resp_up", "object": "response", "status": "in_progress", "output": []});
    let quota = json!({"code": "insufficient_quota", "message": "You exceeded your quota"});
    let mut failed = begun.clone();
    failed["status"] = json!("failed");
    failed["error"] = quota;
    own.reply(Reply::sse(&[
        json!({"type": "response.created", "sequence_number": 0, "response": begun}),
        json!({"type": "response.in_progress", "sequence_number": 1, "response": begun}),
        json!({"type": "response.failed", "sequence_number": 2, "response": failed}),
    ]));
    chat.reply(script::chat_stream(&["from b"]));
    let events = Client::new(&host).stream_with(&request(), &METADATA).await;
    assert_eq!(text_of(&events), "from b");
    assert_eq!(types_of(&events).iter().filter(|kind| **kind == "response.created").count(), 1);
    let attempts = &last_response(&events)["service_metadata"]["attempts"];
    assert_eq!(attempts[0]["provider"], "a", "{attempts}");
    assert!(attempts[0]["error_type"].is_string(), "{attempts}");
}

/// In other gateways a response that is cut off ends like a complete one. The event that ends such
/// a stream is tested in `streaming::response_that_breaks_off_fails_and_never_completes`; here the
/// endpoint is also avoided afterwards.
#[tokio::test]
async fn an_endpoint_that_cuts_off_responses_is_avoided() {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let host = Setup::new().config(&several(&[&a.base, &b.base])).start();
    // Only the price decides the order: endpoint `a` is free.
    let request = json!({"model": MODEL, "input": "x"});
    a.reply(Reply::cut(&[script::opening(), word("half")]));
    let events = Client::new(&host).stream_with(&request, &METADATA).await;
    assert_eq!(events.last().unwrap()["type"], "response.failed");
    let metadata = &last_response(&events)["service_metadata"];
    let available = metadata["endpoints"]["available"].as_array().unwrap();
    assert!(available.iter().all(|endpoint| endpoint["selected"] == false), "{metadata}");
    b.reply(script::chat("from b"));
    assert_eq!(ask(&host, &request).await.output_text(), "from b");
    assert_eq!(a.asked().len(), 1, "it failed within the last half minute");
}

/// Counting at the first event calls each of these attempts answered, so that a provider whose streams all break looks
/// well.
#[tokio::test]
async fn a_stream_that_breaks_off_counts_as_a_failed_attempt() {
    let upstream = Upstream::start().await;
    let host = Setup::new().config(&single("openai-chat", &upstream.base)).start();
    let (client, admin) = (Client::new(&host), Admin::new(&host));
    let attempts = |outcome| format!("cofferdam_attempts_total{{provider=\"one\",outcome=\"{outcome}\"}}");
    upstream.reply(Reply::cut(&[script::opening(), word("half")]));
    let events = client.stream(&request()).await;
    assert_eq!(events.last().unwrap()["type"], "response.failed");
    admin.until_metric(&attempts("failed"), 1).await;
    assert_eq!(admin.metric(&attempts("answered")).await, 0);
    upstream.reply(script::chat_stream(&["whole"]));
    assert_eq!(text_of(&client.stream(&request()).await), "whole");
    admin.until_metric(&attempts("answered"), 1).await;
    assert_eq!(admin.metric(&attempts("failed")).await, 1);
}

/// In other gateways an error inside a stream with status 200 becomes an empty, completed response.
#[tokio::test]
async fn an_error_inside_a_stream_fails_the_response() {
    let a = Upstream::start().await;
    let host = Setup::new().config(&single("openai-chat", &a.base)).start();
    let error = json!({"error": {"message": "overloaded", "type": "overloaded_error", "code": 529}});
    a.reply(Reply::sse(&[word("half"), error, json!("[DONE]")]));
    let events = Client::new(&host).stream(&request()).await;
    let response = last_response(&events);
    assert_eq!(events.last().unwrap()["type"], "response.failed");
    assert_eq!(
        (&response["status"], &response["error_type"]),
        (&json!("failed"), &json!("provider_overloaded"))
    );
    assert!(!types_of(&events).contains(&"response.completed"));
    assert_eq!(response["output"][0]["status"], "incomplete", "what was said stays");
}

/// In other gateways a fallback that fails as well has already sent events and a 200 to the client.
#[tokio::test]
async fn fallbacks_that_fail_too_show_nothing() {
    let upstreams = [Upstream::start().await, Upstream::start().await, Upstream::start().await];
    let [a, b, c] = &upstreams;
    let host = Setup::new().config(&several(&[&a.base, &b.base, &c.base])).start();
    let broken = || Reply::sse(&[script::opening(), json!({"error": {"message": "no", "code": 500}})]);
    for upstream in [a, b] {
        upstream.reply(broken());
    }
    c.reply(script::chat_stream(&["from c"]));
    let events = Client::new(&host).stream(&request()).await;
    assert_eq!(text_of(&events), "from c");
    assert_eq!(types_of(&events).iter().filter(|kind| **kind == "response.created").count(), 1);
    for upstream in [a, b, c] {
        upstream.reply(broken());
    }
    let mut request = request();
    request["stream"] = json!(true);
    let answer = ask(&host, &request).await;
    assert_eq!(answer.status, 502, "{}", answer.text);
    assert!(!answer.text.contains("response.created"), "{}", answer.text);
}

/// In other gateways the fallback does not run although the first provider answers 503.
#[tokio::test]
async fn a_503_falls_back_to_the_next_provider_by_default() {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let host = Setup::new().config(&several(&[&a.base, &b.base])).start();
    a.reply(script::refusal(503, "busy"));
    b.reply(script::chat("from b"));
    let answer = ask(&host, &json!({"model": MODEL, "input": "x"})).await;
    assert_eq!(answer.output_text(), "from b");
    let metadata = &answer.body["service_metadata"];
    assert_eq!(metadata["attempt"], 2);
    let reason = json!({"provider": "a", "model": MODEL, "status": 503, "error_type": "provider_overloaded"});
    assert_eq!(metadata["attempts"][0], reason);
    assert_eq!(metadata["summary"], "available=2, selected=b, failed=1");
}

/// In other gateways the turns of one conversation go to different providers. More tests in
/// `routing::sessions`.
#[tokio::test]
async fn a_conversation_stays_with_its_provider_until_that_fails() {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let config = priced(&[(&a.base, 1.0), (&b.base, 1.0)]);
    let host = Setup::new().config(&config).start();
    let request = json!({"model": MODEL, "input": "x", "session_id": "mine"});
    let mut answered = Vec::new();
    for turn in 0..24 {
        for (upstream, name) in [(&a, "a"), (&b, "b")] {
            upstream.clear();
            // In the twelfth turn the endpoint of the conversation fails.
            let breaks = turn == 12 && answered.last().is_some_and(|last| last == name);
            let reply = breaks.then(|| script::refusal(500, "broken"));
            upstream.reply(reply.unwrap_or_else(|| script::chat(name)));
        }
        answered.push(ask(&host, &request).await.output_text().to_owned());
    }
    let (before, after) = answered.split_at(12);
    assert!(before.iter().all(|name| *name == before[0]), "{answered:?}");
    assert!(after.iter().all(|name| *name == after[0] && *name != before[0]), "{answered:?}");
}

/// In other gateways rows are lost when a provider repeats its ids, and a failed request does not
/// name the provider that failed.
#[tokio::test]
async fn every_response_has_a_usage_row_and_every_failure_names_its_provider() {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let mut host = Setup::new().config(&several(&[&a.base, &b.base])).start();
    for _ in 0..3 {
        // The provider uses the same id each time.
        a.reply(script::chat("fine"));
        assert_eq!(ask(&host, &request()).await.status, 200);
    }
    a.reply(script::refusal(500, "broken"));
    b.reply(script::refusal(502, "broken"));
    let failed = ask(&host, &request()).await;
    let metadata = &failed.body["error"]["metadata"];
    assert_eq!(metadata["provider_name"], "b", "{}", failed.text);
    assert_eq!(metadata["previous_errors"][0]["provider_name"], "a", "{}", failed.text);
    assert_eq!(failed.body["service_metadata"]["attempts"].as_array().unwrap().len(), 2);
    let rows = usage_of(&mut host);
    let ids: std::collections::BTreeSet<&str> = rows.iter().map(|row| row.request_id.as_str()).collect();
    assert_eq!((rows.len(), ids.len()), (4, 4), "{rows:?}");
    assert!(rows.iter().all(|row| row.request_id.starts_with("resp_")), "{rows:?}");
}

/// In other gateways the tokens of streams are not counted.
#[tokio::test]
async fn tokens_reported_after_the_end_of_a_stream_are_counted() {
    let a = Upstream::start().await;
    let mut host = Setup::new().config(&single("openai-chat", &a.base)).start();
    a.reply(script::chat_stream(&["one ", "two"]));
    let events = Client::new(&host).stream(&request()).await;
    let usage = &last_response(&events)["usage"];
    assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(7), &json!(3)));
    let rows = usage_of(&mut host);
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].input_tokens, rows[0].output_tokens, rows[0].streamed), (7, 3, true));
}

/// In other gateways the order of tools changes from call to call, which defeats prompt caches.
#[tokio::test]
async fn equal_requests_are_sent_as_equal_bytes() {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let host = Setup::new().config(&several(&[&a.base, &b.base])).start();
    let names = ["zebra", "apple", "mango", "berry"];
    let tool = |name: &&str| json!({"type": "function", "name": name, "parameters": {"type": "object"}});
    let mut request = request();
    request["tools"] = names.iter().map(tool).collect();
    for _ in 0..3 {
        a.reply(script::refusal(500, "broken"));
        b.reply(script::chat("fine"));
        assert_eq!(ask(&host, &request).await.status, 200);
    }
    let told = |upstream: &Upstream| -> Vec<String> {
        let bodies = upstream.asked().into_iter().map(|asked| asked.body);
        bodies.map(|body| body.to_string().replace("upstream-a", "upstream-b")).collect()
    };
    let mut all = [told(&a), told(&b)].concat();
    assert_eq!(all.len(), 6);
    let at = |name: &str| all[0].find(name).unwrap();
    assert!(names.windows(2).all(|pair| at(pair[0]) < at(pair[1])), "{}", all[0]);
    all.dedup();
    assert_eq!(all.len(), 1, "{all:?}");
}

/// In other gateways headers of a failed attempt leak into the next one, and a fault of a plugin
/// ends the process. A plugin that traps is tested in
/// `sandbox::misbehaving_guest_ends_only_its_own_request`.
#[tokio::test]
async fn a_failed_attempt_leaves_nothing_for_the_next() {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let (key, base) = ("key = \"env:KEY_A\"\n", b.base.as_str());
    let config = "[egress]\nallow_plaintext_loopback = true\n".to_owned()
        + &provider("a", "anthropic", &a.base)
        + key
        + &provider("b", "openai-chat", base)
        + &model(MODEL, "responses", &["a", "b"]);
    let host = Setup::new().config(&config).environment("KEY_A", "sk-of-a-alone").start();
    a.reply(Reply::Whole {
        status: 503,
        headers: vec![("retry-after", "7".to_owned()), ("x-request-id", "req-of-a".to_owned())],
        body: "{\"error\": \"words of a\"}".to_owned(),
    });
    b.reply(script::chat("from b"));
    let answer = ask(&host, &request()).await;
    assert_eq!(answer.output_text(), "from b");
    let (to_a, to_b) = (a.asked_once(), b.asked_once());
    assert!(format!("{:?}", to_a.headers).contains("sk-of-a-alone"), "{:?}", to_a.headers);
    assert!(to_b.headers.get("authorization").is_none() && to_b.headers.get("x-api-key").is_none());
    assert!(to_b.headers.get("anthropic-version").is_none(), "{:?}", to_b.headers);
    assert!(!format!("{:?}", to_b.headers).contains("sk-of-a-alone"));
    let told = format!("{:?} {}", answer.headers, answer.text);
    for leaked in ["req-of-a", "words of a", "sk-of-a-alone"] {
        assert!(!told.contains(leaked), "{leaked}: {told}");
    }
    assert!(answer.headers.get("retry-after").is_none());
}
