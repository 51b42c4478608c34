//! Records of one kind, found by their id, name, owner or age. Clones share what they have in common, so the time of a
//! change hardly grows with the number of records.

use std::fmt::Debug;
use std::str::FromStr;
use std::sync::Arc;

use immutable_chunkmap::map::Map;
use immutable_chunkmap::set::Set;

use super::RecordId;
use crate::ids::{InternId, MemberId, WorkspaceId};
use crate::lookup::{LookupError, RecordKind};
use crate::name::Name;
use crate::records::{ApiKey, Intern, Member, Workspace};
use crate::rows::StoredKey;
use crate::token::KeyId;

/// Entries in one piece of memory. A change copies a few pieces of each map and set that it concerns.
const PIECE: usize = if cfg!(test) { 4 } else { 64 };

/// A record of the directory.
pub(crate) trait Entity {
    type Id: Copy + Debug + FromStr + Ord;

    /// No id is less than this one.
    const LEAST_ID: Self::Id;

    const KIND: RecordKind;

    fn id(&self) -> Self::Id;

    fn places(&self) -> Places;
}

/// A name, and the workspace in which it is unique; `None` where it is unique in the store.
type UniqueName = (Name, Option<WorkspaceId>);

/// Where a record is listed.
#[derive(PartialEq)]
pub(crate) struct Places {
    created_at_ms: u64,
    /// Its name and where that is unique; `None` for records whose name is a label.
    name: Option<UniqueName>,
    /// What it belongs to.
    pub(super) owners: [Option<RecordId>; 3],
}

/// Records of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Records<T: Entity> {
    by_id: Map<T::Id, Arc<T>, PIECE>,
    by_name: Map<UniqueName, T::Id, PIECE>,
    /// By creation time.
    by_age: Set<(u64, T::Id), PIECE>,
    /// By owner, and then by creation time.
    by_owner: Set<(RecordId, u64, T::Id), PIECE>,
}

impl<T: Entity> Default for Records<T> {
    fn default() -> Records<T> {
        Records { by_id: Map::new(), by_name: Map::new(), by_age: Set::new(), by_owner: Set::new() }
    }
}

impl<T: Entity> Records<T> {
    /// These records, which have different ids. Much faster and smaller than to add one after the other, because
    /// each piece of memory is filled.
    pub(super) fn of(mut records: Vec<Arc<T>>) -> Records<T> {
        let (mut names, mut ages, mut owners) = (Vec::new(), Vec::new(), Vec::new());
        for record in &records {
            let (id, places) = (record.id(), record.places());
            names.extend(places.name.map(|name| (name, id)));
            ages.push((places.created_at_ms, id));
            owners.extend(places.owners.into_iter().flatten().map(|owner| (owner, places.created_at_ms, id)));
        }
        records.sort_unstable_by_key(|record| record.id());
        names.sort_unstable();
        ages.sort_unstable();
        owners.sort_unstable();
        Records {
            by_id: in_parts(records.into_iter().map(|record| (record.id(), record)), Map::insert_many),
            by_name: in_parts(names.into_iter(), Map::insert_many),
            by_age: in_parts(ages.into_iter(), Set::insert_many),
            by_owner: in_parts(owners.into_iter(), Set::insert_many),
        }
    }

    pub(crate) fn get(&self, id: &T::Id) -> Option<&Arc<T>> {
        self.by_id.get(id)
    }

    /// All records, in the order of their ids.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Arc<T>> {
        self.by_id.into_iter().map(|(_, record)| record)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Adds a record, or replaces the one with its id.
    pub(super) fn put(&mut self, record: Arc<T>) {
        let (id, places) = (record.id(), record.places());
        let before = self.by_id.insert_cow(id, record).map(|before| before.places());
        if before.as_ref() != Some(&places) {
            before.into_iter().for_each(|before| self.unlist(id, before));
            self.list(id, places);
        }
    }

    pub(super) fn remove(&mut self, id: &T::Id) {
        if let Some(record) = self.by_id.remove_cow(id) {
            self.unlist(*id, record.places());
        }
    }

    fn list(&mut self, id: T::Id, places: Places) {
        let Places { created_at_ms, name, owners } = places;
        self.by_age.insert_cow((created_at_ms, id));
        for owner in owners.into_iter().flatten() {
            self.by_owner.insert_cow((owner, created_at_ms, id));
        }
        if let Some(name) = name {
            self.by_name.insert_cow(name, id);
        }
    }

    fn unlist(&mut self, id: T::Id, places: Places) {
        let Places { created_at_ms, name, owners } = places;
        self.by_age.remove_cow(&(created_at_ms, id));
        for owner in owners.into_iter().flatten() {
            self.by_owner.remove_cow(&(owner, created_at_ms, id));
        }
        // In the changes of one commit, another record may have taken over the name.
        if let Some(name) = name.filter(|name| self.by_name.get(name) == Some(&id)) {
            self.by_name.remove_cow(&name);
        }
    }

    /// The record with a name in a workspace, or in the store.
    pub(super) fn named(&self, name: Name, within: Option<WorkspaceId>) -> Option<&Arc<T>> {
        self.get(self.by_name.get(&(name, within))?)
    }

    /// The records of an owner, or all, before this one. Those of the same millisecond are in the order of their ids,
    /// so that a listing is always the same.
    pub(crate) fn newest_first<'a>(
        &'a self,
        owner: Option<RecordId>,
        before: Option<&T>,
    ) -> Box<dyn Iterator<Item = &'a Arc<T>> + 'a> {
        let (age, end) =
            before.map_or((u64::MAX, T::LEAST_ID), |before| (before.places().created_at_ms, before.id()));
        match owner {
            Some(owner) => {
                let bounds = (owner, 0, T::LEAST_ID)..(owner, age, end);
                Box::new(self.by_owner.range(bounds).rev().filter_map(|(_, _, id)| self.get(id)))
            }
            None => Box::new(self.by_age.range(..(age, end)).rev().filter_map(|(_, id)| self.get(id))),
        }
    }

    /// The only record that has this id or this name, in one workspace or in all. An id takes precedence over an equal
    /// name.
    pub(super) fn find(&self, workspace: Option<WorkspaceId>, given: &str) -> Result<&Arc<T>, LookupError> {
        let is_inside = |it: &&Arc<T>| {
            workspace
                .is_none_or(|workspace| it.places().owners.contains(&Some(RecordId::Workspace(workspace))))
        };
        let by_id = given.parse().ok().and_then(|id| self.get(&id)).filter(is_inside);
        if let Some(found) = by_id {
            return Ok(found);
        }
        let not_found = || LookupError::not_found(T::KIND, given);
        let name = Name::parse(given).map_err(|_| not_found())?;
        if workspace.is_some() {
            return self.named(name, workspace).ok_or_else(not_found);
        }
        let named = self.by_name.range((name.clone(), None)..).take_while(|((found, _), _)| *found == name);
        let mut named = named.filter_map(|(_, id)| self.get(id));
        match (named.next(), named.count()) {
            (Some(found), 0) => Ok(found),
            (None, _) => Err(not_found()),
            (Some(_), more) => {
                Err(LookupError::Ambiguous { kind: T::KIND, given: given.to_owned(), count: 1 + more })
            }
        }
    }
}

/// A map or set of these entries, which are in order. They are inserted in parts: for all of them at once, the time grows
/// much faster than their number.
fn in_parts<C: Default, E>(mut entries: impl Iterator<Item = E>, insert: impl Fn(&C, Vec<E>) -> C) -> C {
    let mut all = C::default();
    loop {
        let part: Vec<E> = entries.by_ref().take(4 * PIECE).collect();
        if part.is_empty() {
            return all;
        }
        all = insert(&all, part);
    }
}

impl Places {
    /// Those of a member or intern.
    fn in_workspace(created_at_ms: u64, name: &Name, workspace: WorkspaceId) -> Places {
        let owners = [Some(RecordId::Workspace(workspace)), None, None];
        Places { created_at_ms, name: Some((name.clone(), Some(workspace))), owners }
    }
}

impl Entity for Workspace {
    type Id = WorkspaceId;
    const LEAST_ID: WorkspaceId = WorkspaceId::from_bytes([0; 16]);
    const KIND: RecordKind = RecordKind::Workspace;

    fn id(&self) -> WorkspaceId {
        self.id
    }

    fn places(&self) -> Places {
        let name = Some((self.name.clone(), None));
        Places { created_at_ms: self.created_at_ms, name, owners: [None; 3] }
    }
}

impl Entity for Member {
    type Id = MemberId;
    const LEAST_ID: MemberId = MemberId::from_bytes([0; 16]);
    const KIND: RecordKind = RecordKind::Member;

    fn id(&self) -> MemberId {
        self.id
    }

    fn places(&self) -> Places {
        Places::in_workspace(self.created_at_ms, &self.name, self.workspace)
    }
}

impl Entity for Intern {
    type Id = InternId;
    const LEAST_ID: InternId = InternId::from_bytes([0; 16]);
    const KIND: RecordKind = RecordKind::Intern;

    fn id(&self) -> InternId {
        self.id
    }

    fn places(&self) -> Places {
        Places::in_workspace(self.created_at_ms, &self.name, self.workspace)
    }
}

impl Entity for StoredKey {
    type Id = KeyId;
    const LEAST_ID: KeyId = KeyId::LEAST;
    const KIND: RecordKind = RecordKind::Key;

    fn id(&self) -> KeyId {
        self.key.id
    }

    fn places(&self) -> Places {
        let ApiKey { created_at_ms, workspace, member, intern, .. } = self.key;
        let owners =
            [workspace.map(RecordId::Workspace), member.map(RecordId::Member), intern.map(RecordId::Intern)];
        Places { created_at_ms, name: None, owners }
    }
}

#[cfg(test)]
mod tests;
