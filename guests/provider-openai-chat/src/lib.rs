//! A provider for Chat Completions, the dialect that nearly every model server speaks, each with
//! differences. Requests are rebuilt and carry only what the client set, so that strict and old
//! servers accept them. Answers are read leniently.

mod answer;
mod calls;
mod messages;
mod request;
#[cfg(test)]
mod tests;
mod thought;
mod tools;
mod wire;

use cofferdam_dialect_openai::{decode_embeddings, map_error, prepare_embeddings};
use cofferdam_guest_kit::Decoder;
use cofferdam_guest_kit::bindings::dialect::{self, ResponseHead, Target};
use cofferdam_guest_kit::bindings::embedding::{self, EmbeddingFailure, Embeddings, PreparedEmbeddings};
use cofferdam_guest_kit::bindings::generation::{self, Prepared};
use cofferdam_guest_kit::bindings::types::{CallContext, Failure, Json};

use crate::answer::{Answer, PREPARED};

struct Provider;

cofferdam_guest_kit::export!(provider: Provider);

impl dialect::Guest for Provider {
    fn map_error(head: ResponseHead, body: Vec<u8>) -> Failure {
        map_error(head.status, &head.headers, &body)
    }
}

impl generation::Guest for Provider {
    type Decoder = Decoder<Answer>;

    fn prepare(request: Json, target: Target, context: CallContext) -> Result<Prepared, Failure> {
        let upstream = request::prepare(&request, &target)?;
        PREPARED.set((context.request_id, target.model));
        Ok(Prepared::Upstream(upstream))
    }
}

impl embedding::Guest for Provider {
    fn prepare(
        request: Json,
        target: Target,
        _context: CallContext,
    ) -> Result<PreparedEmbeddings, EmbeddingFailure> {
        let upstream = prepare_embeddings(&request, &target)?;
        Ok(PreparedEmbeddings::Upstream(upstream))
    }

    /// Decodes any number of vectors. The host checks the number after it has read the usage, which the
    /// provider charges for a wrong number, too.
    fn decode(_head: ResponseHead, body: Vec<u8>) -> Result<Embeddings, Failure> {
        decode_embeddings(&body)
    }
}

#[cfg(any(test, fuzzing))]
#[path = "../../../tests/fuzz/decoder.rs"]
pub mod fuzzing;
