use super::*;
use crate::changes::{RowIntent, guarded};
use crate::clock::Clock;
use crate::commit::CommitHead;
use crate::ids::WorkspaceId;
use crate::pending::{self, Pending};
use crate::published::PublishedState;
use crate::rows::SetHash;
use crate::usage::{UsageKind, UsageRow};

const SOON: Duration = Duration::from_millis(1);

struct Nothing;

impl Job for Nothing {
    fn guards(&self) -> Vec<Guard> {
        Vec::new()
    }

    fn needs(&self) -> Vec<Need> {
        Vec::new()
    }

    fn answer_after(&self) -> AnswerAfter {
        AnswerAfter::AllHosts
    }

    fn take(&self) -> bool {
        true
    }

    fn apply(&mut self, _: &mut WriteBatch) -> Result<(), Gap> {
        Ok(())
    }

    fn answer(self: Box<Self>, _: Ended) {}
}

fn job() -> Box<dyn Job> {
    Box::new(Nothing)
}

fn permit(queue: &WriteQueue) -> QueuePermit {
    pending::wait(queue.queue_permit(), SOON).unwrap().unwrap()
}

fn jobs(queue: &WriteQueue) -> usize {
    std::iter::from_fn(|| queue.take_job()).count()
}

fn row() -> SettledUsage {
    let (workspace, key) = (WorkspaceId::from_bytes([7; 16]), "abcdefghijkl".parse().unwrap());
    let row = UsageRow::begun("r".to_owned(), workspace, key, UsageKind::Embeddings, true);
    SettledUsage { row, intent: RowIntent::None }
}

#[test]
fn mutations_and_rows_are_taken_in_order() {
    let queue = WriteQueue::default();
    for _ in 0..3 {
        queue.push(permit(&queue), job());
    }
    queue.push_usage(row()).unwrap();
    assert!(queue.wait(1));
    assert_eq!((jobs(&queue), queue.take_rows().usage.len()), (3, 1));
    assert_eq!(queue.lengths(), (0, 0));
}

#[test]
fn a_mutation_whose_caller_has_given_up_is_not_taken() {
    let queue = WriteQueue::default();
    let nothing = CommitHead { seq: 0, head: [0; 32], set: SetHash::default(), heads: SetHash::default() };
    let shared = Arc::new(PublishedState::new(Arc::default(), nothing, Clock::manual()));
    let mut callers: Vec<Pending<()>> = (0..3)
        .map(|_| {
            let (answer, caller) = Pending::new(Arc::clone(&shared));
            queue.push(permit(&queue), crate::queue::job(guarded([], |_| Ok(())), answer));
            caller
        })
        .collect();
    let last = callers.pop().unwrap();
    // Dropping the wait does not withdraw the mutation.
    drop(callers.pop());
    assert!(matches!(callers.pop().unwrap().wait(SOON), Err(Error::Busy)));
    let taken: Vec<_> = std::iter::from_fn(|| queue.take_job()).collect();
    assert_eq!(taken.len(), 2);
    assert!(matches!(last.wait(SOON), Err(Error::TimedOut)), "the writer has it");
    assert_eq!(queue.permits.available_permits(), JOBS_MAX);
}

#[test]
fn usage_rows_without_mutations_are_taken_after_a_delay() {
    let queue = WriteQueue::default();
    queue.push_usage(row()).unwrap();
    assert!(queue.wait(1));
    assert_eq!((jobs(&queue), queue.take_rows().usage.len()), (0, 1));
}

#[test]
fn a_full_queue_refuses_new_requests_and_has_no_permits() {
    let queue = WriteQueue::default();
    for _ in 0..USAGE_ROWS_MAX {
        assert!(queue.has_room());
        queue.push_usage(row()).unwrap();
    }
    assert!(!queue.has_room());
    let unused = permit(&queue);
    for _ in 1..JOBS_MAX {
        queue.push(permit(&queue), job());
    }
    assert!(pending::wait(queue.queue_permit(), SOON).is_none());
    assert_eq!(queue.lengths(), (JOBS_MAX - 1, USAGE_ROWS_MAX));
    assert_eq!(queue.take_rows().usage.len(), USAGE_ROWS_MAX);
    assert!(queue.has_room());
    // A permit that was dropped unused, or whose mutation the writer took, can be used again.
    drop(unused);
    let unused = permit(&queue);
    assert!(pending::wait(queue.queue_permit(), SOON).is_none());
    assert!(queue.take_job().is_some());
    drop((permit(&queue), unused));
}

#[test]
fn a_closed_queue_gives_the_waiting_mutations_and_then_ends() {
    let queue = WriteQueue::default();
    let late = permit(&queue);
    queue.push(permit(&queue), job());
    queue.close();
    assert!(matches!(pending::wait(queue.queue_permit(), SOON), Some(Err(Error::Closed))));
    queue.push(late, job());
    assert!(queue.wait(1));
    assert_eq!(jobs(&queue), 1);
    assert!(!queue.wait(1));
}

#[test]
fn a_group_waits_briefly_for_as_many_mutations_as_the_previous_one() {
    let queue = Arc::new(WriteQueue::default());
    queue.push(permit(&queue), job());
    // No other mutation arrives, so the wait ends after its time.
    assert!(queue.wait(2));
    assert_eq!(jobs(&queue), 1);
    let other = Arc::clone(&queue);
    let pushes = std::thread::spawn(move || (0..100).for_each(|_| other.push(permit(&other), job())));
    let mut taken = 0;
    while taken < 100 {
        assert!(queue.wait(100 - taken));
        taken += jobs(&queue);
    }
    pushes.join().unwrap();
    assert_eq!(queue.lengths(), (0, 0));
}
