use super::*;
use crate::pending;
use crate::scratch::{Scratch, issue_key};
use crate::usage::{UsageKind, UsageOutcome};

const SOON: Duration = Duration::from_millis(1);

fn job() -> Job {
    Box::new(|_| Box::new(|_| {}))
}

fn place(queue: &Queue) -> Place {
    pending::wait(queue.place(), SOON).unwrap().unwrap()
}

fn jobs(queue: &Queue) -> usize {
    std::iter::from_fn(|| queue.take_job()).count()
}

fn row() -> UsageRow {
    let scratch = Scratch::new();
    let store = scratch.open();
    let key = issue_key(&store).key;
    UsageRow {
        request_id: "r".to_owned(),
        at_ms: 0,
        workspace: key.workspace.unwrap(),
        key: key.id,
        kind: UsageKind::Embeddings,
        model: String::new(),
        provider: String::new(),
        input_tokens: 0,
        cached_tokens: 0,
        output_tokens: 0,
        reasoning_tokens: 0,
        cost_pico: 0,
        outcome: UsageOutcome::Failed,
        streamed: true,
    }
}

#[test]
fn whatever_waits_is_handed_out_in_order() {
    let queue = Queue::default();
    for _ in 0..3 {
        queue.push(place(&queue), job());
    }
    queue.push_usage(row()).unwrap();
    assert!(queue.wait(1));
    assert_eq!((jobs(&queue), queue.take_rows().usage.len()), (3, 1));
    assert_eq!(queue.lengths(), (0, 0));
}

#[test]
fn usage_rows_alone_are_written_after_a_moment() {
    let queue = Queue::default();
    queue.push_usage(row()).unwrap();
    assert!(queue.wait(1));
    assert_eq!((jobs(&queue), queue.take_rows().usage.len()), (0, 1));
}

#[test]
fn a_full_queue_refuses_rows_at_once_and_has_no_place() {
    let queue = Queue::default();
    let row = row();
    for _ in 0..USAGE_ROWS_MAX {
        queue.push_usage(row.clone()).unwrap();
    }
    assert_eq!(queue.push_usage(row), Err(QueueFull));
    let unused = place(&queue);
    for _ in 1..JOBS_MAX {
        queue.push(place(&queue), job());
    }
    assert!(pending::wait(queue.place(), SOON).is_none());
    assert_eq!(queue.lengths(), (JOBS_MAX - 1, USAGE_ROWS_MAX));
    // Given back unused, or taken by the writer: either makes room.
    drop(unused);
    let unused = place(&queue);
    assert!(pending::wait(queue.place(), SOON).is_none());
    assert!(queue.take_job().is_some());
    drop((place(&queue), unused));
}

#[test]
fn a_closed_queue_hands_out_the_rest_and_then_ends() {
    let queue = Queue::default();
    let late = place(&queue);
    queue.push(place(&queue), job());
    queue.close();
    assert!(matches!(pending::wait(queue.place(), SOON), Some(Err(Error::Closed))));
    queue.push(late, job());
    assert!(queue.wait(1));
    assert_eq!(jobs(&queue), 1);
    assert!(!queue.wait(1));
}

#[test]
fn a_group_waits_a_moment_for_as_many_as_the_last_one_had() {
    let queue = Arc::new(Queue::default());
    queue.push(place(&queue), job());
    // Nobody else comes: the moment passes.
    assert!(queue.wait(2));
    assert_eq!(jobs(&queue), 1);
    let other = Arc::clone(&queue);
    let pushes = std::thread::spawn(move || (0..100).for_each(|_| other.push(place(&other), job())));
    let mut taken = 0;
    while taken < 100 {
        assert!(queue.wait(100 - taken));
        taken += jobs(&queue);
    }
    pushes.join().unwrap();
    assert_eq!(queue.lengths(), (0, 0));
}
