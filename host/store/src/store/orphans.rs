//! Vaults that outlived their workspace or intern: an accepted rollback can lose the one and keep the other. Nobody
//! reaches their secrets any more, and no backup is made of a store that has them.

use std::collections::BTreeSet;

use super::Store;
use crate::audit::Actor;
use crate::error::Error;
use crate::operation::{Progress, VaultError, tell};
use crate::vault::VaultId;

/// What removing vaults without an owner did.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct OrphansRemoved {
    /// The vaults that are gone.
    pub vaults: Vec<VaultId>,
    /// The secrets that went with them.
    pub secrets: u64,
}

impl Store {
    /// Removes every vault whose workspace or intern is not there, with its secrets and keys, one commit each.
    ///
    /// # Errors
    /// [`VaultError::Busy`], [`VaultError::Stopped`], and those of every mutation.
    pub fn remove_orphans(
        &self,
        actor: Actor,
        progress: &mut Progress<'_>,
    ) -> Result<OrphansRemoved, VaultError> {
        // A key record that another operation has read must not go under its hands.
        let _alone = self.alone()?;
        let mut removed = OrphansRemoved::default();
        for vault in self.orphans()? {
            let Some(secrets) = self.submit(move |draft| draft.remove_orphan(actor, vault))? else {
                continue;
            };
            removed.vaults.push(vault);
            removed.secrets += secrets as u64;
            tell(progress, "vaults removed", removed.vaults.len() as u64, 0)?;
        }
        Ok(removed)
    }

    /// The vaults without an owner, as of now.
    fn orphans(&self) -> Result<Vec<VaultId>, Error> {
        let view = self.access()?.view();
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
