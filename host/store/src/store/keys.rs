//! API keys: blocking functions for commands, and functions that need a permit for requests.

use super::Store;
use crate::audit::Actor;
use crate::changes::{Change, KeyChange, NewKey, guarded};
use crate::directory::RecordId;
use crate::error::Error;
use crate::pending::{Pending, QueuePermit};
use crate::records::ApiKey;
use crate::rows::Keyspace;
use crate::secret::Secret;
use crate::state::{Guard, Need};
use crate::token::{KeyId, Token};

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
        self.submit(issue(actor, new))
    }

    /// Changes a key's label, its limits or its `disabled` switch.
    ///
    /// # Errors
    /// [`Error::Lookup`], [`Error::KeyRevoked`], [`Error::LimitsChanged`], and those of every mutation.
    pub fn set_key(&self, actor: Actor, id: KeyId, change: KeyChange) -> Result<ApiKey, Error> {
        self.submit(set(actor, id, change))
    }

    /// Revokes a key. No request with it is accepted after this returns, and it cannot be undone.
    /// Revoking a revoked key is not an error.
    ///
    /// # Errors
    /// [`Error::Lookup`], and those of every mutation.
    pub fn revoke_key(&self, actor: Actor, id: KeyId) -> Result<ApiKey, Error> {
        self.submit(revoke(actor, id))
    }

    /// [`Store::issue_key`] with a permit for the writer's queue.
    pub fn issue_key_at(&self, permit: QueuePermit, actor: Actor, new: NewKey) -> Pending<IssuedKey> {
        self.enqueue(permit, issue(actor, new))
    }

    /// [`Store::set_key`] with a permit for the writer's queue.
    pub fn set_key_at(
        &self,
        permit: QueuePermit,
        actor: Actor,
        id: KeyId,
        change: KeyChange,
    ) -> Pending<ApiKey> {
        self.enqueue(permit, set(actor, id, change))
    }

    /// [`Store::revoke_key`] with a permit for the writer's queue.
    pub fn revoke_key_at(&self, permit: QueuePermit, actor: Actor, id: KeyId) -> Pending<ApiKey> {
        self.enqueue(permit, revoke(actor, id))
    }
}

fn issue(actor: Actor, new: NewKey) -> impl Change<Done = IssuedKey> {
    let token = Token::random();
    let id = token.as_ref().ok().map(|token| token.id);
    let issue = guarded([Guard::of_key(new.workspace())], move |batch| {
        let token = token.as_ref().map_err(|error| *error)?;
        let (key, token) = batch.issue_key(actor, &new, token)?;
        Ok(IssuedKey { key, token })
    });
    issue.reading(move || id.map(row).into_iter().collect()).adding()
}

fn set(actor: Actor, id: KeyId, change: KeyChange) -> impl Change<Done = ApiKey> {
    guarded([], move |batch| batch.set_key(actor, id, &change)).reading(move || vec![row(id)])
}

fn revoke(actor: Actor, id: KeyId) -> impl Change<Done = ApiKey> {
    guarded([], move |batch| batch.revoke_key(actor, id)).reading(move || vec![row(id)])
}

fn row(id: KeyId) -> Need {
    Need::Row(Keyspace::Keys, RecordId::Key(id).row_key())
}
