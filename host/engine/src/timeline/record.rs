//! What is recorded of one request. [`super::document`] makes the documents that operators read.

use super::journal::{HeadText, Journal, StepEnd};
use super::step::{Fact, StepType};
use cofferdam_store::{InternId, KeyId, UsageKind, UsageOutcome, UsageRow, WorkspaceId};
use uuid::Uuid;

/// What is known when a request begins.
#[derive(Debug)]
pub(crate) struct RequestBeginning<'a> {
    /// The id that the client gets in a successful answer.
    pub(crate) request_id: &'a str,
    /// The id of the request in the log of the host.
    pub(crate) log_id: Option<Uuid>,
    pub(crate) started_ms: u64,
    pub(crate) workspace: WorkspaceId,
    pub(crate) key: &'a KeyId,
    pub(crate) intern: Option<InternId>,
    pub(crate) endpoint: UsageKind,
    pub(crate) request_bytes: u64,
}

/// What is known about the request as a whole.
#[derive(Clone, Debug)]
pub(super) struct RecordHead {
    pub(super) request_id: HeadText,
    pub(super) log_id: Option<Uuid>,
    pub(super) started_ms: u64,
    pub(super) workspace: WorkspaceId,
    pub(super) key: KeyId,
    pub(super) intern: Option<InternId>,
    pub(super) endpoint: UsageKind,
    pub(super) request_bytes: u64,
    pub(super) requested_model: Option<HeadText>,
    pub(super) streamed: bool,
    pub(super) status: Option<u16>,
    /// A canonical error type.
    pub(super) error: Option<&'static str>,
    pub(super) usage: Option<UsageRecord>,
    /// How long the request took.
    pub(super) us: u64,
    pub(super) response_bytes: u64,
    pub(super) steps_lost: u32,
}

/// The usage row, as far as it is shown.
#[derive(Clone, Debug)]
pub(super) struct UsageRecord {
    pub(super) outcome: UsageOutcome,
    pub(super) model: HeadText,
    pub(super) provider: HeadText,
    pub(super) attempts: u32,
    pub(super) input_tokens: u64,
    pub(super) cached_tokens: u64,
    pub(super) output_tokens: u64,
    pub(super) reasoning_tokens: u64,
    pub(super) cost_pico: u64,
    pub(super) byok_pico: u64,
    pub(super) estimated: bool,
}

/// One request.
#[derive(Clone, Debug)]
pub(super) struct TimelineRecord {
    pub(super) head: RecordHead,
    pub(super) journal: Journal,
}

impl TimelineRecord {
    /// The record of a request that begins, in the memory of `journal`.
    pub(super) fn begun(beginning: &RequestBeginning<'_>, mut journal: Journal) -> Self {
        let RequestBeginning { log_id, started_ms, workspace, key, intern, endpoint, request_bytes, .. } =
            *beginning;
        let head = RecordHead {
            request_id: journal.add_head(beginning.request_id),
            log_id,
            started_ms,
            workspace,
            key: *key,
            intern,
            endpoint,
            request_bytes,
            requested_model: None,
            streamed: false,
            status: None,
            error: None,
            usage: None,
            us: 0,
            response_bytes: 0,
            steps_lost: 0,
        };
        Self { head, journal }
    }

    pub(super) fn is_of(&self, request_id: &str) -> bool {
        self.text(self.head.request_id) == request_id
    }

    /// The ids of the request in the log and of its answer.
    pub(super) fn ids(&self) -> Option<(Uuid, String)> {
        Some((self.head.log_id?, self.text(self.head.request_id).to_owned()))
    }

    /// Notes what the body asks for.
    pub(super) fn asked(&mut self, model: &str, streamed: bool) {
        (self.head.requested_model, self.head.streamed) = (Some(self.journal.add_head(model)), streamed);
    }

    /// Notes the usage row.
    pub(super) fn settled(&mut self, row: &UsageRow, outcome: UsageOutcome) {
        self.head.usage = Some(UsageRecord {
            outcome,
            model: self.journal.add_head(&row.model),
            provider: self.journal.add_head(&row.provider),
            attempts: row.attempts,
            input_tokens: row.input_tokens,
            cached_tokens: row.cached_tokens,
            output_tokens: row.output_tokens,
            reasoning_tokens: row.reasoning_tokens,
            cost_pico: row.cost_pico,
            byok_pico: row.byok_pico,
            estimated: row.estimated,
        });
    }

    /// Begins a step whose name consists of `parts`. Returns its number; 0 where there is no room for it.
    pub(super) fn begin(&mut self, parent: u16, step_type: StepType, parts: &[&str], at_us: u64) -> u16 {
        self.journal.begin(parent, step_type, parts, at_us).unwrap_or_else(|| {
            self.head.steps_lost = self.head.steps_lost.saturating_add(1);
            0
        })
    }

    /// Ends a step.
    pub(super) fn end(&mut self, step: u16, end: StepEnd<'_>) {
        self.journal.end(step, end);
    }

    /// Adds facts to a step.
    pub(super) fn add(&mut self, step: u16, facts: &[Option<Fact<'_>>]) {
        facts.iter().flatten().for_each(|fact| self.journal.add(step, fact));
    }

    /// A text of the request itself.
    pub(super) fn text(&self, text: HeadText) -> &str {
        self.journal.head(text)
    }
}
