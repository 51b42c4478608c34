//! A local provider without a network: `demo`, a small rule-based model that says that it is not
//! an AI, and `embed`, which makes vectors of hashed words and letters.
//!
//! With it a fresh installation answers at once and clients can be tried offline. It is also the
//! worked example of a provider. It is deterministic: apart from ids, the same request gives the
//! same answer.

mod calls;
mod compose;
mod conversation;
mod embed;
mod fill;
mod hints;
mod schema;
mod words;
mod writer;

#[cfg(test)]
mod tests;

use cofferdam_guest_kit::bindings::dialect::{Guest as Dialect, ResponseHead, Target};
use cofferdam_guest_kit::bindings::embedding::{
    EmbeddingFailure, Embeddings, Guest as Embedding, PreparedEmbeddings,
};
use cofferdam_guest_kit::bindings::generation::{Event, Frame, Guest as Generation, GuestDecoder, Prepared};
use cofferdam_guest_kit::bindings::types::{CallContext, ErrorKind, Failure, Json};
use cofferdam_guest_kit::{EmbeddingRequest, Request};

struct Demo;

cofferdam_guest_kit::export!(provider: Demo);

impl Dialect for Demo {
    fn map_error(_: ResponseHead, _: Vec<u8>) -> Failure {
        no_upstream()
    }
}

impl Generation for Demo {
    type Decoder = NoDecoder;

    fn prepare(request: Json, target: Target, context: CallContext) -> Result<Prepared, Failure> {
        let request = Request::parse(&request).map_err(|_| malformed())?;
        Ok(Prepared::Answer(compose::answer(&request, &target.tier, &context.request_id)))
    }
}

impl Embedding for Demo {
    fn prepare(request: Json, _: Target, _: CallContext) -> Result<PreparedEmbeddings, EmbeddingFailure> {
        let request = EmbeddingRequest::parse(&request).map_err(|_| EmbeddingFailure::Failed(malformed()))?;
        embed::answer(&request).map(PreparedEmbeddings::Answer)
    }

    fn decode(_: ResponseHead, _: Vec<u8>) -> Result<Embeddings, Failure> {
        Err(no_upstream())
    }
}

/// Never used: every answer is complete when it is prepared.
struct NoDecoder;

impl GuestDecoder for NoDecoder {
    fn new(_: ResponseHead) -> Self {
        Self
    }

    fn feed(&self, _: Vec<Frame>) -> Result<Vec<Event>, Failure> {
        Err(no_upstream())
    }

    fn finish(&self) -> Result<Vec<Event>, Failure> {
        Err(no_upstream())
    }
}

fn no_upstream() -> Failure {
    Failure::new(ErrorKind::Server, "the demonstration provider has no upstream")
}

fn malformed() -> Failure {
    Failure::new(ErrorKind::InvalidRequest, "the request is not what this provider expects")
}
