//! The same request gives the same bytes upstream, turn by turn: prompt caches depend on it.

use super::models::Models;
use super::script::{answer, call, calls};
use super::{Bench, with_tool};
use crate::kit::config::MODEL;
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
        // The items do not record which function of the tool was called, so they become text.
        let messages = told[0]["messages"].as_array().unwrap();
        let roles: Vec<_> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
        assert_eq!(roles, ["user", "assistant", "user"]);
        let text = messages[1]["content"].as_str().unwrap();
        let failed =
            r#"[I used the tool rogue. It gave: {"status":"failed","error":"text is not to my liking"}]"#;
        assert!(text.contains(r#"It gave: {"text":"1"}]"#) && text.contains(failed), "{text}");
    }
}

/// A request whose input has these items between two messages of the user.
fn with_history(items: Value, tools: Value) -> Value {
    let mut input = vec![json!({"role": "user", "content": "Go."})];
    input.extend(items.as_array().unwrap().iter().cloned());
    input.push(json!({"role": "user", "content": "And now?"}));
    json!({"model": MODEL, "input": input, "tools": tools})
}

/// The messages sent to the provider for a request, without the first and the last.
async fn told_of(bench: &Bench, request: &Value) -> Vec<Value> {
    bench.upstream.reply(answer(false, "again"));
    bench.ask(request, false).await;
    let body = bench.asked_last().body;
    let messages = body["messages"].as_array().unwrap();
    messages[1..messages.len() - 1].to_vec()
}

fn history() -> Value {
    json!([
        {"type": "service:files", "id": "st_1", "status": "completed", "operation": "write", "filename": "a.md",
            "file_id": "file_1", "result": "Wrote 3 bytes to a.md.", "content": []},
        {"type": "function_call", "call_id": "c1", "name": "own", "arguments": "{}"},
        {"type": "openrouter:web_search", "id": "st_2", "status": "completed", "content": [],
            "action": {"type": "search", "query": "foxes", "sources": []}},
        {"type": "function_call_output", "call_id": "c1", "output": "1"},
    ])
}

#[tokio::test]
async fn calls_are_rendered_under_the_current_names_of_their_tools() {
    let bench = Bench::start().await;
    let tools = json!([{"type": "openrouter:files"}, {"type": "function", "name": "own", "parameters": {}}]);
    let told = told_of(&bench, &with_history(history(), tools)).await;
    let [calling, result, own] = told.as_slice() else { panic!("{told:?}") };
    let used =
        r#"[I used the tool web_search. It gave: {"action":{"type":"search","query":"foxes","sources":[]}}]"#;
    assert_eq!((&calling["role"], &calling["content"]), (&json!("assistant"), &json!(used)));
    let [write, function] = calling["tool_calls"].as_array().unwrap().as_slice() else { panic!("{calling}") };
    assert_eq!(
        write,
        &json!({"id": "st_1", "type": "function",
            "function": {"name": "files_write", "arguments": r#"{"filename":"a.md"}"#}})
    );
    assert_eq!((&function["id"], &function["function"]["name"]), (&json!("c1"), &json!("own")));
    assert_eq!(
        result,
        &json!({"role": "tool", "tool_call_id": "st_1",
            "content": r#"{"operation":"write","file_id":"file_1","result":"Wrote 3 bytes to a.md."}"#})
    );
    assert_eq!(own["tool_call_id"], "c1");
}

#[tokio::test]
async fn calls_of_tools_absent_from_the_request_are_rendered_as_text() {
    let bench = Bench::start().await;
    let told = told_of(&bench, &with_history(history(), json!([]))).await;
    let roles: Vec<_> = told.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["assistant", "tool"], "{told:?}");
    let text = told[0]["content"].as_str().unwrap();
    for part in ["[I used the tool files. It gave: {\"operation\":\"write\"", "[I used the tool web_search."]
    {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(told[0]["tool_calls"].as_array().unwrap().len(), 1);
    assert_eq!(told[0]["tool_calls"][0]["id"], "c1");
}

#[tokio::test]
async fn calls_of_one_of_several_advisors_are_rendered_under_its_name() {
    let models = Models::start().await;
    let advised = |id: &str, name: &str| {
        json!({"type": "service:advisor", "id": id, "status": "completed", "instance_name": name, "prompt": "Which?",
            "advice": "Left.", "content": []})
    };
    let advisor =
        |name: &str| json!({"type": "service:advisor", "parameters": {"name": name, "model": "m/a"}});
    let mut request = with_history(
        json!([advised("st_1", "Second"), advised("st_2", "gone")]),
        json!([advisor("First"), advisor("Second")]),
    );
    for streamed in [false, true] {
        models.outer.reply(answer(streamed, "done"));
        request["stream"] = json!(streamed);
        models.ask(&request, streamed).await;
        let body = models.outer.asked().pop().unwrap().body;
        let messages = body["messages"].as_array().unwrap();
        let told = messages[1]["content"].as_str().unwrap();
        assert!(told.starts_with("[I used the tool advisor. It gave: {\"instance_name\":\"gone\""), "{told}");
        let call = &messages[1]["tool_calls"][0]["function"];
        assert_eq!(call, &json!({"name": "advisor_second", "arguments": r#"{"prompt":"Which?"}"#}));
    }
}

#[tokio::test]
async fn what_is_left_of_a_request_stays_in_its_place() {
    let bench = Bench::start().await;
    let mut request = with_history(history(), json!([{"type": "function", "name": "own", "parameters": {}}]));
    request["tool_choice"] = json!("required");
    told_of(&bench, &request).await;
    let body = bench.asked_last().body;
    assert_eq!(
        (&body["tool_choice"], &body["tools"][0]["function"]["name"]),
        (&json!("required"), &json!("own"))
    );
}
