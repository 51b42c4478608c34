//! Findings about the store: keys that end soon, backups, the clock.

use super::{FREE_PORTS, doctor, doctor_of, with_store};
use crate::kit::host::Setup;
use cofferdam_store::{Clock, DirectoryLock, OpenOptions, RootKeySource, Store};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

/// A store that was made at a time of the test's choice.
fn store_at(setup: &Setup, later: Duration) -> Store {
    let clock = Clock::manual();
    clock.advance(later);
    let lock = DirectoryLock::acquire(&setup.data()).unwrap();
    let root_key = RootKeySource::File(setup.data().join("root.key"));
    Store::open(lock, OpenOptions { root_key, previous_root_key: None, accept_rollback: None, clock })
        .unwrap()
}

fn back_up(setup: &Setup, file: &Path) {
    let store = store_at(setup, Duration::ZERO);
    store.backup(file, &mut |_, _, _| ControlFlow::Continue(())).unwrap();
    store.close();
}

#[test]
fn keys_that_end_soon_are_named() {
    let host = Setup::new().start();
    let made =
        host.command(&["key", "create", "--workspace", "default", "--name", "ci", "--expires-days", "3"]);
    host.command(&["key", "create", "--workspace", "default", "--name", "later", "--expires-days", "30"]);
    let found = doctor_of(&host, &[]);
    let id = made["id"].as_str().unwrap();
    found.assert("key-expiry", "warn", &[id, "(ci)", made["expires_at"].as_str().unwrap(), "key create"]);
    assert_eq!(found.all("key-expiry").len(), 1, "{}", found.document);
    host.command(&["key", "revoke", id]);
    doctor_of(&host, &[]).assert("key-expiry", "ok", &[]);
}

#[test]
fn a_store_that_is_newer_than_the_clock_is_found() {
    let setup = Setup::new().config(FREE_PORTS);
    let century = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    store_at(&setup, century).close();
    doctor(&setup, &[]).assert("clock", "bad", &["the store has a change of 21", "timedatectl"]);
    doctor(&with_store(), &[]).assert("clock", "ok", &[]);
}

#[test]
fn a_missing_and_an_old_backup_are_found() {
    let setup = with_store();
    doctor(&setup, &[]).assert("backup", "warn", &["none was made", "vault backup"]);
    let old = Setup::new().config(FREE_PORTS);
    back_up(&old, &old.directory().join("backup"));
    doctor(&old, &[]).assert("backup", "warn", &["of 2023-11-14", "days old"]);
}

#[test]
fn the_place_of_the_last_backup_is_judged() {
    let setup = with_store();
    let elsewhere = setup.directory().join("backup");
    assert!(setup.command_output(&["vault", "backup", elsewhere.to_str().unwrap()]).status.success());
    let found = doctor(&setup, &[]);
    found.assert("backup", "ok", &["the last one is of"]);
    found.assert("backup", "warn", &["on the disk of the store"]);
    let beside = setup.data().join("backup");
    assert!(setup.command_output(&["vault", "backup", beside.to_str().unwrap()]).status.success());
    let found = doctor(&setup, &[]);
    found.assert("backup", "bad", &["beside the root key", "move one of them"]);
    std::fs::rename(&beside, setup.directory().join("moved")).unwrap();
    let found = doctor(&setup, &[]);
    assert_eq!(found.all("backup").len(), 1, "{}", found.document);
}

#[test]
fn a_missing_recovery_key_is_found() {
    let setup = with_store();
    doctor(&setup, &[]).assert("recovery-key", "warn", &["vault recovery new"]);
    assert!(setup.command_output(&["vault", "recovery", "new"]).status.success());
    doctor(&setup, &[]).assert("recovery-key", "ok", &[]);
}
