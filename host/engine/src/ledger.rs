//! One usage row for each request, on every way out: finished, failed, or
//! dropped because the client went away.

use crate::broadcast::Pending;
use crate::cost::{Amount, Cost};
use cofferdam_runtime::wire::{ErrorKind, Usage};
use cofferdam_store::{InternId, KeyId, ReleaseScope, Store, UsageKind, UsageOutcome, UsageRow, WorkspaceId};

/// Who asks.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The workspace the key belongs to.
    pub workspace: WorkspaceId,
    /// The intern it is confined to.
    pub intern: Option<InternId>,
    /// The key.
    pub key: KeyId,
}

impl Caller {
    /// Whose secrets are released for it: an intern's effective ones, else the workspace's.
    pub(crate) fn release_scope(&self) -> ReleaseScope {
        match self.intern {
            Some(intern) => ReleaseScope::Intern(intern),
            None => ReleaseScope::Workspace(self.workspace),
        }
    }
}

/// The row of a request that was routed. Written when dropped, at the latest.
pub(crate) struct Entry {
    store: Store,
    row: Option<UsageRow>,
    /// Who is told of the request, if anybody.
    pending: Option<Box<Pending>>,
}

impl Entry {
    /// Opens the row; until it is settled it stands for a cancelled request.
    pub(crate) fn open(
        store: &Store,
        caller: &Caller,
        kind: UsageKind,
        request_id: &str,
        at_ms: u64,
        streamed: bool,
    ) -> Self {
        let row = UsageRow {
            request_id: request_id.to_owned(),
            at_ms,
            workspace: caller.workspace,
            key: caller.key,
            kind,
            model: String::new(),
            provider: String::new(),
            input_tokens: 0,
            cached_tokens: 0,
            output_tokens: 0,
            reasoning_tokens: 0,
            cost_pico: 0,
            outcome: UsageOutcome::Cancelled,
            streamed,
        };
        Self { store: store.clone(), row: Some(row), pending: None }
    }

    /// Has the end of the request told, where there is somebody to tell.
    pub(crate) fn broadcast(&mut self, pending: Option<Box<Pending>>) {
        self.pending = pending;
    }

    /// Notes why the request fails.
    pub(crate) fn failed(&mut self, error: ErrorKind) {
        if let Some(pending) = &mut self.pending {
            pending.failed(error);
        }
    }

    /// Names the endpoint that is being asked.
    pub(crate) fn endpoint(&mut self, model: &str, provider: &str) {
        if let Some(row) = &mut self.row {
            model.clone_into(&mut row.model);
            provider.clone_into(&mut row.provider);
        }
    }

    /// Notes what has been consumed so far.
    pub(crate) fn consumed(&mut self, usage: &Usage, cost: &Cost) {
        if let Some(row) = &mut self.row {
            row.input_tokens = usage.input_tokens;
            row.cached_tokens = usage.cached_tokens;
            row.output_tokens = usage.output_tokens;
            row.reasoning_tokens = usage.reasoning_tokens;
            row.cost_pico = cost.total().0;
        }
    }

    /// Notes what something beside the models cost; [`Self::consumed`] has it in its sum the next time.
    pub(crate) fn spent(&mut self, cost: Amount) {
        if let Some(row) = &mut self.row {
            row.cost_pico = row.cost_pico.saturating_add(cost.0);
        }
    }

    /// Writes the row with how the request ended.
    pub(crate) fn settle(&mut self, outcome: UsageOutcome) {
        if let Some(mut row) = self.row.take() {
            row.outcome = outcome;
            if let Some(pending) = self.pending.take() {
                pending.tell(&row);
            }
            if let Err(error) = self.store.record_usage(row) {
                tracing::error!(%error, "a usage row was lost");
            }
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.settle(UsageOutcome::Cancelled);
    }
}
