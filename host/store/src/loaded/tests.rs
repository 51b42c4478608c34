use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use super::trial::{Lacking, SEED, load};
use super::*;
use crate::audit::{Actor, AuditAction};
use crate::changes::{
    KeyChange, KeyOwner, NewIntern, NewKey, NewMember, NewWorkspace, WorkspaceChange, guarded,
};
use crate::fjall::Database;
use crate::ids::{MemberId, VaultId, WorkspaceId};
use crate::records::MemberRole;
use crate::rows;
use crate::scratch::{Now, ScratchDirectory, go_on, issue_key, name, put};
use crate::spend::SpendLimits;
use crate::state::{Guard, Missing, all, both};
use crate::store::Store;

const OPERATOR: Actor = Actor::Operator;

/// Runs tests of this crate again with their stores on trial.
fn on_loaded_rows(tests: &[&str]) {
    // The child process has the variable.
    if std::env::var_os(SEED).is_some() {
        return;
    }
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    println!("{SEED}={seed}");
    let mut run = Command::new(std::env::current_exe().unwrap());
    let run = run.args(tests).env(SEED, seed.to_string()).output().unwrap();
    let shown = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{SEED}={seed}\n{shown}{}", String::from_utf8_lossy(&run.stderr));
    assert!(shown.contains("test result: ok") && !shown.contains("running 0 tests"), "{shown}");
}

#[test]
fn the_tests_of_records_keys_and_money_pass_on_loaded_rows() {
    on_loaded_rows(&["store::tests", "ledger::"]);
}

#[test]
fn the_tests_of_secrets_pass_on_loaded_rows() {
    // The test left out fills groups of 8 MiB: applied again and again without optimisation, they take
    // longer than it waits.
    on_loaded_rows(&["store::secrets", "--skip", "groups_are_bounded_by_bytes"]);
}

#[test]
fn the_tests_of_rotations_backups_and_starts_pass_on_loaded_rows() {
    on_loaded_rows(&["store::key_records", "store::vault_keys", "backup::", "open::"]);
}

/// A store whose changes get what they declare, its workspace `default`, and what they lacked.
fn strict() -> (ScratchDirectory, Store, WorkspaceId, Lacking) {
    let scratch = ScratchDirectory::new();
    let (store, lacking) = strictly(|| scratch.open());
    let workspace = store.find_workspace("default").now().unwrap().id;
    taken(&lacking);
    (scratch, store, workspace, lacking)
}

/// The guards among what changes lacked.
fn guards(lacking: &Lacking) -> Vec<Guard> {
    let guard = |lack| match lack {
        Lack::Guard(guard) => Some(guard),
        Lack::Row(_) => None,
    };
    taken(lacking).into_iter().filter_map(guard).collect()
}

fn owner(store: &Store, workspace: WorkspaceId) -> MemberId {
    store.find_member(Some(workspace), "owner").now().unwrap().id
}

#[test]
fn changes_declare_the_guards_of_what_they_name() {
    let (_scratch, store, workspace, lacking) = strict();
    let new = NewWorkspace { name: name("second"), programme: false, vault_writes: true };
    let second = store.create_workspace(OPERATOR, new).unwrap().id;
    store.set_workspace(OPERATOR, second, WorkspaceChange::default()).unwrap();
    let ann = NewMember { workspace: second, name: name("ann"), role: MemberRole::Member };
    store.create_member(OPERATOR, ann).unwrap();
    let intern = NewIntern { workspace, name: name("bot"), created_by: None };
    let intern = store.create_intern(OPERATOR, intern).unwrap().id;
    for key_owner in [KeyOwner::Intern { workspace, intern }, KeyOwner::Unscoped] {
        let new =
            NewKey { owner: key_owner, name: None, expires_at_ms: None, limits: SpendLimits::default() };
        store.issue_key(OPERATOR, new).unwrap();
    }
    store.add_credit(OPERATOR, second, 5).unwrap();
    store.set_unlimited(OPERATOR, second).unwrap();
    assert_eq!(guards(&lacking), []);
    let vaults = [VaultId::Operator, VaultId::Workspace(workspace), VaultId::Intern(intern)];
    for vault in vaults {
        put(&store, vault, "a", "value");
    }
    // The first secret of a vault makes its keys, which others do not.
    assert_eq!(guards(&lacking), vaults.map(|_| Guard::Header));
    let patience = std::time::Duration::from_secs(60);
    let permit = || store.queue_permit_within(patience).unwrap();
    let names = vec!["a".parse().unwrap()];
    let copy = crate::pending::wait(store.copy_permit(workspace), patience).unwrap().unwrap();
    store.copy_secrets(copy, OPERATOR, intern, names).wait(patience).unwrap();
    store.delete_secret(permit(), OPERATOR, VaultId::Operator, "a".parse().unwrap()).wait(patience).unwrap();
    store.rotate_vault_keys(&mut go_on).unwrap();
    store.new_recovery_key(&mut go_on).unwrap();
    store.drop_old_totals().unwrap();
    store.delete_workspace(OPERATOR, second).unwrap();
    assert_eq!(guards(&lacking), []);
}

#[test]
fn a_change_that_names_only_an_id_gets_the_guard_of_its_workspace() {
    let (_scratch, store, workspace, lacking) = strict();
    let key = issue_key(&store).key.id;
    let member = owner(&store, workspace);
    let intern = NewIntern { workspace, name: name("bot"), created_by: None };
    let intern = store.create_intern(OPERATOR, intern).unwrap().id;
    assert_eq!(guards(&lacking), []);
    store.set_key(OPERATOR, key, KeyChange::default()).unwrap();
    assert_eq!(guards(&lacking), [Guard::Workspace(workspace)]);
    store.revoke_key(OPERATOR, key).unwrap();
    assert_eq!(guards(&lacking), [Guard::Workspace(workspace)]);
    store.set_member_role(OPERATOR, member, MemberRole::Member).unwrap();
    assert_eq!(guards(&lacking), [Guard::Workspace(workspace)]);
    store.delete_intern(OPERATOR, intern).unwrap();
    assert_eq!(guards(&lacking), [Guard::Workspace(workspace)]);
}

#[test]
fn frequent_changes_declare_all_that_they_read() {
    let (_scratch, store, workspace, lacking) = strict();
    let vault = VaultId::Workspace(workspace);
    // The first write to a workspace adds up what its interns hold.
    put(&store, vault, "a", "value");
    taken(&lacking);
    put(&store, vault, "a", "another");
    put(&store, vault, "b", "value");
    let key = NewKey {
        owner: KeyOwner::Member { workspace, member: Some(owner(&store, workspace)) },
        name: None,
        expires_at_ms: None,
        limits: SpendLimits::default(),
    };
    let key = store.issue_key(OPERATOR, key).unwrap().key;
    let lacks = taken(&lacking);
    let member = RecordId::Member(key.member.unwrap()).row_key();
    assert!(
        matches!(&lacks[..], [Lack::Row(Need::Row(Keyspace::Keys, row))] if *row == member),
        "only the row of the member, which a key seldom names: {lacks:?}"
    );
}

#[test]
fn a_change_that_declares_too_little_is_found_and_still_made() {
    let (scratch, store, workspace, lacking) = strict();
    let key = rows::workspace_key(workspace);
    // Reads a row that it did not declare, and writes one without the guard.
    let broken = guarded([], move |batch| {
        let row = batch.set_workspace(OPERATOR, workspace, WorkspaceChange::default())?;
        batch.audit(OPERATOR, AuditAction::KeyRotationBegun);
        batch.put_row(Guard::Store, b"Dtest".to_vec(), &row.name)
    });
    store.make(broken).unwrap();
    let lacks = taken(&lacking);
    let missing = Need::Row(Keyspace::Keys, key);
    assert!(
        matches!(
            &lacks[..],
            [Lack::Row(need), Lack::Guard(Guard::Workspace(of)), Lack::Guard(Guard::Store)]
                if *need == missing && *of == workspace
        ),
        "{lacks:?}"
    );
    // Applied four times, it is in the audit log once.
    let records = store.audit_records(1, 10).now().unwrap();
    assert_eq!(records.iter().map(|record| record.entries.len()).collect::<Vec<_>>(), [2]);
    store.close();
    let database = Database::open(&scratch.path("store")).unwrap();
    assert!(database.keys.get(b"Dtest").unwrap().is_some());
}

#[test]
fn what_was_loaded_is_answered_and_everything_else_is_missing() {
    let (_scratch, store, workspace, _) = strict();
    let whole = store.whole_state();
    let (here, elsewhere) =
        (rows::workspace_key(workspace), rows::workspace_key(WorkspaceId::random().unwrap()));
    let need = |key: &Vec<u8>| Need::Row(Keyspace::Keys, key.clone());
    let mut loaded: Arc<Loaded> = Arc::default();
    let missing =
        |loaded: &Arc<Loaded>, key: &Vec<u8>| lacks(loaded.row(Keyspace::Keys, key).map(drop), &need(key));
    assert!(missing(&loaded, &here) && missing(&loaded, &elsewhere));
    load(Arc::make_mut(&mut loaded), &*whole, need(&here));
    assert!(loaded.row(Keyspace::Keys, &here).unwrap().is_some() && missing(&loaded, &elsewhere));
    load(Arc::make_mut(&mut loaded), &*whole, need(&elsewhere));
    assert!(loaded.row(Keyspace::Keys, &elsewhere).unwrap().is_none(), "known to be absent");
    let range = RowRange::all(Keyspace::Keys).from(*b"w").before(*b"x");
    assert!(lacks(loaded.range(&range).map(drop), &Need::Range(range.clone())));
    load(Arc::make_mut(&mut loaded), &*whole, Need::Range(range.clone()));
    assert_eq!(loaded.range(&range).unwrap().count(), 1);
    let fewer = range.limit(5);
    assert!(lacks(loaded.range(&fewer).map(drop), &Need::Range(fewer.clone())));
}

/// Whether an answer is missing, and nothing else.
fn lacks(answer: Result<(), Gap>, need: &Need) -> bool {
    let missing = Missing { needs: [need.clone()].into(), ..Missing::default() };
    matches!(answer, Err(Gap::Missing(found)) if found == missing)
}

#[test]
fn independent_questions_report_together_what_they_lack() {
    let need = |key: u8| Need::Row(Keyspace::Keys, vec![key]);
    let (missing, guard) = (|key| Err(Gap::unanswered(need(key))), Guard::Store);
    let failed = || Err(Gap::Failed(Error::Damaged));
    assert_eq!(all([Ok(1), Ok(2)]).unwrap(), [1, 2]);
    let lacking = all([Ok(1), missing(1), Ok(2), Err(Gap::unguarded(guard)), missing(2)]);
    let expected = Missing { needs: [need(1), need(2)].into(), guards: [guard].into() };
    assert!(matches!(lacking, Err(Gap::Missing(found)) if found == expected));
    // What an earlier question lacks may make it fail first.
    let expected = Missing { needs: [need(1)].into(), ..Missing::default() };
    assert!(matches!(all([missing(1), failed(), missing(2)]), Err(Gap::Missing(found)) if found == expected));
    assert!(matches!(all([Ok(1), failed(), missing(1)]), Err(Gap::Failed(Error::Damaged))));
    let lacking = both(missing(1).map(|_: u8| ()), Err::<(), _>(Gap::unguarded(guard)));
    let expected = Missing { needs: [need(1)].into(), guards: [guard].into() };
    assert!(matches!(lacking, Err(Gap::Missing(found)) if found == expected));
    assert!(matches!(both(missing(1).map(|_: u8| ()), failed().map(|_: u8| ())), Err(Gap::Missing(_))));
    assert!(matches!(both(failed().map(|_: u8| ()), missing(1).map(|_: u8| ())), Err(Gap::Failed(_))));
}
