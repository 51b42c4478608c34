//! Usage rows: one per request, counts and names only, never content.

pub(crate) mod block;

use serde::{Deserialize, Serialize};

use crate::ids::WorkspaceId;
use crate::token::KeyId;

/// Which kind of request was made.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum UsageKind {
    /// A response.
    Responses,
    /// An embedding.
    Embeddings,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum UsageOutcome {
    /// In full.
    Completed,
    /// Cut by a limit the client knows of.
    Incomplete,
    /// With an error.
    Failed,
    /// The client went away.
    Cancelled,
}

/// What one request used. The caller writes exactly one per request id.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub struct UsageRow {
    /// The id the client saw.
    pub request_id: String,
    /// When the request ended, Unix milliseconds.
    pub at_ms: u64,
    /// Whose budget it was.
    pub workspace: WorkspaceId,
    /// Which key made it.
    pub key: KeyId,
    /// What was asked for.
    pub kind: UsageKind,
    /// The catalog's id of the model that answered.
    pub model: String,
    /// The configured name of the provider that answered.
    pub provider: String,
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens read that the provider had in its cache.
    pub cached_tokens: u64,
    /// Tokens written, reasoning included.
    pub output_tokens: u64,
    /// Tokens written while reasoning.
    pub reasoning_tokens: u64,
    /// Cost in pico-dollars (10⁻¹² dollar).
    pub cost_pico: u64,
    /// How it ended.
    pub outcome: UsageOutcome,
    /// Whether the answer was streamed.
    pub streamed: bool,
}
