//! The directory: an in-memory snapshot of all entities that authentication, commands and rules
//! look up.
//!
//! A snapshot never changes. The writer publishes a new one after each commit. Snapshots share all that
//! is the same in them.

mod records;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use records::Entity as _;
pub(crate) use records::Records;

use crate::ids::{InternId, MemberId, WorkspaceId};
use crate::lookup::{LookupError, RecordKind};
use crate::name::Name;
use crate::records::{ApiKey, Intern, Member, MemberRole, Workspace};
use crate::rows::{self, KEYS, StoredKey};
use crate::seal::StoreKeys;
use crate::token::KeyId;

/// A workspace, member, intern or key.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum RecordId {
    Workspace(WorkspaceId),
    Member(MemberId),
    Intern(InternId),
    Key(KeyId),
}

/// The record of a workspace, member, intern or key.
#[derive(Clone, Debug)]
pub(crate) enum Record {
    Workspace(Arc<Workspace>),
    Member(Arc<Member>),
    Intern(Arc<Intern>),
    Key(Arc<StoredKey>),
}

/// A name in the scope in which it is unique.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum NameKey {
    /// A workspace of the store.
    Workspace(Name),
    /// A member of a workspace.
    Member(WorkspaceId, Name),
    /// An intern of a workspace.
    Intern(WorkspaceId, Name),
}

/// Changed records; `None` for a deleted one.
pub(crate) type RecordChanges = BTreeMap<RecordId, Option<Record>>;

impl RecordId {
    pub(crate) fn row_key(self) -> Vec<u8> {
        match self {
            RecordId::Workspace(id) => rows::workspace_key(id),
            RecordId::Member(id) => rows::member_key(id),
            RecordId::Intern(id) => rows::intern_key(id),
            RecordId::Key(id) => rows::api_key_key(id),
        }
    }

    /// The record that a row key belongs to; `None` for other row keys.
    #[cfg(feature = "postgres")]
    pub(crate) fn of_row_key(key: &[u8]) -> Option<RecordId> {
        let id = key.get(1..)?;
        let uuid = || <[u8; 16]>::try_from(id).ok();
        match rows::RowKind::of(key)? {
            rows::RowKind::Workspace => uuid().map(WorkspaceId::from_bytes).map(RecordId::Workspace),
            rows::RowKind::Member => uuid().map(MemberId::from_bytes).map(RecordId::Member),
            rows::RowKind::Intern => uuid().map(InternId::from_bytes).map(RecordId::Intern),
            rows::RowKind::ApiKey => Some(RecordId::Key(std::str::from_utf8(id).ok()?.parse().ok()?)),
            _ => None,
        }
    }

    /// The record of this id from its row; `None` when its MAC does not match.
    pub(crate) fn decode(self, keys: &StoreKeys, row: &[u8]) -> Option<Record> {
        let key = self.row_key();
        Some(match self {
            RecordId::Workspace(_) => Record::Workspace(rows::decode(keys, KEYS, &key, row)?),
            RecordId::Member(_) => Record::Member(rows::decode(keys, KEYS, &key, row)?),
            RecordId::Intern(_) => Record::Intern(rows::decode(keys, KEYS, &key, row)?),
            RecordId::Key(_) => Record::Key(rows::decode(keys, KEYS, &key, row)?),
        })
    }
}

impl Record {
    pub(crate) fn id(&self) -> RecordId {
        match self {
            Record::Workspace(it) => RecordId::Workspace(it.id),
            Record::Member(it) => RecordId::Member(it.id),
            Record::Intern(it) => RecordId::Intern(it.id),
            Record::Key(it) => RecordId::Key(it.key.id),
        }
    }

    /// The row of the record.
    pub(crate) fn encode(&self, keys: &StoreKeys, key: &[u8]) -> Vec<u8> {
        match self {
            Record::Workspace(it) => rows::encode(keys, KEYS, key, it),
            Record::Member(it) => rows::encode(keys, KEYS, key, it),
            Record::Intern(it) => rows::encode(keys, KEYS, key, it),
            Record::Key(it) => rows::encode(keys, KEYS, key, it),
        }
    }

    /// Whether it has this name. Labels of keys are not names.
    pub(crate) fn is_named(&self, name: &NameKey) -> bool {
        match (self, name) {
            (Record::Workspace(it), NameKey::Workspace(name)) => it.name == *name,
            (Record::Member(it), NameKey::Member(of, name)) => it.workspace == *of && it.name == *name,
            (Record::Intern(it), NameKey::Intern(of, name)) => it.workspace == *of && it.name == *name,
            _ => false,
        }
    }

    /// Whether it is of this kind and belongs to this owner.
    pub(crate) fn is_owned(&self, kind: RecordKind, owner: RecordId) -> bool {
        let places = match (self, kind) {
            (Record::Member(it), RecordKind::Member) => it.places(),
            (Record::Intern(it), RecordKind::Intern) => it.places(),
            (Record::Key(it), RecordKind::Key) => it.places(),
            _ => return false,
        };
        places.owners.contains(&Some(owner))
    }
}

/// One consistent state of all workspaces, members, interns and keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Directory {
    pub(crate) workspaces: Records<Workspace>,
    pub(crate) members: Records<Member>,
    pub(crate) interns: Records<Intern>,
    pub(crate) keys: Records<StoredKey>,
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
    /// A directory of these records, which have different ids.
    pub(crate) fn of(records: Vec<Record>) -> Directory {
        let (mut workspaces, mut members) = (Vec::new(), Vec::new());
        let (mut interns, mut keys) = (Vec::new(), Vec::new());
        for record in records {
            match record {
                Record::Workspace(it) => workspaces.push(it),
                Record::Member(it) => members.push(it),
                Record::Intern(it) => interns.push(it),
                Record::Key(it) => keys.push(it),
            }
        }
        Directory {
            workspaces: Records::of(workspaces),
            members: Records::of(members),
            interns: Records::of(interns),
            keys: Records::of(keys),
        }
    }

    pub(crate) fn record(&self, id: RecordId) -> Option<Record> {
        match id {
            RecordId::Workspace(id) => self.workspaces.get(&id).cloned().map(Record::Workspace),
            RecordId::Member(id) => self.members.get(&id).cloned().map(Record::Member),
            RecordId::Intern(id) => self.interns.get(&id).cloned().map(Record::Intern),
            RecordId::Key(id) => self.keys.get(&id).cloned().map(Record::Key),
        }
    }

    /// Takes over the records that a commit changed.
    pub(crate) fn change(&mut self, records: RecordChanges) {
        for (id, record) in records {
            match (id, record) {
                (_, Some(record)) => self.put(record),
                (RecordId::Workspace(id), None) => self.workspaces.remove(&id),
                (RecordId::Member(id), None) => self.members.remove(&id),
                (RecordId::Intern(id), None) => self.interns.remove(&id),
                (RecordId::Key(id), None) => self.keys.remove(&id),
            }
        }
    }

    fn put(&mut self, record: Record) {
        match record {
            Record::Workspace(it) => self.workspaces.put(it),
            Record::Member(it) => self.members.put(it),
            Record::Intern(it) => self.interns.put(it),
            Record::Key(it) => self.keys.put(it),
        }
    }

    /// The record of a name.
    pub(crate) fn named(&self, key: &NameKey) -> Option<RecordId> {
        match key {
            NameKey::Workspace(name) => {
                self.workspaces.named(name.clone(), None).map(|it| RecordId::Workspace(it.id))
            }
            NameKey::Member(of, name) => {
                self.members.named(name.clone(), Some(*of)).map(|it| RecordId::Member(it.id))
            }
            NameKey::Intern(of, name) => {
                self.interns.named(name.clone(), Some(*of)).map(|it| RecordId::Intern(it.id))
            }
        }
    }

    /// The records of one kind that belong to an owner, in ascending order of their ids.
    pub(crate) fn owned_by(&self, kind: RecordKind, owner: RecordId) -> Vec<RecordId> {
        let of = Some(owner);
        let mut owned: Vec<RecordId> = match kind {
            RecordKind::Workspace => Vec::new(),
            RecordKind::Member => {
                self.members.newest_first(of, None).map(|it| RecordId::Member(it.id)).collect()
            }
            RecordKind::Intern => {
                self.interns.newest_first(of, None).map(|it| RecordId::Intern(it.id)).collect()
            }
            RecordKind::Key => self.keys.newest_first(of, None).map(|it| RecordId::Key(it.key.id)).collect(),
        };
        owned.sort_unstable();
        owned
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
        self.workspaces.find(None, given)
    }

    /// A member by id, or by name in one workspace or in all. The id of a member of another
    /// workspace than the one given finds nothing.
    pub(crate) fn find_member(
        &self,
        workspace: Option<WorkspaceId>,
        given: &str,
    ) -> Result<&Arc<Member>, LookupError> {
        self.members.find(workspace, given)
    }

    /// An intern, as for [`Directory::find_member`].
    pub(crate) fn find_intern(
        &self,
        workspace: Option<WorkspaceId>,
        given: &str,
    ) -> Result<&Arc<Intern>, LookupError> {
        self.interns.find(workspace, given)
    }
}
