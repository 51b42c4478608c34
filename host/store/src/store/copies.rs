//! Turns to copy secrets. A single copy can occupy the writer for a good part of a second, and the
//! writer takes changes first come first served. With one copy of each workspace at a time, a
//! change of another workspace never waits for many copies of one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Store;
use crate::error::Error;
use crate::ids::WorkspaceId;
use crate::pending::QueuePermit;

/// Copies of one workspace that are in progress at once.
const AT_ONCE: usize = 1;

/// The turns of the workspaces that copy or wait to.
#[derive(Default)]
pub(super) struct CopyTurns(Mutex<HashMap<WorkspaceId, Weak<Semaphore>>>);

/// The turn of a workspace and a permit for the writer's queue, for one copy. The turn ends when the
/// copy is answered, also if its caller has left.
#[must_use = "the turn and the permit are given back when it is dropped"]
#[derive(Debug)]
pub struct CopyPermit {
    pub(super) workspace: WorkspaceId,
    pub(super) permit: QueuePermit,
    pub(super) turn: OwnedSemaphorePermit,
}

impl CopyTurns {
    fn of(&self, workspace: WorkspaceId) -> Arc<Semaphore> {
        // A panic in another thread cannot leave the map half changed.
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(&workspace).and_then(Weak::upgrade) {
            return turn;
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::new(Semaphore::new(AT_ONCE));
        turns.insert(workspace, Arc::downgrade(&turn));
        turn
    }
}

impl Store {
    /// Waits until no other copy of the workspace is in progress, and then for a permit for the
    /// writer's queue. Dropping the future gives the wait up.
    ///
    /// # Errors
    /// Those of [`Store::queue_permit`].
    pub async fn copy_permit(&self, workspace: WorkspaceId) -> Result<CopyPermit, Error> {
        // The semaphore is never closed.
        let turn = self.0.copies.of(workspace).acquire_owned().await.map_err(|_| Error::Closed)?;
        Ok(CopyPermit { workspace, permit: self.queue_permit().await?, turn })
    }
}
