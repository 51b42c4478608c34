//! A provider for OpenAI's Responses API. The service offers the same API to its clients, so
//! requests are reduced and not rebuilt. Two things need care: a history may hold items of other
//! providers, and no part of an answer may be passed on twice.

mod convert;
mod input;
mod reply;
mod request;
mod seal;
mod stream;
#[cfg(test)]
mod tests;

#[allow(unsafe_code, clippy::all, reason = "generated")]
mod bindings {
    wit_bindgen::generate!({ path: "../../wit", world: "provider", additional_derives: [PartialEq] });
    use super::Provider;
    export!(Provider);
}

use std::cell::RefCell;

use bindings::cofferdam::plugin::types::{CallContext, Failure, Json};
use bindings::exports::cofferdam::plugin::dialect::{self, ResponseHead, Target};
use bindings::exports::cofferdam::plugin::embedding::{
    self, EmbeddingFailure, Embeddings, PreparedEmbeddings,
};
use bindings::exports::cofferdam::plugin::generation::{self, Event, Frame, Prepared};

use crate::stream::Decoder;

struct Provider;

impl dialect::Guest for Provider {
    fn map_error(head: ResponseHead, body: Vec<u8>) -> Failure {
        cofferdam_dialect_openai::map_error(head.status, &head.headers, &body).into()
    }
}

impl generation::Guest for Provider {
    type Decoder = DecoderResource;

    fn prepare(request: Json, target: Target, _context: CallContext) -> Result<Prepared, Failure> {
        Ok(Prepared::Upstream(request::prepare(&request, &target)?))
    }
}

struct DecoderResource(RefCell<Decoder>);

impl generation::GuestDecoder for DecoderResource {
    fn new(head: ResponseHead) -> Self {
        Self(RefCell::new(Decoder::new(head.streamed)))
    }

    fn feed(&self, frames: Vec<Frame>) -> Result<Vec<Event>, Failure> {
        Ok(self.0.borrow_mut().feed(&frames))
    }

    /// The decoder holds no events back: an answer that has not finished here was cut off.
    fn finish(&self) -> Result<Vec<Event>, Failure> {
        Ok(Vec::new())
    }
}

impl embedding::Guest for Provider {
    fn prepare(
        request: Json,
        target: Target,
        _context: CallContext,
    ) -> Result<PreparedEmbeddings, EmbeddingFailure> {
        let Target { model, supports, options, .. } = &target;
        let prepared = cofferdam_dialect_openai::prepare_embeddings(&request, model, supports, options)?;
        Ok(PreparedEmbeddings::Upstream(convert::post("embeddings", prepared.body, false)))
    }

    /// Decodes without the expected number of vectors: the manifest says `stateless`, so this may not
    /// be the instance that ran `prepare`. The host checks the number.
    fn decode(_head: ResponseHead, body: Vec<u8>) -> Result<Embeddings, Failure> {
        Ok(cofferdam_dialect_openai::decode_embeddings(&body, None)?.into())
    }
}
