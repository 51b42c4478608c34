//! A summary of the store's state, for health checks, metrics and commands.

use super::Store;
use crate::ids::StoreId;
use crate::knowledge::RequestPurpose;
use crate::measure::HistogramReading;
use crate::queue::QueuePart;
use crate::root_key::RootKeyId;

/// Summary of the store's state.
#[derive(Clone, Copy, Debug)]
pub struct StoreStatus {
    /// Id of the store.
    pub store_id: StoreId,
    /// Sequence number of the last commit.
    pub seq: u64,
    /// Id of the root key it is wrapped under.
    pub root_key_id: RootKeyId,
    /// Id of the new root key, during a rotation.
    pub next_root_key_id: Option<RootKeyId>,
    /// Whether a recovery key can open it too.
    pub has_recovery_key: bool,
    /// Whether it was opened with the recovery key. Then it needs a root key: `vault rotate-root`.
    pub opened_with_recovery_key: bool,
    /// Whether a rotation of the vaults' keys is unfinished: `vault rotate-keys` continues it.
    pub key_rotation_unfinished: bool,
    /// Whether it accepts writes.
    pub writable: bool,
    /// Whether it can vouch for what it knows. Without contact with its database, requests are refused.
    pub has_contact: bool,
    /// Whether a write has failed. It accepts writes again only after a restart.
    pub failed: bool,
    /// Duration of the commit in progress in milliseconds, once it has taken 10 s.
    pub stalled_for_ms: Option<u64>,
    /// Whether a torn batch was cut off the journal when the store was opened.
    pub journal_cut: bool,
    /// How often a damaged row of a vault was read since the store was opened.
    pub damaged_rows_met: u64,
    /// Number of mutations in the writer's queue.
    pub queued_mutations: usize,
    /// Number of usage rows in the writer's queue.
    pub queued_usage_rows: usize,
}

impl Store {
    /// The current summary. Never waits for the writer.
    pub fn status(&self) -> StoreStatus {
        let (queued_mutations, queued_usage_rows) = self.0.queues.lengths();
        let header = self.0.header.load();
        StoreStatus {
            store_id: self.0.keys.store_id(),
            seq: self.0.shared.last_commit().seq,
            root_key_id: header.root.id,
            next_root_key_id: header.next_root.as_ref().map(|next| next.id),
            has_recovery_key: header.recovery.is_some(),
            opened_with_recovery_key: !self.has_root_key(),
            key_rotation_unfinished: header.key_rotation_since_ms.is_some(),
            writable: self.is_writable(),
            has_contact: self.has_contact(),
            failed: self.0.shared.has_failed(),
            stalled_for_ms: self.stalled_for_ms(),
            journal_cut: self.0.engine.journal_cut(),
            damaged_rows_met: self.0.access.damage.met(),
            queued_mutations,
            queued_usage_rows,
        }
    }

    /// The hosts of the database that has the store, each as `HOST:PORT`, in the order in which they
    /// are tried; `None` for the embedded engine.
    pub fn database_hosts(&self) -> Option<&[String]> {
        self.0.database_hosts.as_deref()
    }

    /// How long commits took to write, in microseconds.
    pub fn commits(&self) -> HistogramReading {
        self.0.shared.commits.reading()
    }

    /// The parts of the writer's queue.
    pub fn queue_parts(&self) -> [QueuePart; 3] {
        self.0.queues.parts()
    }

    /// Size of the database on the disk in bytes, after the last commit.
    pub fn disk_bytes(&self) -> u64 {
        self.0.engine.disk_bytes()
    }

    /// False after a failed write and after closing.
    pub fn is_writable(&self) -> bool {
        self.0.shared.is_running()
    }

    /// Whether this host can vouch for what it knows: always, unless the store is in a database and other
    /// hosts may have changed it unseen. Without contact, authentication, reads and changes fail.
    pub fn has_contact(&self) -> bool {
        self.0.shared.has_contact()
    }

    /// Whether requests of models are served: with contact, and for `store.stale_ms` after it.
    pub fn serves_models(&self) -> bool {
        RequestPurpose::Model.allows(self.0.shared.knowledge())
    }

    /// How long ago the last contact with the database was given, and how long ago the last changes of
    /// other hosts were asked for, in milliseconds. `None` for a store without a database.
    pub fn contact_ages_ms(&self) -> Option<[u64; 2]> {
        self.0.shared.contact_ages_ms()
    }

    /// True while a commit has taken 10 s or more. For the watchdog.
    pub fn is_stalled(&self) -> bool {
        self.stalled_for_ms().is_some()
    }

    /// Duration of the commit in progress in milliseconds, once it has taken 10 s.
    pub fn stalled_for_ms(&self) -> Option<u64> {
        self.0.shared.stalled_for_ms()
    }
}
