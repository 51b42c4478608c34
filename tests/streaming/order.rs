//! The exact order of events for each kind of answer.

use crate::kit::client::{Client, last_response, text_of, types_of};
use crate::kit::config::{MODEL, single};
use crate::kit::host::Setup;
use crate::kit::script::{self, chunk, word};
use crate::kit::upstream::{Reply, Upstream};
use serde_json::{Value, json};

/// The events of an answer that the provider streams like this.
async fn stream(adapter: &str, reply: Reply) -> Vec<Value> {
    stream_of(adapter, reply, &json!({"model": MODEL, "input": "x"})).await
}

async fn stream_of(adapter: &str, reply: Reply, request: &Value) -> Vec<Value> {
    let upstream = Upstream::start().await;
    upstream.reply(reply);
    let host = Setup::new().config(&single(adapter, &upstream.base)).start();
    Client::new(&host).stream(request).await
}

/// Every added item is done under the same index and id, and is in the output.
fn check_items(events: &[Value]) {
    let of = |kind: &str| -> Vec<(u64, String)> {
        let events = events.iter().filter(|event| event["type"] == kind);
        events
            .map(|event| {
                (event["output_index"].as_u64().unwrap(), event["item"]["id"].as_str().unwrap().to_owned())
            })
            .collect()
    };
    let added = of("response.output_item.added");
    assert_eq!(added, of("response.output_item.done"));
    let output = last_response(events)["output"].as_array().unwrap();
    let listed: Vec<(u64, String)> =
        (0..).zip(output).map(|(index, item)| (index, item["id"].as_str().unwrap().to_owned())).collect();
    assert_eq!(added, listed);
    for event in events.iter().filter(|event| event.get("item_id").is_some()) {
        let (_, id) = &added[event["output_index"].as_u64().unwrap() as usize];
        assert_eq!(event["item_id"], id.as_str(), "{event}");
    }
}

#[tokio::test]
async fn text_comes_in_the_order_of_the_interface() {
    let events = stream("openai-chat", script::chat_stream(&["Hel", "lo"])).await;
    assert_eq!(
        types_of(&events),
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    check_items(&events);
    for early in &events[..2] {
        let response = &early["response"];
        assert_eq!((&response["status"], &response["output"]), (&json!("in_progress"), &json!([])));
        assert_eq!((&response["completed_at"], &response["usage"]), (&Value::Null, &Value::Null));
    }
    assert_eq!(events[2]["item"]["content"], json!([]));
    assert_eq!(events[2]["item"]["status"], "in_progress");
    assert_eq!(
        events[3]["part"],
        json!({"type": "output_text", "text": "", "annotations": [], "logprobs": []})
    );
    assert_eq!((&events[4]["delta"], &events[4]["logprobs"]), (&json!("Hel"), &json!([])));
    assert_eq!((&events[6]["text"], &events[6]["logprobs"]), (&json!("Hello"), &json!([])));
    assert_eq!(events[7]["part"]["text"], "Hello");
    assert_eq!(events[8]["item"]["status"], "completed");
    assert_eq!(events[8]["item"], last_response(&events)["output"][0]);
    assert_eq!(last_response(&events)["usage"]["total_tokens"], 10);
}

#[tokio::test]
async fn reasoning_ends_before_the_message_begins() {
    let think = |text: &str| chunk(&json!({"reasoning_content": text}));
    let events = [vec![think("Let "), think("me see"), word("Yes")], script::ending("stop")].concat();
    let events = stream("openai-chat", Reply::sse(&events)).await;
    assert_eq!(
        types_of(&events)[2..],
        [
            "response.output_item.added",
            "response.content_part.added",
            "response.reasoning_text.delta",
            "response.reasoning_text.delta",
            "response.reasoning_text.done",
            "response.content_part.done",
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
    check_items(&events);
    assert_eq!(events[3]["part"], json!({"type": "reasoning_text", "text": ""}));
    assert_eq!(events[6]["text"], "Let me see");
    let item = &last_response(&events)["output"][0];
    assert_eq!(item["content"], json!([{"type": "reasoning_text", "text": "Let me see"}]));
}

#[tokio::test]
async fn a_summary_of_reasoning_comes_part_by_part() {
    let summary = |kind: &str, part: u32, more: Value| {
        let mut event = json!({
            "type": format!("response.reasoning_summary_{kind}"), "item_id": "rs_up", "output_index": 0,
            "summary_index": part
        });
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        event
    };
    let parts = json!([{"type": "summary_text", "text": "One"}, {"type": "summary_text", "text": "Two"}]);
    let item = json!({"type": "reasoning", "id": "rs_up", "summary": parts, "encrypted_content": "gAAA"});
    let events = stream(
        "openai-responses",
        Reply::sse(&[
            json!({"type": "response.created", "response": {"id": "up"}}),
            json!({"type": "response.output_item.added", "output_index": 0,
                   "item": {"type": "reasoning", "id": "rs_up", "summary": []}}),
            summary("text.delta", 0, json!({"delta": "One"})),
            summary("text.done", 0, json!({"text": "One"})),
            summary("text.delta", 1, json!({"delta": "Two"})),
            summary("text.done", 1, json!({"text": "Two"})),
            json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
            json!({"type": "response.output_item.done", "output_index": 1, "item": script::message("Yes")}),
            json!({"type": "response.completed", "response": {
                "object": "response", "status": "completed", "output": [item, script::message("Yes")]}}),
        ]),
    )
    .await;
    assert_eq!(
        types_of(&events)[2..],
        [
            "response.output_item.added",
            "response.reasoning_summary_part.added",
            "response.reasoning_summary_text.delta",
            "response.reasoning_summary_text.done",
            "response.reasoning_summary_part.done",
            "response.reasoning_summary_part.added",
            "response.reasoning_summary_text.delta",
            "response.reasoning_summary_text.done",
            "response.reasoning_summary_part.done",
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
    check_items(&events);
    assert_eq!(last_response(&events)["output"][0]["summary"], parts);
}

#[tokio::test]
async fn calls_come_one_after_another_with_their_arguments() {
    let piece = |index: u32, id: Option<&str>, name: Option<&str>, arguments: &str| {
        let call = json!({"index": index, "id": id, "type": "function",
                          "function": {"name": name, "arguments": arguments}});
        chunk(&json!({"tool_calls": [call]}))
    };
    let pieces = vec![
        word("Looking"),
        piece(0, Some("call_a"), Some("f"), ""),
        piece(0, None, None, "{\"n\":"),
        piece(0, None, None, "1}"),
        piece(1, Some("call_b"), Some("g"), "{}"),
    ];
    let events = [pieces, script::ending("tool_calls")].concat();
    let tools = json!([{"type": "function", "name": "f"}, {"type": "function", "name": "g"}]);
    let request = json!({"model": MODEL, "input": "x", "tools": tools});
    let events = stream_of("openai-chat", Reply::sse(&events), &request).await;
    let types = types_of(&events);
    assert_eq!(
        types[2..8],
        [
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
        ]
    );
    assert_eq!(types.last(), Some(&"response.completed"));
    check_items(&events);
    let added: Vec<&Value> =
        events.iter().filter(|event| event["type"] == "response.output_item.added").collect();
    assert_eq!(
        (&added[1]["item"]["arguments"], &added[1]["item"]["call_id"]),
        (&json!(""), &json!("call_a"))
    );
    let done: Vec<(&str, &str)> = events
        .iter()
        .filter(|event| event["type"] == "response.function_call_arguments.done")
        .map(|event| (event["name"].as_str().unwrap(), event["arguments"].as_str().unwrap()))
        .collect();
    assert_eq!(done, [("f", "{\"n\":1}"), ("g", "{}")]);
    let deltas: String = events
        .iter()
        .filter(|event| {
            event["type"] == "response.function_call_arguments.delta" && event["output_index"] == 1
        })
        .map(|event| event["delta"].as_str().unwrap())
        .collect();
    assert_eq!(deltas, "{\"n\":1}");
    assert_eq!(last_response(&events)["output"][2]["call_id"], "call_b");
}

#[tokio::test]
async fn a_refusal_is_a_part_of_its_own() {
    let refuse = |text: &str| chunk(&json!({"refusal": text}));
    let events = [vec![refuse("I "), refuse("cannot")], script::ending("stop")].concat();
    let events = stream("openai-chat", Reply::sse(&events)).await;
    assert_eq!(
        types_of(&events)[2..],
        [
            "response.output_item.added",
            "response.content_part.added",
            "response.refusal.delta",
            "response.refusal.delta",
            "response.refusal.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    check_items(&events);
    assert_eq!(events[6]["refusal"], "I cannot");
    let content = &last_response(&events)["output"][0]["content"];
    assert_eq!(content, &json!([{"type": "refusal", "refusal": "I cannot"}]));
}

#[tokio::test]
async fn the_anthropic_dialect_streams_thinking_text_and_calls() {
    let start = |index: u32, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let delta =
        |index: u32, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let stop = |index: u32| json!({"type": "content_block_stop", "index": index});
    let events = stream(
        "anthropic",
        Reply::sse(&[
            json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant",
                   "content": [], "usage": {"input_tokens": 12, "output_tokens": 1}}}),
            start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
            delta(0, json!({"type": "thinking_delta", "thinking": "Hm."})),
            delta(0, json!({"type": "signature_delta", "signature": "c2ln"})),
            stop(0),
            start(1, json!({"type": "text", "text": ""})),
            json!({"type": "ping"}),
            delta(1, json!({"type": "text_delta", "text": "Yes"})),
            stop(1),
            start(2, json!({"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}})),
            delta(2, json!({"type": "input_json_delta", "partial_json": "{\"n\":1}"})),
            stop(2),
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}}),
            json!({"type": "message_stop"}),
        ]),
    )
    .await;
    check_items(&events);
    assert_eq!(text_of(&events), "Yes");
    let response = last_response(&events);
    assert_eq!(events.last().unwrap()["type"], "response.completed");
    let kinds: Vec<&str> =
        response["output"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["reasoning", "message", "function_call"]);
    assert_eq!(response["output"][2]["arguments"], "{\"n\":1}");
    assert_eq!(response["usage"]["input_tokens"], 12);
    assert_eq!(response["usage"]["output_tokens"], 9);
}
