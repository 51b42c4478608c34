//! A kill during a request that already had other turns, or had asked other models.

use super::OUTPUT;
use crate::kit::client::Client;
use crate::kit::config::{MODEL, provider};
use crate::kit::guests::folder;
use crate::kit::host::{Host, Setup};
use crate::kit::store::rows_in;
use crate::kit::upstream::{Reply, Upstream};
use crate::tools::script::{answer, call, calls};
use cofferdam_store::{UsageOutcome, UsageRow};
use serde_json::{Value, json};

const DOLLAR: u64 = 1_000_000_000_000;
/// The cost of a turn of either model: 7 tokens in, 3 out, at a dollar each.
const TURN: u64 = 10 * DOLLAR;
/// The output reservation of a question without a limit of its own.
const QUESTION: u64 = 8_192 * DOLLAR;

/// A prepaid host with the models [`MODEL`] and `m/a`, and plugins that ask models.
struct Bench {
    host: Host,
    outer: Upstream,
    asked: Upstream,
    _guests: tempfile::TempDir,
}

impl Bench {
    async fn start(dollars: &str) -> Self {
        let (outer, asked) = (Upstream::start().await, Upstream::start().await);
        let mut config = ["tool-asker", "hook-asker"]
            .map(|name| format!("[plugins.{name}]\nimports = [\"model\"]\n"))
            .concat();
        for (name, id, upstream) in [("outer", MODEL, &outer), ("asked", "m/a", &asked)] {
            config += &provider(name, "openai-chat", &upstream.base);
            config += &format!(
                "[[models]]\nid = \"{id}\"\n\
                 endpoints = [{{ provider = \"{name}\", model = \"m\", input = 1000000, output = 1000000 }}]\n"
            );
        }
        let guests = folder(&["tool-asker", "hook-asker"]);
        let host = Setup::new().config(&config).plugins(guests.path()).start();
        host.command(&["credits", "add", "default", dollars]);
        Self { host, outer, asked, _guests: guests }
    }

    /// Kills the host when a provider has received this many requests and has not answered the last
    /// one; returns the only usage row.
    async fn killed(mut self, request: &Value, provider: fn(&Self) -> &Upstream, asked: usize) -> UsageRow {
        let upstream = provider(&self);
        upstream.reply(Reply::Hang);
        let client = Client::new(&self.host);
        tokio::select! {
            answer = client.post("/responses", request) => panic!("{}", answer.text),
            _ = upstream.until_asked(asked) => {}
        }
        self.host.kill();
        let [row] = rows_in(&self.host.data(), 10).try_into().unwrap();
        assert_eq!(row.outcome, UsageOutcome::Interrupted, "{row:?}");
        row
    }
}

fn outer(bench: &Bench) -> &Upstream {
    &bench.outer
}

fn other(bench: &Bench) -> &Upstream {
    &bench.asked
}

fn request(tools: &Value) -> Value {
    json!({"model": MODEL, "input": "x", "max_output_tokens": OUTPUT, "tools": tools})
}

#[tokio::test]
async fn a_killed_later_turn_is_charged_with_earlier_turns() {
    let request = request(&json!([{"type": "service:datetime"}]));
    let bench = Bench::start("1000").await;
    let first = bench.killed(&request, outer, 1).await.cost_pico;
    for turns in 1..4 {
        let bench = Bench::start("1000").await;
        for _ in 0..turns {
            bench.outer.reply(calls(false, "", &[call("c", "datetime", "{}")]));
        }
        let row = bench.killed(&request, outer, turns + 1).await;
        let least = turns as u64 * TURN + first;
        assert!(row.cost_pico >= least, "{turns} turns before: {} < {least}", row.cost_pico);
        assert_eq!(row.model, MODEL);
    }
}

#[tokio::test]
async fn a_killed_question_of_a_tool_is_charged_with_the_turn_before_it() {
    let bench = Bench::start("100000").await;
    let ask = json!({"text": json!({"model": "m/a", "input": "Why?"}).to_string()}).to_string();
    bench.outer.reply(calls(false, "", &[call("c", "question", &ask)]));
    let row = bench.killed(&request(&json!([{"type": "service:asker"}])), other, 1).await;
    assert!(row.cost_pico >= TURN + QUESTION, "{}", row.cost_pico);
    assert_eq!(row.model, MODEL, "it is the client's request");
}

#[tokio::test]
async fn a_hooks_question_is_charged_if_the_host_is_killed_during_or_after_it() {
    let mut request = request(&json!([]));
    request["plugins"] = json!([{"id": "asking", "model": "m/a"}]);
    let bench = Bench::start("100000").await;
    let row = bench.killed(&request, other, 1).await;
    assert!((QUESTION..2 * QUESTION).contains(&row.cost_pico), "{}", row.cost_pico);
    // The question has ended and was cheap. Its cost is kept in addition to the reservation of the
    // client's own turn.
    let bench = Bench::start("100000").await;
    bench.asked.reply(answer(false, "fine"));
    let row = bench.killed(&request, outer, 1).await;
    assert!(row.cost_pico >= TURN + u64::from(OUTPUT) * DOLLAR, "{}", row.cost_pico);
    assert_eq!(row.model, MODEL);
}
