use super::*;
use crate::audit::AuditEntry;
use crate::queue::AUDIT_ENTRIES_MAX;

fn host(text: &str) -> HostName {
    text.parse().unwrap()
}

/// The value, or a word for the refusal.
fn released(store: &Store, scope: ReleaseScope, name: &str, to: &str) -> String {
    match store.release(request(scope, name, to)).now() {
        Ok(release) => {
            assert_eq!((release.name(), release.host()), (&secret(name), &host(to)));
            String::from_utf8(release.expose().to_vec()).unwrap()
        }
        Err(ReleaseError::Unavailable) => "unavailable".to_owned(),
        Err(error) => panic!("{error}"),
    }
}

/// The audit entries after a position, each as JSON.
fn entries(store: &Store, since: u64) -> Vec<String> {
    store.flush().unwrap();
    let records = store.audit_records(since, 100).now().unwrap();
    let entries = records.iter().flat_map(|record| &record.entries);
    entries.map(|entry: &AuditEntry| serde_json::to_string(entry).unwrap()).collect()
}

#[test]
fn a_value_is_released_to_its_exact_hosts_only() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let workspace = default_workspace(&store);
    let scope = ReleaseScope::Workspace(workspace);
    put(&store, VaultId::Workspace(workspace), "a", "the value");
    for to in ["api.example.com", "b.example"] {
        assert_eq!(released(&store, scope, "a", to), "the value");
    }
    for to in ["example.com", "com", "x.api.example.com", "apis.example.com", "api.example.com.evil", "b"] {
        assert_eq!(released(&store, scope, "a", to), "unavailable", "{to}");
    }
    assert_eq!(released(&store, scope, "b", "api.example.com"), "unavailable");
    let second = ReleaseScope::Workspace(create_workspace(&store, "second").id);
    for other in [ReleaseScope::Operator, second] {
        assert_eq!(released(&store, other, "a", "api.example.com"), "unavailable");
    }
}

#[test]
fn an_interns_own_secret_takes_precedence_even_if_it_is_not_bound_to_the_host() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let workspace = default_workspace(&store);
    let intern = create_intern(&store, workspace, "i");
    let scope = ReleaseScope::Intern(intern);
    for name in ["shared", "hidden", "legacy"] {
        put(&store, VaultId::Workspace(workspace), name, "of the workspace");
    }
    assert_eq!(released(&store, scope, "hidden", "b.example"), "of the workspace");
    let own = NewSecret {
        hosts: Hosts::parse(&["own.example"]).unwrap(),
        ..new(VaultId::Intern(intern), "hidden", "own")
    };
    store.put_secret(permit(&store), OPERATOR, own).wait(PATIENCE).unwrap();
    import(&store, VaultId::Intern(intern), "legacy", "old");

    assert_eq!(released(&store, scope, "shared", "b.example"), "of the workspace");
    assert_eq!(released(&store, scope, "hidden", "own.example"), "own");
    assert_eq!(released(&store, scope, "hidden", "b.example"), "unavailable");
    assert_eq!(released(&store, scope, "legacy", "b.example"), "unavailable");
    delete(&store, VaultId::Intern(intern), "hidden").unwrap();
    assert_eq!(released(&store, scope, "hidden", "b.example"), "of the workspace");
    store.delete_intern(OPERATOR, intern).unwrap();
    assert_eq!(released(&store, scope, "shared", "b.example"), "unavailable");
}

#[test]
fn release_if_bound_makes_no_audit_record_for_an_unbound_secret() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    put(&store, VaultId::Operator, "a", "the value");
    import(&store, VaultId::Operator, "legacy", "old");
    let released = |name: &str, to: &str| {
        store.release_if_bound(request(ReleaseScope::Operator, name, to)).now().unwrap()
    };
    let since = newest(&store);
    for (name, to) in [("a", "c.example"), ("legacy", "b.example"), ("none", "b.example")] {
        assert!(released(name, to).is_none(), "{name} to {to}");
    }
    assert_eq!(released("a", "b.example").unwrap().expose(), b"the value");
    let entries = entries(&store, since);
    assert!(entries.len() == 1 && entries[0].contains("secret_released"), "{entries:?}");
}

#[test]
fn every_release_and_refusal_is_audited_with_its_reason() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let vault = VaultId::Operator;
    let fingerprint = put(&store, vault, "a", "canary").fingerprint.unwrap().prefix().to_string();
    import(&store, vault, "legacy", "canary");
    let since = newest(&store);
    for (name, to) in [("a", "b.example"), ("a", "c.example"), ("legacy", "b.example"), ("none", "b.example")]
    {
        released(&store, ReleaseScope::Operator, name, to);
    }
    let entries = entries(&store, since);
    let expected = [
        vec!["secret_released", "b.example", fingerprint.as_str()],
        vec!["release_refused", "c.example", "other_host"],
        vec!["release_refused", "unbound"],
        vec!["release_refused", "unknown"],
    ];
    assert_eq!(entries.len(), expected.len());
    for (entry, words) in entries.iter().zip(expected) {
        for word in words.into_iter().chain(["provider demo", "resp_1", "operator"]) {
            assert!(entry.contains(word), "{word} in {entry}");
        }
        assert!(!entry.contains("canary"));
        let read: AuditEntry = serde_json::from_str(entry).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), *entry);
    }
}

#[test]
fn nothing_is_released_when_it_cannot_be_audited() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    put(&store, VaultId::Operator, "a", "the value");
    // Holds the writer while the queue fills up.
    let (go_on, hold) = std::sync::mpsc::sync_channel::<()>(1);
    let (begun, has_begun) = std::sync::mpsc::sync_channel::<()>(1);
    let wait = move |_: &mut WriteBatch| {
        begun.try_send(()).unwrap_or_default();
        hold.recv().unwrap_or_default();
        Ok(())
    };
    let held = store.enqueue(permit(&store), guarded([], wait));
    has_begun.recv().unwrap();
    for _ in 0..AUDIT_ENTRIES_MAX {
        assert_eq!(released(&store, ReleaseScope::Operator, "a", "b.example"), "the value");
    }
    let release = || store.release(request(ReleaseScope::Operator, "a", "b.example")).now();
    assert!(matches!(release(), Err(ReleaseError::Busy)));
    drop(go_on);
    held.wait(PATIENCE).unwrap();
    store.flush().unwrap();
    assert!(release().is_ok());
    store.close();
    assert!(matches!(release(), Err(ReleaseError::Store(Error::Closed))));
}

#[test]
fn a_recorded_release_is_returned_after_its_audit_record_is_durable() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    put(&store, VaultId::Operator, "a", "the value");
    let since = newest(&store);
    let release =
        |name: &str| store.release_recorded(request(ReleaseScope::Operator, name, "b.example")).now();
    let recorded = release("a").ok().unwrap();
    assert_eq!(recorded.expose(), b"the value");
    // What is durable when it is returned needs no flush to be found.
    let placed = store.placed_audit_records(since, 10).now().unwrap();
    let [(position, record)] = placed.as_slice() else { panic!("{placed:?}") };
    assert_eq!(recorded.audit(), Some(*position));
    assert!(matches!(record.entries[0].action, AuditAction::SecretReleased { .. }), "{record:?}");
    assert!(matches!(release("b"), Err(ReleaseError::Unavailable)));
    assert_eq!(commits_since(&store, since), 2);
    assert_eq!(entries(&store, since).len(), 2);
}

/// Makes a change that commits after a release was decided, and before it is recorded.
fn meanwhile<T>(
    store: &Store,
    change: impl FnOnce() -> Pending<T>,
    then: impl FnOnce(Pending<T>) + Send,
) -> Result<Release, ReleaseError>
where
    T: Send,
{
    let (go_on, hold) = std::sync::mpsc::sync_channel::<()>(1);
    let (begun, has_begun) = std::sync::mpsc::sync_channel::<()>(1);
    let wait = move |_: &mut WriteBatch| {
        begun.try_send(()).unwrap_or_default();
        hold.recv().unwrap_or_default();
        Ok(())
    };
    let held = store.enqueue(permit(store), guarded([], wait));
    has_begun.recv().unwrap();
    let changed = change();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // The change and the record wait behind the one that is held.
            while store.0.queues.first().lengths().0 < 2 {
                std::thread::yield_now();
            }
            drop(go_on);
            held.wait(PATIENCE).unwrap();
            then(changed);
        });
        store.release_recorded(request(ReleaseScope::Operator, "a", "b.example")).now()
    })
}

#[test]
fn what_changes_while_a_release_is_recorded_counts() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    put(&store, VaultId::Operator, "a", "the old value");
    let replace = || store.put_secret(permit(&store), OPERATOR, new(VaultId::Operator, "a", "the new value"));
    let released = meanwhile(&store, replace, |replaced| drop(replaced.wait(PATIENCE).unwrap()));
    assert_eq!(released.ok().unwrap().expose(), b"the new value");

    let delete = || store.delete_secret(permit(&store), OPERATOR, VaultId::Operator, secret("a"));
    let released = meanwhile(&store, delete, |deleted| deleted.wait(PATIENCE).unwrap());
    assert!(matches!(released, Err(ReleaseError::Unavailable)));
    let entries = entries(&store, 0);
    let with = |action: &str| entries.iter().filter(|entry| entry.contains(action)).count();
    // Each decision has a record of its own: one of the old value, two of the new one, one of none.
    assert_eq!((with("secret_released"), with("release_refused")), (3, 1), "{entries:?}");
}
