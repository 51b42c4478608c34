//! The table of hosts.

use super::stores::until;
use super::{World, database};
use crate::postgres::begin;
use crate::postgres::engine::ReadingRuntime;

/// Hosts, and their chains with whether these are sealed.
fn rows(world: &World) -> [Vec<Vec<Option<String>>>; 2] {
    let chains = "SELECT host, (sealed_ms IS NOT NULL)::text, count(*) FROM chain GROUP BY 1, 2";
    ["SELECT encode(id, 'hex') FROM host", chains].map(|sql| world.sql(sql))
}

#[test]
fn a_host_has_a_row_while_it_runs_and_its_chains_are_sealed_at_its_end() {
    let Some(world) = World::new("host_rows") else { return };
    // The one that made the store.
    let [hosts, chains] = rows(&world);
    assert_eq!(hosts, Vec::<Vec<_>>::new());
    assert!(matches!(&chains[..], [chain] if chain[1].as_deref() == Some("true")), "{chains:?}");

    let host = world.host();
    let id = host.engine.host_id().to_string();
    let workspace = host.create_workspace("w").unwrap().id;
    host.put(workspace, "n", "value").unwrap();
    let other = world.host();
    let [hosts, chains] = rows(&world);
    assert_eq!(hosts.len(), 2);
    let own = |of: &[Vec<Option<String>>], sealed: &str| {
        let own = of.iter().find(|it| it[0].as_deref() == Some(&id) && it[1].as_deref() == Some(sealed));
        own.map(|it| it[2].clone().unwrap())
    };
    let made = own(&chains, "false");
    assert!(made.is_some(), "{chains:?}");
    drop(host);
    let [hosts, chains] = rows(&world);
    assert_eq!(hosts, [[Some(other.engine.host_id().to_string())]]);
    assert_eq!((own(&chains, "true"), own(&chains, "false")), (made, None));
    world.audit();
}

#[test]
fn a_host_whose_row_is_gone_makes_chains_only_as_another_host() {
    let Some(world) = World::new("host_without_row") else { return };
    let host = world.host();
    let was = host.engine.host_id();
    let runtime = ReadingRuntime::new().unwrap();
    let database = std::sync::Arc::new(database(&world.address.url()));
    begin::leave(&database, runtime.handle(), was);
    until(|| host.create_workspace("w").is_ok());
    let is = host.engine.host_id();
    assert_ne!(was, is);
    let hosts = world.sql("SELECT host FROM chain WHERE sealed_ms IS NULL");
    assert_eq!(hosts, [[Some(is.to_string())]]);
}
