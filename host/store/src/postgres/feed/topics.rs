//! What hosts see of commits.

use std::collections::BTreeSet;

use crate::changes::SliceId;
use crate::directory::RecordId;
use crate::ids::{VaultId, WorkspaceId};
use crate::rows;
use crate::vault::vault_of_head;

/// What commits changed of what a host keeps in memory.
#[derive(Default)]
pub(crate) struct Topics {
    pub(crate) records: BTreeSet<RecordId>,
    pub(crate) header: bool,
    /// Workspaces whose slices are asked for.
    pub(crate) recalls: BTreeSet<WorkspaceId>,
    pub(crate) vaults: BTreeSet<VaultId>,
}

impl Topics {
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty() && !self.header && self.recalls.is_empty() && self.vaults.is_empty()
    }

    pub(super) fn add(&mut self, other: &Topics) {
        self.records.extend(other.records.iter().copied());
        self.header |= other.header;
        self.recalls.extend(other.recalls.iter().copied());
        self.vaults.extend(other.vaults.iter().copied());
    }

    /// Adds a topic as the table has it.
    pub(super) fn read(&mut self, topic: &[u8]) {
        self.header |= topic == rows::HEADER;
        self.records.extend(RecordId::of_row_key(topic));
        self.recalls.extend(rows::workspace_of_recall(topic));
        self.vaults.extend(vault_of_head(topic));
    }

    /// Whether any slice can be concerned.
    pub(super) fn concern_slices(&self) -> bool {
        !(self.records.is_empty() && self.recalls.is_empty())
    }

    /// Whether a slice is asked for, or its limits may have changed.
    pub(super) fn concern(&self, slice: &SliceId) -> bool {
        let records = [RecordId::Workspace(slice.workspace), RecordId::Key(slice.key)];
        self.recalls.contains(&slice.workspace) || records.iter().any(|it| self.records.contains(it))
    }
}
