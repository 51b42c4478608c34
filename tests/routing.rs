//! What the host learns about endpoints and how it reacts to failures: weighted choice by price,
//! circuit breaker, retries and sticky sessions. The rules themselves are tested with a manual
//! clock in `host/engine`; these tests check that the program follows them.

mod sessions;

use crate::kit::admin::Admin;
use crate::kit::client::{Answer, Client, text_of};
use crate::kit::config::{MODEL, priced, provider, several, single};
use crate::kit::guests::folder;
use crate::kit::host::{Host, Setup};
use crate::kit::script;
use crate::kit::upstream::Upstream;
use serde_json::{Value, json};

pub const METADATA: [(&str, &str); 1] = [("x-service-metadata", "enabled")];

/// A request that tries the cheapest endpoint first, whatever happened in the last half minute.
fn request() -> Value {
    json!({"model": MODEL, "input": "x", "provider": {"sort": "price"}})
}

async fn ask(host: &Host, request: &Value) -> Answer {
    Client::new(host).post_with("/responses", request, &METADATA).await
}

fn attempts(answer: &Answer) -> Vec<(&str, u64)> {
    let attempts = answer.body["service_metadata"]["attempts"].as_array().unwrap();
    let attempt = |attempt: &'_ Value| attempt["status"].as_u64().unwrap_or_default();
    attempts.iter().map(|it| (it["provider"].as_str().unwrap(), attempt(it))).collect()
}

#[tokio::test]
async fn the_cheaper_endpoint_gets_the_greater_share() {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let host = Setup::new().config(&priced(&[(&a.base, 1.0), (&b.base, 2.0)])).start();
    let client = Client::new(&host);
    for number in 0..100 {
        a.reply(script::chat("a"));
        b.reply(script::chat("b"));
        // Each request is a conversation of its own, so sticky sessions do not apply.
        let request = json!({"model": MODEL, "input": format!("number {number}")});
        assert_eq!(client.post("/responses", &request).await.status, 200);
    }
    let (a, b) = (a.asked().len(), b.asked().len());
    assert_eq!(a + b, 100);
    // Weights of one over the square of the price give 80 of 100; 20 are five standard deviations.
    assert!((60..=97).contains(&a), "{a} of 100");
}

#[tokio::test]
async fn an_endpoint_that_keeps_failing_is_tried_last_and_metrics_say_so() {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let host = Setup::new().config(&several(&[&a.base, &b.base])).start();
    for _ in 0..6 {
        b.reply(script::chat("from b"));
    }
    for _ in 0..5 {
        assert_eq!(attempts(&ask(&host, &request()).await), [("a", 500), ("b", 200)]);
    }
    assert_eq!(attempts(&ask(&host, &request()).await), [("b", 200)]);
    let of =
        |provider: &str| format!("provider=\"{provider}\",upstream=\"upstream-{provider}\",tier=\"default\"");
    let admin = Admin::new(&host);
    for (name, a, b) in [
        ("cofferdam_endpoint_breaker", 2, 0),
        ("cofferdam_endpoint_ejected", 1, 0),
        ("cofferdam_endpoint_requests", 5, 6),
        ("cofferdam_endpoint_failures", 5, 0),
        ("cofferdam_endpoint_breaker_openings_total", 1, 0),
    ] {
        for (provider, value) in [("a", a), ("b", b)] {
            let sample = format!("{name}{{model=\"{MODEL}\",{}}}", of(provider));
            assert_eq!(admin.metric(&sample).await, value, "{sample}");
        }
    }
    // A reload keeps what is known of endpoints that are still configured.
    host.signal("HUP");
    host.until_logged("configuration and plugins were read again");
    b.reply(script::chat("from b"));
    assert_eq!(attempts(&ask(&host, &request()).await), [("b", 200)]);
}

#[tokio::test]
async fn a_rate_limited_provider_is_avoided_for_the_time_it_asks() {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let host = Setup::new().config(&several(&[&a.base, &b.base])).start();
    a.reply(script::limited(429, "60"));
    for tried in [&[("a", 429), ("b", 200)][..], &[("b", 200)], &[("b", 200)]] {
        b.reply(script::chat("from b"));
        assert_eq!(attempts(&ask(&host, &request()).await), tried);
    }
}

#[tokio::test]
async fn temporary_failures_of_all_endpoints_are_retried() {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let host = Setup::new().config(&several(&[&a.base, &b.base])).start();
    a.reply(script::refusal(503, "busy"));
    b.reply(script::refusal(529, "busy"));
    a.reply(script::refusal(503, "busy"));
    b.reply(script::chat("from b"));
    let answer = ask(&host, &request()).await;
    assert_eq!(answer.output_text(), "from b");
    assert_eq!(attempts(&answer), [("a", 503), ("b", 529), ("a", 503), ("b", 200)]);
    assert_eq!(answer.body["service_metadata"]["attempt"], 4);
    let endpoint = format!("model=\"{MODEL}\",provider=\"a\",upstream=\"upstream-a\",tier=\"default\"");
    let retries = format!("cofferdam_endpoint_retries_total{{{endpoint}}}");
    assert_eq!(Admin::new(&host).metric(&retries).await, 1);
}

#[tokio::test]
async fn streams_are_retried_too() {
    let a = Upstream::start().await;
    let host = Setup::new().config(&single("openai-chat", &a.base)).start();
    a.reply(script::refusal(503, "busy"));
    a.reply(script::chat_stream(&["at ", "last"]));
    assert_eq!(text_of(&Client::new(&host).stream(&request()).await), "at last");
}

#[tokio::test]
async fn embeddings_are_retried_by_the_same_rules() {
    let a = Upstream::start().await;
    let host = Setup::new().config(&crate::kit::config::several_of("embeddings", &[&a.base])).start();
    a.reply(script::refusal(503, "busy"));
    a.reply(crate::kit::upstream::Reply::json(
        200,
        json!({"object": "list", "model": "m", "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}],
            "usage": {"prompt_tokens": 1, "total_tokens": 1}}),
    ));
    let request = json!({"model": MODEL, "input": "x"});
    let answer = Client::new(&host).post_with("/embeddings", &request, &METADATA).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(attempts(&answer), [("a", 503), ("a", 200)]);
    assert!(answer.body["service_metadata"]["generation_time"].is_u64(), "{}", answer.text);
}

#[tokio::test]
async fn permanent_failures_are_not_retried() {
    let a = Upstream::start().await;
    let host = Setup::new().config(&single("openai-chat", &a.base)).start();
    let mut alone = request();
    alone["provider"]["allow_fallbacks"] = json!(false);
    for (reply, request) in [
        (script::refusal(400, "no"), request()),
        (script::refusal(401, "who?"), request()),
        (script::refusal(500, "broken"), request()),
        (script::limited(429, "60"), request()),
        (script::refusal(503, "busy"), alone),
    ] {
        let before = a.asked().len();
        a.reply(reply);
        assert!(ask(&host, &request).await.status >= 400);
        assert_eq!(a.asked().len() - before, 1);
    }
}

#[tokio::test]
async fn metadata_shows_when_no_endpoint_was_reached() {
    let closed = crate::kit::upstream::Closed::new();
    let host = Setup::new().config(&single("openai-chat", &closed.base)).start();
    for (request, kind) in [
        (json!({"model": MODEL, "input": "x"}), "nobody is there"),
        (json!({"model": MODEL, "input": "x", "provider": {"only": ["nobody"]}}), "preferences leave nobody"),
    ] {
        let answer = ask(&host, &request).await;
        let metadata = &answer.body["service_metadata"];
        assert_eq!(metadata["attempt"], 0, "{kind}: {}", answer.text);
        assert_eq!(
            (&metadata["strategy"], &metadata["requested"]),
            (&json!("direct"), &json!(MODEL)),
            "{kind}"
        );
        assert_eq!(metadata["endpoints"]["total"], 1, "{kind}");
        assert!(metadata.get("generation_time").is_none(), "{kind}: {metadata}");
    }
}

#[tokio::test]
async fn a_router_of_a_third_party_sends_content_to_no_endpoint_that_the_client_forbids() {
    let (open, private) = (Upstream::start().await, Upstream::start().await);
    let endpoint = |name: &str, more: &str| format!("{{ provider = \"{name}\", model = \"up\"{more} }}");
    let config = provider("private", "openai-chat", &private.base)
        + &provider("open", "openai-chat", &open.base)
        + &format!(
            "[[models]]\nid = \"{MODEL}\"\nendpoints = [{}, {}]\n[plugins.router]\nreplaces = true\n",
            endpoint("private", ", zdr = true, data_collection = \"deny\""),
            endpoint("open", "")
        );
    let guests = folder(&["router"]);
    let host = Setup::new().config(&config).plugins(guests.path()).start();
    // This router tries the last endpoint first, whatever the client says.
    open.reply(script::chat("open"));
    assert_eq!(ask(&host, &request()).await.body["service_metadata"]["strategy"], "own");
    assert_eq!((open.asked().len(), private.asked().len()), (1, 0));
    let wishes = [
        json!({"zdr": true}),
        json!({"data_collection": "deny"}),
        json!({"only": ["PRIVATE/default"]}),
        json!({"ignore": ["open"]}),
    ];
    for wish in wishes {
        private.reply(script::chat("private"));
        let mut request = request();
        request["provider"] = wish;
        assert_eq!(attempts(&ask(&host, &request).await), [("private", 200)]);
    }
    assert_eq!(open.asked().len(), 1);
}
