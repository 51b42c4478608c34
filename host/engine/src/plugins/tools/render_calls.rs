//! Renders earlier calls of server tools for models. The parser writes each as a call of a function
//! with the name of the tool, prefix included, because it cannot know the functions of the
//! request's tools. Here such a call gets the name and the arguments of an offered function. If
//! there is none, it becomes plain text: a model that imitates its history would otherwise call a
//! function that does not exist.

use super::offer::Offer;
use super::run::shortened;
use crate::refusal::Refusal;
use crate::request::server_tool_of_call;
use crate::request::walk::{Breath, walk};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};

/// The members of calls and results.
#[derive(Deserialize)]
struct CallRecord<'a> {
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

impl CallRecord<'_> {
    fn is_call(&self) -> bool {
        matches!(&*self.tag, "function_call" | "custom_tool_call")
    }

    /// The server tool whose call this is.
    fn server_tool(&self) -> Option<&str> {
        server_tool_of_call(self.name.as_deref().filter(|_| self.tag == "function_call")?)
    }
}

/// What happens to an item.
enum CallState {
    Kept,
    Replaced(Bytes),
    /// A message replaces it. A message must not stand between calls and their results.
    Message(Bytes),
    Dropped,
}

/// Renders `items` for models, comma-separated as the parser has written them.
///
/// # Errors
/// 500 for items that the parser cannot have written.
pub(super) async fn render_calls(items: &[u8], offer: &Offer) -> Result<Bytes, Refusal> {
    let list = [b"[".as_slice(), items, b"]"].concat();
    let raws: Vec<&RawValue> = serde_json::from_slice(&list).map_err(|_| Refusal::internal())?;
    let mut breath = Breath::default();
    let mut read: Vec<Option<CallRecord<'_>>> = Vec::with_capacity(raws.len());
    for raw in walk(&raws) {
        breath.step().await;
        // An item whose members have other types is neither a call nor a result.
        read.push(serde_json::from_str(raw.get()).ok());
    }
    let mut results = Results::of(&read);
    let mut fates: Vec<CallState> = Vec::with_capacity(raws.len());
    fates.resize_with(raws.len(), || CallState::Kept);
    for (place, item) in walk(&read).enumerate() {
        breath.step().await;
        let Some((item, tool)) = item.as_ref().and_then(|item| Some((item, item.server_tool()?))) else {
            continue;
        };
        let result = results.take(item, place);
        let output = result.and_then(|result| read.get(result)?.as_ref()?.output);
        let (call, answer) = render(item, tool, output, offer);
        let mut settle = |place: usize, fate: CallState| {
            if let Some(known) = fates.get_mut(place) {
                *known = fate;
            }
        };
        settle(place, call);
        if let Some(result) = result {
            settle(result, answer);
        }
    }
    let mut out = Retold::with_capacity(items.len());
    for ((raw, item), fate) in walk(&raws).zip(&read).zip(fates) {
        breath.step().await;
        out.add(raw.get(), fate, item.as_ref().is_some_and(CallRecord::is_call));
    }
    Ok(out.end())
}

/// The results that no call has taken yet, by call id.
struct Results<'r>(HashMap<Option<&'r str>, VecDeque<usize>>);

impl<'r> Results<'r> {
    fn of(read: &'r [Option<CallRecord<'_>>]) -> Self {
        let mut results: HashMap<_, VecDeque<usize>> = HashMap::new();
        for (place, item) in walk(read).enumerate() {
            if let Some(item) = item.as_ref().filter(|item| item.tag == "function_call_output") {
                results.entry(item.call_id.as_deref()).or_default().push_back(place);
            }
        }
        Self(results)
    }

    /// The index of a call's result: the next one with its id that no other call has taken. Must be
    /// called in the order of the calls.
    fn take(&mut self, call: &'r CallRecord<'_>, place: usize) -> Option<usize> {
        let results = self.0.get_mut(&call.call_id.as_deref())?;
        while let Some(result) = results.pop_front() {
            // A result that stands before this call stands before all later calls too, so it can be
            // dropped.
            if result > place {
                return Some(result);
            }
        }
        None
    }
}

/// Renders a call of `tool` and its result.
fn render(
    call: &CallRecord<'_>,
    tool: &str,
    output: Option<&RawValue>,
    offer: &Offer,
) -> (CallState, CallState) {
    let text: Option<String> = output.and_then(|output| serde_json::from_str(output.get()).ok());
    // The members of the call's item. Empty where the client has answered with a text of its own.
    let mut members: Map<String, Value> =
        text.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let given = call.arguments.as_deref().unwrap_or("{}");
    let Some(function) = offer.function_told_as(tool, &members) else {
        let told = text.or_else(|| output.map(texts)).map_or_else(|| "nothing".to_owned(), shortened);
        let called = if given == "{}" { String::new() } else { format!(" with {given}") };
        return (
            CallState::Message(message(&format!("[I used the tool {tool}{called}. It gave: {told}]"))),
            CallState::Dropped,
        );
    };
    let mut arguments = Map::new();
    if given == "{}" {
        // The items do not contain the model's arguments, but most contain members of the same
        // names.
        for name in offer.parameters_of(function).iter().cloned() {
            // In some items they are one level deeper, such as `action.query`.
            let deeper =
                |members: &Map<String, Value>| members.values().find_map(|it| it.get(&name)).cloned();
            let value = members.shift_remove(&name).or_else(|| deeper(&members));
            arguments.extend(value.map(|value| (name, value)));
        }
    }
    let (given, answer) = if arguments.is_empty() {
        (given.to_owned(), CallState::Kept)
    } else {
        let output = Value::Object(members).to_string();
        let answer = json!({ "type": "function_call_output", "call_id": call.call_id, "output": output });
        (Value::Object(arguments).to_string(), CallState::Replaced(Bytes::from(answer.to_string())))
    };
    let item =
        json!({ "type": "function_call", "call_id": call.call_id, "name": function, "arguments": given });
    (CallState::Replaced(Bytes::from(item.to_string())), answer)
}

/// The texts of a result in parts. Pictures and files cannot be written as text.
fn texts(output: &RawValue) -> String {
    let parts: Vec<Value> = serde_json::from_str(output.get()).unwrap_or_default();
    let texts: Vec<&str> = parts.iter().filter_map(|part| part.get("text")?.as_str()).collect();
    texts.join("\n")
}

fn message(text: &str) -> Bytes {
    let part = json!({ "type": "output_text", "text": text });
    Bytes::from(json!({ "type": "message", "role": "assistant", "content": [part] }).to_string())
}

/// The rendered items. Messages are moved before the calls among which they stand, because
/// providers require the results of calls directly after them.
struct Retold {
    out: Vec<u8>,
    /// The consecutive calls at the end, comma-separated.
    calls: Vec<u8>,
}

impl Retold {
    fn with_capacity(bytes: usize) -> Self {
        Self { out: Vec::with_capacity(bytes), calls: Vec::new() }
    }

    fn add(&mut self, raw: &str, fate: CallState, is_call: bool) {
        match fate {
            CallState::Kept => put(raw.as_bytes(), &mut self.calls),
            CallState::Replaced(item) => put(&item, &mut self.calls),
            CallState::Message(item) => put(&item, &mut self.out),
            CallState::Dropped => {}
        }
        if !is_call {
            self.end_calls();
        }
    }

    fn end_calls(&mut self) {
        if !self.calls.is_empty() {
            put(&self.calls, &mut self.out);
            self.calls.clear();
        }
    }

    fn end(mut self) -> Bytes {
        self.end_calls();
        Bytes::from(self.out)
    }
}

fn put(items: &[u8], out: &mut Vec<u8>) {
    if !out.is_empty() {
        out.push(b',');
    }
    out.extend_from_slice(items);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::walk::steps_of;
    use futures_util::FutureExt;
    use proptest::prelude::*;

    /// The items of an input as the parser writes them.
    fn parsed(items: &[Value]) -> Bytes {
        let body = json!({"model": "m", "input": items}).to_string();
        crate::request::ResponsesRequest::parse(body.as_bytes(), &[]).unwrap().input_items()
    }

    async fn told(items: &[u8]) -> Vec<Value> {
        let told = render_calls(items, &Offer::default()).await.unwrap();
        serde_json::from_slice(&[b"[".as_slice(), &told, b"]"].concat()).unwrap()
    }

    /// The number of steps for `count` copies of an item, few enough for one poll.
    fn steps_with(item: &Value, count: usize) -> u64 {
        let items = parsed(&vec![item.clone(); count]);
        steps_of(|| render_calls(&items, &Offer::default()).now_or_never().unwrap().unwrap()).1
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
        let items = parsed(&vec![json!({"type": "service:x"}); 2_000]);
        let offer = Offer::default();
        let telling = render_calls(&items, &offer);
        assert!(telling.now_or_never().is_none());
    }

    #[tokio::test]
    async fn calls_rendered_as_text_stand_before_adjacent_calls_without_results() {
        let call = |id: &str, name: &str| json!({"type": "function_call", "call_id": id, "name": name, "arguments": "{}"});
        let output =
            |id: &str, text: &str| json!({"type": "function_call_output", "call_id": id, "output": text});
        let items = [
            call("a", "own"),
            call("b", "service:x"),
            call("b", "service:y"),
            output("a", "1"),
            output("b", "2"),
            output("b", "3"),
            output("b", "4"),
        ];
        let written = items.map(|item| item.to_string()).join(",");
        let told = told(written.as_bytes()).await;
        let text = |item: &Value| item["content"][0]["text"].as_str().unwrap_or_default().to_owned();
        assert_eq!(text(&told[0]), "[I used the tool x. It gave: 2]");
        assert_eq!(text(&told[1]), "[I used the tool y. It gave: 3]");
        assert_eq!(told[2]["name"], "own");
        assert_eq!((&told[3]["output"], &told[4]["output"]), (&json!("1"), &json!("4")));
        assert_eq!(told.len(), 5);
    }

    /// The index of a call's result, found by looking at every item.
    fn searched(
        read: &[Option<CallRecord<'_>>],
        taken: &[usize],
        call: &CallRecord<'_>,
        place: usize,
    ) -> Option<usize> {
        let is_result =
            |item: &CallRecord<'_>| item.tag == "function_call_output" && item.call_id == call.call_id;
        let places = read.iter().enumerate().skip(place + 1);
        let mut places =
            places.filter(|(at, item)| !taken.contains(at) && item.as_ref().is_some_and(is_result));
        places.next().map(|(at, _)| at)
    }

    proptest! {
        #[test]
        fn the_map_finds_the_results_that_a_search_finds(
            items in prop::collection::vec((any::<bool>(), prop::option::of("[ab]")), 0..12),
        ) {
            let written: Vec<String> = items.iter().map(|(is_call, id)| {
                let (tag, name) = if *is_call { ("function_call", "service:x") } else { ("function_call_output", "") };
                json!({"type": tag, "call_id": id, "name": name}).to_string()
            }).collect();
            let read: Vec<Option<CallRecord<'_>>> =
                written.iter().map(|item| serde_json::from_str(item).ok()).collect();
            let mut results = Results::of(&read);
            let mut taken = Vec::new();
            for (place, item) in read.iter().enumerate() {
                let Some(item) = item.as_ref().filter(|item| item.server_tool().is_some()) else { continue };
                let found = results.take(item, place);
                prop_assert_eq!(found, searched(&read, &taken, item, place));
                taken.extend(found);
            }
        }
    }
}
