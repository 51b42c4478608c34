//! From the server's answer to events. A streamed answer has one JSON document per line, another one a single document
//! of the same form.

use cofferdam_guest_kit::bindings::generation::{CallDelta, CallStart, Event, Finish, FinishReason, TextDelta};
use cofferdam_guest_kit::bindings::types::{ErrorKind, Failure, Usage};
use cofferdam_guest_kit::{Events, Malformed, ReadAnswer};
use serde_json::Value;

use crate::request::CALLS_BEFORE;

/// One answer while it is read.
#[derive(Default)]
pub struct Answer {
    events: Events,
    calls: u32,
}

impl ReadAnswer for Answer {
    const MALFORMED: &'static str = "the server's answer cannot be read";

    fn begin(_streamed: bool) -> Self {
        Self::default()
    }

    fn events(&mut self) -> &mut Events {
        &mut self.events
    }

    fn frame(&mut self, _name: &str, data: &str) -> Result<(), Malformed> {
        let chunk: Value = serde_json::from_str(data).map_err(|_| Malformed)?;
        if let Some(message) = chunk["error"].as_str() {
            self.events.fail(Failure::new(ErrorKind::ProviderUnavailable, message));
            return Ok(());
        }
        let message = &chunk["message"];
        if let Some(thought) = message["thinking"].as_str().filter(|thought| !thought.is_empty()) {
            self.events.push(Event::ReasoningTextDelta(thought.to_owned()));
        }
        if let Some(text) = message["content"].as_str().filter(|text| !text.is_empty()) {
            let delta = TextDelta { text: text.to_owned(), logprobs: Vec::new() };
            self.events.push(Event::TextDelta(delta));
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            self.call(&call["function"])?;
        }
        if chunk["done"].as_bool() == Some(true) {
            self.done(&chunk);
        }
        Ok(())
    }
}

impl Answer {
    /// A call comes whole, and without an id.
    fn call(&mut self, function: &Value) -> Result<(), Malformed> {
        let name = function["name"].as_str().ok_or(Malformed)?.to_owned();
        let key = self.calls;
        self.calls += 1;
        let call_id = format!("call_{}", CALLS_BEFORE.get() + key as usize);
        self.events.push(Event::FunctionCallStart(CallStart { key, call_id, name, namespace: None }));
        let text = function["arguments"].to_string();
        self.events.push(Event::FunctionArgumentsDelta(CallDelta { key, text }));
        self.events.push(Event::CallEnd(key));
        Ok(())
    }

    fn done(&mut self, chunk: &Value) {
        let count = |name: &str| chunk[name].as_u64().unwrap_or_default();
        self.events.push(Event::Usage(Usage {
            input_tokens: count("prompt_eval_count"),
            cached_tokens: 0,
            cache_write_tokens: 0,
            output_tokens: count("eval_count"),
            reasoning_tokens: 0,
            images: 0,
            provider_tool_requests: 0,
            cost_dollars: None,
        }));
        let reason = match chunk["done_reason"].as_str() {
            _ if self.calls > 0 => FinishReason::ToolCalls,
            Some("stop") | None => FinishReason::Stop,
            Some("length") => FinishReason::Length,
            Some(other) => FinishReason::Other(other.to_owned()),
        };
        self.events.end(Event::Finish(Finish { reason, service_tier: None }));
    }
}

/// The message of an error answer: `{"error": "..."}`.
pub fn error_message(body: &[u8]) -> Option<String> {
    let answer: Value = serde_json::from_slice(body).ok()?;
    answer["error"].as_str().map(str::to_owned)
}
