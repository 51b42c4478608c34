//! Tests of requests that spend in several parts, some of them at the same time.

use super::*;

/// What the next start charges for requests that were running when the process ended.
fn interrupted(scratch: &ScratchDirectory, store: &Store, running: Vec<Reservation>) -> Vec<u64> {
    store.close();
    running.into_iter().for_each(std::mem::forget);
    let store = scratch.open();
    let costs = rows(&store).into_iter().map(|(_, outcome, cost)| {
        assert_eq!(outcome, UsageOutcome::Interrupted);
        cost
    });
    let costs = costs.collect();
    store.close();
    costs
}

/// A workspace with credit, and a request of its key with a reservation of zero.
fn prepaid(scratch: &ScratchDirectory, credit: u64) -> (Store, Reservation) {
    let store = scratch.open();
    let key = key(&store);
    store.add_credit(OPERATOR, workspace(&store), credit).unwrap();
    let reservation = reserve(&store, key, 0).unwrap();
    (store, reservation)
}

fn pledge(reservation: &Reservation, estimate: u64) -> Result<Pledge, ReservationRefused> {
    reservation.pledge(estimate).now().map(Option::unwrap)
}

fn wait<F: Future<Output = Result<(), Error>>>(future: F) {
    pending::wait(future, SOON).unwrap().unwrap();
}

#[test]
fn parallel_parts_share_what_is_left_and_a_finished_part_gives_back_the_rest() {
    let (store, request) = prepaid(&ScratchDirectory::new(), 100);
    let mut first = pledge(&request, 60).unwrap();
    assert_eq!(pledge(&request, 60).unwrap_err(), BUSY, "a part that does not fit runs alone");
    let second = pledge(&request, 40).unwrap();
    assert_eq!(balance(&store), (Some(100), 0, 100));
    assert_eq!(pledge(&request, 1).unwrap_err(), BUSY, "all of it may be spent already");
    drop(pledge(&request, 0).unwrap());
    request.spend(Some(&mut first), |row| row.cost_pico = 15);
    assert_eq!(pledge(&request, 1).unwrap_err(), BUSY);
    drop(first);
    assert_eq!(pledge(&request, 500).unwrap_err(), BUSY);
    let third = pledge(&request, 45).unwrap();
    assert_eq!(balance(&store), (Some(100), 0, 100));
    drop((second, third));
    drop(pledge(&request, 500).unwrap());
    assert_eq!(balance(&store), (Some(100), 0, 100), "alone it holds what is left");
    settle(&request, 20);
    assert_eq!(balance(&store), (Some(100), 20, 0));
}

#[test]
fn a_part_that_costs_more_than_it_pledged_takes_nothing_from_the_others() {
    let (store, request) = prepaid(&ScratchDirectory::new(), 1_000);
    let mut dear = pledge(&request, 10).unwrap();
    let _other = pledge(&request, 30).unwrap();
    request.spend(Some(&mut dear), |row| row.cost_pico = 50);
    assert_eq!(balance(&store).2, 80);
}

#[test]
fn the_intent_is_written_again_only_when_the_reservation_grows() {
    let scratch = ScratchDirectory::new();
    let (store, request) = prepaid(&scratch, 1_000);
    let first = pledge(&request, 40).unwrap();
    wait(request.commit_intent());
    let seq = store.status().seq;
    drop(first);
    request.note(|row| row.cost_pico = 5);
    let _second = pledge(&request, 30).unwrap();
    wait(request.commit_intent());
    assert_eq!(store.status().seq, seq, "40 were enough");
    let _question = pledge(&request, 50).unwrap();
    wait(request.commit_intent());
    assert_eq!(store.status().seq, seq + 1);
    assert_eq!(interrupted(&scratch, &store, vec![request]), [85]);
}

#[test]
fn an_intent_gets_its_model_and_provider_when_the_request_is_sent() {
    let scratch = ScratchDirectory::new();
    let (store, request) = prepaid(&scratch, 1_000);
    let _question = pledge(&request, 40).unwrap();
    wait(request.commit_intent());
    request.note(|row| "vendor/model".clone_into(&mut row.model));
    wait(request.commit_intent());
    store.close();
    std::mem::forget(request);
    assert_eq!(scratch.open().usage_rows(1).now().unwrap()[0].model, "vendor/model");
}

#[test]
fn intents_of_one_request_that_overtake_each_other_cover_the_whole_reservation() {
    let scratch = ScratchDirectory::new();
    let (store, request) = prepaid(&scratch, 1_000);
    let _one = pledge(&request, 10).unwrap();
    // The first intent is in the writer's queue when the second part pledges, and can be committed
    // at any time from then on.
    pending::wait(async { futures_poll_once(request.commit_intent()).await }, SOON);
    let _two = pledge(&request, 20).unwrap();
    wait(request.commit_intent());
    wait(request.commit_intent());
    assert_eq!(interrupted(&scratch, &store, vec![request]), [30]);
}

#[test]
fn a_part_that_ends_after_its_request_reserves_and_writes_nothing() {
    let scratch = ScratchDirectory::new();
    let (store, request) = prepaid(&scratch, 100);
    let mut late = pledge(&request, 10).unwrap();
    settle(&request, 3);
    request.spend(Some(&mut late), |row| row.cost_pico = 50);
    let _nothing = pledge(&request, 20).unwrap();
    wait(request.commit_intent());
    drop(late);
    assert_eq!(balance(&store), (Some(100), 3, 0));
    store.close();
    assert_eq!(rows(&scratch.open()).len(), 1, "no intent was left");
}
