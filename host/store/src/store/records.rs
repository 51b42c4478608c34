//! Workspaces, members, interns and keys, as of the last commit. All of these read memory: they do
//! not suspend, and fail only where their documentation names an error.

use std::cmp::Reverse;
use std::sync::Arc;

use super::Store;
use crate::authentication::{self, AuthenticationError, Principal};
use crate::directory::{Directory, OwnedKey};
use crate::error::Error;
use crate::ids::{InternId, MemberId, WorkspaceId};
use crate::knowledge::{Knowledge, RequestPurpose};
use crate::lookup::{LookupError, RecordKind};
use crate::page::Page;
use crate::records::{ApiKey, Intern, KeyCounts, Member, Workspace};
use crate::token::KeyId;

/// Records in one page of a listing.
const RECORDS_MAX: usize = 1000;

impl Store {
    /// Authenticates the token of a request that goes by what is current. Unknown ids and wrong secrets take
    /// the same time.
    ///
    /// # Errors
    /// See [`AuthenticationError`]: clients must get the same answer for all but the last two variants;
    /// the log gets the reason.
    pub async fn authenticate(&self, token: &str) -> Result<Principal, AuthenticationError> {
        self.authenticate_for(token, RequestPurpose::Other).await
    }

    /// Like [`Store::authenticate`], for a request with this purpose.
    ///
    /// # Errors
    /// Those of [`Store::authenticate`].
    pub async fn authenticate_for(
        &self,
        token: &str,
        purpose: RequestPurpose,
    ) -> Result<Principal, AuthenticationError> {
        let contact = self.0.shared.contact();
        let authenticated =
            authentication::authenticate(&self.0.keys, &self.directory(), &self.0.clock, token, purpose);
        let knowledge = contact.knowledge();
        // Without contact, a key that was made meanwhile is not known.
        match authenticated {
            Err(_) if knowledge != Knowledge::Current => Err(AuthenticationError::NoContact),
            _ if !purpose.allows(knowledge) => Err(AuthenticationError::NoContact),
            authenticated => authenticated,
        }
    }

    /// Whether the key of a request still works: it may have been revoked, or its workspace
    /// deleted, since it was authenticated.
    ///
    /// # Errors
    /// [`Error::NoContact`].
    pub async fn is_live(&self, principal: &Principal) -> Result<bool, Error> {
        let contact = self.0.shared.contact();
        let directory = self.directory();
        let stored = directory.keys.get(&principal.key().id);
        if !principal.purpose().allows(contact.knowledge()) {
            return Err(Error::NoContact);
        }
        Ok(stored.is_some_and(|stored| stored.key.revoked_at_ms.is_none() && !stored.key.disabled))
    }

    /// The workspace with this id.
    pub async fn workspace(&self, id: WorkspaceId) -> Result<Option<Arc<Workspace>>, Error> {
        Ok(self.directory().workspaces.get(&id).cloned())
    }

    /// The member with this id.
    pub async fn member(&self, id: MemberId) -> Result<Option<Arc<Member>>, Error> {
        Ok(self.directory().members.get(&id).cloned())
    }

    /// The intern with this id.
    pub async fn intern(&self, id: InternId) -> Result<Option<Arc<Intern>>, Error> {
        Ok(self.directory().interns.get(&id).cloned())
    }

    /// The key with this id.
    pub async fn key(&self, id: KeyId) -> Result<Option<OwnedKey>, Error> {
        let directory = self.directory();
        Ok(directory.keys.get(&id).map(|stored| directory.owned(stored)))
    }

    /// A workspace by name or id.
    ///
    /// # Errors
    /// [`Error::Lookup`].
    pub async fn find_workspace(&self, given: &str) -> Result<Arc<Workspace>, Error> {
        Ok(Arc::clone(self.directory().find_workspace(given)?))
    }

    /// A member by id, or by name in one workspace or in all.
    ///
    /// # Errors
    /// [`Error::Lookup`], also when the id belongs to another workspace than the one given, and
    /// when several workspaces have a member of this name.
    pub async fn find_member(&self, of: Option<WorkspaceId>, given: &str) -> Result<Arc<Member>, Error> {
        Ok(Arc::clone(self.directory().find_member(of, given)?))
    }

    /// An intern by id, or by name in one workspace or in all.
    ///
    /// # Errors
    /// As for [`Store::find_member`].
    pub async fn find_intern(&self, of: Option<WorkspaceId>, given: &str) -> Result<Arc<Intern>, Error> {
        Ok(Arc::clone(self.directory().find_intern(of, given)?))
    }

    /// A key by its id. Labels are not unique, so they find nothing.
    ///
    /// # Errors
    /// [`Error::Lookup`].
    pub async fn find_key(&self, given: &str) -> Result<OwnedKey, Error> {
        let directory = self.directory();
        let stored = given.parse().ok().and_then(|id| directory.keys.get(&id));
        Ok(directory.owned(stored.ok_or_else(|| LookupError::not_found(RecordKind::Key, given))?))
    }

    /// Workspaces, newest first: the first 1,000 of those before this one.
    pub async fn workspaces(&self, before: Option<&Arc<Workspace>>) -> Result<Page<Arc<Workspace>>, Error> {
        Ok(page(self.directory().workspaces.values(), |it| (it.created_at_ms, it.id), before))
    }

    /// Members, as for [`Store::workspaces`].
    pub async fn members(&self, before: Option<&Arc<Member>>) -> Result<Page<Arc<Member>>, Error> {
        Ok(page(self.directory().members.values(), |it| (it.created_at_ms, it.id), before))
    }

    /// Interns, as for [`Store::workspaces`].
    pub async fn interns(&self, before: Option<&Arc<Intern>>) -> Result<Page<Arc<Intern>>, Error> {
        Ok(page(self.directory().interns.values(), |it| (it.created_at_ms, it.id), before))
    }

    /// Keys of all workspaces, as for [`Store::workspaces`]. Includes keys revoked in the last 92
    /// days.
    pub async fn keys(&self, before: Option<&OwnedKey>) -> Result<Page<OwnedKey>, Error> {
        let directory = self.directory();
        let before = before.map(|before| &before.stored);
        let keys = newest_first(directory.keys.values(), |it| (it.key.created_at_ms, it.key.id), before);
        Ok(Page::of(keys.map(|stored| directory.owned(stored)), RECORDS_MAX))
    }

    /// Keys of one workspace that are not revoked, newest first: those that are wanted, without the
    /// first `offset`, at most `limit`.
    pub async fn keys_of(
        &self,
        workspace: WorkspaceId,
        is_wanted: impl Fn(&OwnedKey) -> bool,
        offset: usize,
        limit: usize,
    ) -> Result<Page<OwnedKey>, Error> {
        let directory = self.directory();
        let is_live = |key: &ApiKey| key.workspace == Some(workspace) && key.revoked_at_ms.is_none();
        let live = directory.keys.values().filter(|it| is_live(&it.key));
        let keys = newest_first(live, |it| (it.key.created_at_ms, it.key.id), None);
        let wanted = keys.map(|stored| directory.owned(stored)).filter(is_wanted);
        Ok(Page::of(wanted.skip(offset), limit))
    }

    /// Numbers of all records, by their kind.
    pub async fn counts(&self) -> Result<[(&'static str, usize); 4], Error> {
        let Directory { workspaces, members, interns, keys } = &**self.directory();
        Ok([
            ("workspaces", workspaces.len()),
            ("members", members.len()),
            ("interns", interns.len()),
            ("keys", keys.len()),
        ])
    }

    /// Numbers of a workspace's keys.
    pub async fn count_keys(&self, workspace: WorkspaceId) -> Result<KeyCounts, Error> {
        let directory = self.directory();
        let kept = || directory.keys.values().filter(|it| it.key.workspace == Some(workspace));
        let live = kept().filter(|it| it.key.revoked_at_ms.is_none()).count();
        Ok(KeyCounts { live, kept: kept().count() })
    }

    /// Whether a member or intern key was ever issued, revoked keys included. `serve` issues a
    /// first key only when this is false, so that it issues none after the operator revoked all
    /// keys.
    pub async fn has_client_key(&self) -> Result<bool, Error> {
        Ok(self.directory().keys.values().any(|stored| stored.key.is_for_requests()))
    }
}

/// The newest of the records before this one.
fn page<'a, T: Clone + 'a, O: Ord>(
    records: impl Iterator<Item = &'a T>,
    order: impl Fn(&T) -> O,
    before: Option<&T>,
) -> Page<T> {
    Page::of(newest_first(records, order, before).cloned(), RECORDS_MAX)
}

/// Records before this one. Those of the same millisecond are in the order of their ids, so that a
/// listing is always the same.
fn newest_first<'a, T: 'a, O: Ord>(
    records: impl Iterator<Item = &'a T>,
    order: impl Fn(&T) -> O,
    before: Option<&T>,
) -> impl Iterator<Item = &'a T> {
    let end = before.map(&order);
    let mut records: Vec<&T> = records.filter(|it| end.as_ref().is_none_or(|end| order(it) < *end)).collect();
    records.sort_unstable_by_key(|it| Reverse(order(it)));
    records.into_iter()
}
