//! The largest values, groups of them, legacy secrets, torn batches, and reads during writes.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::scratch::Over;

/// 65,536 characters of four bytes each.
fn largest() -> String {
    "\u{1F600}".repeat(65_536)
}

fn value_of(store: &Store, scope: ReleaseScope, name: &str) -> Vec<u8> {
    store.release(request(scope, name, "b.example")).now().ok().unwrap().expose().to_vec()
}

#[test]
fn groups_are_bounded_by_bytes_and_a_commit_is_whole() {
    const SECRETS: usize = 34;
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let workspace = default_workspace(&store);
    let intern = create_intern(&store, workspace, "i");
    let since = newest(&store);
    let names: Vec<String> = (0..SECRETS).map(|number| format!("n{number}")).collect();
    let pending: Vec<_> = names
        .iter()
        .map(|name| {
            store.put_secret(permit(&store), OPERATOR, new(VaultId::Workspace(workspace), name, &largest()))
        })
        .collect();
    for pending in pending {
        pending.wait(PATIENCE).unwrap();
    }
    // 8 MiB are enough for 32 of the largest values. The next commit has the rest.
    assert!(commits_since(&store, since) >= 2);
    let since = newest(&store);
    copy(&store, workspace, intern, &["n0", "n1", "n33"]).unwrap();
    assert_eq!(commits_since(&store, since), 1);
    store.close();
    let store = scratch.open();
    let page = store.list_secrets(VaultId::Workspace(workspace), 0, 100).now().unwrap();
    assert_eq!(page.entries.len(), SECRETS);
    assert_eq!(value_of(&store, ReleaseScope::Intern(intern), "n33"), largest().as_bytes());
}

#[test]
fn a_legacy_secret_can_be_listed_and_replaced_but_not_deleted_or_copied() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let workspace = default_workspace(&store);
    let (vault, intern) = (VaultId::Workspace(workspace), create_intern(&store, workspace, "i"));
    assert!(import(&store, vault, "old", "one"));
    put(&store, vault, "new", "two");
    assert!(!import(&store, vault, "new", "older"), "what was stored since counts");
    let page = store.list_secrets(vault, 0, 100).now().unwrap();
    assert_eq!(names(&page), ["new", "old"]);
    let old = &page.entries[1];
    assert_eq!((&old.hosts, &old.fingerprint), (&None, &None));
    assert!(matches!(delete(&store, vault, "old"), Err(Error::NoSuchSecret)));
    // A missing secret is reported before one without hosts, and nothing is copied.
    assert!(matches!(copy(&store, workspace, intern, &["old", "none"]), Err(Error::NoSuchSecret)));
    assert!(matches!(copy(&store, workspace, intern, &["new", "old"]), Err(Error::Unbound)));
    assert!(store.list_secrets(VaultId::Intern(intern), 0, 1).now().unwrap().entries.is_empty());
    assert!(verify_vaults(&store).findings.is_empty());

    let date = old.created_at_ms;
    let replaced = put(&store, vault, "old", "three");
    assert!(replaced.hosts.is_some() && replaced.fingerprint.is_some());
    assert_eq!(replaced.created_at_ms, date);
    delete(&store, vault, "old").unwrap();
    assert_eq!(names(&store.list_secrets(vault, 0, 100).now().unwrap()), ["new"]);
}

#[test]
fn changes_of_a_vault_without_an_owner_are_refused() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let (workspace, intern) = (WorkspaceId::from_bytes([7; 16]), InternId::from_bytes([7; 16]));
    let since = newest(&store);
    for vault in [VaultId::Workspace(workspace), VaultId::Intern(intern)] {
        let put = store.put_secret(permit(&store), OPERATOR, new(vault, "a", "x")).wait(PATIENCE);
        assert!(matches!(put, Err(Error::Lookup(_))));
        assert!(matches!(delete(&store, vault, "a"), Err(Error::Lookup(_))));
    }
    // A workspace without a vault has an empty listing. An intern may have been deleted since its
    // caller looked it up, which is an error.
    assert!(store.list_secrets(VaultId::Workspace(workspace), 0, 10).now().unwrap().entries.is_empty());
    assert!(matches!(store.list_secrets(VaultId::Intern(intern), 0, 10).now(), Err(Error::Lookup(_))));
    assert!(matches!(copy(&store, default_workspace(&store), intern, &["a"]), Err(Error::Lookup(_))));
    assert_eq!(commits_since(&store, since), 0, "refusals leave nothing to write");
}

#[test]
fn a_closed_store_answers_every_waiting_caller() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let (vault, late) = (VaultId::Workspace(default_workspace(&store)), permit(&store));
    let waiting: Vec<_> = (0..20)
        .map(|n| store.put_secret(permit(&store), OPERATOR, new(vault, &format!("n{n}"), "x")))
        .collect();
    store.close();
    for pending in waiting {
        pending.wait(PATIENCE).unwrap();
    }
    assert!(matches!(
        store.put_secret(late, OPERATOR, new(vault, "a", "x")).wait(PATIENCE),
        Err(Error::Closed)
    ));
    assert!(matches!(store.queue_permit_within(PATIENCE), Err(Error::Closed)));
    assert!(matches!(store.list_secrets(vault, 0, 1).now(), Err(Error::Closed)));
    assert_eq!(scratch.open().list_secrets(vault, 0, 100).now().unwrap().entries.len(), 20);
}

/// Length of the journal's content.
fn content_end(journal: &std::path::Path) -> usize {
    std::fs::read(journal).unwrap().iter().rposition(|byte| *byte != 0).unwrap() + 1
}

#[test]
fn a_torn_batch_of_secrets_keeps_every_acknowledged_one() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let vault = VaultId::Workspace(default_workspace(&store));
    put(&store, vault, "acknowledged", "one");
    store.close();
    let journal = scratch.path("store/0.jnl");
    let (before, anchor) = (content_end(&journal), std::fs::read(scratch.path("anchor")).unwrap());
    let store = scratch.open();
    put(&store, vault, "torn", &"x".repeat(30_000));
    store.close();
    let (after, whole) = (content_end(&journal), std::fs::read(&journal).unwrap());
    // The power failed before the anchor was written, with one page of the batch not on the disk.
    let first_page = before.div_ceil(4096);
    for page in first_page..after / 4096 {
        std::fs::write(&journal, &whole[..after]).unwrap();
        std::fs::write(scratch.path("anchor"), &anchor).unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&journal).unwrap();
        file.write_all_at(&[0; 4096], page as u64 * 4096).unwrap();
        file.set_len(whole.len() as u64).unwrap();
        let store = scratch.open();
        assert_eq!(names(&store.list_secrets(vault, 0, 10).now().unwrap()), ["acknowledged"], "page {page}");
        assert!(verify_vaults(&store).findings.is_empty());
        put(&store, vault, "next", "two");
        store.close();
    }
}

#[test]
fn readers_see_whole_commits_while_the_store_writes() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let workspace = default_workspace(&store);
    let (vault, intern) = (VaultId::Workspace(workspace), create_intern(&store, workspace, "i"));
    put(&store, vault, "a", "0");
    put(&store, vault, "b", "0");
    copy(&store, workspace, intern, &["a", "b"]).unwrap();
    let done = AtomicBool::new(false);
    let look = || {
        // Both are copied in one commit, so a reader sees both or neither.
        let page = store.list_secrets(VaultId::Intern(intern), 0, 10).now().unwrap();
        let [a, b] = &page.entries[..] else { panic!("{page:?}") };
        assert_eq!(a.fingerprint, b.fingerprint);
        assert_eq!(store.effective_secrets(intern, 0, 10).now().unwrap().entries.len(), 2);
        match store.release(request(ReleaseScope::Intern(intern), "a", "b.example")).now() {
            Ok(_) | Err(ReleaseError::Busy) => {}
            Err(error) => panic!("{error}"),
        }
    };
    std::thread::scope(|scope| {
        let look_on = || std::iter::repeat_with(&look).take_while(|()| !done.load(Ordering::Relaxed)).count();
        scope.spawn(look_on);
        scope.spawn(look_on);
        let end = Over(&done);
        for round in 1..=60 {
            let value = round.to_string();
            let pending =
                ["a", "b"].map(|name| store.put_secret(permit(&store), OPERATOR, new(vault, name, &value)));
            pending.into_iter().for_each(|pending| drop(pending.wait(PATIENCE).unwrap()));
            copy(&store, workspace, intern, &["a", "b"]).unwrap();
        }
        drop(end);
    });
    assert!(verify_vaults(&store).findings.is_empty());
}

/// The result of reading a page when the time limit expires.
async fn read_too_late(
    store: &Store,
    read: impl FnOnce(&Store) -> Result<(), Error> + Send + 'static,
) -> Result<(), Error> {
    // Advanced by hand: a paused clock does not advance by itself while a blocking thread runs.
    tokio::join!(store.read_page(read), tokio::time::advance(STEP_TIME)).0
}

#[tokio::test(start_paused = true)]
async fn hanging_reads_keep_their_permits_until_they_end() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let permits = Arc::clone(&store.0.page_reads);
    let _others = permits.acquire_many(PAGE_READS_MAX as u32 - 1).await.unwrap();
    let (go_on, wait) = std::sync::mpsc::sync_channel(1);
    let hung = read_too_late(&store, move |_| wait.recv().map_err(|_| Error::Closed)).await;
    assert!(matches!(hung, Err(Error::TimedOut)));
    let second = read_too_late(&store, |_| Ok(())).await;
    assert!(matches!(second, Err(Error::TimedOut)), "it has found a place");
    go_on.send(()).unwrap();
    drop(permits.acquire().await.unwrap());
    assert!(store.read_page(|_| Ok(())).await.is_ok());
}
