//! Server tools: what the model calls and the host runs, in a loop inside one response.

mod advice;
mod approvals;
mod asking;
mod code;
mod endings;
mod failures;
mod files;
mod first_party;
mod forged;
mod fusion;
mod hooks;
mod image;
mod mcp;
pub mod models;
mod offers;
mod patch;
mod plugins;
mod reach;
mod replay;
pub mod script;
mod stop;
mod together;
mod variants;
mod web_search;

use crate::kit::client::{Client, last_response, types_of};
use crate::kit::config::{MODEL, single};
use crate::kit::guests::folder;
use crate::kit::host::{Host, Setup};
use crate::kit::store::usage_of;
use crate::kit::upstream::{Asked, Upstream};
use script::{Call, answer, call, calls};
use serde_json::{Value, json};

/// Grants the test guests the `request` import.
const GRANTS: &str = "[plugins.tool-rogue]\nimports = [\"request\"]\n[plugins.tool-tool-search]\nreplaces = true\nimports = [\"request\"]";

/// A host with the test tools and one chat provider.
struct Bench {
    host: Host,
    upstream: Upstream,
    _guests: tempfile::TempDir,
}

impl Bench {
    async fn start() -> Self {
        Self::with("").await
    }

    /// Starts with more configuration, put before the tables.
    async fn with(config: &str) -> Self {
        let upstream = Upstream::start().await;
        let guests = folder(&["tool-rogue", "tool-tool-search"]);
        let setup = Setup::new().config(config).config(&single("openai-chat", &upstream.base)).config(GRANTS);
        Self { host: setup.plugins(guests.path()).start(), upstream, _guests: guests }
    }

    /// Sends a request, streamed or not, and returns the finished response.
    async fn ask(&self, request: &Value, streamed: bool) -> Value {
        Client::new(&self.host).ask(request, streamed).await
    }

    /// Lets the model make these calls and then answer; returns the finished response.
    async fn run(&self, request: &Value, streamed: bool, made: &[Call<'_>]) -> Value {
        self.upstream.reply(calls(streamed, "", made));
        self.upstream.reply(answer(streamed, "done"));
        self.ask(request, streamed).await
    }

    fn asked_last(&self) -> Asked {
        self.upstream.asked().pop().unwrap()
    }
}

fn with_tool(tool: &str) -> Value {
    json!({"model": MODEL, "input": "Go.", "tools": [{"type": tool}]})
}

/// The tool results sent to the model, in order.
pub fn told(asked: &Asked) -> Vec<&str> {
    let messages = asked.body["messages"].as_array().unwrap();
    let results = messages.iter().filter(|message| message["role"] == "tool");
    results.map(|message| message["content"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn the_model_asks_for_the_time_and_answers_within_one_response() {
    let bench = Bench::start().await;
    for (streamed, prefix) in
        [(false, "service:"), (true, "service:"), (false, "openrouter:"), (true, "openrouter:")]
    {
        let mut request = with_tool(&format!("{prefix}datetime"));
        request["tools"][0]["parameters"] = json!({"timezone": "Asia/Tokyo"});
        let made = [call("call_1", "datetime", r#"{"timezone":"Europe/Berlin"}"#)];
        bench.upstream.reply(calls(streamed, "One moment.", &made));
        bench.upstream.reply(answer(streamed, "It is late."));
        let response = bench.ask(&request, streamed).await;

        assert_eq!(response["status"], "completed");
        let [first, item, last] = response["output"].as_array().unwrap().as_slice() else {
            panic!("{response}")
        };
        assert_eq!(first["content"][0]["text"], "One moment.");
        assert_eq!(item["type"], format!("{prefix}datetime"));
        assert_eq!((&item["status"], &item["timezone"]), (&json!("completed"), &json!("Europe/Berlin")));
        assert!(item["datetime"].as_str().unwrap().contains("T"), "{item}");
        assert!(item["id"].as_str().unwrap().starts_with("st_"), "{item}");
        assert_eq!(last["content"][0]["text"], "It is late.");

        let usage = &response["usage"];
        assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(14), &json!(6)));
        assert_eq!(usage["total_tokens"], 20);
        let details = json!({"tool_calls_executed": 1, "tool_calls_requested": 1, "web_search_requests": 0});
        assert_eq!(usage["server_tool_use_details"], details);
        assert_eq!(usage["cost_details"]["server_tool_cost"], 0);

        let asked = bench.upstream.asked();
        let [.., one, two] = asked.as_slice() else { panic!() };
        let function = &one.body["tools"][0]["function"];
        assert_eq!(function["name"], "datetime");
        assert!(function["parameters"].to_string().contains("Asia/Tokyo when left out"), "{function}");
        assert_eq!(one.body["tools"], two.body["tools"]);
        let messages = two.body["messages"].as_array().unwrap();
        assert_eq!(messages[..1], *one.body["messages"].as_array().unwrap());
        assert_eq!(
            (&messages[1]["role"], &messages[1]["content"]),
            (&json!("assistant"), &json!("One moment."))
        );
        assert_eq!(messages[1]["tool_calls"][0]["id"], "call_1");
        assert_eq!(messages[1]["tool_calls"][0]["function"]["arguments"], r#"{"timezone":"Europe/Berlin"}"#);
        assert_eq!((&messages[2]["role"], &messages[2]["tool_call_id"]), (&json!("tool"), &json!("call_1")));
        assert!(messages[2]["content"].as_str().unwrap().contains("weekday"), "{messages:?}");
        assert_eq!(messages.len(), 3);
    }
}

#[tokio::test]
async fn a_stream_shows_the_call_as_one_item_and_nothing_of_the_function() {
    let bench = Bench::start().await;
    bench.upstream.reply(calls(true, "Wait.", &[call("c", "datetime", "{}")]));
    bench.upstream.reply(answer(true, "Now."));
    let events = Client::new(&bench.host).stream(&with_tool("service:datetime")).await;
    assert_eq!(
        types_of(&events),
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.output_item.done",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    let (added, done) = (&events[8], &events[9]);
    assert_eq!(added["item"]["status"], "in_progress");
    assert_eq!(added["item"]["type"], "service:datetime");
    assert_eq!((&added["output_index"], &done["output_index"]), (&json!(1), &json!(1)));
    assert_eq!(added["item"]["id"], done["item"]["id"]);
    assert_eq!(last_response(&events)["output"][1], done["item"]);
}

#[tokio::test]
async fn a_call_is_shown_before_its_result_is_there() {
    let bench = Bench::start().await;
    bench.upstream.reply(calls(true, "Wait.", &[call("c", "hang", "{}")]));
    bench.upstream.reply(answer(true, "Now."));
    let mut events = Client::new(&bench.host).open(&with_tool("service:rogue")).await;
    while events.until("response.output_item.added").await["item"]["type"] != "service:rogue" {}
    assert_eq!(events.unread(), "");
    assert_eq!(events.until("response.output_item.done").await["item"]["status"], "failed");
    events.until("response.completed").await;
}

#[tokio::test]
async fn routing_metadata_and_the_usage_row_cover_all_turns() {
    let mut bench = Bench::start().await;
    bench.upstream.reply(calls(false, "", &[call("c1", "charge", "{}"), call("c2", "charge", "{}")]));
    bench.upstream.reply(answer(false, "done"));
    let request = with_tool("service:rogue");
    let headers = [("x-service-metadata", "enabled")];
    let answer = Client::new(&bench.host).post_with("/responses", &request, &headers).await;
    let metadata = &answer.body["service_metadata"];
    assert_eq!(metadata["pipeline"][0]["type"], "server_tools", "{}", answer.text);
    assert_eq!(metadata["pipeline"][0]["summary"], "steps=1, calls=2");
    assert_eq!(metadata["pipeline"][0]["cost_usd"], 0.5);
    assert_eq!(metadata["attempts"].as_array().unwrap().len(), 2);
    assert_eq!(answer.body["usage"]["cost"], 0.5);
    assert_eq!(answer.body["usage"]["cost_details"]["server_tool_cost"], 0.5);
    let rows = usage_of(&mut bench.host);
    let [row] = rows.as_slice() else { panic!("{} rows", rows.len()) };
    assert_eq!((row.input_tokens, row.output_tokens, row.cost_pico), (14, 6, 500_000_000_000));
}

#[tokio::test]
async fn the_demonstration_model_uses_tools_too() {
    let host = Setup::new().start();
    let request = json!({"model": "local/demo", "input": "Tell me the datetime in Europe/Paris.",
        "tools": [{"type": "service:datetime"}]});
    let answer = Client::new(&host).post("/responses", &request).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let item = &answer.body["output"][0];
    assert_eq!(
        (&item["type"], &item["timezone"]),
        (&json!("service:datetime"), &json!("Europe/Paris")),
        "{item}"
    );
    assert_eq!(answer.body["output"][1]["type"], "message", "{}", answer.text);
}
