//! Deletion of API keys that were revoked before the retention time of usage reports.

use std::sync::Arc;

use super::WriteBatch;
use crate::audit::{Actor, AuditAction};
use crate::rows::{self, StoredKey};
use crate::spend::day_of;
use crate::token::KeyId;

/// Largest number of keys that one commit removes.
const DROPPED_MAX: usize = 1_000;

impl WriteBatch {
    /// Removes keys that were revoked before this day, at most 1,000, with the sums of their spend,
    /// and returns their ids. One member or intern key always stays, because a start issues a first
    /// key only when no such key exists.
    pub(crate) fn drop_keys_revoked_before(&mut self, day: u32) -> Vec<KeyId> {
        let is_old =
            |stored: &Arc<StoredKey>| stored.key.revoked_at_ms.is_some_and(|at_ms| day_of(at_ms) < day);
        let stays = self.directory.keys.values().filter(|stored| stored.key.is_for_requests());
        let stays = stays.max_by_key(|stored| (!is_old(stored), stored.key.revoked_at_ms));
        let stays = stays.map(|stored| stored.key.id);
        let old =
            self.directory.keys.values().filter(|stored| is_old(stored) && Some(stored.key.id) != stays);
        let old: Vec<KeyId> = old.map(|stored| stored.key.id).take(DROPPED_MAX).collect();
        if old.is_empty() {
            return old;
        }
        self.audit(Actor::System, AuditAction::KeysForgotten { keys: old.clone() });
        for id in &old {
            self.drop_row(rows::api_key_key(*id));
            self.drop_row(rows::key_spend_key(*id));
            self.directory_mut().keys.remove(id);
        }
        old
    }
}
