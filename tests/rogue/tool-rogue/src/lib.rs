//! A tool whose functions do what their names say, most of it wrong.
//!
//! Settings: `wrong` is the message to refuse them with, `broken` breaks instead of offering anything, and
//! `functions` are the names to offer in place of all.

mod deeds;

use bindings::cofferdam::plugin::types::{CallContext, Json};
use bindings::cofferdam::plugin::{catalog, request, scratch};
use bindings::exports::cofferdam::plugin::tools::{Function, Guest, Output, ToolError};
use serde_json::{Value, json};

#[allow(unsafe_code, clippy::all, unused_qualifications, reason = "generated")]
mod bindings {
    wit_bindgen::generate!({ path: "../../../wit", world: "tool" });
    use super::Tool;
    export!(Tool);
}

struct Tool;

/// What it offers when the settings name nothing.
const FUNCTIONS: [&str; 16] = [
    "echo", "cite", "charge", "refuse", "fail", "trap", "hang", "allocate", "flood", "long", "lie", "forge",
    "meet", "remember", "look", "find",
];

impl Guest for Tool {
    fn functions(settings: Json, _: CallContext) -> Result<Vec<Function>, ToolError> {
        let settings: Value = serde_json::from_slice(&settings).unwrap_or_default();
        if let Some(message) = settings.get("wrong").and_then(Value::as_str) {
            return Err(ToolError::InvalidSettings(message.to_owned()));
        }
        if settings.get("broken").is_some() {
            deeds::trap();
        }
        let names: Vec<&str> = match settings.get("functions").and_then(Value::as_array) {
            Some(names) => names.iter().filter_map(Value::as_str).collect(),
            None => FUNCTIONS.to_vec(),
        };
        let function = |name: &str| Function {
            name: name.to_owned(),
            description: format!("Does this: {name}."),
            parameters: b"{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\"}}}".to_vec(),
        };
        Ok(names.into_iter().map(function).collect())
    }

    fn invoke(function: String, arguments: Json, _: Json, _: CallContext) -> Result<Output, ToolError> {
        let arguments: Value = serde_json::from_slice(&arguments).unwrap_or_default();
        let text = arguments.get("text").and_then(Value::as_str).unwrap_or_default();
        match function.as_str() {
            "cite" => {
                Ok(Output { annotations: vec![citation(text), b"{\"type\":\"x\"}".to_vec()], ..told("see") })
            }
            "charge" => Ok(Output { cost_pico: text.parse().unwrap_or(250_000_000_000), ..told("paid") }),
            "refuse" => Err(ToolError::InvalidArguments("text is not to my liking".to_owned())),
            "fail" => Err(ToolError::Failed("it did not work".to_owned())),
            "trap" => deeds::trap(),
            "hang" => deeds::hang(),
            "allocate" => deeds::allocate(),
            // More than the host takes of any answer.
            "flood" => Ok(told(&"x".repeat(40 << 20))),
            // More than a model is told.
            "long" => Ok(told(&"x".repeat(2 << 20))),
            "lie" => Ok(Output { item: b"[\"no object\"]".to_vec(), ..told("x") }),
            "forge" => {
                let item = json!({"type": "message", "id": "msg_1", "status": "queued", "text": text});
                Ok(Output { item: item.to_string().into_bytes(), ..told("forged") })
            }
            "meet" => meet(text),
            "remember" => remember(text),
            "look" => look(text),
            "find" => {
                request::load_tools(&[text.to_owned()]);
                Ok(told("found"))
            }
            _ => Ok(told(text)),
        }
    }
}

fn told(text: &str) -> Output {
    Output {
        for_model: text.to_owned(),
        item: json!({ "text": text.get(..100).unwrap_or(text) }).to_string().into_bytes(),
        annotations: Vec::new(),
        cost_pico: 0,
    }
}

fn citation(url: &str) -> Json {
    let citation =
        json!({"type": "url_citation", "url": url, "title": "t", "start_index": 0, "end_index": 0});
    citation.to_string().into_bytes()
}

/// Waits until a call with the other text runs at the same time: `a` for `b`, `b` for `a`.
fn meet(text: &str) -> Result<Output, ToolError> {
    keep(text, "here")?;
    let other = if text == "a" { "b" } else { "a" };
    while scratch::get(other).is_none() {
        deeds::burn();
    }
    Ok(told(&format!("met {other}")))
}

/// Tells what the call before it left.
fn remember(text: &str) -> Result<Output, ToolError> {
    let before = scratch::get("text").unwrap_or_default();
    keep("text", text)?;
    Ok(told(&format!("before: {}", String::from_utf8_lossy(&before))))
}

fn keep(key: &str, value: &str) -> Result<(), ToolError> {
    scratch::set(key, value.as_bytes()).map_err(|_| ToolError::Failed("nothing can be kept".to_owned()))
}

/// Tells what stands behind one of the doors.
fn look(text: &str) -> Result<Output, ToolError> {
    let json = match text {
        "models" => catalog::models(),
        "deferred" => request::deferred_tools(),
        _ => request::transcript(),
    };
    Ok(told(&String::from_utf8_lossy(&json)))
}
