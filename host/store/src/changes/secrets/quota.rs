//! Checks of the vaults' quotas, before a mutation changes the write batch.

use super::{Staged, Vaults, WriteBatch};
use crate::directory::RecordId;
use crate::ids::{VaultId, WorkspaceId};
use crate::lookup::RecordKind;
use crate::quota::{self, QuotaScope, VaultSize};
use crate::state::{Gap, Guard, all};
use crate::vault::VaultSnapshot;

impl WriteBatch {
    /// Checks that these versions of secrets keep the vault, and its workspace with all interns,
    /// within the quotas. Returns what the workspace would then hold; `None` for the operator's
    /// vault, which has no quota.
    pub(super) fn check_quota(
        &mut self,
        vault: VaultId,
        staged: &[Staged],
    ) -> Result<Option<(WorkspaceId, VaultSize)>, Gap> {
        let Some(workspace) = self.workspace_of(vault)? else { return Ok(None) };
        self.hold(Guard::Quota(workspace))?;
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
        let sums = changed(self.sum(workspace)?);
        let mut near = Vec::new();
        quota::check(quota, QuotaScope::Vault, vault, sizes, &mut near)?;
        quota::check(quota, QuotaScope::Workspace, VaultId::Workspace(workspace), sums, &mut near)?;
        self.vaults.near.append(&mut near);
        Ok(Some((workspace, sums.1)))
    }

    /// Subtracts what was deleted from a vault from the sum of its workspace. A sum that was not
    /// computed yet is left uncomputed.
    pub(in crate::changes) fn take_from_sum(&mut self, vault: VaultId, gone: VaultSize) -> Result<(), Gap> {
        let Some(workspace) = self.workspace_of(vault)? else { return Ok(()) };
        if let Some(sum) = self.known_sum(workspace) {
            self.vaults.sums.insert(workspace, Some(sum.minus(gone)));
        }
        Ok(())
    }

    /// Drops the sum of a deleted workspace.
    pub(in crate::changes) fn forget_sum(&mut self, workspace: WorkspaceId) {
        self.vaults.sums.insert(workspace, None);
    }

    /// What a vault holds as of this write batch.
    pub(in crate::changes) fn size_of_vault(&self, vault: VaultId) -> Result<VaultSize, Gap> {
        self.vaults.size(&self.view, vault)
    }

    /// What a workspace holds with all its interns as of this write batch.
    fn sum(&mut self, workspace: WorkspaceId) -> Result<VaultSize, Gap> {
        if let Some(sum) = self.known_sum(workspace) {
            return Ok(sum);
        }
        let interns = self.owned_by(RecordKind::Intern, RecordId::Workspace(workspace))?;
        let vaults = interns.into_iter().filter_map(|intern| match intern {
            RecordId::Intern(intern) => Some(VaultId::Intern(intern)),
            _ => None,
        });
        let vaults = vaults.chain([VaultId::Workspace(workspace)]);
        let sizes = all(vaults.map(|vault| self.vaults.size(&self.view, vault)))?;
        let sum = sizes.into_iter().fold(VaultSize::default(), VaultSize::plus);
        self.vaults.sums.insert(workspace, Some(sum));
        Ok(sum)
    }

    fn known_sum(&self, workspace: WorkspaceId) -> Option<VaultSize> {
        match self.vaults.sums.get(&workspace) {
            Some(in_batch) => *in_batch,
            None => self.view.quotas().sum(workspace),
        }
    }

    fn workspace_of(&self, vault: VaultId) -> Result<Option<WorkspaceId>, Gap> {
        match vault {
            VaultId::Workspace(id) => Ok(Some(id)),
            VaultId::Intern(id) => Ok(Some(self.intern(id)?.workspace)),
            VaultId::Operator => Ok(None),
        }
    }
}

#[cfg(test)]
impl WriteBatch {
    /// Rewrites heads in the form of earlier versions, which did not store the number of bytes.
    pub(crate) fn forget_bytes(&mut self, vaults: &[VaultId]) -> Result<(), Gap> {
        for vault in vaults {
            self.hold(Guard::Vault(*vault))?;
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
    fn size(&self, view: &VaultSnapshot, vault: VaultId) -> Result<VaultSize, Gap> {
        match self.opened.get(&vault) {
            Some(Some(opened)) => Ok(opened.head.size().unwrap_or_default()),
            Some(None) => Ok(VaultSize::default()),
            None => view.size(vault),
        }
    }
}
