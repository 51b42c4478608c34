//! The records of the store as callers see them: workspaces, members, interns, API keys.
//!
//! Values only. The rules for changing them are in `changes`, their form on disk is in `rows`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::{InternId, MemberId, WorkspaceId};
use crate::name::Name;
use crate::spend::SpendLimits;
use crate::token::KeyId;

/// Which interns of its workspace a member may see. Read at each request, never cached in a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberRole {
    /// Sees every intern of the workspace.
    Admin,
    /// Sees the interns it created.
    Member,
}

impl MemberRole {
    /// The word used in commands and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            MemberRole::Admin => "admin",
            MemberRole::Member => "member",
        }
    }
}

impl fmt::Display for MemberRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that is not a role.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a role is `admin` or `member`")]
pub struct RoleError;

impl FromStr for MemberRole {
    type Err = RoleError;

    fn from_str(text: &str) -> Result<MemberRole, RoleError> {
        match text {
            "admin" => Ok(MemberRole::Admin),
            "member" => Ok(MemberRole::Member),
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

/// What a workspace may spend in total.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Credit {
    /// No limit and no balance.
    Unlimited,
    /// Paid in advance, and reduced by what is spent.
    Prepaid {
        /// Sum of all payments since the workspace became prepaid, pico-dollars.
        credited_pico: u64,
        /// What the workspace had spent before it became prepaid, pico-dollars. It does not count
        /// against the credit.
        spent_before_pico: u64,
    },
}

/// A workspace: the scope of members, interns, keys and secrets.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub struct Workspace {
    /// Its id, which never changes.
    pub id: WorkspaceId,
    /// Its name, unique in the store.
    pub name: Name,
    /// Creation time, Unix milliseconds.
    pub created_at_ms: u64,
    /// Whether it takes part in the interns programme.
    pub programme: bool,
    /// Whether its vault takes writes.
    pub vault_writes: bool,
    /// Its credit.
    pub credit: Credit,
}

/// A member of one workspace.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub struct Member {
    /// Its id, which never changes.
    pub id: MemberId,
    /// Its name, unique in the workspace.
    pub name: Name,
    /// The one workspace it belongs to.
    pub workspace: WorkspaceId,
    /// Which interns it may see.
    pub role: MemberRole,
    /// Creation time, Unix milliseconds.
    pub created_at_ms: u64,
}

/// An intern: an agent with secrets of its own inside a workspace.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub struct Intern {
    /// Its id, which never changes.
    pub id: InternId,
    /// Its name, unique in the workspace.
    pub name: Name,
    /// The workspace it belongs to.
    pub workspace: WorkspaceId,
    /// The member that made it, or for which it was made.
    pub created_by: MemberId,
    /// Creation time, Unix milliseconds.
    pub created_at_ms: u64,
}

/// The record of an API key, without the secret part of its token.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub struct ApiKey {
    /// The public part of the token.
    pub id: KeyId,
    /// Which of the four kinds it is.
    pub kind: KeyKind,
    /// A label; several keys may have the same one.
    pub name: Option<Name>,
    /// The workspace it acts in; absent only for unscoped keys.
    pub workspace: Option<WorkspaceId>,
    /// The member it belongs to; present for member and provisioning keys.
    pub member: Option<MemberId>,
    /// The intern it acts for; present for intern keys only.
    pub intern: Option<InternId>,
    /// Creation time, Unix milliseconds.
    pub created_at_ms: u64,
    /// First moment at which it is no longer accepted, Unix milliseconds.
    pub expires_at_ms: Option<u64>,
    /// When it was revoked, Unix milliseconds. A revocation is final.
    pub revoked_at_ms: Option<u64>,
    /// Switched off. It can be switched on again.
    #[serde(default)]
    pub disabled: bool,
    /// Its spend limits.
    #[serde(default, skip_serializing_if = "SpendLimits::is_empty")]
    pub limits: SpendLimits,
}

impl ApiKey {
    /// Whether this kind of key is for inference requests. Does not consider revocation or
    /// `disabled`.
    pub fn is_for_requests(&self) -> bool {
        matches!(self.kind, KeyKind::Member | KeyKind::Intern)
    }
}

/// Numbers of keys of one workspace.
#[derive(Clone, Copy, Debug)]
pub struct KeyCounts {
    /// Those that are not revoked.
    pub live: usize,
    /// Those that the store keeps, with the keys revoked in the last 92 days.
    pub kept: usize,
}
