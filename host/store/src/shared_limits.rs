//! Limits that all hosts of a store in a database share.
//!
//! A bucket is one number in the database: the time at which the use of one limit so far is paid off at its
//! rate. Hosts add what they used and take units ahead of use. All buckets that are asked within a short time
//! are asked in one statement. A database that is away or slow is an answer of its own: the host then goes by
//! its part of the limit.

#![cfg_attr(
    not(any(test, feature = "postgres")),
    expect(dead_code, reason = "only a database has limits that hosts share")
)]

mod seats;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

pub use seats::SeatAsk;
#[cfg(feature = "postgres")]
pub(crate) use seats::SeatWrite;
use seats::Seats;

/// How long one question may wait for its answer.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);
/// The most buckets that wait to be asked, and the most keys that hold seats.
const WAITING_MAX: usize = 65_536;

/// The limits that this host shares with others. Clones are the same.
#[derive(Clone)]
pub struct SharedLimits(Arc<LimitsQueue>);

/// The rate of a bucket, in nanoseconds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BucketRate {
    /// How long one unit lasts at the rate; at least 1.
    pub unit_ns: u64,
    /// How long the units last that may be taken at once.
    pub burst_ns: u64,
    /// How far use can be ahead of the rate at most.
    pub ahead_ns_max: u64,
}

/// What a host asks of a bucket.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BucketAsk {
    /// The limit, and the id of the key or workspace.
    pub bucket: String,
    /// The rate of the limit.
    pub rate: BucketRate,
    /// Use that has already happened. It is added, even beyond the limit.
    pub used_ns: u64,
    /// Units that are needed now. 0 only looks.
    pub units: u64,
    /// Units to take at once if any are needed, as far as there are so many.
    pub slice: u64,
}

/// The answer of a bucket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BucketAnswer {
    /// Units that were taken for this question: what it needs and, for one of those asked together, the rest
    /// of the slice.
    pub granted: u64,
    /// How far use is ahead of the rate, with what was granted.
    pub ahead_ns: u64,
}

/// The limits that hosts share are out of reach.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum LimitsAway {
    /// The database is known to be away, or too many limits wait for it. It was not asked.
    #[error("the limits that hosts share were not asked")]
    NotAsked,
    /// The database did not answer in time. It may have been asked, or be asked later.
    #[error("the limits that hosts share did not answer in time")]
    NoAnswer,
}

impl SharedLimits {
    /// Limits, and the queue of what waits for their answers.
    pub(crate) fn new(runtime: Handle) -> (SharedLimits, Arc<LimitsQueue>) {
        let queue = Arc::new(LimitsQueue {
            runtime,
            waiting: Mutex::default(),
            has_more: Notify::new(),
            seats: Seats::default(),
            is_away: AtomicBool::new(false),
            hosts: AtomicU64::new(1),
        });
        (SharedLimits(Arc::clone(&queue)), queue)
    }

    /// The number of hosts that serve now, this one included.
    #[must_use]
    pub fn hosts(&self) -> u64 {
        self.0.hosts.load(Ordering::Relaxed)
    }

    /// Whether the database was out of reach when it was asked last.
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.0.is_away.load(Ordering::Relaxed)
    }

    /// Asks a bucket. Takes up to 20 ms and a round trip, at most half a second, and no time while the database
    /// is known to be away. What was granted to a question that its asker gave up goes back to the bucket.
    ///
    /// # Errors
    /// [`LimitsAway`].
    pub async fn ask(&self, ask: BucketAsk) -> Result<BucketAnswer, LimitsAway> {
        let answer = self.0.push(ask)?;
        match timeout(PATIENCE, answer).await {
            Ok(Ok(answer)) => answer,
            _ => Err(LimitsAway::NoAnswer),
        }
    }

    /// Returns units that were granted and not used. Where the database is away they stay used, which wears
    /// off within a minute.
    pub fn give_back(&self, bucket: String, rate: BucketRate, units: u64) {
        self.0.give_back(bucket, rate, units);
    }

    /// The seats of a key that this host holds, beside those that it may use without asking.
    #[must_use]
    pub fn seats(&self, key: &str) -> u64 {
        self.0.seats.held(key)
    }

    /// Takes more seats for a key, as far as there are so many; [`SharedLimits::seats`] has the number. Takes as
    /// long as [`SharedLimits::ask`].
    ///
    /// # Errors
    /// [`LimitsAway`].
    pub async fn ask_seats(&self, key: &str, ask: SeatAsk) -> Result<(), LimitsAway> {
        if self.0.is_away.load(Ordering::Acquire) {
            return Err(LimitsAway::NotAsked);
        }
        let answer = self.0.seats.ask(key.to_owned(), ask, WAITING_MAX).ok_or(LimitsAway::NotAsked)?;
        self.0.has_more.notify_one();
        timeout(PATIENCE, answer).await.ok().and_then(Result::ok).ok_or(LimitsAway::NoAnswer)
    }

    /// Returns the seats of a key that are more than so many. Other hosts can take them a moment later.
    pub fn keep_seats(&self, key: &str, most: u64) {
        if self.0.seats.lower(key, most) {
            self.0.has_more.notify_one();
        }
    }

    /// Runs this beside requests.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        drop(self.0.runtime.spawn(work));
    }
}

impl fmt::Debug for SharedLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedLimits").field("hosts", &self.hosts()).finish_non_exhaustive()
    }
}

/// What waits to be asked.
pub(crate) struct LimitsQueue {
    runtime: Handle,
    waiting: Mutex<InTurn<WaitingBucket>>,
    pub(crate) seats: Seats,
    has_more: Notify,
    is_away: AtomicBool,
    hosts: AtomicU64,
}

/// Values by name, of which those that were left have their turn first.
struct InTurn<V> {
    by_name: BTreeMap<String, V>,
    /// The last one that had its turn.
    last: String,
}

impl<V> Default for InTurn<V> {
    fn default() -> Self {
        Self { by_name: BTreeMap::new(), last: String::new() }
    }
}

impl<V> InTurn<V> {
    /// The names of at most `most` values that are due, beginning behind the last one that had its turn.
    fn next(&mut self, most: usize, is_due: impl Fn(&V) -> bool) -> Vec<String> {
        let last = self.last.as_str();
        let behind = self.by_name.range::<str, _>((Bound::Excluded(last), Bound::Unbounded));
        let all = behind.chain(self.by_name.range::<str, _>((Bound::Unbounded, Bound::Included(last))));
        let due = all.filter(|(_, value)| is_due(value)).map(|(name, _)| name.clone());
        let names: Vec<String> = due.take(most).collect();
        self.last = names.last().cloned().unwrap_or_default();
        names
    }
}

/// All that waits to be asked of one bucket.
#[derive(Debug)]
pub(crate) struct WaitingBucket {
    pub(crate) rate: BucketRate,
    pub(crate) used_ns: u64,
    /// Units that were granted and are returned.
    pub(crate) unused: u64,
    slice: u64,
    asks: Vec<(u64, oneshot::Sender<Result<BucketAnswer, LimitsAway>>)>,
}

impl WaitingBucket {
    /// The units that are taken, as far as there are so many.
    pub(crate) fn units(&self) -> u64 {
        let needed = self.asks.iter().fold(0, |sum: u64, (units, _)| sum.saturating_add(*units));
        if needed > 0 { needed.max(self.slice) } else { 0 }
    }

    /// Distributes what was granted, in the order of the questions. The rest goes to the first one that gets
    /// any. Returns the units whose askers have given up.
    fn answer(self, granted: u64, ahead_ns: u64) -> u64 {
        let needed = self.asks.iter().fold(0, |sum: u64, (units, _)| sum.saturating_add(*units));
        let (mut left, mut rest, mut unused) = (granted, granted.saturating_sub(needed), 0);
        for (units, asker) in self.asks {
            let own = units.min(left.saturating_sub(rest));
            left -= own;
            let more = if own > 0 { std::mem::take(&mut rest) } else { 0 };
            left -= more;
            let granted = own + more;
            if asker.send(Ok(BucketAnswer { granted, ahead_ns })).is_err() {
                unused += granted;
            }
        }
        unused
    }
}

impl LimitsQueue {
    fn push(
        &self,
        ask: BucketAsk,
    ) -> Result<oneshot::Receiver<Result<BucketAnswer, LimitsAway>>, LimitsAway> {
        if self.is_away.load(Ordering::Acquire) {
            return Err(LimitsAway::NotAsked);
        }
        let BucketAsk { bucket, rate, used_ns, units, slice } = ask;
        let (asker, answer) = oneshot::channel();
        self.change(bucket, rate, |waiting| {
            waiting.used_ns = waiting.used_ns.saturating_add(used_ns);
            waiting.slice = slice;
            waiting.asks.push((units, asker));
        })?;
        Ok(answer)
    }

    fn give_back(&self, bucket: String, rate: BucketRate, units: u64) {
        if units > 0 && !self.is_away.load(Ordering::Acquire) {
            // Without room the units stay used.
            drop(self.change(bucket, rate, |waiting| waiting.unused = waiting.unused.saturating_add(units)));
        }
    }

    fn change(
        &self,
        bucket: String,
        rate: BucketRate,
        change: impl FnOnce(&mut WaitingBucket),
    ) -> Result<(), LimitsAway> {
        let mut waiting = lock(&self.waiting);
        let count = waiting.by_name.len();
        let bucket = match waiting.by_name.entry(bucket) {
            Entry::Occupied(bucket) => bucket.into_mut(),
            Entry::Vacant(_) if count >= WAITING_MAX => return Err(LimitsAway::NotAsked),
            Entry::Vacant(new) => {
                let bucket = WaitingBucket { rate, used_ns: 0, unused: 0, slice: 0, asks: Vec::new() };
                new.insert(bucket)
            }
        };
        bucket.rate = rate;
        change(bucket);
        drop(waiting);
        self.has_more.notify_one();
        Ok(())
    }

    /// Waits until something is to be asked.
    pub(crate) async fn until_any(&self) {
        loop {
            let more = self.has_more.notified();
            if !lock(&self.waiting).by_name.is_empty() || self.seats.is_any_due() {
                return;
            }
            more.await;
        }
    }

    /// Takes at most so many buckets. Those that were left the last time come first.
    pub(crate) fn take(&self, most: usize) -> BTreeMap<String, WaitingBucket> {
        let waiting = &mut *lock(&self.waiting);
        if waiting.by_name.len() <= most {
            return std::mem::take(&mut waiting.by_name);
        }
        let names = waiting.next(most, |_| true);
        names.into_iter().filter_map(|name| waiting.by_name.remove_entry(&name)).collect()
    }

    /// Gives the answer of a bucket to those who asked.
    pub(crate) fn answer(&self, name: String, bucket: WaitingBucket, granted: u64, ahead_ns: u64) {
        let rate = bucket.rate;
        let unused = bucket.answer(granted, ahead_ns);
        self.give_back(name, rate, unused);
    }

    /// Notes whether the database is away. What waits is told so.
    pub(crate) fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::Release);
        if is_away {
            let waiting = std::mem::take(&mut lock(&self.waiting).by_name);
            for (_, asker) in waiting.into_values().flat_map(|bucket| bucket.asks) {
                // Who asked may have given up.
                drop(asker.send(Err(LimitsAway::NotAsked)));
            }
            self.seats.give_up();
        }
    }

    /// Sets the number of hosts that serve.
    pub(crate) fn set_hosts(&self, hosts: u64) {
        self.hosts.store(hosts.max(1), Ordering::Relaxed);
    }
}

fn lock<T>(waiting: &Mutex<T>) -> MutexGuard<'_, T> {
    // What waits is usable even if another thread panicked while it held the lock.
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: BucketRate = BucketRate { unit_ns: 1, burst_ns: 1, ahead_ns_max: 1 };

    fn used(bucket: &str) -> BucketAsk {
        BucketAsk { bucket: bucket.to_owned(), rate: RATE, used_ns: 7, units: 0, slice: 0 }
    }

    #[tokio::test]
    async fn buckets_that_were_left_are_the_first_ones_the_next_time() {
        let (_limits, queue) = SharedLimits::new(Handle::current());
        let ask = |names: &[&str]| names.iter().for_each(|name| drop(queue.push(used(name)).unwrap()));
        let take = |most| queue.take(most).into_keys().collect::<Vec<_>>();
        ask(&["a", "b", "c", "d"]);
        assert_eq!(take(2), ["a", "b"]);
        ask(&["a", "b"]);
        assert_eq!(take(3), ["a", "c", "d"]);
        ask(&["a", "c"]);
        assert_eq!(take(1), ["b"]);
        assert_eq!(take(9), ["a", "c"]);
        assert!(take(9).is_empty());
    }

    #[tokio::test]
    async fn ask_tells_a_sent_question_from_one_that_was_not_sent() {
        let (limits, queue) = SharedLimits::new(Handle::current());
        let asked = queue.push(used("asked")).unwrap();
        // Taken for a question that the database does not answer.
        drop(queue.take(1));
        let waits = queue.push(used("waits")).unwrap();
        queue.set_away(true);
        assert!(asked.await.is_err());
        assert_eq!(waits.await.unwrap(), Err(LimitsAway::NotAsked));
        assert_eq!(limits.ask(used("later")).await, Err(LimitsAway::NotAsked));
    }
}
