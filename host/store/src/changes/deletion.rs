//! Deletion of members, interns and workspaces. Each is deleted in one commit with all that belongs
//! to it.

use std::sync::Arc;

use super::{OWNER, WriteBatch};
use crate::audit::{Actor, AuditAction};
use crate::error::Error;
use crate::ids::{InternId, MemberId, VaultId, WorkspaceId};
use crate::records::{ApiKey, Intern, Member, Workspace};
use crate::rows::{self, StoredKey};

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
    pub(crate) fn delete_intern(&mut self, actor: Actor, id: InternId) -> Result<Intern, Error> {
        let intern = self.intern(id)?.clone();
        let vault = VaultId::Intern(id);
        let (secrets, size) = (self.rows_of_vault(vault)?, self.size_of_vault(vault)?);
        let keys = self.live_keys(|key| key.intern == Some(id));
        let (keys_revoked, secrets_deleted) = (keys.len(), secrets.len());
        self.audit(actor, AuditAction::InternDeleted { id, keys_revoked, secrets_deleted });
        self.take_from_sum(vault, size);
        self.drop_vault(vault, secrets);
        self.revoke_all(keys);
        self.drop_intern(id);
        Ok(intern)
    }

    /// Deletes the member and revokes its keys. The interns it created stay, for the admins of the
    /// workspace.
    pub(crate) fn delete_member(&mut self, actor: Actor, id: MemberId) -> Result<MemberDeleted, Error> {
        let member = self.member(id)?.clone();
        if member.name.as_str() == OWNER {
            return Err(Error::OwnerStays);
        }
        let keys = self.live_keys(|key| key.member == Some(id));
        let keys_revoked = keys.len();
        let (name, workspace) = (member.name.clone(), member.workspace);
        self.audit(actor, AuditAction::MemberDeleted { id, name, workspace, keys_revoked });
        self.revoke_all(keys);
        self.drop_member(id);
        Ok(MemberDeleted { member, keys_revoked })
    }

    /// Deletes the workspace with its members, interns and their vaults, and revokes its keys. The
    /// sums of its spend are kept, as are the usage rows that they sum up.
    pub(crate) fn delete_workspace(
        &mut self,
        actor: Actor,
        id: WorkspaceId,
    ) -> Result<WorkspaceDeleted, Error> {
        let workspace = self.workspace(id)?.clone();
        let interns: Vec<InternId> = self.directory.interns_of(id).map(|intern| intern.id).collect();
        let members: Vec<MemberId> = self.directory.members_of(id).map(|member| member.id).collect();
        // Everything that can fail is done first, so that a refusal leaves the write batch
        // unchanged.
        let vaults = interns.iter().map(|intern| VaultId::Intern(*intern)).chain([VaultId::Workspace(id)]);
        let vaults = vaults.map(|vault| Ok((vault, self.rows_of_vault(vault)?)));
        let vaults = vaults.collect::<Result<Vec<_>, Error>>()?;
        let keys = self.live_keys(|key| key.workspace == Some(id));
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
            self.drop_vault(vault, secrets);
        }
        self.forget_sum(id);
        self.revoke_all(keys);
        interns.into_iter().for_each(|intern| self.drop_intern(intern));
        members.into_iter().for_each(|member| self.drop_member(member));
        self.drop_row(rows::workspace_key(id));
        self.directory_mut().workspaces.remove(&id);
        Ok(deleted)
    }

    /// The matching keys that are not revoked.
    fn live_keys(&self, is_meant: impl Fn(&ApiKey) -> bool) -> Vec<StoredKey> {
        let live = |stored: &&Arc<StoredKey>| stored.key.revoked_at_ms.is_none() && is_meant(&stored.key);
        self.directory.keys.values().filter(live).map(|stored| (**stored).clone()).collect()
    }

    fn revoke_all(&mut self, keys: Vec<StoredKey>) {
        for mut stored in keys {
            stored.key.revoked_at_ms = Some(self.now_ms);
            self.put_key(stored);
        }
    }

    fn drop_intern(&mut self, id: InternId) {
        self.drop_row(rows::intern_key(id));
        self.directory_mut().interns.remove(&id);
    }

    fn drop_member(&mut self, id: MemberId) {
        self.drop_row(rows::member_key(id));
        self.directory_mut().members.remove(&id);
    }
}
