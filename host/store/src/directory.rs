//! The directory: an in-memory snapshot of all entities that authentication and commands look up.
//!
//! A snapshot never changes. The writer publishes a new one after each commit. Snapshots share
//! their records, so a new one copies pointers only.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::ids::{InternId, MemberId, WorkspaceId};
use crate::lookup::{LookupError, RecordKind};
use crate::name::Name;
use crate::page::Page;
use crate::records::{ApiKey, Intern, KeyCounts, Member, MemberRole, RecordCounts, Workspace};
use crate::rows::StoredKey;
use crate::token::KeyId;

/// One consistent state of all workspaces, members, interns and keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Directory {
    workspaces: BTreeMap<WorkspaceId, Arc<Workspace>>,
    members: BTreeMap<MemberId, Arc<Member>>,
    interns: BTreeMap<InternId, Arc<Intern>>,
    keys: BTreeMap<KeyId, Arc<StoredKey>>,
}

/// A key with the records of its workspace, member and intern, all of one commit.
#[derive(Clone)]
pub struct OwnedKey {
    stored: Arc<StoredKey>,
    workspace: Option<Arc<Workspace>>,
    member: Option<Arc<Member>>,
    intern: Option<Arc<Intern>>,
}

impl OwnedKey {
    /// The key.
    pub fn key(&self) -> &ApiKey {
        &self.stored.key
    }

    /// Workspace of the key; `None` for unscoped keys.
    pub fn workspace(&self) -> Option<&Arc<Workspace>> {
        self.workspace.as_ref()
    }

    /// Member the key acts for; `None` for intern and unscoped keys, and for a revoked key whose
    /// member was deleted.
    pub fn member(&self) -> Option<&Arc<Member>> {
        self.member.as_ref()
    }

    /// Intern the key acts for; `None` for other keys than those of interns, and for a revoked key
    /// whose intern was deleted.
    pub fn intern(&self) -> Option<&Arc<Intern>> {
        self.intern.as_ref()
    }

    /// The role of the key's member.
    pub fn role(&self) -> Option<MemberRole> {
        self.member.as_ref().map(|member| member.role)
    }
}

impl fmt::Debug for OwnedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedKey").field(self.key()).finish()
    }
}

impl Directory {
    /// Workspaces, newest first: at most `limit` of those before this one.
    pub(crate) fn workspaces(&self, before: Option<&Arc<Workspace>>, limit: usize) -> Page<Arc<Workspace>> {
        let order = |it: &Arc<Workspace>| (it.created_at_ms, it.id);
        Page::of(newest_first(self.workspaces.values(), order, before).cloned(), limit)
    }

    /// Members, as for [`Directory::workspaces`].
    pub(crate) fn members(&self, before: Option<&Arc<Member>>, limit: usize) -> Page<Arc<Member>> {
        let order = |it: &Arc<Member>| (it.created_at_ms, it.id);
        Page::of(newest_first(self.members.values(), order, before).cloned(), limit)
    }

    /// Interns, as for [`Directory::workspaces`].
    pub(crate) fn interns(&self, before: Option<&Arc<Intern>>, limit: usize) -> Page<Arc<Intern>> {
        let order = |it: &Arc<Intern>| (it.created_at_ms, it.id);
        Page::of(newest_first(self.interns.values(), order, before).cloned(), limit)
    }

    /// Keys of one workspace or of all, those that are wanted, as for [`Directory::workspaces`].
    /// Includes keys revoked in the last 92 days.
    pub(crate) fn keys(
        &self,
        workspace: Option<WorkspaceId>,
        is_wanted: impl Fn(&OwnedKey) -> bool,
        before: Option<&OwnedKey>,
        limit: usize,
    ) -> Page<OwnedKey> {
        let inside = self.keys.values().filter(|it| workspace.is_none() || it.key.workspace == workspace);
        let order = |it: &Arc<StoredKey>| (it.key.created_at_ms, it.key.id);
        let keys = newest_first(inside, order, before.map(|before| &before.stored));
        Page::of(keys.map(|stored| self.owned(stored)).filter(is_wanted), limit)
    }

    /// The members of one workspace, in no special order.
    pub(crate) fn members_of(&self, workspace: WorkspaceId) -> impl Iterator<Item = &Member> {
        self.members.values().map(Arc::as_ref).filter(move |member| member.workspace == workspace)
    }

    /// The interns of one workspace, in no special order.
    pub(crate) fn interns_of(&self, workspace: WorkspaceId) -> impl Iterator<Item = &Intern> {
        self.interns.values().map(Arc::as_ref).filter(move |intern| intern.workspace == workspace)
    }

    /// Numbers of all records.
    pub(crate) fn counts(&self) -> RecordCounts {
        RecordCounts {
            workspaces: self.workspaces.len(),
            members: self.members.len(),
            interns: self.interns.len(),
            keys: self.keys.len(),
        }
    }

    /// Numbers of a workspace's keys.
    pub(crate) fn count_keys(&self, workspace: WorkspaceId) -> KeyCounts {
        let of_workspace = self.keys.values().filter(|it| it.key.workspace == Some(workspace));
        of_workspace.fold(KeyCounts::default(), |counts, it| KeyCounts {
            kept: counts.kept + 1,
            live: counts.live + usize::from(it.key.revoked_at_ms.is_none()),
        })
    }

    /// The workspace with this id.
    pub(crate) fn workspace(&self, id: WorkspaceId) -> Option<&Arc<Workspace>> {
        self.workspaces.get(&id)
    }

    /// The member with this id.
    pub(crate) fn member(&self, id: MemberId) -> Option<&Arc<Member>> {
        self.members.get(&id)
    }

    /// The intern with this id.
    pub(crate) fn intern(&self, id: InternId) -> Option<&Arc<Intern>> {
        self.interns.get(&id)
    }

    /// The key with this id.
    pub(crate) fn key(&self, id: KeyId) -> Option<&ApiKey> {
        self.stored_key(id).map(|stored| &stored.key)
    }

    /// A key with the records of its owner.
    pub(crate) fn owned(&self, stored: &Arc<StoredKey>) -> OwnedKey {
        OwnedKey {
            workspace: stored.key.workspace.and_then(|id| self.workspace(id)).cloned(),
            member: stored.key.member.and_then(|id| self.member(id)).cloned(),
            intern: stored.key.intern.and_then(|id| self.intern(id)).cloned(),
            stored: Arc::clone(stored),
        }
    }

    pub(crate) fn has_workspace(&self, name: &Name) -> bool {
        self.workspaces.values().any(|workspace| workspace.name == *name)
    }

    /// A workspace by name or id.
    pub(crate) fn find_workspace(&self, name_or_id: &str) -> Result<&Arc<Workspace>, LookupError> {
        find(RecordKind::Workspace, &self.workspaces, name_or_id, |it| &it.name, |_| true)
    }

    /// A member by id, or by name in one workspace or in all. The id of a member of another
    /// workspace than the one given finds nothing.
    pub(crate) fn find_member(
        &self,
        workspace: Option<WorkspaceId>,
        name_or_id: &str,
    ) -> Result<&Arc<Member>, LookupError> {
        let is_inside = |it: &Member| workspace.is_none_or(|workspace| it.workspace == workspace);
        find(RecordKind::Member, &self.members, name_or_id, |it| &it.name, is_inside)
    }

    /// An intern, as for [`Directory::find_member`].
    pub(crate) fn find_intern(
        &self,
        workspace: Option<WorkspaceId>,
        name_or_id: &str,
    ) -> Result<&Arc<Intern>, LookupError> {
        let is_inside = |it: &Intern| workspace.is_none_or(|workspace| it.workspace == workspace);
        find(RecordKind::Intern, &self.interns, name_or_id, |it| &it.name, is_inside)
    }

    /// Whether a member or intern key was ever issued, revoked keys included.
    pub(crate) fn has_client_key(&self) -> bool {
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

/// The only record of those inside that has this id or this name. An id takes precedence over an
/// equal name.
fn find<'a, I: Ord + FromStr, T>(
    kind: RecordKind,
    records: &'a BTreeMap<I, Arc<T>>,
    given: &str,
    name: impl Fn(&T) -> &Name,
    is_inside: impl Fn(&T) -> bool,
) -> Result<&'a Arc<T>, LookupError> {
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
