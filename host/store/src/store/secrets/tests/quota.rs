//! Quotas of vaults and workspaces.

use super::*;
use crate::quota::{QuotaExceeded, QuotaMeasure, QuotaScope, VaultQuota, VaultSize};
use crate::scratch::try_put;

/// Bytes of the hosts of every secret in these tests.
const HOST_BYTES: u64 = "api.example.com".len() as u64 + "b.example".len() as u64;

fn refused<T: std::fmt::Debug>(result: Result<T, Error>) -> QuotaExceeded {
    match result {
        Err(Error::Quota(exceeded)) => exceeded,
        other => panic!("{other:?}"),
    }
}

fn open_with(scratch: &ScratchDirectory, secrets_max: u64, bytes_max: u64) -> Store {
    let store = scratch.open();
    store.set_vault_quota(VaultQuota { secrets_max, bytes_max });
    store
}

fn size(store: &Store, vault: VaultId) -> VaultSize {
    store.view().unwrap().size(vault).unwrap()
}

#[test]
fn a_full_vault_refuses_a_new_secret_and_accepts_a_replacement() {
    let scratch = ScratchDirectory::new();
    let store = open_with(&scratch, 2, 10_000);
    let vault = VaultId::Workspace(default_workspace(&store));
    put(&store, vault, "a", "x");
    put(&store, vault, "b", "x");
    let exceeded = refused(try_put(&store, vault, "c", "x"));
    assert_eq!(exceeded, QuotaExceeded { scope: QuotaScope::Vault, measure: QuotaMeasure::Secrets, max: 2 });
    put(&store, vault, "b", "another value");
    delete(&store, vault, "a").unwrap();
    put(&store, vault, "c", "x");
    refused(try_put(&store, vault, "a", "x"));
    // The operator's vault has no quota.
    for name in ["a", "b", "c"] {
        put(&store, VaultId::Operator, name, "x");
    }
}

#[test]
fn bytes_are_those_of_names_hosts_and_values_and_replacing_counts_the_difference() {
    let scratch = ScratchDirectory::new();
    let store = open_with(&scratch, 10, 200);
    let vault = VaultId::Workspace(default_workspace(&store));
    put(&store, vault, "abc", &"x".repeat(100));
    assert_eq!(size(&store, vault), VaultSize { secrets: 1, bytes: 3 + HOST_BYTES + 100 });
    let room = 200 - 3 - HOST_BYTES;
    assert_eq!(refused(try_put(&store, vault, "abc", &"x".repeat(room as usize + 1))).max, 200);
    put(&store, vault, "abc", &"x".repeat(room as usize));
    assert_eq!(size(&store, vault).bytes, 200);
    put(&store, vault, "abc", "x");
    delete(&store, vault, "abc").unwrap();
    assert_eq!(size(&store, vault), VaultSize::default());
    // A refused mutation leaves nothing behind, not even the keys of a new vault.
    store.set_vault_quota(VaultQuota { secrets_max: 0, bytes_max: 200 });
    let other = VaultId::Workspace(create_workspace(&store, "second").id);
    refused(try_put(&store, other, "a", "x"));
    store.set_vault_quota(VaultQuota::default());
    put(&store, other, "a", "x");
    assert!(verify_vaults(&store).findings.is_empty());
}

#[test]
fn a_workspace_with_its_interns_holds_ten_times_the_quota() {
    let scratch = ScratchDirectory::new();
    let store = open_with(&scratch, 1, 100_000);
    let workspace = default_workspace(&store);
    let interns: Vec<_> = (0..11).map(|it| create_intern(&store, workspace, &format!("i{it}"))).collect();
    for intern in interns.iter().take(10) {
        put(&store, VaultId::Intern(*intern), "a", "x");
    }
    let of_workspace = |exceeded: QuotaExceeded| {
        assert_eq!((exceeded.scope, exceeded.max), (QuotaScope::Workspace, 10));
    };
    of_workspace(refused(try_put(&store, VaultId::Workspace(workspace), "a", "x")));
    of_workspace(refused(try_put(&store, VaultId::Intern(interns[10]), "a", "x")));
    // The sum is the same after a restart, and deleting makes room.
    store.close();
    let store = open_with(&scratch, 1, 100_000);
    of_workspace(refused(try_put(&store, VaultId::Workspace(workspace), "a", "x")));
    store.delete_intern(OPERATOR, interns[0]).unwrap();
    put(&store, VaultId::Workspace(workspace), "a", "x");
    of_workspace(refused(try_put(&store, VaultId::Intern(interns[10]), "a", "x")));
    delete(&store, VaultId::Intern(interns[1]), "a").unwrap();
    put(&store, VaultId::Intern(interns[10]), "a", "x");
    // Another workspace has its own quota.
    put(&store, VaultId::Workspace(create_workspace(&store, "second").id), "a", "x");
}

#[test]
fn copies_and_imports_are_refused_as_a_whole() {
    let scratch = ScratchDirectory::new();
    let store = open_with(&scratch, 10, 10_000);
    let workspace = default_workspace(&store);
    let (vault, intern) = (VaultId::Workspace(workspace), create_intern(&store, workspace, "i"));
    for name in ["a", "b", "c"] {
        put(&store, vault, name, "x");
    }
    store.set_vault_quota(VaultQuota { secrets_max: 2, bytes_max: 10_000 });
    refused(copy(&store, workspace, intern, &["a", "b", "c"]));
    assert!(store.list_secrets(VaultId::Intern(intern), 0, 10).now().unwrap().entries.is_empty());
    assert_eq!(copy(&store, workspace, intern, &["a", "b"]).unwrap().len(), 2);
    assert_eq!(copy(&store, workspace, intern, &["a", "b"]).unwrap().len(), 2);
    let second = create_workspace(&store, "second").id;
    let secrets = || {
        ["a", "b", "c"].map(|name| LegacySecret {
            name: secret(name),
            value: SecretValue::new(Zeroizing::new("x".to_owned())).unwrap(),
            created_at_ms: None,
        })
    };
    refused(store.import_legacy(OPERATOR, second, secrets().into()));
    assert!(store.list_secrets(VaultId::Workspace(second), 0, 10).now().unwrap().entries.is_empty());
    let two = secrets().into_iter().take(2).collect();
    assert_eq!(store.import_legacy(OPERATOR, second, two).unwrap(), 2);
}

/// Earlier versions wrote heads without the number of bytes.
#[test]
fn a_vault_whose_head_has_no_byte_count_is_counted() {
    let scratch = ScratchDirectory::new();
    let store = open_with(&scratch, 10, 10_000);
    let workspace = default_workspace(&store);
    let (vault, intern) = (VaultId::Workspace(workspace), create_intern(&store, workspace, "i"));
    let of_intern = VaultId::Intern(intern);
    for (vault, name) in [(vault, "a"), (vault, "b"), (of_intern, "a")] {
        put(&store, vault, name, "x");
    }
    let sizes = [vault, of_intern].map(|vault| size(&store, vault));
    let guards = [vault, of_intern].map(Guard::Vault);
    store.submit(guarded(guards, move |batch| batch.forget_bytes(&[vault, of_intern]))).unwrap();
    store.close();
    let store = open_with(&scratch, 10, 10_000);
    let head = |vault| store.view().unwrap().head(vault).unwrap().unwrap();
    assert_eq!((head(vault).bytes, head(of_intern).bytes), (None, None));
    assert_eq!([vault, of_intern].map(|vault| size(&store, vault)), sizes);
    assert!(verify_vaults(&store).findings.is_empty());
    store.set_vault_quota(VaultQuota { secrets_max: 2, bytes_max: 10_000 });
    refused(try_put(&store, vault, "c", "x"));
    put(&store, vault, "b", "y");
    assert_eq!(head(vault).bytes, Some(sizes[0].bytes));
}
