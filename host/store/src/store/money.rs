//! Credit, reservations and usage reports, as the rest of the program uses them.

use super::Store;
use crate::audit::Actor;
use crate::changes::{Intent, OldKeys, guarded};
use crate::error::Error;
use crate::ids::WorkspaceId;
use crate::ledger::{Balance, KeySpend, Ledger};
use crate::lookup::{LookupError, RecordKind};
use crate::records::Workspace;
use crate::rows::{self, KEYS, Keyspace};
use crate::spend::{UsageDay, day_of};
use crate::state::{Guard, RowRange};
use crate::token::KeyId;
use crate::usage::{Cell, DAYS_KEPT, Report, UsageQuery, UsageReport};

impl Store {
    /// Credit and spend of a workspace at this moment.
    ///
    /// # Errors
    /// [`Error::Lookup`].
    pub async fn balance(&self, workspace: WorkspaceId) -> Result<Balance, Error> {
        let directory = self.directory();
        let found = directory.workspaces.get(&workspace);
        let found = found.ok_or_else(|| LookupError::not_found(RecordKind::Workspace, workspace))?;
        Ok(self.ledger().balance(workspace, found.credit))
    }

    /// Spend of a key at this moment. Its limits are in its record.
    ///
    /// # Errors
    /// [`Error::Lookup`].
    pub async fn key_spend(&self, key: KeyId) -> Result<KeySpend, Error> {
        let directory = self.directory();
        let found = directory.keys.get(&key).ok_or_else(|| LookupError::not_found(RecordKind::Key, key))?;
        Ok(self.ledger().key_spend(&found.key))
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
        self.submit(guarded(guards, move |draft| draft.add_credit(actor, id, amount_pico)))
    }

    /// Makes a workspace unlimited. Its balance is lost; credit added later begins a new one.
    ///
    /// # Errors
    /// [`Error::Lookup`], and those of every mutation.
    pub fn set_unlimited(&self, actor: Actor, id: WorkspaceId) -> Result<Workspace, Error> {
        let guard = Guard::Workspace(id);
        self.submit(guarded([guard], move |draft| draft.set_unlimited(actor, id)))
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
        let drop = || guarded([Guard::Store], move |draft| draft.drop_totals_before(day));
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
            let gone = self.submit(guarded(old.guards(), move |draft| draft.drop_old_keys(&old, day)))?;
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
            self.ledger().record(intent.interrupted(), true).map_err(|_| Error::NotWritable)?;
        }
        self.flush()
    }
}
