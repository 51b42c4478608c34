//! Partitions of the log.

use super::super::partitions;
use super::{Host, World};
use crate::log::LogKey;
use crate::rows::Keyspace;
use crate::state::{KeyedRow, RowRange};

/// A Thursday on which partitions of both tables begin: 28 * 743.
const FIRST: i32 = 20_804;

/// The partitions of a table without the default one: name and end.
fn partitions(world: &World, table: &str) -> Vec<(String, i32)> {
    let all = world.runtime.block_on(partitions::all(&world.session, table)).unwrap();
    all.into_iter().filter_map(|partition| Some((partition.name, partition.end?))).collect()
}

fn make(world: &World, today: i32) {
    world.runtime.block_on(partitions::make_from(&world.session, today)).unwrap();
}

/// A store whose tables have no partitions but the default ones, as before there were any.
fn unparted(name: &str) -> Option<World> {
    let world = World::new(name)?;
    for table in ["audit", "usage"] {
        for (partition, _) in partitions(&world, table) {
            world.sql(&format!(
                "BEGIN; ALTER TABLE {table} DETACH PARTITION {partition}; \
                 INSERT INTO {table} SELECT * FROM {partition}; DROP TABLE {partition}; COMMIT"
            ));
        }
    }
    Some(world)
}

fn names(all: &[(String, i32)]) -> Vec<&str> {
    all.iter().map(|(name, _)| name.as_str()).collect()
}

#[test]
fn partitions_are_made_a_week_ahead_and_rows_of_commits_go_into_them() {
    let Some(world) = World::new("partitions_made") else { return };
    let today: i32 = world.sql("SELECT floor(extract(epoch FROM now()) / 86400)::integer")[0][0]
        .as_deref()
        .unwrap()
        .parse()
        .unwrap();
    for (table, days) in [("audit", 28), ("usage", 7)] {
        let found = partitions(&world, table);
        assert!(found.last().unwrap().1 > today + 7, "{found:?}");
        let first = today - today.rem_euclid(days);
        assert_eq!(
            found[..2],
            [(format!("{table}_before"), first), (format!("{table}_{first}"), first + days)]
        );
    }
    let host = world.host();
    let workspace = host.create_workspace("w").unwrap().id;
    host.put(workspace, "n", "value").unwrap();
    drop(host);
    assert_eq!(world.sql("SELECT count(*) FROM audit_rest"), [[Some("0".to_owned())]]);
    assert!(world.audit().len() >= 3);
}

#[test]
fn a_day_later_only_what_is_missing_is_made() {
    let Some(world) = unparted("partitions_daily") else { return };
    world.sql("TRUNCATE audit");
    make(&world, FIRST);
    let both = [partitions(&world, "audit"), partitions(&world, "usage")];
    assert_eq!(names(&both[0]), ["audit_before", "audit_20804"]);
    assert_eq!(names(&both[1]), ["usage_before", "usage_20804", "usage_20811"]);
    make(&world, FIRST);
    assert_eq!([partitions(&world, "audit"), partitions(&world, "usage")], both);
    make(&world, FIRST + 21);
    assert_eq!(names(&partitions(&world, "audit")), ["audit_before", "audit_20804", "audit_20832"]);
    let usage = ["usage_before", "usage_20804", "usage_20811", "usage_20825", "usage_20832"];
    assert_eq!(names(&partitions(&world, "usage")), usage);
}

#[test]
fn days_that_have_rows_already_stay_in_the_default_partition_and_later_ones_do_not() {
    let Some(world) = unparted("partitions_rows") else { return };
    let host = world.host();
    let workspace = host.create_workspace("w").unwrap().id;
    let before = log(&host);
    let today = crate::clock::Clock::system().now_ms() / 86_400_000;
    let today = i32::try_from(today).unwrap();
    let first = today - today.rem_euclid(28);
    make(&world, today);
    let has_today = |(_, end): &(String, i32)| (first + 1..=first + 28).contains(end);
    assert!(!partitions(&world, "audit").iter().any(has_today), "the rows of today would have to move");
    assert_eq!(log(&host), before);
    host.put(workspace, "n", "value").unwrap();
    make(&world, today + 28);
    assert!(partitions(&world, "audit").contains(&(format!("audit_{}", first + 28), first + 56)));
    // Rows of several partitions are read in the order of their positions.
    let count = log(&host).len();
    let copy = "INSERT INTO audit (day, chain, seq, position, body) \
                SELECT {day}, chain, seq + 1, position + 1, body FROM audit ORDER BY position DESC LIMIT 1";
    for day in [first + 28, first, first - 1, first + 29] {
        world.sql(&copy.replace("{day}", &day.to_string()));
    }
    let after = log(&host);
    assert_eq!(after.len(), count + 4);
    assert!(after.is_sorted(), "the order of the keys is that of the positions");
    let filled = "SELECT count(DISTINCT tableoid) FROM audit";
    assert_eq!(world.sql(filled), [[Some("3".to_owned())]]);
}

/// The rows of the log, without the ends of chains.
fn log(host: &Host) -> Vec<KeyedRow> {
    let state = host.engine.state().unwrap();
    let rows = state.range(&RowRange::all(Keyspace::Log)).unwrap().map(Result::unwrap);
    rows.filter(|(key, _)| LogKey::parse(key).is_some_and(|key| !matches!(key, LogKey::Chain(_)))).collect()
}

#[test]
fn a_partition_that_readers_are_in_the_way_of_is_made_later() {
    let Some(world) = unparted("partitions_locked") else { return };
    world.sql("TRUNCATE audit");
    let reader = world.runtime.block_on(super::database(&world.address.url()).connect()).unwrap();
    world.runtime.block_on(reader.script("BEGIN; SELECT count(*) FROM audit_rest")).unwrap();
    make(&world, FIRST);
    assert_eq!(names(&partitions(&world, "audit")), Vec::<&str>::new());
    world.runtime.block_on(reader.script("ROLLBACK")).unwrap();
    make(&world, FIRST);
    assert_eq!(names(&partitions(&world, "audit")), ["audit_before", "audit_20804"]);
}

#[test]
fn hosts_that_make_the_same_partitions_make_them_once() {
    let Some(world) = unparted("partitions_race") else { return };
    world.sql("TRUNCATE audit");
    let url = world.address.url();
    let make = || {
        super::runtime().block_on(async {
            let session = super::database(&url).connect().await.unwrap();
            partitions::make_from(&session, FIRST).await.unwrap();
        });
    };
    std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(make))));
    assert_eq!(names(&partitions(&world, "usage")), ["usage_before", "usage_20804", "usage_20811"]);
}
