//! Deleting usage rows of days long over.

use super::Store;
use crate::audit::{Actor, AuditAction};
use crate::changes::{WriteBatch, guarded};
use crate::operation::VaultError;
use crate::spend::UsageDay;
use crate::state::Guard;

impl Store {
    /// Deletes the usage rows of all commits before this day, in UTC, while hosts serve. Sums, credit and
    /// reports stay as they are. The audit log says so before anything is deleted, so that the check of the
    /// store knows which rows may be missing; cut short, it is run again for the rest. Blocks its thread.
    /// Returns the number of rows.
    ///
    /// # Errors
    /// [`VaultError::UsageKept`] for a store in a data directory, [`VaultError::NotOver`],
    /// [`VaultError::ReadersInTheWay`], [`VaultError::Open`], and those of every mutation.
    pub fn drop_usage(&self, actor: Actor, before: UsageDay) -> Result<u64, VaultError> {
        let today = UsageDay::of_ms(self.0.clock.now_ms());
        let rows = self.0.engine.usage_before(before)?.ok_or(VaultError::UsageKept)?;
        if before > today {
            return Err(VaultError::NotOver { today });
        }
        if rows > 0 {
            let action = AuditAction::UsageDropped { before, rows };
            self.submit(guarded([Guard::Store], move |batch: &mut WriteBatch| {
                batch.audit(actor, action.clone());
                Ok(())
            }))?;
            self.0.engine.drop_usage_before(before)?;
        }
        Ok(rows)
    }
}
