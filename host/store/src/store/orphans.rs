//! Vaults whose workspace or intern does not exist: an accepted rollback can lose the owner and
//! keep the vault. Their secrets cannot be released, and a store that has such vaults is not backed
//! up.

use std::collections::BTreeSet;

use super::Store;
use crate::audit::Actor;
use crate::changes::guarded;
use crate::error::Error;
use crate::ids::VaultId;
use crate::operation::{Progress, VaultError, tell};
use crate::state::Guard;

/// Result of removing vaults without an owner.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct OrphansRemoved {
    /// The vaults that were removed.
    pub vaults: Vec<VaultId>,
    /// Number of secrets removed with them.
    pub secrets: u64,
}

impl Store {
    /// Removes every vault whose workspace or intern does not exist, with its secrets and keys, one
    /// commit per vault.
    ///
    /// # Errors
    /// [`VaultError::Busy`], [`VaultError::Stopped`], and those of every mutation.
    pub fn remove_orphans(
        &self,
        actor: Actor,
        progress: &mut Progress<'_>,
    ) -> Result<OrphansRemoved, VaultError> {
        // An operation on keys may have read a key record, which must not be deleted meanwhile.
        let _alone = self.alone()?;
        let mut removed = OrphansRemoved::default();
        for vault in self.orphans()? {
            let Some(secrets) =
                self.submit(guarded([Guard::Vault(vault)], move |batch| batch.remove_orphan(actor, vault)))?
            else {
                continue;
            };
            removed.vaults.push(vault);
            removed.secrets += secrets as u64;
            tell(progress, "vaults removed", removed.vaults.len() as u64, 0)?;
        }
        Ok(removed)
    }

    /// The vaults that have no owner now.
    fn orphans(&self) -> Result<Vec<VaultId>, Error> {
        let view = self.view()?;
        let mut vaults = BTreeSet::new();
        view.each_vault_row(|vault| vaults.extend(vault))?;
        let mut orphans = Vec::new();
        for vault in vaults {
            if !view.has_owner(vault)? {
                orphans.push(vault);
            }
        }
        Ok(orphans)
    }
}
