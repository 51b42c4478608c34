//! Guests that use all the time of a thread, and how that affects its other tasks. Durations are
//! printed and not asserted, because tests run on busy machines.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_runtime::{CallErrorKind, Plugin, Runtime, tune};
use tokio::task::JoinHandle;

use crate::kit::{candidates, context, router, router_with_deadline, runtime, summary};

const TIMER: Duration = Duration::from_millis(2);
const ROUNDS: usize = 100;

/// The scheduler of one thread. The host has one for each processor.
fn scheduler() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    tune(&mut builder).enable_all().build().unwrap()
}

fn spinner(runtime: &Runtime) -> Arc<Plugin> {
    router_with_deadline(runtime, 60_000)
}

/// Delays of a 2 ms timer beyond its time, sorted.
async fn timer_delays() -> Vec<Duration> {
    let mut delays = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let started = Instant::now();
        tokio::time::sleep(TIMER).await;
        delays.push(started.elapsed().saturating_sub(TIMER));
    }
    delays.sort();
    delays
}

/// Starts guests that spin until they are aborted.
fn spin(spinner: &Arc<Plugin>, guests: usize) -> Vec<JoinHandle<()>> {
    let start = |_| {
        let spinner = Arc::clone(spinner);
        tokio::spawn(async move {
            loop {
                drop(spinner.route(&context(), &summary("loop"), &candidates(1), 0).await);
            }
        })
    };
    (0..guests).map(start).collect()
}

async fn abort(tasks: Vec<JoinHandle<()>>) {
    for task in tasks {
        task.abort();
        drop(task.await);
    }
}

async fn delays_beside(guests: usize) -> Vec<Duration> {
    let runtime = runtime();
    let spinner = spinner(&runtime);
    spinner.compile().await.unwrap();
    let tasks = spin(&spinner, guests);
    let delays = timer_delays().await;
    abort(tasks).await;
    assert_eq!(runtime.gauges().instances, 0);
    delays
}

#[test]
fn timers_fire_while_guests_spin() {
    let scheduler = scheduler();
    for guests in [1, 16, 64] {
        let delays = scheduler.block_on(delays_beside(guests));
        let at = |share: usize| delays[(ROUNDS - 1) * share / 100];
        println!("{guests} guests: timer late by p50 {:?} p99 {:?} max {:?}", at(50), at(99), at(100));
        assert_eq!(delays.len(), ROUNDS);
    }
}

#[test]
fn honest_guests_answer_while_others_spin() {
    let scheduler = scheduler();
    scheduler.block_on(async {
        let runtime = runtime();
        let (spinner, honest) = (spinner(&runtime), router(&runtime));
        spinner.compile().await.unwrap();
        honest.compile().await.unwrap();
        let tasks = spin(&spinner, 16);
        let calls = tokio::spawn(async move {
            let mut slowest = Duration::ZERO;
            for _ in 0..50 {
                let started = Instant::now();
                honest.route(&context(), &summary(""), &candidates(1), 0).await.unwrap().unwrap();
                slowest = slowest.max(started.elapsed());
            }
            slowest
        });
        println!("slowest honest call among 16 spinning guests: {:?}", calls.await.unwrap());
        abort(tasks).await;
    });
}

#[test]
fn budgets_hold_for_each_of_many_spinning_guests() {
    let scheduler = scheduler();
    scheduler.block_on(async {
        let runtime = runtime();
        let router = router_with_deadline(&runtime, 20);
        let calls: Vec<_> = (0..32)
            .map(|_| {
                let router = Arc::clone(&router);
                tokio::spawn(async move {
                    router.route(&context(), &summary("loop"), &candidates(1), 0).await.unwrap_err()
                })
            })
            .collect();
        let started = Instant::now();
        for call in calls {
            // On a busy machine the last of them may wait too long for a turn.
            let kind = call.await.unwrap().kind;
            assert!([CallErrorKind::OutOfTime, CallErrorKind::Saturated].contains(&kind), "{kind}");
        }
        println!("32 guests of 20 ms each ended after {:?}", started.elapsed());
        assert_eq!(runtime.gauges().instances, 0);
    });
}

#[test]
fn a_guest_that_sleeps_is_ended_by_the_wall_clock() {
    let scheduler = scheduler();
    scheduler.block_on(async {
        let runtime = runtime();
        let router = router_with_deadline(&runtime, 20);
        let error = router.route(&context(), &summary("sleep"), &candidates(1), 0).await.unwrap_err();
        assert_eq!(error.kind, CallErrorKind::OutOfTime);
    });
}
