//! Credit, reservations and usage reports, as the rest of the program uses them.

use super::Store;
use crate::audit::Actor;
#[cfg(feature = "postgres")]
use crate::changes::WriteBatch;
use crate::changes::{Intent, OldKeys, RowIntent, guarded};
use crate::error::Error;
use crate::ids::WorkspaceId;
use crate::ledger::{Balance, KeySpend, Ledger};
use crate::lookup::{LookupError, RecordKind};
use crate::records::{ApiKey, Credit, Workspace};
use crate::rows::{self, KEYS, Keyspace};
use crate::spend::{UsageDay, day_of};
use crate::state::{Guard, RowRange};
#[cfg(test)]
use crate::token::KeyId;
use crate::usage::{Cell, DAYS_KEPT, Report, UsageQuery, UsageReport};

impl Store {
    /// Credit and spend of a workspace at this moment.
    ///
    /// # Errors
    /// [`Error::Lookup`].
    pub async fn balance(&self, workspace: WorkspaceId) -> Result<Balance, Error> {
        let found = self.balances(vec![workspace]).await?.pop().flatten();
        Ok(found.ok_or_else(|| LookupError::not_found(RecordKind::Workspace, workspace))?)
    }

    /// [`Store::balance`] of these workspaces, in their order; `None` for one that does not exist.
    ///
    /// # Errors
    /// Those of reading, where hosts share the store.
    pub async fn balances(&self, workspaces: Vec<WorkspaceId>) -> Result<Vec<Option<Balance>>, Error> {
        let directory = self.directory();
        let credit_of = |id| Some((id, directory.workspaces.get(&id)?.credit));
        let credits: Vec<Option<(WorkspaceId, Credit)>> = workspaces.into_iter().map(credit_of).collect();
        drop(directory);
        #[cfg(feature = "postgres")]
        if self.0.engine.host_id().is_some() {
            return self.aside(move |store| store.shared_balances(&credits)).await;
        }
        let balance = |(id, credit)| self.ledger().balance(id, credit);
        Ok(credits.into_iter().map(|credit| credit.map(balance)).collect())
    }

    /// Spend of the key with this id at this moment.
    #[cfg(test)]
    pub(crate) async fn key_spend(&self, key: KeyId) -> Result<KeySpend, Error> {
        let found = self.directory().keys.get(&key).cloned();
        let found = found.ok_or_else(|| LookupError::not_found(RecordKind::Key, key))?;
        self.spend_of(&found.key).await
    }

    /// Spend of this key at this moment; nothing for a key that was deleted meanwhile.
    ///
    /// # Errors
    /// Those of [`Store::key_spends`].
    pub async fn spend_of(&self, key: &ApiKey) -> Result<KeySpend, Error> {
        Ok(self.key_spends(vec![key.clone()]).await?.pop().unwrap_or_default())
    }

    /// Spend of these keys at this moment, in their order.
    ///
    /// # Errors
    /// Those of reading, where hosts share the store.
    pub async fn key_spends(&self, keys: Vec<ApiKey>) -> Result<Vec<KeySpend>, Error> {
        #[cfg(feature = "postgres")]
        if self.0.engine.host_id().is_some() {
            return self.aside(move |store| store.shared_key_spends(&keys)).await;
        }
        Ok(keys.iter().map(|key| self.ledger().key_spend(key)).collect())
    }

    /// [`Store::balances`] over all hosts that share the store; `None` stays `None`.
    #[cfg(feature = "postgres")]
    fn shared_balances(&self, of: &[Option<(WorkspaceId, Credit)>]) -> Result<Vec<Option<Balance>>, Error> {
        let workspaces: Vec<WorkspaceId> = of.iter().flatten().map(|(id, _)| *id).collect();
        let mut standings = self.as_committed()?.standings_of_workspaces(&workspaces)?.into_iter();
        let mut balance = |(_, credit): &(WorkspaceId, Credit)| {
            standings.next().map(|(spent, reserved_pico)| Balance::of(*credit, spent, reserved_pico))
        };
        Ok(of.iter().map(|of| of.as_ref().and_then(&mut balance)).collect())
    }

    /// [`Store::key_spends`] over all hosts that share the store.
    #[cfg(feature = "postgres")]
    fn shared_key_spends(&self, keys: &[ApiKey]) -> Result<Vec<KeySpend>, Error> {
        let now_ms = self.0.clock.now_ms();
        let standings = self.as_committed()?.standings_of_keys(keys)?;
        Ok(standings.iter().map(|(spent, reserved)| KeySpend::of(spent, *reserved, now_ms)).collect())
    }

    /// The id of this host among those that share the store.
    #[cfg(all(test, feature = "postgres"))]
    pub(crate) fn host_id(&self) -> Option<crate::postgres::HostId> {
        self.0.engine.host_id()
    }

    /// Charges the requests of all hosts but these.
    #[cfg(all(test, feature = "postgres"))]
    pub(crate) fn charge_interrupted(
        &self,
        live: impl FnOnce() -> std::collections::BTreeSet<String>,
    ) -> Result<usize, Error> {
        self.0.engine.charge_interrupted(&self.0.keys, || Ok(live()))
    }

    /// An empty batch over what is committed, with all requests that have ended on this host.
    #[cfg(feature = "postgres")]
    fn as_committed(&self) -> Result<WriteBatch, Error> {
        let (_, rows) = self.0.queues.lengths();
        if rows > 0 {
            self.0.flushes.share(|| self.flush())?;
        }
        Ok(WriteBatch::new(self.view()?, self.0.clock.now_ms()))
    }

    /// Adds credit to a workspace. An unlimited one becomes prepaid; what it spent before does not
    /// count against the credit.
    ///
    /// # Errors
    /// [`Error::Lookup`], [`Error::TooMuchCredit`], and those of every mutation.
    pub fn add_credit(&self, actor: Actor, id: WorkspaceId, amount_pico: u64) -> Result<Workspace, Error> {
        // Usage rows in the queue were spent before the credit, so they must be in the sum of
        // earlier spend.
        self.flush()?;
        let guards = [Guard::Workspace(id), Guard::Account(id)];
        self.submit(guarded(guards, move |batch| batch.add_credit(actor, id, amount_pico)))
    }

    /// Makes a workspace unlimited. Its balance is lost; credit added later begins a new one.
    ///
    /// # Errors
    /// [`Error::Lookup`], and those of every mutation.
    pub fn set_unlimited(&self, actor: Actor, id: WorkspaceId) -> Result<Workspace, Error> {
        let guard = Guard::Workspace(id);
        self.submit(guarded([guard], move |batch| batch.set_unlimited(actor, id)))
    }

    /// Usage of a range of days, summed in groups. Reads one row per day, workspace, key and model.
    ///
    /// # Errors
    /// [`Error::Engine`], [`Error::Damaged`], [`Error::Closed`].
    pub async fn usage_report(&self, query: UsageQuery) -> Result<UsageReport, Error> {
        self.aside(move |store| store.sum_usage(query)).await
    }

    fn sum_usage(&self, query: UsageQuery) -> Result<UsageReport, Error> {
        let view = self.view()?;
        let start = rows::day_totals_start(query.first.0);
        let end = rows::day_totals_start(query.last.0.saturating_add(1));
        let mut report = Report::new(query);
        for row in view.range(&RowRange::all(Keyspace::Keys).from(start).before(end))? {
            let (key, value) = row?;
            let totals = rows::decode(view.keys(), KEYS, &key, &value).ok_or(Error::Damaged)?;
            report.add(Cell::from_row_key(&key).ok_or(Error::Damaged)?, &totals);
        }
        Ok(report.finish())
    }

    /// The first day whose totals are kept.
    pub fn first_usage_day(&self) -> UsageDay {
        UsageDay(day_of(self.0.clock.now_ms()).saturating_add(1).saturating_sub(DAYS_KEPT))
    }

    /// Deletes daily totals that are too old. Usage rows are kept. To be called regularly.
    ///
    /// # Errors
    /// [`Error::Engine`], and those of every mutation.
    pub fn drop_old_totals(&self) -> Result<(), Error> {
        let day = self.first_usage_day().0;
        let drop = || guarded([Guard::Store], move |batch| batch.drop_totals_before(day));
        while self.submit(drop())? {}
        Ok(())
    }

    /// Deletes keys that were revoked before [`Store::first_usage_day`]: no daily totals name them
    /// any more. Their usage rows are kept. To be called regularly.
    ///
    /// # Errors
    /// Those of every mutation.
    pub fn drop_old_keys(&self) -> Result<(), Error> {
        let day = self.first_usage_day().0;
        while let Some(old) = OldKeys::before(&self.directory(), day) {
            let gone = self.submit(guarded(old.guards(), move |batch| batch.drop_old_keys(&old, day)))?;
            if gone.is_empty() {
                break;
            }
            self.ledger().forget(&gone);
        }
        Ok(())
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.0.ledger
    }

    /// Charges what was reserved for requests whose end is unknown. Their usage rows remove the
    /// intents.
    pub(super) fn settle_interrupted(&self, intents: Vec<Intent>) -> Result<(), Error> {
        if intents.is_empty() {
            return Ok(());
        }
        tracing::warn!(
            requests = intents.len(),
            "requests were running when the host ended; they are charged \
            what was reserved for them"
        );
        for intent in intents {
            // Those of several hosts come from a database.
            let kind = if intent.host().is_some() { RowIntent::Shared } else { RowIntent::Possible };
            self.ledger().record(intent.settled(kind)).map_err(|_| Error::NotWritable)?;
        }
        self.flush()
    }
}
