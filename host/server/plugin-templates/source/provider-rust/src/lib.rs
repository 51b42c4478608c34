//! The provider `{{name}}`: speaks to a server that completes one text.
//!
//! It sends `{"model": ..., "prompt": ...}` to `complete` and reads `{"text": ..., "input_tokens": 1,
//! "output_tokens": 1}`.

wit_bindgen::generate!({ path: "wit", world: "plugin", generate_all });

use std::cell::RefCell;

use cofferdam::plugin::types::{CallContext, ErrorKind, Failure, Json, Usage};
use exports::cofferdam::plugin::dialect::{self, ResponseHead, Target, UpstreamRequest};
use exports::cofferdam::plugin::generation::{self, Event, Finish, FinishReason, Frame, Prepared, TextDelta};
use serde_json::{Value, json};

struct Provider;
export!(Provider);

impl dialect::Guest for Provider {
    /// What an answer with a status of 400 or more means.
    fn map_error(head: ResponseHead, _body: Vec<u8>) -> Failure {
        let kind = match head.status {
            401 | 403 => ErrorKind::Authentication,
            404 => ErrorKind::NotFound,
            429 => ErrorKind::RateLimitExceeded,
            400..=499 => ErrorKind::InvalidRequest,
            _ => ErrorKind::ProviderUnavailable,
        };
        failure(kind, "the server refused the request")
    }
}

impl generation::Guest for Provider {
    type Decoder = Decoder;

    /// The request for the server. The host adds origin and credential.
    fn prepare(request: Json, target: Target, _context: CallContext) -> Result<Prepared, Failure> {
        let request: Value = serde_json::from_slice(&request)
            .map_err(|_| failure(ErrorKind::InvalidRequest, "the request is not JSON"))?;
        let mut prompt = String::new();
        collect_texts(&request["input"], &mut prompt);
        let body = json!({ "model": target.model, "prompt": prompt });
        Ok(Prepared::Upstream(UpstreamRequest {
            path: "complete".to_owned(),
            headers: Vec::new(),
            body: body.to_string().into_bytes(),
            streamed: false,
        }))
    }
}

/// Reads one answer. It comes as one frame, because `prepare` asked for one body.
struct Decoder {
    body: RefCell<Vec<u8>>,
}

impl generation::GuestDecoder for Decoder {
    fn new(_head: ResponseHead) -> Self {
        Self { body: RefCell::default() }
    }

    fn feed(&self, frames: Vec<Frame>) -> Result<Vec<Event>, Failure> {
        for frame in frames {
            self.body.borrow_mut().extend(frame.data);
        }
        Ok(Vec::new())
    }

    fn finish(&self) -> Result<Vec<Event>, Failure> {
        let unreadable = || failure(ErrorKind::ProviderUnavailable, "the server's answer cannot be read");
        let answer: Value = serde_json::from_slice(&self.body.borrow()).map_err(|_| unreadable())?;
        let text = answer["text"].as_str().ok_or_else(unreadable)?.to_owned();
        let count = |name: &str| answer[name].as_u64().unwrap_or_default();
        Ok(vec![
            Event::TextDelta(TextDelta { text, logprobs: Vec::new() }),
            Event::Usage(Usage {
                input_tokens: count("input_tokens"),
                cached_tokens: 0,
                cache_write_tokens: 0,
                output_tokens: count("output_tokens"),
                reasoning_tokens: 0,
                images: 0,
                provider_tool_requests: 0,
                cost_dollars: None,
            }),
            Event::Finish(Finish { reason: FinishReason::Stop, service_tier: None }),
        ])
    }
}

/// Appends every `text` within `value`, one per line.
fn collect_texts(value: &Value, prompt: &mut String) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| collect_texts(value, prompt)),
        Value::Object(members) => {
            if let Some(text) = members.get("text").and_then(Value::as_str) {
                prompt.push_str(text);
                prompt.push('\n');
            }
            if let Some(content) = members.get("content") {
                collect_texts(content, prompt);
            }
        }
        _ => {}
    }
}

fn failure(kind: ErrorKind, message: &str) -> Failure {
    Failure { kind, message: message.to_owned(), code: None, retry_after_ms: None }
}
