//! Workspaces, members, interns and keys, as of the last commit. All of these read memory: they do
//! not suspend, and fail only where their documentation names an error.

use std::sync::Arc;

use super::Store;
use crate::authentication::{self, AuthenticationError, Principal};
use crate::directory::OwnedKey;
use crate::error::Error;
use crate::ids::{InternId, MemberId, WorkspaceId};
use crate::lookup::{LookupError, RecordKind};
use crate::page::Page;
use crate::records::{Intern, KeyCounts, Member, RecordCounts, Workspace};
use crate::token::KeyId;

impl Store {
    /// Authenticates a token. Unknown ids and wrong secrets take the same time.
    ///
    /// # Errors
    /// See [`AuthenticationError`]: clients must get the same answer for all but the last variant;
    /// the log gets the reason.
    pub async fn authenticate(&self, token: &str) -> Result<Principal, AuthenticationError> {
        authentication::authenticate(&self.0.keys, &self.directory(), &self.0.clock, token)
    }

    /// Whether the key of a request still works: it may have been revoked, or its workspace
    /// deleted, since it was authenticated.
    pub async fn is_live(&self, principal: &Principal) -> Result<bool, Error> {
        let directory = self.directory();
        let key = directory.key(principal.key().id);
        Ok(key.is_some_and(|key| key.revoked_at_ms.is_none() && !key.disabled))
    }

    /// The workspace with this id.
    pub async fn workspace(&self, id: WorkspaceId) -> Result<Option<Arc<Workspace>>, Error> {
        Ok(self.directory().workspace(id).cloned())
    }

    /// The member with this id.
    pub async fn member(&self, id: MemberId) -> Result<Option<Arc<Member>>, Error> {
        Ok(self.directory().member(id).cloned())
    }

    /// The intern with this id.
    pub async fn intern(&self, id: InternId) -> Result<Option<Arc<Intern>>, Error> {
        Ok(self.directory().intern(id).cloned())
    }

    /// The key with this id.
    pub async fn key(&self, id: KeyId) -> Result<Option<OwnedKey>, Error> {
        let directory = self.directory();
        Ok(directory.stored_key(id).map(|stored| directory.owned(stored)))
    }

    /// A workspace by name or id.
    ///
    /// # Errors
    /// [`Error::Lookup`].
    pub async fn find_workspace(&self, name_or_id: &str) -> Result<Arc<Workspace>, Error> {
        Ok(Arc::clone(self.directory().find_workspace(name_or_id)?))
    }

    /// A member by id, or by name in one workspace or in all.
    ///
    /// # Errors
    /// [`Error::Lookup`], also when the id belongs to another workspace than the one given, and
    /// when several workspaces have a member of this name.
    pub async fn find_member(
        &self,
        workspace: Option<WorkspaceId>,
        name_or_id: &str,
    ) -> Result<Arc<Member>, Error> {
        Ok(Arc::clone(self.directory().find_member(workspace, name_or_id)?))
    }

    /// An intern by id, or by name in one workspace or in all.
    ///
    /// # Errors
    /// As for [`Store::find_member`].
    pub async fn find_intern(
        &self,
        workspace: Option<WorkspaceId>,
        name_or_id: &str,
    ) -> Result<Arc<Intern>, Error> {
        Ok(Arc::clone(self.directory().find_intern(workspace, name_or_id)?))
    }

    /// A key by its id as text. Labels are not unique, so they find nothing.
    ///
    /// # Errors
    /// [`Error::Lookup`].
    pub async fn find_key(&self, id: &str) -> Result<OwnedKey, Error> {
        let found = match id.parse() {
            Ok(id) => self.key(id).await?,
            Err(_) => None,
        };
        Ok(found.ok_or_else(|| LookupError::not_found(RecordKind::Key, id))?)
    }

    /// Workspaces, newest first: at most `limit` of those before this one.
    pub async fn workspaces(
        &self,
        before: Option<&Arc<Workspace>>,
        limit: usize,
    ) -> Result<Page<Arc<Workspace>>, Error> {
        Ok(self.directory().workspaces(before, limit))
    }

    /// Members, as for [`Store::workspaces`].
    pub async fn members(
        &self,
        before: Option<&Arc<Member>>,
        limit: usize,
    ) -> Result<Page<Arc<Member>>, Error> {
        Ok(self.directory().members(before, limit))
    }

    /// Interns, as for [`Store::workspaces`].
    pub async fn interns(
        &self,
        before: Option<&Arc<Intern>>,
        limit: usize,
    ) -> Result<Page<Arc<Intern>>, Error> {
        Ok(self.directory().interns(before, limit))
    }

    /// Keys of one workspace or of all, those that are wanted, as for [`Store::workspaces`].
    /// Includes keys revoked in the last 92 days.
    pub async fn keys(
        &self,
        workspace: Option<WorkspaceId>,
        is_wanted: impl Fn(&OwnedKey) -> bool,
        before: Option<&OwnedKey>,
        limit: usize,
    ) -> Result<Page<OwnedKey>, Error> {
        Ok(self.directory().keys(workspace, is_wanted, before, limit))
    }

    /// Numbers of all records.
    pub async fn counts(&self) -> Result<RecordCounts, Error> {
        Ok(self.directory().counts())
    }

    /// Numbers of a workspace's keys.
    pub async fn count_keys(&self, workspace: WorkspaceId) -> Result<KeyCounts, Error> {
        Ok(self.directory().count_keys(workspace))
    }

    /// Whether a member or intern key was ever issued, revoked keys included. `serve` issues a
    /// first key only when this is false, so that it issues none after the operator revoked all
    /// keys.
    pub async fn has_client_key(&self) -> Result<bool, Error> {
        Ok(self.directory().has_client_key())
    }
}
