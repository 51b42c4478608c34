//! Translates items into turns. Anthropic requires that user and assistant alternate, that every
//! call is answered at the start of the next turn, and that reasoning appears only where it can be
//! verified. A Responses history guarantees none of this.
//!
//! System and developer messages at the start become the system prompt. Later ones stay in their
//! place as user text between `<system>` tags: moving them to the front would change the order of
//! the conversation and invalidate the prompt cache.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cofferdam_guest_kit::bindings::types::Failure;
use cofferdam_guest_kit::{Content, Item, Message, Part, Role};
use serde_json::value::RawValue;

use crate::blocks::{Block, Side, Text, Turn};
use crate::cache::Marking;
use crate::files::{self, File};
use crate::names::{self, Ids};
use crate::{error::refuse, replay};

/// Used as the first user message when a history begins with the assistant.
const OPENING: &str = "(The conversation so far began with this answer.)";
/// Used as the last user message when a history ends with the assistant.
const GO_ON: &str = "(Please go on.)";
/// Used as the result of a call when the client did not send one.
const NO_RESULT: &str = "No result of this call was recorded.";

/// The conversation in the provider's form.
#[derive(Debug, Default)]
pub struct Conversation<'a> {
    pub system: Vec<Block<'a>>,
    pub turns: Vec<Turn<'a>>,
}

impl<'a> Conversation<'a> {
    /// Reads `instructions` and `input`.
    pub fn read(
        instructions: Option<&'a str>,
        items: &'a [Item<'a>],
        marking: Marking,
    ) -> Result<Self, Failure> {
        let leading = items.iter().take_while(|item| is_system(item)).count();
        let (first, rest) = items.split_at_checked(leading).unwrap_or((items, &[]));
        let mut system: Vec<_> =
            instructions.filter(|text| has_text(text)).map(Block::text).into_iter().collect();
        let mut leading_system = Vec::new();
        for item in first {
            if let Item::Message(message) = item {
                push_texts(&mut leading_system, &message.content, marking);
            }
        }
        let mut builder = Builder::new(items, marking);
        for (index, item) in rest.iter().enumerate() {
            builder.item(leading.saturating_add(index), item)?;
        }
        let mut turns = builder.finish()?;
        if turns.is_empty() {
            // Only instructions: they become a user turn, because the last turn must be the user's.
            turns.extend(
                (!leading_system.is_empty())
                    .then(|| Turn { role: Side::User, content: std::mem::take(&mut leading_system) }),
            );
        }
        system.append(&mut leading_system);
        if turns.is_empty() {
            return Err(refuse("input has no content that this provider can be sent"));
        }
        Ok(Conversation { system, turns })
    }

    /// Whether thinking with a budget is impossible. The provider requires that an answer that
    /// was interrupted by calls starts with thinking, and that a continued answer has no thinking.
    pub fn forbids_budget(&self) -> bool {
        let Some(last) = self.turns.last() else { return false };
        if last.role == Side::Assistant {
            return true;
        }
        let mut start = None;
        for turn in self.turns.iter().rev() {
            match turn.role {
                Side::Assistant => start = Some(turn),
                Side::User if turn.content.iter().any(is_result) => {}
                Side::User => break,
            }
        }
        let interrupted = last.content.iter().any(is_result);
        interrupted && start.is_some_and(|turn| !turn.content.first().is_some_and(Block::is_thinking))
    }

    /// Adds a user turn at the end if the last turn is the assistant's: newer models do not
    /// continue an answer.
    pub fn ask_on(&mut self) {
        if self.turns.last().is_some_and(|turn| turn.role == Side::Assistant) {
            self.turns.push(Turn { role: Side::User, content: vec![Block::text(GO_ON)] });
        }
    }

    /// Removes thinking from an answer that is to be continued without thinking; the provider
    /// refuses it there.
    pub fn drop_final_thinking(&mut self) {
        if let Some(turn) = self.turns.last_mut().filter(|turn| turn.role == Side::Assistant) {
            turn.content.retain(|block| !block.is_thinking());
        }
    }
}

struct Builder<'a> {
    marking: Marking,
    turns: Vec<Turn<'a>>,
    ids: Ids,
    /// The calls of the current turn: the provider's id and the client's id.
    open: Vec<(String, &'a str)>,
    /// The client's ids of the calls in `open`.
    open_ids: BTreeSet<&'a str>,
    /// Results that are not used yet, by the client's id, with the index of their item.
    results: BTreeMap<&'a str, VecDeque<(usize, &'a Content<'a>)>>,
}

impl<'a> Builder<'a> {
    fn new(items: &'a [Item<'a>], marking: Marking) -> Self {
        let mut results: BTreeMap<&str, VecDeque<_>> = BTreeMap::new();
        for (index, item) in items.iter().enumerate() {
            if let Item::FunctionCallOutput { call_id, output }
            | Item::CustomToolCallOutput { call_id, output } = item
            {
                results.entry(call_id).or_default().push_back((index, output));
            }
        }
        Builder {
            marking,
            turns: Vec::new(),
            ids: Ids::default(),
            open: Vec::new(),
            open_ids: BTreeSet::new(),
            results,
        }
    }

    fn item(&mut self, index: usize, item: &'a Item<'a>) -> Result<(), Failure> {
        match item {
            Item::Message(message) => self.message(index, message)?,
            Item::FunctionCall { call_id, name, arguments, .. } => {
                self.call(call_id, name, object_or_empty(arguments));
            }
            Item::CustomToolCall { call_id, name, input, .. } => {
                let input = serde_json::json!({ "input": input }).to_string();
                self.call(call_id, name, object_or_empty(&input));
            }
            Item::FunctionCallOutput { call_id, .. } | Item::CustomToolCallOutput { call_id, .. } => {
                if self.open_ids.contains(&**call_id) {
                    self.answer_calls()?;
                } else {
                    self.stray_result(index, call_id)?;
                }
            }
            Item::Reasoning(reasoning) => {
                if let Some(block) = replay::block(reasoning) {
                    self.push(Side::Assistant, block);
                }
            }
            // Items of other providers' tools, which the model does not need.
            Item::Other { .. } => {}
        }
        Ok(())
    }

    fn message(&mut self, index: usize, message: &'a Message<'a>) -> Result<(), Failure> {
        let mut blocks = Vec::new();
        let side = match message.role {
            Role::Assistant => {
                push_texts(&mut blocks, &message.content, self.marking);
                Side::Assistant
            }
            Role::User => {
                push_parts(&mut blocks, &message.content, (index, "content"), self.marking)?;
                Side::User
            }
            Role::System | Role::Developer => {
                let text: String = message.content.iter().filter_map(Part::text).collect();
                if has_text(&text) {
                    blocks.push(Block::text(format!("<system>\n{text}\n</system>")));
                }
                Side::User
            }
        };
        if side == Side::User && !blocks.is_empty() {
            self.answer_calls()?;
        }
        for block in blocks {
            self.push(side, block);
        }
        Ok(())
    }

    fn call(&mut self, call_id: &'a str, name: &'a str, input: Box<RawValue>) {
        let id = self.ids.assign(call_id);
        self.push(Side::Assistant, Block::ToolUse { id: id.clone(), name: names::plain(name), input });
        self.open.push((id, call_id));
        self.open_ids.insert(call_id);
    }

    /// Answers all calls of the turn in their order, at whatever index their results are.
    fn answer_calls(&mut self) -> Result<(), Failure> {
        self.open_ids.clear();
        for (id, call_id) in std::mem::take(&mut self.open) {
            let result = self.results.get_mut(call_id).and_then(VecDeque::pop_front);
            let is_error = result.is_none();
            let content = match result {
                Some((at, output)) => result_blocks(output, at, self.marking)?,
                None => vec![Block::text(NO_RESULT)],
            };
            self.push(Side::User, Block::ToolResult { tool_use_id: id, content, is_error });
        }
        Ok(())
    }

    /// A result whose call is no longer in the history. It becomes plain text, because the
    /// provider would refuse it as a result.
    fn stray_result(&mut self, index: usize, call_id: &'a str) -> Result<(), Failure> {
        let Some(results) = self.results.get_mut(call_id) else { return Ok(()) };
        // The results are in the order of the items.
        let Ok(position) = results.binary_search_by_key(&index, |(at, _)| *at) else { return Ok(()) };
        let Some((_, output)) = results.remove(position) else { return Ok(()) };
        let blocks = result_blocks(output, index, self.marking)?;
        if blocks.is_empty() {
            return Ok(());
        }
        self.answer_calls()?;
        self.push(Side::User, Block::text("Result of an earlier tool call:"));
        for block in blocks {
            self.push(Side::User, block);
        }
        Ok(())
    }

    fn push(&mut self, side: Side, block: Block<'a>) {
        match self.turns.last_mut() {
            Some(turn) if turn.role == side => turn.content.push(block),
            _ => self.turns.push(Turn { role: side, content: vec![block] }),
        }
    }

    fn finish(mut self) -> Result<Vec<Turn<'a>>, Failure> {
        // The provider refuses a conversation that ends with an unanswered call.
        self.answer_calls()?;
        let mut merged: Vec<Turn<'a>> = Vec::with_capacity(self.turns.len());
        for mut turn in self.turns {
            // The provider refuses a turn that ends with thinking, as left by an answer that was cut off.
            while turn.role == Side::Assistant && turn.content.last().is_some_and(Block::is_thinking) {
                turn.content.pop();
            }
            match merged.last_mut() {
                _ if turn.content.is_empty() => {}
                Some(last) if last.role == turn.role => last.content.append(&mut turn.content),
                _ => merged.push(turn),
            }
        }
        trim_end(&mut merged);
        if merged.first().is_some_and(|turn| turn.role == Side::Assistant) {
            merged.insert(0, Turn { role: Side::User, content: vec![Block::text(OPENING)] });
        }
        Ok(merged)
    }
}

/// Removes white space from the end of an answer that is to be continued; the provider refuses it.
fn trim_end(turns: &mut [Turn<'_>]) {
    let Some(turn) = turns.last_mut().filter(|turn| turn.role == Side::Assistant) else { return };
    if let Some(Block::Text { text, .. }) = turn.content.last_mut() {
        let length = text.trim_end().len();
        text.to_mut().truncate(length);
    }
}

fn is_system(item: &Item<'_>) -> bool {
    matches!(item, Item::Message(Message { role: Role::System | Role::Developer, .. }))
}

fn is_result(block: &Block<'_>) -> bool {
    matches!(block, Block::ToolResult { .. })
}

/// Whether there is text other than white space. The provider refuses empty text blocks.
fn has_text(text: &str) -> bool {
    !text.trim().is_empty()
}

/// The arguments as a JSON object, which the provider requires. A model that was cut off leaves
/// invalid JSON; such a call stays in the history with an empty object.
fn object_or_empty(arguments: &str) -> Box<RawValue> {
    let raw: Result<Box<RawValue>, _> = serde_json::from_str(arguments.trim());
    match raw {
        Ok(raw) if raw.get().starts_with('{') => raw,
        _ => RawValue::from_string("{}".to_owned()).unwrap_or_default(),
    }
}

/// Text and refusals. Assistant and system messages contain nothing else.
fn push_texts<'a>(blocks: &mut Vec<Block<'a>>, parts: &'a [Part<'a>], marking: Marking) {
    for part in parts {
        let (text, cache_control) = match part {
            Part::Text { text, marks } => (text, marking.of(marks)),
            Part::Refusal { text } => (text, None),
            _ => continue,
        };
        if has_text(text) {
            blocks.push(Block::Text { text: Text::Borrowed(text), cache_control });
        }
    }
}

/// Adds the blocks for `parts`. `(item, member)` is their position, for error messages.
fn push_parts<'a>(
    blocks: &mut Vec<Block<'a>>,
    parts: &'a [Part<'a>],
    (item, member): (usize, &str),
    marking: Marking,
) -> Result<(), Failure> {
    for (index, part) in parts.iter().enumerate() {
        let path = || format!("input[{item}].{member}[{index}]");
        let within =
            |failure: Failure| Failure { message: format!("{}.{}", path(), failure.message), ..failure };
        let kind = |what: &str| refuse(&format!("{}.type: this provider does not take {what}", path()));
        let block = match part {
            Part::Text { text, marks } if has_text(text) => {
                Block::Text { text: Text::Borrowed(text), cache_control: marking.of(marks) }
            }
            Part::Refusal { text } if has_text(text) => Block::text(&**text),
            Part::Text { .. } | Part::Refusal { .. } => continue,
            Part::Image { url, marks, .. } => {
                files::image(url.as_deref(), marking.of(marks)).map_err(within)?
            }
            Part::File { filename, data, url, marks, .. } => {
                let file = File { filename: filename.as_deref(), data: data.as_deref(), url: url.as_deref() };
                files::file(&file, marking.of(marks)).map_err(within)?
            }
            Part::Audio { .. } => return Err(kind("audio")),
            Part::Video { .. } => return Err(kind("video")),
            Part::Other { .. } => return Err(kind("a part of this type")),
        };
        blocks.push(block);
    }
    Ok(())
}

/// The blocks of a tool result. `item` is the index of the result among the items.
fn result_blocks<'a>(
    output: &'a Content<'a>,
    item: usize,
    marking: Marking,
) -> Result<Vec<Block<'a>>, Failure> {
    let mut blocks = Vec::new();
    match output {
        Content::Text(text) if has_text(text) => blocks.push(Block::text(&**text)),
        Content::Parts(parts) => push_parts(&mut blocks, parts, (item, "output"), marking)?,
        Content::Text(_) | Content::Empty => {}
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests;
