//! `provider.options`: which of a provider's own fields a client may set, in each dialect.

use crate::kit::client::{Answer, Client};
use crate::kit::config::{MODEL, model, provider};
use crate::kit::host::{Host, Setup};
use crate::kit::script;
use crate::kit::upstream::{Reply, Upstream};
use serde_json::{Value, json};

const METADATA: [(&str, &str); 1] = [("x-service-metadata", "enabled")];

/// A host whose provider `one` speaks this dialect; `more` are further lines of its section.
fn host(adapter: &str, upstream: &Upstream, more: &str) -> Host {
    let provider = provider("one", adapter, &upstream.base) + more + "\n";
    let mut models = model(MODEL, "responses", &["one"]);
    if adapter != "anthropic" {
        models += &model("test/embed", "embeddings", &["one"]);
    }
    Setup::new().config(&(provider + &models)).start()
}

fn reply(adapter: &str) -> Reply {
    match adapter {
        "openai-responses" => script::response(&json!([script::message("hello")])),
        "anthropic" => script::anthropic(&json!([{"type": "text", "text": "hello"}]), "end_turn"),
        _ => script::chat("hello"),
    }
}

async fn ask(host: &Host, options: &Value) -> Answer {
    let request = json!({
        "model": MODEL, "input": "x", "max_output_tokens": 50, "provider": {"options": {"one": options}}
    });
    Client::new(host).post_with("/responses", &request, &METADATA).await
}

fn dropped(answer: &Answer) -> Vec<&str> {
    let told = &answer.body["service_metadata"]["attempts"][0]["dropped_options"];
    told.as_array()
        .unwrap_or_else(|| panic!("{}", answer.text))
        .iter()
        .map(|it| it.as_str().unwrap())
        .collect()
}

/// Fields that would use paid features the operator does not offer, or change the request itself.
fn attack() -> Value {
    json!({
        "speed": "fast", "inference_geo": "us", "mcp_servers": [{"type": "url", "url": "https://x.test", "name": "x"}],
        "models": ["dear/model"], "plugins": [{"id": "web"}], "route": "fallback", "Model": "dear",
        "Max_tokens": 100_000, "N": 64, "max_output_TOKENS": 100_000, "service_Tier": "priority", "Tools": [],
        "Messages": [], "store": true, "background": true, "prediction": {"type": "content", "content": "x"},
        "web_search_options": {}, "search_parameters": {"mode": "on"}, "best_of": 20, "container": "cntr_1",
        "anthropic_beta": "fast-mode-2026-02-01"
    })
}

#[tokio::test]
async fn options_that_are_not_allowed_are_dropped_and_reported() {
    for adapter in ["openai-chat", "openai-responses", "anthropic"] {
        let upstream = Upstream::start().await;
        let host = host(adapter, &upstream, "");
        for _ in 0..2 {
            upstream.reply(reply(adapter));
        }
        assert_eq!(ask(&host, &json!({})).await.status, 200);
        // U+212A (Kelvin sign) has the lower case `k`, like K.
        upstream.reply(reply(adapter));
        assert_eq!(dropped(&ask(&host, &json!({"max_to\u{212a}ens": 9})).await), ["max_to\u{212a}ens"]);
        let answer = ask(&host, &attack()).await;
        assert_eq!(answer.status, 200, "{adapter}: {}", answer.text);
        let [plain, folded, attacked] = &upstream.asked()[..] else { panic!("{adapter}") };
        assert_eq!(attacked.body, plain.body, "{adapter}");
        assert_eq!(folded.body, plain.body, "{adapter}");
        assert_eq!(attacked.headers["content-length"], plain.headers["content-length"], "{adapter}");
        assert_eq!(attacked.headers.get("anthropic-beta"), None);
        let told = dropped(&answer);
        for name in attack().as_object().unwrap().keys() {
            assert!(told.contains(&name.as_str()), "{adapter}: {name} in {told:?}");
        }
    }
}

#[tokio::test]
async fn allowed_options_are_sent_under_their_listed_name() {
    for (adapter, name, value) in [
        ("openai-chat", "min_p", json!(0.1)),
        ("openai-responses", "top_k", json!(5)),
        ("anthropic", "top_k", json!(5)),
    ] {
        let upstream = Upstream::start().await;
        let host = host(adapter, &upstream, "");
        for spelling in [name.to_owned(), name.to_uppercase()] {
            upstream.reply(reply(adapter));
            let answer = ask(&host, &json!({ spelling.clone(): value })).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            let asked = upstream.asked();
            let body = &asked.last().unwrap().body;
            assert_eq!(body[name], value, "{adapter} {spelling}: {body}");
            assert!(answer.body["service_metadata"]["attempts"][0].get("dropped_options").is_none());
        }
    }
}

#[tokio::test]
async fn only_listed_betas_are_sent() {
    let upstream = Upstream::start().await;
    upstream.always(|_| reply("anthropic"));
    let betas =
        json!(["interleaved-thinking-2025-05-14", "context-1m-2025-08-07", "Fast-Mode-2026-02-01", 7]);
    for (written, beta) in
        [(betas, "a list"), (json!("interleaved-thinking-2025-05-14, context-1m-2025-08-07"), "text")]
    {
        let answer = ask(&host("anthropic", &upstream, ""), &json!({ "Betas": written })).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let asked = upstream.asked();
        let sent = asked.last().unwrap().headers["anthropic-beta"].to_str().unwrap();
        assert_eq!(sent, "interleaved-thinking-2025-05-14", "{beta}");
        assert!(dropped(&answer).contains(&"betas: context-1m-2025-08-07"), "{}", answer.text);
    }
    let listed = host("anthropic", &upstream, "betas = [\"context-1m-2025-08-07\"]");
    let answer = ask(&listed, &json!({"betas": ["CONTEXT-1M-2025-08-07"]})).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(upstream.asked().last().unwrap().headers["anthropic-beta"], "context-1m-2025-08-07");
}

#[tokio::test]
async fn operator_can_allow_further_options() {
    let upstream = Upstream::start().await;
    upstream.always(|_| reply("openai-chat"));
    let host = host("openai-chat", &upstream, "options = [\"models\", \"searchDomain\", \"service_tier\"]");
    let options = json!({"models": ["a"], "SEARCHDOMAIN": "x", "service_tier": "flex", "speed": "fast"});
    let answer = ask(&host, &options).await;
    let body = &upstream.asked_once().body;
    assert_eq!(
        (&body["models"], &body["searchDomain"], &body["service_tier"]),
        (&json!(["a"]), &json!("x"), &json!("flex"))
    );
    assert!(body.get("speed").is_none());
    assert_eq!(dropped(&answer), ["speed"]);
}

#[tokio::test]
async fn two_spellings_of_one_option_are_refused_by_path() {
    let upstream = Upstream::start().await;
    let host = host("openai-chat", &upstream, "");
    let client = Client::new(&host);
    for (body, path) in [
        (r#"{"one": {"top_k": 1, "Top_K": 2}}"#, "provider.options.one.Top_K"),
        (r#"{"one": {"speed": 1, "SPEED": 2}}"#, "provider.options.one.SPEED"),
        (r#"{"one": {"top_k": 1}, "One": {"top_k": 2}}"#, "provider.options.One"),
    ] {
        for (route, model) in [("/responses", MODEL), ("/embeddings", "test/embed")] {
            let body = format!(r#"{{"model": "{model}", "input": "x", "provider": {{"options": {body}}}}}"#);
            let answer = client.post_bytes(route, body.into_bytes()).await;
            assert_eq!(answer.status, 400, "{}", answer.text);
            assert!(answer.message().starts_with(path), "{}", answer.text);
        }
    }
    assert!(upstream.asked().is_empty());
}

#[tokio::test]
async fn embeddings_use_the_same_list_of_options() {
    let upstream = Upstream::start().await;
    let vectors =
        json!({"data": [{"index": 0, "embedding": [1]}], "usage": {"prompt_tokens": 9, "total_tokens": 9}});
    upstream.reply(Reply::json(200, vectors));
    let host = host("openai-chat", &upstream, "");
    let options = json!({"Model": "dear", "Input": ["a", "b"], "user": "u"});
    let request = json!({"model": "test/embed", "input": "x", "provider": {"options": {"ONE": options}}});
    let answer = Client::new(&host).post_with("/embeddings", &request, &METADATA).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(upstream.asked_once().body, json!({"model": "upstream-one", "input": ["x"], "user": "u"}));
    assert_eq!(dropped(&answer), ["Model", "Input"]);
}
