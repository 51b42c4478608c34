mod damage;
mod limits;
mod model;
mod quota;
mod release;

use std::time::Duration;

use zeroize::Zeroizing;

use super::*;
use crate::audit::{AuditAction, Purpose};
use crate::changes::NewIntern;
use crate::ids::WorkspaceId;
use crate::scratch::{
    Now, ScratchDirectory, broken_audit, create_workspace, go_on, name, new_secret as new, put,
};
use crate::secret::{HostName, Hosts, SecretValue};
use crate::vault::verify::{VaultReport, verify};
use crate::vault::{EffectiveScope, LegacySecret};

const OPERATOR: Actor = Actor::Operator;
const PATIENCE: Duration = Duration::from_secs(60);

fn verify_vaults(store: &Store) -> VaultReport {
    verify(&store.view().unwrap(), &mut go_on).unwrap()
}

fn secret(text: &str) -> SecretName {
    text.parse().unwrap()
}

fn request(scope: ReleaseScope, name: &str, to: &str) -> ReleaseRequest {
    let secret = BoundSecret { name: secret(name), host: to.parse().unwrap() };
    let purpose = Purpose { used_by: "provider demo".to_owned(), request_id: "resp_1".to_owned() };
    ReleaseRequest { actor: OPERATOR, scope, secret, purpose }
}

fn permit(store: &Store) -> QueuePermit {
    store.queue_permit_within(PATIENCE).unwrap()
}

fn copy_permit(store: &Store, workspace: WorkspaceId) -> CopyPermit {
    crate::pending::wait(store.copy_permit(workspace), PATIENCE).unwrap().unwrap()
}

fn delete(store: &Store, vault: VaultId, name: &str) -> Result<(), Error> {
    store.delete_secret(permit(store), OPERATOR, vault, secret(name)).wait(PATIENCE)
}

/// The position of the newest audit record.
fn newest(store: &Store) -> u64 {
    store.flush().unwrap();
    store.newest_audit_records(None, 1).now().unwrap().last().map_or(0, |(position, _)| *position)
}

/// How many audit records there are after a position: each commit has one.
fn commits_since(store: &Store, position: u64) -> usize {
    store.audit_records(position, 100).now().unwrap().len()
}

fn default_workspace(store: &Store) -> WorkspaceId {
    store.directory().find_workspace("default").unwrap().id
}

fn create_intern(store: &Store, workspace: WorkspaceId, text: &str) -> InternId {
    store.create_intern(OPERATOR, NewIntern { workspace, name: name(text), created_by: None }).unwrap().id
}

fn copy(
    store: &Store,
    workspace: WorkspaceId,
    intern: InternId,
    names: &[&str],
) -> Result<Vec<SecretMetadata>, Error> {
    let names = names.iter().map(|name| secret(name)).collect();
    store.copy_secrets(copy_permit(store, workspace), OPERATOR, intern, names).wait(PATIENCE)
}

#[test]
fn a_workspace_has_one_copy_at_a_time() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let workspace = default_workspace(&store);
    let (vault, intern) = (VaultId::Workspace(workspace), create_intern(&store, workspace, "i"));
    put(&store, vault, "a", "one");
    let has_turn = |workspace| {
        let mut turn = std::pin::pin!(store.copy_permit(workspace));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        turn.as_mut().poll(&mut context).is_ready()
    };
    let (release, hold) = std::sync::mpsc::sync_channel::<()>(1);
    let wait = move |_: &mut WriteBatch| {
        hold.recv().unwrap_or_default();
        Ok(())
    };
    let copy = copy_permit(&store, workspace);
    assert!(!has_turn(workspace));
    assert!(has_turn(create_workspace(&store, "second").id));
    let first = store.enqueue(permit(&store), guarded([], wait));
    // A caller that leaves does not end the turn of its copy.
    drop(store.copy_secrets(copy, OPERATOR, intern, vec![secret("a")]));
    assert!(!has_turn(workspace));
    drop(release);
    first.wait(PATIENCE).unwrap();
    drop(copy_permit(&store, workspace));
}

/// Imports a legacy secret, which was made one day ago.
fn import(store: &Store, vault: VaultId, name: &str, value: &str) -> bool {
    let (name, value) = (secret(name), SecretValue::new(Zeroizing::new(value.to_owned())).unwrap());
    let legacy = LegacySecret { name, value, created_at_ms: Some(1_699_913_600_000) };
    let legacy = [legacy];
    let import = guarded([Guard::Vault(vault)], move |batch| batch.import_legacy(OPERATOR, vault, &legacy));
    store.submit(import).unwrap() == 1
}

fn names(page: &Page<SecretMetadata>) -> Vec<&str> {
    page.entries.iter().map(|entry| entry.name.as_str()).collect()
}

#[test]
fn a_secret_is_listed_and_its_value_is_not_on_the_disk() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let vault = VaultId::Workspace(default_workspace(&store));
    let stored = put(&store, vault, "token", "a canary that must not be found");
    assert_eq!(stored.created_at_ms, scratch.clock.now_ms());
    let page = store.list_secrets(vault, 0, 100).now().unwrap();
    assert_eq!((page.entries.as_slice(), page.has_more), ([stored.clone()].as_slice(), false));
    store.close();
    let store = scratch.open();
    assert_eq!(store.list_secrets(vault, 0, 100).now().unwrap().entries, [stored]);
    store.close();
    for file in std::fs::read_dir(scratch.path("store")).unwrap() {
        let path = file.unwrap().path();
        let content = if path.is_file() { std::fs::read(path).unwrap() } else { Vec::new() };
        assert!(!content.windows(8).any(|window| window == b"a canary"));
    }
}

#[test]
fn a_replaced_secret_keeps_its_date_and_a_deleted_one_does_not() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let vault = VaultId::Workspace(default_workspace(&store));
    let first = put(&store, vault, "a", "one");
    scratch.clock.advance(Duration::from_secs(1));
    let second = put(&store, vault, "a", "two");
    assert_eq!(second.created_at_ms, first.created_at_ms);
    assert_ne!(second.fingerprint, first.fingerprint);
    let third = put(&store, vault, "a", "one");
    assert_eq!(third.fingerprint, first.fingerprint);
    delete(&store, vault, "a").unwrap();
    assert!(matches!(delete(&store, vault, "a"), Err(Error::NoSuchSecret)));
    assert_eq!(put(&store, vault, "a", "one").created_at_ms, scratch.clock.now_ms());
}

#[test]
fn equal_values_have_equal_fingerprints_only_within_one_vault() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let first = VaultId::Workspace(default_workspace(&store));
    let second = VaultId::Workspace(create_workspace(&store, "second").id);
    let a = put(&store, first, "a", "one").fingerprint;
    assert_eq!(put(&store, first, "b", "one").fingerprint, a);
    assert_ne!(put(&store, second, "a", "one").fingerprint, a);
    assert_ne!(put(&store, VaultId::Operator, "a", "one").fingerprint, a);
}

#[test]
fn listings_have_the_byte_order_of_names_and_say_whether_more_follows() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let vault = VaultId::Workspace(default_workspace(&store));
    for name in ["ab", "a_b", "a", "a1"] {
        put(&store, vault, name, "x");
    }
    let all = store.list_secrets(vault, 0, 4).now().unwrap();
    assert_eq!((names(&all), all.has_more), (vec!["a", "a1", "a_b", "ab"], false));
    let part = store.list_secrets(vault, 1, 2).now().unwrap();
    assert_eq!((names(&part), part.has_more), (vec!["a1", "a_b"], true));
    let past = store.list_secrets(vault, 10_000, 100).now().unwrap();
    assert_eq!((names(&past), past.has_more), (vec![], false));
    let other = VaultId::Workspace(create_workspace(&store, "second").id);
    assert!(store.list_secrets(other, 0, 100).now().unwrap().entries.is_empty());
}

#[test]
fn copies_keep_hosts_and_come_in_the_order_asked_for() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let workspace = default_workspace(&store);
    let (from, intern) = (VaultId::Workspace(workspace), create_intern(&store, workspace, "i"));
    let (a, b) = (put(&store, from, "a", "one"), put(&store, from, "b", "two"));
    let copies = copy(&store, workspace, intern, &["b", "a"]).unwrap();
    assert_eq!(copies.iter().map(|copy| copy.name.as_str()).collect::<Vec<_>>(), ["b", "a"]);
    assert_eq!([&copies[0].hosts, &copies[1].hosts], [&b.hosts, &a.hosts]);
    assert_ne!(copies[1].fingerprint, a.fingerprint);
    let again = copy(&store, workspace, intern, &["b", "a"]).unwrap();
    assert_eq!(again, copies);

    assert!(matches!(copy(&store, workspace, intern, &["b", "c"]), Err(Error::NoSuchSecret)));
    let second = create_workspace(&store, "second").id;
    assert!(matches!(copy(&store, second, intern, &["a"]), Err(Error::OtherWorkspace { .. })));
    let effective = store.effective_secrets(intern, 0, 100).now().unwrap();
    assert_eq!(effective.entries.len(), 2);
}

#[test]
fn changes_of_one_group_see_each_other() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let workspace = default_workspace(&store);
    let (vault, intern) = (VaultId::Workspace(workspace), create_intern(&store, workspace, "i"));
    let seq = store.status().seq;
    // Holds the writer until all of the following mutations wait in its queue.
    let (release, hold) = std::sync::mpsc::sync_channel::<()>(1);
    let wait = move |_: &mut WriteBatch| {
        hold.recv().unwrap_or_default();
        Ok(())
    };
    let first = store.enqueue(permit(&store), guarded([], wait));
    let stored = store.put_secret(permit(&store), OPERATOR, new(vault, "a", "one"));
    let copied = store.copy_secrets(copy_permit(&store, workspace), OPERATOR, intern, vec![secret("a")]);
    let replaced = store.put_secret(permit(&store), OPERATOR, new(vault, "a", "two"));
    let deleted = store.delete_secret(permit(&store), OPERATOR, vault, secret("a"));
    let missing = store.delete_secret(permit(&store), OPERATOR, vault, secret("a"));
    drop(release);
    first.wait(PATIENCE).unwrap();
    stored.wait(PATIENCE).unwrap();
    let copied = copied.wait(PATIENCE).unwrap();
    replaced.wait(PATIENCE).unwrap();
    deleted.wait(PATIENCE).unwrap();
    assert!(matches!(missing.wait(PATIENCE), Err(Error::NoSuchSecret)));
    assert_eq!(store.status().seq, seq + 1);
    assert!(store.list_secrets(vault, 0, 10).now().unwrap().entries.is_empty());
    assert_eq!(store.list_secrets(VaultId::Intern(intern), 0, 10).now().unwrap().entries, copied);
    store.close();
    let store = scratch.open();
    assert_eq!(store.list_secrets(VaultId::Intern(intern), 0, 10).now().unwrap().entries, copied);
}

#[test]
fn deleting_an_intern_deletes_its_vault() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let workspace = default_workspace(&store);
    let intern = create_intern(&store, workspace, "i");
    let vault = VaultId::Intern(intern);
    put(&store, vault, "a", "one");
    put(&store, vault, "b", "two");
    let since = newest(&store);
    store.delete_intern(OPERATOR, intern).unwrap();
    assert_eq!(commits_since(&store, since), 1);
    assert!(matches!(store.list_secrets(vault, 0, 10).now(), Err(Error::Lookup(_))));
    assert!(matches!(store.effective_secrets(intern, 0, 10).now(), Err(Error::Lookup(_))));
    let late = store.put_secret(permit(&store), OPERATOR, new(vault, "a", "one")).wait(PATIENCE);
    assert!(matches!(late, Err(Error::Lookup(_))));
    let last = store.audit_records(since, 10).now().unwrap().pop().unwrap();
    let [entry] = &last.entries[..] else { panic!("{last:?}") };
    assert!(matches!(entry.action, AuditAction::InternDeleted { secrets_deleted: 2, .. }));
    store.close();
    let database = crate::fjall::Database::open(&scratch.path("store")).unwrap();
    // Only the markers are left, no row, head or key record of the vault.
    assert_eq!((database.meta.iter().count(), database.values.iter().count()), (1, 1));
    assert_eq!(database.keys.prefix("v").count(), 0);
}

#[test]
fn effective_secrets_are_the_interns_own_and_the_workspaces_of_other_names() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let workspace = default_workspace(&store);
    let intern = create_intern(&store, workspace, "i");
    for name in ["a", "b", "d"] {
        put(&store, VaultId::Workspace(workspace), name, "of the workspace");
    }
    for name in ["b", "c", "e"] {
        put(&store, VaultId::Intern(intern), name, "of the intern");
    }
    let shown = |offset, limit| {
        let page = store.effective_secrets(intern, offset, limit).now().unwrap();
        let entries = page.entries.iter().map(|entry| {
            let scope = if entry.scope == EffectiveScope::Intern { "i" } else { "w" };
            format!("{}{scope}", entry.metadata.name)
        });
        (entries.collect::<Vec<_>>().join(" "), page.has_more)
    };
    assert_eq!(shown(0, 100), ("aw bi ci dw ei".to_owned(), false));
    assert_eq!(shown(1, 2), ("bi ci".to_owned(), true));
    assert_eq!(shown(3, 2), ("dw ei".to_owned(), false));
    assert_eq!(shown(5, 2), (String::new(), false));
}

#[test]
fn the_audit_log_has_every_change_and_no_value() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let workspace = default_workspace(&store);
    let (vault, intern) = (VaultId::Workspace(workspace), create_intern(&store, workspace, "i"));
    let seq = store.status().seq;
    let stored = put(&store, vault, "a", "canary");
    copy(&store, workspace, intern, &["a"]).unwrap();
    delete(&store, vault, "a").unwrap();
    let records = store.audit_records(seq, 10).now().unwrap();
    let text = serde_json::to_string(&records).unwrap();
    assert!(!text.contains("canary"), "{text}");
    let prefix = stored.fingerprint.unwrap().to_string()[7..15].to_owned();
    for word in
        ["secret_stored", "secrets_copied", "secret_deleted", "api.example.com", &prefix, &vault.to_string()]
    {
        assert!(text.contains(word), "{word} in {text}");
    }
    assert_eq!(broken_audit(&store), None);
}
