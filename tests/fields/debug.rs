//! `debug.echo_upstream_body`: shows the client the request body that was sent to the provider.

use crate::kit::client::{Client, text_of, types_of};
use crate::kit::config::{MODEL, model, several};
use crate::kit::host::Setup;
use crate::kit::script;
use crate::kit::upstream::{Reply, Upstream};
use serde_json::{Value, json};

const SECRET: &str = "sk-canary-echo-91c4";

fn request() -> Value {
    json!({
        "model": MODEL, "input": "Good morning", "provider": {"sort": "price"},
        "debug": {"echo_upstream_body": true},
    })
}

/// The bodies of the debug events, which must come before all others.
fn echoed(events: &[Value]) -> Vec<&Value> {
    let is_debug = |event: &&Value| event["type"] == "response.debug";
    let bodies: Vec<&Value> =
        events.iter().take_while(is_debug).map(|event| &event["debug"]["echo_upstream_body"]).collect();
    assert_eq!(events.iter().filter(is_debug).count(), bodies.len(), "debug events come first");
    bodies
}

/// When the body was handed over, in milliseconds since the request arrived and since 1970.
fn times_of(event: &Value) -> (u64, u64) {
    let timings = &event["debug"]["timings"];
    assert_eq!(timings["event"], "adapter_request", "{event}");
    (timings["start_ms"].as_u64().unwrap(), timings["epoch_ms"].as_u64().unwrap())
}

#[tokio::test]
async fn every_upstream_body_is_shown_before_other_events() {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let host = Setup::new().config(&several(&[&a.base, &b.base])).start();
    a.reply(script::refusal(503, "busy"));
    b.reply(script::chat_stream(&["Hello."]));
    let events = Client::new(&host).stream(&request()).await;
    assert_eq!(text_of(&events), "Hello.");
    assert_eq!(echoed(&events), [&a.asked_once().body, &b.asked_once().body]);
    let times: Vec<(u64, u64)> = events[..2].iter().map(times_of).collect();
    assert!(times[0].0 <= times[1].0, "since the request arrived: {times:?}");
    assert_eq!(times[1].1 - times[0].1, times[1].0 - times[0].0, "and since 1970");
    let types = types_of(&events);
    assert_eq!(types[2..4], ["response.created", "response.in_progress"], "{types:?}");
    assert_eq!(types.iter().filter(|kind| **kind == "response.created").count(), 1);
}

#[tokio::test]
async fn no_debug_event_without_a_stream_a_provider_request_or_the_option() {
    let upstream = Upstream::start().await;
    let config = several(&[&upstream.base]) + "[[providers]]\nname = \"demo\"\nadapter = \"demo\"\n";
    let config = config + &model("test/demo", "responses", &["demo"]);
    let host = Setup::new().config(&config).start();
    let client = Client::new(&host);
    upstream.reply(script::chat("Hello."));
    let whole = client.post("/responses", &request()).await;
    assert_eq!(whole.output_text(), "Hello.");
    assert!(!whole.text.contains("echo_upstream_body"), "{}", whole.text);
    let mut local = request();
    local["model"] = json!("test/demo");
    assert!(echoed(&client.stream(&local).await).is_empty());
    upstream.reply(script::chat_stream(&["Hello."]));
    let mut silent = request();
    silent["debug"]["echo_upstream_body"] = json!(false);
    assert!(echoed(&client.stream(&silent).await).is_empty());
}

#[tokio::test]
async fn a_refusal_before_the_stream_has_no_debug_event() {
    let upstream = Upstream::start().await;
    let host = Setup::new().config(&several(&[&upstream.base])).start();
    upstream.reply(script::refusal(400, "no"));
    let mut body = request();
    body["stream"] = json!(true);
    let answer = Client::new(&host).post("/responses", &body).await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    assert!(!answer.text.contains("response.debug"));
}

#[tokio::test]
async fn a_credential_in_the_clients_text_is_redacted() {
    let upstream = Upstream::start().await;
    let provider = format!(
        "[egress]\nallow_plaintext_loopback = true\n[[providers]]\nname = \"one\"\n\
         adapter = \"openai-responses\"\nbase_url = \"{}\"\nkey = \"env:TEST_PROVIDER_KEY\"\n",
        upstream.base
    );
    let host = Setup::new()
        .without_canaries()
        .environment("TEST_PROVIDER_KEY", SECRET)
        .config(&(provider + &model(MODEL, "responses", &["one"])))
        .start();
    upstream.reply(Reply::sse(&[
        json!({"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "content_index": 0, "delta": "ok"}),
        json!({"type": "response.completed", "response": {"id": "r", "status": "completed", "output": [], "usage": null}}),
    ]));
    // Once unchanged and once with an escape that the dialect passes on.
    let escaped = SECRET.replace("sk-", "\\u0073k-");
    let body = format!(
        r#"{{"model":"{MODEL}","stream":true,"debug":{{"echo_upstream_body":true}},
            "metadata":{{"a":"{SECRET}","b":"x {escaped}"}},"input":"Is {SECRET} yours?"}}"#
    );
    let answer = Client::new(&host).post_bytes("/responses", body.into_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let asked = upstream.asked_once();
    assert_eq!(asked.headers["authorization"], format!("Bearer {SECRET}"));
    assert_eq!(asked.body["metadata"]["b"], format!("x {SECRET}"), "what is sent is not touched");
    let events = crate::kit::client::events_of(&answer.text);
    let [shown] = echoed(&events)[..] else { panic!("{}", answer.text) };
    let stars = "*".repeat(SECRET.len());
    assert_eq!(shown["metadata"], json!({"a": stars, "b": format!("x {stars}")}));
    assert!(!shown.to_string().contains("canary"), "{shown}");
}

#[tokio::test]
async fn each_turn_of_server_tools_shows_its_body_at_its_start() {
    let upstream = Upstream::start().await;
    let host = Setup::new().config(&several(&[&upstream.base])).start();
    let call = json!({"index": 0, "id": "c1", "type": "function",
                      "function": {"name": "datetime", "arguments": "{}"}});
    let mut first = vec![script::opening(), script::chunk(&json!({"tool_calls": [call]}))];
    first.extend(script::ending("tool_calls"));
    upstream.reply(Reply::sse(&first));
    upstream.reply(script::chat_stream(&["Noon."]));
    let mut body = request();
    body["tools"] = json!([{"type": "service:datetime"}]);
    let events = Client::new(&host).stream(&body).await;
    assert_eq!(text_of(&events), "Noon.");
    let shown: Vec<&Value> = events.iter().filter(|event| event["type"] == "response.debug").collect();
    let asked = upstream.asked();
    assert_eq!((shown.len(), asked.len()), (2, 2));
    for (event, asked) in shown.iter().zip(&asked) {
        assert_eq!(event["debug"]["echo_upstream_body"], asked.body);
    }
    let types = types_of(&events);
    assert_eq!(types[0], "response.debug");
    let second = types.iter().rposition(|kind| *kind == "response.debug").unwrap();
    let text = types.iter().position(|kind| *kind == "response.output_text.delta").unwrap();
    assert!(second < text, "{types:?}");
}
