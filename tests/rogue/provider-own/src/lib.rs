//! A provider guest that answers by itself, recognizably: `OWN:` and the last
//! text of the user, reversed. It has no upstream and honours nothing else.

use bindings::cofferdam::plugin::types::{CallContext, ErrorKind, Failure, Usage};
use bindings::exports::cofferdam::plugin::dialect::{self, ResponseHead, Target};
use bindings::exports::cofferdam::plugin::generation::{
    self, Event, Finish, FinishReason, Frame, Prepared, TextDelta,
};
use serde_json::Value;

#[allow(unsafe_code, clippy::all, unused_qualifications, reason = "generated")]
mod bindings {
    wit_bindgen::generate!({ path: "../../../wit", world: "generation-provider" });
    use super::Own;
    export!(Own);
}

struct Own;

impl dialect::Guest for Own {
    fn map_error(_: ResponseHead, _: Vec<u8>) -> Failure {
        no_upstream()
    }
}

impl generation::Guest for Own {
    type Decoder = Own;

    fn prepare(request: Vec<u8>, _: Target, _: CallContext) -> Result<Prepared, Failure> {
        let text = last_user_text(&request);
        let words = u64::try_from(text.split_whitespace().count()).unwrap_or(u64::MAX);
        let reversed: String = text.chars().rev().collect();
        let usage = Usage {
            input_tokens: words,
            cached_tokens: 0,
            cache_write_tokens: 0,
            output_tokens: words,
            reasoning_tokens: 0,
            images: 0,
            provider_tool_requests: 0,
            cost_dollars: None,
        };
        Ok(Prepared::Answer(vec![
            Event::TextDelta(TextDelta { text: format!("OWN:{reversed}"), logprobs: Vec::new() }),
            Event::Usage(usage),
            Event::Finish(Finish { reason: FinishReason::Stop, service_tier: None }),
        ]))
    }
}

/// Never made: there is no upstream whose answer it could read.
impl generation::GuestDecoder for Own {
    fn new(_: ResponseHead) -> Self {
        Own
    }

    fn feed(&self, _: Vec<Frame>) -> Result<Vec<Event>, Failure> {
        Err(no_upstream())
    }

    fn finish(&self) -> Result<Vec<Event>, Failure> {
        Err(no_upstream())
    }
}

fn no_upstream() -> Failure {
    Failure {
        kind: ErrorKind::Server,
        message: "this provider has no upstream".to_owned(),
        code: None,
        retry_after_ms: None,
    }
}

/// All text of the last message of the user.
fn last_user_text(request: &[u8]) -> String {
    let request: Value = serde_json::from_slice(request).unwrap_or_default();
    let items = request.get("input").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let is_user = |item: &&Value| item.get("role").is_some_and(|role| role == "user");
    let parts =
        items.iter().rev().find(is_user).and_then(|item| item.get("content")).and_then(Value::as_array);
    parts.into_iter().flatten().filter_map(|part| part.get("text").and_then(Value::as_str)).collect()
}

#[cfg(test)]
mod tests {
    use super::last_user_text;

    #[test]
    fn finds_the_last_text_of_the_user() {
        let request = br#"{"input":[
            {"type":"message","role":"user","content":[{"type":"input_text","text":"first"}]},
            {"type":"message","role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_image"},{"text":"b"}]},
            {"type":"message","role":"assistant","content":[{"type":"output_text","text":"c"}]}]}"#;
        assert_eq!(last_user_text(request), "ab");
        assert_eq!(last_user_text(b"{}"), "");
        assert_eq!(last_user_text(b"not json"), "");
    }
}
