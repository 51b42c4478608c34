//! The body of an answer with embeddings.

use crate::cost::{Amount, Cost};
use crate::request::EncodingFormat;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use cofferdam_runtime::wire::Embeddings;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

#[derive(Serialize)]
struct EmbeddingsDocument<'a> {
    object: &'static str,
    id: &'a str,
    model: &'a str,
    data: Vec<Entity>,
    usage: BodyUsage,
    /// Routing metadata under the name that the client asked for.
    #[serde(flatten)]
    metadata: BTreeMap<&'static str, Value>,
}

#[derive(Serialize)]
struct Entity {
    object: &'static str,
    index: usize,
    embedding: Embedding,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Embedding {
    Base64(String),
    Floats(Vec<f32>),
}

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
pub(super) struct EmbeddingsAnswer<'a> {
    pub(super) id: &'a str,
    /// The model that made the vectors.
    pub(super) model: &'a str,
    pub(super) vectors: &'a Embeddings,
    pub(super) cost: Cost,
    pub(super) is_byok: bool,
    /// Routing metadata under the name that the client asked for.
    pub(super) metadata: Option<(&'static str, Value)>,
}

impl EmbeddingsAnswer<'_> {
    /// The JSON body.
    pub(super) fn body(self, format: EncodingFormat) -> Result<Bytes, serde_json::Error> {
        let Self { id, model, vectors: embeddings, cost, is_byok, metadata } = self;
        let embedding = |vector: &Vec<u8>| match format {
            EncodingFormat::Base64 => Embedding::Base64(STANDARD.encode(vector)),
            EncodingFormat::Float => Embedding::Floats(floats(vector).collect()),
        };
        let data = embeddings
            .vectors
            .iter()
            .enumerate()
            .map(|(index, vector)| Entity { object: "embedding", index, embedding: embedding(vector) })
            .collect();
        let details = String::from_utf8(embeddings.prompt_tokens_details.clone()).unwrap_or_default();
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
        serde_json::to_vec(&body).map(Bytes::from)
    }
}

/// Decodes a vector: guests return 32-bit floats in little-endian order.
pub(super) fn floats(vector: &[u8]) -> impl Iterator<Item = f32> {
    let (numbers, _) = vector.as_chunks::<4>();
    numbers.iter().map(|bytes| f32::from_le_bytes(*bytes))
}
