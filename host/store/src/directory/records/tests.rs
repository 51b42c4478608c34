//! The directory against a plain list of the same records.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::super::{Directory, NameKey, Record, RecordChanges};
use super::*;
use crate::records::MemberRole;

/// Number of different names.
const NAMES_MAX: usize = 25;

fn name_of(number: usize) -> String {
    format!("member {number}")
}

/// The members of a commit: by id, workspace, name and creation time.
fn members() -> impl Strategy<Value = BTreeMap<MemberId, Arc<Member>>> {
    let one = (0..100_u8, 0..3_u8, 0..NAMES_MAX, 0..3_u64);
    prop::collection::vec(one, 0..60).prop_map(|drawn| {
        let mut names = BTreeSet::new();
        let drawn = drawn.into_iter().map(|(id, workspace, name, created_at_ms)| Member {
            id: MemberId::from_bytes([id; 16]),
            name: name_of(name).parse().unwrap(),
            workspace: workspace_id(workspace),
            role: MemberRole::Member,
            created_at_ms,
        });
        let mut members = BTreeMap::new();
        for member in drawn {
            if !members.contains_key(&member.id) && names.insert((member.workspace, member.name.clone())) {
                members.insert(member.id, Arc::new(member));
            }
        }
        members
    })
}

fn workspace_id(number: u8) -> WorkspaceId {
    WorkspaceId::from_bytes([number; 16])
}

/// What changes from one commit to the next one.
fn changes(
    before: &BTreeMap<MemberId, Arc<Member>>,
    after: &BTreeMap<MemberId, Arc<Member>>,
) -> RecordChanges {
    let gone = before.keys().filter(|id| !after.contains_key(id));
    let gone = gone.map(|id| (RecordId::Member(*id), None));
    let put = after.iter().filter(|(id, member)| before.get(id) != Some(member));
    let put = put.map(|(id, member)| (RecordId::Member(*id), Some(Record::Member(Arc::clone(member)))));
    gone.chain(put).collect()
}

proptest! {
    #[test]
    fn every_question_has_the_answer_that_a_plain_list_of_the_records_gives(
        commits in prop::collection::vec(members(), 1..6),
    ) {
        let mut directory = Directory::default();
        let mut before = BTreeMap::new();
        for members in commits {
            let snapshot = directory.clone();
            directory.change(changes(&before, &members));
            let loaded = Directory::of(members.values().cloned().map(Record::Member).collect());
            prop_assert_eq!(format!("{:?}", loaded.members), format!("{:?}", directory.members));
            let kept: Vec<_> = snapshot.members.values().cloned().collect();
            prop_assert_eq!(kept, before.values().cloned().collect::<Vec<_>>());

            let list: Vec<&Arc<Member>> = members.values().collect();
            prop_assert_eq!(directory.members.len(), list.len());
            prop_assert_eq!(directory.members.values().collect::<Vec<_>>(), list.clone());

            let mut newest_first = list.clone();
            newest_first.sort_by_key(|it| Reverse((it.created_at_ms, it.id)));
            let listed: Vec<_> = directory.members.newest_first(None, None).collect();
            prop_assert_eq!(&listed, &newest_first);
            for (place, member) in newest_first.iter().enumerate() {
                let after: Vec<_> = directory.members.newest_first(None, Some(*member)).collect();
                prop_assert_eq!(&after[..], &newest_first[place + 1..]);
            }

            for workspace in (0..3).map(workspace_id) {
                let owner = RecordId::Workspace(workspace);
                let of_it: Vec<_> =
                    newest_first.iter().copied().filter(|it| it.workspace == workspace).collect();
                let listed: Vec<_> = directory.members.newest_first(Some(owner), None).collect();
                prop_assert_eq!(&listed, &of_it);
                for (place, member) in of_it.iter().enumerate() {
                    let after: Vec<_> = directory.members.newest_first(Some(owner), Some(*member)).collect();
                    prop_assert_eq!(&after[..], &of_it[place + 1..]);
                }
                let mut ids: Vec<_> = of_it.iter().map(|it| RecordId::Member(it.id)).collect();
                ids.sort_unstable();
                prop_assert_eq!(directory.owned_by(RecordKind::Member, owner), ids);
                for name in (0..NAMES_MAX).map(name_of) {
                    let named = of_it.iter().find(|it| it.name.as_str() == name);
                    let key = NameKey::Member(workspace, name.parse().unwrap());
                    let expected = named.map(|it| RecordId::Member(it.id));
                    prop_assert_eq!(directory.named(&key), expected);
                    prop_assert_eq!(directory.find_member(Some(workspace), &name).ok(), named.copied());
                }
                for member in &list {
                    let found = directory.find_member(Some(workspace), &member.id.to_string()).ok();
                    prop_assert_eq!(found, (member.workspace == workspace).then_some(*member));
                }
            }
            for name in (0..NAMES_MAX).map(name_of) {
                let named: Vec<_> = list.iter().filter(|it| it.name.as_str() == name).collect();
                match (directory.find_member(None, &name), named.len()) {
                    (Ok(found), 1) => prop_assert_eq!(found, *named[0]),
                    (Err(LookupError::NotFound { .. }), 0) => {}
                    (Err(LookupError::Ambiguous { count, .. }), found) => prop_assert_eq!(count, found),
                    (answer, found) => prop_assert!(false, "{answer:?} for {found} members"),
                }
            }
            before = members;
        }
    }
}
