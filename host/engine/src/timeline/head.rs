//! What is kept about a request besides its steps.

use cofferdam_runtime::wire::ErrorKind;
use cofferdam_store::{InternId, KeyId, UsageKind, UsageOutcome, UsageRow, WorkspaceId};
use std::sync::Arc;

/// The most characters of the model that a client asks for.
const REQUESTED_CHARS_MAX: usize = 128;

/// What is known when a request begins.
#[derive(Debug)]
pub(crate) struct RequestBeginning {
    pub(crate) request_id: Arc<str>,
    pub(crate) started_ms: u64,
    pub(crate) workspace: WorkspaceId,
    pub(crate) key: KeyId,
    pub(crate) intern: Option<InternId>,
    pub(crate) endpoint: UsageKind,
    pub(crate) request_bytes: u64,
}

/// What becomes known while it runs.
#[derive(Debug, Default)]
pub(super) struct RequestHead {
    pub(super) requested: Option<String>,
    pub(super) streamed: bool,
    pub(super) status: Option<u16>,
    pub(super) error: Option<ErrorKind>,
    outcome: Option<UsageOutcome>,
    pub(super) usage: RecordedUsage,
}

/// The usage row, as far as it is shown.
#[derive(Debug, Default)]
pub(super) struct RecordedUsage {
    pub(super) model: String,
    pub(super) provider: String,
    pub(super) attempts: u32,
    pub(super) input_tokens: u64,
    pub(super) cached_tokens: u64,
    pub(super) output_tokens: u64,
    pub(super) reasoning_tokens: u64,
    pub(super) cost_pico: u64,
    pub(super) byok_pico: u64,
    pub(super) estimated: bool,
}

impl RequestHead {
    pub(super) fn asks(&mut self, requested: &str, streamed: bool) {
        let cut = requested.char_indices().nth(REQUESTED_CHARS_MAX).map_or(requested.len(), |(end, _)| end);
        self.requested = Some(requested.get(..cut).unwrap_or_default().to_owned());
        self.streamed = streamed;
    }

    pub(super) fn settled(&mut self, row: &UsageRow, outcome: UsageOutcome) {
        self.outcome = Some(outcome);
        self.usage = RecordedUsage {
            model: row.model.clone(),
            provider: row.provider.clone(),
            attempts: row.attempts,
            input_tokens: row.input_tokens,
            cached_tokens: row.cached_tokens,
            output_tokens: row.output_tokens,
            reasoning_tokens: row.reasoning_tokens,
            cost_pico: row.cost_pico,
            byok_pico: row.byok_pico,
            estimated: row.estimated,
        };
    }

    /// The outcome of the usage row. A request without one was refused, or its client has left.
    pub(super) fn outcome(&self, is_running: bool) -> &'static str {
        match (self.outcome, self.status) {
            _ if is_running => "running",
            (Some(outcome), _) => outcome_word(outcome),
            (None, _) if self.error.is_some() => "refused",
            (None, Some(_)) => "completed",
            (None, None) => "cancelled",
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.requested.as_ref().map_or(0, String::capacity)
            + self.usage.model.capacity()
            + self.usage.provider.capacity()
    }
}

fn outcome_word(outcome: UsageOutcome) -> &'static str {
    match outcome {
        UsageOutcome::Completed => "completed",
        UsageOutcome::Incomplete => "incomplete",
        UsageOutcome::Failed => "failed",
        UsageOutcome::Cancelled => "cancelled",
        UsageOutcome::Interrupted => "interrupted",
    }
}
