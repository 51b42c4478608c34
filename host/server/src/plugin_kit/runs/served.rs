//! The request of a case in the form in which a serving host gives requests to plugins. A case may be shorter, as a client
//! may; a plugin that was tested with another form would fail in production.

use cofferdam_engine::request::is_shown_to_guests;
use serde_json::{Value, json};

/// `input` as an array of items, and the content of messages as an array of parts; `model` and `stream`, which a host
/// always gives, and no member that a host keeps to itself. What else is wrong with a request is the case's own matter.
pub(in super::super) fn as_served(request: &Value) -> Value {
    let mut request = request.clone();
    if let Some(members) = request.as_object_mut() {
        let first = members.get("models").and_then(|models| models.get(0)).cloned();
        let model = first.unwrap_or_else(|| "sample/model".into());
        members.entry("model").or_insert(model);
        members.entry("stream").or_insert(false.into());
        // Conditions replace the limit.
        if members.contains_key("stop_server_tools_when") {
            members.remove("max_tool_calls");
        }
        members.retain(|name, _| is_shown_to_guests(name));
    }
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

/// The request as a hook that judges is asked about it: with the options for providers, which models may read.
pub(super) fn as_judged(request: &Value) -> Value {
    let mut served = as_served(request);
    let options = request.pointer("/provider/options").filter(|options| options.is_object());
    if let (Some(members), Some(options)) = (served.as_object_mut(), options) {
        members.insert("provider".to_owned(), json!({"options": options}));
    }
    served
}

/// The entry of a request for the hook with this id, which a host always gives.
pub(super) fn entry_of(settings: &Value, id: &str) -> Value {
    let mut entry = settings.clone();
    if let Some(members) = entry.as_object_mut() {
        members.entry("id").or_insert(id.into());
    }
    entry
}

/// The response of a case with the members of a finished one, which a host always gives.
pub(super) fn finished(response: &Value) -> Value {
    let mut response = response.clone();
    if let Some(members) = response.as_object_mut() {
        members.entry("object").or_insert("response".into());
        members.entry("status").or_insert("completed".into());
    }
    response
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
        let short = json!({"models": ["m", "n"], "input": "hi", "plugins": [{"id": "mine"}]});
        let message = |role: &str, part: &str, text: &str| json!({"type": "message", "role": role, "content": [{"type": part, "text": text}]});
        let whole = |input: Value| json!({"model": "m", "stream": false, "input": input});
        let served = as_served(&short);
        assert_eq!(served["input"], json!([message("user", "input_text", "hi")]));
        assert_eq!((&served["model"], &served["stream"]), (&json!("m"), &json!(false)));
        assert_eq!((served.get("models"), served.get("plugins")), (None, None));
        let streamed = json!({"model": "m", "stream": true, "input": []});
        assert_eq!(as_served(&streamed), streamed);
        let short = json!({"model": "m", "input": [{"role": "assistant", "content": "a"}, {"type": "function_call", "name": "f"}]});
        let call = json!({"type": "function_call", "name": "f"});
        assert_eq!(as_served(&short), whole(json!([message("assistant", "output_text", "a"), call])));
        let private = json!({"model": "m", "input": [], "max_tool_calls": 5, "stop_server_tools_when": [], "x": 1,
            "provider": {"only": ["p"], "options": {"p": {"q": 1}}}});
        assert_eq!(as_served(&private), whole(json!([])));
        assert_eq!(as_judged(&private)["provider"], json!({"options": {"p": {"q": 1}}}));
        assert_eq!(as_judged(&streamed), streamed);
        for other in [whole(json!(5)), whole(json!([5, {"role": 7}])), json!(5)] {
            assert_eq!(as_served(&other), other);
        }
    }

    #[test]
    fn a_response_is_a_finished_one() {
        let whole = json!({"id": "r", "object": "response", "status": "completed"});
        assert_eq!(finished(&json!({"id": "r"})), whole);
        assert_eq!(finished(&json!({"status": "failed"}))["status"], "failed");
    }

    #[test]
    fn an_entry_has_the_id_of_its_hook() {
        assert_eq!(entry_of(&json!({"a": 1}), "mine"), json!({"a": 1, "id": "mine"}));
        assert_eq!(entry_of(&json!({"id": "other"}), "mine"), json!({"id": "other"}));
    }
}
