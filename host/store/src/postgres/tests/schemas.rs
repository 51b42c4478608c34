//! Migrations.

use std::sync::Arc;

use cofferdam_test_postgres::{self as kit, Server};

use super::super::begin;
use super::super::engine::ReadingRuntime;
use super::super::failure::Failure;
use super::super::schema::{self, NEWEST, OLDEST, Schema, Upgrade};
use super::stores::Place;
use super::{World, database, runtime};
use crate::clock::Clock;
use crate::error::OpenError;
use crate::store::Store;

#[test]
fn hosts_that_migrate_at_the_same_time_make_the_schema_once() {
    if !kit::installed() {
        return;
    }
    let address = Server::shared().unwrap().database("migrations").unwrap();
    let database = Arc::new(database(&address.url()));
    let threads: Vec<_> = (0..6)
        .map(|_| {
            let database = Arc::clone(&database);
            std::thread::spawn(move || {
                runtime().block_on(async {
                    let session = database.connect().await.unwrap();
                    schema::migrate(&session).await.unwrap();
                });
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let rows = Server::shared()
        .unwrap()
        .query_in("migrations", "SELECT convert_from(body, 'UTF8') FROM store")
        .unwrap();
    let text = rows[0][0].clone().unwrap();
    assert_eq!(text.split(' ').next(), Some(&*NEWEST.to_string()));
}

#[test]
fn only_a_schema_that_this_program_cannot_serve_is_refused() {
    if !kit::installed() {
        return;
    }
    let address = Server::shared().unwrap().database("other_schema").unwrap();
    runtime().block_on(async {
        let session = database(&address.url()).connect().await.unwrap();
        let empty = schema::check(&session).await;
        assert!(matches!(empty, Err(Failure::OtherSchema { found: 0, known: NEWEST })), "{empty:?}");
        schema::migrate(&session).await.unwrap();
        for (row, found, is_served) in [
            ("1", 1, false),
            ("2", 2, true),
            ("900", 900, false),
            ("900 899", 900, false),
            (&*format!("900 {NEWEST}"), 900, true),
            ("900 1", 900, true),
        ] {
            session.script(&format!("UPDATE store SET body = '{row}' WHERE k = 'schema'")).await.unwrap();
            match schema::check(&session).await {
                Ok(number) => assert!(is_served && number == found, "{row}"),
                Err(Failure::OtherSchema { found: other, known: NEWEST }) => {
                    assert!(!is_served && other == found, "{row}");
                }
                other => panic!("{row}: {other:?}"),
            }
        }
    });
}

#[test]
fn rows_of_the_schema_are_no_rows_of_the_store() {
    let Some(world) = World::new("schema_rows") else { return };
    let rows = world.rows(crate::rows::Keyspace::Keys);
    let keys: Vec<&[u8]> = rows.iter().map(|(key, _)| &**key).collect();
    assert_eq!(keys, [crate::rows::HEADER, crate::seal::STORE_KEYS]);
}

#[test]
fn a_store_with_the_oldest_schema_is_served_and_upgraded_beside_its_hosts() {
    if !kit::installed() {
        return;
    }
    let address = Server::shared().unwrap().database("schema_oldest").unwrap();
    let world = World::with_schema(address, OLDEST);
    let host = world.host();
    let workspace = host.create_workspace("before").unwrap().id;
    assert_eq!(host.engine.schema().unwrap(), OLDEST);
    // Of several upgrades at the same time each ends well, and one makes the migrations.
    let ended: Vec<_> = std::thread::scope(|scope| {
        let upgrade = || scope.spawn(|| host.engine.upgrade(&world.keys).unwrap());
        let threads = [upgrade(), upgrade(), upgrade()];
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for ended in ended {
        assert!(matches!(ended, Upgrade::Done { to: NEWEST, .. }), "{ended:?}");
    }
    assert_eq!(host.engine.schema().unwrap(), NEWEST);
    host.put(workspace, "n", "value").unwrap();
    world.host().create_workspace("after").unwrap();
    // A program of the oldest schema that found it before the upgrade.
    let late = "INSERT INTO host (id, beat, seen, about) VALUES ('late', 1, '', '{\"version\":\"0.1.0\"}')";
    assert!(Server::shared().unwrap().query_in("schema_oldest", late).is_err(), "it became a host");
    assert_eq!(world.verify(), 1);
    world.audit();
}

/// A migration of a version to come.
const LATER: &str = "CREATE TABLE later (k bytea PRIMARY KEY)";

fn upgrade(world: &World, min_reader: u32) -> Upgrade {
    let migrations: Vec<&str> = schema::CURRENT.migrations.iter().copied().chain([LATER]).collect();
    let to = Schema { migrations: &migrations, min_reader };
    world.runtime.block_on(schema::upgrade(&world.session, &world.keys, &to)).unwrap()
}

#[test]
fn a_schema_that_only_adds_something_is_served_by_the_version_before() {
    let Some(world) = World::new("schema_adds") else { return };
    let host = world.host();
    assert_eq!(upgrade(&world, NEWEST), Upgrade::Done { from: NEWEST, to: NEWEST + 1 });
    assert_eq!(upgrade(&world, NEWEST), Upgrade::Done { from: NEWEST + 1, to: NEWEST + 1 }, "again");
    assert_eq!(world.sql("SELECT count(*) FROM later"), [[Some("0".to_owned())]]);
    host.create_workspace("w").unwrap();
    world.host().create_workspace("v").unwrap();
    // The version before has nothing to upgrade.
    let nothing = host.engine.upgrade(&world.keys).unwrap();
    assert_eq!(nothing, Upgrade::Done { from: NEWEST + 1, to: NEWEST + 1 });
}

#[test]
fn an_upgrade_is_refused_while_a_host_could_not_serve_the_store_after_it() {
    let Some(world) = World::new("schema_refused") else { return };
    let host = world.host();
    let Upgrade::OlderHosts(hosts) = upgrade(&world, NEWEST + 1) else { panic!("it was upgraded") };
    assert!(matches!(&hosts[..], [host] if host.contains("version")), "{hosts:?}");
    assert_eq!(host.engine.schema().unwrap(), NEWEST);
    host.create_workspace("w").unwrap();
    drop(host);
    assert_eq!(upgrade(&world, NEWEST + 1), Upgrade::Done { from: NEWEST, to: NEWEST + 1 });
    let runtime = ReadingRuntime::new().unwrap();
    let database = Arc::new(database(&world.address.url()));
    let entered = begin::enter(&database, runtime.handle(), &Clock::system(), world.about());
    let refusal = entered.unwrap_err().to_string();
    let numbers = format!("the database has schema {}, this program works with {NEWEST}", NEWEST + 1);
    assert!(refusal.contains(&numbers), "{refusal}");
    assert_eq!(world.sql("SELECT count(*) FROM host"), [[Some("0".to_owned())]]);
}

#[test]
fn commands_that_make_stores_do_not_upgrade_one_that_is_there() {
    let Some(place) = Place::new("schema_create") else { return };
    place.create().unwrap();
    let server = Server::shared().unwrap();
    let set = format!("UPDATE store SET body = '{OLDEST}' WHERE k = 'schema'");
    server.query_in("schema_create", &set).unwrap();
    assert!(matches!(place.create(), Err(OpenError::StoreExists)));
    let store = Store::open_in(&place.database, &place.options("root.key")).unwrap();
    let found = runtime().block_on(store.schema()).unwrap().unwrap();
    assert_eq!((found.number, found.newest), (OLDEST, NEWEST));
}
