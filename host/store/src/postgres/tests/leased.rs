//! Credit and limits with hosts that reserve ahead.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use cofferdam_test_postgres::{Proxy, Server};

use super::OPERATOR;
use super::limits::{Two, settle};
use super::stores::{Place, until};
use crate::changes::{KeyChange, LimitsChange, WriteBatch, guarded};
use crate::clock::Clock;
use crate::database::{Database, LedgerMode};
use crate::scratch::Now;
use crate::spend::{SpendLimits, SpendWindow};
use crate::state::Guard;
use crate::store::{OpenOptions, Store};
use crate::usage::{ReservationRefused, UsageOutcome};

/// Two hosts that reserve ahead, and their clock.
struct Leased {
    name: &'static str,
    place: Place,
    two: Two,
    clock: Clock,
}

fn open(place: &Place, database: &Database, clock: &Clock) -> Store {
    let options = OpenOptions { clock: clock.clone(), ..place.options("root.key") };
    Store::open_in(&database.clone().with_ledger(LedgerMode::Leased), &options).unwrap()
}

impl Leased {
    fn new(name: &'static str, credit_pico: Option<u64>, limit_pico: Option<u64>) -> Option<Leased> {
        let place = Place::new(name)?;
        place.create().unwrap();
        let clock = Clock::manual();
        let hosts = [0, 1].map(|_| open(&place, &place.database, &clock));
        let two = Two::of(hosts, credit_pico, limit_pico);
        Some(Leased { name, place, two, clock })
    }

    fn count(&self, sql: &str) -> u64 {
        let rows = Server::shared().unwrap().query_in(self.name, sql).unwrap();
        rows[0][0].as_deref().unwrap().parse().unwrap()
    }

    /// Commits of all hosts.
    fn commits(&self) -> u64 {
        self.count("SELECT coalesce(sum(seq), 0) FROM chain")
    }

    /// Intents and slices of all hosts.
    fn intents(&self) -> u64 {
        self.count("SELECT count(*) FROM ledger WHERE get_byte(k, 0) = ascii('H')")
    }

    /// What is spent and reserved, as another host sees it.
    fn money(&self) -> (u64, u64) {
        let balance = self.two.hosts[1].balance(self.two.workspace).now().unwrap();
        (balance.spent_pico, balance.reserved_pico)
    }

    /// Gives the first host a slice of `pico`, with the first of its requests.
    fn with_slice(&self, pico: u64) {
        settle(self.two.pledge(&self.two.hosts[0], "r_first", pico).unwrap(), 0);
        self.two.hosts[0].flush().unwrap();
        assert_eq!(self.money(), (0, pico), "its slice is left");
    }

    /// Request, cost and whether it was interrupted.
    fn rows(&self) -> BTreeSet<(String, u64, bool)> {
        let rows = self.two.hosts[1].usage_rows(100).now().unwrap();
        let count = rows.len();
        let rows: BTreeSet<_> = rows
            .into_iter()
            .map(|row| (row.request_id, row.cost_pico, row.outcome == UsageOutcome::Interrupted))
            .collect();
        assert_eq!(rows.len(), count, "a row is there twice");
        rows
    }
}

#[test]
fn a_request_whose_host_has_a_slice_is_sent_without_a_commit() {
    let Some(leased) = Leased::new("leased_slice", Some(10_000), None) else { return };
    let [host, _] = &leased.two.hosts;
    let first = leased.two.pledge(host, "r_1", 100).unwrap();
    assert_eq!(leased.money(), (0, 200), "an intent, and a slice for the next request");
    let before = leased.commits();
    let second = leased.two.pledge(host, "r_2", 60).unwrap();
    let third = second.0.pledge(40).now().unwrap().unwrap();
    second.0.commit_intent().now().unwrap();
    assert_eq!(leased.commits(), before);
    assert_eq!(leased.money(), (0, 200));
    drop(third);
    settle(first, 10);
    settle(second, 70);
    host.flush().unwrap();
    // Two seconds of what was asked for, beside nothing that runs.
    assert_eq!(leased.money(), (80, 200));
    // Nothing is asked for any more.
    leased.clock.advance(Duration::from_secs(3));
    until(|| leased.intents() == 0);
    assert_eq!(leased.money(), (80, 0));
    leased.two.is_whole();
}

#[test]
fn what_is_free_on_another_host_is_asked_back_before_a_request_is_refused() {
    for (name, credit, limit) in [("leased_credit", Some(1_000), None), ("leased_limit", None, Some(1_000))] {
        let Some(leased) = Leased::new(name, credit, limit) else { return };
        leased.with_slice(100);
        let [host, other] = &leased.two.hosts;
        let running = leased.two.pledge(host, "r_running", 40).unwrap();
        let most = leased.two.pledge(other, "r_most", 960).unwrap();
        assert_eq!(most.1.left_pico(), 960);
        let refused = leased.two.pledge(host, "r_late", 1).err().unwrap();
        assert!(refused.is_busy(), "{refused}");
        settle(most, 900);
        settle(running, 40);
        host.flush().unwrap();
        other.flush().unwrap();
        // One that is alone gets what is left, also when slices were free.
        let last = leased.two.pledge(other, "r_last", 500).unwrap();
        assert_eq!(last.1.left_pico(), 60);
        settle(last, 70);
        other.flush().unwrap();
        let refused = leased.two.pledge(host, "r_nothing", 1).err().unwrap();
        assert!(!refused.is_busy() && refused != ReservationRefused::NoRoom, "{refused}");
        assert_eq!(leased.money().0, 1_010);
        leased.two.is_whole();
    }
}

#[test]
fn a_limit_that_was_lowered_is_not_overdrawn_out_of_a_slice() {
    let Some(leased) = Leased::new("leased_lowered", None, Some(1_000)) else { return };
    leased.with_slice(100);
    let [host, other] = &leased.two.hosts;
    let total = |limit_pico| SpendLimits::default().with(SpendWindow::Total, Some(limit_pico));
    let limits = LimitsChange { from: Some(total(1_000)), to: total(50) };
    let change = KeyChange { limits: Some(limits), ..KeyChange::default() };
    other.set_key(OPERATOR, leased.two.key, change).unwrap();
    let first = leased.two.pledge(host, "r_second", 50).unwrap();
    assert!(leased.two.pledge(host, "r_third", 20).is_err());
    settle(first, 50);
    host.flush().unwrap();
    let late = host.reserve(leased.two.row("r_fourth")).now().and_then(|it| it.pledge(1).now());
    assert!(late.is_err());
    until(|| leased.intents() == 0);
}

#[test]
fn a_request_that_runs_for_long_has_an_intent_of_its_own() {
    let Some(leased) = Leased::new("leased_long", Some(10_000), None) else { return };
    leased.with_slice(100);
    let [host, other] = &leased.two.hosts;
    let long = leased.two.pledge(host, "r_long", 70).unwrap();
    leased.clock.advance(Duration::from_secs(10));
    until(|| leased.intents() == 1 && leased.money() == (0, 70));
    let live = || BTreeSet::from([other.host_id().unwrap().to_string()]);
    assert_eq!(other.charge_interrupted(live).unwrap(), 1);
    other.flush().unwrap();
    settle(long, 5);
    host.flush().unwrap();
    let expected = [("r_first".to_owned(), 0, false), ("r_long".to_owned(), 70, true)];
    assert_eq!(leased.rows(), expected.into());
    leased.two.is_whole();
}

#[test]
fn a_request_that_gets_its_intent_twice_in_one_commit_leaves_other_requests_their_part() {
    let Some(leased) = Leased::new("leased_twice", Some(10_000), None) else { return };
    leased.with_slice(100);
    let [host, _] = &leased.two.hosts;
    let long = leased.two.pledge(host, "r_long", 70).unwrap();
    let other = leased.two.pledge(host, "r_other", 30).unwrap();
    leased.clock.advance(Duration::from_secs(10));
    // In the order of their beginning.
    let request = host.due_slices().into_iter().flat_map(|due| due.movers).next().unwrap();
    let twice = move |batch: &mut WriteBatch| {
        Arc::clone(&request).own_intent(batch)?;
        Arc::clone(&request).own_intent(batch)
    };
    host.make(guarded([Guard::Account(leased.two.workspace)], twice)).unwrap();
    settle(other, 30);
    host.flush().unwrap();
    settle(long, 60);
    host.flush().unwrap();
    assert_eq!(leased.money().0, 90);
    let expected = [("r_first", 0), ("r_long", 60), ("r_other", 30)];
    assert_eq!(leased.rows(), expected.map(|(request, cost)| (request.to_owned(), cost, false)).into());
    leased.two.is_whole();
}

#[test]
fn a_request_that_is_refused_more_after_it_got_an_intent_ends_with_a_row() {
    let Some(leased) = Leased::new("leased_refused", Some(400), None) else { return };
    leased.with_slice(40);
    let [host, other] = &leased.two.hosts;
    let long = leased.two.pledge(host, "r_long", 40).unwrap();
    let most = leased.two.pledge(other, "r_most", 360).unwrap();
    // Its intent is written by the commit that refuses it more: both wait for the one before.
    let ((begun, is_begun), (go_on, goes_on)) = (mpsc::sync_channel(1), mpsc::sync_channel::<()>(1));
    let goes_on = Mutex::new(goes_on);
    let waits = move |_: &mut WriteBatch| {
        begun.try_send(()).unwrap_or_default();
        goes_on.lock().unwrap().recv().unwrap_or_default();
        Ok(())
    };
    let refused = std::thread::scope(|scope| {
        scope.spawn(|| host.make(guarded([Guard::Account(leased.two.workspace)], waits)).unwrap());
        is_begun.recv().unwrap();
        leased.clock.advance(Duration::from_secs(10));
        let asks = scope.spawn(|| long.0.pledge(100).now().map(drop));
        until(|| host.status().queued_mutations == 2);
        drop(go_on);
        asks.join().unwrap().unwrap_err()
    });
    assert!(refused.is_busy(), "{refused}");
    drop(long.1);
    long.0.release();
    settle(most, 0);
    host.flush().unwrap();
    leased.clock.advance(Duration::from_secs(3));
    until(|| leased.intents() == 0);
    leased.two.is_whole();
}

#[test]
fn the_intent_of_a_request_that_ran_for_long_ends_with_its_row() {
    let Some(leased) = Leased::new("leased_ended", Some(10_000), None) else { return };
    leased.with_slice(100);
    let [host, _] = &leased.two.hosts;
    let long = leased.two.pledge(host, "r_long", 70).unwrap();
    leased.clock.advance(Duration::from_secs(10));
    until(|| leased.intents() == 1 && leased.money() == (0, 70));
    // Its next part is reserved as without slices.
    let more = long.0.pledge(200).now().unwrap().unwrap();
    long.0.commit_intent().now().unwrap();
    assert!(leased.money().1 >= 270);
    drop(more);
    settle(long, 60);
    host.flush().unwrap();
    leased.clock.advance(Duration::from_secs(3));
    until(|| leased.intents() == 0);
    assert_eq!(leased.money(), (60, 0));
}

#[test]
fn a_host_that_slept_is_charged_once_and_goes_on() {
    let Some(place) = Place::new("leased_slept") else { return };
    place.create().unwrap();
    let proxy = Proxy::start(place.address.port).unwrap();
    let way = Database::of_test(&place.address.at(proxy.port()));
    let clock = Clock::system();
    let hosts = [open(&place, &way, &clock), open(&place, &place.database, &clock)];
    let two = Two::of(hosts, Some(10_000), None);
    let leased = Leased { name: "leased_slept", place, two, clock };
    let [slept, other] = &leased.two.hosts;
    // Two that run when the slice is written last; and one that begins later, which no row tells of.
    settle(leased.two.pledge(slept, "r_first", 1_000).unwrap(), 1);
    let running = leased.two.pledge(slept, "r_running", 300).unwrap();
    let ended = leased.two.pledge(slept, "r_ended", 200).unwrap();
    settle(leased.two.pledge(slept, "r_small", 10).unwrap(), 2);
    slept.flush().unwrap();
    let was = slept.host_id().unwrap();
    proxy.fall_silent();
    let unseen = leased.two.pledge(slept, "r_unseen", 100).unwrap();
    settle(ended, 7);
    until(|| leased.money() == (503, 0));
    assert_eq!(leased.intents(), 0);
    proxy.release();
    let has_contact = || slept.reserve(leased.two.row("r_look")).now().map(|it| it.release()).is_ok();
    until(|| slept.host_id().unwrap() != was && has_contact() && slept.flush().is_ok());
    settle(leased.two.pledge(slept, "r_again", 9).unwrap(), 9);
    settle(running, 30);
    settle(unseen, 40);
    slept.flush().unwrap();
    let (charged, counted): (Vec<_>, Vec<_>) = leased.rows().into_iter().partition(|(.., is_cut)| *is_cut);
    assert_eq!(charged.iter().map(|(_, cost, _)| *cost).collect::<Vec<_>>(), [500]);
    let counted: Vec<&str> = counted.iter().map(|(id, ..)| &**id).collect();
    assert_eq!(counted, ["r_again", "r_first", "r_small"], "what was charged counts no more");
    assert_eq!(leased.money().0, 512);
    other.flush().unwrap();
    leased.two.is_whole();
    drop(leased.place);
}

#[test]
fn a_host_that_ends_gives_its_slices_back() {
    let Some(leased) = Leased::new("leased_ends", Some(10_000), None) else { return };
    leased.with_slice(100);
    leased.two.hosts[0].close();
    assert_eq!(leased.money(), (0, 0));
    assert_eq!(leased.intents(), 0);
}
