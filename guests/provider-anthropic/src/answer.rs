//! Translates the answer into events. A whole body takes the same steps as a stream: each block is
//! started and stopped, without deltas in between.

use std::cell::Cell;

use cofferdam_guest_kit::bindings::generation::{
    CallDelta, CallStart, Event, Finish, FinishReason, SummaryDelta, TextDelta,
};
use cofferdam_guest_kit::{Events, Malformed, ReadAnswer, json};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::usage::Counts;
use crate::wire::{Block, Citation, Delta, Message, StopDetails, StreamEvent, Text, Usage};
use crate::{error, replay};

/// The refusal text when the provider gives no explanation.
const REFUSAL: &str = "The model declined to answer this request.";

thread_local! {
    /// Whether the client of the current attempt asked for reasoning summaries. One value is
    /// enough: an instance serves one attempt after the other, and because the manifest does not
    /// say `stateless`, the host makes the decoder in the instance that prepared the request,
    /// before that instance prepares another one.
    pub static SUMMARIES: Cell<bool> = const { Cell::new(false) };
}

/// The state of one answer while it is read.
#[derive(Debug, Default)]
pub struct Answer {
    streamed: bool,
    events: Events,
    /// Whether reasoning is sent as a summary instead of as text.
    summaries: bool,
    counts: Counts,
    open: Vec<(u32, Open)>,
    /// The last call whose block has ended, and its input, see [`Self::end_call`].
    last_call: Option<(u32, Option<String>)>,
    /// Characters of the current message so far, for the positions of citations.
    message_chars: usize,
    /// The id and the query of each search that the provider made.
    searches: Vec<(String, String)>,
    has_text: bool,
    has_calls: bool,
    stop_reason: Option<String>,
    explanation: Option<String>,
}

/// A block between its start and its stop.
#[derive(Debug)]
enum Open {
    /// The position of the block in the message, and its citations.
    Text {
        start: usize,
        citations: Vec<Quote>,
    },
    Thinking {
        text: String,
        signature: String,
    },
    /// The input that came with the start; it is used when no deltas follow.
    Call {
        input: Option<String>,
    },
    Search {
        id: String,
        input: String,
    },
    Ignored,
}

#[derive(Debug)]
struct Quote {
    url: String,
    title: String,
    cited_text: Option<String>,
}

impl ReadAnswer for Answer {
    const MALFORMED: &'static str = "The provider's answer could not be read.";

    fn begin(streamed: bool) -> Self {
        Self::new(streamed, SUMMARIES.get())
    }

    fn events(&mut self) -> &mut Events {
        &mut self.events
    }

    fn frame(&mut self, name: &str, data: &str) -> Result<(), Malformed> {
        if self.streamed { self.event(name, data) } else { self.body(data) }
    }
}

impl Answer {
    pub fn new(streamed: bool, summaries: bool) -> Self {
        Answer { streamed, summaries, ..Answer::default() }
    }

    fn event(&mut self, name: &str, data: &str) -> Result<(), Malformed> {
        if data.is_empty() || data == "[DONE]" {
            return Ok(());
        }
        let event: StreamEvent<'_> = json::from_str(data)?;
        let kind = if event.kind.is_empty() { name } else { &event.kind };
        match kind {
            "content_block_delta" => {
                if let Some(delta) = event.delta {
                    self.change(event.index, delta);
                }
            }
            "content_block_start" => {
                if let Some(block) = event.content_block {
                    self.start(event.index, block);
                }
            }
            "content_block_stop" => self.stop(event.index),
            "message_start" => {
                if let Some(usage) = event.message.and_then(|message| message.usage) {
                    // Reported at once, because an answer that is cut off later has still cost its input.
                    self.counts.update(&usage);
                    self.events.push(Event::Usage(self.counts.total()));
                }
            }
            "message_delta" => {
                let delta = event.delta.map(|delta| (delta.stop_reason, delta.stop_details));
                let (reason, details) = delta.unwrap_or_default();
                self.outcome(reason, details, event.usage.as_ref());
            }
            "message_stop" => self.end(),
            "error" => {
                self.events.fail(error::from_event(&event.error.unwrap_or_default()));
            }
            // `ping`, and events of later API versions.
            _ => {}
        }
        Ok(())
    }

    fn body(&mut self, body: &str) -> Result<(), Malformed> {
        let message: Message<'_> = json::from_str(body)?;
        if message.kind.as_ref().is_some_and(|kind| kind.0 == "error") {
            self.events.fail(error::from_event(&message.error.unwrap_or_default()));
            return Ok(());
        }
        for (index, block) in (0_u32..).zip(message.content.ok_or(Malformed)?) {
            self.start(index, block);
            self.stop(index);
        }
        self.outcome(message.stop_reason, message.stop_details, message.usage.as_ref());
        self.end();
        Ok(())
    }

    fn start(&mut self, index: u32, block: Block<'_>) {
        self.end_call();
        let open = match &*block.kind {
            "text" => {
                let start = self.message_chars;
                self.write(block.text);
                let citations = block.citations.unwrap_or_default().into_iter().filter_map(quote).collect();
                Open::Text { start, citations }
            }
            "thinking" => {
                let text = block.thinking.map(Text::into_string).unwrap_or_default();
                self.think(&text);
                Open::Thinking { text, signature: block.signature.map(Text::into_string).unwrap_or_default() }
            }
            "redacted_thinking" => {
                self.message_chars = 0;
                let data = block.data.map(Text::into_string).unwrap_or_default();
                self.events.push(Event::ReasoningSeal(replay::seal_redacted(&data)));
                Open::Ignored
            }
            "tool_use" => self.start_call(index, block),
            "server_tool_use" if block.name.as_ref().is_some_and(|name| name.0 == "web_search") => {
                let input = block.input.map(|input| input.get().to_owned()).unwrap_or_default();
                Open::Search { id: block.id.map(Text::into_string).unwrap_or_default(), input }
            }
            "web_search_tool_result" => {
                self.searched(&block);
                Open::Ignored
            }
            // The results of other provider tools are not useful to a client.
            _ => Open::Ignored,
        };
        self.open.push((index, open));
    }

    fn start_call(&mut self, key: u32, block: Block<'_>) -> Open {
        self.message_chars = 0;
        self.has_calls = true;
        let call_id = block.id.map(Text::into_string).filter(|id| !id.is_empty());
        self.events.push(Event::FunctionCallStart(CallStart {
            key,
            call_id: call_id.unwrap_or_else(|| format!("toolu_{key}")),
            name: block.name.map(Text::into_string).unwrap_or_default(),
            namespace: None,
        }));
        let input = block.input.map_or("{}", RawValue::get);
        Open::Call { input: Some(if input == "null" { "{}" } else { input }.to_owned()) }
    }

    fn change(&mut self, index: u32, delta: Delta<'_>) {
        let open = self.open.iter_mut().find(|(at, _)| *at == index).map(|(_, open)| open);
        let kind = delta.kind.unwrap_or_default();
        match (&*kind.0, open) {
            ("text_delta", _) => self.write(delta.text),
            ("thinking_delta", Some(Open::Thinking { text, .. })) => {
                let Some(Text(thought)) = delta.thinking else { return };
                text.push_str(&thought);
                self.think(&thought);
            }
            ("signature_delta", Some(Open::Thinking { signature, .. })) => {
                signature.push_str(delta.signature.as_ref().map_or("", |part| &part.0));
            }
            ("input_json_delta", Some(Open::Call { input })) => {
                let text = delta.partial_json.map(Text::into_string).unwrap_or_default();
                if !text.is_empty() {
                    *input = None;
                    self.events.push(Event::FunctionArgumentsDelta(CallDelta { key: index, text }));
                }
            }
            ("input_json_delta", Some(Open::Search { input, .. })) => {
                if input == "{}" {
                    input.clear();
                }
                input.push_str(delta.partial_json.as_ref().map_or("", |part| &part.0));
            }
            ("citations_delta", Some(Open::Text { citations, .. })) => {
                citations.extend(delta.citation.and_then(quote));
            }
            _ => {}
        }
    }

    fn stop(&mut self, index: u32) {
        let Some(position) = self.open.iter().position(|(at, _)| *at == index) else { return };
        match self.open.swap_remove(position).1 {
            Open::Text { start, citations } => {
                let end = self.message_chars;
                self.events.extend(citations.into_iter().map(|quote| annotation(quote, start, end)));
            }
            Open::Thinking { text, signature } => {
                self.events.extend(replay::seal_thinking(&text, &signature).map(Event::ReasoningSeal));
            }
            Open::Call { input } => self.last_call = Some((index, input)),
            Open::Search { id, input } => {
                let query = json::from_str(&input).map(|search: Search| search.query);
                self.searches.push((id, query.unwrap_or_default()));
            }
            Open::Ignored => {}
        }
    }

    /// Ends the call whose block has ended. That is done only when something follows it, because the
    /// block of a call that was cut off by a limit ends like any other.
    fn end_call(&mut self) {
        let Some((key, input)) = self.last_call.take() else { return };
        // Without deltas the input from the start is the whole input.
        self.events.extend(input.map(|text| Event::FunctionArgumentsDelta(CallDelta { key, text })));
        self.events.push(Event::CallEnd(key));
    }

    fn write(&mut self, text: Option<Text<'_>>) {
        let Some(text) = text.filter(|text| !text.0.is_empty()) else { return };
        self.has_text = true;
        self.message_chars = self.message_chars.saturating_add(text.0.chars().count());
        self.events.push(Event::TextDelta(TextDelta { text: text.into_string(), logprobs: Vec::new() }));
    }

    fn think(&mut self, thought: &str) {
        if thought.is_empty() {
            return;
        }
        self.message_chars = 0;
        let text = thought.to_owned();
        self.events.push(if self.summaries {
            Event::ReasoningSummaryDelta(SummaryDelta { part: 0, text })
        } else {
            Event::ReasoningTextDelta(text)
        });
    }

    /// A search that the provider made becomes a `web_search_call` item.
    fn searched(&mut self, block: &Block<'_>) {
        self.message_chars = 0;
        let id = block.tool_use_id.as_ref().map_or("", |id| &id.0);
        let query = self.searches.iter().find(|(of, _)| of == id).map_or("", |(_, query)| query);
        let found: Option<Vec<Found>> = block.content.and_then(|content| json::from_str(content.get()).ok());
        let status = if found.is_some() { "completed" } else { "failed" };
        let sources = found.unwrap_or_default().into_iter().filter_map(|found| found.url);
        let sources: Vec<_> = sources.map(|url| json!({ "type": "url", "url": url })).collect();
        let action = json!({ "type": "search", "query": query, "sources": sources });
        let item = json!({ "type": "web_search_call", "status": status, "action": action });
        self.events.push(Event::OpaqueItem(item.to_string().into_bytes()));
    }

    fn outcome(
        &mut self,
        reason: Option<Text<'_>>,
        details: Option<StopDetails<'_>>,
        usage: Option<&Usage<'_>>,
    ) {
        if let Some(reason) = reason {
            self.stop_reason = Some(reason.into_string());
        }
        if let Some(explanation) = details.and_then(|details| details.explanation) {
            self.explanation = Some(explanation.into_string());
        }
        if let Some(usage) = usage {
            self.counts.update(usage);
        }
    }

    fn end(&mut self) {
        let reason = self.finish_reason();
        if !matches!(reason, FinishReason::Length | FinishReason::ContentFilter) {
            self.end_call();
        }
        if matches!(reason, FinishReason::ContentFilter) && !self.has_text {
            let explanation = self.explanation.take().filter(|text| !text.is_empty());
            self.events.push(Event::RefusalDelta(explanation.unwrap_or_else(|| REFUSAL.to_owned())));
        }
        self.events.push(Event::Usage(self.counts.total()));
        self.events.end(Event::Finish(Finish { reason, service_tier: self.counts.service_tier() }));
    }

    fn finish_reason(&mut self) -> FinishReason {
        match self.stop_reason.take().as_deref() {
            // `pause_turn`: the provider stopped between its own tools, so the answer is not whole.
            Some("max_tokens" | "model_context_window_exceeded" | "pause_turn") => FinishReason::Length,
            Some("refusal") => FinishReason::ContentFilter,
            Some("tool_use") => FinishReason::ToolCalls,
            None | Some("end_turn" | "stop_sequence") if self.has_calls => FinishReason::ToolCalls,
            None | Some("end_turn" | "stop_sequence") => FinishReason::Stop,
            Some(other) => FinishReason::Other(other.to_owned()),
        }
    }
}

/// The input of a search.
#[derive(Deserialize)]
struct Search {
    query: String,
}

/// One result of a search.
#[derive(Deserialize)]
struct Found {
    url: Option<String>,
}

/// Reads a citation of a web page. Other citations refer to documents of the request by index, for
/// which the Responses API has no annotation.
fn quote(citation: Citation<'_>) -> Option<Quote> {
    let url = citation.url.or(citation.source).filter(|url| url.0.starts_with("http"))?;
    Some(Quote {
        url: url.into_string(),
        title: citation.title.map(Text::into_string).unwrap_or_default(),
        cited_text: citation.cited_text.map(Text::into_string),
    })
}

fn annotation(quote: Quote, start: usize, end: usize) -> Event {
    let mut annotation = json!({
        "type": "url_citation", "url": quote.url, "title": quote.title, "start_index": start, "end_index": end,
    });
    if let (Some(text), Some(fields)) = (quote.cited_text, annotation.as_object_mut()) {
        fields.insert("content".to_owned(), text.into());
    }
    Event::Annotation(annotation.to_string().into_bytes())
}

#[cfg(test)]
mod tests;
