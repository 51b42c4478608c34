//! Deletion of members, interns and workspaces. Each is deleted in one commit with all that belongs
//! to it.

use super::{OWNER, WriteBatch};
use crate::audit::{Actor, AuditAction};
use crate::directory::RecordId;
use crate::error::Error;
use crate::ids::{InternId, MemberId, VaultId, WorkspaceId};
use crate::lookup::RecordKind;
use crate::records::{Intern, Member, Workspace};
use crate::rows::StoredKey;
use crate::state::{Gap, Guard, all, both};

/// Result of deleting a member.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MemberDeleted {
    /// The member as it was.
    pub member: Member,
    /// Number of keys revoked with it.
    pub keys_revoked: usize,
}

/// Result of deleting a workspace.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WorkspaceDeleted {
    /// The workspace as it was.
    pub workspace: Workspace,
    /// Number of members deleted with it.
    pub members: usize,
    /// Number of interns deleted with it.
    pub interns: usize,
    /// Number of secrets deleted with it, including those of its interns.
    pub secrets: usize,
    /// Number of keys revoked with it.
    pub keys_revoked: usize,
}

impl WriteBatch {
    /// Deletes the intern with its secrets and revokes its keys.
    pub(crate) fn delete_intern(&mut self, actor: Actor, id: InternId) -> Result<Intern, Gap> {
        let intern = Intern::clone(&*self.intern(id)?);
        let vault = VaultId::Intern(id);
        let guards = [Guard::Vault(vault), Guard::Workspace(intern.workspace)];
        let ((secrets, size), (keys, ())) = both(
            both(self.rows_of_vault(vault), self.size_of_vault(vault)),
            both(self.live_keys(RecordId::Intern(id)), self.hold_all(guards)),
        )?;
        let (keys_revoked, secrets_deleted) = (keys.len(), secrets.len());
        self.audit(actor, AuditAction::InternDeleted { id, keys_revoked, secrets_deleted });
        self.take_from_sum(vault, size)?;
        self.drop_vault(vault, secrets)?;
        self.revoke_all(keys)?;
        self.drop_record(Guard::Workspace(intern.workspace), RecordId::Intern(id))?;
        Ok(intern)
    }

    /// Deletes the member and revokes its keys. The interns it created stay, for the admins of the
    /// workspace.
    pub(crate) fn delete_member(&mut self, actor: Actor, id: MemberId) -> Result<MemberDeleted, Gap> {
        let member = Member::clone(&*self.member(id)?);
        if member.name.as_str() == OWNER {
            return Err(Error::OwnerStays.into());
        }
        let guard = Guard::Workspace(member.workspace);
        let (keys, ()) = both(self.live_keys(RecordId::Member(id)), self.hold(guard))?;
        let keys_revoked = keys.len();
        let (name, workspace) = (member.name.clone(), member.workspace);
        self.audit(actor, AuditAction::MemberDeleted { id, name, workspace, keys_revoked });
        self.revoke_all(keys)?;
        self.drop_record(guard, RecordId::Member(id))?;
        Ok(MemberDeleted { member, keys_revoked })
    }

    /// Deletes the workspace with its members, interns and their vaults, and revokes its keys. The
    /// sums of its spend are kept, as are the usage rows that they sum up.
    pub(crate) fn delete_workspace(
        &mut self,
        actor: Actor,
        id: WorkspaceId,
    ) -> Result<WorkspaceDeleted, Gap> {
        let workspace = Workspace::clone(&*self.workspace(id)?);
        let owner = RecordId::Workspace(id);
        let ((interns, members), keys) = both(
            both(self.owned_by(RecordKind::Intern, owner), self.owned_by(RecordKind::Member, owner)),
            self.live_keys(owner),
        )?;
        // Everything that can fail is done first, so that a refusal leaves the write batch
        // unchanged.
        let vaults = interns.iter().filter_map(|intern| match intern {
            RecordId::Intern(intern) => Some(VaultId::Intern(*intern)),
            _ => None,
        });
        let vaults = vaults.chain([VaultId::Workspace(id)]);
        let vaults = all(vaults.map(|vault| {
            let (secrets, ()) = both(self.rows_of_vault(vault), self.hold(Guard::Vault(vault)))?;
            Ok((vault, secrets))
        }));
        // Its name is free again, which is a matter of the store.
        let (vaults, ()) = both(vaults, self.hold_all([Guard::Store, Guard::Workspace(id)]))?;
        let deleted = WorkspaceDeleted {
            workspace,
            members: members.len(),
            interns: interns.len(),
            secrets: vaults.iter().map(|(_, secrets)| secrets.len()).sum(),
            keys_revoked: keys.len(),
        };
        self.audit(
            actor,
            AuditAction::WorkspaceDeleted {
                id,
                name: deleted.workspace.name.clone(),
                members: deleted.members,
                interns: deleted.interns,
                keys_revoked: deleted.keys_revoked,
                secrets_deleted: deleted.secrets,
            },
        );
        for (vault, secrets) in vaults {
            self.drop_vault(vault, secrets)?;
        }
        self.forget_sum(id);
        self.revoke_all(keys)?;
        for record in interns.into_iter().chain(members) {
            self.drop_record(Guard::Workspace(id), record)?;
        }
        self.drop_record(Guard::Workspace(id), owner)?;
        Ok(deleted)
    }

    /// The owner's keys that are not revoked.
    fn live_keys(&self, owner: RecordId) -> Result<Vec<StoredKey>, Gap> {
        let keys = all(self.owned_by(RecordKind::Key, owner)?.into_iter().map(|id| match id {
            RecordId::Key(id) => self.key(id),
            _ => Ok(None),
        }))?;
        let live = keys.into_iter().flatten().filter(|stored| stored.key.revoked_at_ms.is_none());
        Ok(live.map(|stored| StoredKey::clone(&stored)).collect())
    }

    fn revoke_all(&mut self, keys: Vec<StoredKey>) -> Result<(), Gap> {
        for mut stored in keys {
            stored.key.revoked_at_ms = Some(self.now_ms);
            self.put_key(stored)?;
        }
        Ok(())
    }
}
