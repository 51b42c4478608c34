//! Puts the results of calls where servers require them: directly behind the message that has the
//! calls, one for each call. A Responses history may have them anywhere.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

use super::{Call, Content, Message};

/// Used as the result of a call when the client did not send one.
const NO_RESULT: &str = "No result of this call was recorded.";

/// Moves each result directly behind the message that has its call. Messages that stood between them
/// come after the results.
pub(super) fn behind_their_calls(messages: Vec<Message<'_>>) -> Vec<Message<'_>> {
    let places = places(&messages);
    let mut messages: Vec<_> = messages.into_iter().map(Some).collect();
    let mut take = |place: usize| Some((place, messages.get_mut(place)?.take()?));
    let results: Vec<_> = places.into_iter().map(|place| place.and_then(&mut take)).collect();
    let mut results = results.into_iter();
    let mut arranged = Vec::with_capacity(messages.len());
    for (at, message) in messages.into_iter().enumerate() {
        let Some(message) = message else { continue };
        if message.tool_call_id.is_some() {
            arranged.extend(stray(message));
            continue;
        }
        let result = |call| results.next().flatten().unwrap_or_else(|| (usize::MAX, missing(call)));
        let mut answers: Vec<_> = message.tool_calls.iter().map(result).collect();
        // Results that stand behind their calls already keep their order, which may be another one.
        let last = at.saturating_add(answers.len());
        if answers.iter().all(|(place, _)| at < *place && *place <= last) {
            answers.sort_by_key(|(place, _)| *place);
        }
        push(&mut arranged, message);
        arranged.extend(answers.into_iter().map(|(_, answer)| answer));
    }
    arranged
}

/// For each call of all messages, in order, the place of its result. A result belongs to a call before
/// it if one is left, because ids may come again in later turns; otherwise to a call behind it.
fn places(messages: &[Message<'_>]) -> Vec<Option<usize>> {
    let mut places = Vec::new();
    // By id, the calls without a result: those of each message together.
    let mut waiting: BTreeMap<&str, Vec<(usize, VecDeque<usize>)>> = BTreeMap::new();
    let mut early: BTreeMap<&str, VecDeque<usize>> = BTreeMap::new();
    for (at, message) in messages.iter().enumerate() {
        for call in &message.tool_calls {
            let waiting = waiting.entry(&call.id).or_default();
            match waiting.last_mut() {
                Some((of, calls)) if *of == at => calls.push_back(places.len()),
                _ => waiting.push((at, VecDeque::from([places.len()]))),
            }
            places.push(None);
        }
        let Some(id) = message.tool_call_id.as_deref() else { continue };
        match waiting.get_mut(id).and_then(next).and_then(|call| places.get_mut(call)) {
            Some(place) => *place = Some(at),
            None => early.entry(id).or_default().push_back(at),
        }
    }
    for (id, waiting) in waiting {
        let Some(early) = early.get_mut(id) else { continue };
        for call in waiting.into_iter().flat_map(|(_, calls)| calls) {
            if let Some(place) = places.get_mut(call) {
                *place = early.pop_front();
            }
        }
    }
    places
}

/// Takes the first call of the last message that has one.
fn next(waiting: &mut Vec<(usize, VecDeque<usize>)>) -> Option<usize> {
    let (_, calls) = waiting.last_mut()?;
    let call = calls.pop_front();
    if calls.is_empty() {
        waiting.pop();
    }
    call
}

fn missing<'a>(call: &Call<'a>) -> Message<'a> {
    Message {
        role: "tool",
        content: Content::Text(Cow::Borrowed(NO_RESULT)),
        reasoning_content: None,
        tool_calls: Vec::new(),
        tool_call_id: Some(call.id.clone()),
    }
}

/// A result whose call is not in the history. It becomes the user's text, because servers refuse it as
/// a result.
fn stray(message: Message<'_>) -> Option<Message<'_>> {
    let Content::Text(text) = message.content else { return None };
    if text.trim().is_empty() {
        return None;
    }
    let content = Content::Text(Cow::Owned(format!("Result of an earlier tool call:\n{text}")));
    Some(Message { role: "user", content, tool_call_id: None, ..message })
}

/// Adds a message. Two messages of the model become one if the result between them has moved. The first of
/// them has no calls: results would follow it.
fn push<'a>(arranged: &mut Vec<Message<'a>>, mut message: Message<'a>) {
    let joins =
        |last: &mut Message<'_>| last.role == "assistant" && !matches!(last.content, Content::Parts(_));
    if message.role == "assistant"
        && !matches!(message.content, Content::Parts(_))
        && let Some(before) = arranged.pop_if(joins)
    {
        message.content = match (before.content, message.content) {
            (Content::Text(mut text), Content::Text(more)) => {
                text.to_mut().push_str("\n\n");
                text.to_mut().push_str(&more);
                Content::Text(text)
            }
            (before @ Content::Text(_), _) => before,
            (_, content) => content,
        };
        message.reasoning_content = message.reasoning_content.or(before.reasoning_content);
    }
    arranged.push(message);
}
