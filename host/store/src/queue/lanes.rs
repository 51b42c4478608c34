//! The queues of all lanes of a store, as everything outside of the lanes uses them.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::{JOBS_MAX, Job, QueuePart, WriteQueue};
use crate::audit::AuditEntry;
use crate::changes::SettledUsage;
use crate::error::{Error, QueueFull};
use crate::ids::WorkspaceId;
use crate::pending::QueuePermit;

/// A queue for each lane. They share their permits.
///
/// What belongs to a workspace always goes to the same lane, so it is done in the order in which
/// this process took it.
pub(crate) struct LaneQueues {
    first: Arc<WriteQueue>,
    others: Vec<Arc<WriteQueue>>,
}

impl LaneQueues {
    /// Queues for so many lanes, at least one.
    pub(crate) fn new(lanes: usize) -> LaneQueues {
        let permits = Arc::new(Semaphore::new(JOBS_MAX));
        let queue = || Arc::new(WriteQueue::with(Arc::clone(&permits)));
        LaneQueues { first: queue(), others: (1..lanes).map(|_| queue()).collect() }
    }

    /// The queue of the first lane, which also takes what belongs to no workspace.
    pub(crate) fn first(&self) -> &Arc<WriteQueue> {
        &self.first
    }

    /// All queues, in the order of their lanes.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<WriteQueue>> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// Whether there is only one lane.
    pub(crate) fn is_one(&self) -> bool {
        self.others.is_empty()
    }

    /// The queue for what belongs to a workspace, or to none.
    pub(crate) fn of(&self, workspace: Option<WorkspaceId>) -> &Arc<WriteQueue> {
        let byte = workspace.and_then(|id| id.as_bytes().last().copied()).unwrap_or(0);
        let lane = usize::from(byte) % (self.others.len() + 1);
        lane.checked_sub(1).and_then(|other| self.others.get(other)).unwrap_or(&self.first)
    }

    /// See [`WriteQueue::queue_permit`]. The permit is for any of the queues.
    pub(crate) async fn queue_permit(&self) -> Result<QueuePermit, Error> {
        self.first.queue_permit().await
    }

    /// Adds a mutation of what belongs to a workspace, or to none. See [`WriteQueue::push`].
    pub(crate) fn push(&self, workspace: Option<WorkspaceId>, permit: QueuePermit, job: Box<dyn Job>) {
        self.of(workspace).push(permit, job);
    }

    /// Whether a request of this workspace that will leave a usage row may begin.
    pub(crate) fn has_room(&self, workspace: WorkspaceId) -> bool {
        self.of(Some(workspace)).has_room()
    }

    /// See [`WriteQueue::push_usage`].
    pub(crate) fn push_usage(&self, settled: SettledUsage) -> Result<(), QueueFull> {
        self.of(Some(settled.row.workspace)).push_usage(settled)
    }

    /// See [`WriteQueue::push_audit`].
    pub(crate) fn push_audit(&self, entry: AuditEntry) -> Result<(), QueueFull> {
        self.first.push_audit(entry)
    }

    /// See [`WriteQueue::close`].
    pub(crate) fn close(&self) {
        self.all().for_each(|queue| queue.close());
    }

    /// What waits, by its kind, and the most that is taken: changes of all queues, rows and entries of the fullest one.
    pub(crate) fn parts(&self) -> [QueuePart; 3] {
        let both = |one: [QueuePart; 3], other: [QueuePart; 3]| {
            let ([changes, usage, audit], [of_changes, of_usage, of_audit]) = (one, other);
            // Permits are shared; rows and entries have room in each queue.
            let changes = QueuePart { length: changes.length + of_changes.length, ..changes };
            [changes, usage.fuller(of_usage), audit.fuller(of_audit)]
        };
        self.others.iter().map(|queue| queue.parts()).fold(self.first.parts(), both)
    }

    /// Numbers of waiting mutations and usage rows.
    pub(crate) fn lengths(&self) -> (usize, usize) {
        let lengths = self.all().map(|queue| queue.lengths());
        lengths.fold((0, 0), |(jobs, usage), (more, rows)| (jobs + more, usage + rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::WorkspaceId;

    #[test]
    fn a_workspace_always_has_the_same_lane_and_all_lanes_are_used() {
        let queues = LaneQueues::new(4);
        let lane = |id: Option<WorkspaceId>| {
            queues.all().position(|queue| Arc::ptr_eq(queue, queues.of(id))).unwrap()
        };
        let mut used = [0; 4];
        for _ in 0..400 {
            let id = WorkspaceId::random().unwrap();
            assert_eq!(lane(Some(id)), lane(Some(id)));
            used[lane(Some(id))] += 1;
        }
        assert!(used.iter().all(|used| *used > 20), "{used:?}");
        assert_eq!(lane(None), 0);
    }

    #[test]
    fn permits_are_shared_by_the_lanes() {
        let queues = LaneQueues::new(4);
        let permits: Vec<_> = (0..JOBS_MAX)
            .map(|_| {
                let permit = std::pin::pin!(queues.queue_permit());
                futures_now(permit)
            })
            .collect();
        assert_eq!(permits.len(), JOBS_MAX);
        for queue in queues.all() {
            assert_eq!(queue.permits.available_permits(), 0);
        }
        assert_eq!(queues.parts().map(|part| part.max), [512, 16_384, 4096]);
    }

    /// The output of a future that does not wait.
    fn futures_now<F: Future>(future: F) -> F::Output {
        let patience = std::time::Duration::from_secs(60);
        crate::pending::wait(future, patience).unwrap()
    }
}
