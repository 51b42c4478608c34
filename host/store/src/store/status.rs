//! The store at a glance.

use super::Store;
use crate::ids::StoreId;
use crate::root_key::RootKeyId;

/// A look at the store from outside.
#[derive(Clone, Copy, Debug)]
pub struct StoreStatus {
    /// Which store.
    pub store_id: StoreId,
    /// Number of the last commit.
    pub seq: u64,
    /// The root key it is wrapped under.
    pub root_key_id: RootKeyId,
    /// The root key that a rotation under way leads to.
    pub next_root_key_id: Option<RootKeyId>,
    /// Whether a recovery key can open it too.
    pub has_recovery_key: bool,
    /// Whether the recovery key has opened it: then `vault rotate-root` is due.
    pub opened_with_recovery_key: bool,
    /// Whether a rotation of the vaults' keys was begun and not ended: `vault rotate-keys` goes on with it.
    pub key_rotation_unfinished: bool,
    /// Whether it takes writes.
    pub writable: bool,
    /// Whether a write has failed; only a restart cures that.
    pub failed: bool,
    /// How long one commit has been on its way, once that is 10 s or more.
    pub stalled_for_ms: Option<u64>,
    /// Whether opening had to cut a torn batch off the journal.
    pub journal_cut: bool,
    /// How often a row of a vault was met since opening that does not prove to be ours.
    pub damaged_rows_met: u64,
    /// Mutations waiting for the writer.
    pub queued_mutations: usize,
    /// Usage rows waiting for the writer.
    pub queued_usage_rows: usize,
}

impl Store {
    /// The store at a glance. Never waits for the writer.
    pub fn status(&self) -> StoreStatus {
        let (queued_mutations, queued_usage_rows) = self.0.queue.lengths();
        let header = self.0.header.load();
        StoreStatus {
            store_id: self.0.keys.store_id(),
            seq: self.0.shared.tip().seq,
            root_key_id: header.root.id,
            next_root_key_id: header.next_root.as_ref().map(|next| next.id),
            has_recovery_key: header.recovery.is_some(),
            opened_with_recovery_key: self.0.keys.wrap_keys().root.is_none(),
            key_rotation_unfinished: header.key_rotation_since_ms.is_some(),
            writable: self.is_writable(),
            failed: self.0.shared.has_failed(),
            stalled_for_ms: self.stalled_for_ms(),
            journal_cut: self.0.journal_cut,
            damaged_rows_met: self.0.damage.met(),
            queued_mutations,
            queued_usage_rows,
        }
    }

    /// False after a failed write and after closing.
    pub fn is_writable(&self) -> bool {
        self.0.shared.is_running()
    }

    /// The watchdog: true while one commit has been on its way for 10 s or more.
    pub fn is_stalled(&self) -> bool {
        self.stalled_for_ms().is_some()
    }

    /// How many milliseconds one commit has been on its way, once that is 10 s or more.
    pub fn stalled_for_ms(&self) -> Option<u64> {
        self.0.shared.stalled_for_ms()
    }
}
