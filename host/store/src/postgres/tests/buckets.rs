//! Limits that hosts share.

use std::time::Duration;

use cofferdam_test_postgres::Proxy;
use tokio::time::timeout;

use super::stores::until;
use super::{Host, World, database, runtime};
use crate::clock::Clock;
use crate::postgres::About;
use crate::postgres::begin;
use crate::postgres::engine::ReadingRuntime;
use crate::shared_limits::{BucketAnswer, BucketAsk, BucketRate, LimitsAway};

/// So long that nothing is paid off during a test.
const HOUR_NS: u64 = 3_600_000_000_000;
const LIMIT: u64 = 40;
const RATE: BucketRate =
    BucketRate { unit_ns: HOUR_NS, burst_ns: LIMIT * HOUR_NS, ahead_ns_max: 2 * LIMIT * HOUR_NS };

fn wanted(bucket: &str, units: u64, slice: u64) -> BucketAsk {
    BucketAsk { bucket: bucket.to_owned(), rate: RATE, used_ns: 0, units, slice }
}

fn used(bucket: &str, used_ns: u64) -> BucketAsk {
    BucketAsk { used_ns, ..wanted(bucket, 0, 0) }
}

/// Asks until the database answers: the first question may wait longer for a connection than it may take.
fn ask(host: &Host, ask: &BucketAsk) -> BucketAnswer {
    let mut answer = None;
    until(|| {
        answer = attempt(host, ask).ok();
        answer.is_some()
    });
    answer.unwrap()
}

fn attempt(host: &Host, ask: &BucketAsk) -> Result<BucketAnswer, LimitsAway> {
    let limits = host.engine.shared_limits().clone();
    runtime().block_on(limits.ask(ask.clone()))
}

/// How far use is ahead of the rate, in whole hours; a part of one counts.
fn hours(answer: BucketAnswer) -> u64 {
    answer.ahead_ns.div_ceil(HOUR_NS)
}

#[test]
fn hosts_that_take_at_the_same_time_get_the_limit_together() {
    let Some(world) = World::new("buckets") else { return };
    let hosts = [world.host(), world.host(), world.host()];
    for host in &hosts {
        ask(host, &wanted("warm", 0, 0));
    }
    for (round, slice) in [1, 3, 7].into_iter().enumerate() {
        let name = format!("requests/{round}");
        let wanted = wanted(&name, 1, slice);
        let all_of = |host: &Host| -> u64 {
            let asks = std::iter::repeat_with(|| ask(host, &wanted).granted);
            asks.take_while(|granted| *granted > 0).sum()
        };
        let taken: u64 = std::thread::scope(|scope| {
            let all_of = &all_of;
            let threads: Vec<_> = (0..12)
                .map(|client| &hosts[client % 3])
                .map(|host| scope.spawn(move || all_of(host)))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(taken, LIMIT, "slices of {slice}");
        let left = ask(&hosts[0], &wanted);
        assert_eq!((left.granted, hours(left)), (0, LIMIT));
    }
}

#[test]
fn use_is_booked_beyond_the_limit_and_what_is_returned_can_be_taken_again() {
    let Some(world) = World::new("bucket_rules") else { return };
    let (one, other) = (world.host(), world.host());
    ask(&one, &used("a", 30 * HOUR_NS));
    let taken = ask(&other, &wanted("a", 1, 12));
    assert_eq!((taken.granted, hours(taken)), (10, LIMIT), "a slice is cut to what is left");
    other.engine.shared_limits().give_back("a".to_owned(), RATE, 4);
    until(|| hours(ask(&one, &wanted("a", 0, 0))) == LIMIT - 4);
    let both = BucketAsk { used_ns: 2 * HOUR_NS, ..wanted("a", 1, 1) };
    let taken = ask(&one, &both);
    assert_eq!((taken.granted, hours(taken)), (1, LIMIT - 1), "use counts before units are taken");
    // Use beyond the limit is bounded.
    let booked = ask(&one, &used("a", 1000 * HOUR_NS));
    assert_eq!((booked.granted, booked.ahead_ns), (0, RATE.ahead_ns_max));
    assert_eq!(ask(&other, &wanted("a", 1, 1)).granted, 0);
    assert_eq!(hours(ask(&other, &wanted("b", 1, 1))), 1, "other limits are not concerned");
    one.engine.shared_limits().give_back("a".to_owned(), RATE, 1_000_000);
    until(|| ask(&one, &wanted("a", 0, 0)).ahead_ns == 0);
}

#[test]
fn use_is_paid_off_by_the_clock_of_the_database_and_its_row_deleted() {
    let Some(world) = World::new("bucket_time") else { return };
    let host = world.host();
    let rate = BucketRate { unit_ns: 50_000_000, burst_ns: 50_000_000, ahead_ns_max: HOUR_NS };
    let one = BucketAsk { rate, ..wanted("fast", 1, 1) };
    assert_eq!(ask(&host, &one).granted, 1);
    until(|| ask(&host, &one).granted == 1);
    let rows = "SELECT count(*) FROM bucket WHERE id = 'fast'";
    assert_eq!(world.sql(rows), [[Some("1".to_owned())]]);
    until(|| world.sql(rows) == [[Some("0".to_owned())]]);
}

#[test]
fn a_database_that_is_silent_is_away_and_is_asked_again_when_it_answers() {
    let Some(world) = World::new("bucket_away") else { return };
    let proxy = Proxy::start(world.address.port).unwrap();
    let host = world.host_at(&world.address.at(proxy.port()).url());
    assert_eq!(ask(&host, &wanted("a", 1, 1)).granted, 1);
    proxy.fall_silent();
    assert!(attempt(&host, &wanted("a", 1, 1)).is_err());
    proxy.release();
    assert_eq!(hours(ask(&host, &used("b", HOUR_NS))), 1);
}

#[test]
fn hosts_that_serve_and_show_signs_of_life_are_counted() {
    let Some(world) = World::new("bucket_hosts") else { return };
    let (runtime, database) =
        (ReadingRuntime::new().unwrap(), std::sync::Arc::new(database(&world.address.url())));
    let enter = |serves| {
        let about = About::new(std::sync::Arc::clone(&world.keys), Clock::system(), serves);
        begin::enter(&database, runtime.handle(), &Clock::system(), about).unwrap()
    };
    // Neither of them shows another sign of life.
    let (_command, _asleep) = (enter(false), enter(true));
    let host = world.host();
    let count = || host.engine.shared_limits().hosts();
    until(|| count() == 2);
    until(|| count() == 1);
    let other = world.host();
    until(|| count() == 2 && other.engine.shared_limits().hosts() == 2);
    drop(other);
    until(|| count() == 1);
}

#[test]
fn a_question_that_is_given_up_leaves_its_units_in_the_bucket() {
    let Some(world) = World::new("bucket_given_up") else { return };
    let proxy = Proxy::start(world.address.port).unwrap();
    let host = world.host_at(&world.address.at(proxy.port()).url());
    ask(&host, &wanted("a", 0, 0));
    let limits = host.engine.shared_limits();
    proxy.fall_silent();
    let given_up =
        runtime().block_on(async { timeout(Duration::ZERO, limits.ask(wanted("a", 1, 20))).await });
    assert!(given_up.is_err(), "{given_up:?}");
    proxy.release();
    until(|| ask(&host, &wanted("a", 0, 0)).ahead_ns == 0);
}
