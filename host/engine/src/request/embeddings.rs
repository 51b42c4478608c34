//! The body of POST /v1/embeddings.

use super::{Ability, InvalidRequest, ProviderPreferences};
use bytes::Bytes;

/// How the client wants vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EncodingFormat {
    /// Arrays of numbers.
    #[default]
    Float,
    /// Base64 of little-endian 32-bit floats.
    Base64,
}

/// A checked embeddings request.
#[derive(Debug, Clone)]
pub struct EmbeddingsRequest {
    /// `model` as the client wrote it.
    pub model: String,
    /// How many vectors the answer holds, 1 to 2048.
    pub input_count: usize,
    /// The length of the vectors, at least 1.
    pub dimensions: Option<u32>,
    /// How the client wants vectors.
    pub encoding_format: EncodingFormat,
    /// `search_query`, `search_document` and the like.
    pub input_type: Option<String>,
    /// Routing preferences.
    pub provider: ProviderPreferences,
    /// The session, at most 256 characters; for grouping only.
    pub session_id: Option<String>,
    /// The end user.
    pub user: Option<String>,
    /// `trace` as JSON.
    pub trace: Option<Bytes>,
    /// What an endpoint must be able to do.
    pub needs: Vec<Ability>,
    /// Names of the parameters the client set, for `require_parameters`.
    pub parameters: Vec<&'static str>,
    /// A rough count of input tokens: a quarter of the characters, or the tokens given.
    pub input_tokens: u32,
    /// What provider guests receive, written once.
    pub guest_json: Bytes,
}

impl EmbeddingsRequest {
    /// Parses and checks a body.
    ///
    /// # Errors
    /// The first thing wrong with it, by path.
    pub fn parse(body: &[u8]) -> Result<Self, InvalidRequest> {
        let _ = body;
        Err(InvalidRequest::new("", "cannot be read yet"))
    }
}
