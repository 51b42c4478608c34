//! Routing metadata: sent only on request, and always correct. Also the ids of an answer.

use crate::kit::client::Client;
use crate::kit::config::{MODEL, several};
use crate::kit::host::Setup;
use crate::kit::script;
use crate::kit::upstream::Upstream;
use serde_json::{Value, json};

fn request() -> Value {
    json!({"model": MODEL, "input": "x", "provider": {"sort": "price"}})
}

#[tokio::test]
async fn each_header_asks_in_any_letter_case_and_anything_else_is_off() {
    let host = Setup::new().start();
    let client = Client::new(&host);
    let request = json!({"model": "local/demo", "input": "x"});
    for (name, value, field) in [
        ("X-Service-Metadata", "enabled", Some("service_metadata")),
        ("x-service-metadata", "EnAbLeD", Some("service_metadata")),
        ("X-Service-Experimental-Metadata", "enabled", Some("service_metadata")),
        ("X-OpenRouter-Metadata", "enabled", Some("openrouter_metadata")),
        ("X-OpenRouter-Experimental-Metadata", "ENABLED", Some("openrouter_metadata")),
        ("X-Service-Metadata", "disabled", None),
        ("X-Service-Metadata", "", None),
        ("X-Service-Metadata", "1", None),
    ] {
        let answer = client.post_with("/responses", &request, &[(name, value)]).await;
        assert_eq!(answer.status, 200, "{name}: {value}");
        for known in ["service_metadata", "openrouter_metadata"] {
            assert_eq!(answer.body.get(known).is_some(), field == Some(known), "{name}: {value}");
        }
    }
}

#[tokio::test]
async fn metadata_lists_what_was_tried() {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    a.reply(script::refusal(503, "busy"));
    b.reply(script::chat("from b"));
    let host = Setup::new()
        .config(&format!("[server]\nregion = \"eu-west\"\n{}", several(&[&a.base, &b.base])))
        .start();
    let enabled = [("x-service-metadata", "enabled")];
    let answer = Client::new(&host).post_with("/responses", &request(), &enabled).await;
    assert_eq!(answer.output_text(), "from b");
    let metadata = &answer.body["service_metadata"];
    assert_eq!(metadata["requested"], MODEL, "{metadata}");
    assert_eq!(metadata["strategy"], "direct");
    assert_eq!(metadata["region"], "eu-west");
    assert_eq!(metadata["attempt"], 2);
    assert_eq!(metadata["is_byok"], false);
    assert!(metadata["generation_time"].is_u64());
    assert!(metadata["summary"].as_str().unwrap().contains("selected=b"), "{metadata}");
    assert_eq!(
        metadata["endpoints"],
        json!({"total": 2, "available": [
            {"model": MODEL, "provider": "a", "selected": false},
            {"model": MODEL, "provider": "b", "selected": true}
        ]})
    );
    assert_eq!(metadata["attempts"][0]["status"], 503, "{metadata}");
    assert_eq!(metadata["attempts"][1], json!({"provider": "b", "model": MODEL, "status": 200}));
}

#[tokio::test]
async fn every_attempt_has_a_status_even_where_no_provider_gave_one() {
    let enabled = [("x-service-metadata", "enabled")];
    let upstream = Upstream::start().await;
    // No server listens on port 1.
    let host = Setup::new().config(&several(&["http://127.0.0.1:1/v1", &upstream.base])).start();
    upstream.reply(script::chat("from b"));
    let answer = Client::new(&host).post_with("/responses", &request(), &enabled).await;
    let attempts = &answer.body["service_metadata"]["attempts"];
    assert_eq!((&attempts[0]["status"], &attempts[1]["status"]), (&json!(502), &json!(200)), "{attempts}");

    let host = Setup::new().start();
    let local = json!({"model": "local/demo", "input": "x"});
    let answer = Client::new(&host).post_with("/responses", &local, &enabled).await;
    assert_eq!(answer.body["service_metadata"]["attempts"][0]["status"], 200, "{}", answer.text);
}

#[tokio::test]
async fn metadata_of_a_failure_selects_no_endpoint() {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    a.reply(script::refusal(503, "busy"));
    b.reply(script::refusal(500, "broken"));
    let host = Setup::new().config(&several(&[&a.base, &b.base])).start();
    let enabled = [("x-openrouter-metadata", "enabled")];
    let answer = Client::new(&host).post_with("/responses", &request(), &enabled).await;
    assert_eq!(answer.status, 502, "{}", answer.text);
    let metadata = &answer.body["openrouter_metadata"];
    assert_eq!(metadata["attempt"], 2, "{}", answer.text);
    let available = metadata["endpoints"]["available"].as_array().unwrap();
    assert!(available.iter().all(|endpoint| endpoint["selected"] == false), "{metadata}");
    assert!(answer.body.get("service_metadata").is_none());
}

#[tokio::test]
async fn metadata_rides_on_the_terminal_event_only() {
    let host = Setup::new().start();
    let request = json!({"model": "local/demo", "input": "x", "stream": true});
    let answer =
        Client::new(&host).post_with("/responses", &request, &[("x-service-metadata", "enabled")]).await;
    let events = crate::kit::client::events_of(&answer.text);
    let (last, early) = events.split_last().unwrap();
    assert_eq!(last["response"]["service_metadata"]["attempt"], 1, "{last}");
    assert!(early.iter().all(|event| event["response"].get("service_metadata").is_none()));
}

#[tokio::test]
async fn a_validation_error_has_no_metadata() {
    let host = Setup::new().start();
    let client = Client::new(&host);
    let enabled = [("x-service-metadata", "enabled")];
    for request in [json!({"model": "local/demo"}), json!({"model": "no/such", "input": "x"})] {
        let answer = client.post_with("/responses", &request, &enabled).await;
        assert!(answer.body.get("service_metadata").is_none(), "{}", answer.text);
    }
}

#[tokio::test]
async fn answers_are_named_by_generation_and_request() {
    let mut host = Setup::new().start();
    let client = Client::new(&host);
    let whole = client.post("/responses", &json!({"model": "local/demo", "input": "x"})).await;
    assert_eq!(whole.headers["x-generation-id"], whole.body["id"].as_str().unwrap());
    let streamed =
        client.post("/responses", &json!({"model": "local/demo", "input": "x", "stream": true})).await;
    let events = crate::kit::client::events_of(&streamed.text);
    assert_eq!(streamed.headers["x-generation-id"], events[0]["response"]["id"].as_str().unwrap());
    assert!(streamed.headers["content-type"].to_str().unwrap().starts_with("text/event-stream"));
    let vectors = client.post("/embeddings", &json!({"model": "local/embed", "input": "x"})).await;
    assert_eq!(vectors.headers["x-generation-id"], vectors.body["id"].as_str().unwrap());
    let refused = client.post("/responses", &json!({})).await;
    let ids: Vec<&str> = [&whole, &streamed, &vectors, &refused]
        .map(|answer| answer.headers["x-request-id"].to_str().unwrap())
        .to_vec();
    let distinct: std::collections::BTreeSet<&str> = ids.iter().copied().collect();
    assert_eq!(distinct.len(), 4, "{ids:?}");
    let log = host.end();
    assert!(ids.iter().all(|id| log.contains(*id)), "each line of the log can be found by the id");
}
