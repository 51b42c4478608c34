//! Hosts that show no sign of life, and changes that every host has seen.

use std::sync::Arc;

use cofferdam_test_postgres::Proxy;

use super::stores::until;
use super::{World, database};
use crate::clock::Clock;
use crate::directory::NameKey;
use crate::postgres::begin;
use crate::postgres::engine::ReadingRuntime;
use crate::postgres::host::bury;
use crate::scratch::name;

#[test]
fn of_several_hosts_one_ends_a_dead_one() {
    let Some(world) = World::new("dead_once") else { return };
    let runtime = ReadingRuntime::new().unwrap();
    let database = Arc::new(database(&world.address.url()));
    let dead = begin::enter(&database, runtime.handle(), &Clock::system(), world.about()).unwrap().id();
    let is_ended_at = |beat: i64| {
        let session = runtime.handle().block_on(database.connect()).unwrap();
        runtime.handle().block_on(bury(&session, dead, beat)).unwrap()
    };
    assert!(!is_ended_at(0), "its beat has gone on");
    let ended: Vec<bool> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6).map(|_| scope.spawn(|| is_ended_at(1))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(ended.iter().filter(|ended| **ended).count(), 1, "{ended:?}");
    assert_eq!(world.sql("SELECT count(*) FROM host"), [[Some("0".to_owned())]]);
}

#[test]
fn a_host_that_was_taken_for_dead_goes_on_as_another_one_and_has_lost_nothing() {
    let Some(world) = World::new("dead_slept") else { return };
    let proxy = Proxy::start(world.address.port).unwrap();
    let others = [world.host(), world.host()];
    let slept = world.host_at(&world.address.at(proxy.port()).url());
    let workspace = slept.create_workspace("before").unwrap().id;
    slept.put(workspace, "a", "acknowledged").unwrap();
    let was = slept.engine.host_id();
    let is = |sql: &str, wanted: &str| world.sql(sql) == [[Some(wanted.to_owned())]];

    proxy.fall_silent();
    until(|| is(&format!("SELECT count(*) FROM host WHERE encode(id, 'hex') = '{was}'"), "0"));
    let chains = format!("SELECT id, seq, head, sealed_ms FROM chain WHERE host = '{was}' ORDER BY id");
    let sealed = world.sql(&chains);
    assert!(!sealed.is_empty() && sealed.iter().all(|chain| chain[3].is_some()), "{sealed:?}");
    // What changes now is deleted before the host that sleeps could see it.
    others[0].create_workspace("meanwhile").unwrap();
    others[1].put(workspace, "b", "of another host").unwrap();
    until(|| is("SELECT count(*) FROM change", "0"));
    until(|| is("SELECT count(*) FROM chain WHERE sealed_ms IS NOT NULL AND NOT retired", "0"));

    proxy.release();
    until(|| slept.engine.host_id() != was && slept.shared.has_contact());
    let meanwhile = NameKey::Workspace(name("meanwhile"));
    assert!(slept.shared.directory.load().named(&meanwhile).is_some(), "it has read the directory anew");
    slept.put(workspace, "c", "after").unwrap();
    slept.create_workspace("after").unwrap();
    assert_eq!(world.sql(&chains), sealed, "nothing was added to sealed chains");
    assert_eq!(world.verify(), 3);
    assert_eq!(world.audit().len() as u64, 7, "the store, three workspaces, three secrets");
}

#[test]
fn changes_are_kept_until_every_host_has_seen_them() {
    let Some(world) = World::new("changes_kept") else { return };
    let proxy = Proxy::start(world.address.port).unwrap();
    let one = world.host();
    let cut_off = world.host_at(&world.address.at(proxy.port()).url());
    one.create_workspace("first").unwrap();
    let is_empty = || world.sql("SELECT count(*) FROM change") == [[Some("0".to_owned())]];
    until(is_empty);
    proxy.fall_silent();
    one.create_workspace("second").unwrap();
    assert!(!is_empty());
    proxy.release();
    let second = NameKey::Workspace(name("second"));
    until(|| cut_off.shared.directory.load().named(&second).is_some());
    until(is_empty);
}
