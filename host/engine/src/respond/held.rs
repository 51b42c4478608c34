//! The events of an answer that is held back until it is complete.

use cofferdam_runtime::wire::Event;

/// Adds events to those that are held. Consecutive pieces of one text are joined: thousands of
/// short pieces would take many times the memory of their text. Returns the number of content bytes
/// added.
pub(super) fn add(held: &mut Vec<Event>, more: Vec<Event>) -> usize {
    let mut bytes = 0usize;
    for event in more {
        bytes = bytes.saturating_add(content_bytes(&event));
        if let Some(event) = join(held.last_mut(), event) {
            held.push(event);
        }
    }
    bytes
}

/// Appends the event to the last one. Returns it where the two cannot be joined.
fn join(last: Option<&mut Event>, event: Event) -> Option<Event> {
    match (last, event) {
        (Some(Event::TextDelta(last)), Event::TextDelta(delta))
            if last.logprobs.is_empty() && delta.logprobs.is_empty() =>
        {
            last.text.push_str(&delta.text);
        }
        (Some(Event::ReasoningTextDelta(last)), Event::ReasoningTextDelta(delta))
        | (Some(Event::RefusalDelta(last)), Event::RefusalDelta(delta)) => last.push_str(&delta),
        (Some(Event::ReasoningSummaryDelta(last)), Event::ReasoningSummaryDelta(delta))
            if last.part == delta.part =>
        {
            last.text.push_str(&delta.text);
        }
        (Some(Event::FunctionArgumentsDelta(last)), Event::FunctionArgumentsDelta(delta))
        | (Some(Event::CustomInputDelta(last)), Event::CustomInputDelta(delta))
            if last.key == delta.key =>
        {
            last.text.push_str(&delta.text);
        }
        (_, event) => return Some(event),
    }
    None
}

fn content_bytes(event: &Event) -> usize {
    match event {
        Event::TextDelta(delta) => delta.text.len() + delta.logprobs.len(),
        Event::RefusalDelta(text) | Event::ReasoningTextDelta(text) => text.len(),
        Event::ReasoningSummaryDelta(delta) => delta.text.len(),
        Event::ReasoningSeal(seal) => seal.encrypted_content.as_ref().map_or(0, String::len),
        Event::FunctionArgumentsDelta(delta) | Event::CustomInputDelta(delta) => delta.text.len(),
        Event::ImagePartial(image) | Event::ImageDone(image) => image.base64.len(),
        Event::Annotation(json) | Event::OpaqueItem(json) => json.len(),
        _ => 0,
    }
}
