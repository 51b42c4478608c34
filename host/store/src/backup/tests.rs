use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::audit::Actor;
use crate::ids::VaultId;
use crate::root_key::RootKeySource;
use crate::scratch::{Now, ScratchDirectory, create_workspace, go_on, issue_key, put, token};
use crate::store::{OpenOptions, Store};

/// A store with secrets in two vaults, and a client's token.
fn filled() -> (ScratchDirectory, Store, VaultId, String) {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let vault = VaultId::Workspace(create_workspace(&store, "w").id);
    put(&store, vault, "a", "value of a");
    put(&store, VaultId::Operator, "b", "value of b");
    let token = token(&issue_key(&store));
    (scratch, store, vault, token)
}

fn restore(scratch: &ScratchDirectory, backup: &Path) -> Result<RestoreSummary, VaultError> {
    Store::restore(&scratch.lock(), &scratch.options(), backup, &mut go_on)
}

/// An empty data directory with the root key of another one.
fn with_key_of(other: &ScratchDirectory) -> ScratchDirectory {
    let scratch = ScratchDirectory::new();
    std::fs::copy(other.path("root.key"), scratch.path("root.key")).unwrap();
    scratch.clock.advance(std::time::Duration::from_secs(90));
    scratch
}

fn files(scratch: &ScratchDirectory) -> Vec<String> {
    let names = std::fs::read_dir(scratch.path("")).unwrap();
    let mut names: Vec<String> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_restored_store_has_the_backed_up_state_and_accepts_changes() {
    let (scratch, store, vault, token) = filled();
    let backup = scratch.path("backup");
    let made = store.backup(&backup, &mut go_on).unwrap();
    assert_eq!((made.seq, made.root_key), (store.status().seq, store.status().root_key_id));
    let metadata = std::fs::metadata(&backup).unwrap();
    assert_eq!((metadata.permissions().mode() & 0o777, metadata.len()), (0o600, made.bytes));
    put(&store, vault, "after", "x");
    let content = std::fs::read(&backup).unwrap();
    let key = std::fs::read_to_string(scratch.path("root.key")).unwrap();
    for word in ["value of a", key.trim_end()] {
        assert!(!content.windows(word.len()).any(|window| window == word.as_bytes()), "{word}");
    }

    let other = with_key_of(&scratch);
    let done = restore(&other, &backup).unwrap();
    assert_eq!((done.store, done.seq, done.rows), (made.store, made.seq, made.rows));
    assert_eq!((done.age_ms, done.vaults, done.secrets, done.keys), (90_000, 2, 2, 1));
    assert_eq!(files(&other), ["anchor", "lock", "root.key", "store"]);
    let restored = other.open();
    assert!(restored.authenticate(&token).now().is_ok());
    let names = |store: &Store| store.list_secrets(vault, 0, 10).now().unwrap().entries;
    assert_eq!(names(&restored), names(&store)[..1]);
    assert_eq!(restored.status().seq, made.seq + 1);
    let text = serde_json::to_string(&restored.audit_records(made.seq, 10).now().unwrap()).unwrap();
    assert!(text.contains("\"action\":\"restored\""), "{text}");
    put(&restored, vault, "c", "goes on");
    assert_eq!(restored.verify(&mut go_on).unwrap().problems, [""; 0]);
    // A backup of a restored store can be restored too.
    restored.backup(&other.path("again"), &mut go_on).unwrap();
    restore(&with_key_of(&scratch), &other.path("again")).unwrap();
}

#[test]
fn a_backup_never_overwrites_a_file_and_a_failed_one_leaves_no_file() {
    let (scratch, store, ..) = filled();
    let path = scratch.path("backup");
    std::fs::write(&path, "precious").unwrap();
    assert!(matches!(store.backup(&path, &mut go_on), Err(VaultError::Exists(_))));
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    let nowhere = scratch.path("nowhere/backup");
    assert!(matches!(store.backup(&nowhere, &mut go_on), Err(VaultError::File { .. })));
    let stopped = store.backup(&scratch.path("other"), &mut |_, _, _| ControlFlow::Break(()));
    assert!(matches!(stopped, Err(VaultError::Stopped)));
    let left = files(&scratch).into_iter().filter(|file| file.starts_with("other"));
    assert_eq!(left.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn a_backup_succeeds_beside_other_files_and_does_not_change_them() {
    let (scratch, store, ..) = filled();
    let (victim, link) = (scratch.path("victim"), scratch.path("backup.part"));
    std::fs::write(&victim, "precious").unwrap();
    std::os::unix::fs::symlink(&victim, &link).unwrap();
    // The file that a process leaves behind when it is killed while it writes a backup.
    let left = scratch.path("backup.0123456789abcdef.part");
    std::fs::write(&left, "half").unwrap();
    store.backup(&scratch.path("backup"), &mut go_on).unwrap();
    assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
    assert_eq!(std::fs::read(&left).unwrap(), b"half");
    assert!(link.is_symlink());
    assert_eq!(files(&scratch).iter().filter(|file| file.ends_with(".part")).count(), 2);
    restore(&with_key_of(&scratch), &scratch.path("backup")).unwrap();
}

#[test]
fn a_store_with_a_damaged_secret_is_not_backed_up() {
    let (scratch, store, vault, _) = filled();
    store.close();
    let key = crate::vault::secret_key(vault, &"a".parse().unwrap());
    let database = crate::fjall::Database::open(&scratch.path("store")).unwrap();
    let mut value = database.values.get(&key).unwrap().unwrap().to_vec();
    value[30] ^= 1;
    database.values.insert(key, value).unwrap();
    drop(database);
    let store = scratch.open();
    let refused = store.backup(&scratch.path("backup"), &mut go_on).unwrap_err();
    assert!(refused.to_string().contains("value of `a` in workspace/"), "{refused}");
    assert!(!scratch.path("backup").exists());
    assert_eq!(store.verify(&mut go_on).unwrap().problems.len(), 1);
}

#[test]
fn a_backup_is_restored_only_into_a_directory_with_nothing_but_the_key() {
    let (scratch, store, ..) = filled();
    let backup = scratch.path("backup");
    store.backup(&backup, &mut go_on).unwrap();
    store.close();
    for entry in ["store", "anchor", "something"] {
        let other = with_key_of(&scratch);
        std::fs::write(other.path(entry), "x").unwrap();
        let refused = restore(&other, &backup).unwrap_err();
        assert!(matches!(&refused, VaultError::NotEmpty { entry: found, .. } if found == entry), "{refused}");
    }
    // The remains of an interrupted restore do not prevent another one.
    let other = with_key_of(&scratch);
    std::fs::create_dir(other.path("store.new")).unwrap();
    std::fs::write(other.path("anchor"), "x").unwrap();
    restore(&other, &backup).unwrap();
    other.open();
}

#[test]
fn another_root_key_is_refused_with_both_ids_and_leaves_nothing() {
    let (scratch, store, ..) = filled();
    let backup = scratch.path("backup");
    let needed = store.backup(&backup, &mut go_on).unwrap().root_key.to_string();
    let other = ScratchDirectory::new();
    let given = RootKeySource::File(other.path("root.key")).read_or_make().unwrap().id().unwrap().to_string();
    let refused = restore(&other, &backup).unwrap_err();
    assert!(refused.is_configuration());
    let refused = refused.to_string();
    assert!(refused.contains(&needed) && refused.contains(&given), "{refused}");
    assert_eq!(files(&other), ["lock", "root.key"]);
    let missing = restore(&ScratchDirectory::new(), &backup).unwrap_err();
    assert!(missing.is_configuration() && missing.to_string().contains(&needed), "{missing}");
}

#[test]
fn a_backup_can_be_restored_with_the_recovery_key() {
    let (scratch, store, vault, _) = filled();
    let recovery = store.new_recovery_key(&mut go_on).unwrap();
    let backup = scratch.path("backup");
    assert!(store.backup(&backup, &mut go_on).unwrap().has_recovery_key);
    let other = ScratchDirectory::new();
    let root_key = RootKeySource::File(other.path("root.key"));
    root_key.read_or_make().unwrap();
    std::fs::write(other.path("root.key"), recovery.key.expose()).unwrap();
    let options = OpenOptions { root_key, ..other.options() };
    Store::restore(&other.lock(), &options, &backup, &mut go_on).unwrap();
    let restored = other.open();
    assert!(restored.status().opened_with_recovery_key);
    assert_eq!(restored.list_secrets(vault, 0, 10).now().unwrap().entries.len(), 1);
}

#[test]
fn a_backup_with_any_byte_changed_or_missing_is_refused_and_leaves_nothing() {
    let (scratch, store, ..) = filled();
    let backup = scratch.path("backup");
    store.backup(&backup, &mut go_on).unwrap();
    store.close();
    let whole = std::fs::read(&backup).unwrap();
    let other = with_key_of(&scratch);
    let lock = other.lock();
    let before = files(&other);
    let edited = scratch.path("edited");
    let refused = |content: &[u8], what: String| {
        std::fs::write(&edited, content).unwrap();
        let error = Store::restore(&lock, &other.options(), &edited, &mut go_on).expect_err(&what);
        assert!(!error.to_string().is_empty());
        assert!(!other.path("store").exists() && !other.path("store.new").exists(), "{what}");
    };
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 1;
        refused(&flipped, format!("byte {at}"));
    }
    for at in (0..whole.len()).step_by(97) {
        refused(&whole[..at], format!("cut at {at}"));
    }
    refused(&[whole.as_slice(), &whole].concat(), "twice".to_owned());
    assert_eq!(files(&other), before);
}

#[test]
fn a_row_of_another_backup_of_the_same_store_is_refused() {
    let (scratch, store, vault, _) = filled();
    let (first, second) = (scratch.path("first"), scratch.path("second"));
    store.backup(&first, &mut go_on).unwrap();
    put(&store, vault, "a", "another value");
    store.backup(&second, &mut go_on).unwrap();
    let (first, second) = (std::fs::read(first).unwrap(), std::fs::read(second).unwrap());
    let other = with_key_of(&scratch);
    let spliced = scratch.path("spliced");
    for at in (0..first.len().min(second.len())).step_by(61) {
        let content = [&first[..at], &second[at..]].concat();
        if content != first && content != second {
            std::fs::write(&spliced, content).unwrap();
            assert!(restore(&other, &spliced).is_err(), "spliced at {at}");
        }
    }
}

#[test]
fn verify_runs_during_writes() {
    let (_scratch, store, vault, _) = filled();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..20 {
                put(&store, vault, &format!("n{number}"), "x");
                store
                    .delete_secret(
                        store.queue_permit_within(std::time::Duration::from_secs(60)).unwrap(),
                        Actor::Operator,
                        vault,
                        format!("n{number}").parse().unwrap(),
                    )
                    .wait(std::time::Duration::from_secs(60))
                    .unwrap();
            }
        });
        for _ in 0..20 {
            assert_eq!(store.verify(&mut go_on).unwrap().problems, [""; 0]);
        }
    });
}

#[test]
fn one_backup_is_written_at_a_time() {
    let (scratch, store, ..) = filled();
    let backup = scratch.path("backup");
    let mut second = Vec::new();
    let made = store.backup(&backup, &mut |_, _, _| {
        second.push(store.backup(&backup, &mut go_on));
        ControlFlow::Continue(())
    });
    made.unwrap();
    assert!(!second.is_empty() && second.iter().all(|it| matches!(it, Err(VaultError::Busy))));
    assert!(restore(&with_key_of(&scratch), &backup).is_ok());
}
