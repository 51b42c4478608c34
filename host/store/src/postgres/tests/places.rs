//! Every row has one table, and its key leads there and back.

use proptest::prelude::*;

use super::super::place::{Columns, Table, name_of, named, slot};
use crate::changes::{KeyOwner, NewIntern, NewKey};
use crate::directory::{Directory, NameKey, Record, RecordId};
use crate::ids::{InternId, MemberId, VaultId, WorkspaceId};
use crate::rows::{self, Keyspace, RowKind};
use crate::scratch::{Now, ScratchDirectory, name, put};
use crate::seal::STORE_KEYS;
use crate::secret::SecretName;
use crate::spend::SpendLimits;
use crate::token::KeyId;
use crate::vault::{head_key, secret_key};

fn vault() -> impl Strategy<Value = VaultId> {
    prop_oneof![
        Just(VaultId::Operator),
        any::<[u8; 16]>().prop_map(|id| VaultId::Workspace(WorkspaceId::from_bytes(id))),
        any::<[u8; 16]>().prop_map(|id| VaultId::Intern(InternId::from_bytes(id))),
    ]
}

fn key_id() -> impl Strategy<Value = KeyId> {
    "[0-9A-Za-z]{12}".prop_map(|id| id.parse().unwrap())
}

fn secret_name() -> impl Strategy<Value = SecretName> {
    "[a-z](_?[a-z0-9]){0,20}".prop_map(|name| name.parse().unwrap())
}

/// Every kind of row key.
fn row_key() -> impl Strategy<Value = (Keyspace, Vec<u8>)> {
    let keys = |key: Vec<u8>| (Keyspace::Keys, key);
    let id = any::<[u8; 16]>;
    prop_oneof![
        Just(keys(rows::HEADER.to_vec())),
        Just(keys(STORE_KEYS.to_vec())),
        id().prop_map(move |id| keys(rows::workspace_key(WorkspaceId::from_bytes(id)))),
        id().prop_map(move |id| keys(rows::member_key(MemberId::from_bytes(id)))),
        id().prop_map(move |id| keys(rows::intern_key(InternId::from_bytes(id)))),
        key_id().prop_map(move |id| keys(rows::api_key_key(id))),
        key_id().prop_map(move |id| keys(rows::key_spend_key(id))),
        id().prop_map(move |id| keys(rows::workspace_spend_key(WorkspaceId::from_bytes(id)))),
        (any::<u32>(), id(), key_id(), ".{0,30}").prop_map(move |(day, workspace, key, model)| {
            keys(rows::day_totals_key(day, WorkspaceId::from_bytes(workspace), key, &model))
        }),
        ".{0,40}".prop_map(move |request| keys(rows::intent_key(&request))),
        vault().prop_map(move |vault| keys(rows::vault_keys_key(vault))),
        vault().prop_map(|vault| (Keyspace::Meta, head_key(vault))),
        (vault(), secret_name()).prop_map(|(vault, name)| (Keyspace::Meta, secret_key(vault, &name))),
        (vault(), secret_name()).prop_map(|(vault, name)| (Keyspace::Values, secret_key(vault, &name))),
    ]
}

proptest! {
    #[test]
    fn a_row_key_leads_to_a_table_and_back((keyspace, key) in row_key()) {
        let table = Table::of(keyspace, &key).unwrap();
        prop_assert_eq!(table.keyspace(), keyspace);
        prop_assert!(Table::all_of(keyspace).contains(&table), "a range over the keyspace has it");
        if let Some(id) = RecordId::of_row_key(&key).filter(|_| keyspace == Keyspace::Keys) {
            prop_assert_eq!((id.row_key(), table), (key, Table::Directory));
        } else {
            prop_assert_ne!(table, Table::Directory);
        }
    }

    #[test]
    fn other_keys_have_no_table_or_that_of_their_kind(key in prop::collection::vec(any::<u8>(), 0..40)) {
        for keyspace in Keyspace::ALL {
            if let Some(table) = Table::of(keyspace, &key) {
                prop_assert_eq!(table.keyspace(), keyspace);
            }
        }
    }

    #[test]
    fn slots_are_within_their_range(id: [u8; 16]) {
        prop_assert!((0..1024).contains(&slot(Some(WorkspaceId::from_bytes(id)))));
    }
}

#[test]
fn every_row_that_the_store_writes_has_a_table() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let workspace = store.find_workspace("default").now().unwrap().id;
    let intern = NewIntern { workspace, name: name("bot"), created_by: None };
    let intern = store.create_intern(super::OPERATOR, intern).unwrap().id;
    let owner = KeyOwner::Intern { workspace, intern };
    let new = NewKey { owner, name: None, expires_at_ms: None, limits: SpendLimits::default() };
    store.issue_key(super::OPERATOR, new).unwrap();
    for vault in [VaultId::Operator, VaultId::Workspace(workspace), VaultId::Intern(intern)] {
        put(&store, vault, "a", "value");
    }
    let state = store.whole_state();
    let mut found = 0;
    for keyspace in [Keyspace::Keys, Keyspace::Meta, Keyspace::Values] {
        for row in state.range(&crate::state::RowRange::all(keyspace)).unwrap() {
            let (key, _) = row.unwrap();
            let is_marker = *key == *rows::MARKER;
            assert_eq!(Table::of(keyspace, &key).is_none(), is_marker, "{keyspace:?} {key:?}");
            found += usize::from(!is_marker);
        }
    }
    assert!(found >= 15, "{found}");
    assert_eq!(RowKind::of(rows::MARKER), Some(RowKind::Marker));
}

#[test]
fn records_are_found_under_the_columns_that_are_derived_from_them() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let directory: Directory = Directory::clone(&store.directory());
    let workspaces = directory.workspaces.values().cloned().map(Record::Workspace);
    let members = directory.members.values().cloned().map(Record::Member);
    let records: Vec<Record> = workspaces.chain(members).collect();
    assert_eq!(records.len(), 2);
    for record in records {
        let columns = Columns::of(&record);
        let name: NameKey = name_of(&record).unwrap();
        assert!(record.is_named(&name));
        assert_eq!((columns.workspace, columns.kind, columns.name.unwrap()), named(&name));
    }
}
