//! Commits for slices that no usage row commits: what is given back, and intents of requests that run for
//! long.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::contact::Hosts;
use super::host::ThisHost;
use crate::changes::{DueSlices, SliceHost, Slices, WriteBatch, guarded, needs_of_reservation};
use crate::clock::Clock;
use crate::pending::{self, Pending, QueuePermit};
use crate::published::PublishedState;
use crate::queue::{LaneQueues, job};
use crate::state::{Guard, Need};

/// How often slices are looked at without a recall.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long a place in the queue, and then a commit, is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same for each workspace at the end. What is not given back then is given back by another host.
const CLOSING_PATIENCE: Duration = Duration::from_millis(100);

/// The task that keeps slices.
#[derive(Clone)]
pub(super) struct SliceKeeper {
    slices: Arc<Slices>,
    host: Arc<ThisHost>,
    shared: Arc<PublishedState>,
    queues: Arc<LaneQueues>,
}

impl SliceKeeper {
    pub(super) fn new(
        clock: &Clock,
        host: &Arc<ThisHost>,
        shared: &Arc<PublishedState>,
        queues: &Arc<LaneQueues>,
    ) -> SliceKeeper {
        let (host, shared, queues) = (Arc::clone(host), Arc::clone(shared), Arc::clone(queues));
        SliceKeeper { slices: Arc::new(Slices::new(clock.clone())), host, shared, queues }
    }

    pub(super) fn slices(&self) -> &Arc<Slices> {
        &self.slices
    }

    /// Runs until the runtime ends.
    pub(super) async fn run(self, hosts: watch::Receiver<Hosts>) {
        loop {
            tokio::select! {
                () = sleep(LOOK_EVERY) => {}
                () = self.slices.until_recalled() => {}
            }
            self.slices.set_hosts(hosts.borrow().rows.len());
            self.commit().await;
        }
    }

    /// Commits what is due. What fails is due again.
    async fn commit(&self) {
        let mut made = Vec::new();
        for due in self.due() {
            match timeout(PATIENCE, self.queues.queue_permit()).await {
                Ok(Ok(permit)) => made.push(self.push(permit, due)),
                _ => break,
            }
        }
        for made in made {
            let made = timeout(PATIENCE, made).await;
            if !matches!(made, Ok(Ok(()))) {
                tracing::debug!("slices of credit were not written");
            }
        }
    }

    /// Gives back everything that is free, at the end.
    pub(super) fn close(&self) {
        self.slices.close();
        for due in self.due() {
            match pending::wait(self.queues.queue_permit(), CLOSING_PATIENCE) {
                Some(Ok(permit)) => drop(self.push(permit, due)),
                _ => return,
            }
        }
    }

    fn due(&self) -> Vec<DueSlices> {
        self.slices.due(SliceHost(self.host.id().0))
    }

    fn push(&self, permit: QueuePermit, due: DueSlices) -> Pending<()> {
        let DueSlices { workspace, keys, movers } = due;
        let needs: Vec<Need> = keys.iter().flat_map(|key| needs_of_reservation(workspace, *key)).collect();
        let change = guarded([Guard::Account(workspace)], move |batch: &mut WriteBatch| {
            keys.iter().for_each(|key| batch.touch_slice(workspace, *key));
            movers.iter().try_for_each(|request| Arc::clone(request).own_intent(batch))
        });
        let (answer, pending) = Pending::<()>::new(Arc::clone(&self.shared));
        self.queues.push(Some(workspace), permit, job(change.reading(move || needs.clone()), answer));
        pending
    }
}
