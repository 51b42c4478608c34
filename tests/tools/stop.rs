//! When the loop ends although the model would go on calling.

use super::script::{answer, call, calls, calls_ending};
use super::{Bench, told, with_tool};
use serde_json::{Value, json};

/// Runs a model that calls a tool in every turn until it must answer. Each call costs 0.25 dollars,
/// each turn has 10 tokens.
async fn assert_steps(bench: &Bench, members: &Value, steps: usize, streamed: bool) {
    let before = bench.upstream.asked().len();
    for turn in 0..steps {
        bench.upstream.reply(calls(streamed, "", &[call(&format!("call_{turn}"), "charge", "{}")]));
    }
    bench.upstream.reply(answer(streamed, "that is all"));
    let mut request = with_tool("service:rogue");
    for (name, value) in members.as_object().unwrap() {
        request[name] = value.clone();
    }
    let response = bench.ask(&request, streamed).await;
    assert_eq!(response["status"], "completed", "{members}: {response}");
    let output = response["output"].as_array().unwrap();
    assert_eq!(output.len(), steps + 1, "{members}: {response}");
    assert_eq!(output[steps]["content"][0]["text"], "that is all");
    let asked = bench.upstream.asked();
    let turns = &asked[before..];
    assert_eq!(turns.len(), steps + 1, "{members}");
    for (place, turn) in turns.iter().enumerate() {
        let expected = if place == steps { json!("none") } else { Value::Null };
        assert_eq!(turn.body["tool_choice"], expected, "{members}, turn {place}");
        assert_eq!(turn.body["tools"], turns[0].body["tools"], "tools stay, for the provider's cache");
        assert_eq!(told(turn).len(), place, "every call has its result");
    }
    assert_eq!(response["usage"]["total_tokens"], 10 * (steps + 1));
}

#[tokio::test]
async fn each_condition_lets_the_pending_calls_run_and_asks_once_more_without_tools() {
    let bench = Bench::start().await;
    let when = |condition: Value| json!({"stop_server_tools_when": [condition]});
    let table = [
        (json!({"max_tool_calls": 2}), 2),
        (when(json!({"type": "step_count_is", "step_count": 3})), 3),
        (when(json!({"type": "has_tool_call", "tool_name": "charge"})), 1),
        (when(json!({"type": "has_tool_call", "tool_name": "service:rogue"})), 1),
        (when(json!({"type": "max_tokens_used", "max_tokens": 20})), 3),
        (when(json!({"type": "max_tokens_used", "max_tokens": 19})), 2),
        (when(json!({"type": "max_cost", "max_cost_in_dollars": 0.5})), 3),
        (when(json!({"type": "max_cost", "max_cost_in_dollars": 0.49})), 2),
        (when(json!({"type": "finish_reason_is", "reason": "tool_calls"})), 1),
        (
            json!({"max_tool_calls": 1, "stop_server_tools_when": [
                {"type": "has_tool_call", "tool_name": "nothing"}, {"type": "step_count_is", "step_count": 4},
                {"type": "finish_reason_is", "reason": "length"}]}),
            4,
        ),
    ];
    for (members, steps) in table {
        assert_steps(&bench, &members, steps, false).await;
        assert_steps(&bench, &members, steps, true).await;
    }
}

#[tokio::test]
async fn thirty_steps_are_the_default_and_conditions_may_allow_more() {
    let bench = Bench::start().await;
    assert_steps(&bench, &json!({}), 30, false).await;
    let many = json!({"stop_server_tools_when": [{"type": "step_count_is", "step_count": 35}]});
    assert_steps(&bench, &many, 35, false).await;
}

#[tokio::test]
async fn calls_made_although_tools_are_off_are_not_run() {
    let bench = Bench::start().await;
    for streamed in [false, true] {
        bench.upstream.reply(calls(streamed, "", &[call("c1", "echo", "{}")]));
        bench.upstream.reply(calls(streamed, "so be it", &[call("c2", "echo", "{}")]));
        let mut request = with_tool("service:rogue");
        request["max_tool_calls"] = json!(1);
        let response = bench.ask(&request, streamed).await;
        assert_eq!(response["status"], "completed", "{response}");
        let output = response["output"].as_array().unwrap();
        assert_eq!(output[1]["content"][0]["text"], "so be it");
        assert_eq!((&output[2]["type"], &output[2]["status"]), (&json!("service:rogue"), &json!("failed")));
        assert_eq!(output[2]["error"], "No further tool calls are allowed.");
        let details = &response["usage"]["server_tool_use_details"];
        assert_eq!(
            (&details["tool_calls_requested"], &details["tool_calls_executed"]),
            (&json!(2), &json!(1))
        );
    }
}

#[tokio::test]
async fn an_answer_that_was_cut_ends_the_response_and_runs_nothing() {
    let bench = Bench::start().await;
    for streamed in [false, true] {
        let before = bench.upstream.asked().len();
        bench.upstream.reply(calls_ending(streamed, "", &[call("c1", "echo", "{\"text\":\"ha")], "length"));
        let response = bench.ask(&with_tool("service:rogue"), streamed).await;
        assert_eq!(response["status"], "incomplete", "{response}");
        assert_eq!(response["output"][0]["status"], "incomplete");
        assert_eq!(bench.upstream.asked().len(), before + 1);
    }
}
