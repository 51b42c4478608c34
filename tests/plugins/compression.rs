//! The plugin `context-compression` where no request names it: it is the default for models with a
//! small context.

use super::asked;
use crate::kit::admin::Admin;
use crate::kit::client::Client;
use crate::kit::config::provider;
use crate::kit::host::{Host, Setup};
use crate::kit::script::chat;
use crate::kit::upstream::Upstream;
use serde_json::{Value, json};

/// Three models with these contexts: 8,192, 8,193, and one that is not stated.
async fn bench() -> (Host, Upstream) {
    let upstream = Upstream::start().await;
    let model = |name: &str, length: &str| {
        format!(
            "[[models]]\nid = \"m/{name}\"\n{length}\nendpoints = [{{ provider = \"p\", model = \"{name}\" }}]"
        )
    };
    let host = Setup::new()
        .config(&provider("p", "openai-chat", &upstream.base))
        .config(&model("small", "context_length = 8192"))
        .config(&model("large", "context_length = 8193"))
        .config(&model("unknown", ""))
        .start();
    (host, upstream)
}

/// Whether the middle of a long conversation reaches the model that `service/auto` chooses among these.
async fn is_whole_with(lengths: &[u32]) -> bool {
    let upstream = Upstream::start().await;
    let mut setup = Setup::new().config(&provider("p", "openai-chat", &upstream.base));
    for length in lengths {
        setup = setup.config(&format!(
            "[[models]]\nid = \"m/{length}\"\ncontext_length = {length}\n\
             endpoints = [{{ provider = \"p\", model = \"{length}\" }}]"
        ));
    }
    is_whole(&setup.start(), &upstream, &["service/auto"], json!([]), true).await
}

#[tokio::test]
async fn a_model_router_that_has_only_small_models_chooses_for_what_fits() {
    assert!(!is_whole_with(&[4096, 8192]).await);
    assert!(is_whole_with(&[4096, 20_000]).await, "it chooses the one with room for all");
}

/// A conversation of about 11,000 tokens, or of a few.
fn conversation(is_long: bool) -> Value {
    let turn = |role: &str, text: String| json!({"role": role, "content": text});
    let mut input = vec![turn("user", "the first question".to_owned())];
    let filler = if is_long { "word ".repeat(430) } else { String::new() };
    for place in 0..20 {
        input.push(turn("assistant", format!("answer {place} {filler}")));
        input.push(turn("user", format!("question {place}")));
    }
    Value::Array(input)
}

async fn is_whole(host: &Host, upstream: &Upstream, models: &[&str], plugins: Value, is_long: bool) -> bool {
    upstream.reply(chat("answered"));
    let request = json!({"models": models, "input": conversation(is_long), "plugins": plugins});
    let answer = Client::new(host).post("/responses", &request).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let sent = asked(upstream);
    assert!(sent.contains("the first question") && sent.contains("question 19"), "{sent}");
    sent.contains("question 9")
}

#[tokio::test]
async fn a_long_conversation_loses_its_middle_where_all_models_are_small() {
    let (host, upstream) = bench().await;
    let off = json!([{"id": "context-compression", "enabled": false}]);
    let on = json!([{"id": "context-compression"}]);
    let table = [
        (vec!["m/small"], json!([]), false),
        (vec!["m/small:floor"], json!([]), false),
        (vec!["m/small"], off, true),
        (vec!["m/large"], json!([]), true),
        (vec!["m/unknown"], json!([]), true),
        // The model with more room gets the whole conversation.
        (vec!["m/small", "m/large"], json!([]), true),
        (vec!["m/small", "m/large"], on.clone(), false),
        (vec!["m/large"], on, false),
    ];
    for (models, plugins, whole) in table {
        assert_eq!(
            is_whole(&host, &upstream, &models, plugins.clone(), true).await,
            whole,
            "{models:?} {plugins}"
        );
    }
}

#[tokio::test]
async fn no_guest_is_asked_for_what_is_short() {
    let (host, upstream) = bench().await;
    let calls = "cofferdam_plugin_calls_total{plugin=\"hook-context-compression\"}";
    for plugins in [json!([]), json!([{"id": "context-compression", "engine": "middle-out"}])] {
        assert!(is_whole(&host, &upstream, &["m/small"], plugins, false).await);
    }
    assert_eq!(Admin::new(&host).metric(calls).await, 0);
    assert!(!is_whole(&host, &upstream, &["m/small"], json!([]), true).await);
    assert!(Admin::new(&host).metric(calls).await > 0);
}
