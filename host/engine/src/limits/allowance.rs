//! What one request may use of the limits of its key and its workspace: the tokens that it will be
//! charged, and its permit among the requests that run at once. The server creates an allowance
//! when it admits a request. Each ledger entry of the request, its questions included, charges it
//! when it ends, whichever way the request ends. For a request without limits it is empty.

use crate::limits::rate::{Quota, RateLimit};
use cofferdam_store::{Clock, KeyId, UsageOutcome, WorkspaceId};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Tokens used so far, by the keys and workspaces that have a token limit.
pub struct TokenLimits {
    /// Use by key.
    pub by_key: RateLimit<KeyId>,
    /// Use by workspace.
    pub by_workspace: RateLimit<WorkspaceId>,
}

impl TokenLimits {
    /// Limits of which nothing is used yet.
    #[must_use]
    pub fn new(clock: &Clock) -> Self {
        Self { by_key: RateLimit::new(clock.clone()), by_workspace: RateLimit::new(clock.clone()) }
    }
}

/// What one request may use. Clones belong to the same request.
#[derive(Clone, Default)]
pub struct Allowance(Option<Arc<SharedAllowance>>);

struct SharedAllowance {
    tokens: Arc<TokenLimits>,
    key: Option<(KeyId, Quota)>,
    workspace: Option<(WorkspaceId, Quota)>,
    place: Mutex<Option<RunPermit<KeyId>>>,
    end: OnceLock<RequestEnd>,
}

/// How a request ended, for its line in the log. It holds names of the configuration only.
#[derive(Clone, Debug)]
pub struct RequestEnd {
    /// The model that was asked last.
    pub model: Arc<str>,
    /// Attempts of all turns.
    pub attempts: u32,
    /// Whether it was answered.
    pub outcome: UsageOutcome,
}

impl Allowance {
    /// An allowance that holds the permit `place` until the request is over, and whose tokens are
    /// charged to the key and the workspace that have a quota in `tokens`.
    #[must_use]
    pub fn new(
        place: RunPermit<KeyId>,
        tokens: &Arc<TokenLimits>,
        key: Option<(KeyId, Quota)>,
        workspace: Option<(WorkspaceId, Quota)>,
    ) -> Self {
        let (tokens, place) = (Arc::clone(tokens), Mutex::new(Some(place)));
        Self(Some(Arc::new(SharedAllowance { tokens, key, workspace, place, end: OnceLock::new() })))
    }

    /// Charges tokens, input and output together, to the key and the workspace.
    pub(crate) fn charge(&self, tokens: u64) {
        let Some(held) = &self.0 else { return };
        if let Some((key, quota)) = held.key {
            held.tokens.by_key.debit(key, quota, tokens);
        }
        if let Some((workspace, quota)) = held.workspace {
            held.tokens.by_workspace.debit(workspace, quota, tokens);
        }
    }

    /// Notes how the request ended. Only the first note counts.
    pub(crate) fn note_end(&self, end: RequestEnd) {
        if let Some(held) = &self.0 {
            held.end.get_or_init(|| end);
        }
    }

    /// How the request ended; `None` while it runs, and if no endpoint was asked.
    #[must_use]
    pub fn end(&self) -> Option<&RequestEnd> {
        self.0.as_ref()?.end.get()
    }

    /// Releases the permit before the last clone is dropped: the client has its whole answer, and
    /// the work that is left must not keep it from sending its next request.
    pub(crate) fn give_place_back(&self) {
        if let Some(held) = &self.0 {
            drop(held.place.lock().unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}

impl fmt::Debug for Allowance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Allowance").field(&self.0.is_some()).finish()
    }
}

/// The number of requests that run at this moment, for each `K`. A `K` without running requests
/// takes no memory.
pub struct Running<K>(Arc<Mutex<RunningCounts<K>>>);

struct RunningCounts<K> {
    each: BTreeMap<K, u64>,
    all: u64,
}

impl<K> Default for Running<K> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(RunningCounts { each: BTreeMap::new(), all: 0 })))
    }
}

impl<K: Ord + Copy> Running<K> {
    /// Takes a permit for `who` if `may_enter` allows it. `may_enter` gets the number of requests
    /// that run already: those of `who`, and all together.
    ///
    /// # Errors
    /// The error of `may_enter`.
    pub fn enter<E>(
        &self,
        who: K,
        may_enter: impl FnOnce(u64, u64) -> Result<(), E>,
    ) -> Result<RunPermit<K>, E> {
        let mut running = lock(&self.0);
        let RunningCounts { each, all } = &mut *running;
        let taken = each.get(&who).copied().unwrap_or_default();
        may_enter(taken, *all)?;
        each.insert(who, taken + 1);
        *all += 1;
        Ok(RunPermit { running: Arc::clone(&self.0), who })
    }
}

/// The permit of one running request. Dropping it releases it.
pub struct RunPermit<K: Ord> {
    running: Arc<Mutex<RunningCounts<K>>>,
    who: K,
}

impl<K: Ord> Drop for RunPermit<K> {
    fn drop(&mut self) {
        let mut running = lock(&self.running);
        let RunningCounts { each, all } = &mut *running;
        *all = all.saturating_sub(1);
        if let Some(taken) = each.get_mut(&self.who) {
            *taken = taken.saturating_sub(1);
            if *taken == 0 {
                each.remove(&self.who);
            }
        }
    }
}

fn lock<K>(running: &Mutex<RunningCounts<K>>) -> MutexGuard<'_, RunningCounts<K>> {
    // The counts are usable even if another thread panicked while it held the lock.
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> KeyId {
        "abcdefghijkl".parse().unwrap()
    }

    /// Takes a permit if fewer than `most` are held by `who`.
    fn enter<K: Ord + Copy>(running: &Running<K>, who: K, most: u64) -> Option<RunPermit<K>> {
        running.enter(who, |own, _| if own < most { Ok(()) } else { Err(()) }).ok()
    }

    #[test]
    fn permits_are_limited_per_owner_and_released_on_drop() {
        let running = Running::default();
        let first = enter(&running, 1, 2).unwrap();
        let second = enter(&running, 1, 2).unwrap();
        assert!(enter(&running, 1, 2).is_none());
        let other = enter(&running, 2, 2).unwrap();
        let counts = running.enter(3, |own, all| Err::<(), _>((own, all))).err();
        assert_eq!(counts, Some((0, 3)));
        // The limit is now below the number of permits held: no permit is given until enough are
        // released.
        drop((first, other));
        assert!(enter(&running, 1, 1).is_none());
        drop(second);
        assert!(enter(&running, 1, 1).is_some());
        let counts = lock(&running.0);
        assert!(counts.each.is_empty() && counts.all == 0, "who runs nothing is not remembered");
    }

    #[test]
    fn a_permit_is_released_once_explicitly_or_with_the_last_clone() {
        let running = Running::default();
        let limits = Arc::new(TokenLimits::new(&Clock::manual()));
        let allowance = Allowance::new(enter(&running, key(), 1).unwrap(), &limits, None, None);
        let clone = allowance.clone();
        drop(allowance);
        assert!(enter(&running, key(), 1).is_none());
        clone.give_place_back();
        let next = enter(&running, key(), 1).unwrap();
        clone.give_place_back();
        drop(clone);
        assert!(enter(&running, key(), 1).is_none());
        drop(next);
        assert!(enter(&running, key(), 1).is_some());
    }

    #[test]
    fn tokens_are_charged_to_the_key_and_the_workspace_that_are_limited() {
        let clock = Clock::manual();
        let quota = Quota::of_minute(1_000).unwrap();
        let workspace = "00000000-0000-4000-8000-000000000000".parse().unwrap();
        let limits = Arc::new(TokenLimits::new(&clock));
        let running = Running::default();
        let allowance = |key_quota, workspace_quota| {
            Allowance::new(enter(&running, key(), 9).unwrap(), &limits, key_quota, workspace_quota)
        };
        let left = || {
            let by_key = limits.by_key.standing(key(), quota).remaining;
            (by_key, limits.by_workspace.standing(workspace, quota).remaining)
        };
        Allowance::default().charge(1);
        assert_eq!(left(), (1_000, 1_000));
        allowance(Some((key(), quota)), None).charge(100);
        assert_eq!(left(), (900, 1_000));
        let both = allowance(Some((key(), quota)), Some((workspace, quota)));
        let clone = both.clone();
        both.charge(100);
        clone.charge(1_000);
        assert_eq!(left(), (0, 0));
        clock.advance(std::time::Duration::from_secs(60));
        assert_eq!(left(), (800, 900));
    }
}
