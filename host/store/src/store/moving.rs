//! Copying a store into a database.

use std::sync::Arc;

use super::database::given;
use super::{MoveSummary, OpenOptions, Store};
use crate::audit::{Actor, AuditAction};
use crate::backup::{RestoreSummary, Sealed};
use crate::changes::guarded;
use crate::database::Database;
use crate::digest::Digest;
use crate::error::{Error, OpenError};
use crate::open::mark_moved;
use crate::operation::{Progress, VaultError};
use crate::postgres::{Copy, ReadingRuntime, has_copy};
use crate::rows::Keyspace;
use crate::state::{Guard, RowRange};

impl Store {
    /// Moves the store into a database that has none. It is checked before and after. The store of the
    /// data directory stays, and a note beside it keeps it from being served again. Run again after it was
    /// cut short, it goes on where it was.
    ///
    /// # Errors
    /// [`OpenError::StoreExists`], [`OpenError::Database`], [`Error::Damaged`], [`VaultError::Stopped`].
    pub fn move_to(
        &self,
        database: &Database,
        options: &OpenOptions,
        progress: &mut Progress<'_>,
    ) -> Result<MoveSummary, VaultError> {
        self.flush()?;
        let found = self.verify(progress)?;
        if let Some(problem) = found.problems.first() {
            tracing::error!(problem, "the store is damaged and was not copied");
            return Err(Error::Damaged.into());
        }
        let runtime = ReadingRuntime::new().map_err(OpenError::Thread)?;
        let tip = self.0.shared.tip();
        let end = (tip.seq, tip.head);
        let rows = match Copy::begin(&database.connector, runtime.handle(), &self.0.keys) {
            Ok(copy) => self.copy_to(copy, end, progress)?,
            // A move that was cut short after its commit.
            Err(OpenError::StoreExists)
                if has_copy(&database.connector, runtime.handle(), &self.0.keys, end)? =>
            {
                tracing::warn!("the database has the copy already; it was checked when it was made");
                self.rows()?
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(folder) = self.0.engine.folder() {
            mark_moved(folder)?;
        }
        note(database, options, AuditAction::Moved { seq: tip.seq })?;
        Ok(MoveSummary { seq: tip.seq, rows, secrets: found.secrets, keys: found.keys })
    }

    /// Copies all rows. Returns their number.
    fn copy_to(
        &self,
        mut copy: Copy<'_>,
        end: (u64, Digest),
        progress: &mut Progress<'_>,
    ) -> Result<u64, VaultError> {
        let state = self.0.engine.state()?;
        for keyspace in Keyspace::ALL {
            for row in state.range(&RowRange::all(keyspace)).map_err(Error::from)? {
                let (key, row) = row?;
                copy.row(keyspace, &key, &row)?;
            }
        }
        Ok(copy.finish(end, Arc::clone(&self.directory()), progress)?.1)
    }

    /// Number of all rows.
    fn rows(&self) -> Result<u64, VaultError> {
        let state = self.0.engine.state()?;
        let mut rows = 0;
        for keyspace in Keyspace::ALL {
            for row in state.range(&RowRange::all(keyspace).keys()).map_err(Error::from)? {
                row?;
                rows += 1;
            }
        }
        Ok(rows)
    }

    /// Restores a backup into a database that has no store. Either the whole backup is valid and the store
    /// is made, or nothing is.
    ///
    /// # Errors
    /// [`OpenError::StoreExists`], [`OpenError::Database`], [`VaultError::Unusable`],
    /// [`VaultError::File`], [`VaultError::Stopped`], and those of a wrong root key.
    pub fn restore_into(
        database: &Database,
        options: &OpenOptions,
        path: &std::path::Path,
        progress: &mut Progress<'_>,
    ) -> Result<RestoreSummary, VaultError> {
        let sealed = Sealed::open(path, |header| Ok(given(options).choose(header)?.0))?;
        let runtime = ReadingRuntime::new().map_err(OpenError::Thread)?;
        let mut copy = Copy::begin(&database.connector, runtime.handle(), &sealed.keys)?;
        sealed.rows(|keyspace, key, row| {
            let Some(keyspace) = Keyspace::ALL.get(keyspace) else { return Ok(()) };
            copy.row(*keyspace, &key, &row)
        })?;
        let (seq, head) = (sealed.preamble.seq, sealed.preamble.head);
        let made_at_ms = sealed.preamble.made_at_ms;
        let (checked, _) = copy.finish((seq, head), Arc::default(), progress)?;
        note(database, options, AuditAction::Restored { made_at_ms, seq })?;
        Ok(sealed.summary(options.clock.now_ms(), &checked))
    }
}

#[cfg(test)]
impl Store {
    /// What a copy is made with, besides the rows.
    pub(crate) fn keys_and_tip(&self) -> (Arc<crate::seal::StoreKeys>, crate::commit::CommitHead) {
        (Arc::clone(&self.0.keys), self.0.shared.tip())
    }
}

/// Records in the copy where it comes from, which also shows that it accepts commits.
fn note(database: &Database, options: &OpenOptions, action: AuditAction) -> Result<(), VaultError> {
    let store = Store::open_for_command(database, options)?;
    let record = guarded([Guard::Store], move |draft| {
        draft.audit(Actor::Operator, action.clone());
        Ok(())
    });
    store.submit(record)?;
    store.close();
    Ok(())
}
