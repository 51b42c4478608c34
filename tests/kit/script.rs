//! Scripted responses of providers in each dialect.

use super::upstream::Reply;
use serde_json::{Value, json};

/// A chunk of a chat stream.
pub fn chunk(delta: &Value) -> Value {
    json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta}]})
}

/// The first chunk of a chat stream, without text.
pub fn opening() -> Value {
    chunk(&json!({"role": "assistant", "content": ""}))
}

/// A chunk with text.
pub fn word(text: &str) -> Value {
    chunk(&json!({"content": text}))
}

/// The chunks that end a chat stream.
pub fn ending(reason: &str) -> Vec<Value> {
    vec![
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}),
        json!({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}}),
        json!("[DONE]"),
    ]
}

/// The events of a whole chat stream.
pub fn chat_events(words: &[&str]) -> Vec<Value> {
    let words = words.iter().map(|text| word(text));
    std::iter::once(opening()).chain(words).chain(ending("stop")).collect()
}

/// A whole chat stream.
pub fn chat_stream(words: &[&str]) -> Reply {
    Reply::sse(&chat_events(words))
}

/// A chat response that is not streamed.
pub fn chat(text: &str) -> Reply {
    chat_message(&json!({"role": "assistant", "content": text}), "stop")
}

/// A chat response with this message.
pub fn chat_message(message: &Value, reason: &str) -> Reply {
    Reply::json(
        200,
        json!({
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "choices": [{"index": 0, "message": message, "finish_reason": reason}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
        }),
    )
}

/// A chat response whose prompt was in the provider's cache.
pub fn cached_chat(text: &str) -> Reply {
    let message = json!({"role": "assistant", "content": text});
    Reply::json(
        200,
        json!({
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {
                "prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10,
                "prompt_tokens_details": {"cached_tokens": 5}
            }
        }),
    )
}

/// A refusal with a `Retry-After` header.
pub fn limited(status: u16, seconds: &str) -> Reply {
    Reply::Whole {
        status,
        headers: vec![("content-type", "application/json".to_owned()), ("retry-after", seconds.to_owned())],
        body: json!({"error": {"message": "slow down", "code": "rate_limit_exceeded"}}).to_string(),
    }
}

/// An error in OpenAI's format.
pub fn refusal(status: u16, message: &str) -> Reply {
    Reply::json(status, json!({"error": {"message": message, "type": "invalid_request_error", "code": null}}))
}

/// A response in the Responses dialect that is not streamed.
pub fn response(output: &Value) -> Reply {
    Reply::json(
        200,
        json!({
            "id": "resp_up",
            "object": "response",
            "status": "completed",
            "output": output,
            "usage": {
                "input_tokens": 100,
                "input_tokens_details": {"cached_tokens": 40},
                "output_tokens": 50,
                "output_tokens_details": {"reasoning_tokens": 20},
                "total_tokens": 150
            },
            "service_tier": "default"
        }),
    )
}

/// A message in the Responses dialect.
pub fn message(text: &str) -> Value {
    json!({
        "type": "message", "id": "msg_up", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}]
    })
}

/// A response in Anthropic's dialect that is not streamed.
pub fn anthropic(content: &Value, reason: &str) -> Reply {
    Reply::json(
        200,
        json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
            "content": content, "stop_reason": reason, "stop_sequence": null,
            "usage": {
                "input_tokens": 10, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 100,
                "output_tokens": 20
            }
        }),
    )
}

/// A text with one letter in so many as a JSON escape.
pub fn escaped(text: &str, every: usize) -> String {
    let escape = |(place, letter): (usize, char)| match place % every {
        0 => format!("\\u{:04x}", u32::from(letter)),
        _ => letter.to_string(),
    };
    text.chars().enumerate().map(escape).collect()
}
