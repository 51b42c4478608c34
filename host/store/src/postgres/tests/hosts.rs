//! Two hosts on one database.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use cofferdam_test_postgres::Server;

use super::super::failure::Failure;
use super::super::load::load;
use super::super::place::{ChainEnd, ChainId};
use super::super::transaction::{begin, make_chain, rollback};
use super::stores::until;
use super::{Host, OPERATOR, World, database};
use crate::audit::{AuditAction, AuditEntry};
use crate::changes::{Intent, NewIntern, RowIntent, SettledUsage, WorkspaceChange, guarded};
use crate::directory::NameKey;
use crate::error::Error;
use crate::ids::VaultId;
use crate::loaded::Loaded;
use crate::rows::Keyspace;
use crate::scratch::{name, new_secret};
use crate::state::{Gap, Guard, Need, State as _};
use crate::usage::{UsageKind, UsageRow};

const CLIENTS: usize = 16;

/// Runs a function for each of 16 clients, half of them on each host.
fn clients<T: Send>(hosts: &[Host; 2], run: impl Fn(usize, &Host) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> =
            (0..CLIENTS).map(|client| scope.spawn(move || run(client, &hosts[client % 2]))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn a_name_is_given_once() {
    let Some(world) = World::new("names") else { return };
    let hosts = [world.host(), world.host()];
    for round in 0..5 {
        let text = format!("workspace-{round}");
        let ended = clients(&hosts, |_, host| host.create_workspace(&text));
        assert_eq!(ended.iter().filter(|ended| ended.is_ok()).count(), 1);
        assert!(ended.iter().all(|ended| matches!(ended, Ok(_) | Err(Error::NameTaken { .. }))), "{ended:?}");
    }
    let created = world.audit().into_iter().flat_map(|record| record.entries);
    let created = created.filter(|entry| matches!(entry.action, AuditAction::WorkspaceCreated { .. }));
    assert_eq!(created.count(), 5);
}

#[test]
fn interns_of_one_workspace_have_different_names() {
    let Some(world) = World::new("interns") else { return };
    let hosts = [world.host(), world.host()];
    let workspace = hosts[0].create_workspace("w").unwrap().id;
    let ended = clients(&hosts, |client, host| {
        let intern = NewIntern { workspace, name: name(&format!("bot{}", client / 4)), created_by: None };
        // Declares nothing: what the change lacks is found.
        host.make(Some(workspace), guarded([], move |batch| batch.create_intern(OPERATOR, &intern)))
    });
    assert_eq!(ended.iter().filter(|ended| ended.is_ok()).count(), CLIENTS / 4, "{ended:?}");
    world.audit();
}

#[test]
fn no_change_of_a_vault_is_lost_under_sixteen_clients() {
    let Some(world) = World::new("vaults") else { return };
    let hosts = [world.host(), world.host()];
    let workspace = hosts[0].create_workspace("w").unwrap().id;
    let vault = VaultId::Workspace(workspace);
    // Names with the values that one client put last; each client has two names of its own, and all
    // share one.
    let kept: Mutex<BTreeMap<String, Option<String>>> = Mutex::default();
    let made: usize = clients(&hosts, |client, host| {
        let mut made = 0;
        for round in 0..10 {
            host.put(workspace, "shared", &format!("client {client} round {round}")).unwrap();
            let (text, value) = (format!("own_{client}_{}", round % 2), format!("value {client} {round}"));
            host.put(workspace, &text, &value).unwrap();
            made += 2;
            let mut last = Some(value);
            if round % 3 == 0 {
                host.delete(workspace, &text).unwrap();
                made += 1;
                last = None;
            }
            kept.lock().unwrap().insert(text, last);
        }
        made
    })
    .into_iter()
    .sum();
    let kept = kept.into_inner().unwrap();
    for (text, value) in &kept {
        let name = text.parse().unwrap();
        let found = world.read(|view| {
            let Some(stored) = view.secret(vault, &name)? else { return Ok(None) };
            Ok(Some(view.value(vault, &stored)?))
        });
        assert_eq!(found.as_ref().map(|found| &***found), value.as_ref().map(String::as_bytes), "{text}");
    }
    let head = world.read(|view| view.head(vault)).unwrap();
    assert_eq!(head.version, made as u64, "one version for each acknowledged change");
    assert_eq!(head.row_count as usize, kept.values().flatten().count() + 1);
    assert_eq!(world.verify(), head.row_count);
    let changes = world.audit().into_iter().flat_map(|record| record.entries);
    let changes = changes.filter(|entry| {
        matches!(entry.action, AuditAction::SecretStored { .. } | AuditAction::SecretDeleted { .. })
    });
    assert_eq!(changes.count(), made, "each acknowledged change is recorded once");
}

#[test]
fn a_change_gets_the_rows_and_guards_that_it_did_not_declare() {
    let Some(world) = World::new("lacking") else { return };
    let host = world.host();
    let workspace = host.create_workspace("w").unwrap().id;
    let vault = VaultId::Workspace(workspace);
    host.put(workspace, "a", "value").unwrap();
    // Reads the workspace, its members and the vault, and locks three guards, one after the other.
    let delete = guarded([], move |batch| batch.delete_workspace(OPERATOR, workspace).map(drop));
    host.make(Some(workspace), delete).unwrap();
    assert!(world.read(|view| view.head(vault)).is_none());
    assert_eq!(world.verify(), 0);
    let set = guarded([], move |batch| batch.set_workspace(OPERATOR, workspace, WorkspaceChange::default()));
    let refused = host.make(Some(workspace), set);
    assert!(matches!(refused, Err(Error::Lookup(_))), "{refused:?}");
}

#[test]
fn a_change_that_never_has_enough_is_refused_and_the_lane_goes_on() {
    let Some(world) = World::new("greedy") else { return };
    let host = world.host();
    let endless = guarded([], |_| {
        let id = crate::ids::WorkspaceId::random()?;
        Err::<(), _>(Gap::unguarded(Guard::Workspace(id)))
    });
    let refused = host.make(None, endless);
    assert!(matches!(refused, Err(Error::Busy)), "{refused:?}");
    host.create_workspace("w").unwrap();
}

#[test]
fn a_row_that_was_changed_in_the_database_is_not_believed() {
    let Some(world) = World::new("edited") else { return };
    let host = world.host();
    let workspace = host.create_workspace("w").unwrap().id;
    host.create_workspace("other").unwrap();
    // The columns of one record lead to another.
    world.sql("UPDATE directory SET name = 'x' WHERE name = 'w'");
    world.sql("UPDATE directory SET name = 'w' WHERE name = 'other'");
    let refused = host.create_workspace("w");
    assert!(matches!(refused, Err(Error::Damaged)), "{refused:?}");
    world.sql("UPDATE directory SET body = set_byte(body, 5, 0) WHERE name = 'x'");
    let refused = host.put(workspace, "a", "value");
    assert!(matches!(refused, Err(Error::Damaged)), "{refused:?}");
    host.create_workspace("third").unwrap();
}

#[test]
fn a_damaged_row_concerns_no_name_but_its_own() {
    let Some(world) = World::new("damaged_name") else { return };
    let host = world.host();
    for text in ["broken", "renamed", "whole"] {
        host.create_workspace(text).unwrap();
    }
    world.sql("UPDATE directory SET body = set_byte(body, 5, 0) WHERE name = 'broken'");
    world.sql("UPDATE directory SET name = 'columns' WHERE name = 'renamed'");
    let key = |text: &str| NameKey::Workspace(name(text));
    let names = ["absent", "broken", "columns", "other", "renamed", "whole"];
    let needs = names.iter().map(|text| Need::Named(key(text))).collect();
    let mut loaded: Arc<Loaded> = Arc::default();
    // One question for all of them.
    world.runtime.block_on(load(&world.session, &world.keys, &needs, Arc::make_mut(&mut loaded))).unwrap();
    let ended = names.map(|text| match loaded.named(&key(text)) {
        Ok(found) => found.is_some().to_string(),
        Err(Gap::Failed(Error::Damaged)) => "damaged".to_owned(),
        Err(gap) => panic!("{gap:?}"),
    });
    // The record of the name `renamed` is whole, but its columns do not lead to it: it is not found.
    assert_eq!(ended, ["false", "damaged", "damaged", "false", "damaged", "true"]);
}

#[test]
fn rows_that_no_caller_waits_for_are_committed_with_the_changes_after_them() {
    let Some(world) = World::new("usage") else { return };
    let host = world.host();
    let workspace = host.create_workspace("w").unwrap().id;
    let row = |at: usize| {
        let key = "000000000001".parse().unwrap();
        UsageRow::begun(format!("r{at}"), workspace, key, UsageKind::Responses, false)
    };
    let intent = Intent::of(&row(0), 7);
    let put = guarded([Guard::Account(workspace)], move |batch| batch.put_intent(&intent));
    host.make(Some(workspace), put).unwrap();
    let intents = || world.rows(Keyspace::Keys).iter().filter(|(key, _)| key.first() == Some(&b'N')).count();
    assert_eq!(intents(), 1);
    let queue = host.queues.of(Some(workspace));
    let intent = |at| if at == 0 { RowIntent::Possible } else { RowIntent::None };
    for at in 0..200 {
        queue.push_usage(SettledUsage { row: row(at), intent: intent(at) }).unwrap();
    }
    queue.push_audit(AuditEntry { actor: OPERATOR, action: AuditAction::KeyRotationBegun }).unwrap();
    host.make(Some(workspace), guarded([], |_| Ok(()))).unwrap();
    let found: Vec<String> = world.usage().into_iter().map(|row| row.request_id).collect();
    assert_eq!(found.len(), 200);
    assert_eq!(intents(), 0, "the intent is deleted with the row of its request");
    let entries: Vec<_> = world.audit().into_iter().flat_map(|record| record.entries).collect();
    assert_eq!(
        entries.iter().filter(|entry| matches!(entry.action, AuditAction::KeyRotationBegun)).count(),
        1
    );
}

#[test]
fn a_lane_whose_chain_was_sealed_begins_another() {
    let Some(world) = World::new("sealed") else { return };
    let host = world.host();
    let workspace = host.create_workspace("w").unwrap().id;
    host.put(workspace, "a", "value").unwrap();
    let before = world.sql("SELECT id FROM chain").len();
    world.sql("UPDATE chain SET sealed_ms = 1");
    host.put(workspace, "b", "value").unwrap();
    assert_eq!(world.sql("SELECT id FROM chain").len(), before + 1);
    assert_eq!(world.verify(), 2);
    world.audit();
}

#[test]
fn a_lane_writes_nothing_on_a_chain_that_was_set_back_and_fails_on_one_that_went_on_without_it() {
    let Some(world) = World::new("set_back") else { return };
    let host = world.host();
    let workspace = host.create_workspace("w").unwrap().id;
    host.put(workspace, "a", "value").unwrap();
    let before = world.sql("SELECT id, seq, head FROM chain ORDER BY id");
    world.sql("UPDATE chain SET seq = seq - 1");
    until(|| !host.shared.has_contact());
    let refused = host.put(workspace, "b", "value");
    assert!(matches!(refused, Err(Error::Busy)), "{refused:?}");
    world.sql("UPDATE chain SET seq = seq + 1");
    assert_eq!(world.sql("SELECT id, seq, head FROM chain ORDER BY id"), before);
    until(|| host.shared.has_contact());
    host.put(workspace, "b", "value").unwrap();
    world.sql("UPDATE chain SET seq = seq + 1");
    let refused = host.put(workspace, "c", "value");
    assert!(matches!(refused, Err(Error::NotWritable)), "{refused:?}");
    assert!(host.shared.has_failed());
}

#[test]
fn a_vault_that_is_deleted_while_others_write_to_it_leaves_nothing() {
    let Some(world) = World::new("deleted_vault") else { return };
    let hosts = [world.host(), world.host()];
    let workspace = hosts[0].create_workspace("w").unwrap().id;
    for round in 0..10 {
        let intern = NewIntern { workspace, name: name(&format!("bot{round}")), created_by: None };
        let create =
            guarded([Guard::Workspace(workspace)], move |batch| batch.create_intern(OPERATOR, &intern));
        let intern = hosts[0].make(Some(workspace), create).unwrap().id;
        let vault = VaultId::Intern(intern);
        let guards = [Guard::Vault(vault)];
        // Client 0 deletes the intern; the others wait for the guard that it deletes.
        let ended = clients(&hosts, |client, host| {
            if client == 0 {
                let delete = guarded(guards, move |batch| batch.delete_intern(OPERATOR, intern).map(drop));
                return host.make(Some(workspace), delete);
            }
            let new = new_secret(vault, &format!("s{client}"), "value");
            host.make(
                Some(workspace),
                guarded(guards, move |batch| batch.put_secret(OPERATOR, &new).map(drop)),
            )
        });
        assert!(ended[0].is_ok(), "{ended:?}");
        assert!(ended.iter().all(|ended| matches!(ended, Ok(()) | Err(Error::Lookup(_)))), "{ended:?}");
        assert_eq!(world.verify(), 0, "no secret, no head and no keys without an owner");
    }
    world.audit();
}

#[test]
fn a_guard_that_is_deleted_while_a_transaction_waits_for_it_is_not_taken_for_locked() {
    let Some(world) = World::new("guards") else { return };
    let other = world.host();
    let keys = Arc::clone(&world.keys);
    let (guards, nothing) = ([Guard::Store].into(), [].into());
    world.runtime.block_on(async {
        let chain = ChainId::random().unwrap();
        make_chain(&world.session, chain, other.engine.host_id()).await.unwrap();
        let other = database(&world.address.url()).connect().await.unwrap();
        other.script("BEGIN; SELECT k FROM head WHERE k = '\\x00' FOR UPDATE").await.unwrap();
        let deletes = async {
            let waiting =
                "SELECT count(*) FROM pg_stat_activity WHERE datname = 'guards' AND wait_event_type = 'Lock'";
            Server::shared().unwrap().until(waiting, "1").await.unwrap();
            other.script("DELETE FROM head WHERE k = '\\x00'; COMMIT").await.unwrap();
        };
        let begins = begin(&world.session, &keys, chain, ChainEnd::FIRST, &guards, &nothing);
        let (begun, ()) = tokio::join!(begins, deletes);
        assert!(matches!(begun.err(), Some(Failure::GuardGone)));
        rollback(&world.session).await.unwrap();
        // The next one makes the guard anew.
        begin(&world.session, &keys, chain, ChainEnd::FIRST, &guards, &nothing).await.unwrap();
    });
}
