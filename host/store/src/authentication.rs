//! From a token to a [`Principal`], in memory and in constant time.

use crate::clock::Clock;
use crate::directory::Directory;
use crate::ids::{InternId, MemberId, WorkspaceId};
use crate::records::{ApiKey, KeyKind, Role};
use crate::seal::{Digest, StoreKeys, same};
use crate::token::{KeyId, Token};

/// Compared against when there is no such key, so that a made-up id costs what a wrong secret costs.
const NO_PROOF: Digest = [0; 32];

/// Why a token does not authenticate. A client must see one and the same answer for all but the last.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AuthenticationError {
    /// Not a token of this host, or mistyped.
    #[error("malformed token")]
    Malformed,
    /// No such key, or not its secret.
    #[error("unknown token")]
    Unknown,
    /// Revoked for good.
    #[error("the key {0} is revoked")]
    Revoked(KeyId),
    /// Switched off for now.
    #[error("the key {0} is disabled")]
    Disabled(KeyId),
    /// Past its expiry.
    #[error("the key {0} has expired")]
    Expired(KeyId),
    /// A good key whose workspace, member or intern is missing: our fault, not the client's.
    #[error("the owner of the key {0} is missing")]
    Incomplete(KeyId),
}

impl AuthenticationError {
    /// The key that the token was good for once, or is.
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

/// Who makes a request: evidence that a valid token was shown. Only a store makes one; it holds the state of
/// that moment and is not kept beyond the request.
#[derive(Clone, Debug)]
pub struct Principal {
    key: KeyId,
    kind: KeyKind,
    workspace: Option<WorkspaceId>,
    member: Option<MemberId>,
    intern: Option<InternId>,
    role: Option<Role>,
}

impl Principal {
    /// The key shown.
    pub fn key_id(&self) -> KeyId {
        self.key
    }

    /// Its kind.
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// Its workspace; `None` for unscoped keys only.
    pub fn workspace(&self) -> Option<WorkspaceId> {
        self.workspace
    }

    /// Its member.
    pub fn member(&self) -> Option<MemberId> {
        self.member
    }

    /// Its intern.
    pub fn intern(&self) -> Option<InternId> {
        self.intern
    }

    /// The member's role at this moment; `None` without a member.
    pub fn role(&self) -> Option<Role> {
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

/// `None` when a row the key points to is not there.
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
