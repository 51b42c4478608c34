//! API keys: issued, changed, revoked.

use super::Draft;
use crate::audit::{Actor, AuditAction};
use crate::directory::{Kind, LookupError};
use crate::error::Error;
use crate::ids::{InternId, MemberId, WorkspaceId};
use crate::name::Name;
use crate::records::{ApiKey, KeyKind};
use crate::rows::{self, StoredKey};
use crate::secret::Secret;
use crate::spend::SpendLimits;
use crate::token::{KeyId, Token};

/// Whom a new key is for; this is also its kind.
#[derive(Clone, Copy, Debug)]
pub enum KeyOwner {
    /// A member, or the workspace's `owner`.
    Member {
        /// The workspace.
        workspace: WorkspaceId,
        /// The member of that workspace.
        member: Option<MemberId>,
    },
    /// An intern.
    Intern {
        /// The workspace.
        workspace: WorkspaceId,
        /// The intern of that workspace.
        intern: InternId,
    },
    /// The workspace itself, for managing keys. Belongs to its `owner`.
    Provisioning {
        /// The workspace.
        workspace: WorkspaceId,
    },
    /// Nobody.
    Unscoped,
}

/// A key to issue.
#[derive(Clone, Debug)]
pub struct NewKey {
    /// Whom it is for.
    pub owner: KeyOwner,
    /// A label.
    pub name: Option<Name>,
    /// First moment at which it no longer works, Unix milliseconds.
    pub expires_at_ms: Option<u64>,
    /// What it may spend.
    pub limits: SpendLimits,
}

/// Changes to a key; `None` leaves a part as it is.
#[derive(Clone, Debug, Default)]
pub struct KeyChange {
    /// Another label, or no label.
    pub name: Option<Option<Name>>,
    /// Off or on.
    pub disabled: Option<bool>,
    /// Other limits of spending, all four together.
    pub limits: Option<SpendLimits>,
}

impl Draft {
    /// The key and its token; the token is kept nowhere else.
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

    /// Revoking twice changes nothing and is no error: the wish is fulfilled.
    pub(crate) fn revoke_key(&mut self, actor: Actor, id: KeyId) -> Result<ApiKey, Error> {
        self.has_space_for(actor)?;
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
        let stored = self.directory.stored_key(id).ok_or_else(|| LookupError::not_found(Kind::Key, id))?;
        Ok((**stored).clone())
    }

    fn unused_token(&self) -> Result<Token, Error> {
        loop {
            let token = Token::random()?;
            if self.directory.stored_key(token.id).is_none() {
                return Ok(token);
            }
        }
    }
}
