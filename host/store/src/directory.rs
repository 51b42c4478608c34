//! The directory: an in-memory snapshot of all entities that authentication and commands look up.
//!
//! A snapshot never changes. The writer publishes a new one after each commit. Snapshots share
//! their records, so a new one copies pointers only.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

use crate::ids::{InternId, MemberId, WorkspaceId};
use crate::lookup::{LookupError, RecordKind};
use crate::name::Name;
use crate::records::{ApiKey, Intern, Member, Workspace};
use crate::rows::StoredKey;
use crate::token::KeyId;

/// One consistent state of all workspaces, members, interns and keys.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    workspaces: BTreeMap<WorkspaceId, Arc<Workspace>>,
    members: BTreeMap<MemberId, Arc<Member>>,
    interns: BTreeMap<InternId, Arc<Intern>>,
    keys: BTreeMap<KeyId, Arc<StoredKey>>,
}

impl Directory {
    /// All workspaces, oldest first.
    pub fn workspaces(&self) -> Vec<&Workspace> {
        oldest_first(self.workspaces.values().map(Arc::as_ref), |workspace| workspace.created_at_ms)
    }

    /// All members, oldest first.
    pub fn members(&self) -> Vec<&Member> {
        oldest_first(self.members.values().map(Arc::as_ref), |member| member.created_at_ms)
    }

    /// All interns, oldest first.
    pub fn interns(&self) -> Vec<&Intern> {
        oldest_first(self.interns.values().map(Arc::as_ref), |intern| intern.created_at_ms)
    }

    /// The members of one workspace, in no special order.
    pub fn members_of(&self, workspace: WorkspaceId) -> impl Iterator<Item = &Member> {
        self.members.values().map(Arc::as_ref).filter(move |member| member.workspace == workspace)
    }

    /// The interns of one workspace, in no special order.
    pub fn interns_of(&self, workspace: WorkspaceId) -> impl Iterator<Item = &Intern> {
        self.interns.values().map(Arc::as_ref).filter(move |intern| intern.workspace == workspace)
    }

    /// All keys, oldest first, including keys revoked in the last 92 days.
    pub fn keys(&self) -> Vec<&ApiKey> {
        oldest_first(self.keys.values().map(|stored| &stored.key), |key| key.created_at_ms)
    }

    /// The workspace with this id.
    pub fn workspace(&self, id: WorkspaceId) -> Option<&Workspace> {
        self.workspaces.get(&id).map(Arc::as_ref)
    }

    /// The member with this id.
    pub fn member(&self, id: MemberId) -> Option<&Member> {
        self.members.get(&id).map(Arc::as_ref)
    }

    /// The intern with this id.
    pub fn intern(&self, id: InternId) -> Option<&Intern> {
        self.interns.get(&id).map(Arc::as_ref)
    }

    /// The key with this id.
    pub fn key(&self, id: KeyId) -> Option<&ApiKey> {
        self.stored_key(id).map(|stored| &stored.key)
    }

    /// A workspace by name or id.
    ///
    /// # Errors
    /// [`LookupError::NotFound`].
    pub fn find_workspace(&self, name_or_id: &str) -> Result<&Workspace, LookupError> {
        find(RecordKind::Workspace, &self.workspaces, name_or_id, |it| &it.name, |_| true)
    }

    /// A member by id, or by name in one workspace or in all.
    ///
    /// # Errors
    /// [`LookupError::NotFound`], also when the id belongs to another workspace than the one given;
    /// [`LookupError::Ambiguous`] without a workspace.
    pub fn find_member(
        &self,
        workspace: Option<WorkspaceId>,
        name_or_id: &str,
    ) -> Result<&Member, LookupError> {
        let is_inside = |it: &Member| workspace.is_none_or(|workspace| it.workspace == workspace);
        find(RecordKind::Member, &self.members, name_or_id, |it| &it.name, is_inside)
    }

    /// An intern by id, or by name in one workspace or in all.
    ///
    /// # Errors
    /// As for [`Directory::find_member`].
    pub fn find_intern(
        &self,
        workspace: Option<WorkspaceId>,
        name_or_id: &str,
    ) -> Result<&Intern, LookupError> {
        let is_inside = |it: &Intern| workspace.is_none_or(|workspace| it.workspace == workspace);
        find(RecordKind::Intern, &self.interns, name_or_id, |it| &it.name, is_inside)
    }

    /// A key by its id. Labels are not unique, so they find nothing.
    ///
    /// # Errors
    /// [`LookupError::NotFound`].
    pub fn find_key(&self, id: &str) -> Result<&ApiKey, LookupError> {
        let found = id.parse().ok().and_then(|id| self.key(id));
        found.ok_or_else(|| LookupError::not_found(RecordKind::Key, id))
    }

    /// Whether a member or intern key was ever issued, revoked keys included. `serve` issues a
    /// first key only when this is false, so that it issues none after the operator revoked all
    /// keys.
    pub fn has_client_key(&self) -> bool {
        self.keys.values().any(|stored| stored.key.is_for_requests())
    }

    pub(crate) fn stored_key(&self, id: KeyId) -> Option<&Arc<StoredKey>> {
        self.keys.get(&id)
    }

    pub(crate) fn stored_keys(&self) -> impl Iterator<Item = &Arc<StoredKey>> {
        self.keys.values()
    }

    pub(crate) fn put_workspace(&mut self, workspace: Workspace) {
        self.workspaces.insert(workspace.id, Arc::new(workspace));
    }

    pub(crate) fn put_member(&mut self, member: Member) {
        self.members.insert(member.id, Arc::new(member));
    }

    pub(crate) fn put_intern(&mut self, intern: Intern) {
        self.interns.insert(intern.id, Arc::new(intern));
    }

    pub(crate) fn remove_workspace(&mut self, id: WorkspaceId) {
        self.workspaces.remove(&id);
    }

    pub(crate) fn remove_member(&mut self, id: MemberId) {
        self.members.remove(&id);
    }

    pub(crate) fn remove_intern(&mut self, id: InternId) {
        self.interns.remove(&id);
    }

    pub(crate) fn put_key(&mut self, key: StoredKey) {
        self.keys.insert(key.key.id, Arc::new(key));
    }

    pub(crate) fn remove_key(&mut self, id: KeyId) {
        self.keys.remove(&id);
    }
}

/// Records of the same millisecond keep the order of their ids, so that a listing is always the
/// same.
fn oldest_first<'a, T>(
    records: impl Iterator<Item = &'a T>,
    created_at_ms: impl Fn(&T) -> u64,
) -> Vec<&'a T> {
    let mut records: Vec<&T> = records.collect();
    records.sort_by_key(|record| created_at_ms(record));
    records
}

/// The only record of those inside that has this id or this name. An id takes precedence over an
/// equal name.
fn find<'a, I: Ord + FromStr, T>(
    kind: RecordKind,
    records: &'a BTreeMap<I, Arc<T>>,
    given: &str,
    name: impl Fn(&T) -> &Name,
    is_inside: impl Fn(&T) -> bool,
) -> Result<&'a T, LookupError> {
    let by_id = given.parse().ok().and_then(|id| records.get(&id)).filter(|it| is_inside(it));
    if let Some(found) = by_id {
        return Ok(found);
    }
    let mut named = records.values().filter(|it| is_inside(it) && name(it).as_str() == given);
    match (named.next(), named.count()) {
        (Some(found), 0) => Ok(found),
        (None, _) => Err(LookupError::not_found(kind, given)),
        (Some(_), more) => Err(LookupError::Ambiguous { kind, given: given.to_owned(), count: 1 + more }),
    }
}
