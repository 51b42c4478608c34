//! One usage row for each request that reached routing, however it ended.

use crate::kit::client::Client;
use crate::kit::config::{MODEL, several_of, single};
use crate::kit::host::Setup;
use crate::kit::script::{self, word};
use crate::kit::store::usage_of;
use crate::kit::upstream::{Reply, Upstream, sse_event};
use cofferdam_store::{UsageKind, UsageOutcome};
use serde_json::json;

#[tokio::test]
async fn every_outcome_leaves_one_row_with_its_counts() {
    let upstream = Upstream::start().await;
    let mut host = Setup::new().config(&single("openai-chat", &upstream.base)).start();
    let client = Client::new(&host);
    let request = json!({"model": MODEL, "input": "x"});
    upstream.reply(script::chat("fine"));
    client.post("/responses", &request).await;
    upstream.reply(script::chat_stream(&["fine"]));
    client.stream(&request).await;
    upstream.reply(Reply::sse(&[vec![word("half")], script::ending("length")].concat()));
    client.stream(&request).await;
    upstream.reply(Reply::cut(&[word("half")]));
    client.stream(&request).await;
    upstream.reply(script::refusal(500, "no"));
    client.post("/responses", &request).await;
    // These requests were not routed, so they used nothing.
    client.post("/responses", &json!({"model": MODEL})).await;
    client.post("/responses", &json!({"model": "no/such", "input": "x"})).await;
    let rows = usage_of(&mut host);
    let told: Vec<(UsageOutcome, bool, u64, u64)> =
        rows.iter().map(|row| (row.outcome, row.streamed, row.input_tokens, row.output_tokens)).collect();
    assert_eq!(
        told,
        [
            (UsageOutcome::Completed, false, 7, 3),
            (UsageOutcome::Completed, true, 7, 3),
            (UsageOutcome::Incomplete, true, 7, 3),
            (UsageOutcome::Failed, true, 0, 0),
            (UsageOutcome::Failed, false, 0, 0),
        ]
    );
    assert!(
        rows.iter()
            .all(|row| row.kind == UsageKind::Responses && row.model == MODEL && row.provider == "one")
    );
}

#[tokio::test]
async fn a_client_disconnect_leaves_one_row_with_what_was_used() {
    let mut upstream = Upstream::start().await;
    let (words, reply) = Reply::fed();
    upstream.reply(reply);
    let mut host = Setup::new().config(&single("anthropic", &upstream.base)).start();
    let client = Client::new(&host);
    for event in [
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 12, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hm"}}),
    ] {
        words.send(sse_event(&event)).await.unwrap();
    }
    let mut events = client.open(&json!({"model": MODEL, "input": "x"})).await;
    events.until("response.output_text.delta").await;
    drop(events);
    upstream.dropped.recv().await.unwrap();
    let rows = usage_of(&mut host);
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].outcome, UsageOutcome::Cancelled);
    // Anthropic reports the input at the beginning. It was consumed and is charged.
    assert_eq!((rows[0].input_tokens, rows[0].streamed), (12, true));
    drop(words);
}

#[tokio::test]
async fn embeddings_are_counted_and_fallbacks_leave_one_row_for_the_endpoint_that_answered() {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let mut host = Setup::new().config(&several_of("embeddings", &[&a.base, &b.base])).start();
    a.reply(script::refusal(500, "no"));
    let usage = json!({"prompt_tokens": 9, "total_tokens": 9});
    b.reply(Reply::json(200, json!({"data": [{"index": 0, "embedding": [1]}], "usage": usage})));
    let request = json!({"model": MODEL, "input": "x", "provider": {"sort": "price"}});
    let answer = Client::new(&host).post("/embeddings", &request).await;
    // 9 tokens at 10 dollars a million.
    assert_eq!(answer.body["usage"]["cost"], json!(0.00009), "{}", answer.text);
    let rows = usage_of(&mut host);
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    assert_eq!(
        (row.kind, row.outcome, row.provider.as_str()),
        (UsageKind::Embeddings, UsageOutcome::Completed, "b")
    );
    assert_eq!((row.input_tokens, row.cost_pico), (9, 90_000_000));
}
