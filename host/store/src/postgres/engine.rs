//! The engine while its store is open: the lanes and their queues.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use super::connect::Database;
use super::lane::Lane;
use super::place;
use crate::clock::Clock;
use crate::ids::WorkspaceId;
use crate::published::PublishedState;
use crate::queue::WriteQueue;
use crate::vault::VaultReader;

/// Number of lanes of one host.
pub(crate) const LANES: usize = 4;

/// The lanes of one host.
pub(crate) struct Engine {
    queues: Vec<Arc<WriteQueue>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Engine {
    /// Starts the threads of the lanes. They connect when there is something to commit. `host` is the
    /// name of this host in the list of chains.
    ///
    /// # Errors
    /// The system starts no thread, or no runtime on it.
    pub(crate) fn start(
        database: &Arc<Database>,
        access: &VaultReader,
        shared: &Arc<PublishedState>,
        clock: &Clock,
        host: &str,
    ) -> io::Result<Engine> {
        let queues: Vec<Arc<WriteQueue>> = (0..LANES).map(|_| Arc::default()).collect();
        let engine = Engine { queues, threads: Mutex::default() };
        for (number, queue) in engine.queues.iter().enumerate() {
            let lane = Lane::new(
                Arc::clone(database),
                access.clone(),
                Arc::clone(queue),
                Arc::clone(shared),
                clock.clone(),
                host.to_owned(),
            );
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let thread = Builder::new().name(format!("store-lane-{number}"));
            let thread = thread.spawn(move || lane.run(&runtime))?;
            engine.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
        Ok(engine)
    }

    /// The queue for what belongs to a workspace, or to none: changes of one workspace are made in
    /// the order in which this host took them.
    pub(crate) fn queue(&self, workspace: Option<WorkspaceId>) -> Option<&Arc<WriteQueue>> {
        let slot = usize::try_from(place::slot(workspace)).unwrap_or(0);
        self.queues.get(slot % LANES)
    }

    /// Commits what is queued and ends the lanes. Closing twice is harmless.
    pub(crate) fn close(&self) {
        self.queues.iter().for_each(|queue| queue.close());
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a lane of the store panicked");
            }
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.close();
    }
}
