//! A provider for Chat Completions, the dialect that nearly every model server speaks, each with
//! differences. Requests are rebuilt and carry only what the client set, so that strict and old
//! servers accept them. Answers are read leniently.

mod calls;
mod convert;
mod messages;
mod reply;
mod request;
mod stream;
#[cfg(test)]
mod tests;
mod thought;
mod tools;

#[allow(unsafe_code, clippy::all, reason = "generated")]
mod bindings {
    wit_bindgen::generate!({ path: "../../wit", world: "provider", additional_derives: [PartialEq] });
    use super::Provider;
    export!(Provider);
}

use std::cell::{Cell, RefCell};

use bindings::cofferdam::plugin::types::{CallContext, Failure, Json};
use bindings::exports::cofferdam::plugin::dialect::{self, ResponseHead, Target};
use bindings::exports::cofferdam::plugin::embedding::{
    self, EmbeddingFailure, Embeddings, PreparedEmbeddings,
};
use bindings::exports::cofferdam::plugin::generation::{self, Event, Frame, Prepared};

use crate::stream::Decoder;

thread_local! {
    /// How many vectors the answer to the current request must have. The host calls `decode` in
    /// the instance that ran `prepare`.
    static EXPECTED_VECTORS: Cell<usize> = const { Cell::new(0) };
    /// The id of the current request, for calls that arrive without an id, and the provider's
    /// name of the model, for the seals of its reasoning.
    static PREPARED: RefCell<(String, String)> = const { RefCell::new((String::new(), String::new())) };
}

struct Provider;

impl dialect::Guest for Provider {
    fn map_error(head: ResponseHead, body: Vec<u8>) -> Failure {
        cofferdam_dialect_openai::map_error(head.status, &head.headers, &body).into()
    }
}

impl generation::Guest for Provider {
    type Decoder = DecoderResource;

    fn prepare(request: Json, target: Target, context: CallContext) -> Result<Prepared, Failure> {
        let upstream = request::prepare(&request, &target)?;
        PREPARED.set((context.request_id, target.model));
        Ok(Prepared::Upstream(upstream))
    }
}

struct DecoderResource(RefCell<Decoder>);

impl generation::GuestDecoder for DecoderResource {
    fn new(head: ResponseHead) -> Self {
        Self(RefCell::new(PREPARED.with_borrow(|(id, model)| Decoder::new(head.streamed, id, model))))
    }

    fn feed(&self, frames: Vec<Frame>) -> Result<Vec<Event>, Failure> {
        Ok(self.0.borrow_mut().feed(&frames))
    }

    fn finish(&self) -> Result<Vec<Event>, Failure> {
        Ok(self.0.borrow_mut().finish())
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
        EXPECTED_VECTORS.set(prepared.count);
        Ok(PreparedEmbeddings::Upstream(convert::post("embeddings", prepared.body, false)))
    }

    fn decode(_head: ResponseHead, body: Vec<u8>) -> Result<Embeddings, Failure> {
        Ok(cofferdam_dialect_openai::decode_embeddings(&body, Some(EXPECTED_VECTORS.get()))?.into())
    }
}
