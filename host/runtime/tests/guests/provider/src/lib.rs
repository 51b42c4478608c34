//! A provider. The target's model or the name of a frame selects what it does.

mod bindings {
    wit_bindgen::generate!({ path: "../../../../../wit", world: "provider" });
    use super::Guest;
    export!(Guest);
}

use std::cell::Cell;

use bindings::cofferdam::plugin::log;
use bindings::cofferdam::plugin::types::{CallContext, ErrorKind, Failure, Usage};
use bindings::exports::cofferdam::plugin::{dialect, embedding, generation};
use dialect::{ResponseHead, Target, UpstreamRequest};
use embedding::{EmbeddingFailure, Embeddings, PreparedEmbeddings};
use generation::{Event, Finish, FinishReason, Frame, Prepared, TextDelta};

struct Guest;

struct Decoder {
    fed: Cell<u32>,
}

fn write(line: &str) {
    log::write(log::Level::Info, line);
}

fn failure(message: &str) -> Failure {
    Failure { kind: ErrorKind::InvalidRequest, message: message.into(), code: None, retry_after_ms: None }
}

fn text(text: String) -> Event {
    Event::TextDelta(TextDelta { text, logprobs: vec![] })
}

fn usage() -> Event {
    Event::Usage(Usage {
        input_tokens: 3,
        cached_tokens: 0,
        cache_write_tokens: 0,
        output_tokens: 5,
        reasoning_tokens: 0,
        images: 0,
        provider_tool_requests: 0,
        cost_dollars: None,
    })
}

fn finish() -> Event {
    Event::Finish(Finish { reason: FinishReason::Stop, service_tier: None })
}

impl dialect::Guest for Guest {
    fn map_error(head: ResponseHead, body: Vec<u8>) -> Failure {
        deeds::commit(std::str::from_utf8(&body).unwrap_or_default(), write);
        Failure {
            kind: ErrorKind::ProviderUnavailable,
            message: format!("status {}, {} bytes", head.status, body.len()),
            code: Some("upstream".into()),
            retry_after_ms: Some(1500),
        }
    }
}

impl generation::Guest for Guest {
    type Decoder = Decoder;

    fn prepare(request: Vec<u8>, target: Target, context: CallContext) -> Result<Prepared, Failure> {
        deeds::commit(&target.model, write);
        let upstream = |name: &str, body| {
            let headers = vec![(name.to_owned(), context.workspace.clone())];
            Prepared::Upstream(UpstreamRequest { path: "responses".into(), headers, body, streamed: true })
        };
        Ok(match target.model.as_str() {
            "fail" => return Err(failure("as told")),
            "answer" => Prepared::Answer(vec![text("hello".into()), usage(), finish()]),
            "bad header" => upstream("X-Upper", request),
            "output flood" => upstream("x-workspace", vec![0; 40 << 20]),
            _ => upstream("x-workspace", request),
        })
    }
}

impl generation::GuestDecoder for Decoder {
    fn new(head: ResponseHead) -> Self {
        let deed = head.headers.first().map(|(_, value)| value.clone()).unwrap_or_default();
        deeds::commit(&deed, write);
        Self { fed: Cell::new(0) }
    }

    fn feed(&self, frames: Vec<Frame>) -> Result<Vec<Event>, Failure> {
        let mut events = Vec::new();
        for frame in frames {
            self.fed.set(self.fed.get() + 1);
            deeds::commit(&frame.name, write);
            match frame.name.as_str() {
                "fail" => return Err(failure("as told")),
                "event flood" => events.extend((0..5_000).map(Event::CallEnd)),
                "byte flood" => events.extend((0..64).map(|_| text("x".repeat(1 << 20)))),
                "bad item" => events.push(Event::OpaqueItem(b"[1]".to_vec())),
                _ => events.push(text(String::from_utf8_lossy(&frame.data).into_owned())),
            }
        }
        Ok(events)
    }

    fn finish(&self) -> Result<Vec<Event>, Failure> {
        Ok(vec![text(format!("frames={}", self.fed.get())), usage(), finish()])
    }
}

impl embedding::Guest for Guest {
    fn prepare(
        request: Vec<u8>,
        target: Target,
        _context: CallContext,
    ) -> Result<PreparedEmbeddings, EmbeddingFailure> {
        deeds::commit(&target.model, write);
        match target.model.as_str() {
            "unsupported" => Err(EmbeddingFailure::UnsupportedInput(1)),
            "local" => Ok(PreparedEmbeddings::Answer(vectors(vec![1.0f32.to_le_bytes().to_vec()]))),
            _ => Ok(PreparedEmbeddings::Upstream(UpstreamRequest {
                path: "embeddings".into(),
                headers: vec![],
                body: request,
                streamed: false,
            })),
        }
    }

    fn decode(_head: ResponseHead, body: Vec<u8>) -> Result<Embeddings, Failure> {
        deeds::commit(std::str::from_utf8(&body).unwrap_or_default(), write);
        match body.as_slice() {
            b"ragged" => Ok(vectors(vec![vec![0; 8], vec![0; 4]])),
            _ => Ok(vectors(vec![vec![0; 8], vec![0; 8]])),
        }
    }
}

fn vectors(vectors: Vec<Vec<u8>>) -> Embeddings {
    Embeddings {
        vectors,
        prompt_tokens: 1,
        total_tokens: 1,
        cost_dollars: None,
        prompt_tokens_details: vec![],
    }
}
