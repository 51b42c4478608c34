//! A provider guest that shows what it gets: it answers with a JSON object of the arguments of `prepare`, and fails for
//! embeddings with such an object as its message.

use bindings::cofferdam::plugin::types::{CallContext, ErrorKind, Failure, Usage};
use bindings::exports::cofferdam::plugin::dialect::{self, ResponseHead, Target};
use bindings::exports::cofferdam::plugin::embedding::{
    self, EmbeddingFailure, Embeddings, PreparedEmbeddings,
};
use bindings::exports::cofferdam::plugin::generation::{
    self, Event, Finish, FinishReason, Frame, Prepared, TextDelta,
};
use serde_json::{Value, json};

#[allow(unsafe_code, clippy::all, unused_qualifications, reason = "generated")]
mod bindings {
    wit_bindgen::generate!({ path: "../../../wit", world: "provider" });
    use super::Mirror;
    export!(Mirror);
}

struct Mirror;

impl dialect::Guest for Mirror {
    fn map_error(_: ResponseHead, _: Vec<u8>) -> Failure {
        failure("this provider has no upstream".to_owned())
    }
}

impl generation::Guest for Mirror {
    type Decoder = Mirror;

    fn prepare(request: Vec<u8>, target: Target, _: CallContext) -> Result<Prepared, Failure> {
        let usage = Usage {
            input_tokens: 1,
            cached_tokens: 0,
            cache_write_tokens: 0,
            output_tokens: 1,
            reasoning_tokens: 0,
            images: 0,
            provider_tool_requests: 0,
            cost_dollars: None,
        };
        Ok(Prepared::Answer(vec![
            Event::TextDelta(TextDelta { text: shown(&request, &target)?, logprobs: Vec::new() }),
            Event::Usage(usage),
            Event::Finish(Finish { reason: FinishReason::Stop, service_tier: None }),
        ]))
    }
}

impl embedding::Guest for Mirror {
    fn prepare(
        request: Vec<u8>,
        target: Target,
        _: CallContext,
    ) -> Result<PreparedEmbeddings, EmbeddingFailure> {
        let shown = shown(&request, &target).map_err(EmbeddingFailure::Failed)?;
        Err(EmbeddingFailure::Failed(failure(shown)))
    }

    fn decode(_: ResponseHead, _: Vec<u8>) -> Result<Embeddings, Failure> {
        Err(failure("this provider has no upstream".to_owned()))
    }
}

/// Never made: there is no upstream whose answer it could read.
impl generation::GuestDecoder for Mirror {
    fn new(_: ResponseHead) -> Self {
        Mirror
    }

    fn feed(&self, _: Vec<Frame>) -> Result<Vec<Event>, Failure> {
        Err(failure("this provider has no upstream".to_owned()))
    }

    fn finish(&self) -> Result<Vec<Event>, Failure> {
        Err(failure("this provider has no upstream".to_owned()))
    }
}

fn shown(request: &[u8], target: &Target) -> Result<String, Failure> {
    let read = |json| serde_json::from_slice::<Value>(json).map_err(|_| failure("not JSON".to_owned()));
    let target = json!({
        "model": target.model,
        "max_output": target.max_output,
        "supports": target.supports,
        "tier": target.tier,
        "options": read(&target.options)?,
    });
    Ok(json!({ "request": read(request)?, "target": target }).to_string())
}

fn failure(message: String) -> Failure {
    Failure { kind: ErrorKind::InvalidRequest, message, code: None, retry_after_ms: None }
}
