//! API keys as requests change them: without blocking the thread that asks.

use super::{IssuedKey, Store};
use crate::audit::Actor;
use crate::changes::{KeyChange, NewKey};
use crate::pending::{Pending, Place};
use crate::records::ApiKey;
use crate::token::KeyId;

impl Store {
    /// [`Store::issue_key`] with a place in the writer's queue.
    pub fn issue_key_at(&self, place: Place, actor: Actor, new: NewKey) -> Pending<IssuedKey> {
        self.enqueue(place, move |draft| {
            draft.issue_key(actor, new).map(|(key, token)| IssuedKey { key, token })
        })
    }

    /// [`Store::set_key`] with a place in the writer's queue.
    pub fn set_key_at(&self, place: Place, actor: Actor, id: KeyId, change: KeyChange) -> Pending<ApiKey> {
        self.enqueue(place, move |draft| draft.set_key(actor, id, change))
    }

    /// [`Store::revoke_key`] with a place in the writer's queue.
    pub fn revoke_key_at(&self, place: Place, actor: Actor, id: KeyId) -> Pending<ApiKey> {
        self.enqueue(place, move |draft| draft.revoke_key(actor, id))
    }
}
