//! The body of an answer with embeddings.

use crate::cost::{Amount, Cost};
use crate::request::EncodingFormat;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use cofferdam_runtime::wire::Embeddings;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

#[derive(Serialize)]
struct EmbeddingsDocument<'a> {
    object: &'static str,
    id: &'a str,
    model: &'a str,
    data: Vec<Entity<'a>>,
    usage: BodyUsage,
    /// Routing metadata under the name that the client asked for.
    #[serde(flatten)]
    metadata: BTreeMap<&'static str, Value>,
}

#[derive(Serialize)]
struct Entity<'a> {
    object: &'static str,
    index: usize,
    embedding: Embedding<'a>,
}

/// A vector as the guest returned it, and how it is written.
struct Embedding<'a>(&'a [u8], EncodingFormat);

impl Serialize for Embedding<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.1 {
            EncodingFormat::Base64 => serializer.serialize_str(&STANDARD.encode(self.0)),
            EncodingFormat::Float => serializer.collect_seq(floats(self.0)),
        }
    }
}

/// The approximate maximum length of one number of a vector in JSON, with its comma, in bytes.
const FLOAT_BYTES: usize = 14;
/// The approximate length of a body without vectors, in bytes.
const FRAME_BYTES: usize = 1024;

#[derive(Serialize)]
struct BodyUsage {
    prompt_tokens: u64,
    total_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_tokens_details: Option<Box<RawValue>>,
    cost: Amount,
    cost_details: CostDetails,
    is_byok: bool,
}

/// The members have OpenRouter's names, and its SDKs require the last two.
#[derive(Serialize)]
struct CostDetails {
    upstream_inference_cost: Option<Amount>,
    upstream_inference_prompt_cost: Amount,
    /// Always 0: vectors are not charged by length.
    upstream_inference_completions_cost: Amount,
}

/// The parts of an answer.
pub(super) struct EmbeddingsAnswer {
    pub(super) id: String,
    /// The model that made the vectors.
    pub(super) model: String,
    pub(super) vectors: Embeddings,
    pub(super) cost: Cost,
    pub(super) is_byok: bool,
    /// Routing metadata under the name that the client asked for.
    pub(super) metadata: Option<(&'static str, Value)>,
}

impl EmbeddingsAnswer {
    /// The JSON body.
    pub(super) fn body(self, format: EncodingFormat) -> Result<Bytes, serde_json::Error> {
        let Self { id, model, vectors: embeddings, cost, is_byok, metadata } = self;
        let (id, model) = (id.as_str(), model.as_str());
        let length = written_bytes(&embeddings, format);
        let data = embeddings
            .vectors
            .iter()
            .enumerate()
            .map(|(index, vector)| Entity {
                object: "embedding",
                index,
                embedding: Embedding(vector, format),
            })
            .collect();
        let details = String::from_utf8(embeddings.prompt_tokens_details).unwrap_or_default();
        let usage = BodyUsage {
            prompt_tokens: embeddings.prompt_tokens,
            total_tokens: embeddings.total_tokens,
            prompt_tokens_details: RawValue::from_string(details).ok(),
            cost: cost.paid.here,
            cost_details: CostDetails {
                upstream_inference_cost: cost.upstream,
                upstream_inference_prompt_cost: cost.input,
                upstream_inference_completions_cost: Amount(0),
            },
            is_byok,
        };
        let metadata = metadata.into_iter().collect();
        let body = EmbeddingsDocument { object: "list", id, model, data, usage, metadata };
        // Grown in steps, a body of many floats would be copied several times.
        let mut json = Vec::with_capacity(FRAME_BYTES + length);
        serde_json::to_writer(&mut json, &body)?;
        Ok(Bytes::from(json))
    }
}

/// About as many bytes have these vectors as JSON.
pub(super) fn written_bytes(embeddings: &Embeddings, format: EncodingFormat) -> usize {
    let length: usize = embeddings.vectors.iter().map(Vec::len).sum();
    match format {
        EncodingFormat::Base64 => length.div_ceil(3) * 4,
        EncodingFormat::Float => length / size_of::<f32>() * FLOAT_BYTES,
    }
}

/// Decodes a vector: guests return 32-bit floats in little-endian order.
pub(super) fn floats(vector: &[u8]) -> impl Iterator<Item = f32> {
    let (numbers, _) = vector.as_chunks::<4>();
    numbers.iter().map(|bytes| f32::from_le_bytes(*bytes))
}
