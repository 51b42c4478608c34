//! The exports of a live guest that were looked up, and the parameters and answers of those that
//! are called without the generated bindings.

use wasmtime::component::TypedFunc;

use crate::bindings::cofferdam::plugin::types::CallContext as GuestContext;
use crate::bindings::exports::cofferdam::plugin::{generation, routing};
use crate::wire::{
    EmbeddingFailure, Embeddings, Failure, Prepared, PreparedEmbeddings, ResponseHead, Target,
};

pub(crate) type Prepare<'a> = (&'a [u8], &'a Target, &'a GuestContext);
pub(crate) type PrepareAnswer = (Result<Prepared, Failure>,);
pub(crate) type EmbeddingsAnswer = (Result<PreparedEmbeddings, EmbeddingFailure>,);
pub(crate) type Decode<'a> = (&'a ResponseHead, &'a [u8]);
pub(crate) type VectorsAnswer = (Result<Embeddings, Failure>,);

/// The exports of one instance that were looked up. Cached because a look-up compares types, which
/// costs as much as a short call.
#[derive(Default)]
pub(crate) struct Exports {
    pub(crate) routing: Option<routing::Guest>,
    pub(crate) generation: Option<generation::Guest>,
    pub(crate) prepare: Option<TypedFunc<Prepare<'static>, PrepareAnswer>>,
    pub(crate) prepare_embeddings: Option<TypedFunc<Prepare<'static>, EmbeddingsAnswer>>,
    pub(crate) decode_embeddings: Option<TypedFunc<Decode<'static>, VectorsAnswer>>,
}
