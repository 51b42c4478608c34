//! Mutations of API keys: issue, change, revoke.

use super::WriteBatch;
use crate::audit::{Actor, AuditAction};
use crate::error::Error;
use crate::ids::{InternId, MemberId, WorkspaceId};
use crate::lookup::{LookupError, RecordKind};
use crate::name::Name;
use crate::records::{ApiKey, KeyKind};
use crate::rows::{self, StoredKey};
use crate::secret::Secret;
use crate::spend::SpendLimits;
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
    /// New spend limits, which replace all four.
    pub limits: Option<SpendLimits>,
}

impl WriteBatch {
    /// Returns the key and its token. The token is not stored.
    pub(crate) fn issue_key(&mut self, actor: Actor, new: NewKey) -> Result<(ApiKey, Secret), Error> {
        self.has_space_for(actor)?;
        if new.expires_at_ms.is_some_and(|expires_at_ms| expires_at_ms <= self.now_ms) {
            return Err(Error::AlreadyExpired);
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
        let token = self.unused_token()?;
        let key = ApiKey {
            id: token.id,
            kind,
            name: new.name,
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
        self.put_key(StoredKey {
            key: key.clone(),
            proof: self.view.keys().token_proof(token.secret.as_ref()),
        });
        Ok((key, token.to_text()))
    }

    pub(crate) fn set_key(&mut self, actor: Actor, id: KeyId, change: KeyChange) -> Result<ApiKey, Error> {
        self.has_space_for(actor)?;
        let mut stored = self.stored_key(id)?;
        if stored.key.revoked_at_ms.is_some() {
            return Err(Error::KeyRevoked);
        }
        let renamed = change.name.as_ref().is_some_and(|name| *name != stored.key.name);
        stored.key.name = change.name.unwrap_or(stored.key.name);
        stored.key.disabled = change.disabled.unwrap_or(stored.key.disabled);
        stored.key.limits = change.limits.unwrap_or(stored.key.limits);
        let key = stored.key.clone();
        let (disabled, limits) = (key.disabled, key.limits);
        self.audit(actor, AuditAction::KeyChanged { id, disabled, renamed, limits });
        self.put_key(stored);
        Ok(key)
    }

    /// Revoking a revoked key changes nothing and is not an error. A disk that is short of space does not
    /// prevent it: a leaked key must not stay usable.
    pub(crate) fn revoke_key(&mut self, actor: Actor, id: KeyId) -> Result<ApiKey, Error> {
        let mut stored = self.stored_key(id)?;
        if stored.key.revoked_at_ms.is_some() {
            return Ok(stored.key);
        }
        stored.key.revoked_at_ms = Some(self.now_ms);
        let key = stored.key.clone();
        self.audit(actor, AuditAction::KeyRevoked { id });
        self.put_key(stored);
        Ok(key)
    }

    pub(super) fn put_key(&mut self, stored: StoredKey) {
        self.put_row(rows::api_key_key(stored.key.id), &stored);
        self.directory_mut().put_key(stored);
    }

    fn stored_key(&self, id: KeyId) -> Result<StoredKey, Error> {
        let stored =
            self.directory.keys.get(&id).ok_or_else(|| LookupError::not_found(RecordKind::Key, id))?;
        Ok((**stored).clone())
    }

    /// A token whose id is not in use. A collision of random ids is very unlikely.
    fn unused_token(&self) -> Result<Token, Error> {
        loop {
            let token = Token::random()?;
            if !self.directory.keys.contains_key(&token.id) {
                return Ok(token);
            }
        }
    }
}
