//! Groups of changes: how often they wait for the database, and what becomes of them when a part of them
//! cannot be committed.

use std::collections::BTreeSet;
use std::sync::Arc;

use cofferdam_test_postgres::{Fault, Place, Proxy, Rule};

use super::stores::until;
use super::{Host, OPERATOR, PATIENCE, World, is_undone};
use crate::audit::{AuditAction, AuditEntry};
use crate::changes::{NewIntern, NewWorkspace, RowIntent, SettledUsage, WriteBatch, guarded};
use crate::error::{Error, QueueFull};
use crate::ids::{InternId, VaultId, WorkspaceId};
use crate::pending::{self, Pending};
use crate::queue::{AUDIT_ENTRIES_MAX, Rows, WriteQueue, job};
use crate::scratch::{name, new_secret};
use crate::state::{Gap, Guard};
use crate::usage::{UsageKind, UsageRow};

/// A workspace with so many interns, each with a secret.
fn with_interns(host: &Host, text: &str, count: usize) -> WorkspaceId {
    let workspace = host.create_workspace(text).unwrap().id;
    let created: Vec<Pending<InternId>> = (0..count)
        .map(|at| {
            let intern = NewIntern { workspace, name: name(&format!("bot{at}")), created_by: None };
            let create = move |batch: &mut _| create_intern(batch, &intern);
            host.begin(Some(workspace), guarded([Guard::Workspace(workspace)], create))
        })
        .collect();
    let interns: Vec<InternId> = created.into_iter().map(|intern| intern.wait(PATIENCE).unwrap()).collect();
    let puts: Vec<Pending<()>> = interns
        .into_iter()
        .map(|intern| begin_put(host, workspace, VaultId::Intern(intern), "a", "v"))
        .collect();
    puts.into_iter().for_each(|put| put.wait(PATIENCE).unwrap());
    workspace
}

fn create_intern(batch: &mut WriteBatch, new: &NewIntern) -> Result<InternId, Gap> {
    batch.create_intern(OPERATOR, new).map(|intern| intern.id)
}

fn begin_put(host: &Host, workspace: WorkspaceId, vault: VaultId, name: &str, value: &str) -> Pending<()> {
    let new = new_secret(vault, name, value);
    let guards = [Guard::Vault(vault), Guard::Quota(workspace)];
    let put = guarded(guards, move |batch| batch.put_secret(OPERATOR, &new).map(drop));
    host.begin(Some(workspace), put)
}

#[test]
fn the_number_of_round_trips_does_not_depend_on_the_number_of_interns() {
    let Some(world) = World::new("round_trips") else { return };
    let proxy = Proxy::start(world.address.port).unwrap();
    let host = world.host_at(&world.address.at(proxy.port()).url());
    // Statements that are sent often are prepared in a round trip of their own.
    host.database.prepare_no_more();
    // Those of lanes. What only reads never commits.
    let made = || -> u64 {
        let lanes = proxy.connections().into_iter().filter(|tally| tally.commits > 0);
        lanes.map(|tally| tally.round_trips).sum()
    };
    let trips = |run: &dyn Fn()| {
        let before = made();
        run();
        made() - before
    };
    let counts = [3, 50].map(|interns| {
        let attempts = ["a", "b", "c"].map(|attempt| {
            let workspace = with_interns(&host, &format!("w{interns}{attempt}"), interns);
            // Adds up what all interns hold.
            let put = trips(&|| host.put(workspace, "a", "value").unwrap());
            let vault = Guard::Vault(VaultId::Workspace(workspace));
            let guards = [Guard::Store, Guard::Workspace(workspace), vault];
            let delete = trips(&|| {
                let delete = move |batch: &mut WriteBatch| batch.delete_workspace(OPERATOR, workspace);
                let deleted = host.make(Some(workspace), guarded(guards, delete));
                assert_eq!(deleted.unwrap().interns, interns);
            });
            (put, delete)
        });
        // What a lane does by itself in between adds to an attempt and takes nothing away.
        let least = |of: fn(&(u64, u64)) -> u64| attempts.iter().map(of).min().unwrap();
        (least(|it| it.0), least(|it| it.1))
    });
    // Put: begin, the row of the secret, the interns, their heads, rollback for the guard of the first keys,
    // begin, commit. Delete: begin, what the workspace
    // owns, rollback for the guards of the interns' vaults, begin, commit.
    assert_eq!(counts, [(7, 5), (7, 5)]);
    assert_eq!(world.verify(), 0);
    world.audit();
}

/// Begins changes while the lane is busy, so that they become one group, and waits for their answers.
fn in_one_group(
    world: &World,
    proxy: &Proxy,
    host: &Host,
    workspace: WorkspaceId,
    begin: impl FnOnce() -> Vec<Pending<()>>,
) -> Vec<Result<(), Error>> {
    let struck = proxy.struck();
    proxy.add(Rule::new(Place::Commit, Fault::Hold));
    let first = begin_put(host, workspace, VaultId::Workspace(workspace), "first", "value");
    world.runtime.block_on(proxy.until_struck(struck + 1)).unwrap();
    let begun = begin();
    proxy.release();
    first.wait(PATIENCE).unwrap();
    begun.into_iter().map(|pending| pending.wait(PATIENCE)).collect()
}

#[test]
fn a_change_that_can_never_be_committed_fails_alone() {
    let Some(world) = World::new("guilty") else { return };
    let proxy = Proxy::start(world.address.port).unwrap();
    let host = world.host_at(&world.address.at(proxy.port()).url());
    let workspace = host.create_workspace("w").unwrap().id;
    let vault = VaultId::Workspace(workspace);
    world.sql("ALTER TABLE directory ADD CONSTRAINT innocent CHECK (name <> 'guilty')");
    let refused = || {
        let new = NewWorkspace { name: name("guilty"), programme: true, vault_writes: true };
        let create = guarded([Guard::Store], move |batch| batch.create_workspace(OPERATOR, &new).map(drop));
        host.begin(Some(workspace), create)
    };
    let endless = || {
        let lacks = guarded([], |_| Err(Gap::unguarded(Guard::Workspace(WorkspaceId::random()?))));
        host.begin(Some(workspace), lacks)
    };
    for (round, places) in [[3, 11], [0, 1], [4, 15]].into_iter().enumerate() {
        for (kind, guilty) in [&refused as &dyn Fn() -> Pending<()>, &endless].into_iter().enumerate() {
            let queue = host.queues.of(Some(workspace));
            let request = format!("r_{round}_{kind}");
            let row = UsageRow::begun(
                request,
                workspace,
                "000000000001".parse().unwrap(),
                UsageKind::Responses,
                false,
            );
            let ended = in_one_group(&world, &proxy, &host, workspace, || {
                queue.push_usage(SettledUsage { row, intent: RowIntent::None }).unwrap();
                let one = |at: usize| match places.contains(&at) {
                    true => guilty(),
                    // The last one wins.
                    false => begin_put(&host, workspace, vault, "same", &format!("{round} {kind} {at}")),
                };
                (0..16).map(one).collect()
            });
            let failed: Vec<usize> = (0..16).filter(|at| !matches!(ended[*at], Ok(()))).collect();
            assert_eq!(failed, places, "{ended:?}");
            assert!(failed.iter().all(|at| is_undone(&ended[*at])), "{ended:?}");
            let last = (0..16).rev().find(|at| !places.contains(at)).unwrap();
            let value = world.read(|view| {
                let stored = view.secret(vault, &"same".parse().unwrap())?.unwrap();
                view.value(vault, &stored)
            });
            assert_eq!(**value, *format!("{round} {kind} {last}").as_bytes(), "changes keep their order");
        }
    }
    host.engine.close();
    assert_eq!(world.usage().len(), 6, "rows that no caller waits for are there once");
    world.verify();
    world.audit();
}

fn entry(action: AuditAction) -> AuditEntry {
    AuditEntry { actor: OPERATOR, action }
}

#[test]
fn a_row_that_is_older_than_a_change_is_never_committed_after_it() {
    let Some(world) = World::new("row_order") else { return };
    let proxy = Proxy::start(world.address.port).unwrap();
    let host = world.host_at(&world.address.at(proxy.port()).url());
    let workspace = host.create_workspace("w").unwrap().id;
    host.put(workspace, "a", "value").unwrap();
    let queue = host.queues.of(Some(workspace));
    proxy.refuse(true);
    proxy.cut();
    queue.push_audit(entry(AuditAction::KeyRotationBegun)).unwrap();
    // With this answer, the lane has the entry and could not commit it.
    assert!(is_undone(&host.put(workspace, "b", "value")));
    proxy.refuse(false);
    let id = "0011223344556677".parse().unwrap();
    queue.push_audit(entry(AuditAction::RecoveryKeyMade { id })).unwrap();
    host.put(workspace, "c", "value").unwrap();
    let row = |wanted: fn(&AuditAction) -> bool| {
        let found = world
            .audit()
            .into_iter()
            .filter(|record| record.entries.iter().any(|entry| wanted(&entry.action)));
        found.map(|record| record.seq).max().unwrap()
    };
    let change =
        row(|action| matches!(action, AuditAction::SecretStored { name, .. } if name.as_str() == "c"));
    assert!(row(|action| matches!(action, AuditAction::RecoveryKeyMade { .. })) <= change);
    assert!(row(|action| matches!(action, AuditAction::KeyRotationBegun)) <= change);
}

#[test]
fn rows_that_a_lane_could_not_commit_count_against_the_limits() {
    let queue = WriteQueue::default();
    let mut kept = Rows::default();
    let push = || queue.push_audit(entry(AuditAction::KeyRotationBegun));
    for _ in 0..3 {
        // Nothing of it is committed.
        while push().is_ok() {}
        queue.take_more_rows(&mut kept);
        assert_eq!(kept.audit.len(), AUDIT_ENTRIES_MAX);
    }
    assert_eq!(push(), Err(QueueFull));
    let parts = queue.parts();
    assert!(parts.iter().any(|part| part.name == "audit" && part.length == part.max), "{parts:?}");
    queue.rows_committed();
    assert_eq!(push(), Ok(()));
}

#[test]
fn when_one_lane_fails_no_other_takes_a_change_and_their_rows_are_committed() {
    let Some(world) = World::new("one_lane") else { return };
    let host = world.host();
    let lane = |workspace: Option<WorkspaceId>| Arc::as_ptr(host.queues.of(workspace));
    let mut workspaces = Vec::new();
    let mut lanes = BTreeSet::from([lane(None)]);
    for at in 0.. {
        let id = host.create_workspace(&format!("w{at}")).unwrap().id;
        if lanes.insert(lane(Some(id))) {
            workspaces.push(id);
        }
        if workspaces.len() == 2 {
            break;
        }
    }
    let [broken, whole] = workspaces[..] else { panic!("{workspaces:?}") };
    host.put(whole, "a", "value").unwrap();
    let chains = || -> BTreeSet<_> {
        world.sql("SELECT encode(id, 'hex') FROM chain").concat().into_iter().flatten().collect()
    };
    let before = chains();
    host.put(broken, "a", "value").unwrap();
    let chain = chains().difference(&before).next().unwrap().clone();
    let queue = host.queues.of(Some(whole));
    let permit = pending::wait(queue.queue_permit(), PATIENCE).unwrap().unwrap();
    world.sql(&format!("UPDATE chain SET seq = seq + 1 WHERE id = decode('{chain}', 'hex')"));
    let refused = host.put(broken, "b", "value");
    assert!(matches!(refused, Err(Error::NotWritable)), "{refused:?}");
    assert!(host.shared.has_failed());
    // No lane gives places. The answer can come a moment before the last ones are taken back.
    until(|| pending::wait(host.queues.queue_permit(), PATIENCE).unwrap().is_err());

    let row =
        UsageRow::begun("r".to_owned(), whole, "000000000001".parse().unwrap(), UsageKind::Responses, false);
    queue.push_usage(SettledUsage { row, intent: RowIntent::None }).unwrap();
    let (answer, pending) = Pending::new(Arc::clone(&host.shared));
    let new = new_secret(VaultId::Workspace(whole), "b", "value");
    let put = guarded([Guard::Vault(new.vault)], move |batch| batch.put_secret(OPERATOR, &new).map(drop));
    queue.push(permit, job(put, answer));
    let refused = pending.wait(PATIENCE);
    assert!(matches!(refused, Err(Error::NotWritable)), "{refused:?}");
    host.engine.close();
    assert!(host.shared.has_failed(), "the end of the other lanes does not hide it");
    assert_eq!(world.usage().len(), 1);
    assert!(world.read(|view| view.secret(VaultId::Workspace(whole), &"b".parse().unwrap())).is_none());
}
