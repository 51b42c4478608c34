mod funds;
mod model;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::audit::{Actor, AuditAction};
use crate::changes::{KeyChange, KeyOwner, LimitsChange, NewKey};
use crate::error::Error;
use crate::pending;
use crate::scratch::{Now, ScratchDirectory, create_workspace, go_on};
use crate::spend::{DAY_MS, UsageDay};
use crate::store::{Pledge, Reservation, Store};
use crate::usage::{UsageBy, UsageKind, UsageLabel, UsageOutcome, UsageQuery, UsageTotals};

const OPERATOR: Actor = Actor::Operator;
const SOON: Duration = Duration::from_secs(60);
/// The refusal when nothing is left.
const SPENT: ReservationRefused = ReservationRefused::Credit { is_busy: false };
/// The refusal when reservations of other requests leave too little.
const BUSY: ReservationRefused = ReservationRefused::Credit { is_busy: true };

fn workspace(store: &Store) -> WorkspaceId {
    store.directory().find_workspace("default").unwrap().id
}

fn key_with(store: &Store, limits: SpendLimits) -> KeyId {
    let owner = KeyOwner::Member { workspace: workspace(store), member: None };
    let new = NewKey { owner, name: None, expires_at_ms: None, limits };
    store.issue_key(OPERATOR, new).unwrap().key.id
}

fn key(store: &Store) -> KeyId {
    key_with(store, SpendLimits::default())
}

fn begun(store: &Store, key: KeyId, request_id: &str) -> UsageRow {
    UsageRow::begun(request_id.to_owned(), workspace(store), key, UsageKind::Responses, false)
}

/// Opens a request and reserves its estimate.
fn opened(
    store: &Store,
    key: KeyId,
    request_id: &str,
    estimate: u64,
) -> Result<Reservation, ReservationRefused> {
    let reservation = store.reserve(begun(store, key, request_id)).now()?;
    match reservation.pledge(estimate).now() {
        Ok(_) => Ok(reservation),
        Err(refused) => {
            reservation.release();
            Err(refused)
        }
    }
}

/// The same with an id of its own.
fn reserve(store: &Store, key: KeyId, estimate: u64) -> Result<Reservation, ReservationRefused> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    opened(store, key, &format!("r_{}", NUMBER.fetch_add(1, Ordering::Relaxed)), estimate)
}

fn settle(reservation: &Reservation, cost: u64) {
    reservation.note(|row| row.cost_pico = cost);
    reservation.settle(UsageOutcome::Completed);
}

fn write_intent(reservation: &Reservation) {
    pending::wait(reservation.commit_intent(), SOON).unwrap().unwrap();
}

/// Credit, spend and reservations.
fn balance(store: &Store) -> (Option<u64>, u64, u64) {
    let Balance { credited_pico, spent_pico, reserved_pico } = store.balance(workspace(store)).now().unwrap();
    (credited_pico, spent_pico, reserved_pico)
}

fn rows(store: &Store) -> Vec<(String, UsageOutcome, u64)> {
    store.flush().unwrap();
    let rows = store.usage_rows(100).now().unwrap();
    rows.into_iter().map(|row| (row.request_id, row.outcome, row.cost_pico)).collect()
}

#[test]
fn without_limits_nothing_is_reserved_and_everything_is_counted() {
    let store = ScratchDirectory::new().open();
    let key = key(&store);
    let seq = store.status().seq;
    let reservation = reserve(&store, key, u64::MAX).unwrap();
    write_intent(&reservation);
    assert_eq!(balance(&store), (None, 0, 0));
    assert_eq!(store.status().seq, seq, "nothing was committed");
    settle(&reservation, 5);
    assert_eq!(balance(&store), (None, 5, 0));
    assert_eq!(store.key_spend(key).now().unwrap().charged.day_pico, 5);
}

#[test]
fn requests_share_the_remaining_credit_and_one_that_runs_alone_may_overdraw_it() {
    let store = ScratchDirectory::new().open();
    let key = key(&store);
    settle(&reserve(&store, key, 1).unwrap(), 1_000);
    store.flush().unwrap();
    store.add_credit(OPERATOR, workspace(&store), 100).unwrap();
    assert_eq!(balance(&store), (Some(100), 0, 0), "what was spent before does not count");
    let first = reserve(&store, key, 60).unwrap();
    assert_eq!(reserve(&store, key, 41).unwrap_err(), BUSY, "40 are left beside the first");
    let second = reserve(&store, key, 40).unwrap();
    assert_eq!(balance(&store), (Some(100), 0, 100));
    assert_eq!(reserve(&store, key, 1).unwrap_err(), BUSY);
    drop(reserve(&store, key, 0).unwrap());
    settle(&first, 10);
    assert_eq!(balance(&store), (Some(100), 10, 40));
    assert_eq!(reserve(&store, key, 500).unwrap_err(), BUSY, "more than is left, and the second runs");
    drop(second);
    let alone = reserve(&store, key, 500).unwrap();
    assert_eq!(balance(&store), (Some(100), 10, 90), "alone it holds what is left");
    assert_eq!(reserve(&store, key, 1).unwrap_err(), BUSY);
    // A request that runs alone may cost more than is left.
    settle(&alone, 100);
    let balance = store.balance(workspace(&store)).now().unwrap();
    assert_eq!(balance.left_pico(), Some(-10));
    assert_eq!(reserve(&store, key, 1).unwrap_err(), SPENT);
    store.add_credit(OPERATOR, workspace(&store), 11).unwrap();
    assert!(reserve(&store, key, 1).is_ok());
    store.set_unlimited(OPERATOR, workspace(&store)).unwrap();
    assert!(reserve(&store, key, 9).unwrap().pledge(9).now().unwrap().is_none());
}

#[test]
fn a_key_with_little_left_does_not_make_its_workspace_reserve_little() {
    let store = ScratchDirectory::new().open();
    store.add_credit(OPERATOR, workspace(&store), 100).unwrap();
    let limits = SpendLimits { total_pico: Some(1), ..SpendLimits::default() };
    let [first, second] = [(); 2].map(|()| key_with(&store, limits));
    let open = reserve(&store, first, 90).unwrap();
    assert_eq!(balance(&store), (Some(100), 0, 90), "it may cost so much, alone on its key");
    assert_eq!(reserve(&store, second, 90).unwrap_err(), BUSY, "10 are left of the credit");
    settle(&open, 90);
    assert_eq!(balance(&store), (Some(100), 90, 0));
}

#[test]
fn a_reservation_grows_to_what_its_request_has_spent() {
    let store = ScratchDirectory::new().open();
    let key = key(&store);
    store.add_credit(OPERATOR, workspace(&store), 100).unwrap();
    let reservation = reserve(&store, key, 0).unwrap();
    reservation.note(|row| row.cost_pico = 30);
    assert_eq!(balance(&store), (Some(100), 0, 30));
    let pledge = reservation.pledge(200).now().unwrap();
    assert_eq!(balance(&store), (Some(100), 0, 100), "as much as is left beside what was spent");
    drop(pledge);
    assert_eq!(balance(&store), (Some(100), 0, 100), "what is held is held until the end");
    reservation.note(|row| row.cost_pico = 120);
    assert_eq!(balance(&store), (Some(100), 0, 120));
    assert_eq!(reserve(&store, key, 1).unwrap_err(), BUSY);
    reservation.settle(UsageOutcome::Incomplete);
    assert_eq!(balance(&store), (Some(100), 120, 0));
}

#[test]
fn a_cost_that_falls_and_rises_again_uses_its_pledge_once() {
    let store = ScratchDirectory::new().open();
    let key = key(&store);
    store.add_credit(OPERATOR, workspace(&store), 1_000).unwrap();
    let reservation = reserve(&store, key, 0).unwrap();
    let mut pledge = reservation.pledge(100).now().unwrap().unwrap();
    for (cost, left) in [(50, 50), (20, 80), (70, 30), (130, 0), (90, 40)] {
        reservation.spend(Some(&mut pledge), |row| row.cost_pico = cost);
        assert_eq!(pledge.left_pico(), left, "after a cost of {cost}");
    }
}

#[test]
fn a_key_is_refused_until_its_exhausted_window_ends() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let limits = SpendLimits { day_pico: Some(10), week_pico: None, month_pico: Some(25), total_pico: None };
    let limited = key_with(&store, limits);
    let refused = |window: SpendWindow, limit_pico, is_busy| ReservationRefused::KeyLimit {
        window,
        limit_pico,
        resets_at_ms: window.resets_at_ms(scratch.clock.now_ms()),
        is_busy,
    };
    settle(&reserve(&store, limited, 4).unwrap(), 9);
    let open = reserve(&store, limited, 50).unwrap();
    assert_eq!(store.key_spend(limited).now().unwrap().reserved_pico, 16, "what is left of the month");
    assert_eq!(reserve(&store, limited, 1).unwrap_err(), refused(SpendWindow::Day, 10, true));
    settle(&open, 2);
    assert_eq!(reserve(&store, limited, 1).unwrap_err(), refused(SpendWindow::Day, 10, false));
    let other = key(&store);
    assert!(reserve(&store, other, 1).is_ok(), "another key has limits of its own");
    scratch.clock.advance(Duration::from_millis(DAY_MS));
    settle(&reserve(&store, limited, 1).unwrap(), 14);
    scratch.clock.advance(Duration::from_millis(DAY_MS));
    assert_eq!(reserve(&store, limited, 1).unwrap_err(), refused(SpendWindow::Month, 25, false));
    let spend = store.key_spend(limited).now().unwrap();
    assert_eq!(spend.charged, WindowSpend { day_pico: 0, week_pico: 25, month_pico: 25, total_pico: 25 });
    assert_eq!(spend.tightest(&limits), Some((SpendWindow::Month, 0)));
    let change = LimitsChange { from: Some(limits), to: limits.with(SpendWindow::Month, Some(26)) };
    let change = || KeyChange { limits: Some(change), ..KeyChange::default() };
    store.set_key(OPERATOR, limited, change()).unwrap();
    // The key has other limits now than this change was made from.
    assert!(matches!(store.set_key(OPERATOR, limited, change()), Err(Error::LimitsChanged)));
    assert!(reserve(&store, limited, 1).is_ok());
}

#[test]
fn a_released_request_leaves_nothing_and_a_dropped_one_is_cancelled() {
    let store = ScratchDirectory::new().open();
    let key = key(&store);
    store.add_credit(OPERATOR, workspace(&store), 100).unwrap();
    reserve(&store, key, 10).unwrap().release();
    drop(opened(&store, key, "dropped", 10).unwrap());
    let spent = opened(&store, key, "spent", 10).unwrap();
    spent.note(|row| row.cost_pico = 3);
    spent.release();
    let expected =
        [("spent".to_owned(), UsageOutcome::Failed, 3), ("dropped".to_owned(), UsageOutcome::Cancelled, 0)];
    assert_eq!(rows(&store), expected);
    assert_eq!(balance(&store), (Some(100), 3, 0));
}

#[test]
fn an_intent_is_removed_by_its_row_or_charged_once_without_one() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let key = key(&store);
    store.add_credit(OPERATOR, workspace(&store), 100).unwrap();
    let ended = opened(&store, key, "ended", 10).unwrap();
    write_intent(&ended);
    let seq = store.status().seq;
    write_intent(&ended);
    assert_eq!(store.status().seq, seq, "it covers all that is held");
    settle(&ended, 7);
    let lost = opened(&store, key, "lost", 20).unwrap();
    lost.note(|row| "vendor/model".clone_into(&mut row.model));
    write_intent(&lost);
    store.flush().unwrap();
    // From here on as if the process had ended.
    store.close();
    std::mem::forget(lost);
    for _ in 0..3 {
        let store = scratch.open();
        let expected = [
            ("lost".to_owned(), UsageOutcome::Interrupted, 20),
            ("ended".to_owned(), UsageOutcome::Completed, 7),
        ];
        assert_eq!(rows(&store), expected);
        assert_eq!(balance(&store), (Some(100), 27, 0));
        assert_eq!(store.usage_rows(1).now().unwrap()[0].model, "vendor/model");
        assert!(store.verify(&mut go_on).unwrap().problems.is_empty());
        store.close();
    }
}

#[test]
fn an_intent_is_not_written_after_its_row_was_handed_over() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let key = key(&store);
    store.add_credit(OPERATOR, workspace(&store), 100).unwrap();
    // The client disconnects while the writer is about to write the intent.
    for _ in 0..50 {
        let reservation = reserve(&store, key, 10).unwrap();
        assert!(
            pending::wait(async { futures_poll_once(reservation.commit_intent()).await }, SOON).is_some()
        );
        drop(reservation);
    }
    assert_eq!(rows(&store).len(), 50);
    store.close();
    let store = scratch.open();
    assert_eq!(rows(&store).len(), 50, "no intent was left");
    assert_eq!(balance(&store), (Some(100), 0, 0));
}

/// Polls a future once and drops it.
async fn futures_poll_once<F: Future>(future: F) {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| {
        drop(future.as_mut().poll(context));
        std::task::Poll::Ready(())
    })
    .await;
}

#[test]
fn a_store_that_no_longer_writes_refuses_reservations() {
    let store = ScratchDirectory::new().open();
    let key = key(&store);
    let row = begun(&store, key, "r");
    store.close();
    assert_eq!(store.reserve(row).now().unwrap_err(), ReservationRefused::NoRoom);
}

#[test]
fn credit_is_audited_and_never_overflows() {
    let store = ScratchDirectory::new().open();
    let id = create_workspace(&store, "other").id;
    store.add_credit(OPERATOR, id, u64::MAX).unwrap();
    assert!(matches!(store.add_credit(OPERATOR, id, 1), Err(Error::TooMuchCredit)));
    store.set_unlimited(OPERATOR, id).unwrap();
    store.set_unlimited(OPERATOR, id).unwrap();
    let records = store.audit_records(0, 100).now().unwrap();
    let actions = records.into_iter().flat_map(|record| record.entries).map(|entry| entry.action);
    let about_credit: Vec<AuditAction> = actions
        .filter(|action| {
            matches!(action, AuditAction::CreditAdded { .. } | AuditAction::CreditUnlimited { .. })
        })
        .collect();
    let (amount_pico, credited_pico) = (u64::MAX, u64::MAX);
    assert_eq!(
        about_credit,
        [
            AuditAction::CreditAdded { workspace: id, amount_pico, credited_pico },
            AuditAction::CreditUnlimited { workspace: id, credited_pico },
        ]
    );
}

#[test]
fn reports_group_the_usage_of_their_days() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let (cheap, dear) = (key(&store), key(&store));
    let use_model = |key, model: &str, cost| {
        let reservation = reserve(&store, key, 0).unwrap();
        reservation.note(|row| {
            model.clone_into(&mut row.model);
            (row.cost_pico, row.input_tokens, row.attempts) = (cost, 2, 3);
        });
        reservation.settle(UsageOutcome::Completed);
    };
    let today = || UsageDay::of_ms(scratch.clock.now_ms());
    let first = today();
    use_model(cheap, "a/b", 1);
    use_model(dear, "a/b", 10);
    scratch.clock.advance(Duration::from_millis(DAY_MS));
    use_model(dear, "c/d", 5);
    drop(reserve(&store, dear, 0).unwrap());
    store.flush().unwrap();
    let report = |by, first, groups_max| {
        let query = UsageQuery { first, last: today(), by, workspace: None, groups_max };
        let report = store.usage_report(query).now().unwrap();
        let groups: Vec<_> =
            report.groups.iter().map(|group| (group.label.clone(), group.totals.cost_pico)).collect();
        (groups, report.others.cost_pico, report.sum)
    };
    let (groups, others, sum) = report(UsageBy::Key, first, 10);
    assert_eq!(groups, [(UsageLabel::Key(dear), 15), (UsageLabel::Key(cheap), 1)]);
    let all = UsageTotals { completed: 3, cancelled: 1, attempts: 9, input_tokens: 6, cost_pico: 16, ..sum };
    assert_eq!((others, sum, sum.requests()), (0, all, 4));
    assert_eq!(report(UsageBy::Key, first, 1).1, 1, "the rest is told as one");
    let (groups, _, _) = report(UsageBy::Day, first, 10);
    assert_eq!(groups, [(UsageLabel::Day(today()), 5), (UsageLabel::Day(first), 11)]);
    let (groups, _, _) = report(UsageBy::Model, today(), 10);
    assert_eq!(groups, [(UsageLabel::Model("c/d".to_owned()), 5), (UsageLabel::Model(String::new()), 0)]);
    scratch.clock.advance(Duration::from_millis(91 * DAY_MS));
    store.drop_old_totals().unwrap();
    let (groups, _, _) = report(UsageBy::Day, first, 10);
    assert_eq!(groups, [(UsageLabel::Day(UsageDay(first.0 + 1)), 5)], "a day is kept for 92 days");
    assert!(store.verify(&mut go_on).unwrap().problems.is_empty());
}

#[test]
fn a_backup_has_balances_sums_and_requests_in_progress() {
    let scratch = ScratchDirectory::new();
    let store = scratch.open();
    let key = key(&store);
    store.add_credit(OPERATOR, workspace(&store), 100).unwrap();
    settle(&reserve(&store, key, 10).unwrap(), 7);
    let running = opened(&store, key, "running", 20).unwrap();
    write_intent(&running);
    store.flush().unwrap();
    let backup = scratch.path("backup");
    store.backup(&backup, &mut go_on).unwrap();
    settle(&running, 5);
    assert_eq!(balance(&store), (Some(100), 12, 0));

    let other = ScratchDirectory::new();
    std::fs::copy(scratch.path("root.key"), other.path("root.key")).unwrap();
    Store::restore(&other.lock(), &other.options(), &backup, &mut go_on).unwrap();
    let restored = other.open();
    assert_eq!(balance(&restored), (Some(100), 27, 0), "what ran is charged what it had reserved");
    assert_eq!(rows(&restored)[0], ("running".to_owned(), UsageOutcome::Interrupted, 20));
    assert_eq!(restored.key_spend(key).now().unwrap().charged.total_pico, 27);
    assert!(restored.verify(&mut go_on).unwrap().problems.is_empty());
}
