//! Renders earlier calls of server tools for models: under the name and with the arguments of an
//! offered function. If there is none, a call becomes plain text: a model that imitates its history
//! would otherwise call a function that does not exist.

use super::history;
use super::offer::Offer;
use super::run::shortened;
use crate::offload::aside;
use crate::refusal::Refusal;
use crate::request::walk::{Breath, walk};
use crate::request::{
    HostItem, PlainItem, ResponsesRequest, ToolCallRecord, ToolResult, TranscriptItem, read_transcript,
};
use bytes::Bytes;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// The input of a request without calls of server tools: they are rendered for models. The items
/// that the tools declare are left to [`History`](history::History). None where this is the input
/// as it was.
///
/// # Errors
/// 500 for an input that the parser cannot have written.
pub(super) async fn rendered_input(
    request: &ResponsesRequest,
    offer: &Offer,
) -> Result<Option<Vec<PlainItem>>, Refusal> {
    let (substituted, declared) = (offer.hosted_substitute_items(), history::declared_types(offer));
    if !request.has_server_calls && substituted.is_empty() && declared.is_empty() {
        return Ok(None);
    }
    let input = request.input_array();
    let read = aside(input.len(), move || read_transcript(&input, &substituted, &declared)).await?;
    let items = read.ok_or_else(Refusal::internal)?;
    let is_as_it_was = |item: &TranscriptItem| {
        matches!(item, TranscriptItem::Plain(PlainItem::Call(_) | PlainItem::Other(_)))
    };
    if items.iter().all(is_as_it_was) {
        return Ok(None);
    }
    Ok(Some(render_calls(items, offer).await))
}

/// The items comma-separated.
pub(super) fn joined(items: &[PlainItem]) -> Bytes {
    Bytes::from(items.iter().map(PlainItem::json).collect::<Vec<_>>().join(&b','))
}

async fn render_calls(items: Vec<TranscriptItem>, offer: &Offer) -> Vec<PlainItem> {
    let mut breath = Breath::default();
    let mut out = Vec::with_capacity(items.len());
    // The adjacent calls at the end. Providers require results directly after their calls, so a
    // message for a call among them goes before all of them.
    let mut calls = Vec::new();
    // The results that change, by the indexes of their calls. None for a result that is left out.
    let mut results: HashMap<usize, Option<Bytes>> = HashMap::new();
    for (index, item) in walk(items).enumerate() {
        breath.step().await;
        let plain = match item {
            TranscriptItem::ServerCall(call, result) => {
                // The members of the call's item. Empty where the client has answered with a text of
                // its own.
                let members = match &result {
                    Some(ToolResult::Text(text)) => serde_json::from_str(text).unwrap_or_default(),
                    _ => Map::new(),
                };
                let Some(name) = offer.function_told_as(&call.tool, &members) else {
                    out.push(PlainItem::Other(as_text(&call, result)));
                    results.insert(index, None);
                    continue;
                };
                let (json, result) = as_function(&call, name, members, offer.parameters_of(name));
                results.extend(result.map(|result| (index, Some(result))));
                Some(PlainItem::Call(json))
            }
            TranscriptItem::Result(call, json) => {
                results.remove(&call).unwrap_or(Some(json)).map(PlainItem::Other)
            }
            TranscriptItem::Plain(item) => Some(item),
        };
        let is_call = matches!(plain, Some(PlainItem::Call(_)));
        calls.extend(plain);
        if !is_call {
            out.append(&mut calls);
        }
    }
    out.append(&mut calls);
    out
}

/// A call of the function `name`, and its result where that changes.
fn as_function(
    call: &ToolCallRecord,
    name: &str,
    mut members: Map<String, Value>,
    parameters: &[String],
) -> (Bytes, Option<Bytes>) {
    let ToolCallRecord { call_id, arguments: given, .. } = call;
    let mut arguments = Map::new();
    if given == "{}" {
        // The items do not contain the model's arguments, but most contain members of the same
        // names.
        for name in parameters.iter().cloned() {
            // In some items they are one level deeper, such as `action.query`.
            let deeper =
                |members: &Map<String, Value>| members.values().find_map(|it| it.get(&name)).cloned();
            let value = members.shift_remove(&name).or_else(|| deeper(&members));
            arguments.extend(value.map(|value| (name, value)));
        }
    }
    if arguments.is_empty() {
        return (HostItem::FunctionCall { call_id, name, arguments: given }.to_json(), None);
    }
    let (arguments, output) = (Value::Object(arguments).to_string(), Value::Object(members).to_string());
    let json = HostItem::FunctionCall { call_id, name, arguments: &arguments }.to_json();
    (json, Some(HostItem::FunctionCallOutput { call_id, output: &output }.to_json()))
}

/// A message that replaces a call and its result.
fn as_text(call: &ToolCallRecord, result: Option<ToolResult>) -> Bytes {
    let ToolCallRecord { tool, arguments, .. } = call;
    let rendered = match result {
        Some(ToolResult::Text(text) | ToolResult::Parts(text)) => shortened(text),
        None => "nothing".to_owned(),
    };
    let called = if arguments == "{}" { String::new() } else { format!(" with {arguments}") };
    let text = format!("[I used the tool {tool}{called}. It gave: {rendered}]");
    HostItem::message("assistant", &text).to_json()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::walk::steps_of;
    use futures_util::FutureExt;
    use serde_json::json;

    /// A request with this input and one item more, of a server tool.
    fn request(mut items: Vec<Value>) -> ResponsesRequest {
        items.push(json!({"type": "service:last"}));
        let body = json!({"model": "m", "input": items}).to_string();
        ResponsesRequest::parse(body.as_bytes(), &[]).unwrap()
    }

    async fn rendered(request: &ResponsesRequest) -> Vec<PlainItem> {
        let rendered = rendered_input(request, &Offer::default()).await;
        rendered.unwrap().unwrap()
    }

    /// The number of steps for `count` copies of an item, few enough for one poll.
    fn steps_with(item: &Value, count: usize) -> u64 {
        let request = request(vec![item.clone(); count]);
        steps_of(|| rendered(&request).now_or_never().unwrap()).1
    }

    #[tokio::test]
    async fn work_grows_linearly_with_the_number_of_calls() {
        for item in [
            json!({"type": "service:x"}),
            json!({"type": "service:x", "call_id": "same"}),
            json!({"type": "function_call_output", "call_id": "none", "output": "x"}),
        ] {
            let (once, twice) = (steps_with(&item, 16), steps_with(&item, 32));
            assert!(once > 0 && twice < 3 * once, "{item}: {once} steps, {twice} for twice that");
        }
    }

    #[tokio::test]
    async fn rendering_a_long_history_yields_to_other_tasks() {
        let request = request(vec![json!({"type": "service:x"}); 2_000]);
        assert!(rendered(&request).now_or_never().is_none());
    }

    #[tokio::test]
    async fn calls_rendered_as_text_stand_before_adjacent_calls_without_results() {
        let call = |id: &str, name: &str| json!({"type": "function_call", "call_id": id, "name": name, "arguments": "{}"});
        let output =
            |id: &str, text: &str| json!({"type": "function_call_output", "call_id": id, "output": text});
        let items = vec![
            call("a", "own"),
            call("b", "service:x"),
            call("b", "service:y"),
            output("a", "1"),
            output("b", "2"),
            output("b", "3"),
            output("b", "4"),
        ];
        let rendered = rendered(&request(items)).await;
        let rendered: Vec<Value> =
            rendered.iter().map(|item| serde_json::from_slice(item.json()).unwrap()).collect();
        let text = |item: &Value| item["content"][0]["text"].as_str().unwrap_or_default().to_owned();
        assert_eq!(text(&rendered[0]), "[I used the tool x. It gave: 2]");
        assert_eq!(text(&rendered[1]), "[I used the tool y. It gave: 3]");
        assert_eq!(rendered[2]["name"], "own");
        assert_eq!((&rendered[3]["output"], &rendered[4]["output"]), (&json!("1"), &json!("4")));
        assert_eq!(rendered.len(), 6);
    }
}
