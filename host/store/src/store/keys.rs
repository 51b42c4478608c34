//! API keys: blocking functions for commands, and functions that need a permit for requests.

use super::Store;
use crate::audit::Actor;
use crate::changes::{KeyChange, NewKey};
use crate::error::Error;
use crate::pending::{Pending, QueuePermit};
use crate::records::ApiKey;
use crate::secret::Secret;
use crate::token::KeyId;

/// A new key and its token. The token is stored nowhere: show it to the client once.
#[derive(Debug)]
pub struct IssuedKey {
    /// The stored record of the key.
    pub key: ApiKey,
    /// The token that clients authenticate with.
    pub token: Secret,
}

impl Store {
    /// Issues a key. Its token is in the result and stored nowhere.
    ///
    /// # Errors
    /// [`Error::Lookup`], [`Error::OtherWorkspace`], [`Error::AlreadyExpired`], and those of every mutation.
    pub fn issue_key(&self, actor: Actor, new: NewKey) -> Result<IssuedKey, Error> {
        self.submit(move |draft| draft.issue_key(actor, new).map(|(key, token)| IssuedKey { key, token }))
    }

    /// Changes a key's label, its limits or its `disabled` switch.
    ///
    /// # Errors
    /// [`Error::Lookup`], [`Error::KeyRevoked`], and those of every mutation.
    pub fn set_key(&self, actor: Actor, id: KeyId, change: KeyChange) -> Result<ApiKey, Error> {
        self.submit(move |draft| draft.set_key(actor, id, change))
    }

    /// Revokes a key. No request with it is accepted after this returns, and it cannot be undone.
    /// Revoking a revoked key is not an error.
    ///
    /// # Errors
    /// [`Error::Lookup`], and those of every mutation.
    pub fn revoke_key(&self, actor: Actor, id: KeyId) -> Result<ApiKey, Error> {
        self.submit(move |draft| draft.revoke_key(actor, id))
    }

    /// [`Store::issue_key`] with a permit for the writer's queue.
    pub fn issue_key_at(&self, place: QueuePermit, actor: Actor, new: NewKey) -> Pending<IssuedKey> {
        self.enqueue(place, move |draft| {
            draft.issue_key(actor, new).map(|(key, token)| IssuedKey { key, token })
        })
    }

    /// [`Store::set_key`] with a permit for the writer's queue.
    pub fn set_key_at(
        &self,
        place: QueuePermit,
        actor: Actor,
        id: KeyId,
        change: KeyChange,
    ) -> Pending<ApiKey> {
        self.enqueue(place, move |draft| draft.set_key(actor, id, change))
    }

    /// [`Store::revoke_key`] with a permit for the writer's queue.
    pub fn revoke_key_at(&self, place: QueuePermit, actor: Actor, id: KeyId) -> Pending<ApiKey> {
        self.enqueue(place, move |draft| draft.revoke_key(actor, id))
    }
}
