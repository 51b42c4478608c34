use std::ops::ControlFlow;
use std::time::Duration;

use super::*;
use crate::root_key::RootKeySource;
use crate::scratch::{
    Now, ScratchDirectory, broken_audit, create_workspace, go_on, new_secret, put, stop_at,
};
use crate::secret::SecretValue;
use crate::state::Gap;
use crate::store::OpenOptions;

const SECRETS: usize = 7;

fn name(number: usize) -> String {
    format!("s{number:03}")
}

fn filled() -> (ScratchDirectory, Store, [VaultId; 2]) {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let vaults = [VaultId::Workspace(create_workspace(&store, "w").id), VaultId::Operator];
    for number in 0..SECRETS {
        put(&store, vaults[0], &name(number), &format!("value {number}"));
    }
    put(&store, vaults[1], "only", "value");
    scratch.clock.advance(Duration::from_secs(1));
    (scratch, store, vaults)
}

fn value(store: &Store, vault: VaultId, name: &str) -> (u32, String) {
    let view = store.view().unwrap();
    let name = name.parse().unwrap();
    let stored = view.secret(vault, &name).unwrap().unwrap();
    let value = view.value(vault, &stored).unwrap();
    (stored.kid, String::from_utf8(value.to_vec()).unwrap())
}

fn kids(store: &Store, vault: VaultId) -> Vec<u32> {
    let keys = store.view().unwrap().vault_keys(vault).unwrap().unwrap();
    keys.encryption.iter().map(|key| key.kid).collect()
}

fn assert_rotated(store: &Store, vault: VaultId, kid: u32) {
    for number in 0..SECRETS {
        assert_eq!(value(store, vault, &name(number)), (kid, format!("value {number}")));
    }
}

#[test]
fn a_rotation_reencrypts_every_secret_without_changing_it() {
    let (scratch, store, [vault, other]) = filled();
    let before = store.list_secrets(vault, 0, 100).now().unwrap();
    let done = store.rotate_vault_keys(&mut go_on).unwrap();
    assert_eq!(done, KeyRotation { vaults: 2, secrets: SECRETS as u64 + 1, keys_deleted: 0 });
    assert_rotated(&store, vault, 2);
    assert_eq!(value(&store, other, "only"), (2, "value".to_owned()));
    assert_eq!(store.list_secrets(vault, 0, 100).now().unwrap(), before);
    assert_eq!(put(&store, vault, &name(0), "value 0").fingerprint, before.entries[0].fingerprint);
    store.close();
    let store = scratch.open();
    assert_rotated(&store, vault, 2);
    assert_eq!(broken_audit(&store), None);
}

#[test]
fn a_rotation_stopped_at_any_step_continues_without_another_key() {
    for step in 0.. {
        let (scratch, store, [vault, other]) = filled();
        let stopped = store.rotate_vault_keys(&mut stop_at(step)).is_err();
        assert_eq!(store.status().key_rotation_unfinished, stopped);
        store.close();
        scratch.clock.advance(Duration::from_secs(1));
        let store = scratch.open();
        if !stopped {
            return assert!(step > 5, "stopped nowhere");
        }
        store.rotate_vault_keys(&mut go_on).unwrap();
        assert_rotated(&store, vault, 2);
        assert_eq!((kids(&store, vault), kids(&store, other)), (vec![1, 2], vec![1, 2]), "step {step}");
        assert!(!store.status().key_rotation_unfinished);
    }
}

#[test]
fn a_secret_written_during_a_rotation_keeps_its_new_value() {
    let (_scratch, store, [vault, _]) = filled();
    let writer = store.clone();
    let mut steps = 0;
    let mut interfere = |_: &str, _, _| {
        steps += 1;
        // Before, in and after the batch that re-encrypts these secrets.
        for number in [0, SECRETS / 2, SECRETS - 1] {
            put(&writer, vault, &name(number), &format!("written {steps}"));
        }
        ControlFlow::Continue(())
    };
    store.rotate_vault_keys(&mut interfere).unwrap();
    for number in [0, SECRETS / 2, SECRETS - 1] {
        assert_eq!(value(&store, vault, &name(number)), (2, format!("written {steps}")));
    }
    assert_eq!(value(&store, vault, &name(1)), (2, "value 1".to_owned()));
}

#[test]
fn a_key_is_deleted_by_the_first_start_30_days_after_it_was_retired() {
    let (scratch, store, [vault, _]) = filled();
    store.rotate_vault_keys(&mut go_on).unwrap();
    store.close();
    scratch.clock.advance(Duration::from_secs(30 * 24 * 3600 - 1));
    let store = scratch.open();
    assert_eq!(kids(&store, vault), [1, 2]);
    store.close();
    scratch.clock.advance(Duration::from_secs(1));
    let store = scratch.open();
    assert_eq!(kids(&store, vault), [2]);
    assert_rotated(&store, vault, 2);
    let seq = store.status().seq;
    store.close();
    assert_eq!(scratch.open().status().seq, seq, "nothing is due any more");
}

#[test]
fn a_key_that_is_due_is_deleted_without_a_restart() {
    let (scratch, store, [vault, _]) = filled();
    store.rotate_vault_keys(&mut go_on).unwrap();
    scratch.clock.advance(Duration::from_secs(30 * 24 * 3600 - 1));
    assert!(!store.has_due_vault_keys());
    store.delete_due_vault_keys(&mut go_on).unwrap();
    assert_eq!(kids(&store, vault), [1, 2]);
    scratch.clock.advance(Duration::from_secs(1));
    assert!(store.has_due_vault_keys());
    store.delete_due_vault_keys(&mut go_on).unwrap();
    assert_eq!(kids(&store, vault), [2]);
    assert!(!store.has_due_vault_keys());
    assert_rotated(&store, vault, 2);
}

#[test]
fn an_operation_on_keys_refused_without_the_root_key_changes_nothing() {
    let (scratch, store, [vault, _]) = filled();
    let recovery = store.new_recovery_key(&mut go_on).unwrap();
    store.rotate_vault_keys(&mut go_on).unwrap();
    store.close();
    scratch.clock.advance(Duration::from_secs(31 * 24 * 3600));
    let root_key = RootKeySource::File(scratch.path("recovery.key"));
    root_key.read_or_make().unwrap();
    std::fs::write(scratch.path("recovery.key"), recovery.key.expose()).unwrap();
    let store = Store::open(scratch.lock(), OpenOptions { root_key, ..scratch.options() }).unwrap();
    assert!(!store.has_due_vault_keys(), "nothing can be done about it");
    let new = new_secret(vault, &name(0), "value 0");
    let written = store.submit(guarded([Guard::Vault(vault)], move |batch| {
        let refused = |ended: Result<(), Gap>| match ended {
            Err(Gap::Failed(Error::NoRootKey)) => Ok(()),
            Err(Gap::Missing(missing)) => Err(Gap::Missing(missing)),
            ended => panic!("{ended:?}"),
        };
        refused(batch.add_vault_key(vault, u64::MAX).map(drop))?;
        refused(batch.retire_vault_keys(vault).map(drop))?;
        batch.put_secret(Actor::Operator, &new)
    }));
    written.unwrap();
    assert_eq!(kids(&store, vault), [1, 2]);
    assert_rotated(&store, vault, 2);
}

#[test]
fn a_rotation_deletes_what_is_due() {
    let (scratch, store, [vault, _]) = filled();
    store.rotate_vault_keys(&mut go_on).unwrap();
    scratch.clock.advance(Duration::from_secs(31 * 24 * 3600));
    assert_eq!(store.rotate_vault_keys(&mut go_on).unwrap().keys_deleted, 2);
    assert_eq!(kids(&store, vault), [2, 3]);
}

fn legacy(name: &str, value: &str, created_at_ms: Option<u64>) -> LegacySecret {
    let value = SecretValue::new(value.to_owned().into()).unwrap();
    LegacySecret { name: name.parse().unwrap(), value, created_at_ms }
}

#[test]
fn legacy_secrets_have_no_hosts_and_replace_no_secret() {
    let (scratch, store, [vault, _]) = filled();
    let VaultId::Workspace(workspace) = vault else { panic!() };
    let before = store.list_secrets(vault, 0, 1).now().unwrap().entries;
    let import = |name: &str, value: &str, at: Option<u64>| {
        store.import_legacy(Actor::Operator, workspace, vec![legacy(name, value, at)]).unwrap()
    };
    assert_eq!(import(&name(0), "old", Some(5)), 0);
    assert_eq!(store.list_secrets(vault, 0, 1).now().unwrap().entries, before);
    assert_eq!(value(&store, vault, &name(0)).1, "value 0");
    assert_eq!(import("a", "old", Some(5)), 1);
    assert_eq!(import("a", "older", None), 0);
    let listed = store.list_secrets(vault, 0, 1).now().unwrap().entries.remove(0);
    assert_eq!(
        (listed.name.as_str(), listed.hosts, listed.fingerprint, listed.created_at_ms),
        ("a", None, None, 5)
    );
    assert_eq!(value(&store, vault, "a").1, "old");
    store.rotate_vault_keys(&mut go_on).unwrap();
    assert_eq!(value(&store, vault, "a"), (2, "old".to_owned()));
    put(&store, vault, "a", "new");
    assert_eq!(import("a", "old", None), 0);
    store.close();
    assert_eq!(value(&scratch.open(), vault, "a").1, "new");
}
