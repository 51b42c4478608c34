//! What models are told of earlier calls of server tools. The parser writes each as the call of a function that is
//! called like the tool, prefix included, for it cannot know what the tools of the request offer. Here such a call
//! gets the name and the arguments of a function that is offered. Where none is, it becomes plain text: a model
//! that imitates its history would else call what nobody has.

use super::offer::Offer;
use super::run::shortened;
use crate::refusal::Refusal;
use crate::request::server_tool_of_call;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// The members of calls and results.
#[derive(Deserialize)]
struct Item<'a> {
    #[serde(rename = "type", borrow)]
    tag: Cow<'a, str>,
    #[serde(borrow)]
    call_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    arguments: Option<Cow<'a, str>>,
    #[serde(borrow)]
    output: Option<&'a RawValue>,
}

impl Item<'_> {
    fn is_call(&self) -> bool {
        matches!(&*self.tag, "function_call" | "custom_tool_call")
    }

    /// The server tool that this is a call of.
    fn server_tool(&self) -> Option<&str> {
        server_tool_of_call(self.name.as_deref().filter(|_| self.tag == "function_call")?)
    }
}

/// What becomes of an item.
enum Fate {
    Kept,
    Replaced(Bytes),
    /// A message takes its place, which must not stand between calls and their results.
    Message(Bytes),
    Dropped,
}

/// `items` as models are told them, comma-separated as the parser has written them.
///
/// # Errors
/// 500 for what no parser writes.
pub(super) fn retold(items: &[u8], offer: &Offer) -> Result<Bytes, Refusal> {
    let list = [b"[".as_slice(), items, b"]"].concat();
    let raws: Vec<&RawValue> = serde_json::from_slice(&list).map_err(|_| Refusal::internal())?;
    // An item whose members are of other types is neither call nor result.
    let read: Vec<Option<Item<'_>>> = raws.iter().map(|raw| serde_json::from_str(raw.get()).ok()).collect();
    let mut fates: Vec<Fate> = raws.iter().map(|_| Fate::Kept).collect();
    for (place, item) in read.iter().enumerate() {
        let Some((item, tool)) = item.as_ref().and_then(|item| Some((item, item.server_tool()?))) else {
            continue;
        };
        let result = result_of(item, place, &read, &fates);
        let output = result.and_then(|result| read.get(result)?.as_ref()?.output);
        let (call, answer) = tell(item, tool, output, offer);
        let mut settle = |place: usize, fate: Fate| {
            if let Some(known) = fates.get_mut(place) {
                *known = fate;
            }
        };
        settle(place, call);
        if let Some(result) = result {
            settle(result, answer);
        }
    }
    let is_call = read.iter().map(|item| item.as_ref().is_some_and(Item::is_call));
    Ok(joined(raws.iter().map(|raw| raw.get()).zip(fates).zip(is_call)))
}

/// The place of a call's result: the next with its id that is no other call's.
fn result_of(call: &Item<'_>, place: usize, read: &[Option<Item<'_>>], fates: &[Fate]) -> Option<usize> {
    let is_result = |item: &Item<'_>| item.tag == "function_call_output" && item.call_id == call.call_id;
    let later = read.iter().zip(fates).enumerate().skip(place + 1);
    let mut results =
        later.filter(|(_, (item, fate))| matches!(fate, Fate::Kept) && item.as_ref().is_some_and(is_result));
    results.next().map(|(place, _)| place)
}

/// What becomes of a call of `tool` and of its result.
fn tell(call: &Item<'_>, tool: &str, output: Option<&RawValue>, offer: &Offer) -> (Fate, Fate) {
    let text: Option<String> = output.and_then(|output| serde_json::from_str(output.get()).ok());
    // The members of the call's item; none where the client has answered in words of its own.
    let mut members: Map<String, Value> =
        text.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let given = call.arguments.as_deref().unwrap_or("{}");
    let Some(function) = offer.function_told_as(tool, &members) else {
        let told = text.or_else(|| output.map(texts)).map_or_else(|| "nothing".to_owned(), shortened);
        let called = if given == "{}" { String::new() } else { format!(" with {given}") };
        return (
            Fate::Message(message(&format!("[I used the tool {tool}{called}. It gave: {told}]"))),
            Fate::Dropped,
        );
    };
    let mut arguments = Map::new();
    if given == "{}" {
        // Items do not have the model's arguments, but most have their members.
        for name in offer.parameters_of(function) {
            // Some items have them one deeper: `action.query`.
            let deeper =
                |members: &Map<String, Value>| members.values().find_map(|it| it.get(&name)).cloned();
            let value = members.shift_remove(&name).or_else(|| deeper(&members));
            arguments.extend(value.map(|value| (name, value)));
        }
    }
    let (given, answer) = if arguments.is_empty() {
        (given.to_owned(), Fate::Kept)
    } else {
        let output = Value::Object(members).to_string();
        let answer = json!({ "type": "function_call_output", "call_id": call.call_id, "output": output });
        (Value::Object(arguments).to_string(), Fate::Replaced(Bytes::from(answer.to_string())))
    };
    let item =
        json!({ "type": "function_call", "call_id": call.call_id, "name": function, "arguments": given });
    (Fate::Replaced(Bytes::from(item.to_string())), answer)
}

/// What a result in parts says; pictures and files are nothing that a model could read in a text.
fn texts(output: &RawValue) -> String {
    let parts: Vec<Value> = serde_json::from_str(output.get()).unwrap_or_default();
    let texts: Vec<&str> = parts.iter().filter_map(|part| part.get("text")?.as_str()).collect();
    texts.join("\n")
}

fn message(text: &str) -> Bytes {
    let part = json!({ "type": "output_text", "text": text });
    Bytes::from(json!({ "type": "message", "role": "assistant", "content": [part] }).to_string())
}

/// The items after their fates. Messages go before the calls among which they stand: providers want the results
/// of calls right behind them.
fn joined<'r>(items: impl Iterator<Item = ((&'r str, Fate), bool)>) -> Bytes {
    let mut out: Vec<Bytes> = Vec::new();
    let mut first_call = None;
    for ((raw, fate), is_call) in items {
        let begin = *first_call.get_or_insert(out.len());
        match fate {
            Fate::Kept => out.push(Bytes::copy_from_slice(raw.as_bytes())),
            Fate::Replaced(item) => out.push(item),
            Fate::Message(item) => {
                out.insert(begin, item);
                first_call = Some(begin + 1);
            }
            Fate::Dropped => {}
        }
        if !is_call {
            first_call = None;
        }
    }
    Bytes::from(out.join(&b','))
}
