//! What may change and under which rules.
//!
//! Changes run one after another on the writer's thread, against a draft of the next directory. Each one checks
//! everything before it touches the draft: a refused change leaves no trace in the commit it would have been in.

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
pub(crate) use money::Intent;

use crate::audit::{Actor, AuditAction, AuditEntry};
use crate::database::{Commit, KEYS};
use crate::directory::{Directory, Kind, LookupError};
use crate::error::Error;
use crate::ids::{InternId, MemberId, WorkspaceId};
use crate::name::Name;
use crate::records::{Credit, Intern, Member, Role, Workspace};
use crate::rows;
use crate::usage::UsageRow;
use crate::vault::View;

/// Name of the member every workspace is born with.
const OWNER: &str = "owner";

/// A workspace to make; it gets a member `owner`, role admin.
#[derive(Clone, Debug)]
pub struct NewWorkspace {
    /// Its name, unique in the store.
    pub name: Name,
    /// Whether it takes part in the interns programme.
    pub programme: bool,
    /// Whether its vault takes writes.
    pub vault_writes: bool,
}

/// Switches of a workspace; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct WorkspaceChange {
    /// The interns programme.
    pub programme: Option<bool>,
    /// Vault writes.
    pub vault_writes: Option<bool>,
}

/// A member to make.
#[derive(Clone, Debug)]
pub struct NewMember {
    /// Its workspace.
    pub workspace: WorkspaceId,
    /// Its name, unique in the workspace.
    pub name: Name,
    /// Its role.
    pub role: Role,
}

/// An intern to make.
#[derive(Clone, Debug)]
pub struct NewIntern {
    /// Its workspace.
    pub workspace: WorkspaceId,
    /// Its name, unique in the workspace.
    pub name: Name,
    /// The member it is made for; the workspace's `owner` when absent.
    pub created_by: Option<MemberId>,
}

/// The next state in the making.
pub(crate) struct Draft {
    view: View,
    directory: Arc<Directory>,
    rows: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    vaults: Vaults,
    entries: Vec<AuditEntry>,
    usage: Vec<UsageRow>,
    now_ms: u64,
    is_short: bool,
}

impl Draft {
    /// A draft over the state that the view shows, which must be the newest, and the directory of that state.
    pub(crate) fn new(view: View, directory: Arc<Directory>, now_ms: u64) -> Draft {
        Draft {
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

    /// The same on a disk that may be short of room: then it takes nothing new for tenants.
    pub(crate) fn on_disk(self, is_short: bool) -> Draft {
        Draft { is_short, ..self }
    }

    /// Refuses what a tenant asks to be kept when the disk is short of room. Operators and requests under way may go on.
    pub(crate) fn has_space_for(&self, actor: Actor) -> Result<(), Error> {
        match actor {
            Actor::Key(_) if self.is_short => Err(Error::NoSpace),
            Actor::Key(_) | Actor::Operator | Actor::System => Ok(()),
        }
    }

    /// Refuses to begin a request that has to be written down first when the disk is short of room.
    pub(crate) fn has_space_for_request(&self) -> Result<(), Error> {
        if self.is_short { Err(Error::NoSpace) } else { Ok(()) }
    }

    /// Bytes of values that the commit would carry.
    pub(crate) fn value_bytes(&self) -> usize {
        self.vaults.bytes
    }

    /// The commit this draft amounts to, and the directory after it.
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

    /// The next directory: a copy of the last one from the first change on.
    fn directory_mut(&mut self) -> &mut Directory {
        Arc::make_mut(&mut self.directory)
    }

    pub(crate) fn create_workspace(&mut self, actor: Actor, new: NewWorkspace) -> Result<Workspace, Error> {
        if self.directory.workspaces().iter().any(|workspace| workspace.name == new.name) {
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
            role: Role::Admin,
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
        role: Role,
    ) -> Result<Member, Error> {
        let member = self.directory.member(id).ok_or_else(|| LookupError::not_found(Kind::Member, id))?;
        let member = Member { role, ..member.clone() };
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

    /// Entries about what changed nothing: releases and damage.
    pub(crate) fn record(&mut self, entries: impl Iterator<Item = AuditEntry>) {
        self.entries.extend(entries);
    }

    /// A row that is not part of the directory: header and key records.
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
        self.directory.workspace(id).ok_or_else(|| LookupError::not_found(Kind::Workspace, id).into())
    }

    fn intern(&self, id: InternId) -> Result<&Intern, Error> {
        self.directory.intern(id).ok_or_else(|| LookupError::not_found(Kind::Intern, id).into())
    }

    /// The member given, which must be of this workspace, else the workspace's owner.
    fn member_of(&self, workspace: WorkspaceId, member: Option<MemberId>) -> Result<MemberId, Error> {
        self.workspace(workspace)?;
        let Some(id) = member else { return Ok(self.directory.find_member(Some(workspace), OWNER)?.id) };
        let member = self.directory.member(id).ok_or_else(|| LookupError::not_found(Kind::Member, id))?;
        if member.workspace == workspace { Ok(id) } else { Err(Error::OtherWorkspace { owner: "member" }) }
    }

    fn check_intern_of(&self, workspace: WorkspaceId, id: InternId) -> Result<(), Error> {
        self.workspace(workspace)?;
        let intern = self.intern(id)?;
        if intern.workspace == workspace { Ok(()) } else { Err(Error::OtherWorkspace { owner: "intern" }) }
    }
}
