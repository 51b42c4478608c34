//! What one request may use of the limits of its key and its workspace: the tokens that it will be
//! charged, and its permit among the requests that run at once. The server creates an allowance
//! when it admits a request. Each ledger entry of the request, its questions included, charges it
//! when it ends, whichever way the request ends. For a request without limits it is empty.

use crate::limits::rate::{Quota, Rate};
use crate::limits::seats::KeySeatLimit;
use cofferdam_store::{Clock, KeyId, SharedLimits, UsageOutcome, WorkspaceId};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Tokens used so far, by the keys and workspaces that have a token limit.
pub struct TokenLimits {
    /// Use by key.
    pub by_key: Rate<KeyId>,
    /// Use by workspace.
    pub by_workspace: Rate<WorkspaceId>,
}

impl TokenLimits {
    /// Limits of which this process has used nothing yet; `shared` where several hosts have them together.
    #[must_use]
    pub fn new(clock: &Clock, shared: Option<&SharedLimits>) -> Self {
        Self {
            by_key: Rate::new(clock, "tokens", shared.cloned()),
            by_workspace: Rate::new(clock, "workspace-tokens", shared.cloned()),
        }
    }
}

/// What one request may use. Clones belong to the same request.
#[derive(Clone, Default)]
pub struct Allowance(Option<Arc<SharedAllowance>>);

struct SharedAllowance {
    tokens: Arc<TokenLimits>,
    key: Option<(KeyId, Quota)>,
    workspace: Option<(WorkspaceId, Quota)>,
    permit: Mutex<Option<RunPermit<KeyId>>>,
    answers: Arc<AnswerCounts>,
    end: OnceLock<RequestEnd>,
}

/// Names of the ends of requests in metrics.
const ENDS: [&str; 5] = ["completed", "incomplete", "failed", "refused", "cancelled"];

/// Requests for which an endpoint was asked, by how they ended.
#[derive(Debug, Default)]
pub struct AnswerCounts([AtomicU64; ENDS.len()]);

impl AnswerCounts {
    fn count(&self, end: &RequestEnd) {
        let name = if end.is_refused { "refused" } else { end.outcome.as_str() };
        let column = ENDS.iter().position(|known| *known == name);
        if let Some(counter) = column.and_then(|column| self.0.get(column)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Each end, and how many requests had it.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
        ENDS.into_iter().zip(self.0.iter().map(|counter| counter.load(Ordering::Relaxed)))
    }
}

/// How a request ended, for its line in the log and for metrics. It holds names of the configuration only.
#[derive(Clone, Debug)]
pub struct RequestEnd {
    /// The model that was asked last.
    pub model: Arc<str>,
    /// Attempts of all turns.
    pub attempts: u32,
    /// Whether it was answered.
    pub outcome: UsageOutcome,
    /// Whether it failed with a status below 500, as for a request that the provider does not take.
    pub is_refused: bool,
}

impl Allowance {
    /// An allowance that holds `permit` until the request is over, and whose tokens are
    /// charged to the key and the workspace that have a quota in `tokens`. Its end is counted in `answers`.
    #[must_use]
    pub fn new(
        permit: RunPermit<KeyId>,
        answers: &Arc<AnswerCounts>,
        tokens: &Arc<TokenLimits>,
        key: Option<(KeyId, Quota)>,
        workspace: Option<(WorkspaceId, Quota)>,
    ) -> Self {
        let (tokens, answers) = (Arc::clone(tokens), Arc::clone(answers));
        let (permit, end) = (Mutex::new(Some(permit)), OnceLock::new());
        Self(Some(Arc::new(SharedAllowance { tokens, key, workspace, permit, answers, end })))
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

    /// Notes and counts how the request ended, which may be after its client has left. Only the first note counts.
    pub(crate) fn note_end(&self, end: RequestEnd) {
        if let Some(held) = &self.0 {
            held.end.get_or_init(|| {
                held.answers.count(&end);
                end
            });
        }
    }

    /// How the request ended; `None` while it runs, and if no endpoint was asked.
    #[must_use]
    pub fn end(&self) -> Option<&RequestEnd> {
        self.0.as_ref()?.end.get()
    }

    /// Releases the permit before the last clone is dropped: the client has its whole answer, and
    /// the work that is left must not keep it from sending its next request.
    pub(crate) fn release_permit(&self) {
        if let Some(held) = &self.0 {
            drop(held.permit.lock().unwrap_or_else(PoisonError::into_inner).take());
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
pub struct Running<K> {
    counts: Arc<Mutex<RunningCounts<K>>>,
    shared: Option<SharedLimits>,
}

struct RunningCounts<K> {
    each: BTreeMap<K, Requests>,
    all: u64,
}

/// The requests of one `K`.
#[derive(Clone, Copy, Default)]
struct Requests {
    running: u64,
    /// Those that ask for a seat. Seats that were taken for them are not returned before they begin.
    waiting: u64,
}

impl<K: Ord + Copy> RunningCounts<K> {
    /// Changes the requests of `who`, and returns the seats that these do not need.
    fn change(&mut self, who: K, seats: Option<&KeySeatLimit>, change: impl FnOnce(&mut Requests)) {
        let requests = self.each.entry(who).or_default();
        change(requests);
        let Requests { running, waiting } = *requests;
        if let Some(seats) = seats {
            seats.trim(running.saturating_add(waiting));
        }
        if running == 0 && waiting == 0 {
            self.each.remove(&who);
        }
    }
}

impl<K> Default for Running<K> {
    fn default() -> Self {
        Self::new(None)
    }
}

impl<K> Running<K> {
    /// Nothing runs on this host yet; `shared` where several hosts have limits together.
    #[must_use]
    pub fn new(shared: Option<SharedLimits>) -> Self {
        let counts = RunningCounts { each: BTreeMap::new(), all: 0 };
        Self { counts: Arc::new(Mutex::new(counts)), shared }
    }
}

impl<K: Ord + Copy + fmt::Display> Running<K> {
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
        let mut running = lock(&self.counts);
        let RunningCounts { each, all } = &mut *running;
        may_enter(each.get(&who).map_or(0, |it| it.running), *all)?;
        each.entry(who).or_default().running += 1;
        *all += 1;
        Ok(RunPermit { running: Arc::clone(&self.counts), who, seats: None })
    }

    /// Like [`Running::enter`]. Where hosts share limits, `who` runs at most half more than `most` requests on
    /// all hosts together, and exactly `most` where there are fewer than two for each host. `may_enter` bounds
    /// those on this host. This may wait for the database, for half a second at most. A `most` of 0 is no
    /// limit.
    ///
    /// # Errors
    /// The error of `may_enter`, or that of `full` when the limit does not allow one more.
    pub async fn enter_within<E>(
        &self,
        who: K,
        most: u64,
        may_enter: impl Fn(u64, u64) -> Result<(), E>,
        full: impl FnOnce() -> E,
    ) -> Result<RunPermit<K>, E> {
        let Some(limits) = self.shared.as_ref().filter(|_| most > 0) else {
            return self.enter(who, may_enter);
        };
        let seats = KeySeatLimit::new(limits, who.to_string(), most);
        let has_room = |own, at_least: u64| own < seats.room().max(at_least);
        let attempt = |at_least| {
            self.enter(who, |own, all| {
                may_enter(own, all).map_err(Some)?;
                has_room(own, at_least).then_some(()).ok_or(None)
            })
        };
        let mut entered = attempt(0);
        if matches!(entered, Err(None)) {
            let _waiting = WaitingForSeat::new(&self.counts, who, &seats);
            entered = attempt(seats.ask().await);
        }
        let mut permit = entered.map_err(|refused| refused.unwrap_or_else(full))?;
        permit.seats = Some(seats);
        Ok(permit)
    }
}

/// A request that asks for a seat, until it begins, is refused or is given up.
struct WaitingForSeat<'a, K: Ord + Copy> {
    counts: &'a Mutex<RunningCounts<K>>,
    who: K,
    seats: &'a KeySeatLimit,
}

impl<'a, K: Ord + Copy> WaitingForSeat<'a, K> {
    fn new(counts: &'a Mutex<RunningCounts<K>>, who: K, seats: &'a KeySeatLimit) -> Self {
        lock(counts).change(who, None, |it| it.waiting += 1);
        Self { counts, who, seats }
    }
}

impl<K: Ord + Copy> Drop for WaitingForSeat<'_, K> {
    fn drop(&mut self) {
        lock(self.counts).change(self.who, Some(self.seats), |it| it.waiting = it.waiting.saturating_sub(1));
    }
}

/// The permit of one running request. Dropping it releases it.
pub struct RunPermit<K: Ord + Copy> {
    running: Arc<Mutex<RunningCounts<K>>>,
    who: K,
    /// Where hosts share the limit of `who`.
    seats: Option<KeySeatLimit>,
}

impl<K: Ord + Copy> Drop for RunPermit<K> {
    fn drop(&mut self) {
        let mut counts = lock(&self.running);
        counts.all = counts.all.saturating_sub(1);
        counts.change(self.who, self.seats.as_ref(), |it| it.running = it.running.saturating_sub(1));
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
    fn enter<K: Ord + Copy + fmt::Display>(running: &Running<K>, who: K, most: u64) -> Option<RunPermit<K>> {
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
        let counts = lock(&running.counts);
        assert!(counts.each.is_empty() && counts.all == 0, "owners without requests have no entry");
    }

    #[test]
    fn a_permit_is_released_once_explicitly_or_with_the_last_clone() {
        let running = Running::default();
        let limits = Arc::new(TokenLimits::new(&Clock::manual(), None));
        let allowance =
            Allowance::new(enter(&running, key(), 1).unwrap(), &Arc::default(), &limits, None, None);
        let clone = allowance.clone();
        drop(allowance);
        assert!(enter(&running, key(), 1).is_none());
        clone.release_permit();
        let next = enter(&running, key(), 1).unwrap();
        clone.release_permit();
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
        let limits = Arc::new(TokenLimits::new(&clock, None));
        let running = Running::default();
        let allowance = |key_quota, workspace_quota| {
            Allowance::new(
                enter(&running, key(), 9).unwrap(),
                &Arc::default(),
                &limits,
                key_quota,
                workspace_quota,
            )
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
