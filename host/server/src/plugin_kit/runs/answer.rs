//! What a client would get of the events of a provider: the host's own assembler makes it.

use cofferdam_engine::Framer;
use cofferdam_engine::assembler::{Assembler, Identity, Outcome, Receipt};
use cofferdam_runtime::manifest::Framing;
use cofferdam_runtime::wire::{Event, Failure, FinishReason, Frame, ResponseHead, Usage};
use cofferdam_runtime::{CallError, ProviderInstance};
use serde_json::{Map, Value, json};

use super::{Trouble, failure_json, members, read};

/// The events of a stream whose frames arrive in these groups.
pub(in super::super) async fn events_of_stream<'f>(
    instance: &mut ProviderInstance,
    head: &ResponseHead,
    groups: impl IntoIterator<Item = &'f [Frame]>,
) -> Result<Result<Vec<Event>, Failure>, CallError> {
    instance.open_decoder(head).await?;
    let mut events = Vec::new();
    for group in groups {
        match instance.feed(group).await? {
            Ok(more) => events.extend(more),
            Err(failure) => return Ok(Err(failure)),
        }
    }
    Ok(instance.finish().await?.map(|more| {
        events.extend(more);
        events
    }))
}

/// The frames of a whole stream.
pub(super) fn frames_of(stream: &[u8], framing: Framing) -> Result<Vec<Frame>, Trouble> {
    let (mut framer, mut frames) = (Framer::new(framing), Vec::new());
    let framed = framer.push(stream, &mut frames).and_then(|()| framer.end(&mut frames));
    framed.map_err(|error| Trouble::Rule(error.to_string()))?;
    Ok(frames)
}

/// The answer that these events make, with the members that `expect` may name.
///
/// # Errors
///
/// What the host would refuse.
pub(in super::super) fn assembled(
    events: Result<Vec<Event>, Failure>,
) -> Result<Map<String, Value>, Trouble> {
    let events = match events {
        Ok(events) => events,
        Err(failure) => return Ok(members(json!({"failure": failure_json(&failure)}))),
    };
    let identity = Identity {
        hex: "0".repeat(32).into(),
        created_at: 0,
        model: "sample/model".to_owned(),
        service_tier: "default".to_owned(),
        echo: "".into(),
    };
    let mut assembler = Assembler::new(identity, false);
    let mut failure = None;
    for event in events {
        if let Event::Error(reported) = event {
            failure = Some(failure_json(&reported));
            break;
        }
        if assembler.ended().is_some() {
            return Err(Trouble::Rule("an event follows `finish`, which ends an answer".to_owned()));
        }
        assembler.apply(event).map_err(|error| Trouble::Rule(error.to_string()))?;
    }
    let finish = assembler.ended().map(|ended| finish_word(&ended.reason));
    let usage = assembler.usage().map(usage_json);
    let body = read(&assembler.complete(&Outcome::Completed, &Receipt::default()));
    let items = body.get("output").cloned().unwrap_or_default();
    let mut answer = members(json!({"text": text_of(&items), "items": items}));
    if let Some(usage) = usage {
        answer.insert("usage".to_owned(), usage);
    }
    match (finish, failure) {
        (_, Some(failure)) => drop(answer.insert("failure".to_owned(), failure)),
        (Some(finish), None) => drop(answer.insert("finish".to_owned(), Value::from(finish))),
        // The host takes such an answer for one that was cut off.
        (None, None) => {
            let message = "the answer ended without `finish` and `error`";
            let failure = json!({"kind": "provider_unavailable", "message": message});
            drop(answer.insert("failure".to_owned(), failure));
        }
    }
    Ok(answer)
}

/// The texts of all messages, joined.
fn text_of(items: &Value) -> String {
    let items = items.as_array().into_iter().flatten();
    let parts = items.filter_map(|item| item["content"].as_array()).flatten();
    parts.filter(|part| part["type"] == "output_text").filter_map(|part| part["text"].as_str()).collect()
}

/// The reason by its name in the contract, with underscores, or the provider's own word.
fn finish_word(reason: &FinishReason) -> String {
    let name = match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
        FinishReason::ContentFilter => "content-filter",
        FinishReason::ToolCalls => "tool-calls",
        FinishReason::Other(word) => return word.clone(),
    };
    name.replace('-', "_")
}

fn usage_json(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.input_tokens,
        "cached_tokens": usage.cached_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "output_tokens": usage.output_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "images": usage.images,
        "provider_tool_requests": usage.provider_tool_requests,
        "cost_dollars": usage.cost_dollars,
    })
}
