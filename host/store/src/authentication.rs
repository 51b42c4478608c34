//! Authenticates a token and gives its [`Principal`]: in memory, and in constant time for the
//! secret.

use std::ops::Deref;
use std::sync::Arc;

use crate::clock::Clock;
use crate::digest::{Digest, same};
use crate::directory::{Directory, OwnedKey};
use crate::knowledge::RequestPurpose;
use crate::rows::StoredKey;
use crate::seal::StoreKeys;
use crate::token::{KeyId, Token};

/// Compared against when no key has the token's id, so that an unknown id takes as long as a wrong
/// secret.
const NO_PROOF: Digest = [0; 32];

/// Why a token does not authenticate. The answer to the client must be the same for all variants
/// but the last two.
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
    /// This host has no contact with the database of the store, so it knows neither new keys nor revoked
    /// ones: an error of the host, not of the client.
    #[error("this host has no contact with the database of the store")]
    NoContact,
}

impl AuthenticationError {
    /// The key of the token, if its secret was right.
    pub fn key(&self) -> Option<KeyId> {
        match self {
            AuthenticationError::Malformed
            | AuthenticationError::Unknown
            | AuthenticationError::NoContact => None,
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
    key: OwnedKey,
    /// What the request asks for.
    purpose: RequestPurpose,
}

impl Principal {
    pub(crate) fn purpose(&self) -> RequestPurpose {
        self.purpose
    }
}

impl Deref for Principal {
    type Target = OwnedKey;

    fn deref(&self) -> &OwnedKey {
        &self.key
    }
}

pub(crate) fn authenticate(
    keys: &StoreKeys,
    directory: &Directory,
    clock: &Clock,
    token: &str,
    purpose: RequestPurpose,
) -> Result<Principal, AuthenticationError> {
    let token = Token::parse(token).ok_or(AuthenticationError::Malformed)?;
    let stored = directory.keys.get(&token.id);
    let proof = keys.token_proof(token.secret.as_ref());
    let proven = same(&proof, stored.map_or(&NO_PROOF, |stored| &stored.proof));
    let Some(stored) = stored.filter(|_| proven) else {
        return Err(AuthenticationError::Unknown);
    };
    principal(directory, clock, stored, purpose)
}

/// The identity of a request with this key, if the key works now.
pub(crate) fn principal(
    directory: &Directory,
    clock: &Clock,
    stored: &Arc<StoredKey>,
    purpose: RequestPurpose,
) -> Result<Principal, AuthenticationError> {
    let key = &stored.key;
    if key.revoked_at_ms.is_some() {
        return Err(AuthenticationError::Revoked(key.id));
    }
    if key.disabled {
        return Err(AuthenticationError::Disabled(key.id));
    }
    if key.expires_at_ms.is_some_and(|expires_at_ms| clock.now_ms() >= expires_at_ms) {
        return Err(AuthenticationError::Expired(key.id));
    }
    let owned = directory.owned(stored);
    let is_complete = owned.workspace.is_some() == key.workspace.is_some()
        && owned.member.is_some() == key.member.is_some()
        && owned.intern.is_some() == key.intern.is_some();
    if is_complete {
        Ok(Principal { key: owned, purpose })
    } else {
        Err(AuthenticationError::Incomplete(key.id))
    }
}
