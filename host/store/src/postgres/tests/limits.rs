//! Limits of what may be spent, with several hosts.

use std::collections::BTreeSet;
use std::sync::Arc;

use cofferdam_test_postgres::Proxy;

use super::stores::{Place, until};
use super::{OPERATOR, database, runtime};
use crate::changes::{KeyOwner, NewKey};
use crate::ids::WorkspaceId;
use crate::postgres::begin;
use crate::postgres::engine::ReadingRuntime;
use crate::scratch::{Now, create_workspace, go_on};
use crate::spend::{SpendLimits, SpendWindow};
use crate::store::{Pledge, Reservation, Store};
use crate::token::KeyId;
use crate::usage::{ReservationRefused, UsageKind, UsageOutcome, UsageRow};

/// Two hosts, and a workspace with one key.
pub(super) struct Two {
    pub(super) hosts: [Store; 2],
    pub(super) workspace: WorkspaceId,
    pub(super) key: KeyId,
}

impl Two {
    /// With this credit, and this limit of the key.
    fn new(place: &Place, credit_pico: Option<u64>, limit_pico: Option<u64>) -> Two {
        place.create().unwrap();
        Two::of([place.open(), place.open()], credit_pico, limit_pico)
    }

    /// The same of these hosts.
    pub(super) fn of(hosts: [Store; 2], credit_pico: Option<u64>, limit_pico: Option<u64>) -> Two {
        let [one, other] = &hosts;
        let workspace = create_workspace(one, "spenders").id;
        let owner = KeyOwner::Member { workspace, member: None };
        let limits = SpendLimits::default().with(SpendWindow::Total, limit_pico);
        let new = NewKey { owner, name: None, expires_at_ms: None, limits };
        let key = one.issue_key(OPERATOR, new).unwrap().key.id;
        if let Some(credit) = credit_pico {
            one.add_credit(OPERATOR, workspace, credit).unwrap();
        }
        until(|| {
            let seen = other.directory();
            seen.keys.get(&key).is_some()
                && seen.workspaces.get(&workspace).map(|it| it.credit)
                    == one.directory().workspaces.get(&workspace).map(|it| it.credit)
        });
        Two { hosts, workspace, key }
    }

    pub(super) fn row(&self, request: &str) -> UsageRow {
        UsageRow::begun(request.to_owned(), self.workspace, self.key, UsageKind::Responses, false)
    }

    pub(super) fn begin(&self, host: &Store, request: &str) -> Reservation {
        host.reserve(self.row(request)).now().unwrap()
    }

    /// A request that reserves this.
    pub(super) fn pledge(
        &self,
        host: &Store,
        request: &str,
        pico: u64,
    ) -> Result<(Reservation, Pledge), ReservationRefused> {
        let reservation = self.begin(host, request);
        reservation.note(|row| row.model = "m/one".to_owned());
        let pledge = reservation.pledge(pico).now()?.unwrap();
        reservation.commit_intent().now().unwrap();
        Ok((reservation, pledge))
    }

    pub(super) fn is_whole(&self) {
        let checked = self.hosts[0].verify(&mut go_on).unwrap();
        assert_eq!(checked.problems, Vec::<String>::new());
    }
}

pub(super) fn settle((reservation, mut pledge): (Reservation, Pledge), cost: u64) {
    reservation.spend(Some(&mut pledge), |row| row.cost_pico = cost);
    drop(pledge);
    reservation.settle(UsageOutcome::Completed);
}

/// The requests of 16 clients, half of them on each host.
fn many(two: &Two, pico: u64) -> Vec<Result<(Reservation, Pledge), ReservationRefused>> {
    std::thread::scope(|scope| {
        let ask = |client: usize| {
            scope.spawn(move || two.pledge(&two.hosts[client % 2], &format!("r_{client}"), pico))
        };
        let threads: Vec<_> = (0..16).map(ask).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn hosts_together_reserve_no_more_than_the_credit() {
    let Some(place) = Place::new("limits_credit") else { return };
    let two = Two::new(&place, Some(1_000), None);
    let (allowed, refused): (Vec<_>, Vec<_>) = many(&two, 100).into_iter().partition(Result::is_ok);
    assert_eq!((allowed.len(), refused.len()), (10, 6));
    for refused in refused {
        assert_eq!(refused.err(), Some(ReservationRefused::Credit { is_busy: true }));
    }
    for host in &two.hosts {
        let balance = host.balance(two.workspace).now().unwrap();
        assert_eq!((balance.spent_pico, balance.reserved_pico), (0, 1_000));
    }
    allowed.into_iter().for_each(|allowed| settle(allowed.unwrap(), 100));
    for host in &two.hosts {
        host.flush().unwrap();
    }
    for host in &two.hosts {
        let balance = host.balance(two.workspace).now().unwrap();
        assert_eq!((balance.spent_pico, balance.reserved_pico), (1_000, 0));
        let refused = host.reserve(two.row("late")).now().and_then(|it| it.pledge(1).now());
        assert_eq!(refused.err(), Some(ReservationRefused::Credit { is_busy: false }));
    }
    two.is_whole();
}

#[test]
fn hosts_together_reserve_no_more_than_the_limit_of_a_key() {
    let Some(place) = Place::new("limits_key") else { return };
    let two = Two::new(&place, None, Some(500));
    let (allowed, refused): (Vec<_>, Vec<_>) = many(&two, 100).into_iter().partition(Result::is_ok);
    assert_eq!((allowed.len(), refused.len()), (5, 11));
    for refused in refused {
        let window = SpendWindow::Total;
        let limit =
            ReservationRefused::KeyLimit { window, limit_pico: 500, resets_at_ms: None, is_busy: true };
        assert_eq!(refused.err(), Some(limit));
    }
    assert_eq!(two.hosts[1].key_spend(two.key).now().unwrap().reserved_pico, 500);
    allowed.into_iter().for_each(|allowed| settle(allowed.unwrap(), 30));
    for host in &two.hosts {
        host.flush().unwrap();
    }
    let spend = two.hosts[1].key_spend(two.key).now().unwrap();
    assert_eq!((spend.charged.of(SpendWindow::Total), spend.reserved_pico), (150, 0));
    two.is_whole();
}

#[test]
fn a_request_is_not_refused_for_one_that_has_just_ended_on_another_host() {
    let Some(place) = Place::new("limits_ended") else { return };
    let two = Two::new(&place, Some(1_000), None);
    let mut spent = 0;
    for round in 0..10 {
        let host = &two.hosts[round % 2];
        let request = two.pledge(host, &format!("r_{round}"), 900).unwrap();
        assert_eq!(request.1.left_pico(), 900.min(1_000 - spent));
        settle(request, 50);
        spent += 50;
    }
    two.hosts[1].flush().unwrap();
    assert_eq!(two.hosts[0].balance(two.workspace).now().unwrap().spent_pico, spent);
}

#[test]
fn parts_of_a_request_reserve_together_and_give_back() {
    let Some(place) = Place::new("limits_parts") else { return };
    let two = Two::new(&place, Some(1_000), None);
    let (request, first) = two.pledge(&two.hosts[0], "r_parts", 400).unwrap();
    let second = request.pledge(500).now().unwrap().unwrap();
    let refused = request.pledge(200).now().err();
    assert_eq!(refused, Some(ReservationRefused::Credit { is_busy: true }));
    assert!(two.pledge(&two.hosts[1], "r_other", 200).is_err());
    drop(first);
    // What the request has reserved stays its own.
    let third = request.pledge(300).now().unwrap().unwrap();
    assert_eq!(third.left_pico(), 300);
    assert_eq!(two.hosts[1].balance(two.workspace).now().unwrap().reserved_pico, 900);
    // What was spent beyond the reservation is covered before the next part is sent.
    request.note(|row| row.cost_pico = 250);
    request.commit_intent().now().unwrap();
    assert_eq!(two.hosts[1].balance(two.workspace).now().unwrap().reserved_pico, 1_050);
    drop((second, third));
    request.settle(UsageOutcome::Failed);
    two.hosts[0].flush().unwrap();
    let balance = two.hosts[1].balance(two.workspace).now().unwrap();
    assert_eq!((balance.spent_pico, balance.reserved_pico), (250, 0));
}

#[test]
fn a_refused_request_leaves_no_row_and_no_intent() {
    let Some(place) = Place::new("limits_refused") else { return };
    let two = Two::new(&place, Some(100), None);
    let kept = two.pledge(&two.hosts[0], "r_kept", 90).unwrap();
    let refused = two.begin(&two.hosts[1], "r_refused");
    assert!(refused.pledge(50).now().is_err());
    refused.release();
    settle(kept, 90);
    for host in &two.hosts {
        host.flush().unwrap();
    }
    let rows: Vec<String> =
        two.hosts[0].usage_rows(10).now().unwrap().into_iter().map(|row| row.request_id).collect();
    assert_eq!(rows, ["r_kept"]);
    assert_eq!(two.hosts[0].balance(two.workspace).now().unwrap().reserved_pico, 0);
}

#[test]
fn a_request_of_a_host_that_is_taken_for_dead_is_charged_once() {
    let Some(place) = Place::new("limits_dead") else { return };
    let two = Two::new(&place, Some(1_000), None);
    let [slept, other] = &two.hosts;
    let running = two.pledge(slept, "r_running", 300).unwrap();
    let ended = two.pledge(slept, "r_ended", 200).unwrap();
    let alive = two.pledge(other, "r_alive", 100).unwrap();
    let live = || BTreeSet::from([other.host_id().unwrap().to_string()]);
    // Two hosts find it dead, and one of them looks twice before its rows are committed.
    assert_eq!(other.charge_interrupted(live).unwrap(), 2);
    other.charge_interrupted(live).unwrap();
    let third = place.open();
    third.charge_interrupted(live).unwrap();
    for host in [other, &third] {
        host.flush().unwrap();
    }
    // The host goes on: its requests are charged already, and get nothing more.
    assert_eq!(running.0.pledge(10).now().err(), Some(ReservationRefused::Interrupted));
    settle(ended, 20);
    settle(running, 30);
    settle(alive, 40);
    for host in &two.hosts {
        host.flush().unwrap();
    }
    let rows: BTreeSet<(String, u64, bool)> = third
        .usage_rows(10)
        .now()
        .unwrap()
        .into_iter()
        .map(|row| (row.request_id, row.cost_pico, row.outcome == UsageOutcome::Interrupted))
        .collect();
    let expected = [("r_running", 300, true), ("r_ended", 200, true), ("r_alive", 40, false)];
    assert_eq!(rows, expected.map(|(id, cost, is_cut)| (id.to_owned(), cost, is_cut)).into());
    assert_eq!(third.usage_rows(10).now().unwrap().len(), 3, "none is there twice");
    let balance = slept.balance(two.workspace).now().unwrap();
    assert_eq!((balance.spent_pico, balance.reserved_pico), (540, 0));
    two.is_whole();
}

#[test]
fn a_request_that_asked_before_its_host_got_another_id_is_not_charged_as_one_of_the_host_that_ended() {
    let Some(place) = Place::new("limits_renamed") else { return };
    let two = Two::new(&place, Some(1_000), None);
    let [host, other] = &two.hosts;
    // The lane has a chain of the host that ends.
    settle(two.pledge(host, "r_before", 10).unwrap(), 10);
    host.flush().unwrap();
    let was = host.host_id().unwrap();
    let mut request = two.begin(host, "r_renamed");
    let (reading, database) = (ReadingRuntime::new().unwrap(), Arc::new(database(&place.address.url())));
    begin::leave(&database, reading.handle(), was);
    // It may be refused where the host has no contact for long, or ends it before the question waits. Then another
    // request asks.
    let pledge = (0..).find_map(|number| {
        let pledged = request.pledge(300).now().ok();
        if pledged.is_none() {
            std::mem::replace(&mut request, two.begin(host, &format!("r_renamed_{number}"))).release();
        }
        pledged
    });
    let pledge = pledge.unwrap().unwrap();
    until(|| host.host_id() != Some(was));
    let live = || two.hosts.iter().map(|host| host.host_id().unwrap().to_string()).collect();
    assert_eq!(other.charge_interrupted(live).unwrap(), 0);
    until(|| host.has_contact());
    settle((request, pledge), 20);
    host.flush().unwrap();
    let balance = other.balance(two.workspace).now().unwrap();
    assert_eq!((balance.spent_pico, balance.reserved_pico), (30, 0));
    two.is_whole();
}

#[test]
fn a_request_that_got_no_answer_to_its_reservation_has_one_row_when_its_host_is_taken_for_dead() {
    let Some(place) = Place::new("limits_unanswered") else { return };
    place.create().unwrap();
    let proxy = Proxy::start(place.address.port).unwrap();
    let two = Two::of([place.open_at(&place.address.at(proxy.port())), place.open()], Some(1_000), None);
    let [slept, other] = &two.hosts;
    let reserved = || other.balance(two.workspace).now().unwrap().reserved_pico;
    let request = two.begin(slept, "r_unanswered");
    runtime().block_on(async {
        tokio::select! {
            biased;
            _ = request.pledge(300) => panic!("the database has answered at once"),
            () = tokio::task::yield_now() => {}
        }
    });
    until(|| reserved() == 300);
    let was = slept.host_id();
    proxy.fall_silent();
    until(|| reserved() == 0);
    request.release();
    proxy.release();
    until(|| slept.host_id() != was && slept.flush().is_ok());
    let rows = other.usage_rows(10).now().unwrap();
    let rows: Vec<_> = rows.iter().map(|row| (row.request_id.as_str(), row.cost_pico, row.outcome)).collect();
    assert_eq!(rows, [("r_unanswered", 300, UsageOutcome::Interrupted)]);
    assert_eq!(other.balance(two.workspace).now().unwrap().spent_pico, 300);
    two.is_whole();
}
