//! Each dialect from end to end: what goes upstream, what comes back.

use crate::kit::client::Client;
use crate::kit::config::{MODEL, model, single};
use crate::kit::host::Setup;
use crate::kit::script;
use crate::kit::upstream::{Reply, Upstream};
use serde_json::{Value, json};
use std::path::PathBuf;

const SECRET: &str = "sk-canary-7f3a9b51";

/// A provider with a credential from the environment.
fn keyed(adapter: &str, base: &str) -> Setup {
    let provider = format!(
        "[egress]\nallow_plaintext_loopback = true\n[[providers]]\nname = \"one\"\nadapter = \"{adapter}\"\n\
         base_url = \"{base}\"\nkey = \"env:TEST_PROVIDER_KEY\"\n"
    );
    let config = provider + &model(MODEL, "responses", &["one"]);
    Setup::new().environment("TEST_PROVIDER_KEY", SECRET).config(&config)
}

fn request() -> Value {
    json!({
        "model": MODEL, "instructions": "Be brief.", "input": "Capital?", "max_output_tokens": 99,
        "temperature": 0.5, "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}]
    })
}

#[tokio::test]
async fn the_responses_dialect_is_spoken() {
    let upstream = Upstream::start().await;
    upstream.reply(script::response(&json!([
        {"type": "reasoning", "id": "rs_up", "summary": [{"type": "summary_text", "text": "Easy."}],
         "encrypted_content": "gAAA"},
        script::message("Paris")
    ])));
    let host = keyed("openai-responses", &upstream.base).start();
    let answer = Client::new(&host).post("/responses", &request()).await;
    assert_eq!(answer.output_text(), "Paris");
    let reasoning = &answer.body["output"][0];
    assert_eq!(reasoning["summary"], json!([{"type": "summary_text", "text": "Easy."}]), "{}", answer.text);
    assert!(reasoning["encrypted_content"].as_str().unwrap().ends_with("gAAA"));
    assert!(!answer.text.contains("msg_up") && !answer.text.contains("resp_up"), "ids are our own");
    let asked = upstream.asked_once();
    assert_eq!((asked.method.as_str(), asked.path.as_str()), ("POST", "/v1/responses"));
    assert_eq!(asked.headers["authorization"], format!("Bearer {SECRET}"));
    assert_eq!(asked.headers["content-type"], "application/json");
    assert_eq!((&asked.body["model"], &asked.body["store"]), (&json!("upstream-one"), &json!(false)));
    assert_eq!(asked.body["max_output_tokens"], 99);
}

#[tokio::test]
async fn sealed_reasoning_goes_back_under_its_own_id() {
    let upstream = Upstream::start().await;
    let reasoning = json!({"type": "reasoning", "id": "rs_up", "summary": [], "encrypted_content": "gAAA"});
    upstream.reply(script::response(&json!([reasoning, script::message("Paris")])));
    upstream.reply(script::response(&json!([script::message("Lyon")])));
    let host = keyed("openai-responses", &upstream.base).start();
    let client = Client::new(&host);
    let first = client.post("/responses", &request()).await;
    let mut input = first.body["output"].as_array().unwrap().clone();
    input.push(json!({"role": "user", "content": "And the next?"}));
    let second = client.post("/responses", &json!({"model": MODEL, "input": input})).await;
    assert_eq!(second.output_text(), "Lyon");
    let replayed = &upstream.asked()[1].body["input"][0];
    assert_eq!((&replayed["id"], &replayed["encrypted_content"]), (&json!("rs_up"), &json!("gAAA")));
}

#[tokio::test]
async fn the_chat_dialect_is_spoken() {
    let upstream = Upstream::start().await;
    upstream.reply(script::chat("Paris"));
    let host = keyed("openai-chat", &upstream.base).start();
    let answer = Client::new(&host).post("/responses", &request()).await;
    assert_eq!(answer.output_text(), "Paris");
    assert_eq!(answer.body["usage"]["total_tokens"], 10);
    let asked = upstream.asked_once();
    assert_eq!(asked.path, "/v1/chat/completions");
    assert_eq!(asked.headers["authorization"], format!("Bearer {SECRET}"));
    assert_eq!(asked.body["messages"][0], json!({"role": "system", "content": "Be brief."}));
    assert_eq!(asked.body["messages"][1], json!({"role": "user", "content": "Capital?"}));
    assert_eq!((&asked.body["max_tokens"], &asked.body["temperature"]), (&json!(99), &json!(0.5)));
    assert_eq!(asked.body["tools"][0]["function"]["name"], "f");
}

#[tokio::test]
async fn the_anthropic_dialect_is_spoken() {
    let upstream = Upstream::start().await;
    upstream.reply(script::anthropic(
        &json!([
            {"type": "thinking", "thinking": "Simple.", "signature": "c2ln"},
            {"type": "text", "text": "Looking."},
            {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"n": 1}}
        ]),
        "tool_use",
    ));
    let host = keyed("anthropic", &upstream.base).start();
    let answer = Client::new(&host).post("/responses", &request()).await;
    let kinds: Vec<&str> =
        answer.body["output"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["reasoning", "message", "function_call"], "{}", answer.text);
    assert_eq!(answer.output_text(), "Looking.");
    assert_eq!(answer.body["output"][2]["arguments"], "{\"n\": 1}".replace(' ', ""));
    let usage = &answer.body["usage"];
    // Anthropic counts cached input separately; the Responses API includes it in the total.
    assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(115), &json!(20)));
    assert_eq!(usage["input_tokens_details"], json!({"cached_tokens": 100, "cache_write_tokens": 5}));
    let asked = upstream.asked_once();
    assert_eq!(asked.path, "/v1/messages");
    assert_eq!(asked.headers["x-api-key"], SECRET);
    assert!(asked.headers.get("authorization").is_none());
    assert!(asked.headers.contains_key("anthropic-version"));
    assert_eq!((&asked.body["system"], &asked.body["max_tokens"]), (&json!("Be brief."), &json!(99)));
    assert_eq!(asked.body["messages"][0]["role"], "user");
}

#[tokio::test]
async fn a_base_path_is_kept_and_the_clients_headers_stay_here() {
    let upstream = Upstream::start().await;
    upstream.reply(script::chat("hello"));
    let base = upstream.base.replace("/v1", "/deep/er/v9/");
    let host = Setup::new().config(&single("openai-chat", &base)).start();
    let headers = [
        ("x-session-id", "canary-session"),
        ("http-referer", "https://canary.example"),
        ("cookie", "canary=1"),
    ];
    let answer =
        Client::new(&host).post_with("/responses", &json!({"model": MODEL, "input": "x"}), &headers).await;
    assert_eq!(answer.output_text(), "hello");
    let asked = upstream.asked_once();
    assert_eq!(asked.path, "/deep/er/v9/chat/completions");
    assert!(asked.headers.get("authorization").is_none());
    assert!(!format!("{:?}", asked.headers).contains("canary"), "{:?}", asked.headers);
}

#[tokio::test]
async fn a_credential_shows_up_nowhere_but_at_its_provider() {
    // One secret looks like a key, the other like any word.
    for secret in [SECRET, "plainword7f3a9b51"] {
        for adapter in ["openai-chat", "openai-responses", "anthropic"] {
            leak(adapter, secret).await;
        }
    }
}

/// Lets a provider echo the credential everywhere, and searches all output for it.
async fn leak(adapter: &str, secret: &str) {
    let upstream = Upstream::start().await;
    let mut host = keyed(adapter, &upstream.base)
        .environment("TEST_PROVIDER_KEY", secret)
        .environment("COFFERDAM_LOG", "trace")
        .start();
    let client = Client::new(&host);
    let enabled = [("x-service-metadata", "enabled")];
    let reflected = [
        script::refusal(401, &format!("Incorrect API key provided: {secret}")),
        script::refusal(400, &format!("bad request with {secret}")),
        script::refusal(404, &format!("no model for {secret}.")),
        script::refusal(500, secret),
        Reply::json(
            422,
            json!({"type": "error", "error": {"type": secret, "code": secret, "message": secret}}),
        ),
        Reply::json(200, json!(secret)),
        Reply::json(200, json!({"error": {"message": format!("bad request with {secret}"), "code": 400}})),
    ];
    let count = reflected.len();
    for (place, reply) in reflected.into_iter().enumerate() {
        upstream.reply(reply);
        let answer = client.post_with("/responses", &json!({"model": MODEL, "input": "x"}), &enabled).await;
        assert!(answer.status >= 400, "{adapter} {place}: {}", answer.text);
        assert!(!answer.text.contains(secret), "{adapter} {place}: {}", answer.text);
        assert!(!format!("{:?}", answer.headers).contains(secret));
    }
    assert_eq!(upstream.asked().len(), count);
    let metrics = reqwest_text(&format!("{}/metrics", host.admin)).await;
    assert!(!metrics.contains(secret));
    let log = host.end();
    assert!(log.contains("an attempt failed"), "{log}");
    assert!(!log.contains(secret), "the credential is in the log");
    assert!(!log.contains(&host.key), "the client's key is in the log");
    assert_eq!(host.rest_of_stdout(), "");
    assert_eq!(host.files_with(secret), Vec::<PathBuf>::new());
}

async fn reqwest_text(url: &str) -> String {
    reqwest::Client::builder()
        .no_proxy()
        .build()
        .unwrap()
        .get(url)
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap()
}
