//! Rate limits that the hosts of a store in a database share, and the same without a database.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cofferdam_store::{BucketAnswer, BucketAsk, BucketRate, Clock, LimitsAway, SharedLimits};

use super::share::{SLICE_IDLE_NS, Share, Source, Terms};
use super::{Quota, REMEMBERED_MAX, RateLimit, Standing, TooOften};

/// Pause before use is booked again that could not be booked.
const BOOKING_PAUSE: Duration = Duration::from_millis(500);

/// A rate limit: of this process alone, or shared by all hosts of a store. Where it is shared, hosts together
/// admit at most 1.25 and at least 7/8 of what one host would, and exactly as much where the limit is less than
/// four units a minute for each host.
pub struct Rate<K> {
    local: RateLimit<K>,
    shared: Option<Arc<SharedRate<K>>>,
}

/// A unit that was taken. Dropped, it goes back to the limit, so that a request whose client leaves before all
/// limits have admitted it uses nothing. [`Taken::keep`] makes it used.
#[must_use]
pub struct Taken<'a, K: RateKey> {
    rate: &'a Rate<K>,
    who: K,
    quota: Quota,
    standing: Standing,
    /// `None` for a limit of this process alone.
    source: Option<Source>,
    is_used: bool,
}

impl<K: RateKey> Taken<'_, K> {
    /// How much is left, as far as this host knows.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// Uses the unit.
    pub fn keep(mut self) {
        self.is_used = true;
    }
}

impl<K: RateKey> Drop for Taken<'_, K> {
    fn drop(&mut self) {
        if !self.is_used {
            self.rate.give_back(self.who, self.quota, self.source);
        }
    }
}

/// The owner of a limit: the id of an API key or of a workspace, each of which has a limit of its own.
pub trait RateKey: Eq + Hash + Copy + Display + Send + 'static {}

impl<K: Eq + Hash + Copy + Display + Send + 'static> RateKey for K {}

impl<K: RateKey> Rate<K> {
    /// A limit of which this process has used nothing. `name` tells the limits of one store apart.
    #[must_use]
    pub fn new(clock: &Clock, name: &'static str, shared: Option<SharedLimits>) -> Self {
        let shared = shared.map(|limits| {
            let (clock, shares) = (clock.clone(), Mutex::default());
            Arc::new(SharedRate { name, clock, limits, shares })
        });
        Self { local: RateLimit::new(clock.clone()), shared }
    }

    /// Takes one unit, if the limit allows it. A refused call takes nothing. Where hosts share the limit this may
    /// wait for the database, for half a second at most.
    ///
    /// # Errors
    /// [`TooOften`].
    pub async fn take(&self, who: K, quota: Quota) -> Result<Taken<'_, K>, TooOften> {
        let (standing, source) = match &self.shared {
            None => (self.local.take(who, quota)?, None),
            Some(shared) => {
                let (standing, source) = shared.take(who, quota).await?;
                (standing, Some(source))
            }
        };
        Ok(Taken { rate: self, who, quota, standing, source, is_used: false })
    }

    /// Checks whether one more unit is available, without using it. Waits like [`Rate::take`].
    ///
    /// # Errors
    /// [`TooOften`].
    pub async fn check(&self, who: K, quota: Quota) -> Result<Standing, TooOften> {
        match &self.shared {
            None => self.local.check(who, quota),
            Some(shared) => shared.check(who, quota).await,
        }
    }

    /// How much is left, as far as this host knows. This uses nothing and is never refused.
    #[must_use]
    pub fn standing(&self, who: K, quota: Quota) -> Standing {
        match &self.shared {
            None => self.local.standing(who, quota),
            Some(shared) => shared.with(who, quota, |share, terms, now_ns| share.standing(terms, now_ns)),
        }
    }

    /// Adds use that has already happened, even beyond the quota. At worst the key has to wait for a day.
    pub fn debit(&self, who: K, quota: Quota, units: u64) {
        match &self.shared {
            None => self.local.debit(who, quota, units),
            Some(shared) => SharedRate::debit(shared, who, quota, units),
        }
    }

    fn give_back(&self, who: K, quota: Quota, source: Option<Source>) {
        match (&self.shared, source) {
            (Some(shared), Some(source)) => {
                shared.with(who, quota, |share, terms, now_ns| share.give_back(terms, source, now_ns));
                SharedRate::watch(shared, who, quota);
            }
            _ => self.local.give_back(who, quota),
        }
    }
}

/// What this host knows and has of a limit that hosts share.
struct SharedRate<K> {
    name: &'static str,
    clock: Clock,
    limits: SharedLimits,
    shares: Mutex<HashMap<K, Share>>,
}

impl<K: RateKey> SharedRate<K> {
    async fn take(self: &Arc<Self>, who: K, quota: Quota) -> Result<(Standing, Source), TooOften> {
        let source = match self.with(who, quota, |share, terms, now_ns| share.take(terms, now_ns)) {
            Some(source) => source,
            None => {
                let answer = self.ask(who, quota, 1).await;
                let source = self.with(who, quota, |share, terms, now_ns| match answer {
                    Ok(BucketAnswer { granted, ahead_ns }) => {
                        share.answered(terms, granted, ahead_ns, now_ns)
                    }
                    Err(_) => share.take_alone(terms, now_ns),
                })?;
                if source == Source::Alone {
                    Self::book_soon(self, who, quota);
                }
                Self::watch(self, who, quota);
                source
            }
        };
        let standing = self.with(who, quota, |share, terms, now_ns| share.standing(terms, now_ns));
        Ok((standing, source))
    }

    async fn check(&self, who: K, quota: Quota) -> Result<Standing, TooOften> {
        if let Some(checked) = self.with(who, quota, |share, terms, now_ns| share.check(terms, now_ns)) {
            return checked;
        }
        let answer = self.ask(who, quota, 0).await;
        self.with(who, quota, |share, terms, now_ns| match answer {
            Ok(BucketAnswer { ahead_ns, .. }) => {
                share.see(terms, ahead_ns, now_ns);
                share.check_seen(terms, now_ns)
            }
            Err(_) => share.check_alone(terms, now_ns),
        })
    }

    /// Asks the bucket for units, and books what it does not know of.
    async fn ask(&self, who: K, quota: Quota, units: u64) -> Result<BucketAnswer, LimitsAway> {
        let (used_ns, slice) =
            self.with(who, quota, |share, terms, now_ns| (share.book(terms, now_ns), terms.slice));
        let ask = BucketAsk {
            bucket: self.bucket(who),
            rate: bucket_rate(quota, units > 0),
            used_ns,
            units,
            slice,
        };
        let answer = self.limits.ask(ask).await;
        // Without an answer the use counts as booked: else it could be booked with each further question.
        if answer == Err(LimitsAway::NotAsked) {
            self.with(who, quota, |share, terms, now_ns| share.keep(terms, used_ns, now_ns));
        }
        answer
    }

    fn debit(shared: &Arc<Self>, who: K, quota: Quota, units: u64) {
        if units == 0 {
            return;
        }
        if shared.with(who, quota, |share, terms, now_ns| share.debit(terms, units, now_ns)) {
            Self::book_soon(shared, who, quota);
        }
    }

    fn book_soon(shared: &Arc<Self>, who: K, quota: Quota) {
        if !shared.with(who, quota, |share, _, _| std::mem::replace(&mut share.is_booking, true)) {
            let booking = Arc::clone(shared);
            shared.limits.spawn(async move { booking.book(who, quota).await });
        }
    }

    /// Books what the bucket does not know of, until there is nothing more: it is booked, or paid off meanwhile.
    async fn book(&self, who: K, quota: Quota) {
        let mut has_more = true;
        while has_more {
            let answer = self.ask(who, quota, 0).await;
            if answer.is_err() {
                tokio::time::sleep(BOOKING_PAUSE).await;
            }
            has_more = self.with(who, quota, |share, terms, now_ns| {
                answer.iter().for_each(|answer| share.see(terms, answer.ahead_ns, now_ns));
                share.is_booking = share.has_unbooked(terms, now_ns);
                share.is_booking
            });
        }
    }

    /// Returns what is left of a slice once it was not used for two seconds.
    fn watch(shared: &Arc<Self>, who: K, quota: Quota) {
        let begins = shared.with(who, quota, |share, _, _| {
            share.has_slice() && !std::mem::replace(&mut share.is_watched, true)
        });
        if begins {
            let watching = Arc::clone(shared);
            shared.limits.spawn(async move { watching.return_slice(who, quota).await });
        }
    }

    async fn return_slice(&self, who: K, quota: Quota) {
        loop {
            tokio::time::sleep(Duration::from_nanos(SLICE_IDLE_NS)).await;
            let (units, is_done) = self.with(who, quota, |share, _, now_ns| {
                let units = share.take_idle(now_ns);
                share.is_watched = share.has_slice();
                (units, !share.is_watched)
            });
            self.limits.give_back(self.bucket(who), bucket_rate(quota, true), units);
            if is_done {
                return;
            }
        }
    }

    fn bucket(&self, who: K) -> String {
        format!("{}/{who}", self.name)
    }

    fn with<T>(&self, who: K, quota: Quota, work: impl FnOnce(&mut Share, &Terms, u64) -> T) -> T {
        let terms = Terms::new(quota, self.limits.hosts());
        let now_ns = self.clock.monotonic_ms().saturating_mul(1_000_000);
        let mut shares = self.lock();
        if shares.len() >= REMEMBERED_MAX && !shares.contains_key(&who) {
            make_room(&mut shares, now_ns);
        }
        work(shares.entry(who).or_default(), &terms, now_ns)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, Share>> {
        // The map is usable even if another thread panicked while it held the lock.
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the entries without outstanding use. If there are none, removes the half with the least use.
fn make_room<K: Eq + Hash>(shares: &mut HashMap<K, Share>, now_ns: u64) {
    let before = shares.len();
    shares.retain(|_, share| !share.is_idle(now_ns));
    if shares.len() == before {
        let mut all: Vec<u64> = shares.values().map(Share::until_ns).collect();
        let middle = all.len() / 2;
        let (_, median, _) = all.select_nth_unstable(middle);
        let median = *median;
        shares.retain(|_, share| share.until_ns() > median);
    }
}

/// The rate of the bucket of a limit. Use of units that are taken before they are used is hardly beyond the
/// limit; a clock of the database that is set back must not block such a limit for longer.
fn bucket_rate(quota: Quota, is_taken_before: bool) -> BucketRate {
    let burst_ns = quota.time_of(quota.at_once);
    let ahead_ns_max = if is_taken_before { burst_ns.saturating_mul(2) } else { quota.ahead_ns_max() };
    BucketRate { unit_ns: quota.time_of(1).max(1), burst_ns, ahead_ns_max }
}
