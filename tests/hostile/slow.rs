//! Guests and clients that stay within the limits of one step and never come to an end.

use super::guests::install;
use crate::kit::admin::Admin;
use crate::kit::beside::Calm;
use crate::kit::client::{Client, events_of};
use crate::kit::config::{STEADY, model, provider};
use crate::kit::host::Setup;
use crate::kit::raw::{Raw, post_head};
use crate::kit::rogue::Rogue;
use crate::kit::script::word;
use crate::kit::upstream::{Reply, Upstream, sse_event};
use serde_json::json;
use std::time::Duration;

/// The calls that an instance has in all, in budgets of one call.
const BUDGETS: u64 = 100;

/// A provider whose `feed` counts down from 300,000, less than a millisecond, and gives no event.
fn dawdler() -> Vec<u8> {
    // `ok(upstream)` with the path `p`, no headers, the body `{}`, and a stream as the answer.
    let prepared = [0, 0, 0, 3072, 1, 0, 0, 3080, 2, 1_u32];
    let bytes: String =
        prepared.iter().flat_map(|word| word.to_le_bytes()).map(|byte| format!("\\{byte:02x}")).collect();
    Rogue::of("generation-provider")
        .importing(
            "(import \"[export]cofferdam:plugin/generation@0.1.0\" \"[resource-new]decoder\" \
             (func $new (param i32) (result i32)))",
        )
        .plus(&format!("(data (i32.const 2048) \"{bytes}\") (data (i32.const 3072) \"p\") (data (i32.const 3080) \"{{}}\")"))
        .with_body("generation@0.1.0#prepare", "i32.const 2048")
        .with_body("[constructor]decoder", "(call $new (i32.const 8))")
        .with_body(
            "decoder.feed",
            "(local $left i32) (local.set $left (i32.const 300000)) \
             (loop $again (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1))))) i32.const 4096",
        )
        .build()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_is_slow_in_every_call_of_a_stream_is_ended_by_the_budget_of_all() {
    let (upstream, calm, guests) =
        (Upstream::start().await, Calm::start().await, tempfile::tempdir().unwrap());
    install(guests.path(), "provider-dawdler", "provider", "[provider]\nframing = \"sse\"\n", &dawdler());
    let config = STEADY.to_owned()
        + &provider("slow", "dawdler", &upstream.base)
        + &model("slow/m", "responses", &["slow"])
        + "[plugins.provider-dawdler]\ndeadline_ms = 20\n";
    let host = Setup::new().config(&config).config(&calm.config()).plugins(guests.path()).start();
    let (client, admin, watch) = (Client::new(&host), Admin::new(&host), calm.watch(&host).await);
    let (feed, reply) = Reply::fed();
    upstream.reply(reply);
    // Until the host closes the connection.
    let feeding = tokio::spawn(async move { while feed.send(sse_event(&word("beat "))).await.is_ok() {} });
    let request = json!({"model": "slow/m", "input": "x", "stream": true});
    let answer = watch.beside("a slow decoder", client.post("/responses", &request)).await;
    // The budget is 2 s of processor time. A busy machine may need more than 15 s for them, and a stream that is
    // silent for so long begins with a comment; the failure is then its last event.
    match answer.status {
        502 => {}
        200 => {
            assert_eq!(events_of(&answer.text).last().unwrap()["type"], "response.failed", "{}", answer.text)
        }
        other => panic!("{other}: {}", answer.text),
    }
    feeding.await.unwrap();
    let ended = "cofferdam_plugin_errors_total{plugin=\"provider-dawdler\",kind=\"out_of_time\"}";
    assert_eq!(admin.metric(ended).await, 1);
    // No single call went over its own budget, so there were at least as many as make up the budget of all.
    let calls = admin.metric("cofferdam_plugin_calls_total{plugin=\"provider-dawdler\"}").await;
    println!("ended after {calls} calls");
    assert!(calls >= BUDGETS, "{calls}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_send_a_byte_a_second_on_all_connections_are_cut_off_and_others_served() {
    let calm = Calm::start().await;
    let limits = "[limits]\nconnections = 12\n[timeouts]\nbody_total_ms = 3000\n";
    let demo = provider("demo", "demo", "http://127.0.0.1:9")
        .replace("base_url = \"http://127.0.0.1:9\"\n", "")
        + &model("local/demo", "responses", &["demo"]);
    let host = Setup::new().config(limits).config(&demo).config(&calm.config()).start();
    let (admin, watch) = (Admin::new(&host), calm.watch(&host).await);
    let attack = async {
        let (mut heads, mut bodies) = (Vec::new(), Vec::new());
        for _ in 0..6 {
            let mut raw = Raw::connect(&host).await;
            assert!(raw.send(b"GET /v1/models HTTP/1.1\r\nHost: x\r\nX-Slow: ").await);
            heads.push(tokio::spawn(drip(raw, b"x")));
            let mut raw = Raw::connect(&host).await;
            let head = post_head(&host, "/responses", "Transfer-Encoding: chunked\r\n\r\n");
            assert!(raw.send(head.as_bytes()).await);
            bodies.push(tokio::spawn(drip(raw, b"1\r\n \r\n")));
        }
        // All places are taken: one by the stream beside them, the others by these.
        admin.until_metric("cofferdam_connections", 12).await;
        let request = json!({"model": "local/demo", "input": "good morning"});
        let honest = Client::new(&host).post("/responses", &request).await;
        assert_eq!(honest.status, 200, "{}", honest.text);
        for body in bodies {
            let answer = body.await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
        }
        for head in heads {
            let answer = head.await.unwrap();
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
        }
    };
    watch.beside("a byte a second on all connections", attack).await;
}

/// Sends these bytes once a second until the host ends the connection; returns what it answered.
async fn drip(raw: Raw, bytes: &'static [u8]) -> String {
    let (mut reader, mut writer) = raw.split();
    let dripping = tokio::spawn(async move {
        let mut seconds = tokio::time::interval(Duration::from_secs(1));
        while writer.send(bytes).await {
            seconds.tick().await;
        }
    });
    let answer = reader.rest().await;
    dripping.abort();
    answer
}
