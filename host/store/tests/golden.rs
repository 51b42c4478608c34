//! Stores written by earlier versions can be opened and still have their content. Each was made
//! with the example `golden` of its version.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs::Permissions;
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use cofferdam_store::{
    Actor, BoundSecret, Clock, DirectoryLock, KeyKind, OpenOptions, Purpose, Release, ReleaseError,
    ReleaseRequest, ReleaseScope, RootKeySource, Store, VaultId,
};

/// Copies a fixture to a writable place. git keeps neither empty folders, which `open` creates, nor
/// the permissions that the key file needs.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), &target).unwrap();
            std::fs::set_permissions(&target, Permissions::from_mode(0o600)).unwrap();
        }
    }
}

fn open(version: &str, folder: &Path) -> Store {
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(version), folder);
    for keyspace in std::fs::read_dir(folder.join("store/keyspaces")).unwrap() {
        let keyspace = keyspace.unwrap().path();
        std::fs::create_dir_all(keyspace.join("tables")).unwrap();
        std::fs::create_dir_all(keyspace.join("blobs")).unwrap();
    }
    let root_key = RootKeySource::File(folder.join("root.key"));
    let options =
        OpenOptions { root_key, previous_root_key: None, accept_rollback: None, clock: Clock::manual() };
    Store::open(DirectoryLock::acquire(folder).unwrap(), options).unwrap()
}

async fn release(store: &Store, scope: ReleaseScope, name: &str) -> Result<Release, ReleaseError> {
    let secret = BoundSecret { name: name.parse().unwrap(), host: "b.example".parse().unwrap() };
    let purpose = Purpose { used_by: "test".to_owned(), request_id: "r".to_owned() };
    store.release(ReleaseRequest { actor: Actor::System, scope, secret, purpose }).await
}

async fn value(store: &Store, scope: ReleaseScope, name: &str) -> String {
    let release = release(store, scope, name).await.ok().unwrap();
    String::from_utf8(release.expose().to_vec()).unwrap()
}

#[tokio::test]
async fn the_store_of_version_1_opens() {
    let folder = tempfile::tempdir().unwrap();
    let store = open("v1", folder.path());
    let workspace = store.find_workspace("default").await.unwrap().id;
    let intern = store.find_intern(Some(workspace), "golden").await.unwrap().id;

    let page = store.list_secrets(VaultId::Workspace(workspace), 0, 100).await.unwrap();
    let shown: Vec<_> = page.entries.iter().map(|it| (it.name.as_str(), it.hosts.is_some())).collect();
    assert_eq!(shown, [("golden", true), ("legacy", false), ("token", true)]);
    let [golden, legacy, _] = &page.entries[..] else { panic!("three secrets") };
    assert_eq!((golden.created_at_ms, legacy.created_at_ms), (1_700_000_000_000, 1_600_000_000_000));
    let (of_workspace, of_intern) = (ReleaseScope::Workspace(workspace), ReleaseScope::Intern(intern));
    assert_eq!(value(&store, of_workspace, "golden").await, "a value of the workspace");
    assert_eq!(value(&store, of_intern, "golden").await, "a value of the workspace");
    assert_eq!(value(&store, of_intern, "own").await, "a value of the intern");
    assert_eq!(value(&store, ReleaseScope::Operator, "provider").await, "a value of the operator");
    for name in ["legacy", "deleted"] {
        let refused = release(&store, of_workspace, name).await;
        assert!(matches!(refused, Err(ReleaseError::Unavailable)), "{name}");
    }
    let principal = store.authenticate(&value(&store, of_workspace, "token").await).await.unwrap();
    assert_eq!((principal.key().kind, principal.key().intern), (KeyKind::Intern, Some(intern)));

    let found = store.verify(&mut |_, _, _| ControlFlow::Continue(())).unwrap();
    assert_eq!(found.problems, Vec::<String>::new());
    assert_eq!((found.vaults, found.secrets), (3, 6));
}
