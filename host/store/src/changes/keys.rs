//! Mutations of API keys: issue, change, revoke.

use std::sync::Arc;

use super::WriteBatch;
use crate::audit::{Actor, AuditAction};
use crate::directory::{Record, RecordId};
use crate::error::Error;
use crate::ids::{InternId, MemberId, WorkspaceId};
use crate::lookup::{LookupError, RecordKind};
use crate::name::Name;
use crate::records::{ApiKey, KeyKind};
use crate::rows::StoredKey;
use crate::secret::Secret;
use crate::spend::SpendLimits;
use crate::state::{Gap, Guard};
use crate::token::{KeyId, Token};

/// The owner of a new key, which also determines its kind.
#[derive(Clone, Copy, Debug)]
pub enum KeyOwner {
    /// A member of a workspace.
    Member {
        /// The workspace of the key.
        workspace: WorkspaceId,
        /// A member of that workspace; `None` for its member `owner`.
        member: Option<MemberId>,
    },
    /// An intern of a workspace.
    Intern {
        /// The workspace of the key.
        workspace: WorkspaceId,
        /// An intern of that workspace.
        intern: InternId,
    },
    /// The workspace itself, for managing keys. The key belongs to the member `owner`.
    Provisioning {
        /// The workspace of the key.
        workspace: WorkspaceId,
    },
    /// No owner: the key reads the catalog only.
    Unscoped,
}

/// An API key to issue.
#[derive(Clone, Debug)]
pub struct NewKey {
    /// The owner, which also determines the kind.
    pub owner: KeyOwner,
    /// A label; it need not be unique.
    pub name: Option<Name>,
    /// First moment at which it is no longer accepted, Unix milliseconds.
    pub expires_at_ms: Option<u64>,
    /// Its spend limits.
    pub limits: SpendLimits,
}

/// Changes of a key; `None` leaves a part unchanged.
#[derive(Clone, Debug, Default)]
pub struct KeyChange {
    /// The new label; `Some(None)` removes it.
    pub name: Option<Option<Name>>,
    /// Whether it is switched off.
    pub disabled: Option<bool>,
    /// New spend limits.
    pub limits: Option<LimitsChange>,
}

/// New spend limits of a key, which replace all four.
#[derive(Clone, Copy, Debug)]
pub struct LimitsChange {
    /// The limits that the new ones were made from. A key that has other limits by now is not changed, so that
    /// of two changes at the same time none is lost. `None` for limits that do not depend on the former ones.
    pub from: Option<SpendLimits>,
    /// The new limits.
    pub to: SpendLimits,
}

impl NewKey {
    /// The workspace it will belong to; `None` for an unscoped key.
    pub(crate) fn workspace(&self) -> Option<WorkspaceId> {
        match self.owner {
            KeyOwner::Member { workspace, .. }
            | KeyOwner::Intern { workspace, .. }
            | KeyOwner::Provisioning { workspace } => Some(workspace),
            KeyOwner::Unscoped => None,
        }
    }
}

impl WriteBatch {
    /// Issues a key with this token and returns both. The token is not stored. It was drawn before,
    /// so that the change names the same id each time it is applied.
    pub(crate) fn issue_key(
        &mut self,
        actor: Actor,
        new: &NewKey,
        token: &Token,
    ) -> Result<(ApiKey, Secret), Gap> {
        self.has_space_for(actor)?;
        if new.expires_at_ms.is_some_and(|expires_at_ms| expires_at_ms <= self.now_ms) {
            return Err(Error::AlreadyExpired.into());
        }
        let (kind, workspace, member, intern) = match new.owner {
            KeyOwner::Member { workspace, member } => {
                (KeyKind::Member, Some(workspace), Some(self.member_of(workspace, member)?), None)
            }
            KeyOwner::Intern { workspace, intern } => {
                self.check_intern_of(workspace, intern)?;
                (KeyKind::Intern, Some(workspace), None, Some(intern))
            }
            KeyOwner::Provisioning { workspace } => {
                (KeyKind::Provisioning, Some(workspace), Some(self.member_of(workspace, None)?), None)
            }
            KeyOwner::Unscoped => (KeyKind::Unscoped, None, None, None),
        };
        if self.key(token.id)?.is_some() {
            // Two random ids of 71 bits are equal: the caller may try again with another one.
            return Err(Error::Busy.into());
        }
        let key = ApiKey {
            id: token.id,
            kind,
            name: new.name.clone(),
            workspace,
            member,
            intern,
            created_at_ms: self.now_ms,
            expires_at_ms: new.expires_at_ms,
            revoked_at_ms: None,
            disabled: false,
            limits: new.limits,
        };
        let (expires_at_ms, limits) = (key.expires_at_ms, key.limits);
        self.audit(
            actor,
            AuditAction::KeyIssued { id: key.id, kind, workspace, member, intern, expires_at_ms, limits },
        );
        // Only a proof of the token's secret is stored; the token itself is returned once.
        let proof = self.view.keys().token_proof(token.secret.as_ref());
        self.put_key(StoredKey { key: key.clone(), proof })?;
        Ok((key, token.to_text()))
    }

    /// A disk that is short of space does not prevent that a key is only switched off: a leaked key must
    /// not stay usable.
    pub(crate) fn set_key(&mut self, actor: Actor, id: KeyId, change: &KeyChange) -> Result<ApiKey, Gap> {
        if !matches!(change, KeyChange { name: None, disabled: Some(true), limits: None }) {
            self.has_space_for(actor)?;
        }
        let mut stored = self.stored_key(id)?;
        if stored.key.revoked_at_ms.is_some() {
            return Err(Error::KeyRevoked.into());
        }
        if change.limits.and_then(|limits| limits.from).is_some_and(|from| from != stored.key.limits) {
            return Err(Error::LimitsChanged.into());
        }
        let renamed = change.name.as_ref().is_some_and(|name| *name != stored.key.name);
        stored.key.name = change.name.clone().unwrap_or(stored.key.name);
        stored.key.disabled = change.disabled.unwrap_or(stored.key.disabled);
        stored.key.limits = change.limits.map_or(stored.key.limits, |limits| limits.to);
        let key = stored.key.clone();
        let (disabled, limits) = (key.disabled, key.limits);
        self.audit(actor, AuditAction::KeyChanged { id, disabled, renamed, limits });
        self.put_key(stored)?;
        Ok(key)
    }

    /// Revoking a revoked key changes nothing and is not an error. A disk that is short of space does not
    /// prevent it: a leaked key must not stay usable.
    pub(crate) fn revoke_key(&mut self, actor: Actor, id: KeyId) -> Result<ApiKey, Gap> {
        let mut stored = self.stored_key(id)?;
        if stored.key.revoked_at_ms.is_some() {
            return Ok(stored.key);
        }
        stored.key.revoked_at_ms = Some(self.now_ms);
        let key = stored.key.clone();
        self.audit(actor, AuditAction::KeyRevoked { id });
        self.put_key(stored)?;
        Ok(key)
    }

    pub(super) fn put_key(&mut self, stored: StoredKey) -> Result<(), Gap> {
        self.put_record(Guard::of_key(stored.key.workspace), Record::Key(Arc::new(stored)))
    }

    /// A key as of this write batch.
    pub(super) fn key(&self, id: KeyId) -> Result<Option<Arc<StoredKey>>, Gap> {
        match self.record_of(RecordId::Key(id))? {
            Some(Record::Key(stored)) => Ok(Some(stored)),
            _ => Ok(None),
        }
    }

    fn stored_key(&self, id: KeyId) -> Result<StoredKey, Gap> {
        let stored = self.key(id)?.ok_or_else(|| LookupError::not_found(RecordKind::Key, id))?;
        Ok(StoredKey::clone(&stored))
    }
}
