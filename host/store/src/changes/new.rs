//! What callers give for records to create and settings to change.

use crate::ids::{MemberId, WorkspaceId};
use crate::name::Name;
use crate::records::MemberRole;

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
