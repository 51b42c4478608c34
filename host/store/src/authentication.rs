//! Authenticates a token and gives its [`Principal`]: in memory, and in constant time for the
//! secret.

use crate::clock::Clock;
use crate::digest::{Digest, same};
use crate::directory::Directory;
use crate::ids::{InternId, MemberId, WorkspaceId};
use crate::records::{ApiKey, KeyKind, MemberRole};
use crate::seal::StoreKeys;
use crate::token::{KeyId, Token};

/// Compared against when no key has the token's id, so that an unknown id takes as long as a wrong
/// secret.
const NO_PROOF: Digest = [0; 32];

/// Why a token does not authenticate. The answer to the client must be the same for all variants
/// but the last.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AuthenticationError {
    /// The text is not a token of this format, or its checksum does not match.
    #[error("malformed token")]
    Malformed,
    /// No key has this id, or the secret is wrong.
    #[error("unknown token")]
    Unknown,
    /// The key was revoked.
    #[error("the key {0} is revoked")]
    Revoked(KeyId),
    /// The key is switched off.
    #[error("the key {0} is disabled")]
    Disabled(KeyId),
    /// The key has expired.
    #[error("the key {0} has expired")]
    Expired(KeyId),
    /// The token is valid, but the workspace, member or intern of its key is missing: an error of
    /// the host, not of the client.
    #[error("the owner of the key {0} is missing")]
    Incomplete(KeyId),
}

impl AuthenticationError {
    /// The key of the token, if its secret was right.
    pub fn key(&self) -> Option<KeyId> {
        match self {
            AuthenticationError::Malformed | AuthenticationError::Unknown => None,
            AuthenticationError::Revoked(key)
            | AuthenticationError::Disabled(key)
            | AuthenticationError::Expired(key)
            | AuthenticationError::Incomplete(key) => Some(*key),
        }
    }
}

/// The identity of a request: evidence that a valid token was presented. Only a store creates one.
/// It holds the state at the moment of authentication and is not kept beyond the request.
#[derive(Clone, Debug)]
pub struct Principal {
    key: KeyId,
    kind: KeyKind,
    workspace: Option<WorkspaceId>,
    member: Option<MemberId>,
    intern: Option<InternId>,
    role: Option<MemberRole>,
}

impl Principal {
    /// Id of the key that was presented.
    pub fn key_id(&self) -> KeyId {
        self.key
    }

    /// Kind of the key.
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// Workspace of the key; `None` only for unscoped keys.
    pub fn workspace(&self) -> Option<WorkspaceId> {
        self.workspace
    }

    /// Member the key acts for; `None` for intern and unscoped keys.
    pub fn member(&self) -> Option<MemberId> {
        self.member
    }

    /// Intern the key acts for; `Some` only for intern keys.
    pub fn intern(&self) -> Option<InternId> {
        self.intern
    }

    /// The member's role at the time of authentication; `None` without a member.
    pub fn role(&self) -> Option<MemberRole> {
        self.role
    }
}

pub(crate) fn authenticate(
    keys: &StoreKeys,
    directory: &Directory,
    clock: &Clock,
    token: &str,
) -> Result<Principal, AuthenticationError> {
    let token = Token::parse(token).ok_or(AuthenticationError::Malformed)?;
    let stored = directory.stored_key(token.id);
    let proof = keys.token_proof(token.secret.as_ref());
    let proven = same(&proof, stored.map_or(&NO_PROOF, |stored| &stored.proof));
    let Some(key) = stored.filter(|_| proven).map(|stored| &stored.key) else {
        return Err(AuthenticationError::Unknown);
    };
    if key.revoked_at_ms.is_some() {
        return Err(AuthenticationError::Revoked(key.id));
    }
    if key.disabled {
        return Err(AuthenticationError::Disabled(key.id));
    }
    if key.expires_at_ms.is_some_and(|expires_at_ms| clock.now_ms() >= expires_at_ms) {
        return Err(AuthenticationError::Expired(key.id));
    }
    principal(directory, key).ok_or(AuthenticationError::Incomplete(key.id))
}

/// `None` when the directory lacks an entity that the key refers to.
fn principal(directory: &Directory, key: &ApiKey) -> Option<Principal> {
    if let Some(id) = key.workspace {
        directory.workspace(id)?;
    }
    if let Some(id) = key.intern {
        directory.intern(id)?;
    }
    let role = match key.member {
        Some(id) => Some(directory.member(id)?.role),
        None => None,
    };
    Some(Principal {
        key: key.id,
        kind: key.kind,
        workspace: key.workspace,
        member: key.member,
        intern: key.intern,
        role,
    })
}
