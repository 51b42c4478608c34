//! One usage row for each request, on every way out: finished, failed, or
//! dropped because the client went away.

use crate::ask::Bill;
use crate::cost::{Amount, Cost};
use cofferdam_runtime::wire::Usage;
use cofferdam_store::{InternId, KeyId, ReleaseScope, Store, UsageKind, UsageOutcome, UsageRow, WorkspaceId};
use std::sync::Arc;

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
    /// What is asked for this request is in its row too; a question itself has none.
    bill: Arc<Bill>,
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
        Self { store: store.clone(), row: Some(row), bill: Arc::default() }
    }

    /// Keeps the bill of the request, from which questions know what they cost.
    pub(crate) fn on(mut self, bill: &Arc<Bill>) -> Self {
        self.bill = Arc::clone(bill);
        self
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
            self.bill.consumed(usage);
            self.bill.own(Amount(row.cost_pico));
        }
    }

    /// Notes what something beside the models cost; [`Self::consumed`] has it in its sum the next time.
    pub(crate) fn spent(&mut self, cost: Amount) {
        if let Some(row) = &mut self.row {
            row.cost_pico = row.cost_pico.saturating_add(cost.0);
            self.bill.own(Amount(row.cost_pico));
        }
    }

    /// Writes the row with how the request ended.
    pub(crate) fn settle(&mut self, outcome: UsageOutcome) {
        if let Some(mut row) = self.row.take().filter(|_| !self.bill.is_question()) {
            row.outcome = outcome;
            row.cost_pico = row.cost_pico.saturating_add(self.bill.questions().0);
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
