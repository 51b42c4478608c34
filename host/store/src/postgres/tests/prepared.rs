//! Statements that the server keeps prepared for a lane.

use std::collections::BTreeSet;

use cofferdam_test_postgres::{self as kit, Pooler, Server};

use super::super::connect::DatabaseSession;
use super::super::engine::ReadingRuntime;
use super::super::failure::Failure;
use super::super::place::{ChainEnd, ChainId};
use super::super::transaction::{begin, make_chain, resolve, rollback};
use super::super::{begin as beginning, host::HostId};
use super::{World, database};
use crate::audit::AuditAction;
use crate::state::{Guard, Need};

/// A transaction like that of a lane, with this connection. It is rolled back.
fn transaction(world: &World, session: &DatabaseSession, chain: ChainId) -> Result<(), Failure> {
    let guards = BTreeSet::from([Guard::Store]);
    let needs = BTreeSet::from([Need::Row(crate::rows::Keyspace::Keys, crate::rows::HEADER.to_vec())]);
    world.runtime.block_on(async {
        begin(session, &world.keys, chain, ChainEnd::FIRST, &guards, &needs).await?;
        rollback(session).await
    })
}

/// A connection of a lane, and a new chain.
fn lane(world: &World) -> (DatabaseSession, ChainId) {
    let clock = crate::clock::Clock::system();
    let connects = std::sync::Arc::new(database(&world.address.url()));
    let runtime = ReadingRuntime::new().unwrap();
    let host = beginning::enter(&connects, runtime.handle(), &clock, world.about()).unwrap();
    let (host, chain): (HostId, _) = (host.id(), ChainId::random().unwrap());
    let session = world.runtime.block_on(async {
        let session = connects.connect_lane().await.unwrap();
        make_chain(&session, chain, host).await.unwrap();
        session
    });
    (session, chain)
}

fn plans(world: &World, session: &DatabaseSession) -> (u64, u64) {
    let sql = "SELECT count(*), coalesce(sum(generic_plans), 0) FROM pg_prepared_statements";
    let row = world.runtime.block_on(session.script(sql)).unwrap().remove(0);
    let [statements, plans] = [0, 1].map(|at: usize| row[at].as_deref().unwrap().parse().unwrap());
    (statements, plans)
}

#[test]
fn a_statement_that_a_lane_sends_often_is_planned_once() {
    let Some(world) = World::new("prepared") else { return };
    let (session, chain) = lane(&world);
    for _ in 0..3 {
        transaction(&world, &session, chain).unwrap();
        assert_eq!(plans(&world, &session), (0, 0));
    }
    for round in 1..=5 {
        transaction(&world, &session, chain).unwrap();
        // The chain, the guards twice, and what was needed.
        assert_eq!(plans(&world, &session), (4, 4 * round));
    }
}

#[test]
fn a_transaction_in_another_session_of_the_server_is_given_up() {
    let Some(world) = World::new("moved") else { return };
    let [(mut first, _), (mut second, chain)] = [lane(&world), lane(&world)];
    (0..4).for_each(|_| transaction(&world, &second, chain).unwrap());
    // What a pooler does.
    std::mem::swap(&mut first.client, &mut second.client);
    let failure = transaction(&world, &second, chain).unwrap_err();
    assert!(matches!(failure, Failure::NotPrepared), "{failure}");
    assert!(failure.is_transient() && !failure.keeps_connection());
}

#[test]
fn a_session_of_the_server_that_another_lane_has_used_is_given_up() {
    let Some(world) = World::new("marked") else { return };
    let [(first, chain), (second, _)] = [lane(&world), lane(&world)];
    (0..4).for_each(|_| transaction(&world, &first, chain).unwrap());
    let mark = second.prepared.as_ref().unwrap().set_mark();
    world.runtime.block_on(first.script(&mark)).unwrap();
    let failure = transaction(&world, &first, chain).unwrap_err();
    assert!(matches!(failure, Failure::NotPrepared), "{failure}");
}

#[test]
fn a_plan_that_an_upgrade_of_the_schema_has_made_unusable_is_not_blamed_on_a_change() {
    let Some(world) = World::new("columns") else { return };
    let (session, chain) = lane(&world);
    (0..4).for_each(|_| transaction(&world, &session, chain).unwrap());
    // What no upgrade has done yet.
    world.sql("ALTER TABLE chain ALTER COLUMN sealed_ms TYPE numeric");
    let failure = transaction(&world, &session, chain).unwrap_err();
    assert!(failure.to_string().contains("0A000"), "{failure}");
    assert!(failure.is_transient() && !failure.keeps_connection() && !failure.lacks_prepared());
}

#[test]
fn a_connection_that_has_found_out_about_a_commit_prepares_statements() {
    let Some(world) = World::new("resolved") else { return };
    let (_, chain) = lane(&world);
    let database = database(&world.address.url());
    let (session, end) = world.runtime.block_on(resolve(&database, chain)).unwrap();
    assert_eq!(end, Some(ChainEnd::FIRST));
    assert!(session.prepared.is_some());
}

#[test]
fn a_statement_that_the_server_has_dropped_is_not_blamed_on_a_change() {
    let Some(world) = World::new("dropped") else { return };
    let (session, chain) = lane(&world);
    (0..4).for_each(|_| transaction(&world, &session, chain).unwrap());
    world.runtime.block_on(session.script("DEALLOCATE ALL")).unwrap();
    let failure = transaction(&world, &session, chain).unwrap_err();
    assert!(failure.lacks_prepared() && failure.is_transient() && !failure.keeps_connection(), "{failure}");
}

#[test]
fn a_pooler_between_hosts_and_the_database_loses_and_doubles_nothing() {
    if !kit::installed() {
        return;
    }
    let address = Server::shared().unwrap().database("pooled").unwrap();
    let Some(pooler) = Pooler::start(&address, 12).unwrap() else { return };
    let world = World::on(address);
    let hosts = [0, 1].map(|_| world.host_at(&pooler.database().url()));
    let workspaces = [0, 1].map(|at| hosts[at].create_workspace(&format!("w{at}")).unwrap().id);
    for round in 0..20 {
        std::thread::scope(|scope| {
            for (host, workspace) in hosts.iter().zip(workspaces) {
                scope.spawn(move || host.put(workspace, &format!("s{round}"), "value").unwrap());
            }
        });
    }
    assert!(hosts.iter().all(|host| !host.database.prepares()), "no transaction changed its session");
    drop(hosts);
    assert_eq!(world.verify(), 40);
    let entries = world.audit().into_iter().flat_map(|record| record.entries);
    let stored = entries.filter(|entry| matches!(entry.action, AuditAction::SecretStored { .. }));
    assert_eq!(stored.count(), 40);
}
