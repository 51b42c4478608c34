//! The memory that request bodies count for: until nothing made of them is needed any more.

use crate::kit::admin::Admin;
use crate::kit::client::Client;
use crate::kit::config::{MODEL, single_with_tools};
use crate::kit::deadline;
use crate::kit::host::Setup;
use crate::kit::script::{chat_events, chat_stream};
use crate::kit::upstream::{Reply, Upstream, sse_event};
use serde_json::{Value, json};

const BODY_BYTES: usize = 1 << 20;
const METRIC: &str = "cofferdam_request_bodies_bytes";

fn request(tools: Value) -> Value {
    json!({"model": MODEL, "input": "x".repeat(BODY_BYTES), "stream": true, "tools": tools})
}

async fn counted(admin: &Admin) -> u64 {
    admin.shown_metric(METRIC).await.expect("the metric is not shown")
}

#[tokio::test]
async fn body_counts_during_a_stream_only_while_its_document_is_needed() {
    let upstream = Upstream::start().await;
    let host = Setup::new().config(&single_with_tools("openai-chat", &upstream.base)).start();
    let (client, admin) = (Client::new(&host), Admin::new(&host));
    // With a server tool another turn may need the document.
    for (tools, is_needed) in [(json!([]), false), (json!([{"type": "service:datetime"}]), true)] {
        let (feed, fed) = Reply::fed();
        upstream.reply(fed);
        let said = chat_events(&["One.", "Two."]);
        for event in &said[..2] {
            feed.send(sse_event(event)).await.unwrap();
        }
        let mut events = client.open(&request(tools)).await;
        events.until("response.output_text.delta").await;
        let bytes = counted(&admin).await;
        if is_needed {
            assert!(bytes >= BODY_BYTES as u64, "{bytes}");
        } else {
            assert_eq!(bytes, 0);
        }
        for event in &said[2..] {
            feed.send(sse_event(event)).await.unwrap();
        }
        drop(feed);
        events.until("response.completed").await;
        deadline::until("a body that does not count", async || counted(&admin).await == 0).await;
    }
}

#[tokio::test]
async fn body_of_a_refused_request_does_not_count_any_more() {
    let upstream = Upstream::start().await;
    let host = Setup::new().config(&single_with_tools("openai-chat", &upstream.base)).start();
    let (client, admin) = (Client::new(&host), Admin::new(&host));
    let mut body = request(json!([]));
    body["temperature"] = json!(3);
    assert_eq!(client.post("/responses", &body).await.status, 400);
    assert_eq!(counted(&admin).await, 0);
    upstream.reply(chat_stream(&["One."]));
    client.stream(&request(json!([]))).await;
    assert_eq!(counted(&admin).await, 0);
}
