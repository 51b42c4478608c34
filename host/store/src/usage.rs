//! Usage rows: one per request, counts and names only, never content.

pub(crate) mod block;
mod totals;

use serde::{Deserialize, Serialize};

use crate::ids::WorkspaceId;
use crate::token::KeyId;

pub(crate) use totals::{Cell, DAYS_KEPT, Report};
pub use totals::{UsageBy, UsageGroup, UsageLabel, UsageQuery, UsageReport, UsageTotals};

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
    /// The host ended while it ran: what it cost is what was reserved for it.
    Interrupted,
}

/// What one request used. The caller writes exactly one per request id.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub struct UsageRow {
    /// The id the client saw.
    pub request_id: String,
    /// When the request ended, Unix milliseconds; when it was first dispatched, if it was interrupted.
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
    /// What the workspace is charged, in pico-dollars (10⁻¹² dollar).
    pub cost_pico: u64,
    /// What inference with the caller's own credential cost it at the provider, in pico-dollars. Not charged here.
    #[serde(default)]
    pub byok_pico: u64,
    /// How many endpoints were asked, failed ones too; 0 in rows written before they were counted.
    #[serde(default)]
    pub attempts: u32,
    /// How it ended.
    pub outcome: UsageOutcome,
    /// Whether the answer was streamed.
    pub streamed: bool,
    /// Whether some of the counts, and of the cost, are estimates of this host: a provider did not say what it used.
    #[serde(default)]
    pub estimated: bool,
}

impl UsageRow {
    /// The row of a request that has begun and used nothing yet.
    pub fn begun(
        request_id: String,
        workspace: WorkspaceId,
        key: KeyId,
        kind: UsageKind,
        streamed: bool,
    ) -> UsageRow {
        UsageRow {
            request_id,
            at_ms: 0,
            workspace,
            key,
            kind,
            model: String::new(),
            provider: String::new(),
            input_tokens: 0,
            cached_tokens: 0,
            output_tokens: 0,
            reasoning_tokens: 0,
            cost_pico: 0,
            byok_pico: 0,
            attempts: 0,
            outcome: UsageOutcome::Cancelled,
            streamed,
            estimated: false,
        }
    }
}
