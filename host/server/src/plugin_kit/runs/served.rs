//! The request of a case in the form in which a serving host gives requests to plugins. A case may be shorter, as a client
//! may; a plugin that was tested with another form would fail in production.

use serde_json::{Value, json};

/// `input` as an array of items, and the content of messages as an array of parts. What else is wrong with a request is
/// the case's own matter.
pub(super) fn as_served(request: &Value) -> Value {
    let mut request = request.clone();
    match request.get_mut("input") {
        Some(input @ Value::String(_)) => {
            let part = json!({"type": "input_text", "text": input.take()});
            *input = json!([{"type": "message", "role": "user", "content": [part]}]);
        }
        Some(Value::Array(items)) => items.iter_mut().for_each(whole_message),
        _ => {}
    }
    request
}

/// Writes the content of a message as parts, and the type of a message that has a role only.
fn whole_message(item: &mut Value) {
    let Some(item) = item.as_object_mut() else { return };
    let Some(role) = item.get("role").and_then(Value::as_str) else { return };
    let part = if role == "assistant" { "output_text" } else { "input_text" };
    if item.get("type").is_some_and(|tag| tag != "message") {
        return;
    }
    match item.get_mut("content") {
        Some(content @ Value::String(_)) => *content = json!([{"type": part, "text": content.take()}]),
        Some(content @ Value::Null) => *content = json!([]),
        _ => {}
    }
    item.insert("type".to_owned(), json!("message"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_items_and_parts() {
        let short = json!({"model": "m", "input": "hi"});
        let message = |role: &str, part: &str, text: &str| json!({"type": "message", "role": role, "content": [{"type": part, "text": text}]});
        let whole = json!({"model": "m", "input": [message("user", "input_text", "hi")]});
        assert_eq!(as_served(&short), whole);
        assert_eq!(as_served(&whole), whole);
        let short =
            json!({"input": [{"role": "assistant", "content": "a"}, {"type": "function_call", "name": "f"}]});
        let whole = json!({"input": [message("assistant", "output_text", "a"), {"type": "function_call", "name": "f"}]});
        assert_eq!(as_served(&short), whole);
        for other in [json!({}), json!({"input": 5}), json!({"input": [5, {"role": 7}]})] {
            assert_eq!(as_served(&other), other);
        }
    }
}
