//! Slices of limited accounts in commits: what usage rows take out of them, what the limits put in again,
//! and requests that get an intent of their own.
//!
//! The row of a slice is a shared intent without a request. A commit that takes something out of a slice
//! writes its row anew, see [`Slice::change`](crate::usage::Slice::change). Only the host that owns a slice
//! changes it, over a chain that is sealed when other hosts take that host for dead. After that, its rows
//! that were reserved out of a slice do not count: another host charges the slice instead, and the rest of
//! the slice may be reserved elsewhere already.

mod memory;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use super::{Intent, WriteBatch};
use crate::error::Error;
use crate::hex;
use crate::ids::WorkspaceId;
use crate::rows;
use crate::state::{Gap, Guard, all, both};
use crate::token::KeyId;
use crate::usage::{KeySpent, SliceChange, Standing, Taken, Terms, UsageRow, WorkspaceSpent};

pub(crate) use memory::{DueSlices, SlicePart, Slices};

/// The host that owns a slice.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct SliceHost(pub(crate) [u8; 16]);

impl fmt::Display for SliceHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

/// Which slice it is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct SliceId {
    pub(crate) workspace: WorkspaceId,
    pub(crate) key: KeyId,
    pub(crate) host: SliceHost,
}

impl SliceId {
    /// What its row has in the place of a request id. Ids of requests have no such form.
    fn request_id(&self) -> String {
        format!("slice_{}_{}", self.host, self.key)
    }

    fn row_key(&self) -> Vec<u8> {
        rows::shared_intent_key(self.workspace, &self.request_id())
    }
}

/// A request that holds a part of a slice.
pub(crate) trait SliceRequest: Send + Sync {
    /// Writes an intent of its own for what it holds, and takes that out of the slice.
    fn own_intent(self: Arc<Self>, batch: &mut WriteBatch) -> Result<(), Gap>;

    /// The intent with this amount is durable.
    fn moved(&self, amount_pico: u64);
}

/// What a commit does with slices.
#[derive(Default)]
pub(super) struct SliceCommit {
    /// The host of the commit's chain, if it reserves out of slices.
    host: Option<SliceHost>,
    taken: BTreeMap<SliceId, Taken>,
    movers: Vec<(Arc<dyn SliceRequest>, u64)>,
    recalls: BTreeSet<WorkspaceId>,
}

/// What a commit has made of a slice.
struct DurableSlice {
    change: SliceChange,
    /// Whether it has a row.
    has_row: bool,
}

/// What changes in memory once the commit is durable.
#[derive(Default)]
pub(crate) struct SliceEffects {
    /// What was taken out of each slice, and its change. Without a change its rows did not count.
    changes: Vec<(SliceId, Taken, Option<DurableSlice>)>,
    movers: Vec<(Arc<dyn SliceRequest>, u64)>,
    /// See [`Slices::epoch`].
    epoch: u64,
}

/// What is spent and reserved in a workspace.
struct Reserved {
    spent: WorkspaceSpent,
    all: u64,
    by_key: BTreeMap<KeyId, u64>,
    /// Amounts of slices by what they have in the place of a request id.
    slices: BTreeMap<String, u64>,
    /// What some of it is cannot be read.
    is_damaged: bool,
}

impl WriteBatch {
    /// Sets the host of the commit's chain, whose requests reserve out of slices.
    pub(crate) fn with_slices_of(mut self, host: Option<SliceHost>) -> WriteBatch {
        self.slices.host = host;
        self
    }

    /// The host of the commit's chain, if it reserves out of slices.
    pub(crate) fn slice_host(&self) -> Option<SliceHost> {
        self.slices.host
    }

    /// Has the slice of this host written anew.
    pub(crate) fn touch_slice(&mut self, workspace: WorkspaceId, key: KeyId) {
        if let Some(host) = self.slices.host {
            self.slices.taken.entry(SliceId { workspace, key, host }).or_default();
        }
    }

    /// Asks other hosts to give back what is free of their slices.
    pub(crate) fn recall_slices(&mut self, workspace: WorkspaceId) {
        self.slices.recalls.insert(workspace);
    }

    /// What other hosts have to see of that.
    pub(crate) fn recall_topics(&self) -> Vec<Vec<u8>> {
        self.slices.recalls.iter().map(|id| rows::recall_topic(*id)).collect()
    }

    /// Whether what was reserved out of this slice still counts.
    pub(crate) fn has_slice(&self, id: &SliceId) -> Result<bool, Gap> {
        Ok(self.slices.host == Some(id.host) && self.has_row(&id.row_key())?)
    }

    /// Whether this batch takes a request out of its slice.
    pub(crate) fn leaves_slice(&self, request: &Arc<dyn SliceRequest>) -> bool {
        self.slices.movers.iter().any(|(mover, _)| Arc::ptr_eq(mover, request))
    }

    /// Takes out of a slice what a request holds, because it has an intent in this batch. Where it has left already,
    /// only the amount of its intent rises.
    pub(crate) fn leave_slice(
        &mut self,
        id: SliceId,
        pico: u64,
        request: Arc<dyn SliceRequest>,
        amount: u64,
    ) {
        let before = self.slices.movers.iter_mut().find(|(mover, _)| Arc::ptr_eq(mover, &request));
        if let Some((_, covered)) = before {
            *covered = amount.max(*covered);
            return;
        }
        let taken = self.slices.taken.entry(id).or_default();
        taken.moved = taken.moved.saturating_add(pico);
        taken.movers += 1;
        self.slices.movers.push((request, amount));
    }

    /// Takes the cost of a usage row out of the slice that its request reserved in, or removes the request's
    /// own intent. Whether the row counts.
    pub(super) fn counts_in_slice(&mut self, host: SliceHost, row: &UsageRow) -> Result<bool, Gap> {
        let id = SliceId { workspace: row.workspace, key: row.key, host };
        let intent = rows::shared_intent_key(row.workspace, &row.request_id);
        let (has_intent, has_slice) = both(self.has_row(&intent), self.has_slice(&id))?;
        let taken = self.slices.taken.entry(id).or_default();
        taken.rows += 1;
        taken.settled = taken.settled.saturating_add(row.cost_pico);
        if has_intent {
            self.rows.insert(intent, None);
        } else if has_slice {
            taken.charged = taken.charged.saturating_add(row.cost_pico);
        }
        Ok(has_intent || has_slice)
    }

    /// Writes the slices anew that this commit changes. To be called once, after the usage rows are added.
    /// `epoch` is that of a time before the rows were read that this batch looks at.
    pub(crate) fn write_slices(&mut self, slices: &Slices, epoch: u64) -> Result<SliceEffects, Gap> {
        let taken = std::mem::take(&mut self.slices.taken);
        let (own, gone): (Vec<_>, Vec<_>) =
            taken.into_iter().partition(|(id, _)| self.slices.host == Some(id.host));
        let workspaces: BTreeSet<WorkspaceId> = own.iter().map(|(id, _)| id.workspace).collect();
        let reserved = all(workspaces.iter().map(|id| self.reserved_in(*id)));
        let limits = all(own.iter().map(|(id, _)| both(self.readable_terms(id), self.key_spent(id.key))));
        let (reserved, limits) = both(reserved, limits)?;
        self.hold_all(workspaces.iter().map(|id| Guard::Account(*id)))?;
        let mut reserved: BTreeMap<WorkspaceId, Reserved> = workspaces.into_iter().zip(reserved).collect();
        let mut effects =
            SliceEffects { changes: Vec::new(), movers: std::mem::take(&mut self.slices.movers), epoch };
        effects.changes.extend(gone.into_iter().map(|(id, taken)| (id, taken, None)));
        for ((id, taken), (terms, spent)) in own.into_iter().zip(limits) {
            let Some(reserved) = reserved.get_mut(&id.workspace) else { continue };
            let row = reserved.slices.get(&id.request_id()).copied();
            let standing = reserved.beside(&id, row.unwrap_or_default(), spent);
            let left = terms.filter(|_| !reserved.is_damaged).map(|terms| standing.left(&terms, self.now_ms));
            let written = slices.change(&id, row.unwrap_or_default(), &taken, left, epoch);
            let SliceChange { amount, used, .. } = written.change;
            reserved.put(&id, &standing, amount);
            let has_row = amount > 0 || written.is_open;
            if has_row {
                let slice = Intent::of_slice(&written.last, &id.request_id(), self.now_ms, amount, used);
                self.stage_row(id.row_key(), &slice.on(&id.host.to_string()));
            } else if row.is_some() {
                self.rows.insert(id.row_key(), None);
            }
            effects.changes.push((id, taken, Some(DurableSlice { change: written.change, has_row })));
        }
        Ok(effects)
    }

    /// The limits that a slice is filled by. Damaged ones fill none, and fail nothing else of the commit:
    /// usage rows that could not be committed would hold up every change of the lane.
    fn readable_terms(&self, id: &SliceId) -> Result<Option<Terms>, Gap> {
        match self.terms(id.workspace, id.key) {
            Err(Gap::Failed(error)) => {
                tracing::error!(%error, workspace = %id.workspace, key = %id.key, "limits cannot be read");
                Ok(None)
            }
            terms => terms,
        }
    }

    fn reserved_in(&self, workspace: WorkspaceId) -> Result<Reserved, Gap> {
        let (intents, spent) = both(self.found_intents(workspace), self.spent_now(workspace))?;
        let (by_key, slices) = (BTreeMap::new(), BTreeMap::new());
        let mut reserved = Reserved { spent, all: 0, by_key, slices, is_damaged: false };
        for intent in intents {
            let Ok(Intent { amount_pico, key, request_id, running_pico, .. }) = intent else {
                tracing::error!(%workspace, "an intent is damaged; no host reserves more of this workspace ahead");
                reserved.is_damaged = true;
                continue;
            };
            reserved.all = reserved.all.saturating_add(amount_pico);
            let of_key = reserved.by_key.entry(key).or_default();
            *of_key = of_key.saturating_add(amount_pico);
            if running_pico.is_some() {
                reserved.slices.insert(request_id, amount_pico);
            }
        }
        Ok(reserved)
    }

    /// What a workspace has spent with the rows of this batch.
    fn spent_now(&self, workspace: WorkspaceId) -> Result<WorkspaceSpent, Gap> {
        self.sum_now(&rows::workspace_spend_key(workspace))
    }

    fn key_spent(&self, key: KeyId) -> Result<KeySpent, Gap> {
        self.sum_now(&rows::key_spend_key(key))
    }

    fn sum_now<T: Default + serde::de::DeserializeOwned>(&self, key: &[u8]) -> Result<T, Gap> {
        match self.rows.get(key) {
            Some(Some(row)) => {
                Ok(rows::decode(self.view.keys(), rows::KEYS, key, row).ok_or(Error::Damaged)?)
            }
            Some(None) => Ok(T::default()),
            None => self.kept(key),
        }
    }
}

impl Reserved {
    /// What counts beside a slice, whose row has this amount.
    fn beside(&self, id: &SliceId, row: u64, spent: KeySpent) -> Standing {
        let of_key = self.by_key.get(&id.key).copied().unwrap_or_default();
        Standing {
            workspace: (self.spent, self.all.saturating_sub(row)),
            key: (spent, of_key.saturating_sub(row)),
        }
    }

    /// Notes the new amount of a slice.
    fn put(&mut self, id: &SliceId, beside: &Standing, amount: u64) {
        self.all = beside.workspace.1.saturating_add(amount);
        self.by_key.insert(id.key, beside.key.1.saturating_add(amount));
    }
}
