//! The mutations of the store, and the rules for each of them.
//!
//! The writer's thread applies mutations one after another to a [`WriteBatch`], which has the next
//! directory. Each mutation checks everything before it changes the batch, so a refused mutation
//! leaves nothing in the commit of its group.

mod deletion;
mod key_records;
mod keys;
mod money;
mod old_keys;
mod secrets;

use std::collections::BTreeMap;
use std::sync::Arc;

use secrets::Vaults;

pub use deletion::{MemberDeleted, WorkspaceDeleted};
pub use keys::{KeyChange, KeyOwner, NewKey};
pub(crate) use money::{Intent, SettledUsage};

use crate::audit::{Actor, AuditAction, AuditEntry};
use crate::commit::Commit;
use crate::directory::Directory;
use crate::error::Error;
use crate::ids::{InternId, MemberId, WorkspaceId};
use crate::lookup::{LookupError, RecordKind};
use crate::name::Name;
use crate::records::{Credit, Intern, Member, MemberRole, Workspace};
use crate::rows::{self, KEYS};
use crate::usage::UsageRow;
use crate::vault::VaultSnapshot;

/// Name of the member that is created with every workspace.
const OWNER: &str = "owner";

/// A workspace to create. It gets a member `owner` with the role admin.
#[derive(Clone, Debug)]
pub struct NewWorkspace {
    /// Its name, unique in the store.
    pub name: Name,
    /// Whether it takes part in the interns programme.
    pub programme: bool,
    /// Whether its vault takes writes.
    pub vault_writes: bool,
}

/// New settings of a workspace; `None` leaves a setting unchanged.
#[derive(Clone, Copy, Debug, Default)]
pub struct WorkspaceChange {
    /// Whether it takes part in the interns programme.
    pub programme: Option<bool>,
    /// Whether its vault takes writes.
    pub vault_writes: Option<bool>,
}

/// A member to create.
#[derive(Clone, Debug)]
pub struct NewMember {
    /// The workspace it will belong to.
    pub workspace: WorkspaceId,
    /// Its name, unique in the workspace.
    pub name: Name,
    /// Its role.
    pub role: MemberRole,
}

/// An intern to create.
#[derive(Clone, Debug)]
pub struct NewIntern {
    /// The workspace it will belong to.
    pub workspace: WorkspaceId,
    /// Its name, unique in the workspace.
    pub name: Name,
    /// The member it is created for; the workspace's `owner` when absent.
    pub created_by: Option<MemberId>,
}

/// The write batch of one commit: the changes so far, and the directory after them.
pub(crate) struct WriteBatch {
    view: VaultSnapshot,
    directory: Arc<Directory>,
    rows: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    vaults: Vaults,
    entries: Vec<AuditEntry>,
    usage: Vec<UsageRow>,
    now_ms: u64,
    is_short: bool,
}

impl WriteBatch {
    /// A write batch over the newest state of the store, with the directory of the same state.
    pub(crate) fn new(view: VaultSnapshot, directory: Arc<Directory>, now_ms: u64) -> WriteBatch {
        WriteBatch {
            view,
            directory,
            rows: BTreeMap::new(),
            vaults: Vaults::default(),
            entries: Vec::new(),
            usage: Vec::new(),
            now_ms,
            is_short: false,
        }
    }

    /// Sets whether the disk is short of space: then the write batch accepts no new data of
    /// tenants.
    pub(crate) fn on_disk(self, is_short: bool) -> WriteBatch {
        WriteBatch { is_short, ..self }
    }

    /// Refuses new data of a client when the disk is short of space. Operators and the host itself
    /// may still write.
    pub(crate) fn has_space_for(&self, actor: Actor) -> Result<(), Error> {
        match actor {
            Actor::Key(_) if self.is_short => Err(Error::NoSpace),
            Actor::Key(_) | Actor::Operator | Actor::System => Ok(()),
        }
    }

    /// Refuses a request of a prepaid workspace, which needs an intent row first, when the disk is
    /// short of space.
    pub(crate) fn has_space_for_request(&self) -> Result<(), Error> {
        if self.is_short { Err(Error::NoSpace) } else { Ok(()) }
    }

    /// Number of bytes of encrypted values in this write batch.
    pub(crate) fn value_bytes(&self) -> usize {
        self.vaults.bytes
    }

    /// The commit with all changes, and the directory after it.
    pub(crate) fn finish(self) -> (Commit, Arc<Directory>) {
        let commit = Commit {
            at_ms: self.now_ms,
            rows: self.rows,
            vaults: self.vaults.finish(&self.view),
            entries: self.entries,
            usage: self.usage,
        };
        (commit, self.directory)
    }

    /// The next directory. It is copied from the current one at the first change.
    fn directory_mut(&mut self) -> &mut Directory {
        Arc::make_mut(&mut self.directory)
    }

    pub(crate) fn create_workspace(&mut self, actor: Actor, new: NewWorkspace) -> Result<Workspace, Error> {
        if self.directory.workspaces.values().any(|it| it.name == new.name) {
            return Err(Error::NameTaken { name: new.name });
        }
        let workspace = Workspace {
            id: WorkspaceId::random()?,
            name: new.name,
            created_at_ms: self.now_ms,
            programme: new.programme,
            vault_writes: new.vault_writes,
            credit: Credit::Unlimited,
        };
        let owner = Member {
            id: MemberId::random()?,
            #[expect(clippy::expect_used, reason = "a fixed word that follows the rules for names")]
            name: Name::parse(OWNER).expect("`owner` is a name"),
            workspace: workspace.id,
            role: MemberRole::Admin,
            created_at_ms: self.now_ms,
        };
        self.audit(
            actor,
            AuditAction::WorkspaceCreated {
                id: workspace.id,
                name: workspace.name.clone(),
                programme: workspace.programme,
                vault_writes: workspace.vault_writes,
            },
        );
        self.put_workspace(&workspace);
        self.put_new_member(actor, &owner);
        Ok(workspace)
    }

    pub(crate) fn set_workspace(
        &mut self,
        actor: Actor,
        id: WorkspaceId,
        change: WorkspaceChange,
    ) -> Result<Workspace, Error> {
        let mut workspace = self.workspace(id)?.clone();
        workspace.programme = change.programme.unwrap_or(workspace.programme);
        workspace.vault_writes = change.vault_writes.unwrap_or(workspace.vault_writes);
        let (programme, vault_writes) = (workspace.programme, workspace.vault_writes);
        self.audit(actor, AuditAction::WorkspaceChanged { id, programme, vault_writes });
        self.put_workspace(&workspace);
        Ok(workspace)
    }

    pub(crate) fn create_member(&mut self, actor: Actor, new: NewMember) -> Result<Member, Error> {
        self.workspace(new.workspace)?;
        if self.directory.find_member(Some(new.workspace), new.name.as_str()).is_ok() {
            return Err(Error::NameTaken { name: new.name });
        }
        let member = Member {
            id: MemberId::random()?,
            name: new.name,
            workspace: new.workspace,
            role: new.role,
            created_at_ms: self.now_ms,
        };
        self.put_new_member(actor, &member);
        Ok(member)
    }

    pub(crate) fn set_member_role(
        &mut self,
        actor: Actor,
        id: MemberId,
        role: MemberRole,
    ) -> Result<Member, Error> {
        let member = Member { role, ..self.member(id)?.clone() };
        self.audit(actor, AuditAction::MemberRoleChanged { id, role });
        self.put_member(&member);
        Ok(member)
    }

    pub(crate) fn create_intern(&mut self, actor: Actor, new: NewIntern) -> Result<Intern, Error> {
        let created_by = self.member_of(new.workspace, new.created_by)?;
        if self.directory.find_intern(Some(new.workspace), new.name.as_str()).is_ok() {
            return Err(Error::NameTaken { name: new.name });
        }
        let intern = Intern {
            id: InternId::random()?,
            name: new.name,
            workspace: new.workspace,
            created_by,
            created_at_ms: self.now_ms,
        };
        self.audit(
            actor,
            AuditAction::InternCreated {
                id: intern.id,
                name: intern.name.clone(),
                workspace: intern.workspace,
                created_by,
            },
        );
        let key = rows::intern_key(intern.id);
        self.put_row(key, &intern);
        self.directory_mut().put_intern(intern.clone());
        Ok(intern)
    }

    pub(crate) fn audit(&mut self, actor: Actor, action: AuditAction) {
        self.entries.push(AuditEntry { actor, action });
    }

    /// Adds audit entries of events that changed no rows, such as releases and damage.
    pub(crate) fn record(&mut self, entries: impl Iterator<Item = AuditEntry>) {
        self.entries.extend(entries);
    }

    /// Encodes and stages a row of the keyspace `keys`. Does not update the directory.
    pub(crate) fn put_row<T: serde::Serialize>(&mut self, key: Vec<u8>, record: &T) {
        let value = rows::encode(self.view.keys(), KEYS, &key, record);
        self.rows.insert(key, Some(value));
    }

    pub(crate) fn drop_row(&mut self, key: Vec<u8>) {
        self.rows.insert(key, None);
    }

    fn put_workspace(&mut self, workspace: &Workspace) {
        self.put_row(rows::workspace_key(workspace.id), workspace);
        self.directory_mut().put_workspace(workspace.clone());
    }

    fn put_member(&mut self, member: &Member) {
        self.put_row(rows::member_key(member.id), member);
        self.directory_mut().put_member(member.clone());
    }

    fn put_new_member(&mut self, actor: Actor, member: &Member) {
        let Member { id, workspace, role, .. } = *member;
        self.audit(actor, AuditAction::MemberCreated { id, name: member.name.clone(), workspace, role });
        self.put_member(member);
    }

    fn workspace(&self, id: WorkspaceId) -> Result<&Workspace, Error> {
        let found = self.directory.workspaces.get(&id).map(Arc::as_ref);
        found.ok_or_else(|| LookupError::not_found(RecordKind::Workspace, id).into())
    }

    fn member(&self, id: MemberId) -> Result<&Member, Error> {
        let found = self.directory.members.get(&id).map(Arc::as_ref);
        found.ok_or_else(|| LookupError::not_found(RecordKind::Member, id).into())
    }

    fn intern(&self, id: InternId) -> Result<&Intern, Error> {
        let found = self.directory.interns.get(&id).map(Arc::as_ref);
        found.ok_or_else(|| LookupError::not_found(RecordKind::Intern, id).into())
    }

    /// The given member, which must belong to this workspace; without one, the workspace's owner.
    fn member_of(&self, workspace: WorkspaceId, member: Option<MemberId>) -> Result<MemberId, Error> {
        self.workspace(workspace)?;
        let Some(id) = member else { return Ok(self.directory.find_member(Some(workspace), OWNER)?.id) };
        if self.member(id)?.workspace == workspace {
            Ok(id)
        } else {
            Err(Error::OtherWorkspace { owner: "member" })
        }
    }

    fn check_intern_of(&self, workspace: WorkspaceId, id: InternId) -> Result<(), Error> {
        self.workspace(workspace)?;
        let intern = self.intern(id)?;
        if intern.workspace == workspace { Ok(()) } else { Err(Error::OtherWorkspace { owner: "intern" }) }
    }
}
