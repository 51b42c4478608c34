use super::*;
use crate::audit::{Actor, AuditAction};
use crate::error::OpenError;
use crate::ids::VaultId;
use crate::root_key::{PassphraseSource, RootKeySource};
use crate::scratch::{Now, ScratchDirectory, broken_audit, create_workspace, go_on, put, stop_at};
use crate::seal::STORE_KEYS;
use crate::store::{OpenOptions, StoreStatus};

const VAULTS: usize = 5;

/// A store with a few vaults that have one secret each.
fn filled() -> (ScratchDirectory, Store, Vec<VaultId>) {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let mut vaults = vec![VaultId::Operator];
    for number in 1..VAULTS {
        vaults.push(VaultId::Workspace(create_workspace(&store, &format!("w{number}")).id));
    }
    for vault in &vaults {
        put(&store, *vault, "a", &format!("value of {vault}"));
    }
    (scratch, store, vaults)
}

fn assert_whole(store: &Store, vaults: &[VaultId]) {
    for vault in vaults {
        let view = store.view().unwrap();
        let name = "a".parse().unwrap();
        let stored = view.secret(*vault, &name).unwrap().unwrap();
        let value = view.value(*vault, &stored).unwrap();
        assert_eq!(*value, format!("value of {vault}").into_bytes());
    }
    assert_eq!(broken_audit(store), None);
}

/// Ids of the keys that open each key record. The store's own record is the first.
fn wrapped_by(store: &Store) -> Vec<Vec<RootKeyId>> {
    let view = store.view().unwrap();
    let mut rows = vec![STORE_KEYS.to_vec()];
    rows.extend(view.vault_records(None, usize::MAX).unwrap());
    let record = |row: &Vec<u8>| -> KeyRecord {
        let value = view.key_row(row).unwrap().unwrap();
        rows::decode(view.keys(), rows::KEYS, row, &value).unwrap()
    };
    rows.iter().map(|row| record(row).wrapped_by().collect()).collect()
}

fn key_file(scratch: &ScratchDirectory, name: &str) -> RootKeySource {
    let source = RootKeySource::File(scratch.path(name));
    source.read_or_make().unwrap();
    source
}

fn id(source: &RootKeySource) -> RootKeyId {
    source.read().unwrap().id().unwrap()
}

fn open(
    scratch: &ScratchDirectory,
    root_key: &RootKeySource,
    previous: Option<&RootKeySource>,
) -> Result<Store, OpenError> {
    let options =
        OpenOptions { root_key: root_key.clone(), previous_root_key: previous.cloned(), ..scratch.options() };
    Store::open(scratch.lock(), options)
}

#[test]
fn the_key_file_of_the_directory_is_replaced_and_the_old_key_kept() {
    let (scratch, store, vaults) = filled();
    let (old, new) = (key_file(&scratch, "root.key"), key_file(&scratch, "other"));
    let (old_id, new_id) = (id(&old), id(&new));
    let done = store.rotate_root(new.read().unwrap(), &mut go_on).unwrap();
    assert_eq!((done.previous, done.root_key, done.records), (old_id, new_id, VAULTS as u64));
    assert_eq!((store.status().root_key_id, store.status().next_root_key_id), (new_id, None));
    assert_eq!(wrapped_by(&store), vec![vec![new_id]; VAULTS + 1]);
    let kept = RootKeySource::File(done.kept_file.unwrap());
    assert_eq!(
        (id(&old), id(&kept), done.replaced_file.unwrap()),
        (new_id, old_id, scratch.path("root.key"))
    );
    assert!(!scratch.path("root.key.next").exists());
    assert_whole(&store, &vaults);
    // A new vault can be opened with the new key alone.
    let later = VaultId::Workspace(create_workspace(&store, "later").id);
    put(&store, later, "a", &format!("value of {later}"));
    store.close();
    let store = scratch.open();
    assert_whole(&store, &[vaults.as_slice(), &[later]].concat());
    store.close();
    let Err(OpenError::WrongRootKey { given, needs, replaced }) = open(&scratch, &kept, None) else {
        panic!()
    };
    assert_eq!((given, needs, replaced), (old_id, new_id, true));
}

#[test]
fn asking_for_the_same_key_again_changes_nothing() {
    let (scratch, store, _) = filled();
    let old = key_file(&scratch, "root.key").read().unwrap();
    assert!(matches!(store.rotate_root(old, &mut go_on), Err(VaultError::SameKey { what: "root", .. })));
    let new = key_file(&scratch, "other");
    store.rotate_root(new.read().unwrap(), &mut go_on).unwrap();
    let seq = store.status().seq;
    let again = store.rotate_root(new.read().unwrap(), &mut go_on).unwrap();
    assert_eq!((again.root_key, again.records, store.status().seq), (id(&new), 0, seq));
}

#[test]
fn a_second_operation_on_keys_is_refused_during_the_first() {
    let (scratch, store, _) = filled();
    let _alone = store.alone().unwrap();
    let new = key_file(&scratch, "other").read().unwrap();
    assert!(matches!(store.rotate_root(new, &mut go_on), Err(VaultError::Busy)));
    assert!(matches!(store.new_recovery_key(&mut go_on), Err(VaultError::Busy)));
}

/// Stops a rotation at each of its steps, opens the store with `reopen`, and passes its status to
/// `check`.
fn stopped_everywhere(
    reopen: impl Fn(&ScratchDirectory, &RootKeySource, &RootKeySource) -> Store,
    check: impl Fn(usize, StoreStatus, RootKeyId, RootKeyId),
) {
    for step in 0.. {
        let (scratch, store, vaults) = filled();
        store.close();
        let (old, new) = (key_file(&scratch, "old"), key_file(&scratch, "new"));
        std::fs::rename(scratch.path("root.key"), scratch.path("old")).unwrap();
        let store = open(&scratch, &old, None).unwrap();
        let stopped = store.rotate_root(new.read().unwrap(), &mut stop_at(step));
        put(&store, VaultId::Operator, "b", "written in between");
        store.close();
        let store = reopen(&scratch, &old, &new);
        assert_whole(&store, &vaults);
        check(step, store.status(), id(&old), id(&new));
        if stopped.is_ok() {
            return assert!(step > 2, "stopped nowhere");
        }
        assert!(matches!(stopped, Err(VaultError::Stopped)), "{stopped:?}");
    }
}

#[test]
fn a_rotation_stopped_at_any_step_is_finished_by_a_start_with_both_keys() {
    stopped_everywhere(
        |scratch, old, new| open(scratch, new, Some(old)).unwrap(),
        |step, status, _, new| {
            assert_eq!((status.root_key_id, status.next_root_key_id), (new, None), "step {step}");
        },
    );
}

#[test]
fn a_store_stopped_at_any_step_of_a_rotation_opens_with_one_key_and_can_continue() {
    stopped_everywhere(
        |scratch, old, new| {
            let store = match open(scratch, old, None) {
                Ok(store) => store,
                Err(OpenError::WrongRootKey { replaced: true, .. }) => {
                    return open(scratch, new, None).unwrap();
                }
                Err(error) => panic!("{error}"),
            };
            assert_eq!(store.status().root_key_id, id(old));
            store.rotate_root(new.read().unwrap(), &mut go_on).unwrap();
            store
        },
        |step, status, _, new| {
            assert_eq!((status.root_key_id, status.next_root_key_id), (new, None), "step {step}");
        },
    );
}

#[test]
fn a_rotation_of_the_implied_key_file_stopped_at_any_step_is_finished_by_the_next_start() {
    for step in 0.. {
        let (scratch, store, vaults) = filled();
        let old = id(&key_file(&scratch, "root.key"));
        let new = key_file(&scratch, "new");
        let stopped = store.rotate_root(new.read().unwrap(), &mut stop_at(step)).is_err();
        store.close();
        let store = scratch.open();
        assert_whole(&store, &vaults);
        assert_eq!(store.status().root_key_id, id(&new), "step {step}");
        assert_eq!(wrapped_by(&store), vec![vec![id(&new)]; VAULTS + 1]);
        assert_eq!(id(&RootKeySource::File(scratch.path("root.key"))), id(&new));
        assert_eq!(id(&RootKeySource::File(scratch.path(&format!("root.key.{old}")))), old);
        assert!(!scratch.path("root.key.next").exists());
        if !stopped {
            return;
        }
    }
}

#[test]
fn a_rotation_abandoned_for_another_key_leaves_nothing_behind() {
    let (scratch, store, vaults) = filled();
    let (first, second) = (key_file(&scratch, "first"), key_file(&scratch, "second"));
    assert!(store.rotate_root(first.read().unwrap(), &mut stop_at(1)).is_err());
    assert_eq!(store.status().next_root_key_id, Some(id(&first)));
    store.rotate_root(second.read().unwrap(), &mut go_on).unwrap();
    assert_eq!(wrapped_by(&store), vec![vec![id(&second)]; VAULTS + 1]);
    store.close();
    assert_whole(&scratch.open(), &vaults);
}

#[test]
fn keys_and_passphrases_can_replace_each_other() {
    let (scratch, store, vaults) = filled();
    let words = scratch.path("words");
    key_file(&scratch, "words");
    std::fs::write(&words, "correct horse battery staple").unwrap();
    let passphrase = RootKeySource::Passphrase { from: PassphraseSource::File(words) };
    assert!(store.rotate_root(passphrase.read().unwrap(), &mut stop_at(1)).is_err());
    let done = store.rotate_root(passphrase.read().unwrap(), &mut go_on).unwrap();
    assert!(done.replaced_file.is_none());
    store.close();
    assert!(matches!(scratch.try_open(), Err(OpenError::RootKey { .. })));
    let store = open(&scratch, &passphrase, None).unwrap();
    assert_whole(&store, &vaults);
    let key = key_file(&scratch, "key");
    store.rotate_root(key.read().unwrap(), &mut go_on).unwrap();
    store.close();
    assert_whole(&open(&scratch, &key, None).unwrap(), &vaults);
}

/// Writes a key to a file and returns the source for it.
fn written(scratch: &ScratchDirectory, name: &str, key: &RecoveryKey) -> RootKeySource {
    let source = key_file(scratch, name);
    std::fs::write(scratch.path(name), key.key.expose()).unwrap();
    source
}

#[test]
fn the_recovery_key_opens_older_and_newer_vaults_and_a_root_key_can_follow() {
    let (scratch, store, mut vaults) = filled();
    let recovery = store.new_recovery_key(&mut go_on).unwrap();
    assert!(store.status().has_recovery_key && !store.status().opened_with_recovery_key);
    let later = VaultId::Workspace(create_workspace(&store, "later").id);
    put(&store, later, "a", &format!("value of {later}"));
    vaults.push(later);
    store.close();
    std::fs::remove_file(scratch.path("root.key")).unwrap();
    let recovery = written(&scratch, "recovery", &recovery);
    let store = open(&scratch, &recovery, None).unwrap();
    assert!(store.status().opened_with_recovery_key);
    assert_whole(&store, &vaults);
    // The root key could not open a vault made now.
    let new = VaultId::Workspace(create_workspace(&store, "new").id);
    assert!(matches!(crate::scratch::try_put(&store, new, "a", "x"), Err(Error::NoRootKey)));
    assert!(matches!(store.new_recovery_key(&mut go_on), Err(VaultError::Store(Error::NoRootKey))));
    put(&store, later, "b", "an old vault takes new secrets");
    let key = key_file(&scratch, "new.key");
    let same = store.rotate_root(recovery.read().unwrap(), &mut go_on);
    assert!(matches!(same, Err(VaultError::SameKey { what: "recovery", .. })));
    store.rotate_root(key.read().unwrap(), &mut go_on).unwrap();
    assert!(!store.status().opened_with_recovery_key);
    put(&store, new, "a", &format!("value of {new}"));
    vaults.push(new);
    store.close();
    assert_whole(&open(&scratch, &key, None).unwrap(), &vaults);
    assert_whole(&open(&scratch, &recovery, None).unwrap(), &vaults);
}

#[test]
fn a_new_recovery_key_replaces_the_previous_one_and_an_interrupted_one_leaves_nothing() {
    let (scratch, store, vaults) = filled();
    let first = store.new_recovery_key(&mut go_on).unwrap();
    for step in 0.. {
        let seq = store.status().seq;
        match store.new_recovery_key(&mut stop_at(step)) {
            Err(VaultError::Stopped) => assert!(store.status().seq > seq),
            Ok(second) => {
                let root = store.status().root_key_id;
                store.close();
                let store = scratch.open();
                assert_eq!(wrapped_by(&store), vec![vec![root, second.id]; VAULTS + 1]);
                store.close();
                let refused = open(&scratch, &written(&scratch, "first", &first), None);
                assert!(matches!(refused, Err(OpenError::WrongRootKey { .. })));
                return assert_whole(
                    &open(&scratch, &written(&scratch, "second", &second), None).unwrap(),
                    &vaults,
                );
            }
            Err(error) => panic!("{error}"),
        }
        let expected = [store.status().root_key_id, first.id];
        let opened = wrapped_by(&store);
        assert!(opened.iter().all(|by| expected.iter().all(|id| by.contains(id))), "step {step}");
    }
}

#[test]
fn changes_of_keys_are_audited() {
    let (scratch, store, _) = filled();
    let seq = store.status().seq;
    store.rotate_root(key_file(&scratch, "new").read().unwrap(), &mut go_on).unwrap();
    let recovery = store.new_recovery_key(&mut go_on).unwrap();
    let records = store.audit_records(seq, 100).now().unwrap();
    let text = serde_json::to_string(&records).unwrap();
    for word in ["root_rotation_begun", "key_records_wrapped", "root_rotated", "recovery_key_made"] {
        assert!(text.contains(word), "{word} in {text}");
    }
    assert!(!text.contains(std::str::from_utf8(recovery.key.expose()).unwrap()));
    let actions = records.iter().flat_map(|record| &record.entries);
    assert!(actions.clone().all(|entry| entry.actor == Actor::Operator));
    assert!(actions.into_iter().any(|entry| entry.action == AuditAction::OldWrappingsDropped));
}

#[test]
fn an_unfinished_recovery_key_is_dropped_by_a_rotation() {
    let (scratch, store, vaults) = filled();
    // As if the caller had stopped waiting before the writer applied the change.
    let begun = RootKey::random().unwrap().id();
    store.submit(guarded([Guard::Store], move |batch| batch.begin_recovery_key(begun))).unwrap();
    store.rotate_root(key_file(&scratch, "new").read().unwrap(), &mut go_on).unwrap();
    store.close();
    let store = scratch.open();
    assert!(!store.status().has_recovery_key);
    assert_whole(&store, &vaults);
}

/// Replaces the root key as an operation does whose caller has stopped waiting.
fn replaced_unseen(to: &RootKeyMaterial, store: &Store) -> RootKeyId {
    let previous = store.status().root_key_id;
    let (key, record) = next_root(to, None).unwrap();
    place_successor(store.0.implied_key.as_ref().unwrap(), &key).unwrap();
    store.0.keys.change_ring(|ring| ring.add(key.wrap_key()));
    store.submit(guarded([Guard::Store], move |batch| batch.begin_root_rotation(&record))).unwrap();
    store.rewrap_all(&mut go_on).unwrap();
    let id = key.id();
    store.submit(guarded([Guard::Store], move |batch| batch.end_root_rotation(id))).unwrap().unwrap();
    previous
}

#[test]
fn a_rotation_whose_caller_stopped_waiting_is_finished_when_repeated() {
    let (scratch, store, vaults) = filled();
    let new = key_file(&scratch, "new");
    let previous = replaced_unseen(&new.read().unwrap(), &store);
    let done = store.rotate_root(new.read().unwrap(), &mut go_on).unwrap();
    assert_eq!((done.root_key, done.previous), (id(&new), previous));
    assert_eq!(store.header().previous_root, Some(previous));
    assert_eq!(done.replaced_file, Some(scratch.path("root.key")));
    assert_eq!(id(&RootKeySource::File(done.kept_file.unwrap())), previous);
    store.close();
    assert_whole(&scratch.open(), &vaults);
}

#[test]
fn the_next_key_file_is_not_overwritten_while_its_key_is_in_use() {
    let (scratch, store, vaults) = filled();
    let new = key_file(&scratch, "new");
    replaced_unseen(&new.read().unwrap(), &store);
    std::fs::remove_file(scratch.path("new")).unwrap();
    let third = key_file(&scratch, "third");
    let stopped = store.rotate_root(third.read().unwrap(), &mut stop_at(0));
    assert!(matches!(stopped, Err(VaultError::Stopped)));
    store.close();
    assert_whole(&scratch.open(), &vaults);
}

#[test]
fn a_passphrase_that_is_not_utf8_opens_the_store_after_a_rotation_to_it() {
    let (scratch, store, vaults) = filled();
    let from = key_file(&scratch, "passphrase");
    std::fs::write(scratch.path("passphrase"), b"caf\xe9 au lait, toujours").unwrap();
    let RootKeySource::File(from) = from else { panic!() };
    let passphrase = RootKeySource::Passphrase { from: PassphraseSource::File(from) };
    // As the passphrase is sent from the command line to the server.
    let sent = RootKeyMaterial::parse(&passphrase.read().unwrap().expose()).unwrap();
    store.rotate_root(sent, &mut go_on).unwrap();
    store.close();
    assert_whole(&open(&scratch, &passphrase, None).unwrap(), &vaults);
}

#[test]
fn a_start_with_the_recovery_key_keeps_wrappings_by_the_root_key() {
    let (scratch, store, vaults) = filled();
    let recovery = store.new_recovery_key(&mut go_on).unwrap();
    let action = AuditAction::RecoveryKeyBegun { id: recovery.id };
    let untidy = guarded([Guard::Store], move |batch| {
        batch.change_header(action.clone(), |header| header.untidy = true)
    });
    store.submit(untidy).unwrap();
    let before = wrapped_by(&store);
    store.close();
    let store = open(&scratch, &written(&scratch, "recovery", &recovery), None).unwrap();
    assert_eq!(wrapped_by(&store), before);
    store.close();
    assert_whole(&scratch.open(), &vaults);
}
