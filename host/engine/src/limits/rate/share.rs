//! What one host admits of a limit that several hosts share, as arithmetic without waiting.
//!
//! A limit of L units a minute, and H hosts:
//!
//! 1. One number in the database, the bucket, stands for the use by all hosts, as [`RateUsage`] does for one.
//! 2. A host admits up to L/4H a minute without asking. It remembers this use as not booked yet.
//! 3. Beyond that it takes slices of max(1, L/8H) from the bucket, cut to what is left there.
//! 4. Each question also books what was not booked, as far as it is not paid off meanwhile at the rate L.
//! 5. What is not used of a slice for two seconds goes back to the bucket.
//! 6. So at most L/4 is admitted beside the bucket, and at most L/8 is held back from it: together hosts admit
//!    at most 1.25 and at least 7/8 of what one host would. Where L < 4H each unit is asked for, which is exact.
//! 7. Tokens are known after the fact and are only booked. A request is admitted while the free part has room,
//!    or else by what the bucket said within the last second.
//! 8. Without an answer a host admits L/H, and books that as soon as there are answers again.

use super::{Quota, RateUsage, Standing, TooOften, check};

/// How long a slice may stay unused.
pub(super) const SLICE_IDLE_NS: u64 = 2_000_000_000;
/// How long what a bucket said is good for admitting requests whose tokens are booked later.
const FRESH_NS: u64 = 1_000_000_000;
/// The part of the limit that all hosts together admit without asking: one of so many.
const FREE_PARTS: u64 = 4;
/// The part of the limit that all slices together have.
const SLICE_PARTS: u64 = 8;

/// A limit, as one of several hosts applies it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    /// The whole limit.
    pub(super) quota: Quota,
    /// What is admitted without asking; `None` where each unit is asked for.
    free: Option<Quota>,
    /// What this host admits while the bucket is out of reach.
    alone: Quota,
    /// Units that are taken at once.
    pub(super) slice: u64,
}

impl Terms {
    pub(super) fn new(quota: Quota, hosts: u64) -> Self {
        let hosts = hosts.max(1);
        let parts = hosts.saturating_mul(FREE_PARTS);
        let at_once = quota.at_once.min(quota.per_minute);
        Self {
            quota,
            free: Quota::new(quota.per_minute / parts, quota.at_once / parts),
            alone: Quota {
                per_minute: (quota.per_minute / hosts).max(1),
                at_once: (quota.at_once / hosts).max(1),
            },
            slice: (at_once / hosts.saturating_mul(SLICE_PARTS)).max(1),
        }
    }
}

/// Where an admitted unit came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// From a slice, or from the bucket at once.
    Bucket,
    /// From what is admitted without asking.
    Free,
    /// From the part of this host while the bucket is out of reach.
    Alone,
}

/// What one host knows and has of one limit.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Share {
    /// All that this host admitted, at the rate of its part.
    alone: RateUsage,
    /// What it admitted without asking, at the rate for that.
    free: RateUsage,
    /// Use that the bucket does not know of, at the whole rate.
    unbooked: RateUsage,
    /// The bucket as it was last seen, with what was taken from it.
    seen: RateUsage,
    seen_at_ns: Option<u64>,
    /// Units that were taken from the bucket and are not used yet, and when one was used last.
    slice: u64,
    used_at_ns: u64,
    /// Whether a task looks after the slice.
    pub(super) is_watched: bool,
    /// Whether a task books use.
    pub(super) is_booking: bool,
}

impl Share {
    /// Uses one unit that this host has or may admit without asking. `None` if the bucket has to be asked.
    pub(super) fn take(&mut self, terms: &Terms, now_ns: u64) -> Option<Source> {
        let source = if self.slice > 0 {
            self.slice -= 1;
            self.used_at_ns = now_ns;
            Source::Bucket
        } else {
            let free = terms.free.filter(|free| self.free.has_room(*free, now_ns))?;
            self.free.add(free, free.time_of(1), now_ns);
            self.unbooked.add(terms.quota, terms.quota.time_of(1), now_ns);
            Source::Free
        };
        self.alone.add(terms.alone, terms.alone.time_of(1), now_ns);
        Some(source)
    }

    /// Takes the use that is to be booked, in nanoseconds at the whole rate.
    pub(super) fn book(&mut self, terms: &Terms, now_ns: u64) -> u64 {
        let used_ns = self.unbooked.ahead_ns(terms.quota, now_ns);
        self.unbooked = RateUsage::default();
        used_ns
    }

    /// Whether there is use that the bucket does not know of.
    pub(super) fn has_unbooked(&self, terms: &Terms, now_ns: u64) -> bool {
        self.unbooked.ahead_ns(terms.quota, now_ns) > 0
    }

    /// Keeps use that could not be booked.
    pub(super) fn keep(&mut self, terms: &Terms, used_ns: u64, now_ns: u64) {
        self.unbooked.add(terms.quota, used_ns, now_ns);
    }

    /// Notes how far use of the bucket is ahead of the rate.
    pub(super) fn see(&mut self, terms: &Terms, ahead_ns: u64, now_ns: u64) {
        self.seen.set(terms.quota, ahead_ns, now_ns);
        self.seen_at_ns = Some(now_ns);
    }

    /// Takes the answer of the bucket to a question for one unit: uses it, and keeps the rest of the slice.
    ///
    /// # Errors
    /// [`TooOften`] if nothing was granted.
    pub(super) fn answered(
        &mut self,
        terms: &Terms,
        granted: u64,
        ahead_ns: u64,
        now_ns: u64,
    ) -> Result<Source, TooOften> {
        self.see(terms, ahead_ns, now_ns);
        let Some(rest) = granted.checked_sub(1) else {
            let standing = terms.quota.standing(ahead_ns);
            return Err(check(ahead_ns, terms.quota).err().unwrap_or(TooOften { wait_s: 1, standing }));
        };
        self.slice = self.slice.saturating_add(rest);
        self.used_at_ns = now_ns;
        self.alone.add(terms.alone, terms.alone.time_of(1), now_ns);
        Ok(Source::Bucket)
    }

    /// Uses one unit of this host's part.
    ///
    /// # Errors
    /// [`TooOften`].
    pub(super) fn take_alone(&mut self, terms: &Terms, now_ns: u64) -> Result<Source, TooOften> {
        self.check_alone(terms, now_ns)?;
        self.alone.add(terms.alone, terms.alone.time_of(1), now_ns);
        self.unbooked.add(terms.quota, terms.quota.time_of(1), now_ns);
        Ok(Source::Alone)
    }

    /// Whether this host's part has a unit left.
    ///
    /// # Errors
    /// [`TooOften`], which names the whole limit.
    pub(super) fn check_alone(&self, terms: &Terms, now_ns: u64) -> Result<Standing, TooOften> {
        let checked = check(self.alone.ahead_ns(terms.alone, now_ns), terms.alone);
        checked.map_err(|mut refused| {
            refused.standing.limit = terms.quota.per_minute;
            refused
        })
    }

    /// Whether a request may run that is charged when it ends. `None` if the bucket has to be asked.
    pub(super) fn check(&self, terms: &Terms, now_ns: u64) -> Option<Result<Standing, TooOften>> {
        if terms.free.is_some_and(|free| self.free.has_room(free, now_ns)) {
            return Some(Ok(self.standing(terms, now_ns)));
        }
        let seen_at_ns = self.seen_at_ns?;
        (now_ns.saturating_sub(seen_at_ns) < FRESH_NS).then(|| self.check_seen(terms, now_ns))
    }

    /// Whether a unit is left by what is known of the bucket.
    ///
    /// # Errors
    /// [`TooOften`].
    pub(super) fn check_seen(&self, terms: &Terms, now_ns: u64) -> Result<Standing, TooOften> {
        check(self.ahead_ns(terms, now_ns), terms.quota)
    }

    /// Adds use that has already happened. Returns whether it has to be booked now.
    pub(super) fn debit(&mut self, terms: &Terms, units: u64, now_ns: u64) -> bool {
        self.alone.add(terms.alone, terms.alone.time_of(units), now_ns);
        self.unbooked.add(terms.quota, terms.quota.time_of(units), now_ns);
        let Some(free) = terms.free else { return true };
        self.free.add(free, free.time_of(units), now_ns);
        !self.free.has_room(free, now_ns)
    }

    /// Returns the unit that has just been used.
    pub(super) fn give_back(&mut self, terms: &Terms, source: Source, now_ns: u64) {
        self.alone.subtract(terms.alone, terms.alone.time_of(1), now_ns);
        match (source, terms.free) {
            (Source::Bucket, _) => self.slice = self.slice.saturating_add(1),
            (Source::Free, Some(free)) => {
                self.free.subtract(free, free.time_of(1), now_ns);
                self.unbooked.subtract(terms.quota, terms.quota.time_of(1), now_ns);
            }
            (Source::Free | Source::Alone, _) => {
                self.unbooked.subtract(terms.quota, terms.quota.time_of(1), now_ns);
            }
        }
    }

    /// Takes out what was not used of a slice for two seconds, for the bucket; 0 if there is nothing.
    pub(super) fn take_idle(&mut self, now_ns: u64) -> u64 {
        let is_idle = now_ns.saturating_sub(self.used_at_ns) >= SLICE_IDLE_NS;
        if is_idle { std::mem::take(&mut self.slice) } else { 0 }
    }

    /// Whether there are units of a slice.
    pub(super) fn has_slice(&self) -> bool {
        self.slice > 0
    }

    /// How much is left, as far as this host knows.
    pub(super) fn standing(&self, terms: &Terms, now_ns: u64) -> Standing {
        terms.quota.standing(self.ahead_ns(terms, now_ns))
    }

    fn ahead_ns(&self, terms: &Terms, now_ns: u64) -> u64 {
        let known_ns = self.seen.ahead_ns(terms.quota, now_ns);
        let known_ns = known_ns.saturating_sub(terms.quota.time_of(self.slice));
        known_ns.saturating_add(self.unbooked.ahead_ns(terms.quota, now_ns))
    }

    /// Whether nothing is lost when this is forgotten.
    pub(super) fn is_idle(&self, now_ns: u64) -> bool {
        let paid_off =
            [self.alone, self.free, self.unbooked, self.seen].iter().all(|it| it.until_ns <= now_ns);
        paid_off && self.slice == 0 && !self.is_watched && !self.is_booking
    }

    /// When the use by this host is paid off.
    pub(super) fn until_ns(&self) -> u64 {
        self.alone.until_ns
    }
}

impl RateUsage {
    fn set(&mut self, quota: Quota, ahead_ns: u64, now_ns: u64) {
        let until_ns = now_ns.saturating_add(ahead_ns.min(quota.ahead_ns_max()));
        *self = Self { until_ns, per_minute: quota.per_minute };
    }

    fn add(&mut self, quota: Quota, used_ns: u64, now_ns: u64) {
        self.set(quota, self.ahead_ns(quota, now_ns).saturating_add(used_ns), now_ns);
    }

    fn subtract(&mut self, quota: Quota, used_ns: u64, now_ns: u64) {
        self.set(quota, self.ahead_ns(quota, now_ns).saturating_sub(used_ns), now_ns);
    }

    fn has_room(self, quota: Quota, now_ns: u64) -> bool {
        check(self.ahead_ns(quota, now_ns), quota).is_ok()
    }
}

#[cfg(test)]
mod tests;
