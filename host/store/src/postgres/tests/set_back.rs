//! A database that goes on without commits that were visible in it.

use super::World;
use super::stores::until;

/// The numbers of the last commits of all chains.
fn numbers(world: &World) -> Vec<i64> {
    let rows = world.sql("SELECT seq FROM chain ORDER BY id").concat();
    rows.into_iter().map(|seq| seq.unwrap().parse().unwrap()).collect()
}

#[test]
fn a_sign_of_life_vouches_for_no_commit_that_only_an_earlier_look_has_seen() {
    let Some(world) = World::new("vouched") else { return };
    let host = world.host();
    host.create_workspace("w").unwrap();
    let (before, other) = (numbers(&world), super::database(&world.address.url()));
    let locked = world.runtime.block_on(other.connect()).unwrap();
    world.runtime.block_on(locked.script("BEGIN; SELECT FROM host FOR UPDATE")).unwrap();
    // A commit that looks at the changes find, while no sign of life is committed.
    world.sql("UPDATE chain SET seq = seq + 9");
    let seen = world.sql("SELECT pg_sleep(0.6); SELECT clock_timestamp()").concat().pop().unwrap().unwrap();
    let waits = format!(
        "SELECT (count(*) > 0)::text FROM pg_stat_activity \
         WHERE datname = 'vouched' AND wait_event_type = 'Lock' AND query_start > '{seen}'"
    );
    until(|| world.sql(&waits) == [[Some("true".to_owned())]]);
    // It is not there any more when the next one is.
    world.sql("UPDATE chain SET seq = seq - 9");
    assert_eq!(numbers(&world), before);
    world.runtime.block_on(locked.script("COMMIT")).unwrap();
    let beat = || world.sql("SELECT beat FROM host").concat().remove(0).unwrap().parse::<i64>().unwrap();
    let first = beat();
    until(|| beat() > first + 1);
    assert_eq!(host.engine.witness().numbers().into_values().max(), before.into_iter().max());
    until(|| host.shared.has_contact());
    host.create_workspace("after").unwrap();
}
