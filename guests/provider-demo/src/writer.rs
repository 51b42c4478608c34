//! Writes the events of an answer within its token limit.

use cofferdam_guest_kit::bindings::generation::{
    CallDelta, CallStart, Event, Finish, FinishReason, ReasoningSeal, SummaryDelta, TextDelta,
};
use cofferdam_guest_kit::bindings::types::Usage;
use serde_json::json;

use crate::calls::Call;
use crate::words;

/// An answer that is being written.
pub(crate) struct Writer {
    events: Vec<Event>,
    /// The number of tokens that may still be written.
    left: u64,
    output_tokens: u64,
    reasoning_tokens: u64,
    /// Whether the limit cut something off.
    cut: bool,
    /// Whether to write one event per word, as a streaming client expects.
    streamed: bool,
    logprobs: bool,
}

impl Writer {
    pub(crate) fn new(tokens_max: Option<u64>, streamed: bool, logprobs: bool) -> Self {
        Self {
            events: Vec::new(),
            left: tokens_max.unwrap_or(u64::MAX),
            output_tokens: 0,
            reasoning_tokens: 0,
            cut: false,
            streamed,
            logprobs,
        }
    }

    /// Whether the limit has cut something off.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut
    }

    pub(crate) fn text(&mut self, text: &str) {
        let taken = self.take(text);
        let logprobs = self.logprobs;
        let event = |piece: &str| {
            Event::TextDelta(TextDelta {
                text: piece.to_owned(),
                logprobs: if logprobs { certain(piece) } else { Vec::new() },
            })
        };
        self.push(taken, self.streamed || self.logprobs, event);
    }

    /// Writes reasoning as text, or as part 0 of a summary.
    pub(crate) fn reasoning(&mut self, text: &str, as_summary: bool) {
        let before = self.output_tokens;
        let taken = self.take(text);
        self.reasoning_tokens += self.output_tokens - before;
        let event = |piece: &str| match as_summary {
            true => Event::ReasoningSummaryDelta(SummaryDelta { part: 0, text: piece.to_owned() }),
            false => Event::ReasoningTextDelta(piece.to_owned()),
        };
        self.push(taken, self.streamed, event);
    }

    /// Adds an event for the text, or one for each word.
    fn push(&mut self, text: &str, by_word: bool, event: impl Fn(&str) -> Event) {
        if by_word {
            self.events.extend(words::pieces(text).map(event));
        } else if !text.is_empty() {
            self.events.push(event(text));
        }
    }

    pub(crate) fn seal(&mut self, seal: ReasoningSeal) {
        self.events.push(Event::ReasoningSeal(seal));
    }

    pub(crate) fn call(&mut self, key: u32, call_id: String, call: &Call) {
        let name_tokens = words::count(&call.name);
        self.output_tokens += name_tokens;
        self.left = self.left.saturating_sub(name_tokens);
        let start = CallStart { key, call_id, name: call.name.clone(), namespace: call.namespace.clone() };
        self.events.push(if call.custom {
            Event::CustomCallStart(start)
        } else {
            Event::FunctionCallStart(start)
        });
        let taken = self.take(&call.input);
        let event = |piece: &str| {
            let delta = CallDelta { key, text: piece.to_owned() };
            if call.custom { Event::CustomInputDelta(delta) } else { Event::FunctionArgumentsDelta(delta) }
        };
        self.push(taken, self.streamed, event);
        if !self.cut {
            self.events.push(Event::CallEnd(key));
        }
    }

    /// Ends the answer for this reason, or for its length if the limit cut something off.
    pub(crate) fn finish(mut self, reason: FinishReason, input_tokens: u64, tier: &str) -> Vec<Event> {
        self.events.push(Event::Usage(Usage {
            input_tokens,
            cached_tokens: 0,
            cache_write_tokens: 0,
            output_tokens: self.output_tokens,
            reasoning_tokens: self.reasoning_tokens,
            images: 0,
            provider_tool_requests: 0,
            cost_dollars: None,
        }));
        let reason = if self.cut { FinishReason::Length } else { reason };
        self.events.push(Event::Finish(Finish { reason, service_tier: Some(tier.to_owned()) }));
        self.events
    }

    /// Takes and counts as much of `text` as the limit allows.
    fn take<'a>(&mut self, text: &'a str) -> &'a str {
        let (taken, tokens) = words::take(text, self.left);
        self.left = self.left.saturating_sub(tokens);
        self.output_tokens += tokens;
        self.cut |= taken.len() < text.len();
        taken
    }
}

/// The log-probabilities of a piece: a fixed rule chose it with probability 1.
fn certain(piece: &str) -> Vec<u8> {
    json!([{ "token": piece, "bytes": piece.as_bytes(), "logprob": 0.0, "top_logprobs": [] }])
        .to_string()
        .into_bytes()
}
