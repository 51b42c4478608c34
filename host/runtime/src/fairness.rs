//! Keeps one owner from taking all capacity: permits are counted per owner, and the tool calls of
//! one owner share a part of the processors.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::owner::Owner;

/// The share of the capacity from which on it counts as nearly full: seven eighths.
const NEARLY_ALL: (usize, usize) = (7, 8);

/// The rule for a shared capacity: while it is nearly full, an owner that holds more than its share
/// gets no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fairness {
    room: usize,
    share: usize,
}

impl Fairness {
    /// A rule for a capacity of `room`, of which `share` is the share of one owner.
    #[must_use]
    pub const fn new(room: usize, share: usize) -> Self {
        Self { room, share }
    }

    /// The share of one owner. While the capacity is nearly full, an owner that holds more gets no
    /// more.
    #[must_use]
    pub const fn share(self) -> usize {
        self.share
    }

    /// Whether an owner that holds `held` gets no more: the capacity is nearly full and the owner
    /// holds more than its share.
    #[must_use]
    pub const fn refuses(self, taken: usize, held: usize) -> bool {
        self.is_nearly_full(taken) && held > self.share
    }

    /// Whether so little is left that owners may be refused.
    #[must_use]
    pub const fn is_nearly_full(self, taken: usize) -> bool {
        let (part, whole) = NEARLY_ALL;
        taken.saturating_mul(whole) > self.room.saturating_mul(part)
    }
}

/// Amounts that are held, by owner. An owner that holds nothing has no entry.
#[derive(Debug)]
pub struct Holders<K>(Mutex<BTreeMap<K, usize>>);

impl<K> Default for Holders<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord> Holders<K> {
    /// The amount that this owner holds.
    pub fn of<Q: Ord + ?Sized>(&self, owner: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        self.lock().get(owner).copied().unwrap_or_default()
    }

    /// Adds to the amount of an owner. Returns the amount before.
    pub fn add(&self, owner: K, amount: usize) -> usize {
        let mut held = self.lock();
        let held = held.entry(owner).or_default();
        let before = *held;
        *held = before.saturating_add(amount);
        before
    }

    /// Subtracts from the amount of an owner.
    pub fn remove(&self, owner: &K, amount: usize) {
        let mut held = self.lock();
        if let Some(left) = held.get_mut(owner) {
            *left = left.saturating_sub(amount);
            if *left == 0 {
                held.remove(owner);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<K, usize>> {
        // No code under this lock leaves the map inconsistent, so poisoning can be ignored.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One counted permit of an owner, given back on drop.
pub(crate) struct OwnerPermit {
    holders: Arc<Holders<Owner>>,
    owner: Owner,
}

impl OwnerPermit {
    pub(crate) fn new(holders: &Arc<Holders<Owner>>, owner: &Owner) -> Self {
        holders.add(owner.clone(), 1);
        Self { holders: Arc::clone(holders), owner: owner.clone() }
    }
}

impl Drop for OwnerPermit {
    fn drop(&mut self) {
        self.holders.remove(&self.owner, 1);
    }
}

/// The queues of tool calls of all owners, each with the number of its calls.
#[derive(Default)]
pub(crate) struct ToolQueues(Mutex<BTreeMap<Owner, (Arc<Semaphore>, usize)>>);

impl ToolQueues {
    /// Adds a tool call of this owner to its queue. At most `at_once` of them run at the same time.
    pub(crate) fn join(self: &Arc<Self>, owner: &Owner, at_once: usize) -> ToolQueuePlace {
        let mut queues = self.lock();
        let (turns, calls) =
            queues.entry(owner.clone()).or_insert_with(|| (Arc::new(Semaphore::new(at_once)), 0));
        *calls += 1;
        let turns = Arc::clone(turns);
        ToolQueuePlace { queues: Arc::clone(self), owner: owner.clone(), turns, turn: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Owner, (Arc<Semaphore>, usize)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A tool call in its owner's queue. It needs a turn to run, and holds none while it waits for
/// hosts and models.
pub(crate) struct ToolQueuePlace {
    queues: Arc<ToolQueues>,
    owner: Owner,
    turns: Arc<Semaphore>,
    turn: Mutex<Option<OwnedSemaphorePermit>>,
}

impl ToolQueuePlace {
    /// Waits for a turn, unless it has one.
    pub(crate) async fn enter(&self) {
        if self.turn().is_some() {
            return;
        }
        // The semaphore is never closed. If it were, running without a turn is safer than never
        // running.
        let turn = Arc::clone(&self.turns).acquire_owned().await.ok();
        *self.turn() = turn;
    }

    /// Gives the turn to the next call in the queue.
    pub(crate) fn leave(&self) {
        drop(self.turn().take());
    }

    fn turn(&self) -> MutexGuard<'_, Option<OwnedSemaphorePermit>> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ToolQueuePlace {
    fn drop(&mut self) {
        let mut queues = self.queues.lock();
        if let Some((_, calls)) = queues.get_mut(&self.owner) {
            *calls -= 1;
            if *calls == 0 {
                queues.remove(&self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn an_owner_is_refused_beyond_its_share_when_nearly_full() {
        let fairness = Fairness::new(16, 2);
        for (taken, held, refused) in
            [(16, 3, true), (15, 3, true), (14, 3, false), (15, 2, false), (16, 0, false), (3, 3, false)]
        {
            assert_eq!(fairness.refuses(taken, held), refused, "{held} of {taken}");
        }
        assert!(!Fairness::new(usize::MAX, 1).refuses(usize::MAX, 1));
    }

    #[test]
    fn owners_without_a_permit_have_no_entry() {
        let holders = Arc::new(Holders::default());
        let (one, other) = (Owner::new("one"), Owner::new("other"));
        let places = [
            OwnerPermit::new(&holders, &one),
            OwnerPermit::new(&holders, &one),
            OwnerPermit::new(&holders, &other),
        ];
        assert_eq!((holders.of("one"), holders.of("other"), holders.of("none")), (2, 1, 0));
        drop(places);
        assert!(holders.lock().is_empty());
    }

    #[test]
    fn calls_of_one_owner_queue_and_other_owners_do_not_wait() {
        let queues = Arc::new(ToolQueues::default());
        let (one, other) = (Owner::new("one"), Owner::new("other"));
        let (first, second, third) = (queues.join(&one, 1), queues.join(&one, 1), queues.join(&other, 1));
        assert!(first.enter().now_or_never().is_some() && third.enter().now_or_never().is_some());
        assert!(first.enter().now_or_never().is_some(), "it has its turn");
        assert!(second.enter().now_or_never().is_none());
        first.leave();
        assert!(second.enter().now_or_never().is_some());
        assert!(first.enter().now_or_never().is_none());
        drop(second);
        assert!(first.enter().now_or_never().is_some(), "a call that ends gives its turn back");
        drop((first, third));
        assert!(queues.lock().is_empty());
    }
}
