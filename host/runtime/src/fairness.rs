//! What keeps one owner from taking a whole runtime: places are counted by owner,
//! and the tool calls of one owner share a part of the processors.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::context::Owner;

/// Which part of a room counts as nearly all of it: seven eighths.
const NEARLY_ALL: (usize, usize) = (7, 8);

/// A room that many share, and how much of it one may hold while it is nearly full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fairness {
    room: usize,
    share: usize,
}

impl Fairness {
    /// For a room of this size.
    #[must_use]
    pub const fn new(room: usize, share: usize) -> Self {
        Self { room, share }
    }

    /// What one may hold while the room is nearly full.
    #[must_use]
    pub const fn share(self) -> usize {
        self.share
    }

    /// Whether the room is nearly full and an owner that holds `held` of it gets nothing more.
    #[must_use]
    pub const fn refuses(self, taken: usize, held: usize) -> bool {
        let (part, whole) = NEARLY_ALL;
        taken.saturating_mul(whole) > self.room.saturating_mul(part) && held > self.share
    }
}

/// Counts by owner. An owner that holds nothing has no entry.
#[derive(Debug)]
pub struct Holders<K>(Mutex<BTreeMap<K, usize>>);

impl<K> Default for Holders<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord> Holders<K> {
    /// What this owner holds.
    pub fn of<Q: Ord + ?Sized>(&self, owner: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        self.lock().get(owner).copied().unwrap_or_default()
    }

    /// Adds to what an owner holds; what it held before.
    pub fn add(&self, owner: K, amount: usize) -> usize {
        let mut held = self.lock();
        let held = held.entry(owner).or_default();
        let before = *held;
        *held = before.saturating_add(amount);
        before
    }

    /// Takes from what an owner holds.
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
        // A panic elsewhere leaves a map that is still a map.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One place of an owner, given back when dropped.
pub(crate) struct Held {
    holders: Arc<Holders<Owner>>,
    owner: Owner,
}

impl Held {
    pub(crate) fn new(holders: &Arc<Holders<Owner>>, owner: &Owner) -> Self {
        holders.add(owner.clone(), 1);
        Self { holders: Arc::clone(holders), owner: owner.clone() }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.holders.remove(&self.owner, 1);
    }
}

/// The lines of all owners.
#[derive(Default)]
pub(crate) struct Lines(Mutex<BTreeMap<Owner, (Arc<Semaphore>, usize)>>);

impl Lines {
    /// A tool call of this owner, of which `at_once` run at the same time.
    pub(crate) fn join(self: &Arc<Self>, owner: &Owner, at_once: usize) -> InLine {
        let mut lines = self.lock();
        let (turns, calls) =
            lines.entry(owner.clone()).or_insert_with(|| (Arc::new(Semaphore::new(at_once)), 0));
        *calls += 1;
        let turns = Arc::clone(turns);
        InLine { lines: Arc::clone(self), owner: owner.clone(), turns, turn: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Owner, (Arc<Semaphore>, usize)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A tool call among those of its owner: it runs while it has a turn, and has none
/// while it waits for hosts and models.
pub(crate) struct InLine {
    lines: Arc<Lines>,
    owner: Owner,
    turns: Arc<Semaphore>,
    turn: Mutex<Option<OwnedSemaphorePermit>>,
}

impl InLine {
    /// Waits for a turn, unless it has one.
    pub(crate) async fn enter(&self) {
        if self.turn().is_some() {
            return;
        }
        // The semaphore is never closed; if it were, running is the safe side.
        let turn = Arc::clone(&self.turns).acquire_owned().await.ok();
        *self.turn() = turn;
    }

    /// Gives the turn to the next call in the line.
    pub(crate) fn leave(&self) {
        drop(self.turn().take());
    }

    fn turn(&self) -> MutexGuard<'_, Option<OwnedSemaphorePermit>> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        let mut lines = self.lines.lock();
        if let Some((_, calls)) = lines.get_mut(&self.owner) {
            *calls -= 1;
            if *calls == 0 {
                lines.remove(&self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn an_owner_is_refused_beyond_its_share_of_a_room_that_is_nearly_full() {
        let fairness = Fairness::new(16, 2);
        for (taken, held, refused) in
            [(16, 3, true), (15, 3, true), (14, 3, false), (15, 2, false), (16, 0, false), (3, 3, false)]
        {
            assert_eq!(fairness.refuses(taken, held), refused, "{held} of {taken}");
        }
        assert!(!Fairness::new(usize::MAX, 1).refuses(usize::MAX, 1));
    }

    #[test]
    fn owners_without_a_place_are_not_remembered() {
        let holders = Arc::new(Holders::default());
        let (one, other) = (Owner::new("one"), Owner::new("other"));
        let places = [Held::new(&holders, &one), Held::new(&holders, &one), Held::new(&holders, &other)];
        assert_eq!((holders.of("one"), holders.of("other"), holders.of("none")), (2, 1, 0));
        drop(places);
        assert!(holders.lock().is_empty());
    }

    #[test]
    fn calls_of_one_owner_run_one_after_the_other_and_those_of_another_beside_them() {
        let lines = Arc::new(Lines::default());
        let (one, other) = (Owner::new("one"), Owner::new("other"));
        let (first, second, third) = (lines.join(&one, 1), lines.join(&one, 1), lines.join(&other, 1));
        assert!(first.enter().now_or_never().is_some() && third.enter().now_or_never().is_some());
        assert!(first.enter().now_or_never().is_some(), "it has its turn");
        assert!(second.enter().now_or_never().is_none());
        first.leave();
        assert!(second.enter().now_or_never().is_some());
        assert!(first.enter().now_or_never().is_none());
        drop(second);
        assert!(first.enter().now_or_never().is_some(), "a call that ends gives its turn back");
        drop((first, third));
        assert!(lines.lock().is_empty());
    }
}
