//! Scripted turns of a chat provider whose model calls functions.

use crate::kit::script::{chat, chat_message, chat_stream, chunk, ending, opening, word};
use crate::kit::upstream::Reply;
use serde_json::{Value, json};

/// One call: id, function and arguments.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    id: &'a str,
    function: &'a str,
    arguments: &'a str,
}

pub fn call<'a>(id: &'a str, function: &'a str, arguments: &'a str) -> Call<'a> {
    Call { id, function, arguments }
}

/// A turn with these calls, after a text if there is one.
pub fn calls(streamed: bool, text: &str, calls: &[Call<'_>]) -> Reply {
    calls_ending(streamed, text, calls, "tool_calls")
}

/// A turn with calls that ends for this reason.
pub fn calls_ending(streamed: bool, text: &str, calls: &[Call<'_>], reason: &str) -> Reply {
    let written = |call: &Call<'_>, arguments: &str| json!({"id": call.id, "type": "function", "function": {"name": call.function, "arguments": arguments}});
    if !streamed {
        let made: Vec<Value> = calls.iter().map(|call| written(call, call.arguments)).collect();
        return chat_message(&json!({"role": "assistant", "content": text, "tool_calls": made}), reason);
    }
    let mut events = vec![opening()];
    if !text.is_empty() {
        events.push(word(text));
    }
    for (index, call) in calls.iter().enumerate() {
        let mut start = written(call, "");
        start["index"] = json!(index);
        events.push(chunk(&json!({"tool_calls": [start]})));
        let (one, two) = call.arguments.split_at(call.arguments.len() / 2);
        for piece in [one, two] {
            let arguments = json!({"index": index, "function": {"arguments": piece}});
            events.push(chunk(&json!({"tool_calls": [arguments]})));
        }
    }
    events.extend(ending(reason));
    Reply::sse(&events)
}

/// A turn that answers with text.
pub fn answer(streamed: bool, text: &str) -> Reply {
    if streamed { chat_stream(&[text]) } else { chat(text) }
}
