//! Usage rows: one per request, with counts and names, never content.

pub(crate) mod block;
mod digest;
#[cfg(feature = "postgres")]
mod slice;
mod spent;
mod standing;
mod totals;

use serde::{Deserialize, Serialize};

use crate::ids::WorkspaceId;
use crate::token::KeyId;

pub(crate) use digest::UsageDigest;
#[cfg(feature = "postgres")]
pub(crate) use slice::{Slice, SliceChange, Taken};
pub(crate) use spent::{KeySpent, WorkspaceSpent};
pub use standing::ReservationRefused;
pub(crate) use standing::{HeldAmount, Standing, Terms};
pub(crate) use totals::{Cell, DAYS_KEPT, Report};
pub use totals::{UsageBy, UsageGroup, UsageLabel, UsageQuery, UsageReport, UsageTotals};

/// The kind of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum UsageKind {
    /// A request for a response.
    Responses,
    /// A request for embeddings.
    Embeddings,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum UsageOutcome {
    /// It was answered in full.
    Completed,
    /// The answer was cut by a limit that the client is informed of.
    Incomplete,
    /// It ended with an error.
    Failed,
    /// The client disconnected.
    Cancelled,
    /// The host ended while the request ran. Its cost is what was reserved for it.
    Interrupted,
}

impl UsageOutcome {
    /// The word for it in records and in the log.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Incomplete => "incomplete",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
        }
    }
}

/// Usage of one request. There is exactly one row per request id.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UsageRow {
    /// The request id that the client received.
    pub request_id: String,
    /// End of the request, Unix milliseconds; for an interrupted request its first dispatch.
    pub at_ms: u64,
    /// The workspace that pays.
    pub workspace: WorkspaceId,
    /// The API key of the request.
    pub key: KeyId,
    /// Kind of the request.
    pub kind: UsageKind,
    /// Catalog id of the model that answered.
    pub model: String,
    /// Configured name of the provider that answered.
    pub provider: String,
    /// Input tokens.
    pub input_tokens: u64,
    /// Input tokens that were in the provider's cache.
    pub cached_tokens: u64,
    /// Output tokens, including reasoning.
    pub output_tokens: u64,
    /// Output tokens spent on reasoning.
    pub reasoning_tokens: u64,
    /// Cost charged to the workspace, pico-dollars (10⁻¹² dollar).
    pub cost_pico: u64,
    /// Cost at the provider of inference with the caller's own credential, pico-dollars. Not
    /// charged here.
    pub byok_pico: u64,
    /// Number of endpoints asked, including failed ones.
    pub attempts: u32,
    /// How it ended.
    pub outcome: UsageOutcome,
    /// Whether the answer was streamed.
    pub streamed: bool,
    /// Whether some of the counts and costs are estimates of this host, because a provider did not
    /// report its usage.
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
