//! What the scripted provider answers, in OpenAI's Responses format. Every text is made once.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};

use crate::site::API;

/// The numbers of an embedding, as many as hosted models of the small kind give.
const DIMENSIONS: u16 = 1_536;
/// The deltas of a stream.
pub(crate) const DELTAS: usize = 200;
const WORD: &str = "lorem ";
/// The words of a whole answer; with them its JSON has about 1.3 KB.
const WORDS: usize = 100;

/// The texts that answers consist of.
pub(crate) struct Texts {
    pub(crate) whole: Bytes,
    pub(crate) embedding: Bytes,
    pub embedding_base64: Bytes,
    /// The events before the first delta, one delta, and the events after the last one.
    pub(crate) stream: [Bytes; 3],
    /// Calls of the server tool `datetime` and of a client's function, each whole and as a stream.
    pub(crate) datetime: [Bytes; 2],
    pub(crate) function: [Bytes; 2],
    /// A call of the server tool `http_request`.
    pub(crate) http: [Bytes; 2],
    pub(crate) failure: Bytes,
}

impl Texts {
    pub(crate) fn new(tls: u16) -> Self {
        let url = json!({"url": format!("https://{API}:{tls}/whole/items")}).to_string();
        let item = message(&WORD.repeat(DELTAS), "completed");
        let before = [
            event(&json!({"type": "response.created", "response": response("in_progress", &json!([]))})),
            event(&json!({"type": "response.in_progress", "response": response("in_progress", &json!([]))})),
            event(&json!({"type": "response.output_item.added", "output_index": 0,
                "item": {"type": "message", "id": "msg_bench", "role": "assistant", "status": "in_progress", "content": []}})),
            event(&part("response.content_part.added", "part", &text_part(""))),
        ];
        let after = [
            event(&part("response.output_text.done", "text", &json!(WORD.repeat(DELTAS)))),
            event(&part("response.content_part.done", "part", &text_part(&WORD.repeat(DELTAS)))),
            event(&json!({"type": "response.output_item.done", "output_index": 0, "item": item})),
            event(&json!({"type": "response.completed", "response": response("completed", &json!([item]))})),
        ];
        Self {
            whole: bytes(&response("completed", &json!([message(&WORD.repeat(WORDS), "completed")]))),
            embedding: bytes(&embedding(&json!(vector()))),
            embedding_base64: bytes(&embedding(&json!(
                STANDARD.encode(vector().iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>())
            ))),
            stream: [before.concat().into(), delta(WORD), after.concat().into()],
            datetime: call("datetime", r#"{"timezone":"Europe/Berlin"}"#),
            http: call("http_request", &url),
            function: call("get_weather", r#"{"city":"Paris"}"#),
            failure: bytes(
                &json!({"error": {"message": "scripted failure", "type": "server_error", "code": null}}),
            ),
        }
    }
}

/// The event with a piece of text.
pub(crate) fn delta(text: &str) -> Bytes {
    event(&part("response.output_text.delta", "delta", &json!(text))).into()
}

fn vector() -> Vec<f32> {
    (0..DIMENSIONS).map(|place| (f32::from(place * 37 % 201) - 100.0) / 1_000.0).collect()
}

fn embedding(vector: &Value) -> Value {
    json!({"object": "list", "model": "bench", "usage": {"prompt_tokens": 8, "total_tokens": 8},
        "data": [{"object": "embedding", "index": 0, "embedding": vector}]})
}

fn text_part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

fn message(text: &str, status: &str) -> Value {
    json!({"type": "message", "id": "msg_bench", "role": "assistant", "status": status, "content": [text_part(text)]})
}

/// An event about the part of the only message.
fn part(kind: &str, name: &str, value: &Value) -> Value {
    json!({"type": kind, "item_id": "msg_bench", "output_index": 0, "content_index": 0, name: value})
}

/// An answer that calls one function, whole and as a stream.
fn call(name: &str, arguments: &str) -> [Bytes; 2] {
    let item = |status: &str, arguments: &str| {
        json!({"type": "function_call", "id": "fc_bench", "call_id": "call_bench", "name": name,
            "arguments": arguments, "status": status})
    };
    let done = item("completed", arguments);
    let of_item = |kind: &str, member: &str, value: &str| {
        event(&json!({"type": kind, "item_id": "fc_bench", "output_index": 0, member: value}))
    };
    let events = [
        event(&json!({"type": "response.created", "response": response("in_progress", &json!([]))})),
        event(
            &json!({"type": "response.output_item.added", "output_index": 0, "item": item("in_progress", "")}),
        ),
        of_item("response.function_call_arguments.delta", "delta", arguments),
        of_item("response.function_call_arguments.done", "arguments", arguments),
        event(&json!({"type": "response.output_item.done", "output_index": 0, "item": done})),
        event(&json!({"type": "response.completed", "response": response("completed", &json!([done]))})),
    ];
    [bytes(&response("completed", &json!([done]))), events.concat().into()]
}

fn response(status: &str, output: &Value) -> Value {
    let usage = json!({"input_tokens": 250, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 100,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 350});
    let is_done = status == "completed";
    json!({"id": "resp_bench", "object": "response", "created_at": 1_750_000_000, "status": status,
        "completed_at": is_done.then_some(1_750_000_001), "background": false, "error": null,
        "incomplete_details": null, "instructions": null, "max_output_tokens": null, "max_tool_calls": null,
        "model": "bench", "output": output, "parallel_tool_calls": true, "previous_response_id": null,
        "prompt_cache_key": null, "reasoning": {"effort": null, "summary": null}, "safety_identifier": null,
        "service_tier": "default", "store": false, "temperature": 1.0,
        "text": {"format": {"type": "text"}, "verbosity": "medium"}, "tool_choice": "auto", "tools": [],
        "top_logprobs": 0, "top_p": 1.0, "truncation": "disabled", "usage": is_done.then_some(usage), "user": null,
        "metadata": {}})
}

fn event(data: &Value) -> String {
    let kind = data.get("type").and_then(Value::as_str).unwrap_or_default();
    format!("event: {kind}\ndata: {data}\n\n")
}

fn bytes(value: &Value) -> Bytes {
    value.to_string().into()
}
