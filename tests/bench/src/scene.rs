//! Requests that several commands send.

use serde_json::{Value, json};

/// About 1 KB, as a question with some context has.
pub(crate) fn prompt() -> String {
    "Summarise the incident below and name its likely cause. ".to_owned()
        + &"The service returned errors after the release at noon. ".repeat(17)
}

/// A prompt of this size.
pub(crate) fn prompt_of(bytes: usize) -> String {
    let line = prompt() + "\n";
    line.chars().cycle().take(bytes).collect()
}

/// A request for a response of the model `bench/SCRIPT`.
pub(crate) fn responses(script: &str, input: impl Into<Value>) -> Value {
    json!({"model": format!("bench/{script}"), "input": input.into()})
}

/// The same as a stream.
pub(crate) fn streamed(script: &str, input: impl Into<Value>) -> Value {
    json!({"model": format!("bench/{script}"), "input": input.into(), "stream": true})
}

/// With the server tool `datetime`.
pub(crate) fn with_datetime(mut request: Value) -> Value {
    if let Some(members) = request.as_object_mut() {
        members.insert("tools".to_owned(), json!([{"type": "service:datetime"}]));
    }
    request
}
