//! The same request gives the same bytes upstream, turn by turn: prompt caches depend on it.

use super::script::{answer, call, calls};
use super::{Bench, with_tool};
use serde_json::{Value, json};

/// The bodies of all turns of one request.
async fn turns(bench: &Bench, request: &Value, streamed: bool) -> Vec<String> {
    let before = bench.upstream.asked().len();
    let made = [
        call("c1", "echo", r#"{"text":"1"}"#),
        call("c2", "fail", "{}"),
        call("c3", "echo", r#"{ "text" : "3" }"#),
    ];
    bench.upstream.reply(calls(streamed, "Let me see.", &made));
    bench.upstream.reply(calls(streamed, "", &[call("c4", "trap", "{}")]));
    bench.upstream.reply(answer(streamed, "done"));
    bench.ask(request, streamed).await;
    bench.upstream.asked()[before..].iter().map(|asked| asked.body.to_string()).collect()
}

#[tokio::test]
async fn every_turn_has_the_same_bytes_each_time_and_begins_with_those_before() {
    let bench = Bench::start().await;
    for streamed in [false, true] {
        let request = with_tool("service:rogue");
        let first = turns(&bench, &request, streamed).await;
        assert_eq!(first, turns(&bench, &request, streamed).await);
        let mut prefixed = request.clone();
        prefixed["tools"][0]["type"] = json!("openrouter:rogue");
        assert_eq!(first, turns(&bench, &prefixed, streamed).await, "the prefix is not the model's business");
        let messages = |turn: &str| -> Vec<Value> {
            let body: Value = serde_json::from_str(turn).unwrap();
            body["messages"].as_array().unwrap().clone()
        };
        for pair in first.windows(2) {
            let (before, after) = (messages(&pair[0]), messages(&pair[1]));
            assert_eq!(before[..], after[..before.len()]);
        }
        let expected = json!([
            {"role": "user", "content": "Go."},
            {"role": "assistant", "content": "Let me see.", "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "echo", "arguments": "{\"text\":\"1\"}"}},
                {"id": "c2", "type": "function", "function": {"name": "fail", "arguments": "{}"}},
                {"id": "c3", "type": "function", "function": {"name": "echo", "arguments": "{ \"text\" : \"3\" }"}},
            ]},
            {"role": "tool", "content": "1", "tool_call_id": "c1"},
            {"role": "tool", "content": "{\"error\":\"it did not work\"}", "tool_call_id": "c2"},
            {"role": "tool", "content": "3", "tool_call_id": "c3"},
        ]);
        assert_eq!(json!(messages(&first[1])), expected);
    }
}

#[tokio::test]
async fn the_output_of_one_request_is_input_of_the_next() {
    let bench = Bench::start().await;
    for streamed in [false, true] {
        let made = [call("c1", "echo", r#"{"text":"1"}"#), call("c2", "refuse", "{}")];
        let response = bench.run(&with_tool("openrouter:rogue"), streamed, &made).await;
        let mut input = vec![json!({"role": "user", "content": "Go."})];
        input.extend(response["output"].as_array().unwrap().iter().cloned());
        input.push(json!({"role": "user", "content": "And now?"}));
        let mut told = Vec::new();
        for _ in 0..2 {
            bench.upstream.reply(answer(streamed, "again"));
            let mut request = with_tool("openrouter:rogue");
            request["input"] = json!(input);
            bench.ask(&request, streamed).await;
            told.push(bench.asked_last().body);
        }
        assert_eq!(told[0], told[1]);
        let roles: Vec<_> =
            told[0]["messages"].as_array().unwrap().iter().map(|message| &message["role"]).collect();
        assert_eq!(roles, ["user", "assistant", "tool", "tool", "assistant", "user"]);
        assert_eq!(
            told[0]["messages"][3]["content"],
            r#"{"status":"failed","error":"text is not to my liking"}"#
        );
    }
}
