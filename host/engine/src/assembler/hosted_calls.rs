//! Calls of hosted tools. A provider runs them itself, and its guest gives each call as one whole
//! item when it is over. The client gets the same events as for calls that this host runs: the item
//! as it was before the call, the events of its type, then the whole item.

use super::CallItem;
use cofferdam_runtime::manifest::TextTable;
use serde_json::{Map, Value, json};

/// Members that are known before a call has a result.
const KNOWN_BEFORE: [&str; 4] = ["server_label", "name", "approval_request_id", "container_id"];

/// The form of the call that this item reports; none if items of its type have no events of their
/// own.
pub(super) fn form(item: &Map<String, Value>) -> Option<CallItem> {
    let item_type = item.get("type").and_then(Value::as_str)?;
    // The events while the call runs and after it failed, and the members without a result.
    let (running, failed, empty) = match item_type {
        // The API has no event for a search that failed.
        "web_search_call" => (Some("searching"), Some("completed"), json!({})),
        "file_search_call" => {
            (Some("searching"), Some("completed"), json!({ "queries": [], "results": null }))
        }
        "code_interpreter_call" => (Some("interpreting"), None, json!({ "code": "", "outputs": null })),
        "image_generation_call" => (Some("generating"), None, json!({ "result": null })),
        "mcp_call" => (None, Some("failed"), json!({ "output": null, "error": null })),
        "mcp_list_tools" => (None, Some("failed"), json!({ "tools": [] })),
        _ => return None,
    };
    let known = KNOWN_BEFORE.iter().filter_map(|name| item.get_key_value(*name));
    let empty = empty.as_object().into_iter().flatten();
    let events = |word: Option<&str>| -> Vec<String> {
        word.map(|word| format!("response.{item_type}.{word}")).into_iter().collect()
    };
    let has_arguments = item_type == "mcp_call";
    Some(CallItem {
        item_type: item_type.to_owned(),
        members: known.chain(empty).map(|(name, value)| (name.clone(), value.clone())).collect(),
        is_stateless: item_type == "mcp_list_tools",
        shows_arguments: has_arguments,
        streams_arguments: has_arguments,
        text: (item_type == "code_interpreter_call").then(code),
        added: events(Some("in_progress")),
        running: events(running),
        completed: events(Some("completed")),
        failed: events(failed),
        fails_by_error: item_type.starts_with("mcp_"),
        ..CallItem::default()
    })
}

/// The code of a call, which has events of its own.
fn code() -> TextTable {
    TextTable {
        events: "code_interpreter_call_code".to_owned(),
        argument: "/code".to_owned(),
        member: "code".to_owned(),
    }
}

#[cfg(test)]
mod tests;
