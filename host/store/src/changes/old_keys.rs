//! Deletion of API keys that were revoked before the retention time of usage reports.

use super::WriteBatch;
use crate::audit::{Actor, AuditAction};
use crate::directory::{Directory, RecordId};
use crate::ids::WorkspaceId;
use crate::rows::{self, StoredKey};
use crate::spend::day_of;
use crate::state::{Gap, Guard};
use crate::token::KeyId;

/// Largest number of keys that one commit removes.
const DROPPED_MAX: usize = 1_000;

/// Keys that may be deleted.
#[derive(Debug)]
pub(crate) struct OldKeys {
    /// The keys, and the workspaces they belong to.
    keys: Vec<(KeyId, Option<WorkspaceId>)>,
    /// A member or intern key that stays, because a start issues a first key only when no such key
    /// exists. `None` when the keys are of other kinds.
    stays: Option<KeyId>,
}

impl OldKeys {
    /// The keys that were revoked before this day, at most 1,000; `None` when there are none.
    pub(crate) fn before(directory: &Directory, day: u32) -> Option<OldKeys> {
        let keys = || directory.keys.values().map(AsRef::as_ref);
        let stays = keys().filter(|stored| stored.key.is_for_requests());
        let stays = stays.max_by_key(|stored| (!is_old(stored, day), stored.key.revoked_at_ms));
        let stays = stays.map(|stored| stored.key.id);
        let old = keys().filter(|stored| is_old(stored, day) && Some(stored.key.id) != stays);
        let old: Vec<_> = old.map(|stored| (stored.key.id, stored.key.workspace)).take(DROPPED_MAX).collect();
        (!old.is_empty()).then_some(OldKeys { keys: old, stays })
    }

    /// The guards of the keys.
    pub(crate) fn guards(&self) -> Vec<Guard> {
        self.keys.iter().map(|(_, workspace)| Guard::of_key(*workspace)).collect()
    }
}

fn is_old(stored: &StoredKey, day: u32) -> bool {
    stored.key.revoked_at_ms.is_some_and(|at_ms| day_of(at_ms) < day)
}

impl WriteBatch {
    /// Removes those of the keys that are still there, with the sums of their spend, and returns
    /// their ids. Removes none when the key that stays is gone meanwhile.
    pub(crate) fn drop_old_keys(&mut self, old: &OldKeys, day: u32) -> Result<Vec<KeyId>, Gap> {
        let mut gone = Vec::new();
        if let Some(stays) = old.stays
            && self.key(stays)?.is_none()
        {
            return Ok(gone);
        }
        for (id, workspace) in &old.keys {
            if self.key(*id)?.is_some_and(|stored| is_old(&stored, day)) {
                self.drop_record(Guard::of_key(*workspace), RecordId::Key(*id))?;
                self.drop_row(Guard::of_key(*workspace), rows::key_spend_key(*id))?;
                gone.push(*id);
            }
        }
        if !gone.is_empty() {
            self.audit(Actor::System, AuditAction::KeysForgotten { keys: gone.clone() });
        }
        Ok(gone)
    }
}
