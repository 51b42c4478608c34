//! Calls that a limit has cut off. A client that runs every call in `output` must be able to tell that
//! the model has not finished one, and must not get arguments that the model did not write.

use super::host;
use crate::kit::client::Client;
use crate::kit::config::MODEL;
use crate::kit::script::{chunk, opening};
use crate::kit::upstream::Reply;
use serde_json::{Value, json};

/// The beginning of the arguments. The other case is a call without any.
const BEGUN: &str = "{\"path\":\"/et";

fn request() -> Value {
    let parameters = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    let tool = json!({"type": "function", "name": "delete_all", "parameters": parameters});
    json!({"model": MODEL, "input": "Go.", "tools": [tool], "max_output_tokens": 16})
}

fn chat(streamed: bool, arguments: &str) -> Reply {
    let usage = json!({"prompt_tokens": 7, "completion_tokens": 16, "total_tokens": 23});
    let mut call = json!({"id": "call_1", "type": "function", "function": {"name": "delete_all", "arguments": arguments}});
    if !streamed {
        let message = json!({"role": "assistant", "content": null, "tool_calls": [call]});
        let choice = json!({"index": 0, "message": message, "finish_reason": "length"});
        return Reply::json(200, json!({"choices": [choice], "usage": usage}));
    }
    call["index"] = json!(0);
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]});
    let usage = json!({"choices": [], "usage": usage});
    Reply::sse(&[opening(), chunk(&json!({"tool_calls": [call]})), end, usage, json!("[DONE]")])
}

fn responses(streamed: bool, arguments: &str) -> Reply {
    let call = json!({"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "delete_all",
        "arguments": arguments, "status": "incomplete"});
    let response = json!({"id": "resp_up", "object": "response", "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"}, "output": [call],
        "usage": {"input_tokens": 7, "output_tokens": 16, "total_tokens": 23}});
    if !streamed {
        return Reply::json(200, response);
    }
    let mut begun = call.clone();
    begun["arguments"] = json!("");
    Reply::sse(&[
        json!({"type": "response.output_item.added", "output_index": 0, "item": begun}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": call}),
        json!({"type": "response.incomplete", "response": response}),
    ])
}

fn anthropic(streamed: bool, arguments: &str) -> Reply {
    let call = json!({"type": "tool_use", "id": "call_1", "name": "delete_all", "input": {}});
    let usage = json!({"input_tokens": 7, "output_tokens": 16});
    if !streamed {
        return Reply::json(
            200,
            json!({"id": "msg_1", "type": "message", "role": "assistant", "content": [call], "stop_reason": "max_tokens",
            "usage": usage}),
        );
    }
    let delta = json!({"type": "input_json_delta", "partial_json": arguments});
    Reply::sse(&[
        json!({"type": "message_start", "message": {"usage": usage}}),
        json!({"type": "content_block_start", "index": 0, "content_block": call}),
        json!({"type": "content_block_delta", "index": 0, "delta": delta}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": usage}),
        json!({"type": "message_stop"}),
    ])
}

#[tokio::test]
async fn a_call_that_was_cut_off_is_incomplete_and_has_what_the_model_wrote() {
    type Script = fn(bool, &str) -> Reply;
    let dialects: [(&str, Script); 3] =
        [("openai-chat", chat), ("openai-responses", responses), ("anthropic", anthropic)];
    for (dialect, script) in dialects {
        let (host, upstream) = host(dialect).await;
        // A whole answer of this dialect has arguments as an object, so they are never half written.
        let begun_whole = Some(BEGUN).filter(|_| dialect != "anthropic").unwrap_or_default();
        for (streamed, arguments) in [(false, ""), (true, ""), (false, begun_whole), (true, BEGUN)] {
            upstream.reply(script(streamed, arguments));
            let response = Client::new(&host).ask(&request(), streamed).await;
            let what = format!("{dialect}, {streamed}, {arguments}: {response}");
            assert_eq!(response["status"], "incomplete", "{what}");
            let call = &response["output"][0];
            assert_eq!(
                (&call["type"], &call["name"]),
                (&json!("function_call"), &json!("delete_all")),
                "{what}"
            );
            assert_eq!(
                (&call["status"], &call["arguments"]),
                (&json!("incomplete"), &json!(arguments)),
                "{what}"
            );
        }
    }
}

#[tokio::test]
async fn a_message_of_the_assistant_that_is_replayed_as_input_text_reaches_openai_as_its_output() {
    let (host, upstream) = host("openai-responses").await;
    upstream.reply(crate::kit::script::response(&json!([crate::kit::script::message("fine")])));
    let said = json!({"role": "assistant", "content": [{"type": "input_text", "text": "Hello."}]});
    let input = json!([said, {"role": "user", "content": [{"type": "input_text", "text": "Go on."}]}]);
    let answered = Client::new(&host).post("/responses", &json!({"model": MODEL, "input": input})).await;
    assert_eq!(answered.status, 200, "{}", answered.text);
    let asked = upstream.asked_once();
    assert_eq!(
        asked.body["input"][0]["content"],
        json!([{"type": "output_text", "text": "Hello.", "annotations": []}])
    );
    assert_eq!(asked.body["input"][1]["content"][0]["type"], "input_text");
}
