//! Copying a store into a database.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::database::given;
use super::{MoveSummary, OpenOptions, Store};
use crate::audit::{Actor, AuditAction};
use crate::backup::{RestoreSummary, Sealed, StoreContent};
use crate::changes::guarded;
use crate::database::Database;
use crate::digest::Digest;
use crate::error::{Error, OpenError};
use crate::fjall::DirectoryLock;
use crate::open::{Arrival, Unlocked, mark_moved, unlock};
use crate::operation::{Progress, VaultError, tell};
use crate::postgres::{self, Copy, Departure, HostId, ListedHost, ReadingRuntime, has_copy};
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
        let last_commit = self.0.shared.last_commit();
        let end = (last_commit.seq, last_commit.head);
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
        note(database, options, AuditAction::Moved { seq: last_commit.seq })?;
        Ok(MoveSummary { seq: last_commit.seq, rows, secrets: found.secrets, keys: found.keys })
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

/// How long a host that shows no sign of life is waited for: a bit longer than until others end it.
const DEAD_PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 20 } else { 45 });
/// Time between two looks at the hosts: longer than from one of their signs of life to the next.
const LOOK_EVERY: Duration = Duration::from_secs(3);

impl Store {
    /// Moves the store of a database into a data directory that has none. It is checked before and after. The
    /// rows in the database stay, and a mark there keeps every host from serving them again. Run again after it
    /// was cut short, it goes on; `None` if only its end was left to do.
    ///
    /// # Errors
    /// [`OpenError::InUse`], [`OpenError::MovedAway`], [`VaultError::HasStore`], [`OpenError::Database`],
    /// [`Error::Damaged`], [`VaultError::Stopped`].
    pub fn move_back(
        lock: &DirectoryLock,
        database: &Database,
        options: &OpenOptions,
        progress: &mut Progress<'_>,
    ) -> Result<Option<MoveSummary>, VaultError> {
        let arrival = Arrival::look(lock.dir())?;
        let connector = &database.connector;
        let runtime = ReadingRuntime::new().map_err(OpenError::Thread)?;
        let [header, record] = postgres::head_rows(connector, runtime.handle())?;
        if header.is_none() && record.is_none() {
            return Err(OpenError::NoStore.into());
        }
        let Unlocked { header, keys, .. } = unlock(header.as_deref(), record.as_deref(), given(options))?;
        match header.moved {
            Some(id) if arrival.is_of(&id) => {
                arrival.end()?;
                return Ok(None);
            }
            Some(_) => return Err(OpenError::MovedAway.into()),
            None => {}
        }
        // As a host it ends those that are dead, and charges what their requests had reserved.
        let store = Store::open_for_command(database, options)?;
        let waited = store.wait_for_hosts(connector, &runtime, progress).and_then(|()| Ok(store.flush()?));
        store.close();
        waited?;
        let departure = Departure::begin(connector, runtime.handle(), &Arc::new(keys))?;
        let mut id = [0; 16];
        getrandom::fill(&mut id)?;
        let id = crate::hex::encode(&id);
        let view = departure.view();
        let content = StoreContent::read(&view, progress)?;
        if let Some(problem) = content.checked.problems.first() {
            tracing::error!(problem, "the store is damaged and was not moved");
            return Err(Error::Damaged.into());
        }
        let (checked, rows) = arrival.build(&id, &content, &options.clock, progress)?;
        let seq = content.end.0;
        drop(content);
        drop(view);
        departure.end(&id)?;
        arrival.end()?;
        Ok(Some(MoveSummary { seq, rows, secrets: checked.secrets, keys: checked.keys }))
    }

    /// Waits until no other host has a row in the database.
    fn wait_for_hosts(
        &self,
        database: &Arc<postgres::Database>,
        runtime: &ReadingRuntime,
        progress: &mut Progress<'_>,
    ) -> Result<(), VaultError> {
        let own = self.0.engine.host_id();
        let mut beats: BTreeMap<HostId, i64> = BTreeMap::new();
        let (began, mut pause) = (Instant::now(), Duration::ZERO);
        loop {
            let mut others = postgres::hosts(database, runtime.handle(), &self.0.keys, pause)?;
            pause = LOOK_EVERY;
            others.retain(|(id, ..)| Some(*id) != own);
            let live = |(id, beat, _): &&ListedHost| beats.get(id).is_some_and(|before| before < beat);
            let mut live: Vec<String> = others.iter().filter(live).map(|(.., about)| about.clone()).collect();
            if live.is_empty() && began.elapsed() >= DEAD_PATIENCE {
                live = others.iter().map(|(.., about)| about.clone()).collect();
            }
            if !live.is_empty() {
                return Err(OpenError::InUse(live).into());
            }
            if others.is_empty() {
                return Ok(());
            }
            beats = others.into_iter().map(|(id, beat, _)| (id, beat)).collect();
            tell(progress, "hosts without a sign of life waited for", beats.len() as u64, 0)?;
        }
    }
}

#[cfg(test)]
impl Store {
    /// What a copy is made with, besides the rows.
    pub(crate) fn keys_and_last_commit(&self) -> (Arc<crate::seal::StoreKeys>, crate::commit::CommitHead) {
        (Arc::clone(&self.0.keys), self.0.shared.last_commit())
    }
}

/// Records in the copy where it comes from, which also shows that it accepts commits.
fn note(database: &Database, options: &OpenOptions, action: AuditAction) -> Result<(), VaultError> {
    let store = Store::open_for_command(database, options)?;
    let record = guarded([Guard::Store], move |batch| {
        batch.audit(Actor::Operator, action.clone());
        Ok(())
    });
    store.submit(record)?;
    store.close();
    Ok(())
}
