//! Rows that were changed from outside are detected and named, and other secrets are not affected.

use super::*;
use crate::audit::{VaultFinding, VaultPart};
use crate::fjall::Database;
use crate::operation::VaultError;
use crate::rows;
use crate::scratch::stop_at;
use crate::vault::{head_key, secret_key};

/// Changes the database of a closed store.
fn tamper(scratch: &ScratchDirectory, store: Store, change: impl FnOnce(&Database)) -> Store {
    store.close();
    drop(store);
    let database = Database::open(&scratch.path("store")).unwrap();
    change(&database);
    drop(database);
    scratch.open()
}

/// Removes a row from a closed store and accepts the resulting state.
fn lose(scratch: &ScratchDirectory, store: Store, key: &[u8]) -> Store {
    let seq = store.status().seq;
    store.close();
    drop(store);
    let database = Database::open(&scratch.path("store")).unwrap();
    database.keys.remove(key).unwrap();
    drop(database);
    scratch.accept(seq).unwrap()
}

/// Exchanges the values of two row keys.
fn swap(keyspace: &fjall::Keyspace, left: &[u8], right: &[u8]) {
    let (in_left, in_right) = (keyspace.get(left).unwrap().unwrap(), keyspace.get(right).unwrap().unwrap());
    keyspace.insert(left, in_right).unwrap();
    keyspace.insert(right, in_left).unwrap();
}

fn flip(keyspace: &fjall::Keyspace, key: &[u8], at: usize) {
    let mut row = keyspace.get(key).unwrap().unwrap().to_vec();
    row[at] ^= 1;
    keyspace.insert(key, row).unwrap();
}

/// Two vaults with the secrets `a`, `b` and `c` each. The second is an intern's.
fn filled(scratch: &ScratchDirectory) -> (Store, VaultId, VaultId) {
    let store = scratch.open();
    let workspace = default_workspace(&store);
    let (first, second) =
        (VaultId::Workspace(workspace), VaultId::Intern(create_intern(&store, workspace, "i")));
    for name in ["a", "b", "c"] {
        for vault in [first, second] {
            put(&store, vault, name, name);
        }
    }
    assert!(verify_vaults(&store).findings.is_empty());
    (store, first, second)
}

fn release(store: &Store, vault: VaultId, name: &str) -> Result<Vec<u8>, ReleaseError> {
    let scope = match vault {
        VaultId::Workspace(id) => ReleaseScope::Workspace(id),
        VaultId::Intern(id) => ReleaseScope::Intern(id),
        VaultId::Operator => ReleaseScope::Operator,
    };
    let release = store.release(request(scope, name, "b.example")).now()?;
    Ok(release.expose().to_vec())
}

fn finding(vault: VaultId, name: Option<&str>, part: VaultPart) -> VaultFinding {
    VaultFinding { vault: Some(vault), name: name.map(secret), part }
}

fn findings(store: &Store) -> Vec<VaultFinding> {
    verify_vaults(store).findings
}

/// The names of a vault's secrets, listed in pages of one; `None` for a page that fails.
fn listed(store: &Store, vault: VaultId) -> Vec<Option<String>> {
    let one = |offset| match store.list_secrets(vault, offset, 1).now() {
        Ok(page) => page.entries.first().map(|entry| entry.name.to_string()),
        Err(Error::Damaged) => None,
        Err(error) => panic!("{error}"),
    };
    (0..3).map(one).collect()
}

fn some(names: &[&str]) -> Vec<Option<String>> {
    names.iter().map(|name| (!name.is_empty()).then(|| (*name).to_owned())).collect()
}

#[test]
fn swapped_values_are_not_released() {
    let scratch = ScratchDirectory::new();
    let (store, first, second) = filled(&scratch);
    let store = tamper(&scratch, store, |database| {
        swap(&database.values, &secret_key(first, &secret("a")), &secret_key(first, &secret("b")));
        swap(&database.values, &secret_key(first, &secret("c")), &secret_key(second, &secret("c")));
    });
    for (vault, name) in [(first, "a"), (first, "b"), (first, "c"), (second, "c")] {
        assert!(matches!(release(&store, vault, name), Err(ReleaseError::Damaged)), "{name} in {vault}");
    }
    assert_eq!(release(&store, second, "a").unwrap(), b"a");
    assert_eq!(listed(&store, first), some(&["a", "b", "c"]));
    let mut expected = ["a", "b", "c"].map(|name| finding(first, Some(name), VaultPart::Value)).to_vec();
    expected.push(finding(second, Some("c"), VaultPart::Value));
    let mut found = findings(&store);
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    // A copy that includes it is refused as a whole. Storing a new value repairs it.
    let (VaultId::Workspace(workspace), VaultId::Intern(intern)) = (first, second) else { unreachable!() };
    assert!(matches!(copy(&store, workspace, intern, &["a"]), Err(Error::Damaged)));
    put(&store, first, "a", "new");
    assert_eq!(release(&store, first, "a").unwrap(), b"new");
}

#[test]
fn a_row_copied_to_another_vault_or_name_is_damaged() {
    let scratch = ScratchDirectory::new();
    let (store, first, second) = filled(&scratch);
    let store = tamper(&scratch, store, |database| {
        for keyspace in [&database.meta, &database.values] {
            swap(keyspace, &secret_key(first, &secret("b")), &secret_key(second, &secret("b")));
            let row = keyspace.get(secret_key(first, &secret("a"))).unwrap().unwrap();
            keyspace.insert(secret_key(first, &secret("d")), row).unwrap();
        }
    });
    assert_eq!(listed(&store, first), some(&["a", "", "c"]));
    assert_eq!(listed(&store, second), some(&["a", "", "c"]));
    assert!(matches!(store.list_secrets(first, 0, 100).now(), Err(Error::Damaged)));
    for (vault, name) in [(first, "b"), (second, "b"), (first, "d")] {
        assert!(matches!(release(&store, vault, name), Err(ReleaseError::Damaged)), "{name} in {vault}");
    }
    assert_eq!(release(&store, first, "a").unwrap(), b"a");
    let found = findings(&store);
    assert!(found.contains(&finding(first, Some("d"), VaultPart::Metadata)));
    assert!(found.contains(&finding(second, None, VaultPart::Head)));
    assert!(store.status().damaged_rows_met > 0);
    store.flush().unwrap();
    let audit = serde_json::to_string(&store.audit_records(0, 100).now().unwrap()).unwrap();
    assert_eq!(audit.matches("damage_found").count(), 3, "{audit}");
}

#[test]
fn a_flipped_byte_of_a_row_is_detected() {
    let scratch = ScratchDirectory::new();
    let (store, vault, _) = filled(&scratch);
    let key = secret_key(vault, &secret("b"));
    store.close();
    let bytes = {
        let database = Database::open(&scratch.path("store")).unwrap();
        [&database.meta, &database.values].map(|keyspace| keyspace.get(&key).unwrap().unwrap().len())
    };
    let mut store = scratch.open();
    for at in (0..bytes[0]).step_by(5) {
        store = tamper(&scratch, store, |database| flip(&database.meta, &key, at));
        assert_eq!(listed(&store, vault), some(&["a", "", "c"]), "byte {at} of the metadata");
        assert!(matches!(release(&store, vault, "b"), Err(ReleaseError::Damaged)), "byte {at}");
        store = tamper(&scratch, store, |database| flip(&database.meta, &key, at));
    }
    for at in (0..bytes[1]).step_by(5) {
        store = tamper(&scratch, store, |database| flip(&database.values, &key, at));
        assert!(matches!(release(&store, vault, "b"), Err(ReleaseError::Damaged)), "byte {at} of the value");
        store = tamper(&scratch, store, |database| flip(&database.values, &key, at));
    }
    assert!(verify_vaults(&store).findings.is_empty());
}

#[test]
fn deleted_and_restored_rows_do_not_match_their_head() {
    let scratch = ScratchDirectory::new();
    let (store, vault, _) = filled(&scratch);
    let key = secret_key(vault, &secret("b"));
    store.close();
    let old = {
        let database = Database::open(&scratch.path("store")).unwrap();
        [&database.meta, &database.values].map(|keyspace| keyspace.get(&key).unwrap().unwrap())
    };
    let store = scratch.open();
    put(&store, vault, "b", "newer");
    let newest = "newer".as_bytes();
    assert_eq!(release(&store, vault, "b").unwrap(), newest);
    // Both rows of an older version: each has a valid MAC, but they are not the current version.
    let store = tamper(&scratch, store, |database| {
        for (keyspace, row) in [&database.meta, &database.values].into_iter().zip(&old) {
            keyspace.insert(&key, row.clone()).unwrap();
        }
    });
    assert_eq!(findings(&store), [finding(vault, None, VaultPart::Head)]);
    let store = tamper(&scratch, store, |database| database.meta.remove(&key).unwrap());
    let mut found = findings(&store);
    found.sort();
    assert_eq!(found, [finding(vault, None, VaultPart::Head), finding(vault, Some("b"), VaultPart::Value)]);
    let store = tamper(&scratch, store, |database| database.values.remove(&key).unwrap());
    assert_eq!(findings(&store), [finding(vault, None, VaultPart::Head)]);
}

#[test]
fn rows_of_no_vault_are_named() {
    let scratch = ScratchDirectory::new();
    let (store, vault, _) = filled(&scratch);
    let stranger = VaultId::Workspace(WorkspaceId::from_bytes([7; 16]));
    let store = tamper(&scratch, store, |database| {
        database.values.insert("junk", "x").unwrap();
        database.meta.insert(secret_key(stranger, &secret("a")), "x").unwrap();
        database.values.insert([secret_key(vault, &secret("a")).as_slice(), b"__"].concat(), "x").unwrap();
    });
    let found = findings(&store);
    assert!(found.contains(&VaultFinding { vault: None, name: None, part: VaultPart::RowKey }));
    for part in [VaultPart::Owner, VaultPart::KeyRecord, VaultPart::Head] {
        assert!(found.contains(&finding(stranger, None, part)), "{part}");
    }
    assert!(found.contains(&finding(stranger, Some("a"), VaultPart::Metadata)));
    assert!(found.contains(&finding(vault, None, VaultPart::Value)));
    assert_eq!(found.len(), 6);
}

#[test]
fn a_changed_head_is_not_served_unless_accepted() {
    for change in [
        |database: &Database, vault: VaultId| flip(&database.meta, &head_key(vault), 3),
        |database: &Database, vault: VaultId| database.meta.remove(head_key(vault)).unwrap(),
        |database: &Database, _| database.meta.insert("h junk", "x").unwrap(),
        |database: &Database, vault: VaultId| {
            flip(&database.meta, &head_key(vault), 3);
            flip(&database.meta, &secret_key(vault, &secret("b")), 7);
        },
    ] {
        let scratch = ScratchDirectory::new();
        let (store, vault, other) = filled(&scratch);
        let seq = store.status().seq;
        store.close();
        let database = Database::open(&scratch.path("store")).unwrap();
        change(&database, vault);
        drop(database);
        let crate::OpenError::OutOfStep(found) = scratch.try_open().unwrap_err() else { panic!("served") };
        assert_eq!(found.reason, "heads of vaults were changed from outside");
        drop(scratch.accept(seq).unwrap());

        let store = scratch.open();
        assert!(verify_vaults(&store).findings.is_empty());
        assert_eq!(release(&store, vault, "a").unwrap(), b"a");
        assert_eq!(listed(&store, other), some(&["a", "b", "c"]));
        put(&store, vault, "b", "new");
        delete(&store, vault, "a").unwrap();
        assert!(verify_vaults(&store).findings.is_empty());
    }
}

#[test]
fn a_vault_without_its_keys_is_deleted_by_an_accepted_rollback() {
    for change in [
        |database: &Database, vault: VaultId| database.keys.remove(rows::vault_keys_key(vault)).unwrap(),
        |database: &Database, vault: VaultId| flip(&database.keys, &rows::vault_keys_key(vault), 9),
    ] {
        let scratch = ScratchDirectory::new();
        let (store, vault, other) = filled(&scratch);
        let seq = store.status().seq;
        store.close();
        let database = Database::open(&scratch.path("store")).unwrap();
        change(&database, vault);
        drop(database);
        assert!(matches!(scratch.try_open(), Err(crate::OpenError::OutOfStep(_))));
        drop(scratch.accept(seq).unwrap());

        let store = scratch.open();
        assert!(verify_vaults(&store).findings.is_empty());
        assert_eq!(store.list_secrets(vault, 0, 10).now().unwrap().entries, []);
        assert_eq!(listed(&store, other), some(&["a", "b", "c"]));
        put(&store, vault, "a", "new");
        assert_eq!(release(&store, vault, "a").unwrap(), b"new");
        assert!(verify_vaults(&store).findings.is_empty());
    }
}

#[test]
fn vaults_without_owners_can_be_removed() {
    let scratch = ScratchDirectory::new();
    let (store, first, second) = filled(&scratch);
    let VaultId::Intern(intern) = second else { unreachable!() };
    let third = VaultId::Workspace(create_workspace(&store, "lost").id);
    put(&store, third, "d", "value");
    let VaultId::Workspace(workspace) = third else { unreachable!() };
    let store = lose(&scratch, store, &rows::intern_key(intern));
    let store = lose(&scratch, store, &rows::workspace_key(workspace));
    let found = store.verify(&mut go_on).unwrap();
    assert_eq!((found.orphans, found.problems.len()), (2, 2), "{:?}", found.problems);
    let backup = store.backup(&scratch.path("backup"), &mut go_on);
    assert!(backup.unwrap_err().to_string().contains("owner"));

    let seq = store.status().seq;
    let removed = store.remove_orphans(OPERATOR, &mut go_on).unwrap();
    assert_eq!(removed, crate::OrphansRemoved { vaults: vec![third, second], secrets: 4 });
    let record = serde_json::to_string(&store.audit_records(seq, 10).now().unwrap()).unwrap();
    assert!(record.contains("orphan_removed") && record.contains(&second.to_string()), "{record}");
    assert_eq!(store.verify(&mut go_on).unwrap().problems, [""; 0]);
    assert_eq!(release(&store, first, "a").unwrap(), b"a");
    store.backup(&scratch.path("backup"), &mut go_on).unwrap();
    assert_eq!(store.remove_orphans(OPERATOR, &mut go_on).unwrap(), crate::OrphansRemoved::default());
    store.close();
    scratch.open();
}

#[test]
fn the_check_can_be_stopped_at_every_step() {
    let scratch = ScratchDirectory::new();
    let (store, ..) = filled(&scratch);
    for step in 0.. {
        match store.verify(&mut stop_at(step)) {
            Err(VaultError::Stopped) => {}
            found => {
                assert!(found.unwrap().problems.is_empty());
                // Stops within each vault, after each vault, and at the end of the audit log.
                return assert_eq!(step, 5);
            }
        }
    }
}
