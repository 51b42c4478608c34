//! Intents of requests where several hosts share a store: each host counts those of all hosts against
//! the limits.

use std::collections::{BTreeMap, BTreeSet};

use super::{Intent, WriteBatch};
use crate::directory::{Record, RecordId};
use crate::error::Error;
use crate::ids::WorkspaceId;
use crate::records::ApiKey;
use crate::rows::{self, KEYS, Keyspace};
use crate::state::{Gap, Guard, Need, RowRange, both};
use crate::token::KeyId;
use crate::usage::{HeldAmount, KeySpent, ReservationRefused, Standing, Terms, UsageRow, WorkspaceSpent};

/// What a request of a shared store has reserved, pico-dollars.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Held {
    /// What is pledged to the part of the request that asked.
    pub(crate) pledged: u64,
    /// Amount of the intent; `None` where there are no limits, so no intent either.
    pub(crate) covered: Option<u64>,
}

/// The amounts of a workspace's intents.
struct Amounts {
    workspace: u64,
    key: u64,
}

impl Intent {
    /// The request that has this intent.
    fn is_for(&self, row: &UsageRow) -> bool {
        self.request_id == row.request_id
    }
}

impl WriteBatch {
    /// Reserves for a part of a request what the limits allow beside what all hosts have spent and
    /// reserved, and covers it by the request's intent. `had_intent`: the request has had one. `in_slice`: what it
    /// has reserved so far, if it did that out of a slice of its host.
    pub(crate) fn reserve_shared(
        &mut self,
        row: &UsageRow,
        request: HeldAmount,
        had_intent: bool,
        in_slice: u64,
        estimate: u64,
    ) -> Result<Result<Held, ReservationRefused>, Gap> {
        let ((intents, terms), spent) = both(
            both(self.intents_of(row.workspace), self.terms(row.workspace, row.key)),
            both(self.workspace_spent(row.workspace), self.kept(&rows::key_spend_key(row.key))),
        )?;
        if had_intent && !intents.iter().any(|intent| intent.is_for(row)) {
            return Ok(Err(ReservationRefused::Interrupted));
        }
        let Some(terms) = terms else { return Ok(Ok(Held { pledged: 0, covered: None })) };
        let (workspace, key) = spent;
        let others = amounts(intents.iter().filter(|intent| !intent.is_for(row)), row.key);
        let standing = Standing {
            workspace: (workspace, others.workspace.saturating_sub(in_slice).saturating_add(request.all)),
            key: (key, others.key.saturating_sub(in_slice).saturating_add(request.all)),
        };
        let pledged = match standing.pledge(row, &terms, request, estimate, self.now_ms) {
            Ok(pledged) => pledged,
            Err(refused) => return Ok(Err(refused)),
        };
        let covered = request.all_with(row, pledged);
        self.put_shared_intent(row, covered)?;
        Ok(Ok(Held { pledged, covered: Some(covered) }))
    }

    /// Raises the intent of a request to what it has reserved, without a check.
    pub(crate) fn cover_shared(
        &mut self,
        row: &UsageRow,
        request: HeldAmount,
        had_intent: bool,
    ) -> Result<Result<Held, ReservationRefused>, Gap> {
        if had_intent && !self.has_row(&rows::shared_intent_key(row.workspace, &row.request_id))? {
            return Ok(Err(ReservationRefused::Interrupted));
        }
        self.put_shared_intent(row, request.all)?;
        Ok(Ok(Held { pledged: 0, covered: Some(request.all) }))
    }

    /// What each of these workspaces has spent, and what is reserved for its requests, pico-dollars.
    pub(crate) fn standings_of_workspaces(
        &self,
        ids: &[WorkspaceId],
    ) -> Result<Vec<(WorkspaceSpent, u64)>, Gap> {
        let spent = ids.iter().map(|id| Need::Row(Keyspace::Keys, rows::workspace_spend_key(*id)));
        let intents = ids.iter().map(|id| Need::Range(shared_intents(&rows::shared_intents_of(*id))));
        self.view.read_ahead(spent.chain(intents).collect())?;
        let standing = |id: &WorkspaceId| {
            let (intents, spent) = both(self.intents_of(*id), self.workspace_spent(*id))?;
            Ok((spent, intents.iter().map(|intent| intent.amount_pico).fold(0, u64::saturating_add)))
        };
        ids.iter().map(standing).collect()
    }

    /// What each of these keys has spent, and what is reserved for its requests, pico-dollars.
    pub(crate) fn standings_of_keys(&self, keys: &[ApiKey]) -> Result<Vec<(KeySpent, u64)>, Gap> {
        let workspaces: BTreeSet<WorkspaceId> = keys.iter().filter_map(|key| key.workspace).collect();
        let spent = keys.iter().map(|key| Need::Row(Keyspace::Keys, rows::key_spend_key(key.id)));
        let intents = workspaces.iter().map(|id| Need::Range(shared_intents(&rows::shared_intents_of(*id))));
        self.view.read_ahead(spent.chain(intents).collect())?;
        let mut reserved: BTreeMap<KeyId, u64> = BTreeMap::new();
        for workspace in workspaces {
            for Intent { key, amount_pico, .. } in self.intents_of(workspace)? {
                let sum = reserved.entry(key).or_default();
                *sum = sum.saturating_add(amount_pico);
            }
        }
        let reserved_for = |key: &ApiKey| reserved.get(&key.id).copied().unwrap_or_default();
        keys.iter().map(|key| Ok((self.kept(&rows::key_spend_key(key.id))?, reserved_for(key)))).collect()
    }

    /// Writes an intent of the host of the commit's chain. The host may have got another id since the request asked, and
    /// an intent of the former one would be charged by other hosts.
    fn put_shared_intent(&mut self, row: &UsageRow, amount_pico: u64) -> Result<(), Gap> {
        let key = rows::shared_intent_key(row.workspace, &row.request_id);
        let host = self.host.ok_or(Error::NotWritable)?;
        let intent = Intent::of(row, amount_pico).on(&host.to_string());
        self.put_row(Guard::Account(row.workspace), key, &intent)
    }

    /// The limits of a workspace and of a key.
    pub(super) fn terms(&self, workspace: WorkspaceId, key: KeyId) -> Result<Option<Terms>, Gap> {
        let workspace = self.record_of(RecordId::Workspace(workspace));
        let (workspace, key) = both(workspace, self.record_of(RecordId::Key(key)))?;
        let credit = match workspace {
            Some(Record::Workspace(workspace)) => Some(workspace.credit),
            _ => None,
        };
        let key = match &key {
            Some(Record::Key(stored)) => Some(&stored.key),
            _ => None,
        };
        Ok(Terms::of(credit, key))
    }

    /// The intents of a workspace as of this write batch.
    pub(super) fn intents_of(&self, workspace: WorkspaceId) -> Result<Vec<Intent>, Gap> {
        Ok(self.found_intents(workspace)?.into_iter().collect::<Result<_, Error>>()?)
    }

    /// The intents of a workspace as of this write batch, also those that are damaged.
    pub(super) fn found_intents(&self, workspace: WorkspaceId) -> Result<Vec<Result<Intent, Error>>, Gap> {
        let prefix = rows::shared_intents_of(workspace);
        let kept = self.view.range(&shared_intents(&prefix))?.collect::<Result<Vec<_>, Error>>()?;
        let mut found: BTreeMap<&[u8], &[u8]> = kept.iter().map(|(key, row)| (&**key, &**row)).collect();
        for (key, row) in self.rows.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix)) {
            match row {
                Some(row) => found.insert(key, row),
                None => found.remove(&**key),
            };
        }
        let decode = |(key, row)| rows::decode(self.view.keys(), KEYS, key, row).ok_or(Error::Damaged);
        Ok(found.into_iter().map(decode).collect())
    }
}

/// What [`WriteBatch::reserve_shared`] reads.
pub(crate) fn needs_of_reservation(workspace: WorkspaceId, key: KeyId) -> Vec<Need> {
    let rows = [
        RecordId::Workspace(workspace).row_key(),
        RecordId::Key(key).row_key(),
        rows::workspace_spend_key(workspace),
        rows::key_spend_key(key),
    ];
    let rows = rows.into_iter().map(|key| Need::Row(Keyspace::Keys, key));
    rows.chain([Need::Range(shared_intents(&rows::shared_intents_of(workspace)))]).collect()
}

/// The rows of all intents whose key has this prefix.
pub(crate) fn shared_intents(prefix: &[u8]) -> RowRange {
    RowRange::all(Keyspace::Keys).from(prefix).before(rows::after_prefix(prefix))
}

/// The sums of the amounts of these intents of a workspace, and of those of one key among them.
fn amounts<'i>(intents: impl Iterator<Item = &'i Intent>, key: KeyId) -> Amounts {
    let mut amounts = Amounts { workspace: 0, key: 0 };
    for Intent { amount_pico, key: of, .. } in intents {
        amounts.workspace = amounts.workspace.saturating_add(*amount_pico);
        if *of == key {
            amounts.key = amounts.key.saturating_add(*amount_pico);
        }
    }
    amounts
}
