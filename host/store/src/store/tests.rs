mod audit_log;
mod old_keys;
mod sums;

use std::io::{BufRead, BufReader};
use std::pin::{Pin, pin};
use std::process::{Command, Stdio};
use std::task::{Context, Poll, Waker};

use super::*;
use crate::authentication::AuthenticationError;
use crate::changes::{KeyChange, KeyOwner, NewKey};
use crate::lookup::LookupError;
use crate::records::KeyKind;
use crate::scratch::{Now, ScratchDirectory, broken_audit, create_workspace, go_on, issue_key, name, token};
use crate::spend::SpendLimits;
use crate::token::KeyId;
use crate::usage::{ReservationRefused, UsageKind, UsageOutcome, UsageRow};

const OPERATOR: Actor = Actor::Operator;

fn default_workspace(store: &Store) -> WorkspaceId {
    store.directory().find_workspace("default").unwrap().id
}

fn new_key(owner: KeyOwner) -> NewKey {
    NewKey { owner, name: None, expires_at_ms: None, limits: SpendLimits::default() }
}

fn usage_row(store: &Store, request_id: &str) -> UsageRow {
    let (workspace, key) = (default_workspace(store), "abcdefghijkl".parse().unwrap());
    UsageRow {
        at_ms: 1_700_000_000_000,
        model: "local/demo".to_owned(),
        provider: "demo".to_owned(),
        input_tokens: 1,
        output_tokens: 2,
        cost_pico: 3,
        outcome: UsageOutcome::Completed,
        ..UsageRow::begun(request_id.to_owned(), workspace, key, UsageKind::Responses, false)
    }
}

/// Begins and ends a request with this row.
fn record_usage(store: &Store, row: UsageRow) {
    let outcome = row.outcome;
    store.reserve(row).now().unwrap().settle(outcome);
}

/// Everything in the directory as text, for comparing two states.
fn shown(store: &Store) -> String {
    format!("{:?}", store.directory())
}

#[test]
fn the_first_start_makes_a_workspace_with_its_owner() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let directory = store.directory();
    let [workspace] = directory.workspaces.values().collect::<Vec<_>>()[..] else { panic!("one workspace") };
    assert_eq!(workspace.name.as_str(), "default");
    assert!(workspace.programme && workspace.vault_writes);
    let [owner] = directory.members.values().collect::<Vec<_>>()[..] else { panic!("one member") };
    assert_eq!(
        (owner.name.as_str(), owner.role, owner.workspace),
        ("owner", MemberRole::Admin, workspace.id)
    );
    assert!(!store.has_client_key().now().unwrap());
    assert_eq!(store.status().seq, 1);
}

#[test]
fn calls_that_memory_answers_do_not_suspend() {
    let is_ready = |future: Pin<&mut dyn Future<Output = bool>>| {
        future.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(true)
    };
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let issued = issue_key(&store);
    let token = token(&issued);
    assert!(is_ready(pin!(async { store.authenticate(&token).await.is_ok() })));
    assert!(is_ready(pin!(async { store.find_workspace("default").await.is_ok() })));
    assert!(is_ready(pin!(async { store.balance(default_workspace(&store)).await.is_ok() })));
    assert!(is_ready(pin!(async { store.key_spend(issued.key.id).await.is_ok() })));
    let row = usage_row(&store, "r");
    assert!(is_ready(pin!(async { store.reserve(row).await.unwrap().pledge(1).await.is_ok() })));
}

#[test]
fn every_acknowledged_change_is_there_after_reopening() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let workspace = create_workspace(&store, "second").id;
    let change = WorkspaceChange { programme: Some(true), vault_writes: None };
    assert!(store.set_workspace(OPERATOR, workspace, change).unwrap().programme);
    let member = store
        .create_member(OPERATOR, NewMember { workspace, name: name("ann"), role: MemberRole::Member })
        .unwrap()
        .id;
    assert_eq!(store.set_member_role(OPERATOR, member, MemberRole::Admin).unwrap().role, MemberRole::Admin);
    let new = |text| NewIntern { workspace, name: name(text), created_by: Some(member) };
    let intern = store.create_intern(OPERATOR, new("kept")).unwrap().id;
    let gone = store.create_intern(OPERATOR, new("gone")).unwrap().id;
    store.delete_intern(OPERATOR, gone).unwrap();
    let key = store.issue_key(OPERATOR, new_key(KeyOwner::Intern { workspace, intern })).unwrap();
    let change = KeyChange { name: Some(Some(name("label"))), ..KeyChange::default() };
    assert_eq!(store.set_key(OPERATOR, key.key.id, change).unwrap().name, Some(name("label")));
    let revoked = issue_key(&store).key.id;
    store.revoke_key(OPERATOR, revoked).unwrap();
    let (before, seq) = (shown(&store), store.status().seq);
    store.close();

    let store = scratch.open();
    assert_eq!(shown(&store), before);
    assert_eq!(store.status().seq, seq);
    let principal = store.authenticate(&token(&key)).now().unwrap();
    assert_eq!((principal.key().kind, principal.key().intern), (KeyKind::Intern, Some(intern)));
    assert!(store.directory().interns.get(&gone).is_none());
    assert!(store.directory().keys.get(&revoked).unwrap().key.revoked_at_ms.is_some());
}

#[test]
fn each_kind_of_key_has_its_owner() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let workspace = default_workspace(&store);
    let owner = store.directory().find_member(Some(workspace), "owner").unwrap().id;
    let new = NewIntern { workspace, name: name("i"), created_by: None };
    let intern = store.create_intern(OPERATOR, new).unwrap();
    assert_eq!(intern.created_by, owner);
    let cases = [
        (KeyOwner::Member { workspace, member: None }, KeyKind::Member, Some(owner), None),
        (KeyOwner::Intern { workspace, intern: intern.id }, KeyKind::Intern, None, Some(intern.id)),
        (KeyOwner::Provisioning { workspace }, KeyKind::Provisioning, Some(owner), None),
        (KeyOwner::Unscoped, KeyKind::Unscoped, None, None),
    ];
    for (key_owner, kind, member, intern) in cases {
        let issued = store.issue_key(OPERATOR, new_key(key_owner)).unwrap();
        let principal = store.authenticate(&token(&issued)).now().unwrap();
        let key = principal.key();
        assert_eq!((key.id, key.kind), (issued.key.id, kind));
        assert_eq!(
            (principal.member.as_ref().map(|it| it.id), principal.intern.as_ref().map(|it| it.id)),
            (member, intern)
        );
        let expected = (kind != KeyKind::Unscoped).then_some(workspace);
        assert_eq!(principal.workspace.as_ref().map(|it| it.id), expected);
        assert_eq!(principal.role(), member.map(|_| MemberRole::Admin));
    }
    assert!(store.has_client_key().now().unwrap());
}

#[test]
fn a_revoked_key_is_refused_at_once() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let issued = issue_key(&store);
    assert!(store.authenticate(&token(&issued)).now().is_ok());
    store.revoke_key(OPERATOR, issued.key.id).unwrap();
    let refused = store.authenticate(&token(&issued)).now().unwrap_err();
    assert_eq!(refused, AuthenticationError::Revoked(issued.key.id));

    let again = store.revoke_key(OPERATOR, issued.key.id).unwrap();
    assert!(again.revoked_at_ms.is_some());
    let enable = KeyChange { disabled: Some(false), ..KeyChange::default() };
    assert!(matches!(store.set_key(OPERATOR, issued.key.id, enable), Err(Error::KeyRevoked)));
}

#[test]
fn a_disabled_key_works_again_once_enabled() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let issued = issue_key(&store);
    let id = issued.key.id;
    store.set_key(OPERATOR, id, KeyChange { disabled: Some(true), ..KeyChange::default() }).unwrap();
    assert_eq!(store.authenticate(&token(&issued)).now().unwrap_err(), AuthenticationError::Disabled(id));
    store.set_key(OPERATOR, id, KeyChange { disabled: Some(false), ..KeyChange::default() }).unwrap();
    assert!(store.authenticate(&token(&issued)).now().is_ok());
}

#[test]
fn a_key_is_refused_from_the_moment_it_expires() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let expires_at_ms = Some(scratch.clock.now_ms() + 1_000);
    let new = NewKey { expires_at_ms, ..new_key(KeyOwner::Unscoped) };
    let issued = store.issue_key(OPERATOR, new.clone()).unwrap();
    scratch.clock.advance(Duration::from_millis(999));
    let principal = store.authenticate(&token(&issued)).now().unwrap();
    assert!(store.renewed(&principal).now().unwrap().is_some());
    scratch.clock.advance(Duration::from_millis(1));
    assert!(store.renewed(&principal).now().unwrap().is_none());
    let refused = store.authenticate(&token(&issued)).now().unwrap_err();
    assert_eq!(refused, AuthenticationError::Expired(issued.key.id));
    assert!(matches!(store.issue_key(OPERATOR, new), Err(Error::AlreadyExpired)));
}

#[test]
fn tokens_that_were_never_issued_are_refused() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let issued = issue_key(&store);
    assert_eq!(store.authenticate("cfd_x").now().unwrap_err(), AuthenticationError::Malformed);
    assert_eq!(store.authenticate("").now().unwrap_err(), AuthenticationError::Malformed);
    let stranger = crate::token::Token::random().unwrap();
    let text = String::from_utf8(stranger.to_text().expose().to_vec()).unwrap();
    assert_eq!(store.authenticate(&text).now().unwrap_err(), AuthenticationError::Unknown);
    // The right id with another secret and a valid checksum.
    let forged = crate::token::Token { id: issued.key.id, secret: stranger.secret };
    let text = String::from_utf8(forged.to_text().expose().to_vec()).unwrap();
    assert_eq!(store.authenticate(&text).now().unwrap_err(), AuthenticationError::Unknown);
}

#[test]
fn deleting_an_intern_revokes_its_keys_in_the_same_commit() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let workspace = default_workspace(&store);
    let intern =
        store.create_intern(OPERATOR, NewIntern { workspace, name: name("i"), created_by: None }).unwrap().id;
    let issued = store.issue_key(OPERATOR, new_key(KeyOwner::Intern { workspace, intern })).unwrap();
    let seq = store.status().seq;
    store.delete_intern(OPERATOR, intern).unwrap();
    assert_eq!(store.status().seq, seq + 1);
    let refused = store.authenticate(&token(&issued)).now().unwrap_err();
    assert_eq!(refused, AuthenticationError::Revoked(issued.key.id));
}

#[test]
fn a_new_role_applies_from_the_next_request_on() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let issued = issue_key(&store);
    let owner = issued.key.member.unwrap();
    assert_eq!(store.authenticate(&token(&issued)).now().unwrap().role(), Some(MemberRole::Admin));
    store.set_member_role(OPERATOR, owner, MemberRole::Member).unwrap();
    assert_eq!(store.authenticate(&token(&issued)).now().unwrap().role(), Some(MemberRole::Member));
}

#[test]
fn names_are_unique_in_their_scope_and_ambiguous_across_scopes() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let (first, second) = (default_workspace(&store), create_workspace(&store, "second").id);
    let taken = |error| matches!(error, Error::NameTaken { .. });
    let again = NewWorkspace { name: name("second"), programme: false, vault_writes: false };
    assert!(taken(store.create_workspace(OPERATOR, again).unwrap_err()));
    let member = |workspace| NewMember { workspace, name: name("ann"), role: MemberRole::Member };
    let ann = store.create_member(OPERATOR, member(first)).unwrap();
    assert!(taken(store.create_member(OPERATOR, member(first)).unwrap_err()));
    store.create_member(OPERATOR, member(second)).unwrap();
    let intern = |workspace| NewIntern { workspace, name: name("bot"), created_by: None };
    store.create_intern(OPERATOR, intern(first)).unwrap();
    assert!(taken(store.create_intern(OPERATOR, intern(first)).unwrap_err()));
    store.create_intern(OPERATOR, intern(second)).unwrap();

    let directory = store.directory();
    assert_eq!(**directory.find_member(Some(first), "ann").unwrap(), ann);
    assert_eq!(**directory.find_member(None, &ann.id.to_string()).unwrap(), ann);
    assert!(matches!(directory.find_member(None, "ann"), Err(LookupError::Ambiguous { count: 2, .. })));
    assert!(matches!(directory.find_intern(None, "bot"), Err(LookupError::Ambiguous { count: 2, .. })));
    let elsewhere = directory.find_member(Some(second), &ann.id.to_string());
    assert!(matches!(elsewhere, Err(LookupError::NotFound { .. })));
    assert!(matches!(directory.find_workspace("third"), Err(LookupError::NotFound { .. })));
    let unknown = store.find_key("abc").now();
    assert!(matches!(unknown, Err(Error::Lookup(LookupError::NotFound { .. }))));
}

#[test]
fn owners_of_another_workspace_are_refused_and_leave_no_trace() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let (first, second) = (default_workspace(&store), create_workspace(&store, "second").id);
    let member = store.directory().find_member(Some(first), "owner").unwrap().id;
    let new = NewIntern { workspace: first, name: name("i"), created_by: None };
    let intern = store.create_intern(OPERATOR, new).unwrap().id;
    let (before, seq) = (shown(&store), store.status().seq);
    let key = new_key(KeyOwner::Member { workspace: second, member: Some(member) });
    assert!(matches!(store.issue_key(OPERATOR, key), Err(Error::OtherWorkspace { owner: "member" })));
    let key = new_key(KeyOwner::Intern { workspace: second, intern });
    assert!(matches!(store.issue_key(OPERATOR, key), Err(Error::OtherWorkspace { owner: "intern" })));
    let new = NewIntern { workspace: second, name: name("j"), created_by: Some(member) };
    assert!(matches!(store.create_intern(OPERATOR, new), Err(Error::OtherWorkspace { .. })));
    assert_eq!((shown(&store), store.status().seq), (before, seq));
}

#[test]
fn flushing_nothing_makes_no_commit() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    store.flush().unwrap();
    assert_eq!(store.status().seq, 1);
}

#[test]
fn many_threads_share_commits_and_lose_nothing() {
    const THREADS: usize = 16;
    const EACH: usize = 25;
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let ids: Vec<KeyId> = std::thread::scope(|scope| {
        let issue = || {
            let key = || store.issue_key(OPERATOR, new_key(KeyOwner::Unscoped)).unwrap().key.id;
            (0..EACH).map(|_| key()).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(issue)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let commits = store.status().seq - 1;
    assert!(commits < (THREADS * EACH) as u64, "{commits} commits");
    assert_eq!(broken_audit(&store), None);
    store.close();
    let store = scratch.open();
    assert_eq!(ids.len(), THREADS * EACH);
    assert!(ids.into_iter().all(|id| store.directory().keys.get(&id).is_some()));
}

#[test]
fn after_a_failed_write_nothing_is_written_until_the_next_start() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let issued = issue_key(&store);
    store.close();
    let unwritable = Anchor::from_file(std::fs::File::open(scratch.path("anchor")).unwrap());
    let store = Store::open_with_anchor(scratch.lock(), scratch.options(), unwritable);
    assert!(store.is_writable());

    let new = || NewWorkspace { name: name("second"), programme: false, vault_writes: false };
    let failed = store.create_workspace(OPERATOR, new()).unwrap_err();
    assert!(matches!(failed, Error::WriteFailed));
    assert!(!store.is_writable() && store.status().failed);
    assert!(matches!(store.create_workspace(OPERATOR, new()), Err(Error::NotWritable)));
    assert_eq!(store.reserve(usage_row(&store, "a")).now().unwrap_err(), ReservationRefused::NoRoom);
    // Reads continue with the last acknowledged state.
    assert!(store.authenticate(&token(&issued)).now().is_ok());
    assert!(store.directory().find_workspace("second").is_err());
    store.close();

    // The batch was durable, only its anchor was not written.
    let store = scratch.open();
    assert!(store.directory().find_workspace("second").is_ok());
    assert_eq!(store.status().seq, 3);
}

#[test]
fn one_process_at_a_time_can_open_the_store() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let other = DirectoryLock::acquire(&scratch.path(""));
    assert!(matches!(other, Err(crate::LockError::Held { pid: Some(_) })));
    drop(store);
    assert!(DirectoryLock::acquire(&scratch.path("")).is_ok());
}

const CHILD_VARIABLE: &str = "COFFERDAM_STORE_TEST_DIR";

/// Not a test by itself: the process that the next test starts and kills.
#[test]
fn writes_until_killed_when_asked_to() {
    let Ok(dir) = std::env::var(CHILD_VARIABLE) else { return };
    let lock = DirectoryLock::acquire(Path::new(&dir)).unwrap();
    let root_key = RootKeySource::File(Path::new(&dir).join("root.key"));
    let store = Store::open(
        lock,
        OpenOptions { root_key, previous_root_key: None, accept_rollback: None, clock: Clock::system() },
    )
    .unwrap();
    let issue = || loop {
        let key = store.issue_key(OPERATOR, new_key(KeyOwner::Unscoped)).unwrap().key;
        println!("acknowledged {}", key.id);
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(issue);
        }
    });
}

#[test]
fn acknowledged_changes_survive_a_kill() {
    let scratch = ScratchDirectory::new();
    for answers in [1, 20, 60] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "store::tests::writes_until_killed_when_asked_to"])
            .env(CHILD_VARIABLE, scratch.path(""))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut acknowledged = Vec::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let Some(id) = line.unwrap().split("acknowledged ").nth(1).map(str::to_owned) else { continue };
            acknowledged.push(id);
            if acknowledged.len() == answers {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(acknowledged.len() >= answers);
        let store = scratch.open();
        for id in acknowledged.iter().filter(|id| id.len() == 12) {
            assert!(store.find_key(id).now().is_ok(), "{id}");
        }
        assert_eq!(broken_audit(&store), None);
    }
}
