use super::*;
use crate::scratch::{Scratch, issue_key};
use crate::usage::{UsageKind, UsageOutcome};

const SOON: Duration = Duration::from_millis(1);

fn job() -> Job {
    Box::new(|_| Box::new(|_| {}))
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
fn whatever_waits_becomes_one_group_up_to_the_limit() {
    let queue = Queue::default();
    let row = row();
    for _ in 0..GROUP_JOBS_MAX + 3 {
        queue.push(job(), SOON).unwrap();
    }
    queue.push_usage(row).unwrap();
    let group = queue.next().unwrap();
    assert_eq!((group.jobs.len(), group.usage.len()), (GROUP_JOBS_MAX, 1));
    assert_eq!(queue.next().unwrap().jobs.len(), 3);
}

#[test]
fn usage_rows_alone_are_written_after_a_moment() {
    let queue = Queue::default();
    queue.push_usage(row()).unwrap();
    let group = queue.next().unwrap();
    assert_eq!((group.jobs.len(), group.usage.len()), (0, 1));
}

#[test]
fn a_full_queue_refuses_rows_at_once_and_jobs_after_waiting() {
    let queue = Queue::default();
    let row = row();
    for _ in 0..USAGE_ROWS_MAX {
        queue.push_usage(row.clone()).unwrap();
    }
    assert_eq!(queue.push_usage(row), Err(QueueFull));
    for _ in 0..JOBS_MAX {
        queue.push(job(), SOON).unwrap();
    }
    assert!(matches!(queue.push(job(), SOON), Err(Error::Busy)));
    assert_eq!(queue.lengths(), (JOBS_MAX, USAGE_ROWS_MAX));
}

#[test]
fn a_closed_queue_hands_out_the_rest_and_then_ends() {
    let queue = Queue::default();
    queue.push(job(), SOON).unwrap();
    queue.close();
    assert!(matches!(queue.push(job(), SOON), Err(Error::Closed)));
    assert_eq!(queue.next().unwrap().jobs.len(), 1);
    assert!(queue.next().is_none());
}
