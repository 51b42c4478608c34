//! Mutations about money: credit, intents, and the sums of usage rows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::WriteBatch;
#[cfg(feature = "postgres")]
use super::{SliceHost, needs_of_reservation};
use crate::audit::{Actor, AuditAction};
use crate::error::Error;
use crate::ids::WorkspaceId;
use crate::records::{Credit, Workspace};
use crate::rows::{self, KEYS, Keyspace};
#[cfg(feature = "postgres")]
use crate::state::Need;
use crate::state::{Gap, Guard, RowRange};
use crate::token::KeyId;
use crate::usage::{Cell, KeySpent, UsageKind, UsageOutcome, UsageRow, UsageTotals, WorkspaceSpent};

/// Largest number of old daily totals that one commit removes.
const DROPPED_MAX: usize = 10_000;

/// The intent of a request in a prepaid workspace, written before the request is dispatched. If the
/// process dies before the usage row is written, the next start makes the usage row from it.
///
/// Where several hosts share a store, requests of limited keys have one too. All hosts count it against
/// the limits, and another host makes the usage row.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Intent {
    /// The host that runs the request, where several share the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    pub(super) request_id: String,
    at_ms: u64,
    workspace: WorkspaceId,
    pub(super) key: KeyId,
    kind: UsageKind,
    streamed: bool,
    model: String,
    provider: String,
    pub(super) amount_pico: u64,
    /// For a slice, which is no request: what its requests had reserved or spent when it was written,
    /// pico-dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) running_pico: Option<u64>,
}

impl Intent {
    /// The intent of a request in progress, whose row has the time of its beginning.
    pub(crate) fn of(row: &UsageRow, amount_pico: u64) -> Intent {
        Intent {
            host: None,
            request_id: row.request_id.clone(),
            at_ms: row.at_ms,
            workspace: row.workspace,
            key: row.key,
            kind: row.kind,
            streamed: row.streamed,
            model: row.model.clone(),
            provider: row.provider.clone(),
            amount_pico,
            running_pico: None,
        }
    }

    /// The intent that is a slice of this host, with the names of its last request.
    #[cfg(feature = "postgres")]
    pub(super) fn of_slice(
        last: &UsageRow,
        id: &str,
        at_ms: u64,
        amount_pico: u64,
        running_pico: u64,
    ) -> Intent {
        let intent = Intent::of(last, amount_pico);
        Intent { request_id: id.to_owned(), at_ms, running_pico: Some(running_pico), ..intent }
    }

    /// The same intent, of a host that shares the store with others.
    #[cfg(feature = "postgres")]
    pub(crate) fn on(self, host: &str) -> Intent {
        Intent { host: Some(host.to_owned()), ..self }
    }

    /// The row key of the intent where several hosts share the store.
    #[cfg(feature = "postgres")]
    pub(crate) fn shared_key(&self) -> Vec<u8> {
        rows::shared_intent_key(self.workspace, &self.request_id)
    }

    /// The host that runs the request, where several share the store.
    pub(crate) fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// What is handed over where the host has ended, and the request is charged what was reserved for it. Of a
    /// slice, what its requests had reserved is charged. `intent` is the kind of this one.
    pub(crate) fn settled(self, intent: RowIntent) -> SettledUsage {
        let intent = if self.running_pico == Some(0) { RowIntent::Freed } else { intent };
        SettledUsage { row: self.interrupted(), intent }
    }

    /// The usage row of a request whose end is unknown because the process died.
    fn interrupted(self) -> UsageRow {
        UsageRow {
            at_ms: self.at_ms,
            model: self.model,
            provider: self.provider,
            cost_pico: self.running_pico.unwrap_or(self.amount_pico),
            attempts: 1,
            outcome: UsageOutcome::Interrupted,
            ..UsageRow::begun(self.request_id, self.workspace, self.key, self.kind, self.streamed)
        }
    }
}

/// The intent that a usage row ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RowIntent {
    /// The request has none.
    None,
    /// The request may have one. It is deleted together with the commit of the row.
    Possible,
    /// The same where several hosts share the store: this host asked for it and got no answer. If it is gone, and the
    /// row is committed by another host, which this process is after it was taken for dead, then the request was
    /// charged, so the row does not count.
    #[cfg(feature = "postgres")]
    PossibleShared(SliceHost),
    /// The request had a durable one where several hosts share the store. If it is gone, another host
    /// took this one for dead and charged the request, so the row does not count.
    Shared,
    /// The request reserved out of a slice of this host, and may have got an intent of its own since. If both
    /// are gone, another host took this one for dead and charged the slice, so the row does not count.
    #[cfg(feature = "postgres")]
    Slice(SliceHost),
    /// Like `Shared`, of a slice that nothing ran in: it is deleted, and the row never counts.
    Freed,
}

/// A usage row that was handed over.
#[derive(Clone)]
pub(crate) struct SettledUsage {
    pub(crate) row: UsageRow,
    pub(crate) intent: RowIntent,
}

impl SettledUsage {
    /// The row key of the request's intent, if it may have one.
    fn intent_key(&self) -> Option<Vec<u8>> {
        match self.intent {
            RowIntent::None => None,
            // It is looked for where the row is counted.
            #[cfg(feature = "postgres")]
            RowIntent::Slice(_) => None,
            RowIntent::Possible => Some(rows::intent_key(&self.row.request_id)),
            #[cfg(feature = "postgres")]
            RowIntent::PossibleShared(_) => Some(self.shared_intent_key()),
            RowIntent::Shared | RowIntent::Freed => Some(self.shared_intent_key()),
        }
    }

    fn shared_intent_key(&self) -> Vec<u8> {
        rows::shared_intent_key(self.row.workspace, &self.row.request_id)
    }

    /// Whether this row counts only while the intent is there.
    fn needs_intent(&self) -> bool {
        match self.intent {
            RowIntent::None | RowIntent::Possible => false,
            #[cfg(feature = "postgres")]
            RowIntent::PossibleShared(_) | RowIntent::Slice(_) => false,
            RowIntent::Shared | RowIntent::Freed => true,
        }
    }

    /// The rows that decide whether this row counts, and the sums that change with it.
    #[cfg(feature = "postgres")]
    pub(crate) fn needs(&self) -> impl Iterator<Item = Need> {
        let row = &self.row;
        let (key, workspace) = (rows::key_spend_key(row.key), rows::workspace_spend_key(row.workspace));
        let intent = self.intent_key().filter(|_| self.needs_intent());
        let (intent, of_slice) = match self.intent {
            RowIntent::Slice(_) => {
                (Some(self.shared_intent_key()), needs_of_reservation(row.workspace, row.key))
            }
            _ => (intent, Vec::new()),
        };
        let keys = [key, workspace, Cell::of(row).row_key()].into_iter().chain(intent);
        keys.map(|key| Need::Row(Keyspace::Keys, key)).chain(of_slice)
    }
}

impl WriteBatch {
    /// Adds credit. An unlimited workspace becomes prepaid; what it spent before does not count
    /// against the credit.
    pub(crate) fn add_credit(
        &mut self,
        actor: Actor,
        id: WorkspaceId,
        amount_pico: u64,
    ) -> Result<Workspace, Gap> {
        let mut workspace = Workspace::clone(&*self.workspace(id)?);
        let (before, spent_before_pico) = match workspace.credit {
            Credit::Unlimited => (0, self.workspace_spent(id)?.charged_pico),
            Credit::Prepaid { credited_pico, spent_before_pico } => (credited_pico, spent_before_pico),
        };
        let credited_pico = before.checked_add(amount_pico).ok_or(Error::TooMuchCredit)?;
        workspace.credit = Credit::Prepaid { credited_pico, spent_before_pico };
        self.audit(actor, AuditAction::CreditAdded { workspace: id, amount_pico, credited_pico });
        self.put_workspace(&workspace)?;
        Ok(workspace)
    }

    /// Makes a workspace unlimited and drops its balance.
    pub(crate) fn set_unlimited(&mut self, actor: Actor, id: WorkspaceId) -> Result<Workspace, Gap> {
        let mut workspace = Workspace::clone(&*self.workspace(id)?);
        let dropped_pico = match workspace.credit {
            Credit::Unlimited => return Ok(workspace),
            Credit::Prepaid { credited_pico, .. } => credited_pico,
        };
        workspace.credit = Credit::Unlimited;
        self.audit(actor, AuditAction::CreditUnlimited { workspace: id, credited_pico: dropped_pico });
        self.put_workspace(&workspace)?;
        Ok(workspace)
    }

    /// Writes an intent: unless the request's usage row follows, the next start charges its amount.
    pub(crate) fn put_intent(&mut self, intent: &Intent) -> Result<(), Gap> {
        self.put_row(Guard::Account(intent.workspace), rows::intent_key(&intent.request_id), intent)
    }

    /// Adds usage rows to the commit and updates all sums of them. Must be called once, by the lane,
    /// after every other change. Only lanes write these rows: the only one of a store, or one that
    /// holds the guards of the workspaces' accounts.
    pub(crate) fn add_usage(&mut self, settled: impl IntoIterator<Item = SettledUsage>) -> Result<(), Gap> {
        let mut keys: BTreeMap<KeyId, KeySpent> = BTreeMap::new();
        let mut workspaces: BTreeMap<WorkspaceId, WorkspaceSpent> = BTreeMap::new();
        let mut cells: BTreeMap<Cell, UsageTotals> = BTreeMap::new();
        for settled in settled {
            if self.was_charged(&settled)? {
                continue;
            }
            if let Some(intent) = settled.intent_key() {
                self.rows.insert(intent, None);
            }
            let SettledUsage { row, intent } = settled;
            if intent == RowIntent::Freed {
                continue;
            }
            sum_of(&mut keys, row.key, || self.kept(&rows::key_spend_key(row.key)))?.add(&row);
            sum_of(&mut workspaces, row.workspace, || self.workspace_spent(row.workspace))?.add(&row);
            let cell = Cell::of(&row);
            let kept = cell.row_key();
            sum_of(&mut cells, cell, || self.kept(&kept))?.add_row(&row);
            self.usage.push(row);
        }
        for (id, spent) in keys {
            self.stage_row(rows::key_spend_key(id), &spent);
        }
        for (id, spent) in workspaces {
            self.stage_row(rows::workspace_spend_key(id), &spent);
        }
        for (cell, totals) in cells {
            self.stage_row(cell.row_key(), &totals);
        }
        Ok(())
    }

    /// Whether another host has charged the request from its intent.
    fn was_charged(&mut self, settled: &SettledUsage) -> Result<bool, Gap> {
        #[cfg(feature = "postgres")]
        if let RowIntent::Slice(host) = settled.intent {
            return Ok(!self.counts_in_slice(host, &settled.row)?);
        }
        #[cfg(feature = "postgres")]
        if let RowIntent::PossibleShared(asked) = settled.intent
            && self.host.is_some_and(|host| host != asked)
        {
            return Ok(!self.has_row(&settled.shared_intent_key())?);
        }
        match settled.intent_key().filter(|_| settled.needs_intent()) {
            Some(key) => Ok(!self.has_row(&key)?),
            None => Ok(false),
        }
    }

    /// Whether there is a row, as of this write batch.
    pub(super) fn has_row(&self, key: &[u8]) -> Result<bool, Gap> {
        match self.rows.get(key) {
            Some(row) => Ok(row.is_some()),
            None => Ok(self.view.key_row(key)?.is_some()),
        }
    }

    /// Removes totals of the days before this one. True when more of them are left.
    pub(crate) fn drop_totals_before(&mut self, day: u32) -> Result<bool, Gap> {
        let old = RowRange::all(Keyspace::Keys).from(rows::day_totals_start(0));
        let old = old.before(rows::day_totals_start(day)).keys().limit(DROPPED_MAX);
        let old = self.view.range(&old)?.map(|row| Ok(row?.0.to_vec()));
        let old: Vec<Vec<u8>> = old.collect::<Result<_, Error>>()?;
        let is_more = old.len() == DROPPED_MAX;
        for key in old {
            self.drop_row(Guard::Store, key)?;
        }
        Ok(is_more)
    }

    pub(super) fn workspace_spent(&self, id: WorkspaceId) -> Result<WorkspaceSpent, Gap> {
        self.kept(&rows::workspace_spend_key(id))
    }

    /// A stored sum; zero when there is none yet.
    pub(super) fn kept<T: Default + serde::de::DeserializeOwned>(&self, key: &[u8]) -> Result<T, Gap> {
        let Some(row) = self.view.key_row(key)? else { return Ok(T::default()) };
        Ok(rows::decode(self.view.keys(), KEYS, key, &row).ok_or(Error::Damaged)?)
    }
}

/// The sum of a key in the map, read from the store at its first use.
fn sum_of<K: Ord, S>(
    sums: &mut BTreeMap<K, S>,
    key: K,
    read: impl FnOnce() -> Result<S, Gap>,
) -> Result<&mut S, Gap> {
    use std::collections::btree_map::Entry;
    match sums.entry(key) {
        Entry::Occupied(sum) => Ok(sum.into_mut()),
        Entry::Vacant(place) => Ok(place.insert(read()?)),
    }
}
