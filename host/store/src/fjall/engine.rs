//! The embedded engine while its store is open.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use super::lane::CommitWriter;
use super::{Anchor, AnchorContent, Database, DirectoryLock, log};
use crate::audit::AuditRecord;
use crate::clock::Clock;
use crate::commit::CommitHead;
use crate::error::Error;
use crate::published::PublishedState;
use crate::queue::WriteQueue;
use crate::seal::StoreKeys;
use crate::space::DiskSpace;
use crate::state::State;
use crate::usage::UsageRow;
use crate::vault::VaultReader;

/// The database with the one lane that writes to it, and the files beside it.
pub(crate) struct Engine {
    shared: Arc<PublishedState>,
    space: Arc<DiskSpace>,
    anchor: PathBuf,
    journal_cut: bool,
    held: Mutex<Option<OpenParts>>,
}

/// What [`Engine::close`] releases.
struct OpenParts {
    writer: JoinHandle<()>,
    database: Database,
    lock: DirectoryLock,
}

/// What the engine starts with: a store that passed all checks of opening.
pub(crate) struct Start {
    pub(crate) lock: DirectoryLock,
    pub(crate) database: Database,
    pub(crate) anchor: Anchor,
    pub(crate) anchor_file: PathBuf,
    pub(crate) journal_cut: bool,
}

impl Engine {
    /// Starts the writer's thread.
    ///
    /// # Errors
    /// The system starts no thread.
    pub(crate) fn start(
        start: Start,
        access: VaultReader,
        queue: Arc<WriteQueue>,
        shared: Arc<PublishedState>,
        clock: Clock,
    ) -> io::Result<Engine> {
        let Start { lock, database, anchor, anchor_file, journal_cut } = start;
        let space = Arc::new(DiskSpace::new(lock.dir()));
        let writer = CommitWriter {
            database: database.clone(),
            access,
            anchor,
            last_commit: shared.last_commit(),
            queue,
            shared: Arc::clone(&shared),
            clock,
            space: Arc::clone(&space),
            #[cfg(test)]
            trial: crate::loaded::Trial::begin(),
        };
        let writer = Builder::new().name("store-writer".to_owned()).spawn(move || writer.run())?;
        let held = Mutex::new(Some(OpenParts { writer, database, lock }));
        Ok(Engine { shared, space, anchor: anchor_file, journal_cut, held })
    }

    /// The state after the last commit.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub(crate) fn state(&self) -> Result<Box<dyn State>, Error> {
        Ok(self.database()?.state(self.shared.directory.load_full()))
    }

    /// See [`log::audit_records`].
    pub(crate) fn audit_records(&self, since: u64, limit: usize) -> Result<Vec<(u64, AuditRecord)>, Error> {
        log::audit_records(&self.database()?.log, since, limit)
    }

    /// See [`log::audit_records_before`].
    pub(crate) fn audit_records_before(
        &self,
        before: u64,
        limit: usize,
    ) -> Result<Vec<(u64, AuditRecord)>, Error> {
        log::audit_records_before(&self.database()?.log, before, limit)
    }

    /// See [`log::usage_rows`].
    pub(crate) fn usage_rows(&self, limit: usize) -> Result<Vec<UsageRow>, Error> {
        log::usage_rows(&self.database()?.log, limit)
    }

    /// Whether the anchor file is of this commit, or of a later one.
    pub(crate) fn is_anchored(&self, keys: &StoreKeys, last_commit: CommitHead) -> bool {
        let anchored = Anchor::open(&self.anchor).and_then(|anchor| anchor.read(keys));
        match anchored {
            Ok(AnchorContent::Slot(slot)) if slot.seq == last_commit.seq => slot.head == last_commit.head,
            Ok(AnchorContent::Slot(slot)) => slot.seq > last_commit.seq,
            Ok(AnchorContent::OtherStore | AnchorContent::Nothing) | Err(_) => false,
        }
    }

    /// The data directory.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.anchor.parent()
    }

    /// Whether a torn batch was cut off the journal at the start.
    pub(crate) fn journal_cut(&self) -> bool {
        self.journal_cut
    }

    /// Size of the database on the disk in bytes, after the last commit.
    pub(crate) fn disk_bytes(&self) -> u64 {
        self.shared.disk_bytes.load(Ordering::Relaxed)
    }

    /// See [`DiskSpace::set_free_bytes_min`].
    pub(crate) fn set_free_bytes_min(&self, bytes: u64) {
        self.space.set_free_bytes_min(bytes);
    }

    /// Waits for the end of the writer, whose queue must be closed, closes the database and releases
    /// the directory. Closing twice is harmless.
    pub(crate) fn close(&self) {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(OpenParts { writer, database, lock }) = held else { return };
        if writer.join().is_err() {
            tracing::error!("the store's writer panicked");
        }
        // The next holder of the lock must find the database closed.
        drop(database);
        drop(lock);
    }

    fn database(&self) -> Result<Database, Error> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.as_ref().map(|held| held.database.clone()).ok_or(Error::Closed)
    }
}
