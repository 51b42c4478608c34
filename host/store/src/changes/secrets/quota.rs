//! Checks of the vaults' quotas, before a mutation changes the write batch.

use super::{Staged, Vaults, WriteBatch};
use crate::error::Error;
use crate::ids::{VaultId, WorkspaceId};
use crate::quota::{self, QuotaScope, VaultSize};
use crate::vault::VaultSnapshot;

impl WriteBatch {
    /// Checks that these versions of secrets keep the vault, and its workspace with all interns,
    /// within the quotas. Returns what the workspace would then hold; `None` for the operator's
    /// vault, which has no quota.
    pub(super) fn check_quota(
        &mut self,
        vault: VaultId,
        staged: &[Staged],
    ) -> Result<Option<(WorkspaceId, VaultSize)>, Error> {
        let Some(workspace) = self.workspace_of(vault) else { return Ok(None) };
        let (mut gone, mut come) = (VaultSize::default(), VaultSize::default());
        for Staged { written, replaces } in staged {
            come = come.plus(VaultSize::of_secret(written.bytes()));
            if let Some(replaced) = replaces {
                gone = gone.plus(VaultSize::of_secret(replaced.bytes));
            }
        }
        let changed = |before: VaultSize| (before, before.plus(come).minus(gone));
        let quota = self.view.quotas().quota();
        let sizes = changed(self.vaults.size(&self.view, vault)?);
        quota::check(quota, QuotaScope::Vault, vault, sizes)?;
        let sums = changed(self.sum(workspace)?);
        quota::check(quota, QuotaScope::Workspace, VaultId::Workspace(workspace), sums)?;
        Ok(Some((workspace, sums.1)))
    }

    /// Subtracts what was deleted from a vault from the sum of its workspace. A sum that was not
    /// computed yet is left uncomputed.
    pub(in crate::changes) fn take_from_sum(&mut self, vault: VaultId, gone: VaultSize) {
        let Some(workspace) = self.workspace_of(vault) else { return };
        if let Some(sum) = self.known_sum(workspace) {
            self.vaults.sums.insert(workspace, Some(sum.minus(gone)));
        }
    }

    /// Drops the sum of a deleted workspace.
    pub(in crate::changes) fn forget_sum(&mut self, workspace: WorkspaceId) {
        self.vaults.sums.insert(workspace, None);
    }

    /// What a vault holds as of this write batch.
    pub(in crate::changes) fn size_of_vault(&self, vault: VaultId) -> Result<VaultSize, Error> {
        self.vaults.size(&self.view, vault)
    }

    /// What a workspace holds with all its interns as of this write batch.
    fn sum(&mut self, workspace: WorkspaceId) -> Result<VaultSize, Error> {
        if let Some(sum) = self.known_sum(workspace) {
            return Ok(sum);
        }
        let mut sum = self.vaults.size(&self.view, VaultId::Workspace(workspace))?;
        for intern in self.directory.interns_of(workspace) {
            sum = sum.plus(self.vaults.size(&self.view, VaultId::Intern(intern.id))?);
        }
        self.vaults.sums.insert(workspace, Some(sum));
        Ok(sum)
    }

    fn known_sum(&self, workspace: WorkspaceId) -> Option<VaultSize> {
        match self.vaults.sums.get(&workspace) {
            Some(in_draft) => *in_draft,
            None => self.view.quotas().sum(workspace),
        }
    }

    fn workspace_of(&self, vault: VaultId) -> Option<WorkspaceId> {
        match vault {
            VaultId::Workspace(id) => Some(id),
            VaultId::Intern(id) => self.directory.interns.get(&id).map(|intern| intern.workspace),
            VaultId::Operator => None,
        }
    }
}

#[cfg(test)]
impl WriteBatch {
    /// Rewrites heads in the form of earlier versions, which did not store the number of bytes.
    pub(crate) fn forget_bytes(&mut self, vaults: &[VaultId]) -> Result<(), Error> {
        for vault in vaults {
            if let Some(opened) = self.vaults.open(&self.view, *vault)? {
                opened.head.bytes = None;
                opened.changed = true;
            }
        }
        self.audit(crate::audit::Actor::System, crate::audit::AuditAction::KeyRotationBegun);
        Ok(())
    }
}

impl Vaults {
    /// What a vault holds as of this write batch.
    fn size(&self, view: &VaultSnapshot, vault: VaultId) -> Result<VaultSize, Error> {
        match self.opened.get(&vault) {
            Some(Some(opened)) => Ok(opened.head.size().unwrap_or_default()),
            Some(None) => Ok(VaultSize::default()),
            None => view.size(vault),
        }
    }
}
