//! Stores that come into a database as a whole.

use std::collections::BTreeSet;
use std::sync::Arc;

use cofferdam_test_postgres as kit;

use super::super::copy::Copy;
use super::super::engine::ReadingRuntime;
use super::OPERATOR;
use super::stores::Place;
use crate::audit::AuditAction;
use crate::database::Database;
use crate::error::{Error, OpenError};
use crate::ids::VaultId;
use crate::operation::VaultError;
use crate::root_key::RootKeySource;
use crate::rows::Keyspace;
use crate::scratch::{Now, ScratchDirectory, create_workspace, go_on, issue_key, put, token};
use crate::state::RowRange;
use crate::store::{OpenOptions, Store};
use crate::usage::{UsageKind, UsageOutcome, UsageRow};

fn options(scratch: &ScratchDirectory) -> OpenOptions {
    OpenOptions { root_key: RootKeySource::File(scratch.path("root.key")), ..scratch.options() }
}

/// A store with all kinds of rows. One request runs.
fn filled(scratch: &ScratchDirectory) -> (Store, String, VaultId) {
    let store = scratch.open();
    let workspace = create_workspace(&store, "moving").id;
    let key = issue_key(&store);
    let vault = VaultId::Workspace(workspace);
    for number in 0..30 {
        put(&store, vault, &format!("secret_{number}"), &"x".repeat(1 + number * 1_000));
    }
    let permit = store.queue_permit().now().unwrap();
    store.delete_secret(permit, OPERATOR, vault, "secret_7".parse().unwrap()).now().unwrap();
    store.add_credit(OPERATOR, workspace, 1_000_000).unwrap();
    for number in 0..400 {
        let row = UsageRow::begun(format!("r_{number}"), workspace, key.key.id, UsageKind::Responses, false);
        let request = store.reserve(row).now().unwrap();
        request.note(|row| row.cost_pico = number);
        request.settle(UsageOutcome::Completed);
    }
    store.flush().unwrap();
    (store, token(&key), vault)
}

fn requests(store: &Store) -> Vec<String> {
    store.usage_rows(1_000).now().unwrap().into_iter().map(|row| row.request_id).collect()
}

#[test]
fn a_moved_store_is_whole_and_is_served_from_the_database_only() {
    let Some(place) = Place::new("copies_moved") else { return };
    let scratch = ScratchDirectory::new();
    let (store, token, vault) = filled(&scratch);
    let VaultId::Workspace(workspace) = vault else { panic!("a workspace") };
    let (balance, rows) = (store.balance(workspace).now().unwrap(), requests(&store));
    let seq = store.status().seq;
    let moved = store.move_to(&place.database, &options(&scratch), &mut go_on).unwrap();
    assert_eq!((moved.seq, moved.secrets, moved.keys), (seq, 29, 1));
    store.close();
    drop(store);
    assert!(matches!(scratch.try_open(), Err(OpenError::Moved(_))));

    let there = Store::open_in(&place.database, &options(&scratch)).unwrap();
    assert!(there.authenticate(&token).now().is_ok());
    assert_eq!(there.balance(workspace).now().unwrap(), balance);
    assert_eq!(requests(&there), rows, "in the same order");
    assert_eq!(there.list_secrets(vault, 0, 100).now().unwrap().entries.len(), 29);
    let records = there.audit_records(0, 10_000).now().unwrap();
    let actions: Vec<&AuditAction> = records.iter().flat_map(|it| &it.entries).map(|it| &it.action).collect();
    assert!(matches!(actions.first(), Some(AuditAction::StoreCreated { .. })), "{actions:?}");
    assert_eq!(actions.last(), Some(&&AuditAction::Moved { seq }));
    put(&there, vault, "later", "value");
    assert_eq!(there.verify(&mut go_on).unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_store_is_moved_into_a_database_without_one_only() {
    let Some(place) = Place::new("copies_full") else { return };
    place.create().unwrap();
    let scratch = ScratchDirectory::new();
    let (store, _, _) = filled(&scratch);
    let refused = store.move_to(&place.database, &options(&scratch), &mut go_on);
    assert!(matches!(refused, Err(VaultError::Open(OpenError::StoreExists))), "{refused:?}");
    drop(store);
    scratch.open();
    place.open();
}

#[test]
fn a_copy_that_lacks_a_row_is_not_committed() {
    let Some(place) = Place::new("copies_lacking") else { return };
    let scratch = ScratchDirectory::new();
    let (store, _, _) = filled(&scratch);
    let ((keys, last_commit), state) = (store.keys_and_last_commit(), store.whole_state());
    let runtime = ReadingRuntime::new().unwrap();
    let all: Vec<_> = Keyspace::ALL
        .into_iter()
        .flat_map(|keyspace| {
            let rows = state.range(&RowRange::all(keyspace)).unwrap();
            rows.map(move |row| (keyspace, row.unwrap())).collect::<Vec<_>>()
        })
        .collect();
    for left_out in [0, all.len() / 3, all.len() / 2, all.len() - 2] {
        let mut copy = Copy::begin(&place.database.connector, runtime.handle(), &keys).unwrap();
        for (at, (keyspace, (key, row))) in all.iter().enumerate() {
            if at != left_out {
                copy.row(*keyspace, key, row).unwrap();
            }
        }
        let ended = copy.finish((last_commit.seq, last_commit.head), Arc::default(), &mut go_on);
        assert!(matches!(ended, Err(VaultError::Store(Error::Damaged))), "{left_out}: {ended:?}");
        let opened = Store::open_in(&place.database, &options(&scratch));
        assert!(matches!(opened, Err(OpenError::NoStore)), "{left_out}");
    }
    // The database takes a whole one after that.
    store.move_to(&place.database, &options(&scratch), &mut go_on).unwrap();
}

#[test]
fn a_move_whose_commit_is_not_answered_finds_the_copy() {
    let Some(place) = Place::new("copies_unanswered") else { return };
    let proxy = kit::Proxy::start(place.address.port).unwrap();
    let scratch = ScratchDirectory::new();
    let (store, token, _) = filled(&scratch);
    let seq = store.status().seq;
    let through = Database::of_test(&place.address.at(proxy.port()));
    let commit = || kit::Rule::new(kit::Place::Commit, kit::Fault::SwallowReply).within("LOCK TABLE store");
    proxy.add(commit());
    // The first question after that is lost too.
    proxy.add(commit().nth(2));
    let moved = store.move_to(&through, &options(&scratch), &mut go_on).unwrap();
    assert_eq!((proxy.struck(), moved.seq), (2, seq));
    store.close();
    assert!(matches!(scratch.try_open(), Err(OpenError::Moved(_))));
    let there = Store::open_in(&place.database, &options(&scratch)).unwrap();
    assert!(there.authenticate(&token).now().is_ok());
    assert_eq!(there.verify(&mut go_on).unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_move_whose_commit_did_not_reach_the_database_makes_nothing_and_can_be_made_again() {
    let Some(place) = Place::new("copies_uncommitted") else { return };
    let proxy = kit::Proxy::start(place.address.port).unwrap();
    let scratch = ScratchDirectory::new();
    let (store, _, _) = filled(&scratch);
    let through = Database::of_test(&place.address.at(proxy.port()));
    proxy.add(kit::Rule::new(kit::Place::Commit, kit::Fault::CutBefore).within("LOCK TABLE store"));
    let failed = store.move_to(&through, &options(&scratch), &mut go_on);
    assert!(matches!(failed, Err(VaultError::Open(OpenError::Database { .. }))), "{failed:?}");
    assert!(!scratch.path("store.moved").exists());
    store.move_to(&through, &options(&scratch), &mut go_on).unwrap();
}

#[test]
fn a_move_that_was_cut_short_after_its_commit_is_ended_by_the_next_one() {
    let Some(place) = Place::new("copies_cut") else { return };
    let scratch = ScratchDirectory::new();
    let (store, _, vault) = filled(&scratch);
    let ((keys, last_commit), state) = (store.keys_and_last_commit(), store.whole_state());
    let runtime = ReadingRuntime::new().unwrap();
    let mut copy = Copy::begin(&place.database.connector, runtime.handle(), &keys).unwrap();
    for keyspace in Keyspace::ALL {
        for row in state.range(&RowRange::all(keyspace)).unwrap() {
            let (key, row) = row.unwrap();
            copy.row(keyspace, &key, &row).unwrap();
        }
    }
    let (_, rows) = copy.finish((last_commit.seq, last_commit.head), Arc::default(), &mut go_on).unwrap();
    let moved = store.move_to(&place.database, &options(&scratch), &mut go_on).unwrap();
    assert_eq!((moved.seq, moved.rows, moved.secrets), (last_commit.seq, rows, 29));
    assert!(scratch.path("store.moved").exists());
    // A copy of an older state is not taken for one of this.
    put(&store, vault, "later", "value");
    let refused = store.move_to(&place.database, &options(&scratch), &mut go_on);
    assert!(matches!(refused, Err(VaultError::Open(OpenError::StoreExists))), "{refused:?}");
}

#[test]
fn a_store_whose_rollback_was_accepted_is_moved_with_the_gap_in_its_numbers() {
    let Some(place) = Place::new("copies_gap") else { return };
    let scratch = ScratchDirectory::new();
    let (store, token, vault) = filled(&scratch);
    store.close();
    drop(store);
    let (folder, old) = (scratch.path("store"), scratch.path("old"));
    let copied = std::process::Command::new("cp").arg("-a").args([&folder, &old]).status().unwrap();
    assert!(copied.success());
    let store = scratch.open();
    put(&store, vault, "lost", "value");
    put(&store, vault, "lost_too", "value");
    store.close();
    drop(store);
    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::rename(old, folder).unwrap();
    let found = match scratch.try_open() {
        Err(OpenError::OutOfStep(found)) => found.markers[0].1.unwrap(),
        other => panic!("{other:?}"),
    };
    let store = scratch.accept(found).unwrap();
    assert!(store.status().seq > found + 1, "numbers are left out");
    store.move_to(&place.database, &options(&scratch), &mut go_on).unwrap();
    let there = Store::open_in(&place.database, &options(&scratch)).unwrap();
    assert!(there.authenticate(&token).now().is_ok());
    assert_eq!(there.verify(&mut go_on).unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_backup_is_restored_into_a_database_and_its_running_requests_are_charged_once() {
    let Some(place) = Place::new("copies_restored") else { return };
    let scratch = ScratchDirectory::new();
    let (store, token, vault) = filled(&scratch);
    let VaultId::Workspace(workspace) = vault else { panic!("a workspace") };
    let key = "abcdefghijkl".parse().unwrap();
    let row = UsageRow::begun("r_running".to_owned(), workspace, key, UsageKind::Responses, false);
    let running = store.reserve(row).now().unwrap();
    let pledge = running.pledge(500).now().unwrap();
    running.commit_intent().now().unwrap();
    let backup = scratch.path("backup");
    let made = store.backup(&backup, &mut go_on).unwrap();
    let before = store.balance(workspace).now().unwrap();
    drop((pledge, running));
    store.close();

    let options = options(&scratch);
    let restored = Store::restore_into(&place.database, &options, &backup, &mut go_on).unwrap();
    assert_eq!((restored.seq, restored.secrets), (made.seq, 29));
    let again = Store::restore_into(&place.database, &options, &backup, &mut go_on);
    assert!(matches!(again, Err(VaultError::Open(OpenError::StoreExists))), "{again:?}");
    let there = Store::open_in(&place.database, &options).unwrap();
    assert!(there.authenticate(&token).now().is_ok());
    assert_eq!(there.balance(workspace).now().unwrap(), before);
    assert_eq!(there.charge_interrupted(BTreeSet::new).unwrap(), 1);
    there.flush().unwrap();
    assert_eq!(there.charge_interrupted(BTreeSet::new).unwrap(), 0);
    let after = there.balance(workspace).now().unwrap();
    assert_eq!((after.spent_pico, after.reserved_pico), (before.spent_pico + 500, 0));
    assert_eq!(there.verify(&mut go_on).unwrap().problems, Vec::<String>::new());
}
