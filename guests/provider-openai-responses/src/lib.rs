//! A provider for OpenAI's Responses API. The service offers the same API to its clients, so
//! requests are reduced and not rebuilt. Two things need care: a history may hold items of other
//! providers, and no part of an answer may be passed on twice.

mod answer;
mod input;
mod members;
mod request;
mod seal;
#[cfg(test)]
mod tests;
mod wire;

use cofferdam_dialect_openai::{decode_embeddings, map_error, prepare_embeddings};
use cofferdam_guest_kit::Decoder;
use cofferdam_guest_kit::bindings::dialect::{self, ResponseHead, Target};
use cofferdam_guest_kit::bindings::embedding::{self, EmbeddingFailure, Embeddings, PreparedEmbeddings};
use cofferdam_guest_kit::bindings::generation::{self, Prepared};
use cofferdam_guest_kit::bindings::types::{CallContext, Failure, Json};

use crate::answer::Answer;

struct Provider;

cofferdam_guest_kit::export!(provider: Provider);

impl dialect::Guest for Provider {
    fn map_error(head: ResponseHead, body: Vec<u8>) -> Failure {
        map_error(head.status, &head.headers, &body)
    }
}

impl generation::Guest for Provider {
    type Decoder = Decoder<Answer>;

    fn prepare(request: Json, target: Target, _context: CallContext) -> Result<Prepared, Failure> {
        Ok(Prepared::Upstream(request::prepare(&request, &target)?))
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

    /// Decodes without the expected number of vectors: the manifest says `stateless`, so this may not
    /// be the instance that ran `prepare`. The host checks the number.
    fn decode(_head: ResponseHead, body: Vec<u8>) -> Result<Embeddings, Failure> {
        decode_embeddings(&body)
    }
}

#[cfg(any(test, fuzzing))]
#[path = "../../../tests/fuzz/decoder.rs"]
pub mod fuzzing;
