//! Seats that hosts share.

use cofferdam_test_postgres::Proxy;

use super::stores::until;
use super::{Host, World, runtime};
use crate::shared_limits::{LimitsAway, SeatAsk};

const MOST: u64 = 10;

fn ask(host: &Host, units: u64) -> Result<u64, LimitsAway> {
    let limits = host.engine.shared_limits();
    runtime().block_on(limits.ask_seats("key", SeatAsk { units, most: MOST })).map(|()| limits.seats("key"))
}

/// Asks until the database answers: the first question may wait longer for a connection than it may take.
fn held(host: &Host, units: u64) -> u64 {
    let mut held = None;
    until(|| {
        held = ask(host, units).ok();
        held.is_some()
    });
    held.unwrap()
}

/// The seats of all hosts.
fn taken(world: &World) -> u64 {
    let sum = world.sql("SELECT coalesce(sum(taken), 0) FROM seat");
    sum[0][0].as_deref().unwrap().parse().unwrap()
}

#[test]
fn hosts_that_take_seats_at_the_same_time_get_no_more_than_there_are() {
    let Some(world) = World::new("seats") else { return };
    let hosts = [world.host(), world.host(), world.host()];
    std::thread::scope(|scope| {
        for client in 0..12 {
            let host = &hosts[client % 3];
            scope.spawn(move || (0..4).map(|_| held(host, 1)).max());
        }
    });
    let all: u64 = hosts.iter().map(|host| host.engine.shared_limits().seats("key")).sum();
    assert_eq!((all, taken(&world)), (MOST, MOST));
    let [one, other, _] = &hosts;
    let of_one = one.engine.shared_limits().seats("key");
    one.engine.shared_limits().keep_seats("key", 0);
    until(|| taken(&world) == MOST - of_one);
    let of_other = other.engine.shared_limits().seats("key");
    assert_eq!(held(other, MOST), of_other + of_one, "what was returned can be taken");
}

#[test]
fn seats_of_a_host_that_ended_are_free_again() {
    let Some(world) = World::new("seats_ended") else { return };
    let (one, other) = (world.host(), world.host());
    assert_eq!(held(&one, MOST), MOST);
    assert_eq!(held(&other, 1), 0);
    drop(one);
    until(|| held(&other, 1) > 0);
}

#[test]
fn seats_that_the_database_lost_are_written_again_when_it_is_back() {
    let Some(world) = World::new("seats_lost") else { return };
    let proxy = Proxy::start(world.address.port).unwrap();
    let host = world.host_at(&world.address.at(proxy.port()).url());
    assert_eq!(held(&host, 4), 4);
    proxy.fall_silent();
    assert!(ask(&host, 1).is_err());
    world.sql("TRUNCATE seat");
    proxy.release();
    until(|| taken(&world) == 4);
    assert_eq!(host.engine.shared_limits().seats("key"), 4);
    host.engine.shared_limits().keep_seats("key", 1);
    until(|| taken(&world) == 1);
}

#[test]
fn seats_are_written_again_on_a_new_connection() {
    let Some(world) = World::new("seats_connection") else { return };
    let host = world.host();
    assert_eq!(held(&host, 4), 4);
    world.sql("TRUNCATE seat");
    world.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE datname = current_database() AND pid <> pg_backend_pid()",
    );
    let limits = host.engine.shared_limits();
    let ask = SeatAsk { units: 1, most: MOST };
    until(|| runtime().block_on(limits.ask_seats("another key", ask)).is_ok());
    until(|| taken(&world) == 4 + limits.seats("another key"));
}
