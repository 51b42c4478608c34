//! Workspaces, members, interns and keys, as of the last commit. All of these read memory: they do
//! not suspend, and fail only where their documentation names an error.

use std::sync::Arc;

use super::Store;
use crate::authentication::{self, AuthenticationError, Principal};
use crate::directory::{Directory, OwnedKey, RecordId};
use crate::error::Error;
use crate::ids::{InternId, MemberId, WorkspaceId};
use crate::knowledge::{Knowledge, RequestPurpose};
use crate::lookup::{LookupError, RecordKind};
use crate::page::Page;
use crate::records::{Intern, KeyCounts, Member, Workspace};
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

    /// The identity of a request as of now, with what its key reaches now; `None` if the key no
    /// longer works: since it was authenticated, it may have expired, been revoked or switched off,
    /// or its workspace deleted.
    ///
    /// # Errors
    /// [`Error::NoContact`].
    pub async fn renewed(&self, principal: &Principal) -> Result<Option<Principal>, Error> {
        let contact = self.0.shared.contact();
        let directory = self.directory();
        let stored = directory.keys.get(&principal.key().id);
        let purpose = principal.purpose();
        if !purpose.allows(contact.knowledge()) {
            return Err(Error::NoContact);
        }
        Ok(stored
            .and_then(|stored| authentication::principal(&directory, &self.0.clock, stored, purpose).ok()))
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
        Ok(page(self.directory().workspaces.newest_first(None, before.map(AsRef::as_ref))))
    }

    /// Members of one workspace or of all, as for [`Store::workspaces`].
    pub async fn members(
        &self,
        of: Option<WorkspaceId>,
        before: Option<&Arc<Member>>,
    ) -> Result<Page<Arc<Member>>, Error> {
        let of = of.map(RecordId::Workspace);
        Ok(page(self.directory().members.newest_first(of, before.map(AsRef::as_ref))))
    }

    /// Interns, as for [`Store::members`].
    pub async fn interns(
        &self,
        of: Option<WorkspaceId>,
        before: Option<&Arc<Intern>>,
    ) -> Result<Page<Arc<Intern>>, Error> {
        let of = of.map(RecordId::Workspace);
        Ok(page(self.directory().interns.newest_first(of, before.map(AsRef::as_ref))))
    }

    /// Keys, as for [`Store::members`]. Includes keys revoked in the last 92 days.
    pub async fn keys(
        &self,
        of: Option<WorkspaceId>,
        before: Option<&OwnedKey>,
    ) -> Result<Page<OwnedKey>, Error> {
        let directory = self.directory();
        let (of, before) = (of.map(RecordId::Workspace), before.map(|before| before.stored.as_ref()));
        let keys = directory.keys.newest_first(of, before);
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
        let newest_first = directory.keys.newest_first(Some(RecordId::Workspace(workspace)), None);
        let live = newest_first.filter(|it| it.key.revoked_at_ms.is_none());
        let wanted = live.map(|stored| directory.owned(stored)).filter(is_wanted);
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
        let kept = directory.keys.newest_first(Some(RecordId::Workspace(workspace)), None);
        let mut counts = KeyCounts { live: 0, kept: 0 };
        for stored in kept {
            counts.kept += 1;
            counts.live += usize::from(stored.key.revoked_at_ms.is_none());
        }
        Ok(counts)
    }

    /// Whether a member or intern key was ever issued, revoked keys included. `serve` issues a
    /// first key only when this is false, so that it issues none after the operator revoked all
    /// keys.
    pub async fn has_client_key(&self) -> Result<bool, Error> {
        Ok(self.directory().keys.values().any(|stored| stored.key.is_for_requests()))
    }
}

/// The first page of these records.
fn page<'a, T: 'a>(records: impl Iterator<Item = &'a Arc<T>>) -> Page<Arc<T>> {
    Page::of(records.cloned(), RECORDS_MAX)
}
