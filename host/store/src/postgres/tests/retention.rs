//! Usage rows that are dropped.

use std::time::Duration;

use cofferdam_test_postgres::Server;

use super::super::connect::DatabaseSession;
use super::super::partitions;
use super::stores::Place;
use super::{OPERATOR, database, runtime};
use crate::audit::AuditAction;
use crate::clock::Clock;
use crate::database::Database;
use crate::operation::VaultError;
use crate::scratch::{Now, ScratchDirectory, create_workspace, go_on, issue_key};
use crate::spend::UsageDay;
use crate::store::{OpenOptions, Store};
use crate::usage::{UsageBy, UsageKind, UsageOutcome, UsageQuery, UsageReport, UsageRow};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A store with usage rows of several days: 300 and 10 in the first week, 20 and 30 in the second, and 40 in
/// the third, which has no partition.
struct Used {
    place: Place,
    store: Store,
    clock: Clock,
    options: OpenOptions,
    /// The first day of the first week.
    first: UsageDay,
}

impl Used {
    fn new(name: &str) -> Option<Used> {
        let place = Place::new(name)?;
        place.create().unwrap();
        let clock = Clock::manual();
        let day = |clock: &Clock| i32::try_from(clock.now_ms() / 86_400_000).unwrap();
        while day(&clock) % 7 != 0 {
            clock.advance(DAY);
        }
        let first = day(&clock);
        let (runtime, used) = (runtime(), first);
        runtime.block_on(async {
            let session = database(&place.address.url()).connect().await.unwrap();
            let there = partitions::all(&session, "usage").await.unwrap();
            for partition in there.iter().filter(|partition| partition.end.is_some()) {
                session.script(&format!("DROP TABLE {}", partition.name)).await.unwrap();
            }
            partitions::make_from(&session, used).await.unwrap();
        });
        let options = OpenOptions { clock: clock.clone(), ..place.options("root.key") };
        let store = Store::open_in(&place.database, &options).unwrap();
        let workspace = create_workspace(&store, "used").id;
        store.add_credit(OPERATOR, workspace, 1_000_000).unwrap();
        let key = issue_key(&store).key.id;
        for (days, requests) in [(0, 300), (1, 10), (6, 20), (2, 30), (5, 40)] {
            clock.advance(DAY * days);
            let requests: Vec<_> = (0..requests)
                .map(|number| {
                    let id = format!("r_{}_{number}", clock.now_ms());
                    let row = UsageRow::begun(id, workspace, key, UsageKind::Responses, false);
                    let request = store.reserve(row).now().unwrap();
                    request.note(|row| row.cost_pico = 3);
                    request
                })
                .collect();
            requests.into_iter().for_each(|request| request.settle(UsageOutcome::Completed));
            store.flush().unwrap();
        }
        Some(Used { place, store, clock, options, first: UsageDay(first.cast_unsigned()) })
    }

    fn day(&self, days: u32) -> UsageDay {
        UsageDay(self.first.0 + days)
    }

    fn drop(&self, days: u32) -> Result<u64, VaultError> {
        self.store.drop_usage(OPERATOR, self.day(days))
    }

    /// The partitions with rows.
    fn partitions(&self) -> Vec<String> {
        let sql = "SELECT DISTINCT tableoid::regclass::text FROM usage ORDER BY 1";
        let found = Server::shared().unwrap().query_in(&self.place.address.name, sql).unwrap();
        found.into_iter().map(|row| row[0].clone().unwrap()).collect()
    }

    fn report(&self, store: &Store) -> UsageReport {
        let last = UsageDay::of_ms(self.clock.now_ms());
        let query =
            UsageQuery { first: self.first, last, by: UsageBy::Day, workspace: None, groups_max: 100 };
        store.usage_report(query).now().unwrap()
    }

    fn drops(&self) -> Vec<AuditAction> {
        let records = self.store.audit_records(0, 10_000).now().unwrap();
        let entries = records.into_iter().flat_map(|record| record.entries).map(|entry| entry.action);
        entries.filter(|action| matches!(action, AuditAction::UsageDropped { .. })).collect()
    }
}

/// Checks a store that has so many usage rows.
fn assert_whole(store: &Store, rows: u64) {
    let found = store.verify(&mut go_on).unwrap();
    assert_eq!((found.problems, found.usage_rows), (Vec::new(), rows));
}

fn rows(store: &Store) -> u64 {
    store.usage_rows(10_000).now().unwrap().len() as u64
}

#[test]
fn dropped_usage_leaves_sums_and_a_record_and_the_store_whole_in_every_copy() {
    let Some(used) = Used::new("usage_dropped") else { return };
    let week = used.first.0;
    let (second, third) = (format!("usage_{}", week + 7), "usage_rest".to_owned());
    assert_eq!(used.partitions(), [format!("usage_{week}"), second.clone(), third.clone()]);
    assert_whole(&used.store, 400);
    let before = used.report(&used.store);
    // The first week as a whole, and the row of the next one that is older.
    assert_eq!(used.drop(9).unwrap(), 330);
    assert_eq!(used.partitions(), [second, third]);
    let tables = format!("SELECT to_regclass('usage_{week}')::text");
    let found = Server::shared().unwrap().query_in(&used.place.address.name, &tables).unwrap();
    assert_eq!(found, [[None]], "the partition is gone");
    let dropped = AuditAction::UsageDropped { before: used.day(9), rows: 330 };
    assert_eq!(used.drops(), std::slice::from_ref(&dropped));
    assert_eq!(used.report(&used.store), before);
    assert_eq!(rows(&used.store), 70);
    assert_whole(&used.store, 70);
    assert_eq!(used.drop(9).unwrap(), 0);
    assert_eq!(used.drops(), [dropped], "a drop of nothing has no record");

    let backup = used.place.path("backup");
    used.store.backup(&backup, &mut go_on).unwrap();
    let restored = Server::shared().unwrap().database("usage_dropped_restored").unwrap();
    let restored = Database::of_test(&restored);
    Store::restore_into(&restored, &used.options, &backup, &mut go_on).unwrap();
    let restored = Store::open_in(&restored, &used.options).unwrap();
    assert_whole(&restored, 70);
    assert_eq!(used.report(&restored), before);
    let scratch = ScratchDirectory::new();
    std::fs::copy(used.place.path("root.key"), scratch.path("root.key")).unwrap();
    let options = OpenOptions { clock: used.clock.clone(), ..scratch.options() };
    Store::restore(&scratch.lock(), &options, &backup, &mut go_on).unwrap();
    let embedded = Store::open(scratch.lock(), options).unwrap();
    assert_whole(&embedded, 70);
    assert_eq!(used.report(&embedded), before);
}

#[test]
fn rows_that_are_missing_without_a_record_are_found_after_a_drop_too() {
    let Some(used) = Used::new("usage_missing") else { return };
    used.drop(9).unwrap();
    let sql = format!("DELETE FROM usage WHERE day = {}", used.day(9).0);
    Server::shared().unwrap().query_in(&used.place.address.name, &sql).unwrap();
    let problems = used.store.verify(&mut go_on).unwrap().problems;
    assert!(
        problems.iter().any(|problem| problem.contains("the audit log breaks at record")),
        "{problems:?}"
    );
    let totals = format!("{}: the key", used.day(9));
    assert!(problems.iter().any(|problem| problem.starts_with(&totals)), "{problems:?}");
}

#[test]
fn a_drop_that_readers_are_in_the_way_of_leaves_the_store_whole_and_is_run_again() {
    let Some(used) = Used::new("usage_read") else { return };
    let runtime = runtime();
    let reader: DatabaseSession = runtime.block_on(database(&used.place.address.url()).connect()).unwrap();
    let read = format!("BEGIN; SELECT count(*) FROM usage_{}", used.first.0 + 7);
    runtime.block_on(reader.script(&read)).unwrap();
    assert!(matches!(used.drop(14), Err(VaultError::ReadersInTheWay)));
    assert_whole(&used.store, 90);
    runtime.block_on(reader.script("ROLLBACK")).unwrap();
    assert_eq!(used.drop(14).unwrap(), 50);
    assert_whole(&used.store, 40);
}

#[test]
fn only_days_that_are_over_are_dropped_and_only_in_a_database() {
    let Some(used) = Used::new("usage_today") else { return };
    let today = UsageDay::of_ms(used.clock.now_ms());
    assert!(matches!(used.drop(15), Err(VaultError::NotOver { today: found }) if found == today));
    assert_eq!((used.drop(14).unwrap(), rows(&used.store)), (360, 40));
    assert_eq!(today, used.day(14));
    let scratch = ScratchDirectory::new();
    let embedded = scratch.open();
    assert!(matches!(embedded.drop_usage(OPERATOR, used.first), Err(VaultError::UsageKept)));
}
