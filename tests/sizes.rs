//! Requests that are very long or have very many items: they are sent, or refused with path and
//! limit.

use crate::kit::client::Client;
use crate::kit::config::{MODEL, several_of, single};
use crate::kit::host::Setup;
use crate::kit::upstream::{Reply, Upstream};
use serde_json::{Value, json};

const MIB: usize = 1 << 20;

fn refusal() -> Reply {
    Reply::json(400, json!({"error": {"message": "seen", "type": "invalid_request_error"}}))
}

#[tokio::test]
async fn very_many_items_are_refused_by_path_and_limit() {
    let host = Setup::new().config("[limits]\nitems_max = 20\n").start();
    let client = Client::new(&host);
    for (count, status) in [(20, 200), (21, 400), (40_000, 400)] {
        let input = vec![json!({"type": "service:x"}); count];
        let answer = client.post("/responses", &json!({"model": "local/demo", "input": input})).await;
        assert_eq!(answer.status, status, "{count}: {}", answer.text);
        if status == 400 {
            assert_eq!(answer.message(), "input must hold at most 20 items");
        }
    }
}

#[tokio::test]
async fn bodies_of_the_maximum_length_reach_every_dialect() {
    for adapter in ["openai-responses", "openai-chat", "anthropic"] {
        let upstream = Upstream::start().await;
        upstream.always(|_| refusal());
        let host = Setup::new().config(&single(adapter, &upstream.base)).start();
        // Half of the body is copied as it is; the other half is full of escapes.
        let picture = format!("data:image/png;base64,{}", "A".repeat(16 * MIB));
        let content = json!([
            {"type": "input_image", "image_url": picture},
            {"type": "input_text", "text": "line\n".repeat(15 * MIB / 6)},
        ]);
        let request = json!({"model": MODEL, "input": [{"role": "user", "content": content}]});
        let answer = Client::new(&host).post("/responses", &request).await;
        assert_eq!(
            (answer.status, answer.message().contains("seen")),
            (400, true),
            "{adapter}: {}",
            answer.text
        );
        assert_eq!(upstream.asked().len(), 1, "{adapter}");
    }
}

#[tokio::test]
async fn long_embeddings_reach_their_provider() {
    let upstream = Upstream::start().await;
    upstream.always(|_| refusal());
    let host = Setup::new().config(&several_of("embeddings", &[&upstream.base])).start();
    let input: Vec<Value> = (0..31).map(|_| json!("x".repeat(MIB))).collect();
    let answer = Client::new(&host).post("/embeddings", &json!({"model": MODEL, "input": input})).await;
    assert!(answer.message().contains("seen"), "{}", answer.text);
}

/// Asserts that this request is too large for this limit of a plugin, and that the error names the limit.
async fn assert_too_large(plugin: &str, key: &str, value: u32, request: &Value) {
    let upstream = Upstream::start().await;
    let limit = format!("[plugins.{plugin}]\n{key} = {value}\n");
    let host = Setup::new().config(&(single("openai-chat", &upstream.base) + &limit)).start();
    let answer = Client::new(&host).post("/responses", request).await;
    assert_eq!(answer.status, 413, "{}", answer.text);
    assert!(answer.message().contains(&format!("plugins.{plugin}.{key}")), "{}", answer.text);
    assert!(upstream.asked().is_empty());
}

#[tokio::test]
async fn a_plugin_with_too_little_memory_is_named_with_its_limit() {
    let request = json!({"model": MODEL, "input": "x".repeat(16 * MIB)});
    assert_too_large("provider-openai-chat", "memory_mib", 8, &request).await;
}

#[tokio::test]
async fn a_plugin_with_too_little_time_is_named_with_its_limit() {
    let request = json!({"model": MODEL, "input": "x\n".repeat(6 * MIB)});
    assert_too_large("provider-openai-chat", "deadline_ms", 10, &request).await;
}

#[tokio::test]
async fn a_hook_with_too_little_memory_is_named_with_its_limit() {
    let request = json!({"model": MODEL, "input": "x".repeat(5 * MIB), "plugins": [{"id": "file-parser"}]});
    assert_too_large("hook-file-parser", "memory_mib", 4, &request).await;
}
