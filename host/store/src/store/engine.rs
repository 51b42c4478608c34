//! The engine that keeps the rows of a store.

use std::path::Path;

use crate::audit::AuditRecord;
use crate::commit::CommitHead;
use crate::error::Error;
use crate::fjall;
use crate::seal::StoreKeys;
use crate::state::State;
use crate::usage::UsageRow;

/// An engine keeps rows and decides nothing.
pub(super) enum Engine {
    /// The embedded engine.
    Fjall(fjall::Engine),
}

impl Engine {
    /// The state after the last commit.
    pub(super) fn state(&self) -> Result<Box<dyn State>, Error> {
        let Engine::Fjall(engine) = self;
        engine.state()
    }

    /// Audit records of commits after `since`, oldest first, at most `limit`.
    pub(super) fn audit_records(&self, since: u64, limit: usize) -> Result<Vec<AuditRecord>, Error> {
        let Engine::Fjall(engine) = self;
        engine.audit_records(since, limit)
    }

    /// The newest usage rows, newest first, at most `limit`.
    pub(super) fn usage_rows(&self, limit: usize) -> Result<Vec<UsageRow>, Error> {
        let Engine::Fjall(engine) = self;
        engine.usage_rows(limit)
    }

    /// Whether what the engine keeps beside the rows proves that no commit up to this one is lost.
    pub(super) fn is_anchored(&self, keys: &StoreKeys, tip: CommitHead) -> bool {
        let Engine::Fjall(engine) = self;
        engine.is_anchored(keys, tip)
    }

    /// The data directory of the process.
    pub(super) fn folder(&self) -> Option<&Path> {
        let Engine::Fjall(engine) = self;
        engine.folder()
    }

    /// Whether a torn batch was cut off the journal at the start.
    pub(super) fn journal_cut(&self) -> bool {
        let Engine::Fjall(engine) = self;
        engine.journal_cut()
    }

    /// Size of the database in bytes.
    pub(super) fn disk_bytes(&self) -> u64 {
        let Engine::Fjall(engine) = self;
        engine.disk_bytes()
    }

    /// Sets how much of the disk must stay free.
    pub(super) fn set_free_bytes_min(&self, bytes: u64) {
        let Engine::Fjall(engine) = self;
        engine.set_free_bytes_min(bytes);
    }

    /// Ends the lanes, whose queue must be closed, and releases what the engine holds.
    pub(super) fn close(&self) {
        let Engine::Fjall(engine) = self;
        engine.close();
    }
}
