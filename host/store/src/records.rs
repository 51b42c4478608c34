//! The plain records of the store as callers see them: workspaces, members, interns, API keys.
//!
//! Values only: what may change, and by whom, stands in `changes`; how a record lies on disk, in `rows`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::{InternId, MemberId, WorkspaceId};
use crate::name::Name;
use crate::spend::SpendLimits;
use crate::token::KeyId;

/// What a member may see of its workspace. Read at each request, never cached in a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Sees every intern of the workspace.
    Admin,
    /// Sees the interns it created.
    Member,
}

impl Role {
    /// The word used in commands and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Admin => "admin",
            Role::Member => "member",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that is not a role.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a role is `admin` or `member`")]
pub struct RoleError;

impl FromStr for Role {
    type Err = RoleError;

    fn from_str(text: &str) -> Result<Role, RoleError> {
        match text {
            "admin" => Ok(Role::Admin),
            "member" => Ok(Role::Member),
            _ => Err(RoleError),
        }
    }
}

/// The four kinds of API keys.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyKind {
    /// Acts for a member in its workspace.
    Member,
    /// Acts for one intern.
    Intern,
    /// Manages the keys of a workspace; no inference.
    Provisioning,
    /// Belongs to no workspace: reads the catalog.
    Unscoped,
}

impl KeyKind {
    /// The word used in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            KeyKind::Member => "member",
            KeyKind::Intern => "intern",
            KeyKind::Provisioning => "provisioning",
            KeyKind::Unscoped => "unscoped",
        }
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a workspace may spend.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Credit {
    /// No limit and no balance.
    Unlimited,
    /// What was paid in, and is used up.
    Prepaid {
        /// All that was ever paid in since the workspace is prepaid, pico-dollars.
        credited_pico: u64,
        /// What it had spent in all when it became prepaid, pico-dollars: that is not taken from the credit.
        spent_before_pico: u64,
    },
}

/// A workspace: the scope of members, interns, keys and secrets.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub struct Workspace {
    /// Its id, for ever.
    pub id: WorkspaceId,
    /// Its name, unique in the store.
    pub name: Name,
    /// When it was made, Unix milliseconds.
    pub created_at_ms: u64,
    /// Whether it takes part in the interns programme.
    pub programme: bool,
    /// Whether its vault takes writes.
    pub vault_writes: bool,
    /// What it may spend.
    pub credit: Credit,
}

/// A member of one workspace.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub struct Member {
    /// Its id, for ever.
    pub id: MemberId,
    /// Its name, unique in the workspace.
    pub name: Name,
    /// The one workspace it belongs to.
    pub workspace: WorkspaceId,
    /// What it may see.
    pub role: Role,
    /// When it was made, Unix milliseconds.
    pub created_at_ms: u64,
}

/// An intern: an agent with secrets of its own inside a workspace.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub struct Intern {
    /// Its id, for ever.
    pub id: InternId,
    /// Its name, unique in the workspace.
    pub name: Name,
    /// The workspace it belongs to.
    pub workspace: WorkspaceId,
    /// The member it was made by or for.
    pub created_by: MemberId,
    /// When it was made, Unix milliseconds.
    pub created_at_ms: u64,
}

/// What is known about an API key; the secret part is not among it.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub struct ApiKey {
    /// The public part of the token.
    pub id: KeyId,
    /// What it may do.
    pub kind: KeyKind,
    /// A label; labels need not be unique.
    pub name: Option<Name>,
    /// The workspace it acts in; absent for unscoped keys only.
    pub workspace: Option<WorkspaceId>,
    /// The member it belongs to: member and provisioning keys.
    pub member: Option<MemberId>,
    /// The intern it acts for: intern keys only.
    pub intern: Option<InternId>,
    /// When it was made, Unix milliseconds.
    pub created_at_ms: u64,
    /// First moment at which it no longer works, Unix milliseconds.
    pub expires_at_ms: Option<u64>,
    /// When it was revoked for good, Unix milliseconds.
    pub revoked_at_ms: Option<u64>,
    /// Switched off, and can be switched on again.
    #[serde(default)]
    pub disabled: bool,
    /// What it may spend.
    #[serde(default, skip_serializing_if = "SpendLimits::is_empty")]
    pub limits: SpendLimits,
}

impl ApiKey {
    /// Whether a client could make requests with it, were it not revoked or switched off.
    pub fn is_for_requests(&self) -> bool {
        matches!(self.kind, KeyKind::Member | KeyKind::Intern)
    }
}
