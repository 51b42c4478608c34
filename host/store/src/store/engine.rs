//! The engine that keeps the rows of a store.

use std::path::Path;
use std::sync::Arc;

use crate::audit::AuditRecord;
#[cfg(feature = "postgres")]
use crate::changes::Slices;
use crate::commit::CommitHead;
use crate::error::Error;
use crate::fjall;
use crate::hosts::{HostFacts, StoreSchema};
use crate::operation::{Progress, VaultError};
#[cfg(feature = "postgres")]
use crate::postgres::{self, HostId};
use crate::seal::StoreKeys;
use crate::shared_limits::SharedLimits;
use crate::spend::UsageDay;
use crate::state::State;
use crate::usage::UsageRow;

/// An engine keeps rows and decides nothing.
pub(super) enum Engine {
    /// The embedded engine.
    Fjall(fjall::Engine),
    /// A database for several hosts.
    #[cfg(feature = "postgres")]
    Postgres(postgres::Engine),
}

impl Engine {
    /// The state after the last commit.
    pub(super) fn state(&self) -> Result<Box<dyn State>, Error> {
        match self {
            Engine::Fjall(engine) => engine.state(),
            #[cfg(feature = "postgres")]
            Engine::Postgres(engine) => engine.state(),
        }
    }

    /// What a backup reads.
    #[cfg_attr(not(feature = "postgres"), expect(unused_variables, reason = "nothing is waited for"))]
    pub(super) fn backup_state(&self, progress: &mut Progress<'_>) -> Result<Box<dyn State>, VaultError> {
        match self {
            Engine::Fjall(engine) => Ok(engine.state()?),
            #[cfg(feature = "postgres")]
            Engine::Postgres(engine) => engine.backup_state(progress),
        }
    }

    /// Audit records after the position `since`, oldest first, at most `limit`, each with its position.
    pub(super) fn audit_records(&self, since: u64, limit: usize) -> Result<Vec<(u64, AuditRecord)>, Error> {
        match self {
            Engine::Fjall(engine) => engine.audit_records(since, limit),
            #[cfg(feature = "postgres")]
            Engine::Postgres(engine) => engine.audit_records(since, limit),
        }
    }

    /// The newest audit records before the position `before`, oldest first, as for [`Engine::audit_records`].
    pub(super) fn audit_records_before(
        &self,
        before: u64,
        limit: usize,
    ) -> Result<Vec<(u64, AuditRecord)>, Error> {
        match self {
            Engine::Fjall(engine) => engine.audit_records_before(before, limit),
            #[cfg(feature = "postgres")]
            Engine::Postgres(engine) => engine.audit_records_before(before, limit),
        }
    }

    /// The newest usage rows, newest first, at most `limit`.
    pub(super) fn usage_rows(&self, limit: usize) -> Result<Vec<UsageRow>, Error> {
        match self {
            Engine::Fjall(engine) => engine.usage_rows(limit),
            #[cfg(feature = "postgres")]
            Engine::Postgres(engine) => engine.usage_rows(limit),
        }
    }

    /// Whether what the engine keeps beside the rows proves that no commit up to this one is lost.
    pub(super) fn is_anchored(&self, keys: &StoreKeys, last_commit: CommitHead) -> bool {
        match self {
            Engine::Fjall(engine) => engine.is_anchored(keys, last_commit),
            // A lane goes on only from the end of its chain that it has seen itself.
            #[cfg(feature = "postgres")]
            Engine::Postgres(_) => true,
        }
    }

    /// The id of this host among those that share the store; `None` where one process has it alone.
    #[cfg(feature = "postgres")]
    pub(super) fn host_id(&self) -> Option<HostId> {
        match self {
            Engine::Fjall(_) => None,
            Engine::Postgres(engine) => Some(engine.host_id()),
        }
    }

    /// The slices of this host, if it reserves out of any.
    #[cfg(feature = "postgres")]
    pub(super) fn slices(&self) -> Option<&Arc<Slices>> {
        match self {
            Engine::Fjall(_) => None,
            Engine::Postgres(engine) => engine.slices(),
        }
    }

    /// What all hosts that share the store tell about themselves; none where one process has it alone.
    #[cfg_attr(not(feature = "postgres"), expect(unused_variables, reason = "one process has the store"))]
    pub(super) fn hosts(&self, keys: &Arc<StoreKeys>) -> Result<Vec<HostFacts>, Error> {
        match self {
            Engine::Fjall(_) => Ok(Vec::new()),
            #[cfg(feature = "postgres")]
            Engine::Postgres(engine) => engine.hosts(keys),
        }
    }

    /// The schema of the database; `None` where the rows are in a data directory.
    pub(super) fn schema(&self) -> Result<Option<StoreSchema>, Error> {
        match self {
            Engine::Fjall(_) => Ok(None),
            #[cfg(feature = "postgres")]
            Engine::Postgres(engine) => {
                Ok(Some(StoreSchema { number: engine.schema()?, newest: postgres::NEWEST_SCHEMA }))
            }
        }
    }

    /// Makes the migrations that the schema of the database lacks. Returns its number before and now; `None`
    /// where the rows are in a data directory.
    #[cfg_attr(not(feature = "postgres"), expect(unused_variables, reason = "no engine has a schema"))]
    pub(super) fn upgrade(&self, keys: &StoreKeys) -> Result<Option<(u32, u32)>, VaultError> {
        match self {
            Engine::Fjall(_) => Ok(None),
            #[cfg(feature = "postgres")]
            Engine::Postgres(engine) => match engine.upgrade(keys)? {
                postgres::Upgrade::Done { from, to } => Ok(Some((from, to))),
                postgres::Upgrade::OlderHosts(hosts) => {
                    Err(VaultError::HostsTooOld { schema: postgres::NEWEST_SCHEMA, hosts })
                }
            },
        }
    }

    /// Number of usage rows of commits before this day; `None` where they are in a data directory.
    #[cfg_attr(not(feature = "postgres"), expect(unused_variables, reason = "no engine drops usage rows"))]
    pub(super) fn usage_before(&self, day: UsageDay) -> Result<Option<u64>, VaultError> {
        match self {
            Engine::Fjall(_) => Ok(None),
            #[cfg(feature = "postgres")]
            Engine::Postgres(engine) => engine.usage_before(day.0.cast_signed()).map(Some),
        }
    }

    /// Deletes the usage rows of commits before this day.
    #[cfg_attr(not(feature = "postgres"), expect(unused_variables, reason = "no engine drops usage rows"))]
    pub(super) fn drop_usage_before(&self, day: UsageDay) -> Result<(), VaultError> {
        match self {
            Engine::Fjall(_) => Err(VaultError::UsageKept),
            #[cfg(feature = "postgres")]
            Engine::Postgres(engine) => engine.drop_usage_before(day.0.cast_signed()),
        }
    }

    /// Sets the digest of the configuration, for other hosts.
    #[cfg_attr(not(feature = "postgres"), expect(unused_variables, reason = "one process has the store"))]
    pub(super) fn set_configuration(&self, digest: String) {
        match self {
            Engine::Fjall(_) => {}
            #[cfg(feature = "postgres")]
            Engine::Postgres(engine) => engine.about().set_configuration(digest),
        }
    }

    /// The limits that this host shares with others; `None` where one process has the store alone.
    pub(super) fn shared_limits(&self) -> Option<SharedLimits> {
        match self {
            Engine::Fjall(_) => None,
            #[cfg(feature = "postgres")]
            Engine::Postgres(engine) => Some(engine.shared_limits().clone()),
        }
    }

    /// See [`postgres::Engine::charge_interrupted`].
    #[cfg(all(test, feature = "postgres"))]
    pub(super) fn charge_interrupted(
        &self,
        keys: &StoreKeys,
        live: impl FnOnce() -> Result<std::collections::BTreeSet<String>, Error>,
    ) -> Result<usize, Error> {
        match self {
            Engine::Fjall(_) => Ok(0),
            Engine::Postgres(engine) => engine.charge_interrupted(keys, live),
        }
    }

    /// The data directory of the process.
    pub(super) fn folder(&self) -> Option<&Path> {
        match self {
            Engine::Fjall(engine) => engine.folder(),
            #[cfg(feature = "postgres")]
            Engine::Postgres(_) => None,
        }
    }

    /// Whether a torn batch was cut off the journal at the start.
    pub(super) fn journal_cut(&self) -> bool {
        match self {
            Engine::Fjall(engine) => engine.journal_cut(),
            #[cfg(feature = "postgres")]
            Engine::Postgres(_) => false,
        }
    }

    /// Size of the database in bytes; 0 where only the server of the database knows it.
    pub(super) fn disk_bytes(&self) -> u64 {
        match self {
            Engine::Fjall(engine) => engine.disk_bytes(),
            #[cfg(feature = "postgres")]
            Engine::Postgres(_) => 0,
        }
    }

    /// Sets how much of this machine's disk must stay free, where the rows are on it.
    pub(super) fn set_free_bytes_min(&self, bytes: u64) {
        match self {
            Engine::Fjall(engine) => engine.set_free_bytes_min(bytes),
            #[cfg(feature = "postgres")]
            Engine::Postgres(_) => {}
        }
    }

    /// Begins to give back what is reserved for requests to come. To be called before the queues are closed.
    pub(super) fn give_back(&self) {
        match self {
            Engine::Fjall(_) => {}
            #[cfg(feature = "postgres")]
            Engine::Postgres(engine) => engine.give_back(),
        }
    }

    /// Ends the lanes, whose queues must be closed, and releases what the engine holds.
    pub(super) fn close(&self) {
        match self {
            Engine::Fjall(engine) => engine.close(),
            #[cfg(feature = "postgres")]
            Engine::Postgres(engine) => engine.close(),
        }
    }
}
