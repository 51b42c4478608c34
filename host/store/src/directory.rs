//! The directory: an in-memory snapshot of all entities that authentication and commands look up.
//!
//! A snapshot never changes. The writer publishes a new one after each commit. Snapshots share
//! their records, so a new one copies pointers only.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::ids::{InternId, MemberId, WorkspaceId};
use crate::lookup::{LookupError, RecordKind};
use crate::name::Name;
use crate::records::{ApiKey, Intern, Member, MemberRole, Workspace};
use crate::rows::StoredKey;
use crate::token::KeyId;

/// One consistent state of all workspaces, members, interns and keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Directory {
    pub(crate) workspaces: BTreeMap<WorkspaceId, Arc<Workspace>>,
    pub(crate) members: BTreeMap<MemberId, Arc<Member>>,
    pub(crate) interns: BTreeMap<InternId, Arc<Intern>>,
    pub(crate) keys: BTreeMap<KeyId, Arc<StoredKey>>,
}

/// A key with the records of its workspace, member and intern, all of one commit.
#[derive(Clone)]
pub struct OwnedKey {
    pub(crate) stored: Arc<StoredKey>,
    /// Workspace of the key; `None` for unscoped keys.
    pub workspace: Option<Arc<Workspace>>,
    /// Member the key acts for; `None` for intern and unscoped keys, and for a revoked key whose
    /// member was deleted.
    pub member: Option<Arc<Member>>,
    /// Intern the key acts for; `None` for other keys than those of interns, and for a revoked key
    /// whose intern was deleted.
    pub intern: Option<Arc<Intern>>,
}

impl OwnedKey {
    /// The key.
    pub fn key(&self) -> &ApiKey {
        &self.stored.key
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
    /// The members of one workspace, in no special order.
    pub(crate) fn members_of(&self, workspace: WorkspaceId) -> impl Iterator<Item = &Member> {
        self.members.values().map(Arc::as_ref).filter(move |member| member.workspace == workspace)
    }

    /// The interns of one workspace, in no special order.
    pub(crate) fn interns_of(&self, workspace: WorkspaceId) -> impl Iterator<Item = &Intern> {
        self.interns.values().map(Arc::as_ref).filter(move |intern| intern.workspace == workspace)
    }

    /// A key with the records of its owner.
    pub(crate) fn owned(&self, stored: &Arc<StoredKey>) -> OwnedKey {
        let ApiKey { workspace, member, intern, .. } = &stored.key;
        OwnedKey {
            stored: Arc::clone(stored),
            workspace: workspace.and_then(|id| self.workspaces.get(&id)).cloned(),
            member: member.and_then(|id| self.members.get(&id)).cloned(),
            intern: intern.and_then(|id| self.interns.get(&id)).cloned(),
        }
    }

    /// A workspace by name or id.
    pub(crate) fn find_workspace(&self, given: &str) -> Result<&Arc<Workspace>, LookupError> {
        find(RecordKind::Workspace, &self.workspaces, given, |it| &it.name, |_| true)
    }

    /// A member by id, or by name in one workspace or in all. The id of a member of another
    /// workspace than the one given finds nothing.
    pub(crate) fn find_member(
        &self,
        workspace: Option<WorkspaceId>,
        given: &str,
    ) -> Result<&Arc<Member>, LookupError> {
        let is_inside = |it: &Member| workspace.is_none_or(|workspace| it.workspace == workspace);
        find(RecordKind::Member, &self.members, given, |it| &it.name, is_inside)
    }

    /// An intern, as for [`Directory::find_member`].
    pub(crate) fn find_intern(
        &self,
        workspace: Option<WorkspaceId>,
        given: &str,
    ) -> Result<&Arc<Intern>, LookupError> {
        let is_inside = |it: &Intern| workspace.is_none_or(|workspace| it.workspace == workspace);
        find(RecordKind::Intern, &self.interns, given, |it| &it.name, is_inside)
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

    pub(crate) fn put_key(&mut self, key: StoredKey) {
        self.keys.insert(key.key.id, Arc::new(key));
    }
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
